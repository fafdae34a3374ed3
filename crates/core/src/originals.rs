//! Originals: the output of turns as the agents printed it.

use std::path::PathBuf;

use async_trait::async_trait;

use crate::{Seq, SessionId, StoreError};

/// The originals of a store: a capability of a [`SessionStore`](crate::SessionStore).
///
/// Stored events are short, and the next version of a parser may read more out of an agent's output than the one that stored
/// it. So the output itself is kept too, and belongs to its turn. A turn that was compacted in the middle has several
/// originals, each with its own range of events.
///
/// An original has two parts. The header says how the output came to be: JSON lines of the engine, which a store does not
/// read; it may drop empty ones. The output is what the agent printed, byte for byte; the engine may add lines after it, which
/// its header tells apart.
#[async_trait]
pub trait Originals: Send + Sync {
    /// Puts the original of a turn whose events are in the store. Moves the files, if they are on the same file system.
    ///
    /// Idempotent: if the files were moved by an earlier call that was interrupted, this completes it. A store that takes no
    /// new originals leaves the files alone.
    async fn put(&self, session: SessionId, new: NewOriginal) -> Result<(), StoreError>;

    /// Puts a copy of another store's original, whose session has the same events here. A run that is there is not changed.
    /// A store that takes no new originals ignores it.
    async fn copy(
        &self,
        session: SessionId,
        original: &Original,
        content: OpenOriginal,
    ) -> Result<(), StoreError>;

    /// Completes what [`put`](Self::put) left for later: it compresses new originals, and a store on a server uploads
    /// them. Slow. What is interrupted is done by the next call. One process at a time does it; another call returns at
    /// once.
    async fn finish(&self) -> Result<(), StoreError>;

    /// Returns the originals of a session, in the order of their events.
    async fn list(&self, session: SessionId) -> Result<Vec<Original>, StoreError>;

    /// Opens the original of a run; `None` if there is none.
    async fn open(&self, session: SessionId, run: &str) -> Result<Option<OpenOriginal>, StoreError>;

    /// Deletes the originals of a session, and returns their size in bytes. The session stays.
    async fn delete(&self, session: SessionId) -> Result<u64, StoreError>;

    /// Deletes the originals of all sessions that are older than so many days, at most once a day. A store on a server deletes
    /// those that this user has uploaded.
    async fn expire(&self, days: u32) -> Result<(), StoreError>;

    /// Returns the size of the originals of a session, in bytes, as they are stored.
    async fn size(&self, session: SessionId) -> Result<u64, StoreError> {
        Ok(self.list(session).await?.iter().map(|original| original.bytes).sum())
    }

    /// Returns the sizes of the originals of several sessions; 0 for a session that does not exist.
    async fn sizes(&self, sessions: &[SessionId]) -> Result<Vec<u64>, StoreError> {
        let mut sizes = Vec::with_capacity(sessions.len());
        for session in sessions {
            match self.size(*session).await {
                Err(StoreError::NoSuchSession(_)) => sizes.push(0),
                size => sizes.push(size?),
            }
        }
        Ok(sizes)
    }

    /// Returns the original of the turn that an event belongs to.
    async fn find(&self, session: SessionId, seq: Seq) -> Result<Option<Original>, StoreError> {
        Ok(self.list(session).await?.into_iter().find(|original| original.covers(seq)))
    }
}

/// An original in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// The name of the run.
    pub run: String,
    /// The first event of the turn; [`Seq::START`] if its place in the session is not known.
    pub first: Seq,
    /// The last event of the turn.
    pub last: Seq,
    /// The size in the store, in bytes.
    pub bytes: u64,
}

impl Original {
    /// Returns whether an event belongs to its turn.
    pub fn covers(&self, seq: Seq) -> bool {
        self.first != Seq::START && self.first <= seq && seq <= self.last
    }
}

/// The original of a turn, in files of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOriginal {
    /// The name of the run: letters and digits.
    pub run: String,
    /// The first event of the turn; [`Seq::START`] if that is not known.
    pub first: Seq,
    /// The last event of the turn.
    pub last: Seq,
    /// The file with the header.
    pub header: PathBuf,
    /// The file with the output.
    pub output: PathBuf,
    /// A file with what follows the output, if there is one.
    pub more: Option<PathBuf>,
}

/// An original that is open for reading.
pub struct OpenOriginal {
    /// The header.
    pub header: String,
    /// The output.
    pub output: Box<dyn OriginalReader>,
}

/// Reads the output of an original from its beginning.
#[async_trait]
pub trait OriginalReader: Send {
    /// Returns the next bytes, at most [`ORIGINAL_PIECE`]; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError>;
}

/// The most bytes that an [`OriginalReader`] returns at once: 1 MiB.
pub const ORIGINAL_PIECE: usize = 1 << 20;
/// The longest header of an original, in bytes: that of a spool with a prompt of 10 MiB.
pub const LARGEST_ORIGINAL_HEADER: usize = 73 << 20;
