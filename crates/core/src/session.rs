//! The record of a session, besides its events.

use std::fmt;

use uuid::Uuid;

use crate::event::{Init, ModelSwitch, Usage};
use crate::fold::{MessagePosition, Open};
use crate::{Block, Event, Role, rendered_chars};

/// The number of a session: S1, S2, S3 … Numbered once, never used again.
///
/// ```
/// use azureal_core::SessionId;
///
/// let id: SessionId = "S3".parse()?;
/// assert_eq!((id.number(), id.to_string().as_str()), (3, "S3"));
/// assert!("my-session".parse::<SessionId>().is_err());
/// # Ok::<(), azureal_core::NotASessionNumber>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u32);

impl SessionId {
    /// Creates the id of this number; there is no session 0.
    pub fn new(number: u32) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    /// Returns the number.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S{}", self.0)
    }
}

impl std::str::FromStr for SessionId {
    type Err = NotASessionNumber;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_prefix(['S', 's'])
            // `parse` alone would take "+3" and "003", and a session has one number.
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0'))
            .and_then(|digits| digits.parse().ok())
            .and_then(Self::new)
            .ok_or(NotASessionNumber)
    }
}

/// A text that is not of the form `S3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a session number")]
pub struct NotASessionNumber;

/// The place of an event in its session, from 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first event.
    pub const START: Self = Self(0);
    /// After every event. Fits the signed 64-bit integers that databases have.
    pub const END: Self = Self(i64::MAX as u64);

    /// Returns the next place.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Tokens sent to and received from models.
///
/// ```
/// use azureal_core::Tokens;
///
/// let turn = Tokens { cache_read: 68_820, cache_write: 2_220, ..Tokens::new(74_000, 1_200) };
/// assert_eq!((turn + turn).cache_read, 137_640);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Tokens sent, those read from or written to a cache included.
    pub input: u64,
    /// Tokens received.
    pub output: u64,
    /// The part of the input that was read from the provider's cache, as far as the agents reported it.
    pub cache_read: u64,
    /// The part of the input that was written to the provider's cache, as far as the agents reported it.
    pub cache_write: u64,
}

impl Tokens {
    /// Creates a count without cached tokens.
    pub fn new(input: u64, output: u64) -> Self {
        Self { input, output, ..Self::default() }
    }

    /// Returns what is left of each count without those of `other`, at least 0.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_sub(other.input),
            output: self.output.saturating_sub(other.output),
            cache_read: self.cache_read.saturating_sub(other.cache_read),
            cache_write: self.cache_write.saturating_sub(other.cache_write),
        }
    }
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        Self {
            input: usage.input_tokens,
            output: usage.output_tokens,
            cache_read: usage.cache_read_tokens,
            cache_write: usage.cache_write_tokens,
        }
    }
}

impl std::ops::Add for Tokens {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }
}

/// The format of times in records and events: UTC, to the second.
pub const TIMESTAMP_FORMAT: &str = "%Y-%m-%dT%H:%M:%SZ";

/// The properties of a new session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewSession {
    /// Its name; without one it is called by its number.
    pub name: Option<String>,
    /// When it got its name, as `2026-01-31T09:30:00Z`, of a session from elsewhere. Defaults to now, and is ignored without a name.
    pub named_at: Option<String>,
    /// The worktree it belongs to, relative to the project root (`.` for the main one).
    pub worktree: String,
    /// Creation time, as `2026-01-31T09:30:00Z`, of a session from elsewhere. Defaults to now.
    pub created_at: Option<String>,
    /// Identity of a session from elsewhere. Defaults to a new one.
    pub uuid: Option<Uuid>,
    /// The session that it was forked from, for a session from elsewhere.
    pub forked_from: Option<Uuid>,
    /// Time of the last activity, as `2026-01-31T09:30:00Z`, of a session from elsewhere that has no events: a turn sets it by
    /// [`NewTurn::happened_at`](crate::NewTurn::happened_at). Defaults to now. A store with a clock takes a time in the future as now.
    pub last_active: Option<String>,
}

