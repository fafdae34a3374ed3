#![doc = include_str!("../docs/writing-a-store.md")]
#![doc = "```"]
#![doc = include_str!("../examples/keyword_store.rs")]
#![doc = "```"]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "tools of tests look at the environment and print"
)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "this crate is a test, and a panic is how a test reports"
)]

mod agree;
pub mod browser;
mod context_store;
mod contract;
mod log;
pub mod model_server;
pub mod programs;
pub mod project;
pub mod pty;
pub mod real_agents;
pub mod servers;
mod session_store;
mod thorough;
mod until;

pub use agree::{Runs, Sequence, long_sequence_agrees, random_operations_agree};
pub use context_store::{CONTEXT_STORE_CASES, MOST_MESSAGES, context_store_from_history};
pub use contract::Case;
pub use log::captured_log;
pub use session_store::SESSION_STORE_CASES;
pub use thorough::thorough;
pub use until::until;

#[doc(hidden)]
pub use contract::Fresh;

#[doc(hidden)]
pub use context_store::run_context_store_case;
#[doc(hidden)]
pub use session_store::run_session_store_case;
