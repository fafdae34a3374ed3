//! Notices and problems of an import: the session is there, but not exactly as it was.

use std::error::Error;
use std::fmt;

use azureal_core::{SessionId, quoted};

/// The reason why something cannot be read.
pub(super) type Reason = Box<dyn Error + Send + Sync>;

/// A deliberate change of a session by its import.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportNotice {
    /// Another session of the store has the name, so the imported one got a number behind it.
    NameTaken {
        /// The name in the source.
        wanted: String,
        /// The session in the store.
        id: SessionId,
        /// The name in the store.
        name: String,
    },
}

impl fmt::Display for ImportNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameTaken { wanted, id, name } => {
                let (wanted, name) = (quoted(wanted), quoted(name));
                write!(f, "{wanted} is the name of another session; {id} is named {name}")
            }
        }
    }
}

/// A part of a session that could not be imported as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportProblem {
    /// The name cannot be the name of a session.
    #[error("{} cannot be the name of a session; it has none now", quoted(.0))]
    UnusableName(String),
    /// An event cannot be read.
    #[error("event {seq} ({kind}) was left out, because it cannot be read: {source}")]
    EventLeftOut {
        /// Its number in the source.
        seq: u64,
        /// Its kind.
        kind: String,
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A message cannot be read.
    #[error("the message at position {position} was left out, because it cannot be read: {source}")]
    MessageLeftOut {
        /// Its position in the source.
        position: u64,
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Messages contained something that azureal has no form for.
    #[error("{description} ({count}×)")]
    Converted {
        /// The thing and what became of it.
        description: String,
        /// The number of its occurrences.
        count: u64,
    },
    /// A field of the conversation has no counterpart.
    #[error("{} of the conversation, left out: {}", quoted(name), quoted(value))]
    FieldLeftOut {
        /// The name of the field.
        name: String,
        /// Its value, abridged.
        value: String,
    },
    /// A second system prompt became a note in the system message.
    #[error("{} of the conversation, kept as a note in its system message", quoted(name))]
    SystemPromptKeptAsNote {
        /// The name of its field.
        name: String,
    },
}
