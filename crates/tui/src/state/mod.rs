//! The state of the interface: one owner for each fact.

pub(crate) mod clock;
mod effect;
mod kept;
mod notices;
mod settings;
mod slot;

pub use effect::Effect;
pub use settings::Settings;

pub(crate) use kept::Keeper;
pub(crate) use notices::Notices;
pub(crate) use slot::{Cancelled, Slot};

use std::collections::BTreeMap;

use azureal::SessionId;
use azureal::desk::{AgentLine, PaneId, Request};
use azureal::transcript::Level;
use ratatui::layout::Position;

use crate::keys::Keys;
use crate::list::SessionList;
use crate::overlay::Layer;
use crate::prompt::History;
use crate::theme::Theme;
use crate::update::Switch;

/// How long a second Ctrl-C quits.
pub(crate) const QUIT_AGAIN_MS: u64 = 1_000;
/// How long the menu key waits before its menu is drawn.
pub(crate) const MENU_DELAY_MS: u64 = 300;
/// The events that are read when a session is opened.
pub(crate) const FIRST_EVENTS: usize = 64;
/// The most sessions in the list.
pub(crate) const MOST_SESSIONS: usize = 500;

/// The part of the screen that takes keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Focus {
    /// The prompt box.
    Prompt,
    /// The session pane.
    Reading,
    /// The list of sessions.
    List,
}

/// What is known of the mouse.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MouseState {
    /// Where a button was pressed.
    pub(crate) down: Option<Position>,
    /// Whether the terminal has the mouse until the next key.
    pub(crate) is_let_go: bool,
}

/// The state of the interface.
pub struct State {
    pub(crate) size: (u16, u16),
    pub(crate) focus: Focus,
    pub(crate) slots: BTreeMap<PaneId, Slot>,
    /// The slots in their order.
    pub(crate) order: Vec<PaneId>,
    pub(crate) shown: PaneId,
    pub(crate) list: SessionList,
    /// The topmost layer is the last; it takes the keys.
    pub(crate) layers: Vec<Layer>,
    pub(crate) notices: Notices,
    pub(crate) agents: Option<Vec<AgentLine>>,
    pub(crate) history: History,
    pub(crate) keeper: Keeper,
    pub(crate) keys: Keys,
    pub(crate) theme: Theme,
    pub(crate) settings: Settings,
    pub(crate) now_ms: u64,
    /// Configuration files that the user has not trusted yet.
    pub(crate) untrusted: Option<String>,
    pub(crate) has_focus: bool,
    pub(crate) uses_mouse: bool,
    pub(crate) mouse: MouseState,
    /// The highest number of a pane so far: numbers are not used again.
    pub(crate) last_pane: u32,
    /// When the prompt box is to be asked again.
    pub(crate) prompt_due_ms: Option<u64>,
    /// Whether the interface ends when no turn of it runs any more.
    pub(crate) is_quitting: bool,
    /// The word that looks like a command and is none: sent again, it goes to the agent.
    pub(crate) refused_command: Option<String>,
    /// The switch to another turn that comes by itself.
    pub(crate) switch: Option<Switch>,
    /// Until when Enter does nothing, after such a switch.
    pub(crate) guard_until_ms: Option<u64>,
    /// Until when a second Ctrl-C quits.
    pub(crate) quit_until_ms: Option<u64>,
    effects: Vec<Effect>,
}

impl State {
    /// Creates the state of an interface that shows a new conversation.
    pub fn new(settings: Settings, theme: Theme, keys: Keys, size: (u16, u16), now_ms: u64) -> Self {
        let shown = PaneId(1);
        let mut slot = Slot::new(shown, &settings.places);
        slot.pane.set_shown(true);
        Self {
            size,
            focus: Focus::Prompt,
            slots: BTreeMap::from([(shown, slot)]),
            order: vec![shown],
            shown,
            list: SessionList::default(),
            layers: Vec::new(),
            notices: Notices::default(),
            agents: None,
            history: History::default(),
            keeper: Keeper::default(),
            keys: keys.with_ascii(theme.is_ascii),
            theme,
            uses_mouse: settings.uses_mouse,
            settings,
            now_ms,
            untrusted: None,
            has_focus: true,
            mouse: MouseState::default(),
            last_pane: shown.0,
            prompt_due_ms: None,
            is_quitting: false,
            refused_command: None,
            switch: None,
            guard_until_ms: None,
            quit_until_ms: None,
            effects: Vec::new(),
        }
    }

