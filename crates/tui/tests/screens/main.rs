//! The screens of the interface: scripts of keys and news, and what is drawn after them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot continue has failed"
)]

mod changes;
mod docs;
mod harness;
mod header;
mod hostile;
mod labels;
mod looks;
mod prompting;
mod random;
mod scenes;
mod search;
mod slots;
mod svg;
mod world;
