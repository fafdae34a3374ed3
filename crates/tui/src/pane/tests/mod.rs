//! Tests of the session pane, with a store in memory that answers its requests.

mod long;
mod random;
mod reading;
mod running;
mod screens;

use azureal::core::SessionRecord;
use azureal::core::event::{Complete, Init, Outcome as Ending, ToolCall, ToolResult};
use azureal::desk::{News, NextAgent, Opened, PaneId, Request, TurnNews};
use azureal::meter::Meter;
use azureal::{AgentOutput, Event, Seq, SessionId, StoredEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Labels, Outcome, PAGE_EVENTS, Pane};
use crate::keys::Action;
use crate::theme::Theme;

pub(super) const THEME: Theme = Theme { has_colours: true, background: None, is_ascii: false };

/// A pane with the store of its session.
pub(super) struct Desk {
    pub(super) pane: Pane,
    pub(super) events: Box<dyn Fn(u64) -> Event>,
    pub(super) stored: u64,
    /// The full forms of events.
    pub(super) full: Vec<(Seq, Event)>,
    /// The number of requests so far, apart from those for tones.
    pub(super) requests: usize,
    /// The requests for tones so far.
    pub(super) highlights: Vec<Request>,
}

impl Desk {
    /// Opens a session with these events.
    pub(super) fn open(events: Vec<Event>, width: u16, height: u16) -> Self {
        let stored = events.len() as u64;
        Self::open_long(stored, move |seq| events[seq as usize - 1].clone(), width, height)
    }

    pub(super) fn open_long(
        stored: u64,
        events: impl Fn(u64) -> Event + 'static,
        width: u16,
        height: u16,
    ) -> Self {
        let mut pane = Pane::new(PaneId(1));
        pane.set_shown(true);
        pane.set_labels(labels());
        pane.set_reading(true);
        pane.set_size(width, height);
        let mut desk = Self {
            pane,
            events: Box::new(events),
            stored,
            full: Vec::new(),
            requests: 0,
            highlights: Vec::new(),
        };
        desk.perform(vec![Request::Open { pane: PaneId(1), session: session(), last: PAGE_EVENTS }]);
        desk.frame();
        desk
    }

    pub(super) fn new_session(width: u16, height: u16) -> Self {
        let mut pane = Pane::new(PaneId(1));
        pane.set_shown(true);
        pane.set_labels(labels());
        pane.set_size(width, height);
        Self {
            pane,
            events: Box::new(|_| unreachable!()),
            stored: 0,
            full: Vec::new(),
            requests: 0,
            highlights: Vec::new(),
        }
    }

    fn stored(&self, seq: u64) -> StoredEvent {
        let event = (self.events)(seq);
        StoredEvent::new(Seq(seq), event.kind(), Ok(event.to_json()))
    }

    pub(super) fn record(&self) -> SessionRecord {
        let mut record = SessionRecord::new(session());
        record.counts.events = self.stored;
        record
    }

    /// Answers requests, and those that follow from the answers.
    pub(super) fn perform(&mut self, requests: Vec<Request>) {
        for request in requests {
            if matches!(request, Request::Highlight { .. }) {
                self.highlights.push(request);
                continue;
            }
            self.requests += 1;
            let Some(news) = self.answer(request) else { continue };
            let more = self.pane.news(&news);
            self.perform(more);
        }
    }

    fn answer(&self, request: Request) -> Option<News> {
        Some(match request {
            Request::Open { pane, last, .. } => News::Opened(Box::new(Opened {
                pane,
                record: self.record(),
                meter: meter(),
                events: (self.stored.saturating_sub(last as u64) + 1..=self.stored)
                    .map(|seq| self.stored(seq))
                    .collect(),
                next: NextAgent::default(),
                offer: None,
            })),
            Request::ReadBefore { pane, before, limit } => {
                let end = before.0.min(self.stored + 1);
                let first = end.saturating_sub(limit as u64).max(1);
                let events = (first..end).map(|seq| self.stored(seq)).collect();
                News::Page { pane, from: before, backwards: true, events }
            }
            Request::ReadAfter { pane, after, limit } => {
                let last = (after.0 + limit as u64).min(self.stored);
                let events = (after.0 + 1..=last).map(|seq| self.stored(seq)).collect();
                News::Page { pane, from: after, backwards: false, events }
            }
            Request::ReadFull { pane, first, last } => {
                let within = |seq: &Seq| first <= *seq && *seq <= last;
                let events = self.full.iter().filter(|(seq, _)| within(seq)).cloned().collect();
                News::Full { pane, events }
            }
            Request::FindPrompt { pane, from, backwards } => {
                let is_prompt = |seq: &u64| matches!((self.events)(*seq), Event::UserMessage(_));
                News::Found { pane, text: None, seq: self.find(from, backwards, is_prompt) }
            }
            Request::FindText { pane, text, from, backwards } => {
                let has_text =
                    |seq: &u64| (self.events)(*seq).to_json().to_lowercase().contains(&text.to_lowercase());
                let seq = self.find(from, backwards, has_text);
                News::Found { pane, text: Some(text), seq }
            }
            _ => return None,
        })
    }

