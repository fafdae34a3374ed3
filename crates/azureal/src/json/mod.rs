//! The JSON shapes of sessions, events and running turns, the same for every front end. Fields may be added, never removed.

mod turn;

pub use azureal_exchange::json::*;

pub use self::turn::{TurnEventLine, TurnLine, TurnLines};
use crate::meter::Meter;
use crate::turns::ActiveTurn;

/// The shape of one session, with its context usage and its running turn.
pub type SessionLine<'a> = azureal_exchange::json::SessionLine<'a, Meter, &'a ActiveTurn>;
