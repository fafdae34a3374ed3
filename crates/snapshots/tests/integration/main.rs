//! Snapshots of real repositories.
#![expect(clippy::disallowed_methods, reason = "tests find git in the PATH of this process")]
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

mod align;
mod case;
mod check;
mod hostile;
mod ignored;
mod place;
mod prune;
mod rule_files;
mod take;
mod there;
mod turns;
mod undo;
