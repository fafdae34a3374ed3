//! Keys: one table of actions, and the keys that the configuration changes.

mod action;
mod key;
mod map;
mod table;

pub use action::Action;
pub use key::Key;
pub use map::Keys;
pub use table::{Context, Entry, TABLE};