    fn find(&self, from: Seq, backwards: bool, is_hit: impl Fn(&u64) -> bool) -> Option<Seq> {
        let found = if backwards {
            (1..from.0.min(self.stored + 1)).rev().find(is_hit)
        } else {
            (from.0 + 1..=self.stored).find(is_hit)
        };
        found.map(Seq)
    }

    /// Prepares a frame, until no more events are asked for.
    pub(super) fn frame(&mut self) {
        for _ in 0..100 {
            let requests = self.pane.prepare();
            if requests.is_empty() {
                return;
            }
            self.perform(requests);
        }
        panic!("the pane asks without end");
    }

    pub(super) fn act(&mut self, action: Action) -> Outcome {
        let mut outcome = self.pane.act(action);
        self.perform(std::mem::take(&mut outcome.requests));
        self.frame();
        outcome
    }

    pub(super) fn acts(&mut self, actions: &[Action]) {
        for action in actions {
            self.act(*action);
        }
    }

    pub(super) fn search(&mut self, text: &str) {
        let requests = self.pane.search(text);
        self.perform(requests);
        self.frame();
    }

    pub(super) fn turn(&mut self, news: TurnNews) {
        let requests = self.pane.news(&News::Turn { pane: PaneId(1), news: Box::new(news) });
        self.perform(requests);
    }

    pub(super) fn outputs(&mut self, outputs: Vec<AgentOutput>) {
        self.turn(TurnNews::Output(outputs));
        self.frame();
    }

    /// Events that another process has stored.
    pub(super) fn append(&mut self, events: &[Event]) {
        let first = self.stored + 1;
        let before = std::mem::replace(&mut self.events, Box::new(|_| unreachable!()));
        let added = events.to_vec();
        self.events = Box::new(
            move |seq| {
                if seq < first { before(seq) } else { added[(seq - first) as usize].clone() }
            },
        );
        self.stored += events.len() as u64;
        self.tell_of(first);
    }

    /// Tells the pane of the events from `first` on.
    pub(super) fn tell_of(&mut self, first: u64) {
        let events = (first..=self.stored).map(|seq| self.stored(seq)).collect();
        let requests = self.pane.news(&News::Appended { pane: PaneId(1), events });
        self.perform(requests);
        self.frame();
    }

    pub(super) fn resize(&mut self, width: u16, height: u16) {
        let requests = self.pane.set_size(width, height);
        self.perform(requests);
        self.frame();
    }

    /// Draws the pane; the text of the rows without trailing spaces.
    pub(super) fn screen(&mut self) -> Vec<String> {
        self.frame();
        let buffer = self.buffer();
        (0..buffer.area.height).map(|y| line(&buffer, y)).collect()
    }

    pub(super) fn buffer(&self) -> Buffer {
        let area = Rect::new(0, 0, self.pane.width, self.pane.height);
        let mut buffer = Buffer::empty(area);
        self.pane.draw(area, &mut buffer, &THEME, 60_000);
        buffer
    }

    pub(super) fn text(&mut self) -> String {
        self.screen().join("\n").trim_end().to_owned()
    }
}

pub(super) fn line(buffer: &Buffer, y: u16) -> String {
    let cells = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol());
    cells.collect::<String>().trim_end().to_owned()
}

fn labels() -> Labels {
    Labels { send: Some("↵".to_owned()), context: Some("F5".to_owned()), changes: Some("d".to_owned()) }
}

pub(super) fn session() -> SessionId {
    "S12".parse().unwrap()
}

pub(super) fn meter() -> Meter {
    Meter::of_context(1_000, None, azureal::core::Threshold::Chars(10_000))
}

pub(super) fn call(id: &str, tool: &str, input: &str) -> Event {
    Event::ToolCall(ToolCall {
        tool_use_id: id.into(),
        tool_name: tool.into(),
        input: input.parse().unwrap(),
        ..ToolCall::default()
    })
}

pub(super) fn result(id: &str, tool: &str, content: &str) -> Event {
    Event::ToolResult(ToolResult {
        tool_use_id: id.into(),
        tool_name: tool.into(),
        content: content.into(),
        ..ToolResult::default()
    })
}

pub(super) fn init() -> Event {
    Event::Init(Init {
        cwd: "/p".into(),
        model: "gpt-5.5".into(),
        agent: Some("codex".into()),
        ..Init::default()
    })
}

pub(super) fn complete() -> Event {
    Event::Complete(Complete {
        success: true,
        duration_ms: 42_000,
        outcome: Some(Ending::Done),
        ..Complete::default()
    })
}

/// A turn that says something about `n`.
pub(super) fn turn(n: u64) -> Vec<Event> {
    vec![
        Event::user(format!(
            "Prompt {n}: why does the login test fail when two tabs refresh at the same time?"
        )),
        init(),
        Event::assistant(format!(
            "Answer {n}: two refreshes race on the same token row, so I will lock it.\n\n```rust\nlet row = self.find_for_update({n})?;\n```\n\nThen the test passes."
        )),
        call(&format!("t{n}"), "Bash", r#"{"command":"cargo test -p api login"}"#),
        result(&format!("t{n}"), "Bash", "running 3 tests\ntest result: ok"),
        complete(),
    ]
}

pub(super) fn turns(count: u64) -> Vec<Event> {
    (1..=count).flat_map(turn).collect()
}
