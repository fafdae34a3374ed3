//! Sessions of opencode and goose, in databases of real runs against a stand-in for the models (`fixtures/<agent>.sql`).
//!
//! Beside them is the output of the runs of the three turns, `<agent>-stdout<n>.jsonl`. `opencode-2.sql` is no recording: it has
//! rows as opencode's published types describe them.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed, and the helpers are parts of tests"
)]

mod damage;
mod database;
mod in_place;
mod turns;
