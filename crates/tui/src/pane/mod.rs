//! The session pane: a bounded window of a session, what is shown of it, and the turn that runs in it.
//!
//! - `window`: the events that are held. Pages are read as the view nears an end, and dropped again far from it.
//! - `live`: the running turn, whose events cannot be read from the store yet.
//! - `blocks`, `rows`: the blocks of both, and the rows of those near the view.
//! - `view`: the place that is shown. There is no total height: the place is a row of a block.
//! - `act`, `find`, `copy`: what the user does. `draw`: the cells.

mod act;
mod blocks;
mod copy;
mod draw;
mod find;
mod live;
mod news;
mod rows;
mod turns;
mod view;
mod window;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ops::RangeInclusive;

use azureal::core::SessionId;
use azureal::desk::{NextAgent, PaneId, Request};
use azureal::meter::Meter;
use azureal::transcript::{CallState, CodePart, Content, Fold, Layout, Level, Places, code_parts};
use azureal::{Seq, SessionRecord};

pub use act::Outcome;
pub use live::{Phase, RunningTurn};
pub use view::Position;
pub(crate) use window::size as event_size;

use blocks::{Blocks, Key};
use find::Search;
use live::Live;
use rows::{Folds, RowCache};
use turns::Turns;
use view::{Cursor, Place, ViewRow};
use window::Window;

/// The number of events of a page.
pub const PAGE_EVENTS: usize = 64;

/// A conversation on the screen.
#[derive(Debug)]
pub struct Pane {
    id: PaneId,
    record: Option<SessionRecord>,
    meter: Option<Meter>,
    next_agent: NextAgent,
    width: u16,
    height: u16,
    is_ascii: bool,
    labels: Labels,
    is_shown: bool,
    is_reading: bool,
    has_unread: bool,
    now_ms: u64,

    window: Window,
    /// The last event that is known to be stored.
    stored: Seq,
    turns: Turns,
    live: Option<Live>,
    last_line: String,
    unsent: Option<String>,
    note: Option<String>,
    fork_at: Option<Seq>,

    blocks: Blocks,
    /// Whether the blocks have to be made again from the events.
    is_stale: bool,
    /// Whether the order of the blocks has to be made again.
    is_out_of_order: bool,
    cache: RowCache,
    folds: Folds,

    place: Place,
    cursor: Option<Cursor>,
    /// The last event that was there when the user left the end.
    seen: Seq,
    /// The rows on the screen.
    view: Vec<ViewRow>,
    /// The events of the blocks on the screen and of a screen above and below.
    near: RangeInclusive<Seq>,
    /// Whether the view is so near to an end of the window that more events are needed there.
    needs: (bool, bool),

    asked: Asked,
    search: Option<Search>,
    /// The event to show when its session is open, and the text to mark in it.
    wanted: Option<(SessionId, Seq, String)>,
    /// The code block that was copied last.
    copied: Option<(Key, usize)>,
}

/// The keys that a pane names; `None` if an action has no key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// Sends a prompt.
    pub send: Option<String>,
    /// Shows the context of the next agent.
    pub context: Option<String>,
    /// Shows the changes of a turn.
    pub changes: Option<String>,
}

/// The requests that have no answer yet.
#[derive(Debug, Default)]
struct Asked {
    before: Option<Seq>,
    after: Option<Seq>,
    jump: Option<Jump>,
    prompt: Option<PromptFor>,
    text: bool,
    full: HashSet<Key>,
    tones: HashSet<Key>,
    /// Whether a request has failed: no more pages are asked for until the user acts.
    has_failed: bool,
}

/// Why a prompt is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PromptFor {
    /// To show it.
    Reading,
    /// It ends the turn that is to be forked at.
    Fork,
}

/// A page that takes the place of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Jump {
    from: Seq,
    backwards: bool,
    to: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Start,
    End,
    Event(Seq),
    Hit(Seq),
}

impl Pane {
    /// Creates the pane of a new conversation.
    pub fn new(id: PaneId) -> Self {
        Self {
            id,
            record: None,
            meter: None,
            next_agent: NextAgent::default(),
            width: 0,
            height: 0,
            is_ascii: false,
            labels: Labels::default(),
            is_shown: false,
            is_reading: false,
            has_unread: false,
            now_ms: 0,
            window: Window::whole(),
            stored: Seq::START,
            turns: Turns::none(),
            live: None,
            last_line: String::new(),
            unsent: None,
            note: None,
            fork_at: None,
            blocks: Blocks::default(),
            is_stale: false,
            is_out_of_order: false,
            cache: RowCache::default(),
            folds: Folds::default(),
            place: Place::End,
            cursor: None,
            seen: Seq::START,
            view: Vec::new(),
            near: Seq::START..=Seq::START,
            needs: (false, false),
            asked: Asked::default(),
            search: None,
            wanted: None,
            copied: None,
        }
    }

    /// Returns its number.
    pub fn id(&self) -> PaneId {
        self.id
    }

    /// Returns its session; `None` before the first turn is accepted.
    pub fn session(&self) -> Option<SessionId> {
        self.record.as_ref().map(|record| record.id)
    }

