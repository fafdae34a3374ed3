//! Turns, compactions and recovery with real processes, spools and stores.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "tests read the environment of their process, and start it again"
)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot continue has failed, and the helpers are parts of tests"
)]

mod auto_compact;
mod bridge;
mod briefing;
mod cancels;
mod changes;
mod compact;
mod context_commands;
mod counting_store;
mod harness;
mod leases;
mod machine;
mod originals;
mod own_record;
mod real_agents;
mod real_summaries;
mod service;
mod store_calls;
mod turns;
mod unstored;
#[cfg(target_os = "linux")]
mod watched;
