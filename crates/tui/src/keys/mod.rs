//! Keys.

mod table;

pub use table::{Action, Context, Entry};