    /// Returns the record of its session.
    pub fn record(&self) -> Option<&SessionRecord> {
        self.record.as_ref()
    }

    /// Returns the context usage: measured while a turn runs.
    pub fn meter(&self) -> Option<&Meter> {
        self.meter.as_ref()
    }

    /// Returns the agent and model of the next turn.
    pub fn next_agent(&self) -> &NextAgent {
        &self.next_agent
    }

    /// Sets the agent and model of the next turn.
    pub fn set_next_agent(&mut self, next: NextAgent) {
        self.next_agent = next;
    }

    /// Returns the running turn.
    pub fn turn(&self) -> Option<&RunningTurn> {
        self.live.as_ref().map(|live| &live.turn)
    }

    /// Returns the last line of the conversation, for lists.
    pub fn last_line(&self) -> &str {
        self.live
            .as_ref()
            .map(|live| live.turn.last_line.as_str())
            .filter(|line| !line.is_empty())
            .unwrap_or(&self.last_line)
    }

    /// Returns the last event that the pane knows to be stored.
    pub fn last_stored(&self) -> Seq {
        self.stored
    }

    /// Returns whether the session has grown or a turn has ended while the pane was not shown.
    pub fn has_unread(&self) -> bool {
        self.has_unread
    }

    /// Takes the prompt of a turn that did not begin, so that the prompt box can have it again.
    pub fn take_unsent(&mut self) -> Option<String> {
        self.unsent.take()
    }

    /// Takes a short text for the status line, such as the end of a search.
    pub fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Takes the last event of a fork that the user wants: it was searched for.
    pub fn take_fork_at(&mut self) -> Option<Seq> {
        self.fork_at.take()
    }

    /// Sets the time. Calls of tools show how long they run if it is set before their news.
    pub fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Sets whether marks are ASCII.
    pub fn set_ascii(&mut self, is_ascii: bool) {
        self.is_ascii = is_ascii;
    }

    /// Sets the keys that the pane names.
    pub fn set_labels(&mut self, labels: Labels) {
        self.is_out_of_order |= self.labels != labels;
        self.labels = labels;
    }

    /// Sets the directories that paths are shown relative to.
    pub fn set_places(&mut self, places: Places) {
        self.is_stale |= self.blocks.set_places(places);
    }

    /// Sets whether the keys go to the pane: then the block at the reading cursor is marked.
    pub fn set_reading(&mut self, is_reading: bool) {
        self.is_reading = is_reading;
    }

    /// Sets the size in columns and rows.
    pub fn set_size(&mut self, width: u16, height: u16) -> Vec<Request> {
        (self.width, self.height) = (width, height);
        Vec::new()
    }

    /// Sets whether the pane is on the screen. A pane that is not keeps its place, a few events around it and those of the running turn.
    pub fn set_shown(&mut self, is_shown: bool) {
        if self.is_shown == is_shown {
            return;
        }
        self.is_shown = is_shown;
        if is_shown {
            self.has_unread = false;
            self.is_stale = true;
            return;
        }
        self.cache.clear();
        self.blocks.clear();
        self.view.clear();
        self.asked.tones.clear();
        self.trim();
    }

    /// Shows a prompt that the user has sent.
    pub fn sent(&mut self, prompt: &str) {
        let mut live = Live::new(true, self.stored.next());
        live.prompt = Some(prompt.to_owned());
        self.blocks.prompt(prompt);
        self.live = Some(live);
        self.place = Place::End;
        self.cursor = None;
        self.is_out_of_order = true;
        self.unsent = None;
    }

    /// Lays out what is on the screen and a screen above and below. To be called before [`draw`](Self::draw).
    pub fn prepare(&mut self) -> Vec<Request> {
        if !self.is_shown || self.width == 0 || self.height == 0 {
            self.view.clear();
            return Vec::new();
        }
        self.refresh();
        self.lay_out();
        self.mark_hits();
        let mut requests = self.ask_for_pages();
        self.ask_for_full(&mut requests);
        self.ask_for_tones(&mut requests);
        requests
    }

    /// Returns the last event, of the running turn too.
    fn newest(&self) -> Seq {
        let live = self.live.as_ref().filter(|live| live.first.is_some());
        live.map_or(self.stored, |live| Seq(live.next.0.saturating_sub(1)).max(self.stored))
    }

    /// Returns whether the events of the running turn follow those of the window.
    fn is_connected(&self) -> bool {
        self.window.is_at_end
    }

