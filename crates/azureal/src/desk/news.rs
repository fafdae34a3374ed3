//! News for an interface.

use std::ops::Range;

use azureal_core::agent::AgentOutput;
use azureal_core::bridge::Question;
use azureal_core::event::Complete;
use azureal_core::{Event, Seq, SessionId, SessionRecord, StoredEvent};

use azureal_transcript::Tone;

use super::{FileChanges, Kept, Offer, PaneId, UndoQuestion};
use crate::error::Error;
use crate::meter::Meter;
use crate::search::{Hit, Total};
use crate::turns::ActiveTurn;

/// The result of a search over all sessions.
#[derive(Debug, Clone)]
pub struct SearchNews {
    /// The text that was searched for.
    pub text: String,
    /// The hits, the best one first.
    pub hits: Vec<Hit>,
    /// The number of events that match.
    pub total: Total,
    /// The number of sessions that are not searched yet.
    pub not_searched: u64,
    /// The number of events that cannot be read, among those that this search has read or indexed.
    pub damaged: u64,
    /// The reason why nothing could be searched for.
    pub problem: Option<String>,
    /// Whether no further result follows.
    pub is_over: bool,
}

/// News for an interface: answers to its requests, and changes that other processes make.
#[derive(Debug)]
pub enum News {
    /// The sessions, the last active one first.
    Sessions(Vec<SessionLine>),
    /// A session was opened in a pane.
    Opened(Box<Opened>),
    /// Events of a session that were asked for, oldest first. Without any, the beginning or the end is reached.
    Page {
        /// The pane.
        pane: PaneId,
        /// The event that was asked for: the events are before or after it.
        from: Seq,
        /// Whether the events are before it.
        backwards: bool,
        /// The events.
        events: Vec<StoredEvent>,
    },
    /// The full form of events. Events without one are left out.
    Full {
        /// The pane.
        pane: PaneId,
        /// The events.
        events: Vec<(Seq, Event)>,
    },
    /// A search has ended.
    Found {
        /// The pane.
        pane: PaneId,
        /// The searched text; `None` for a prompt.
        text: Option<String>,
        /// The event; `None` if there is no hit.
        seq: Option<Seq>,
    },
    /// The tones of code in a block, by places in the source of the block.
    Highlighted {
        /// The pane.
        pane: PaneId,
        /// The first event of the block, and its part.
        block: (Seq, u16),
        /// The place of the code in the source of the block, in bytes.
        at: usize,
        /// The tones.
        tones: Vec<(Range<usize>, Tone)>,
    },
    /// The turns of the session of a pane are counted, after it was opened.
    Counted {
        /// The pane.
        pane: PaneId,
        /// The number of turns.
        turns: u64,
        /// The prompt of the last one; [`Seq::START`] if there is none.
        last: Seq,
    },
    /// Another agent or model was chosen for the next turn of a pane.
    NextAgent {
        /// The pane.
        pane: PaneId,
        /// The agent and model.
        next: NextAgent,
    },
    /// The session of a pane has more events, which another process stored.
    Appended {
        /// The pane.
        pane: PaneId,
        /// The events.
        events: Vec<StoredEvent>,
    },
    /// The session of a pane was cleared or its history changed: everything shown of it is to be read again.
    Changed {
        /// The pane.
        pane: PaneId,
    },
    /// The session of a pane was deleted.
    Deleted {
        /// The pane.
        pane: PaneId,
    },
    /// No process runs a turn in the session of a pane, a moment ago. The answer to [`AwaitLease`](super::Request::AwaitLease).
    LeaseFree {
        /// The pane.
        pane: PaneId,
    },
    /// Something happened to the turn of a pane.
    Turn {
        /// The pane.
        pane: PaneId,
        /// What.
        news: Box<TurnNews>,
    },
    /// A session was forked.
    Forked {
        /// The new session.
        session: SessionId,
        /// The session that it is a copy of.
        from: SessionId,
    },
    /// The context that the next agent of a pane receives.
    Context {
        /// The pane.
        pane: PaneId,
        /// The parts with their sizes in characters, in their order.
        parts: Vec<(String, u64)>,
        /// The whole text.
        text: String,
        /// Its size.
        meter: Meter,
    },
    /// The changes of a turn in the files of the worktree.
    Changes {
        /// The pane.
        pane: PaneId,
        /// The event that was asked for.
        at: Option<Seq>,
        /// The changes, or the reason why there are none.
        changes: Result<Box<FileChanges>, Error>,
    },
    /// The effect of an undo, for a question to the user.
    UndoPlanned {
        /// The pane.
        pane: PaneId,
        /// The question.
        question: Box<UndoQuestion>,
    },
    /// The files of a turn are restored.
    Undone {
        /// The pane.
        pane: PaneId,
        /// What was done, in words.
        summary: String,
    },
    /// The agents.
    Agents(Vec<AgentLine>),
    /// Paths that complete a prefix, best first.
    Paths {
        /// The prefix.
        prefix: String,
        /// The paths, relative to the project.
        paths: Vec<String>,
    },
    /// What a search over all sessions has found.
    SearchFound(Box<SearchNews>),
    /// Files of the project that are not trusted yet: their names and their content.
    TrustRequired {
        /// What would take effect.
        content: String,
    },
    /// A text is in the clipboard, by this way.
    Copied {
        /// The program that took it; `None` if the terminal has to take it, by OSC 52.
        by: Option<String>,
        /// The text, for the terminal.
        text: String,
    },
    /// The user has edited a text. If the editor failed or the text is not UTF-8, [`Failed`](Self::Failed) before it names the file that
    /// is kept.
    Edited {
        /// What can be read of the text; `None` if nothing was changed.
        text: Option<String>,
        /// Its purpose.
        purpose: super::EditPurpose,
    },
    /// What an earlier interface kept for this store. Sent once, first.
    Restored(Box<Kept>),
    /// Something that the user should know.
    Notice(String),
    /// A request was not performed.
    Failed {
        /// The pane that it was for.
        pane: Option<PaneId>,
        /// Why, with a hint.
        error: Error,
        /// The prompt of a [`Send`](super::Request::Send) that was refused because a turn of the pane runs, which continues.
        unsent: Option<String>,
    },
}

