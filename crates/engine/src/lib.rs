//! Runs turns.
//!
//! - [`Turn`] decides: what can happen to the turns of a session, as inputs in and effects out.
//! - [`Slots`] knows which turns run in a worktree, and which one is looked at.
//! - [`Lease`] lets one process at a time run a turn in a session.
//! - [`Spools`] keeps what an agent prints until it is in the store, and says whose it is.
//!
//! The driver that performs the effects, and the recovery of orphans, build on these.

mod lease;
mod slots;
mod spool;
mod turn;

pub use lease::{Holder, Lease, Leased};
pub use slots::Slots;
pub use spool::{Found, Spool, SpoolError, SpooledEnding, SpooledProcess, SpooledTurn, Spools};
pub use turn::{Effect, Input, Turn};