    /// Makes the blocks again if events were added or dropped other than at the end.
    fn refresh(&mut self) {
        if self.is_stale {
            let live = self.live.as_ref().filter(|_| self.window.is_at_end);
            let running = live.into_iter().flat_map(|live| &live.events);
            self.blocks.rebuild(self.window.events().chain(running));
            if let Some(live) = live.filter(|live| !live.growing.is_empty()) {
                self.blocks.push_delta(live.next, &live.growing);
            }
            self.is_stale = false;
            self.is_out_of_order = true;
        }
        if self.is_out_of_order {
            self.blocks
                .status(self.live.as_ref().and_then(|live| live.status(self.labels.context.as_deref())));
            let dropped = self.live.as_ref().filter(|live| live.dropped > 0);
            self.blocks.dropped(dropped.and_then(|live| Some((live.events.front()?.seq, live.dropped))));
            let first =
                if self.window.is_at_start { Seq::START } else { self.window.first().unwrap_or(Seq::START) };
            self.blocks.put_in_order(first, self.window.is_at_end);
            self.folds.set_last_commands(self.blocks.last_commands());
            self.is_out_of_order = false;
        }
    }

    /// Drops events far from the view.
    fn trim(&mut self) {
        let near = match &self.place {
            Place::End if self.view.is_empty() => self.stored..=self.stored,
            Place::End => *self.near.start()..=self.stored,
            Place::At(anchor) if self.view.is_empty() => anchor.key.0..=anchor.key.0,
            Place::At(_) => self.near.clone(),
        };
        if self.window.trim(&near, self.is_shown) {
            self.is_stale = true;
            let window = &self.window;
            self.asked.full.retain(|key| window.holds(key.0));
        }
    }

    /// Adds a line that is no event after the last event.
    fn notice(&mut self, level: Level, text: impl Into<String>) -> Key {
        self.is_out_of_order = true;
        self.blocks.notice(self.newest(), level, text.into())
    }

    fn layout(&self, fold: Fold) -> Layout {
        Layout { width: self.width.saturating_sub(draw::GUTTER).max(1), fold, is_ascii: self.is_ascii }
    }

    /// Asks for the events that the view needs next.
    fn ask_for_pages(&mut self) -> Vec<Request> {
        let mut requests = Vec::new();
        if self.session().is_none() || self.asked.has_failed || self.asked.jump.is_some() {
            return requests;
        }
        let pane = self.id;
        if self.window.is_empty() && !(self.window.is_at_start && self.window.is_at_end) {
            let to = match &self.place {
                Place::End => Target::End,
                Place::At(anchor) => Target::Event(anchor.key.0),
            };
            return self.jump(to);
        }
        if self.needs.0
            && !self.window.is_at_start
            && self.asked.before.is_none()
            && let Some(before) = self.window.first()
        {
            self.asked.before = Some(before);
            requests.push(Request::ReadBefore { pane, before, limit: PAGE_EVENTS });
        }
        if self.needs.1
            && !self.window.is_at_end
            && self.asked.after.is_none()
            && let Some(after) = self.window.last()
        {
            self.asked.after = Some(after);
            requests.push(Request::ReadAfter { pane, after, limit: PAGE_EVENTS });
        }
        requests
    }

    /// Asks for the full form of calls on the screen that are open or have failed, and of changes to files that have no diff.
    fn ask_for_full(&mut self, requests: &mut Vec<Request>) {
        let mut before = None;
        for row in &self.view {
            if before == Some(row.index) {
                continue;
            }
            before = Some(row.index);
            let Some(block) = self.blocks.get(row.index) else { continue };
            let Content::Call(call) = &block.content else { continue };
            // The short form of a failed call may lack what its line says, such as the exit code. It has the lines of a preview.
            let is_needed = match self.folds.of(block) {
                Fold::Open => true,
                Fold::Preview => !call.diff.is_empty(),
                Fold::Closed => call.state == CallState::Failed,
            };
            let is_short = is_needed && call.omitted > 0;
            let is_change = azureal::core::Tool::changes_files(&call.tool) && call.diff.is_empty();
            if (is_short || is_change)
                && self.window.holds(block.seq)
                && self.window.holds(block.last)
                && self.asked.full.insert((block.seq, block.part))
            {
                requests.push(Request::ReadFull { pane: self.id, first: block.seq, last: block.last });
            }
        }
    }

    /// Asks for the tones of the code on the screen that is finished.
    fn ask_for_tones(&mut self, requests: &mut Vec<Request>) {
        for row in &self.view {
            let Some(block) = self.blocks.get(row.index) else { continue };
            let is_shown = block.is_stable() && self.folds.of(block) != Fold::Closed;
            if !is_shown || !self.asked.tones.insert(row.key) {
                continue;
            }
            for CodePart { at, language, code } in code_parts(block) {
                requests.push(Request::Highlight { pane: self.id, block: row.key, at, language, code });
            }
        }
    }

    /// Reads the page around a place, which takes the place of the window.
    fn jump(&mut self, to: Target) -> Vec<Request> {
        let pane = self.id;
        let (from, backwards) = match to {
            Target::Start => (Seq::START, false),
            Target::End => (Seq::END, true),
            Target::Event(seq) | Target::Hit(seq) => {
                (Seq(seq.0.saturating_sub(PAGE_EVENTS as u64 / 2)), false)
            }
        };
        self.asked.jump = Some(Jump { from, backwards, to });
        vec![if backwards {
            Request::ReadBefore { pane, before: from, limit: PAGE_EVENTS }
        } else {
            Request::ReadAfter { pane, after: from, limit: PAGE_EVENTS }
        }]
    }
}