/// A session as it is listed: all but its events.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRecord {
    /// Its number.
    pub id: SessionId,
    /// Stored values that cannot be read, such as `preview`; each of them reads as its default.
    pub damaged: Vec<String>,
    /// Its name; by default its number.
    pub name: String,
    /// When it got its name, as `2026-01-31T09:30:00Z`: by its creation or by the last rename. A rename is later than the name before
    /// it, whatever the clock says. Empty if it has no name of its own, if unknown (the name is as old as the session then), and in
    /// the memory store unless the time was given.
    pub named_at: String,
    /// The worktree it belongs to, as it is stored.
    pub worktree: String,
    /// The time of its creation, as `2026-01-31T09:30:00Z`; empty in the memory store.
    pub created_at: String,
    /// Whether its last turn succeeded; `None` if no turn has ended, or if there is new content since.
    pub completed: Option<bool>,
    /// The total duration of its turns.
    pub duration_ms: u64,
    /// The total cost of its turns.
    pub cost_usd: f64,
    /// The counts over its events.
    pub counts: Counts,
    /// The tokens of its turns, added up. The cache totals may lack turns that an azureal without them stored.
    pub tokens: Tokens,
    /// The part of [`Counts::rendered_chars`] that the newest summary covers.
    pub covered: u64,
    /// Size of the newest summary as it is sent, with the prompts beside it, in characters; 0 without one.
    pub opening: u64,
    /// Identity of the session in every store. `None` only in a file that has not been upgraded yet.
    pub uuid: Option<Uuid>,
    /// The session that it was forked from.
    pub forked_from: Option<Uuid>,
    /// Time of the last activity, as `2026-01-31T09:30:00Z`: that of the last turn, or of the creation. Empty if unknown, and in the
    /// memory store unless the time was given.
    pub last_active: String,
    /// The run that the original AZUREAL program notes in this session while its Claude Code runs.
    pub original_run: Option<String>,
    /// Grows with every change of what this record, the events or the summaries of the session say. So a front end that
    /// compares it knows whether there is anything new. Runs that are [noted](crate::CrashNotes) and leases are no change.
    ///
    /// It counts events and other changes: a store adds the number of events to a count of what else was changed, and to that
    /// count the number of events that a clear removes, and one.
    pub revision: u64,
    /// The number of times that the past of its log was changed, which a [clear](crate::SessionStore::clear) does. Equal generations
    /// with an equal place mean the same events up to there.
    pub generation: u64,
}

impl SessionRecord {
    /// Creates the record of an empty session whose name is its number.
    pub fn new(id: SessionId) -> Self {
        Self {
            id,
            damaged: Vec::new(),
            name: id.to_string(),
            named_at: String::new(),
            worktree: String::new(),
            created_at: String::new(),
            completed: None,
            duration_ms: 0,
            cost_usd: 0.0,
            counts: Counts::default(),
            tokens: Tokens::default(),
            covered: 0,
            opening: 0,
            uuid: None,
            forked_from: None,
            last_active: String::new(),
            original_run: None,
            revision: 0,
            generation: 0,
        }
    }

    /// Returns whether the session has a name other than its number.
    pub fn has_own_name(&self) -> bool {
        self.name != self.id.to_string()
    }

    /// Returns the time of the last activity; that of the creation if no other is recorded, as in a file of an earlier version.
    pub fn active_at(&self) -> &str {
        if self.last_active.is_empty() { &self.created_at } else { &self.last_active }
    }

    /// Returns the size of the events since the last compaction in the context, in characters, a system message among them
    /// included.
    pub fn chars_since_compaction(&self) -> u64 {
        self.counts.rendered_chars.saturating_sub(self.covered)
    }