    /// Returns the first requests, and opens a session if one is named.
    pub fn start(&mut self, session: Option<SessionId>) -> Vec<Request> {
        let mut requests =
            vec![Request::List { all_worktrees: false, limit: MOST_SESSIONS }, Request::Agents];
        if let Some(session) = session {
            self.keeper.is_start_open = false;
            requests.push(Request::Open { pane: self.shown, session, last: FIRST_EVENTS });
        }
        requests
    }

    /// Takes what the loop of the terminal has to do.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Returns the theme.
    pub fn theme(&self) -> &Theme {
        &self.theme
    }

    /// Returns the part of the screen that takes keys; `None` if an overlay takes them.
    pub fn focus(&self) -> Option<Focus> {
        self.layers.is_empty().then_some(self.focus)
    }

    /// Returns whether the mouse is used.
    pub fn uses_mouse(&self) -> bool {
        self.uses_mouse
    }

    /// Returns the session that is shown; `None` for a new conversation.
    pub fn shown_session(&self) -> Option<SessionId> {
        self.slot().and_then(|slot| slot.pane.session())
    }

    /// Returns when the next [`Message::Tick`](crate::Message::Tick) is due, in milliseconds since 1970; `None` if nothing on the screen changes by itself.
    pub fn next_tick(&self) -> Option<u64> {
        let running = self.slots.values().any(Slot::is_running) || self.list.is_any_running();
        let clock = running.then(|| (self.now_ms / 1_000).saturating_add(1).saturating_mul(1_000));
        let menu = self.layers.iter().find_map(|layer| match layer {
            Layer::Menu { since_ms } => {
                Some(since_ms.saturating_add(MENU_DELAY_MS)).filter(|at| *at > self.now_ms)
            }
            _ => None,
        });
        let switch = self.switch.as_ref().map(|switch| switch.at_ms);
        let ends = [self.notices.next_end(), self.quit_until_ms, self.guard_until_ms];
        let due = [clock, menu, switch, self.prompt_due_ms, self.keeper.next_due()];
        due.into_iter().chain(ends).flatten().min()
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn slot(&self) -> Option<&Slot> {
        self.slots.get(&self.shown)
    }

    pub(crate) fn slot_mut(&mut self) -> Option<&mut Slot> {
        self.slots.get_mut(&self.shown)
    }

    pub(crate) fn inform(&mut self, text: &str) {
        self.notices.add(Level::Info, text, self.now_ms);
    }

    pub(crate) fn warn(&mut self, text: &str) {
        self.notices.add(Level::Warning, text, self.now_ms);
    }

    /// Returns the number of turns that run, in this interface and elsewhere.
    pub(crate) fn running(&self) -> usize {
        let here = self.slots.values().filter(|slot| slot.is_running()).count();
        here.saturating_add(self.list.running_besides(|session| self.pane_of(session).is_some()))
    }

    /// Returns the number of sessions with something new.
    pub(crate) fn unread(&self) -> usize {
        let here = self.slots.values().filter(|slot| slot.has_unread()).count();
        let elsewhere = self
            .list
            .lines()
            .iter()
            .filter(|line| self.pane_of(line.record.id).is_none() && self.keeper.is_unread(&line.record));
        here.saturating_add(elsewhere.count())
    }

    /// Returns whether another process runs the turn of a slot. A turn whose azureal is gone has no owner: it is like one of ours.
    pub(crate) fn is_foreign(&self, slot: &Slot) -> bool {
        let line = slot.pane.session().and_then(|session| self.list.line(session));
        let is_orphan = line.and_then(|line| line.active.as_ref()).is_some_and(|active| active.orphan);
        slot.pane.turn().is_some_and(|turn| !turn.is_ours) && !is_orphan
    }

    /// Returns the pane that a session is open in.
    pub(crate) fn pane_of(&self, session: SessionId) -> Option<PaneId> {
        self.slots.iter().find(|(_, slot)| slot.pane.session() == Some(session)).map(|(pane, _)| *pane)
    }

    /// Returns the number of a slot, from 1.
    pub(crate) fn number_of(&self, pane: PaneId) -> usize {
        self.order.iter().position(|other| *other == pane).map_or(0, |at| at.saturating_add(1))
    }
}
