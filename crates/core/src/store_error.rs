//! Errors of a store.
//!
//! An error has a kind for programs and a message for people. Hints come from elsewhere: a store knows its database,
//! and a front end knows its commands.

use std::error::Error;

use uuid::Uuid;

#[cfg(doc)]
use crate::NewTurn;
use crate::{LARGEST_EVENT, Mark, Seq, SessionId};

/// An error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no session of this number.
    #[error("no session {0} in this store")]
    NoSuchSession(SessionId),
    /// There is no event at this place.
    #[error("session {session} has no event {seq}: its last is {last}")]
    NoSuchEvent {
        /// The session.
        session: SessionId,
        /// The place that was asked for.
        seq: Seq,
        /// The last event there is.
        last: Seq,
    },
    /// The session was changed since it was read.
    #[error("session {session} has changed since it was read: its last event is {last}, not {expected}")]
    Moved {
        /// The session.
        session: SessionId,
        /// The last event that it should have had.
        expected: Seq,
        /// The last event that it has.
        last: Seq,
    },
    /// Another process holds the lease of the session now.
    #[error("another process has taken over session {0}")]
    Fenced(SessionId),
    /// The session was cleared since the first try of an append with a [`NewTurn::operation`]. The turn may have been in it; nothing
    /// was changed. A caller that wants it there begins a new operation.
    #[error("session {0} was cleared since this turn was first sent")]
    Cleared(SessionId),
    /// Another process has done this already.
    #[error("this is in session {} already", .0.session)]
    Marked(Mark),
    /// An event is larger than [`LARGEST_EVENT`].
    #[error("an event of {bytes} bytes is larger than the {} MiB that one may have", LARGEST_EVENT >> 20)]
    TooLarge {
        /// The size.
        bytes: usize,
    },
    /// The store cannot be read.
    #[error("{place} cannot be read")]
    Unreadable {
        /// The store.
        place: String,
    },
    /// The name is empty, or looks like a session's number.
    #[error("`{0}` cannot be the name of a session")]
    UnusableName(String),
    /// The store was written by a newer azureal.
    #[error(
        "{place} was written by a newer azureal: it has {what} {found}, and this one knows up to {known}"
    )]
    Newer {
        /// The store.
        place: String,
        /// The version that is newer.
        what: &'static str,
        /// The version of the store.
        found: String,
        /// The newest version that this build knows.
        known: u32,
    },
    /// There is something, and it is no store of ours.
    #[error("{place} is not an azureal store: {why}")]
    NotAStore {
        /// The place.
        place: String,
        /// Its actual kind.
        why: String,
    },
    /// The place is not one that history should be written to.
    #[error("{place} is not safe to use: {why}")]
    Unsafe {
        /// The place.
        place: String,
        /// The fault.
        why: String,
    },
    /// The store's file has a definition that would run, and that is not ours.
    #[error("{place} defines {what}, which azureal did not create")]
    UnknownDefinition {
        /// The store.
        place: String,
        /// The definition, such as "the trigger `x`".
        what: String,
    },
    /// The server of the store does not answer.
    #[error("{place} cannot be reached{}: {why}", waited(*.seconds))]
    Unreachable {
        /// The store.
        place: String,
        /// The last error.
        why: String,
        /// The time that was spent on retries, in whole seconds.
        seconds: u64,
    },
    /// The server of the store stopped answering after it was asked for a change: the change was done, is done later, or is not done.
    ///
    /// An append with an operation can be sent again, which returns its place. Other changes show in what is read.
    #[error("{place} did not answer, and may have stored the change{}: {why}", waited(*.seconds))]
    OutcomeUnknown {
        /// The store.
        place: String,
        /// The id of the [`NewTurn::operation`], if the change has one.
        operation: Option<Uuid>,
        /// The last error.
        why: String,
        /// The time that was spent on retries, in whole seconds.
        seconds: u64,
    },
    /// The server of the store rejects our credentials, or does not permit this.
    #[error("{place} refuses us: {why}")]
    Denied {
        /// The store.
        place: String,
        /// The message of the server.
        why: String,
    },
    /// The server of the store throws things away when it has no room for more.
    #[error("{place} may throw history away: {why}")]
    Forgetful {
        /// The store.
        place: String,
        /// By which of its settings.
        why: String,
    },
    /// Others have held the store for longer than it is sensible to wait.
    #[error("{place} has been in use by another program for {seconds} seconds")]
    Busy {
        /// The store.
        place: String,
        /// The time that was spent waiting.
        seconds: u64,
    },
    /// There is no room left.
    #[error("{place} cannot grow: the disk is full")]
    Full {
        /// The store.
        place: String,
    },
    /// A session number above the highest one would be needed.
    #[error("the store has no session number left: the highest is in use, or was")]
    NumbersUsedUp,
    /// The store can be read and not written.
    #[error("{place} cannot be written")]
    ReadOnly {
        /// The store.
        place: String,
    },
    /// The store's own structure is broken.
    #[error("{place} is damaged: {why}")]
    Corrupt {
        /// The store.
        place: String,
        /// The damage.
        why: String,
    },
    /// The store does not offer this.
    #[error("this store does not support {0}")]
    NotSupported(&'static str),
    /// The store has been closed.
    #[error("the store has been closed")]
    Closed,
    /// Any other error of the database or the system.
    #[error("{place}: {source}")]
    Other {
        /// The store.
        place: String,
        /// The error.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// The errors that `?` converts. Not every error: that would include [`StoreError`], which Rust does not allow.
macro_rules! from_foreign {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for StoreError {
            fn from(error: $error) -> Self {
                Self::other(error)
            }
        })+
    };
}

