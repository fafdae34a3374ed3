//! The interface of the real program on a pseudo-terminal, as a user sees it.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, and says where"
)]

mod as_typed;
mod changes;
mod counts;
mod place;
mod plain;
mod prompts;
mod reading;
mod real_agents;
mod search;
mod settings;
mod terminal;
mod waiting;
