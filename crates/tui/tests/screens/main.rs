//! The screens of the interface: scripts of keys and news, and what is drawn after them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests may")]

mod harness;
mod looks;
mod prompting;
mod scenes;
mod slots;
mod world;
