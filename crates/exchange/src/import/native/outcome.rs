//! The result of the import of a session.

use azureal_agents::native::NativeProblem;
use azureal_core::{Seq, SessionId, counted};

/// The result of the import of a native session.
#[derive(Debug)]
pub struct NativeImported {
    /// The result.
    pub outcome: NativeOutcome,
    /// The place of the new events in the session.
    pub range: Option<(Seq, Seq)>,
    /// The size of the source at the last import; 0 if there was none.
    pub read_before: u64,
    /// The parts that could not be imported.
    pub problems: Vec<NativeProblem>,
    /// The number of further ones.
    pub further_problems: u64,
    /// Whether the last turn was left out, because it seems to run.
    pub is_running: bool,
    /// The number of turns that were left out, because azureal ran them.
    pub ours: u64,
    /// The beginning of the first new prompt; empty if there is none.
    pub preview: String,
    /// For an unchanged session, the run whose caller keeps its source, and the last event from it.
    pub kept_by: Option<(String, Seq)>,
}

/// What became of a native session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeOutcome {
    /// A new session. In a dry run it has no number.
    New {
        /// The session in the store.
        id: Option<SessionId>,
        /// Its turns.
        turns: u64,
        /// Its events.
        events: u64,
    },
    /// New turns of a session that was imported before.
    Continued {
        /// The session in the store.
        id: SessionId,
        /// The new turns.
        turns: u64,
        /// The new events.
        events: u64,
    },
    /// New turns of a session that was continued here too, or whose user went back in the program: they are in another session.
    Forked {
        /// The session in the store; `None` in a dry run.
        id: Option<SessionId>,
        /// The session that was imported before.
        from: SessionId,
        /// The new turns.
        turns: u64,
        /// The new events.
        events: u64,
    },
    /// There is nothing new.
    Unchanged {
        /// The session in the store.
        id: SessionId,
    },
    /// It is not imported.
    LeftOut(LeftOut),
}

impl NativeOutcome {
    /// Returns the session in the store; `None` if it is left out, or new in a dry run.
    pub fn session(self) -> Option<SessionId> {
        match self {
            Self::New { id, .. } | Self::Forked { id, .. } => id,
            Self::Continued { id, .. } | Self::Unchanged { id } => Some(id),
            Self::LeftOut(_) => None,
        }
    }

    /// Returns the number of turns and events that are new in the store.
    pub fn added(self) -> (u64, u64) {
        match self {
            Self::New { turns, events, .. }
            | Self::Continued { turns, events, .. }
            | Self::Forked { turns, events, .. } => (turns, events),
            Self::Unchanged { .. } | Self::LeftOut(_) => (0, 0),
        }
    }
}

/// The reason why a native session is not imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// Azureal ran it: the store has it, or another store of azureal.
    Ours,
    /// It is the work of a subagent, which belongs to another session.
    Subagent,
    /// It has no turn.
    Empty,
    /// Its only turn seems to run.
    Running,
    /// It was imported before, and the user deleted it.
    Deleted,
}

impl LeftOut {
    /// Returns the reason, for people.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Ours => "azureal ran it",
            Self::Subagent => "it is the work of a subagent",
            Self::Empty => "it has no turn",
            Self::Running => "its turn seems to run",
            Self::Deleted => "it was deleted here; `--again` imports it",
        }
    }
}

impl NativeImported {
    /// Returns what could not be imported, one text for each part.
    pub fn messages(&self) -> Vec<String> {
        let mut messages: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        if self.further_problems > 0 {
            messages.push(format!("{} more parts were left out", self.further_problems));
        }
        if self.is_running && !matches!(self.outcome, NativeOutcome::LeftOut(_)) {
            messages.push("its last turn was left out: it seems to run; the next import adds it".to_owned());
        }
        if self.ours > 0 && !matches!(self.outcome, NativeOutcome::LeftOut(_)) {
            let turns = counted(self.ours, "turn");
            messages.push(format!("{turns} left out: azureal ran them"));
        }
        messages
    }

    pub(super) fn of(outcome: NativeOutcome, read_before: u64) -> Self {
        Self {
            outcome,
            range: None,
            read_before,
            problems: Vec::new(),
            further_problems: 0,
            is_running: false,
            ours: 0,
            preview: String::new(),
            kept_by: None,
        }
    }

    pub(super) fn left_out(why: LeftOut) -> Self {
        Self::of(NativeOutcome::LeftOut(why), 0)
    }
}
