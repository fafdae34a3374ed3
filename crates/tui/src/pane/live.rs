//! The turn that runs in a pane.

use std::collections::{HashMap, VecDeque};

use azureal::core::bridge::Question;
use azureal::core::{Tool, compact_event};
use azureal::{Event, Seq, visible_line};

use super::blocks::Key;
use super::window::{Held, shorten_to};

/// The most bytes of events of a running turn. They cannot be read again before the turn is stored.
pub(super) const LIVE_BYTES: usize = 6 << 20;
/// The most events of a running turn.
pub(super) const LIVE_EVENTS: usize = 2_048;
/// The longest text that is being written.
const GROWING_BYTES: usize = 1 << 20;
/// The longest last line, in characters.
const LAST_LINE: usize = 200;

/// The turn that runs in a pane.
#[derive(Debug, Clone, PartialEq)]
pub struct RunningTurn {
    /// The agent; empty before it is chosen.
    pub agent: String,
    /// The model, if it is known.
    pub model: Option<String>,
    /// When the agent was started, in milliseconds since 1970; `None` before that.
    pub since_ms: Option<u64>,
    /// Whether this interface started it.
    pub is_ours: bool,
    /// How far it is.
    pub phase: Phase,
    /// The open question of the agent.
    pub question: Option<Question>,
    /// The last line of its output.
    pub last_line: String,
}

/// How far a turn is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Another process runs a turn in the session. The text says which.
    Waiting(String),
    /// The agent is not started yet. The text names the step.
    Preparing(String),
    /// This agent writes a summary of the session.
    Compacting(String),
    /// The agent runs.
    Running,
}

/// The running turn with its events.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) turn: RunningTurn,
    /// The prompt, before it is an event.
    pub(super) prompt: Option<String>,
    /// The number of the first event; `None` before the agent is started, and after the events are stored.
    pub(super) first: Option<Seq>,
    /// The number of the next event.
    pub(super) next: Seq,
    /// Whether it began with a prompt: one that continues after a compaction did not.
    pub(super) begins_turn: bool,
    pub(super) events: VecDeque<Held>,
    bytes: usize,
    /// Whether all events are in their short form.
    is_short: bool,
    /// The number of events that were dropped.
    pub(super) dropped: u64,
    /// The text that the agent is writing.
    pub(super) growing: String,
    /// When calls began, by their ids.
    pub(super) calls: HashMap<String, u64>,
    /// The line about the last retry.
    pub(super) retry: Option<Key>,
}

impl Live {
    pub(super) fn new(is_ours: bool, next: Seq) -> Self {
        Self {
            turn: RunningTurn {
                agent: String::new(),
                model: None,
                since_ms: None,
                is_ours,
                phase: Phase::Preparing("starting".to_owned()),
                question: None,
                last_line: String::new(),
            },
            prompt: None,
            first: None,
            next,
            begins_turn: false,
            events: VecDeque::new(),
            bytes: 0,
            is_short: true,
            dropped: 0,
            growing: String::new(),
            calls: HashMap::new(),
            retry: None,
        }
    }

    /// The agent is started: its first event is the prompt, or the end of a compaction.
    pub(super) fn begin(&mut self, prompt: Option<&str>, first: Seq) {
        self.clear_events();
        self.first = Some(first);
        self.next = first;
        self.prompt = None;
        self.begins_turn = prompt.is_some();
        self.push(prompt.map_or(Event::Compacted, Event::user), 0);
    }

    /// Adds an event. Returns whether only that was changed.
    pub(super) fn push(&mut self, event: Event, now_ms: u64) -> bool {
        match &event {
            Event::AssistantText(answer) if answer.subagent.is_none() => self.growing.clear(),
            Event::Complete(_) | Event::Plan(_) => self.growing.clear(),
            Event::ToolCall(call) if now_ms > 0 => {
                self.calls.insert(call.tool_use_id.clone(), now_ms);
            }
            Event::ToolResult(result) => {
                self.calls.remove(&result.tool_use_id);
            }
            Event::Init(init) => {
                if let Some(agent) = &init.agent {
                    self.turn.agent.clone_from(agent);
                }
                if !init.model.is_empty() {
                    self.turn.model = Some(init.model.clone());
                }
            }
            _ => {}
        }
        if let Some(line) = last_line_of(&event) {
            self.turn.last_line = line;
        }
        let held = Held::new(self.next, event);
        self.next = self.next.next();
        self.bytes += held.bytes();
        self.is_short &= held.bytes() < 4096;
        self.events.push_back(held);
        !self.bound()
    }

