//! Notes in a store, by which a turn that was interrupted is recovered, once.

use async_trait::async_trait;

#[cfg(doc)]
use crate::NewTurn;
use crate::{SessionId, SessionStore, StoreError};

/// Marks of stored turns, and notes of runs that are not stored yet: a capability of a [`SessionStore`].
///
/// A store without them works as long as no azureal process dies. After a crash between append and removal of the
/// output, the turn is stored twice. A turn whose output was lost is not recovered, and a second import of a session
/// duplicates it.
#[async_trait]
pub trait CrashNotes: SessionStore {
    /// Returns the mark of this name, if a turn has set it ([`NewTurn::mark`]).
    async fn mark(&self, name: &str) -> Result<Option<Mark>, StoreError>;

    /// Removes a mark; returns whether there was one.
    async fn remove_mark(&self, name: &str) -> Result<bool, StoreError>;

    /// Notes the agent's own name of a run whose events are not in the store yet, so that they can be looked
    /// for after a crash; `None` or an empty name removes the note. It goes with its session.
    async fn note_run(&self, id: SessionId, run: Option<&str>) -> Result<(), StoreError>;

    /// Returns the sessions that have such a note, with it, by their number.
    async fn noted_runs(&self) -> Result<Vec<(SessionId, String)>, StoreError>;

    /// Removes the note of the original AZUREAL program's run, if it is still this one; returns whether it was.
    ///
    /// By default there is none: only a file can be shared with that program.
    async fn clear_original_run(&self, id: SessionId, _run: &str) -> Result<bool, StoreError> {
        self.get(id).await.map(|_| false)
    }
}

/// The beginning of the names of marks that outlive their session. When the session is deleted, the store empties their notes. So
/// the next import knows that the user deleted it.
pub const LASTING_MARKS: &str = "native:";

/// A small fact that is set in the same transaction as a turn. It goes when its session is deleted, unless its name begins
/// with [`LASTING_MARKS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The session that the turn went to. A lasting one may name a session that is deleted.
    pub session: SessionId,
    /// The note of the setter.
    pub note: String,
}

/// A mark to be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMark {
    /// Its name; setting it again replaces it.
    pub name: String,
    /// The note to store.
    pub note: String,
}
