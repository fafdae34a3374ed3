//! The parsers on recorded runs of the real programs, `tests/fixtures/<agent>/<version>/<case>/`.
//!
//! Beside each recording lies `events.snap`, what is expected of it. [`reviewed`] says the same of the cases that
//! matter most in the words of the people who know the programs, so that a snapshot is not only what the code
//! happened to do.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed, and the helpers are parts of tests"
)]

mod cases;
mod cuts;
mod mutated;
mod natives;
mod random;
mod records;
mod render;
mod reviewed;
mod sizes;
mod snapshots;