    /// Adds to the text that is being written. Returns whether only its end was changed.
    pub(super) fn grow(&mut self, delta: &str) -> bool {
        self.growing.push_str(delta);
        if let Some(line) = last_line(&self.growing) {
            self.turn.last_line = line;
        }
        if self.growing.len() <= GROWING_BYTES {
            return true;
        }
        shorten_to(&mut self.growing, GROWING_BYTES / 2);
        false
    }

    /// Shortens the events, then drops the first ones, until they are within their bounds. Returns whether it changed any.
    fn bound(&mut self) -> bool {
        let is_within = |live: &Self| live.bytes <= LIVE_BYTES && live.events.len() <= LIVE_EVENTS;
        if is_within(self) {
            return false;
        }
        if !self.is_short {
            let events = std::mem::take(&mut self.events);
            self.bytes = 0;
            for held in events {
                let held = Held::new(held.seq, compact_event(held.event));
                self.bytes += held.bytes();
                self.events.push_back(held);
            }
            self.is_short = true;
        }
        // In larger steps, since each makes all blocks new.
        if !is_within(self) {
            while self.bytes > LIVE_BYTES / 4 * 3 || self.events.len() > LIVE_EVENTS / 4 * 3 {
                let Some(held) = self.events.pop_front() else { break };
                self.bytes -= held.bytes();
                self.dropped += 1;
            }
        }
        true
    }

    /// Takes the events out, when they are stored.
    pub(super) fn take_events(&mut self) -> VecDeque<Held> {
        let events = std::mem::take(&mut self.events);
        self.clear_events();
        events
    }

    pub(super) fn clear_events(&mut self) {
        self.events.clear();
        self.bytes = 0;
        self.is_short = true;
        self.dropped = 0;
        self.growing.clear();
        self.calls.clear();
        self.first = None;
        self.turn.question = None;
    }

    /// Returns the line that says how far the turn is. A turn whose events are stored shows its end instead.
    ///
    /// `context` is the key that shows the context of the next agent.
    pub(super) fn status(&self, context: Option<&str>) -> Option<String> {
        Some(match &self.turn.phase {
            Phase::Waiting(text) => format!("waiting: {text}"),
            Phase::Preparing(text) => text.clone(),
            Phase::Compacting(agent) => {
                let key = context.map(|key| format!(" · {key}")).unwrap_or_default();
                format!("── compacting: summary by {agent} · your prompts stay{key} ──")
            }
            Phase::Running if self.first.is_none() => return None,
            Phase::Running => {
                let model = self.turn.model.as_deref().map(|model| format!(" {model}")).unwrap_or_default();
                let agent = if self.turn.agent.is_empty() { "the agent" } else { &self.turn.agent };
                let doing = if self.turn.question.is_some() { "waits for your answer" } else { "is running" };
                format!("{agent}{model} {doing}")
            }
        })
    }
}

/// Returns the last line of the text of an event, for lists.
pub(super) fn last_line_of(event: &Event) -> Option<String> {
    match event {
        Event::UserMessage(message) => last_line(&message.content),
        Event::AssistantText(answer) => last_line(&answer.text),
        Event::ToolCall(call) => {
            let key = Tool::named(&call.tool_name).key_text(&call.input);
            last_line(&format!("{} {}", call.tool_name, key.lines().next().unwrap_or_default()))
        }
        Event::Error(error) => last_line(&error.message),
        _ => None,
    }
}

fn last_line(text: &str) -> Option<String> {
    // The end of a long line is enough.
    let text = text.trim_end();
    let line = text.rsplit('\n').next().filter(|line| !line.is_empty())?;
    let start = line.ceil_char_boundary(line.len().saturating_sub(4 * LAST_LINE));
    let line = line.get(start..).unwrap_or_default();
    let skipped = line.chars().count().saturating_sub(LAST_LINE);
    let line: String = line.chars().skip(skipped).collect();
    Some(visible_line(&line).into_owned())
}
