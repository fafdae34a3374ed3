//! The sessions that the agents' programs keep themselves, `fixtures/<agent>/<case>/`.
//!
//! The files are from real runs against a stand-in for the models; long texts are cut. Beside the sessions of a case is
//! `turns.snap`, the expected turns, and in `stdout<n>.jsonl` the output of the run of the same turn.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed, and the helpers are parts of tests"
)]

mod cases;
mod damage;
mod heads;
mod streams;
mod turns;
mod written;
