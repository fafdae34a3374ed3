//! The JSON shapes of sessions and events, the same for every front end. Fields may be added, never removed.

pub use azureal_exchange::json::*;

use crate::meter::Meter;

/// The shape of one session, with its context usage.
pub type SessionLine<'a> = azureal_exchange::json::SessionLine<'a, Meter>;
