//! Overlays: layers over the screen. The topmost one takes all keys, and Esc closes only it.

mod agents;
mod changes;
mod help;
mod input;
mod palette;
mod press;
mod questions;
mod search;
mod view;

pub(crate) use agents::{picker as agent_picker, version_number};
pub(crate) use changes::{ChangesLayer, close as close_changes};
pub(crate) use input::Input;
pub(crate) use palette::all as all_actions;
pub(crate) use press::{ask_fork, paste, press, scroll};
pub(crate) use search::SearchLayer;
pub(crate) use view::{View, view};

use azureal::core::bridge::Question;
use azureal::desk::{PaneId, Request, UndoQuestion};
use azureal::meter::Meter;
use azureal::{Seq, SessionId};

/// A layer over the screen.
#[derive(Debug)]
pub(crate) enum Layer {
    /// All keys.
    Help {
        /// The first row that is drawn.
        scroll: u16,
    },
    /// Agent and model of the next turn.
    Agents(Picker),
    /// The context that the next agent receives.
    Context {
        /// The pane.
        pane: PaneId,
        /// The context; `None` until it is known.
        context: Option<ContextParts>,
        /// The first row that is drawn.
        scroll: u16,
    },
    /// The changes of a turn.
    Changes(ChangesLayer),
    /// The question before an undo.
    Undo {
        /// The pane.
        pane: PaneId,
        /// The question.
        question: Box<UndoQuestion>,
        /// The first row that is drawn.
        scroll: u16,
    },
    /// The configuration files that are not trusted yet.
    Trust {
        /// The first row that is drawn.
        scroll: u16,
    },
    /// A question with the answers yes and no.
    Confirm(Confirm),
    /// The new name of a session.
    Rename {
        /// The session.
        session: SessionId,
        /// The name.
        name: Input,
    },
    /// The text to search the session for.
    Find(Input),
    /// A search over all sessions.
    Search(SearchLayer),
    /// Quit while turns run.
    Quit {
        /// The chosen answer.
        chosen: usize,
    },
    /// A question of an agent.
    Question {
        /// The pane.
        pane: PaneId,
        /// The question.
        question: Box<Question>,
        /// The chosen answer.
        chosen: usize,
    },
    /// All actions, to be found by their words.
    Palette(Picker),
    /// The menu key was pressed.
    Menu {
        /// When.
        since_ms: u64,
    },
}

/// A list that a typed text narrows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Picker {
    /// The typed text.
    pub(crate) input: Input,
    /// The chosen row.
    pub(crate) chosen: usize,
}

/// The context that the next agent receives.
#[derive(Debug)]
pub(crate) struct ContextParts {
    /// The parts with their sizes in characters.
    pub(crate) parts: Vec<(String, u64)>,
    /// The whole text.
    pub(crate) text: String,
    /// Its size.
    pub(crate) meter: Meter,
}

/// A question with the answers yes and no.
#[derive(Debug)]
pub(crate) struct Confirm {
    /// The title.
    pub(crate) title: &'static str,
    /// The lines of the question: they name what it is about.
    pub(crate) lines: Vec<String>,
    /// What yes does.
    pub(crate) yes: &'static str,
    /// The request that yes sends.
    pub(crate) request: Request,
}

impl Confirm {
    /// Asks whether a session is to be forked after an event: the end of a turn that begins with a text, or the end of all turns.
    pub(crate) fn fork(session: SessionId, at: Seq, name: &str, turn: Option<&str>) -> Self {
        let mut lines = match turn {
            Some(_) => vec![format!("Copy {session} {name} into a new session, up to the end of this turn?")],
            None => vec![format!("Copy {session} {name} into a new session, with all its stored turns?")],
        };
        lines.extend(turn.map(|turn| format!("Turn: {turn}")));
        lines.push("The session itself stays as it is.".to_owned());
        Self { title: "Fork", lines, yes: "fork", request: Request::Fork { session, at } }
    }
}
