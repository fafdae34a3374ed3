//! The real program, from the outside: exit code, standard output and standard error.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, and says where"
)]

mod compact;
mod docs;
mod export;
mod hostile;
mod import;
mod run;
mod sessions;
mod usage;
mod worktrees;
mod world;
