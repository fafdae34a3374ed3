//! Requests of an interface.

use azureal_core::{Seq, SessionId};

use super::UndoQuestion;
use crate::changes::ChangesOf;

/// An opened conversation of an interface, numbered by the interface. A new conversation has no session before its first turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PaneId(pub u32);

/// A request of an interface. [`Desk::perform`](super::Desk::perform) never blocks; the answer comes as [`News`](super::News).
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Lists sessions, the last active one first. Answer: [`News::Sessions`](super::News::Sessions), and again whenever
    /// the list changes, whichever process changed it.
    List {
        /// Whether those of other worktrees too.
        all_worktrees: bool,
        /// The most sessions.
        limit: usize,
    },
    /// Opens a session in a pane and follows it. Answers: [`News::Opened`](super::News::Opened), then [`News::Counted`](super::News::Counted).
    Open {
        /// The pane.
        pane: PaneId,
        /// The session.
        session: SessionId,
        /// The number of events to read from its end.
        last: usize,
    },
    /// Stops following the session of a pane. A running turn continues.
    Close {
        /// The pane.
        pane: PaneId,
    },
    /// Reads the events before one. Answer: [`News::Page`](super::News::Page).
    ReadBefore {
        /// The pane.
        pane: PaneId,
        /// The event.
        before: Seq,
        /// The most events.
        limit: usize,
    },
    /// Reads the events after one. Answer: [`News::Page`](super::News::Page).
    ReadAfter {
        /// The pane.
        pane: PaneId,
        /// The event.
        after: Seq,
        /// The most events.
        limit: usize,
    },
    /// Reads the full form of events from the output of their turns. Answer: [`News::Full`](super::News::Full).
    ReadFull {
        /// The pane.
        pane: PaneId,
        /// The first event.
        first: Seq,
        /// The last event.
        last: Seq,
    },
    /// Finds the prompt before or after an event. Answer: [`News::Found`](super::News::Found).
    FindPrompt {
        /// The pane.
        pane: PaneId,
        /// The event.
        from: Seq,
        /// Whether to look for an earlier one.
        backwards: bool,
    },
    /// Searches the text of a session, ignoring case. Answer: [`News::Found`](super::News::Found).
    FindText {
        /// The pane.
        pane: PaneId,
        /// The text.
        text: String,
        /// The event to search from, which is not searched itself.
        from: Seq,
        /// Whether to search backwards.
        backwards: bool,
    },
    /// Sends a prompt: starts a turn. Answers: [`News::Turn`](super::News::Turn), for as long as the turn runs.
    ///
    /// While a turn of the pane runs, that is an error. The interface keeps the prompt and sends it after
    /// [`TurnNews::Over`](super::TurnNews::Over), so that the user can edit it until it goes out.
    Send {
        /// The pane.
        pane: PaneId,
        /// The prompt.
        prompt: String,
        /// The agent; `None` for the session's.
        agent: Option<String>,
        /// The model; `None` for the session's.
        model: Option<String>,
    },
    /// Waits until no other process runs a turn in the session of a pane. Answer: [`News::LeaseFree`](super::News::LeaseFree).
    ///
    /// An interface that keeps a prompt because another process runs a turn asks for this, and sends it then.
    AwaitLease {
        /// The pane.
        pane: PaneId,
    },
    /// Cancels the turn of a pane, also one that another azureal of this machine runs.
    Cancel {
        /// The pane.
        pane: PaneId,
    },
    /// Answers a question of the agent.
    Answer {
        /// The pane.
        pane: PaneId,
        /// The question.
        question: String,
        /// The chosen option; `None` refuses.
        option: Option<String>,
    },
    /// Renames a session.
    Rename {
        /// The session.
        session: SessionId,
        /// The new name.
        name: String,
    },
    /// Copies the events of a session up to one into a new session. Answer: [`News::Forked`](super::News::Forked).
    Fork {
        /// The session.
        session: SessionId,
        /// The last event of the copy.
        at: Seq,
    },
    /// Deletes a session for good. The interface has asked the user.
    Delete {
        /// The session.
        session: SessionId,
    },
    /// Switches the agent and model of a session. It is stored as a `ModelSwitch`, after the turn that runs. A new conversation keeps it for its
    /// first turn. Answer: [`News::NextAgent`](super::News::NextAgent).
    Switch {
        /// The pane.
        pane: PaneId,
        /// The agent.
        agent: String,
        /// The model; `None` for the agent's default.
        model: Option<String>,
    },
    /// Compacts a session.
    Compact {
        /// The pane.
        pane: PaneId,
    },
    /// Renders the context that the next agent receives. Answer: [`News::Context`](super::News::Context).
    Context {
        /// The pane.
        pane: PaneId,
    },
    /// Reads the changes of a turn in the files of the worktree. Answer: [`News::Changes`](super::News::Changes).
    Changes {
        /// The pane.
        pane: PaneId,
        /// An event of the turn, or an undo; `None` for the last turn with changes.
        at: Option<Seq>,
    },
    /// Looks at the effect of an undo. Changes nothing. Answer: [`News::UndoPlanned`](super::News::UndoPlanned).
    PlanUndo {
        /// The pane.
        pane: PaneId,
        /// The changes to undo.
        of: ChangesOf,
    },
    /// Restores the files of a turn to what they were before it, if that still has the effect that the user has seen.
    /// Answer: [`News::Undone`](super::News::Undone).
    Undo {
        /// The pane.
        pane: PaneId,
        /// The question that the user has answered.
        question: Box<UndoQuestion>,
        /// Whether to overwrite files that were changed since, and to ignore that other sessions ran meanwhile.
        force: bool,
    },
    /// Opens the whole diff of some changes in the pager. Needs the terminal.
    ReadChanges {
        /// The pane.
        pane: PaneId,
        /// The changes.
        of: ChangesOf,
    },
    /// Finds the tones of code in a block. Answer: [`News::Highlighted`](super::News::Highlighted), unless the code is too large or its language unknown.
    Highlight {
        /// The pane.
        pane: PaneId,
        /// The first event of the block, and its part.
        block: (Seq, u16),
        /// The place of the code in the source of the block, in bytes.
        at: usize,
        /// The language as the author named it.
        language: String,
        /// The code.
        code: String,
    },
    /// Finds the installed agents. Answer: [`News::Agents`](super::News::Agents).
    Agents,
    /// Trusts the configuration files of the project. The interface has shown them.
    Trust,
    /// Completes a path of the project. Answer: [`News::Paths`](super::News::Paths).
    CompletePath {
        /// The beginning of the path.
        prefix: String,
    },
    /// Searches all sessions of the store while the user types. A later request ends the search before; an empty text does only that.
    /// Answers: [`News::SearchFound`](super::News::SearchFound), twice if it takes long.
    Search {
        /// The words, with filters such as `agent:codex` ([`typed`](crate::search::typed)).
        text: String,
    },
    /// Keeps what the interface must not lose: drafts, staged and queued prompts, history. Written to disk within a second.
    Keep(Box<super::Kept>),
    /// Copies a text to the clipboard of the system. Answer: [`News::Copied`](super::News::Copied).
    Copy {
        /// The text.
        text: String,
    },
    /// Opens a text in the user's editor, or in the pager if it is only looked at. Needs the terminal: see [`Request::needs_terminal`].
    /// Answer: [`News::Edited`](super::News::Edited).
    Edit {
        /// The text.
        text: String,
        /// What to do with the result.
        purpose: EditPurpose,
    },
    /// Opens the session in the own interface of its agent, as `azureal open` does. Needs the terminal.
    OpenInAgent {
        /// The pane.
        pane: PaneId,
    },
    /// Opens the whole session as text in the pager or in the editor. Needs the terminal.
    Read {
        /// The pane.
        pane: PaneId,
        /// The event that a pager begins at, if it can; `None` for the end.
        at: Option<Seq>,
        /// The program.
        with: ReadWith,
    },
}

/// The purpose of an edited text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditPurpose {
    /// It becomes the text of the prompt box.
    Prompt,
    /// It is only looked at.
    Look,
}

/// A program that shows a session as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadWith {
    /// `$PAGER`.
    Pager,
    /// `$EDITOR`.
    Editor,
}

impl Request {
    /// Returns whether the request starts a program that uses the terminal. The interface releases the terminal, performs the request with
    /// [`Desk::perform_in_terminal`](super::Desk::perform_in_terminal), which blocks until the program has ended, and takes the terminal back.
    pub fn needs_terminal(&self) -> bool {
        matches!(
            self,
            Self::Edit { .. } | Self::OpenInAgent { .. } | Self::Read { .. } | Self::ReadChanges { .. }
        )
    }
}
