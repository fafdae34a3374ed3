//! The model server, and the real agents in front of it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot continue has failed, and the helpers are parts of tests"
)]

mod model_server;
mod real_agents;
