//! What holds for every input of the pure functions.
#![expect(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod compaction;
mod properties;
