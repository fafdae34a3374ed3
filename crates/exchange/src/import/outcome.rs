//! Results of imports.

use std::fmt;

use azureal_core::{SessionId, counted};

/// The result of the import of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportOutcome {
    /// A new session.
    New {
        /// The session in the store.
        id: SessionId,
        /// The number of its events.
        events: usize,
    },
    /// A new session, a fork: another session has the same UUID and another log.
    Forked {
        /// The session in the store.
        id: SessionId,
        /// The number of its events.
        events: usize,
        /// The session that has the same UUID.
        from: SessionId,
    },
    /// The store had the beginning of the session, and the import added the rest.
    Continued {
        /// The session in the store.
        id: SessionId,
        /// The rest.
        added: Added,
    },
    /// The store had all of the session.
    Unchanged {
        /// The session in the store.
        id: SessionId,
    },
}

impl ImportOutcome {
    /// Returns the session in the store.
    pub fn session(self) -> SessionId {
        match self {
            Self::New { id, .. }
            | Self::Forked { id, .. }
            | Self::Continued { id, .. }
            | Self::Unchanged { id } => id,
        }
    }

    /// Says whether the import created the session.
    pub fn is_new(self) -> bool {
        matches!(self, Self::New { .. } | Self::Forked { .. })
    }

    /// Returns the number of events that the import stored.
    pub fn events(self) -> usize {
        match self {
            Self::New { events, .. } | Self::Forked { events, .. } => events,
            Self::Continued { added, .. } => added.events,
            Self::Unchanged { .. } => 0,
        }
    }

    /// Returns the session with the same UUID and another log, if the import created a fork of it.
    pub fn diverged_from(self) -> Option<SessionId> {
        match self {
            Self::Forked { from, .. } => Some(from),
            _ => None,
        }
    }
}

/// What an import added to a session. Displayed as text for people.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Added {
    /// The number of events.
    pub events: usize,
    /// The number of summaries.
    pub summaries: usize,
    /// The number of tokens that the source has counted without a new event.
    pub tokens: u64,
}

impl fmt::Display for Added {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = counted(self.events as u64, "new event");
        let summaries = match self.summaries {
            1 => "1 new summary".to_owned(),
            count => format!("{count} new summaries"),
        };
        match (self.events, self.summaries, self.tokens) {
            (0, 0, tokens) if tokens > 0 => f.write_str(&counted(tokens, "new token")),
            (_, 0, _) => f.write_str(&events),
            (0, _, _) => f.write_str(&summaries),
            _ => write!(f, "{events} and {summaries}"),
        }
    }
}
