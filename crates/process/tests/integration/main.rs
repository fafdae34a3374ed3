//! Real child processes: how they start, what they print, and how nothing of them is left.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "tests read the environment of their process, and start it again"
)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot continue has failed, and the helpers are parts of tests"
)]

mod follow;
mod scratch;
mod spawn;
mod stop;
