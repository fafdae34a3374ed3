//! Errors of an import or a copy.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use azureal_agents::native::NativeError;
use azureal_core::{EventError, SessionId, StoreError, counted, io_error_text, quoted};

use super::recognise::LARGEST_TEXT;
use crate::json::SESSION_VERSION;

/// An error of an import or a copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A store cannot be read or written: the target, or the one that the sessions come from.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A session of an agent's program cannot be read.
    #[error(transparent)]
    Native(#[from] NativeError),
    /// A file or folder cannot be read, or a temporary file not be written.
    #[error("{}: {}", path.display(), io_error_text(source))]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The path is a pipe, a device or the like.
    #[error("{} is not a plain file", path.display())]
    NotAPlainFile {
        /// The path.
        path: PathBuf,
    },
    /// The file is empty.
    #[error("{} is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is a list or a database of messages, and contains none.
    #[error("{} has no messages", path.display())]
    NoMessages {
        /// The file.
        path: PathBuf,
    },
    /// The content is in no format that can be imported.
    #[error("{} is in none of the formats that import knows", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// The error of the decoder, if the content was decoded.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The content is no JSON.
    #[error("{} is not JSON: {source}", path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// The JSON is truncated.
    #[error("{} ends in the middle of its JSON: {source}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// The JSON is larger than the limit.
    #[error("{} has more than {} MiB", quoted(path.display()), LARGEST_TEXT >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A newer version exported the session.
    #[error(
        "{} was written by a newer azureal: it has version {version}, and this one knows up to {SESSION_VERSION}",
        path.display()
    )]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u64,
    },
    /// SQLite would open something beside the database that is no plain file: reading a pipe would block.
    #[error("{} is not a plain file", quoted(path.display()))]
    UnsafeCompanion {
        /// The path beside the database.
        path: PathBuf,
    },
    /// The folder for temporary files has no room for a copy of the database.
    #[error(
        "{} takes {} MiB, and {} has room for {} MiB",
        quoted(path.display()), needed >> 20, quoted(folder.display()), room >> 20
    )]
    NoRoom {
        /// The database.
        path: PathBuf,
        /// The size of the copy in bytes.
        needed: u64,
        /// The folder.
        folder: PathBuf,
        /// Its free bytes.
        room: u64,
    },
    /// The file is the store to import into.
    #[error("{} is the store that would be imported into", path.display())]
    OwnStore {
        /// The file.
        path: PathBuf,
    },
    /// No file of the folder can be imported.
    #[error("{} holds nothing that can be imported", path.display())]
    NothingInFolder {
        /// The folder.
        path: PathBuf,
    },
    /// An event of the source cannot be read.
    #[error("an event cannot be read: {0}")]
    Event(#[from] EventError),
    /// Another process removed events of the source while they were read.
    #[error("its events were removed while they were read")]
    EventsRemoved,
    /// Other processes change the session in the target faster than it can be compared.
    #[error("{session}: its session keeps changing while it is imported")]
    KeepsChanging {
        /// The session, as [`IncomingSession::label`](super::IncomingSession::label) has it.
        session: String,
    },
    /// A value cannot be written as JSON.
    #[error("this cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A session in the target differs from its source after it was copied.
    #[error("{id} differs from {session}: {difference}")]
    Differs {
        /// The session in the target.
        id: SessionId,
        /// The session in the source, as [`IncomingSession::label`](super::IncomingSession::label) has it.
        session: String,
        /// The first difference.
        difference: Difference,
    },
    /// The progress callback stopped the import.
    #[error("the import was stopped")]
    ImportStopped,
    /// The progress callback stopped the copy.
    #[error("the copy was stopped")]
    CopyStopped,
}

impl ImportError {
    /// Says whether the file is in another format. A folder may contain such files.
    pub fn is_other_format(&self) -> bool {
        matches!(
            self,
            Self::NotAPlainFile { .. }
                | Self::Empty { .. }
                | Self::NoMessages { .. }
                | Self::UnknownFormat { .. }
                | Self::NotJson { .. }
                | Self::NothingInFolder { .. }
        )
    }
}

/// A difference between a session and its copy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// The copy has an event that cannot be read.
    UnreadableEvent,
    /// The copy has another number of events.
    EventCount {
        /// The number of events in the copy.
        copied: usize,
        /// The number of events in the source.
        source: usize,
    },
    /// The events have other texts.
    EventTexts,
    /// The summary of the first events is another one, or missing.
    Summary {
        /// The number of events that it covers.
        events: u64,
    },
    /// A value of the session record differs.
    Record(&'static str),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnreadableEvent => f.write_str("it has an event that cannot be read"),
            Self::EventCount { copied, source } => {
                write!(f, "it has {copied} of {}", counted(*source as u64, "event"))
            }
            Self::EventTexts => f.write_str("its events have other texts"),
            Self::Summary { events } => {
                let events = counted(*events, "event");
                write!(f, "its summary of the first {events} is another one, or none")
            }
            Self::Record(value) => write!(f, "it has another {value}"),
        }
    }
}