/// A session in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionLine {
    /// The session.
    pub record: SessionRecord,
    /// Its context usage.
    pub meter: Meter,
    /// The turn that runs in it, in any process that is known.
    pub active: Option<ActiveTurn>,
}

/// An opened session.
#[derive(Debug, Clone, PartialEq)]
pub struct Opened {
    /// The pane.
    pub pane: PaneId,
    /// The session.
    pub record: SessionRecord,
    /// Its context usage.
    pub meter: Meter,
    /// Its last events, oldest first.
    pub events: Vec<StoredEvent>,
    /// The agent and model that the next turn uses.
    pub next: NextAgent,
    /// Prompts that an interface which has ended left queued in the session.
    pub offer: Option<Offer>,
}

/// The agent of the next turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextAgent {
    /// The agent; `None` if none is installed.
    pub agent: Option<String>,
    /// The model; `None` for the agent's default.
    pub model: Option<String>,
}

/// An agent of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLine {
    /// Its name.
    pub name: String,
    /// Its version; `None` if it is not installed.
    pub version: Option<String>,
    /// Models that are known for it.
    pub models: Vec<String>,
    /// How to install it or to log in, if that is missing.
    pub hint: Option<String>,
}

/// Something that happens to the turn of a pane.
///
/// The order is [`Waiting`](Self::Waiting), [`Accepted`](Self::Accepted), [`Progress`](Self::Progress), [`Began`](Self::Began), outputs,
/// [`Stored`](Self::Stored), and [`Over`](Self::Over) as the last one, always.
#[derive(Debug)]
pub enum TurnNews {
    /// Another process runs a turn in the session; this one waits. The text says which.
    Waiting(String),
    /// The turn has its session, and the agent is chosen.
    Accepted {
        /// The session.
        record: Box<SessionRecord>,
        /// The agent.
        agent: String,
        /// The model that was asked for or is expected.
        model: Option<String>,
    },
    /// A step before the agent starts: context commands, a compaction. A text for people.
    Progress(String),
    /// The session is being compacted by this agent.
    Compacting {
        /// The agent.
        agent: String,
    },
    /// The agent runs.
    Began {
        /// The prompt as typed; `None` if the turn continues after a compaction.
        prompt: Option<String>,
        /// The expected number of the first event: the prompt, or `Compacted` without one. The first event of the outputs has the
        /// next number.
        first: Seq,
        /// When it began, in milliseconds since 1970.
        since_ms: u64,
        /// Whether this interface started it.
        is_ours: bool,
    },
    /// Output of the agent, without questions. Events are whole, not short. The end of the turn is not among them but in
    /// [`Stored`](Self::Stored).
    Output(Vec<AgentOutput>),
    /// The context usage, measured while the turn runs.
    Meter(Meter),
    /// A question of the agent is open.
    Question(Question),
    /// The turn is stored; it is in this range.
    Stored {
        /// The session, another one if the turn had to be stored in a fork.
        session: SessionId,
        /// The first event; `None` if it is unknown.
        first: Option<Seq>,
        /// The last event.
        last: Option<Seq>,
        /// How it ended.
        complete: Box<Complete>,
        /// The tools that the agent was refused, one entry for each call.
        refused: Vec<String>,
    },
    /// No turn of the pane runs any more.
    Over {
        /// Whether this interface started it.
        is_ours: bool,
        /// Why the turn is not stored, if it is not.
        error: Option<Error>,
        /// The prompt, if it is not in the session.
        unsent: Option<String>,
    },
    /// Something that the user should know.
    Notice(String),
}
