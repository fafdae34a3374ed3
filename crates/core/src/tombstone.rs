//! What is left of a deleted session.

use uuid::Uuid;

#[cfg(doc)]
use crate::SessionStore;

/// The fact that a session was deleted, by [`SessionStore::delete`]. It has nothing of the session's content, and stays until the
/// store is purged. So an exchange with another store does not bring the session back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The identity of the session.
    pub uuid: Uuid,
    /// When it was deleted, as `2026-01-31T09:30:00Z`; empty in the memory store. Later than every other time that the store has seen
    /// of this UUID.
    pub deleted_at: String,
    /// The number of events that it had.
    pub events: u64,
    /// When a session with this UUID was created again; `None` if none was since the last deletion. Empty in the memory store.
    pub revived_at: Option<String>,
}
