//! A slot: an opened conversation with its prompt box.

use azureal::desk::{NextAgent, PaneId};
use azureal::transcript::Places;

use crate::pane::Pane;
use crate::prompt::{PromptBox, Waiting};

/// An opened conversation.
pub(crate) struct Slot {
    /// The session pane.
    pub(crate) pane: Pane,
    /// The prompt box.
    pub(crate) prompt: PromptBox,
    /// The prompts that wait for the end of the turn.
    pub(crate) waiting: Waiting,
    /// The agent and model that the user chose since the last prompt.
    pub(crate) chosen: Option<NextAgent>,
    /// The first prompt that was sent here: the title of a new conversation until its session has one.
    pub(crate) first_prompt: Option<String>,
    /// Whether a turn was sent and is not over.
    pub(crate) is_sent: bool,
    /// Why the turn was cancelled, if it was.
    pub(crate) cancelled: Option<Cancelled>,
    /// Whether the turn ended without success. Set before it is over.
    pub(crate) has_failed: bool,
    /// Whether the last turn of this interface failed or was cancelled, so that the user has to do something.
    pub(crate) needs_user: bool,
    /// Whether the desk was asked to tell when no other process runs a turn.
    pub(crate) awaits_lease: bool,
    /// Whether the turn has ended while it was shown, and another one was shown instead.
    pub(crate) is_unread: bool,
}

/// Why a turn was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// The user cancelled it.
    ByUser,
    /// Another prompt was sent.
    ForPrompt,
}

impl Slot {
    /// Creates the slot of a new conversation.
    pub(crate) fn new(id: PaneId, places: &Places) -> Self {
        let mut pane = Pane::new(id);
        pane.set_places(places.clone());
        Self {
            pane,
            prompt: PromptBox::new(),
            waiting: Waiting::default(),
            chosen: None,
            first_prompt: None,
            is_sent: false,
            cancelled: None,
            has_failed: false,
            needs_user: false,
            awaits_lease: false,
            is_unread: false,
        }
    }

    /// Returns the title: of the session, or the prompt that a new one begins with; empty if there is none.
    pub(crate) fn title(&self) -> String {
        let title = self.pane.record().map(crate::list::title).unwrap_or_default();
        let is_new = self.is_running() || self.pane.session().is_some();
        match &self.first_prompt {
            Some(prompt) if title.is_empty() && is_new => prompt.clone(),
            _ => title.to_owned(),
        }
    }

    /// Returns whether a turn runs, or was sent and is not over.
    pub(crate) fn is_running(&self) -> bool {
        self.is_sent || self.pane.turn().is_some()
    }

    /// Returns whether there is something that the user has not seen.
    pub(crate) fn has_unread(&self) -> bool {
        self.is_unread || self.pane.has_unread()
    }

    /// Returns whether nothing was ever typed or sent here.
    pub(crate) fn is_untouched(&self) -> bool {
        self.pane.session().is_none()
            && !self.is_running()
            && self.prompt.is_empty()
            && self.waiting.is_empty()
    }
}
