//! What holds for every input of the pure functions.
#![expect(clippy::disallowed_methods, reason = "a test asks where temporary files go")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod compaction;
mod properties;