from_foreign!(
    Box<dyn Error + Send + Sync>,
    serde_json::Error,
    std::fmt::Error,
    std::io::Error,
    std::num::ParseFloatError,
    std::num::ParseIntError,
    std::num::TryFromIntError,
    std::str::Utf8Error,
    std::string::FromUtf8Error,
    std::time::SystemTimeError,
    String,
    &str,
);

impl StoreError {
    /// Wraps the error of another crate, for stores of one's own: `map_err(StoreError::other)?`.
    pub fn other(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other { place: "the store".to_owned(), source: source.into() }
    }

    /// Returns the name of this sort of error, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NoSuchSession(_) | Self::NoSuchEvent { .. } => "not_found",
            Self::Moved { .. } | Self::Marked(_) => "conflict",
            Self::Fenced(_) => "fenced",
            Self::Cleared(_) => "cleared",
            Self::TooLarge { .. } => "too_large",
            Self::Unreadable { .. } => "unreadable",
            Self::UnusableName(_) => "unusable_name",
            Self::Corrupt { .. } => "damaged",
            Self::Newer { .. } => "newer",
            Self::NotAStore { .. } => "not_a_store",
            Self::Unsafe { .. } | Self::UnknownDefinition { .. } | Self::Forgetful { .. } => "unsafe",
            Self::Unreachable { .. } => "unreachable",
            Self::OutcomeUnknown { .. } => "outcome_unknown",
            Self::Denied { .. } => "denied",
            Self::Busy { .. } => "busy",
            Self::Full { .. } => "full",
            Self::NumbersUsedUp => "numbers_used_up",
            Self::ReadOnly { .. } => "read_only",
            Self::NotSupported(_) => "not_supported",
            Self::Closed => "closed",
            Self::Other { .. } => "store",
        }
    }

    /// Returns the store that the error is about, if it names one: a file, or a URL without its secrets.
    pub fn place(&self) -> Option<&str> {
        match self {
            Self::Unreadable { place }
            | Self::Newer { place, .. }
            | Self::NotAStore { place, .. }
            | Self::Unsafe { place, .. }
            | Self::UnknownDefinition { place, .. }
            | Self::Unreachable { place, .. }
            | Self::OutcomeUnknown { place, .. }
            | Self::Denied { place, .. }
            | Self::Forgetful { place, .. }
            | Self::Busy { place, .. }
            | Self::Full { place }
            | Self::ReadOnly { place }
            | Self::Corrupt { place, .. }
            | Self::Other { place, .. } => Some(place),
            Self::NoSuchSession(_)
            | Self::NoSuchEvent { .. }
            | Self::Moved { .. }
            | Self::Fenced(_)
            | Self::Cleared(_)
            | Self::Marked(_)
            | Self::TooLarge { .. }
            | Self::UnusableName(_)
            | Self::NumbersUsedUp
            | Self::NotSupported(_)
            | Self::Closed => None,
        }
    }
}

/// Describes the time that was spent on retries, if it was long enough to be noticed.
fn waited(seconds: u64) -> String {
    match seconds {
        0 => String::new(),
        seconds => format!(" (tried for {seconds} s)"),
    }
}