    /// Returns the size of the context that the next agent receives, in characters, tags included.
    pub fn context_chars(&self) -> u64 {
        crate::context::context_chars(self.opening, self.chars_since_compaction())
    }
}

/// Counts over the events of a session, so that listing does not read them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of events.
    pub events: u64,
    /// The number of messages.
    pub messages: u64,
    /// The beginning of the first user message; `None` if there is none yet, or if it is still open and has no text
    /// so far.
    pub preview: Option<String>,
    /// The beginning of the last user message that holds text.
    pub last_prompt: Option<String>,
    /// Whether an agent has ever answered, be it with a tool call.
    pub answered: bool,
    /// The agent that ran last, also if it never answered, or that the user chose since.
    pub agent: Option<String>,
    /// The model of that agent that answered last.
    pub model: Option<String>,
    /// The model that was asked for in the last turn, or that the user chose since; `None` for the agent's default.
    pub requested_model: Option<String>,
    /// The rendered length of these events, in characters, without a summary.
    pub rendered_chars: u64,
    /// [`Usage::context_tokens`](crate::event::Usage::context_tokens) of the turn that the log ends with. `None`
    /// after any later event or compaction.
    pub context_tokens: Option<u64>,
}

/// Counts over a log, and all that has to be remembered to count on without reading it again.
///
/// A tally carries the sequence number that it counts through: a program that appends without knowing of it
/// leaves it behind, and [`Tally::add`] over the rest brings it up to date.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// The last event that is counted.
    pub through: Seq,
    /// The message that the next event may continue.
    pub open: Open,
    /// The counts so far.
    pub counts: Counts,
    /// The part of [`Counts::rendered_chars`] that versions without details do not count: what the details of these events
    /// add, changes and undos. It is negative if the details are shorter than the contents that they replace.
    pub detail_chars: i64,
}

/// The number of characters at which a prompt is cut for lists.
pub const PREVIEW_CHARS: usize = 80;

impl Tally {
    /// Counts one more event, which is at `seq`; `None` is a row that cannot be read.
    pub fn add(&mut self, seq: Seq, event: Option<&Event>) {
        self.through = seq;
        self.counts.events += 1;
        // An unreadable event is rendered as an error in its place, so it counts as one.
        let damaged = Event::error("", "");
        let event = event.unwrap_or(&damaged);
        self.counts.look_for_agent(event);
        self.counts.look_for_last_prompt(event);
        let rendered = rendered_chars(event);
        self.counts.rendered_chars = self.counts.rendered_chars.saturating_add(rendered);
        let difference = rendered.cast_signed().saturating_sub(plain_chars(event, rendered).cast_signed());
        self.detail_chars = self.detail_chars.saturating_add(difference);
        self.counts.context_tokens = match event {
            Event::Complete(complete) => complete.usage.and_then(|usage| usage.context_tokens),
            _ => None,
        };
        self.add_to_messages(event);
    }

    /// Returns the rendered length of the counted events as versions without details count it.
    pub fn plain_chars(&self) -> u64 {
        self.counts.rendered_chars.saturating_add_signed(self.detail_chars.saturating_neg())
    }

    /// Counts of an event only what depends on the message that is open before it.
    pub fn add_to_messages(&mut self, event: &Event) {
        let before = self.open;
        match self.open.place(event) {
            MessagePosition::Starts => {
                self.counts.messages += 1;
                if self.counts.preview.is_none() && before == Open::Results {
                    // The first user message was results alone, and it has just ended.
                    self.counts.preview = Some(String::new());
                }
                self.counts.look_for_preview(event);
            }
            // The first user message may begin with a tool's result and continue with text.
            MessagePosition::Continues => self.counts.look_for_preview(event),
            MessagePosition::Nowhere => {}
        }
    }
}

