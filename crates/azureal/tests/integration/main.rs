//! The library as a front end uses it, with real child processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "tests read the environment of their process, and start it again"
)]

mod async_use;
mod chat;
mod desk;
mod environment;
