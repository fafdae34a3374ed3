//! The interface of the real program on a pseudo-terminal, as a user sees it.
#![expect(clippy::disallowed_methods, reason = "tests start processes, and wait")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, and says where"
)]

mod counts;
mod place;
mod plain;
mod prompts;
mod real_agents;
mod terminal;