/// Returns the rendered length of an event without its detail. Versions without details do not render changes and undos.
/// `rendered` is its length with the detail.
fn plain_chars(event: &Event, rendered: u64) -> u64 {
    match event {
        Event::Changes(_) | Event::Undo(_) => 0,
        event if event.detail().is_none() => rendered,
        event => {
            let mut plain = event.clone();
            if let Some(detail) = plain.detail_mut() {
                *detail = None;
            }
            rendered_chars(&plain)
        }
    }
}

impl Counts {
    fn look_for_agent(&mut self, event: &Event) {
        match event {
            Event::Init(Init { agent, model, requested_model, .. }) => {
                if agent.is_some() {
                    if self.agent != *agent {
                        // The model of one agent has no meaning for another.
                        self.model = None;
                    }
                    self.agent.clone_from(agent);
                    self.requested_model.clone_from(requested_model);
                }
                if !model.is_empty() {
                    self.model = Some(model.clone());
                }
            }
            // The user's choice is what the next turn uses, as if the agent had run with it.
            Event::ModelSwitch(ModelSwitch { model, agent: Some(agent) }) => {
                let model = Some(model.clone()).filter(|model| model != ModelSwitch::DEFAULT);
                self.agent = Some(agent.clone());
                self.model.clone_from(&model);
                self.requested_model = model;
            }
            Event::ModelSwitch(switch) => self.model = Some(switch.model.clone()),
            Event::AssistantText(_) | Event::ToolCall(_) | Event::Plan(_) => self.answered = true,
            Event::Message(message) if message.role == Role::Assistant => self.answered = true,
            _ => {}
        }
    }

    fn look_for_last_prompt(&mut self, event: &Event) {
        let text = match event {
            Event::UserMessage(message) => Some(message.content.as_str()),
            Event::Message(message) if message.role == Role::User => {
                message.content.iter().find_map(Block::as_text)
            }
            _ => None,
        };
        if let Some(text) = text {
            self.last_prompt = Some(shortened(text));
        }
    }

    fn look_for_preview(&mut self, event: &Event) {
        if self.preview.is_some() {
            return;
        }
        self.preview = match event {
            Event::UserMessage(message) => Some(shortened(&message.content)),
            // A whole message: no later event continues it.
            Event::Message(message) if message.role == Role::User => {
                let text = message.content.iter().find_map(Block::as_text);
                Some(text.map_or_else(String::new, shortened))
            }
            _ => None,
        };
    }

    /// Returns the preview for display; may be empty.
    pub fn preview_text(&self) -> &str {
        self.preview.as_deref().unwrap_or("")
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(PREVIEW_CHARS).collect()
}

/// The effect of a turn on the totals of its session.
///
/// Derived from the turn's own events, once, when they are appended.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TurnTotals {
    /// The new `completed` of the session; `None` means "not ended".
    pub completed: Option<bool>,
    /// The duration of the turn.
    pub duration_ms: u64,
    /// Its cost.
    pub cost_usd: f64,
}

impl TurnTotals {
    /// Adds up what these events say.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut totals = Self::default();
        for event in events {
            match event {
                Event::Complete(complete) => {
                    totals.completed = Some(complete.success);
                    totals.duration_ms = totals.duration_ms.saturating_add(complete.duration_ms);
                    if complete.cost_usd.is_finite() {
                        totals.cost_usd += complete.cost_usd;
                    }
                }
                // A prompt after the end of a turn begins the next one.
                Event::UserMessage(_) => totals.completed = None,
                _ => {}
            }
        }
        totals
    }
}

/// A summary that is laid over the events up to a point. The events stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// The last event that it covers: the context continues with the next.
    pub after_seq: Seq,
    /// The summary.
    pub summary: String,
    /// Creation time, as `2026-01-31T09:30:00Z`; empty if unknown.
    pub created_at: String,
    /// The author: an agent, `agent/model`, or `digest`. `None` if unknown.
    pub writer: Option<String>,
    /// Size of the context's opening under this summary, in characters: system message, summary and the prompts
    /// beside it. `None` if it was not measured; then the summary's own length is the estimate.
    pub opening_chars: Option<u64>,
}

