//! Runs turns.
//!
//! - [`Turn`] decides: what can happen to the turns of a session, as inputs in and effects out.
//! - [`Slots`] knows which turns run in a worktree, and which one is looked at.
//! - [`Spools`] keeps what an agent prints until it is in the store, and says whose it is.
//!
//! The driver that performs the effects, and the recovery of orphans, build on these.

mod slots;
mod spool;
mod turn;

pub use slots::Slots;
pub use spool::{Found, Spool, SpoolError, SpooledEnding, SpooledProcess, SpooledTurn, Spools};
pub use turn::{Effect, Input, Turn};