impl Compaction {
    /// Creates a summary of the events up to a place, by an unknown author, with the time left to the store.
    pub fn new(after_seq: Seq, summary: impl Into<String>) -> Self {
        let (created_at, writer, opening_chars) = (String::new(), None, None);
        Self { after_seq, summary: summary.into(), created_at, writer, opening_chars }
    }

    /// Returns the measured size of the context's opening, or the length of the summary.
    pub fn opening(&self) -> u64 {
        self.opening_chars.unwrap_or_else(|| self.summary.chars().count() as u64)
    }
}

/// Brings a timestamp of any form that stores have held into the one that we write.
///
/// SQLite's `datetime('now')` gives `2026-01-31 09:30:00`, in UTC but without saying so.
pub fn normal_timestamp(text: &str) -> String {
    let bytes = text.as_bytes();
    match (bytes.get(10), bytes.len()) {
        (Some(b' '), 19) => format!("{}Z", text.replacen(' ', "T", 1)),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Complete, ToolResult};

    fn tally(events: &[Event]) -> Tally {
        let mut tally = Tally::default();
        for (index, event) in events.iter().enumerate() {
            tally.add(Seq(index as u64 + 1), Some(event));
        }
        tally
    }

    #[test]
    fn the_length_without_details_is_counted_beside_the_one_with_them() {
        let event = |json: &str| Event::from_json(json).unwrap();
        let long =
            r#"{"ToolResult":{"tool_name":"Edit","content":"ok","detail":"--- a/x\n+++ b/x\n@@\n+y"}}"#;
        let short = r#"{"ToolResult":{"tool_name":"Edit","content":"updated successfully","detail":"+y"}}"#;
        let plain = r#"{"ToolResult":{"tool_name":"Edit","content":"updated successfully"}}"#;
        let changes = r#"{"Changes":{"files":[{"path":"a"}],"detail":"+x"}}"#;
        let tally = |logs: &[&str]| {
            let mut tally = Tally::default();
            for (json, seq) in logs.iter().zip(1..) {
                tally.add(Seq(seq), Some(&event(json)));
            }
            tally
        };
        assert_eq!((tally(&[plain]).detail_chars, tally(&[short]).detail_chars), (0, 2 - 20));
        assert_eq!(tally(&[short]).plain_chars(), tally(&[plain]).counts.rendered_chars);
        assert_eq!(tally(&[long]).detail_chars, 21 - 2);
        assert_eq!(
            (tally(&[changes]).plain_chars(), tally(&[r#"{"Undo":{"turn":1}}"#]).plain_chars()),
            (0, 0)
        );
        let all = tally(&[plain, short, long, changes]);
        assert_eq!(all.counts.rendered_chars, all.plain_chars().saturating_add_signed(all.detail_chars));
    }

    fn counts(events: &[Event]) -> Counts {
        tally(events).counts
    }

    #[test]
    fn session_numbers_have_one_form() {
        for text in ["", "S", "3", "S0", "S-1", "S+1", "S03", "S99999999999", "Sx", "SS1"] {
            assert!(text.parse::<SessionId>().is_err(), "{text}");
        }
        assert_eq!("s12".parse::<SessionId>(), Ok(SessionId(12)));
    }

    #[test]
    fn the_preview_is_the_first_text_of_the_first_user_message() {
        let result = Event::ToolResult(ToolResult::default());
        let long = "ä".repeat(100);
        assert_eq!(counts(&[]).preview, None);
        assert_eq!(counts(&[Event::assistant("x")]).preview, None);
        assert_eq!(counts(&[Event::user(&long), Event::user("b")]).preview_text(), "ä".repeat(80));
        assert_eq!(counts(&[result.clone(), Event::user("later")]).preview_text(), "");
        let Event::UserMessage(mut goes_on) = Event::user("same") else { unreachable!() };
        goes_on.starts = Some(false);
        assert_eq!(counts(&[result.clone(), Event::UserMessage(goes_on.clone())]).preview_text(), "same");
        let system = Event::SystemMessage(crate::event::SystemMessage::default());
        assert_eq!(counts(&[system, result, Event::UserMessage(goes_on.clone())]).preview_text(), "same");
        // The first text counts, also where it is empty.
        assert_eq!(counts(&[Event::user(""), Event::UserMessage(goes_on)]).preview_text(), "");
    }

    #[test]
    fn the_model_of_one_agent_never_stands_beside_another() {
        let init = |agent: &str, model: &str, requested: Option<&str>| {
            Event::Init(Init {
                agent: Some(agent.to_owned()),
                model: model.to_owned(),
                requested_model: requested.map(str::to_owned),
                ..Init::default()
            })
        };
        let known = |events: &[Event]| {
            let Counts { agent, model, requested_model, .. } = counts(events);
            (agent.unwrap(), model, requested_model)
        };
        let haiku = init("claude", "claude-haiku-4-5", Some("haiku"));
        let first = ("claude".to_owned(), Some("claude-haiku-4-5".to_owned()), Some("haiku".to_owned()));
        assert_eq!(known(std::slice::from_ref(&haiku)), first);
        assert_eq!(known(&[haiku.clone(), init("codex", "", None)]), ("codex".to_owned(), None, None));
        let back = [haiku.clone(), init("codex", "gpt", Some("gpt")), haiku.clone()];
        assert_eq!(known(&back), first);
        // The same agent without a word of its model keeps the one that answered, not the request.
        assert_eq!(known(&[haiku, init("claude", "", None)]), (first.0, first.1, None));
    }

    #[test]
    fn the_last_prompt_and_an_answer_are_counted() {
        assert_eq!((counts(&[]).last_prompt, counts(&[]).answered), (None, false));
        let failed = [Event::user("a"), Event::error("agent", "it died")];
        assert_eq!((counts(&failed).last_prompt.as_deref(), counts(&failed).answered), (Some("a"), false));
        let answered = [Event::user("a"), Event::assistant("b"), Event::user("c")];
        assert_eq!((counts(&answered).last_prompt.as_deref(), counts(&answered).answered), (Some("c"), true));
    }

    #[test]
    fn counting_in_two_parts_is_counting_in_one() {
        let events = [Event::user("a"), Event::assistant("b"), Event::assistant("c"), Event::Compacted];
        let whole = tally(&events);
        for cut in 0..=events.len() {
            let mut parts = tally(&events[..cut]);
            for (index, event) in events.iter().enumerate().skip(cut) {
                parts.add(Seq(index as u64 + 1), Some(event));
            }
            assert_eq!(parts, whole);
        }
        assert_eq!((whole.counts.events, whole.counts.messages), (4, 2));
    }

    #[test]
    fn a_prompt_after_the_end_of_a_turn_opens_the_session_again() {
        let complete = |success| {
            Event::Complete(Complete { success, duration_ms: 5, cost_usd: 0.5, ..Complete::default() })
        };
        let completed = |events: &[Event]| TurnTotals::of(events).completed;
        assert_eq!(completed(&[Event::user("a")]), None);
        assert_eq!(completed(&[Event::user("a"), complete(true)]), Some(true));
        assert_eq!(completed(&[complete(false)]), Some(false));
        assert_eq!(completed(&[complete(true), Event::user("b")]), None);
        assert_eq!(TurnTotals::of(&[complete(true), complete(true)]).cost_usd, 1.0);
    }

    #[test]
    fn both_forms_of_a_timestamp_are_read() {
        assert_eq!(normal_timestamp("2026-01-31 09:30:00"), "2026-01-31T09:30:00Z");
        assert_eq!(normal_timestamp("2026-01-31T09:30:00Z"), "2026-01-31T09:30:00Z");
        assert_eq!(normal_timestamp("yesterday"), "yesterday");
    }
}
