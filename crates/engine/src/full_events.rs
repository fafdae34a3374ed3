//! The full form of stored events, from the originals of their turns.
//!
//! Stored events are short. The output of a turn is parsed again for their full form. Parsers change, so a full event is used
//! only if its short form is the stored event. Otherwise the tool call with the same id counts. If there is none, the
//! lines of the turn can still be shown as the agent printed them.
//!
//! A whole output that follows the output of the turn ([`crate::whole_outputs`]) takes the place of the one that the agent cut.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use azureal_core::agent::{Agent, AgentOutput, AgentParser};
use azureal_core::event::ToolResult;
use azureal_core::{
    Event, OpenOriginal, Original, Seq, SessionId, SessionStore, StoreError, StoredEvent, compact_event,
};
use azureal_process::{LINE_LIMIT, Line};

use crate::header::{Header, ImportedRecord};
use crate::ingest::cost;
use crate::turn_parser::TurnParser;
use crate::watch::LineParser;
use crate::whole_outputs::OwnContent;

/// The most that the full events of one turn take in memory, in bytes.
const LARGEST_FULL_TURN: usize = 256 << 20;
/// The most that its whole outputs take besides, in bytes.
const LARGEST_WHOLE_OUTPUTS: usize = 256 << 20;

/// Finds the full form of a session's events.
pub struct FullEvents {
    store: Arc<dyn SessionStore>,
    agents: &'static [&'static dyn Agent],
    session: SessionId,
    originals: Vec<Original>,
    /// The turn that was read last.
    turn: Option<(String, Result<FullTurn, String>)>,
}

/// The full form of a stored event.
#[derive(Debug, Clone, PartialEq)]
pub enum FullEvent {
    /// The stored event is complete.
    Stored,
    /// The full event.
    Found(Box<Event>),
    /// Its turn has an original, in which this parser finds no such event. The lines of the turn are all that can be shown.
    Unmatched(Original),
    /// The stored event is short, and there is no original.
    Missing,
    /// The original cannot be read, for this reason.
    Unreadable(String),
}

/// The lines of an original that belong to an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginalLines {
    /// The line of the event, and those with its whole output: their numbers, from 0, in ascending order.
    Lines(Original, Vec<u64>),
    /// All lines of the turn, because the event is not from a single one.
    Turn(Original),
    /// All lines of the turn, because this parser finds no such event in them.
    Unmatched(Original),
}

/// A turn as it was printed, parsed.
struct FullTurn {
    /// The events of the output, each with the number of its line.
    events: Vec<(Event, u64)>,
    /// What is missing of the output, after a loss of power.
    missing: Option<String>,
    /// The number of events of the turn that stand before those of the output: its prompt. A record has the prompts itself.
    before: u64,
    /// The whole outputs that the agent keeps beside its transcript, by their call.
    whole: HashMap<String, WholeOutput>,
    /// The size of them.
    whole_size: usize,
}

/// A whole output that the agent keeps beside its transcript.
#[derive(Default)]
struct WholeOutput {
    text: String,
    /// Why it is not there.
    left_out: Option<String>,
    /// The numbers of its lines.
    lines: Vec<u64>,
}

impl FullEvents {
    /// Looks for the originals of a session. `agents` parse them.
    pub async fn open(
        store: Arc<dyn SessionStore>,
        agents: &'static [&'static dyn Agent],
        session: SessionId,
    ) -> Result<Self, StoreError> {
        let originals = match store.originals() {
            Some(originals) => originals.list(session).await?,
            None => Vec::new(),
        };
        Ok(Self { store, agents, session, originals, turn: None })
    }

    /// Returns the originals of the session, in the order of their events.
    pub fn originals(&self) -> &[Original] {
        &self.originals
    }

    /// Returns the full form of a stored event. Reads an original once, if this is called in the order of the events.
    pub async fn full(&mut self, stored: &StoredEvent) -> Result<FullEvent, StoreError> {
        let Ok(event) = stored.event() else { return Ok(FullEvent::Stored) };
        let is_short = match &event {
            Event::ToolCall(call) => call.omitted.is_some(),
            Event::ToolResult(result) => result.omitted.is_some(),
            _ => return Ok(FullEvent::Stored),
        };
        let Some(original) = self.covering(stored.seq) else {
            return Ok(if is_short { FullEvent::Missing } else { FullEvent::Stored });
        };
        let turn = match self.turn(&original).await? {
            Ok(turn) => turn,
            Err(why) => return Ok(FullEvent::Unreadable(why.clone())),
        };
        let found = turn.find(&event, turn.index(&original, stored.seq));
        if let Some(whole) = turn.with_whole_output(&event, found.map(|(found, _)| found)) {
            return Ok(FullEvent::Found(Box::new(whole)));
        }
        Ok(match found {
            Some((found, _)) if *found == event => FullEvent::Stored,
            Some((found, _)) => FullEvent::Found(Box::new(found.clone())),
            None if !is_short => FullEvent::Stored,
            None => match &turn.missing {
                Some(why) => FullEvent::Unreadable(why.clone()),
                None => FullEvent::Unmatched(original),
            },
        })
    }

    /// Returns the lines that an event was read from; `None` if there is no original.
    pub async fn lines_of(&mut self, stored: &StoredEvent) -> Result<Option<OriginalLines>, StoreError> {
        let Some(original) = self.covering(stored.seq) else { return Ok(None) };
        let Ok(event) = stored.event() else { return Ok(Some(OriginalLines::Unmatched(original))) };
        let turn = match self.turn(&original).await? {
            Ok(turn) => turn,
            Err(_) => return Ok(Some(OriginalLines::Unmatched(original))),
        };
        let found = turn.find(&event, turn.index(&original, stored.seq)).map(|(_, line)| *line);
        let whole = turn.whole_output(&event).map_or(&[][..], |whole| &whole.lines);
        let lines: Vec<u64> = found.into_iter().chain(whole.iter().copied()).collect();
        Ok(Some(match (found, &event) {
            _ if !lines.is_empty() => OriginalLines::Lines(original, lines),
            // The prompt and the end of a turn are not in its output.
            (None, Event::ToolCall(_) | Event::ToolResult(_) | Event::AssistantText(_)) => {
                OriginalLines::Unmatched(original)
            }
            (_, _) => OriginalLines::Turn(original),
        }))
    }

    fn covering(&self, seq: Seq) -> Option<Original> {
        self.originals.iter().find(|original| original.covers(seq)).cloned()
    }

    /// Reads the turn of an original, unless it was the last one read.
    async fn turn(&mut self, original: &Original) -> Result<&Result<FullTurn, String>, StoreError> {
        let read = match self.turn.take() {
            Some((run, turn)) if run == original.run => turn,
            _ => self.read(original).await?,
        };
        Ok(&self.turn.insert((original.run.clone(), read)).1)
    }

    async fn read(&self, original: &Original) -> Result<Result<FullTurn, String>, StoreError> {
        let Some(originals) = self.store.originals() else { return Ok(Err(GONE.to_owned())) };
        let content = match originals.open(self.session, &original.run).await {
            Ok(Some(content)) => content,
            Ok(None) => return Ok(Err(GONE.to_owned())),
            Err(StoreError::Closed) => return Err(StoreError::Closed),
            Err(error) => return Ok(Err(error.to_string())),
        };
        Ok(FullTurn::read(content, self.agents).await)
    }
}

const GONE: &str = "the original of the turn is not there any more";

impl FullTurn {
    async fn read(content: OpenOriginal, agents: &[&dyn Agent]) -> Result<Self, String> {
        let header = Header::read(content.header.as_bytes()).map_err(|error| error.to_string())?;
        let own_from = match (&header.stored, &header.imported) {
            (Some(stored), _) => stored.lines,
            (None, Some(imported)) => imported.lines,
            (None, None) => None,
        };
        let (length, masked) = (header.stored.map(|stored| stored.bytes), header.masked);
        let find = |name: &str| {
            let agent = agents.iter().find(|agent| agent.name() == name);
            agent.ok_or_else(|| format!("its agent `{name}` is unknown to this version of azureal"))
        };
        let (parser, before): (Box<dyn AgentParser>, u64) = match (header.turn, header.imported) {
            (Some(spooled), _) => (Box::new(TurnParser::new(*find(&spooled.agent)?, &spooled)), 1),
            (None, Some(ImportedRecord { agent, .. })) => {
                let record = find(&agent).ok().and_then(|agent| agent.own_record());
                let reader = record.map(|record| (record.reader)()).ok_or_else(|| {
                    format!("the file of an imported session of `{agent}` is only kept as a whole; `azureal original` prints it")
                })?;
                (reader, 0)
            }
            (None, None) => return Err("the header of the original is damaged".to_owned()),
        };
        let mut parser = LineParser::new(parser);
        let (whole, whole_size) = (HashMap::new(), 0);
        let mut turn = Self { events: Vec::new(), missing: None, before, whole, whole_size };
        let (mut size, mut number, mut read_bytes) = (0, 0, 0);
        let read = each_line(content, |line| {
            read_bytes += 1 + match &line {
                Line::Bytes(bytes) => bytes.len() as u64,
                Line::Oversized { bytes } => *bytes,
            };
            let is_full = size > LARGEST_FULL_TURN;
            if own_from.is_some_and(|from| number >= from) {
                turn.take_own_line(&line, number);
            } else if !is_full {
                for output in parser.line(&line) {
                    if let AgentOutput::Event(event) = output {
                        size += cost(&event);
                        turn.events.push((event, number));
                    }
                }
            }
            number += 1;
            if is_full && own_from.is_none() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        read.await.map_err(|error| error.to_string())?;
        // A last line without its line break counts as one with it.
        let found = masked.map_or(read_bytes, |masked| masked.bytes);
        turn.missing = length.filter(|length| found < *length && size <= LARGEST_FULL_TURN).map(|length| {
            format!("{} of {length} bytes of the output are missing", length.saturating_sub(found))
        });
        Ok(turn)
    }

    /// Takes a line of azureal, after the output.
    fn take_own_line(&mut self, line: &Line, number: u64) {
        let Line::Bytes(bytes) = line else { return };
        let Some(content) = OwnContent::read(bytes) else { return };
        let (OwnContent::Output { tool_use_id, .. } | OwnContent::LeftOut { tool_use_id, .. }) = &content;
        let whole = self.whole.entry(tool_use_id.clone()).or_default();
        whole.lines.push(number);
        match content {
            OwnContent::Output { text, .. } if self.whole_size + text.len() <= LARGEST_WHOLE_OUTPUTS => {
                self.whole_size += text.len();
                whole.text.push_str(&text);
            }
            OwnContent::Output { .. } => {
                self.whole_size -= std::mem::take(&mut whole.text).len();
                whole.left_out =
                    Some("the outputs of its turn are too large; `azureal original` prints them".to_owned());
            }
            OwnContent::LeftOut { why, .. } => whole.left_out = Some(why),
        }
    }

    fn whole_output(&self, event: &Event) -> Option<&WholeOutput> {
        let Event::ToolResult(result) = event else { return None };
        self.whole.get(&result.tool_use_id)
    }

    /// Returns a stored result, which may be `found` in the output, with the whole output that the agent keeps beside its transcript.
    fn with_whole_output(&self, stored: &Event, found: Option<&Event>) -> Option<Event> {
        let whole = self.whole_output(stored)?;
        let (found, full) = match &whole.left_out {
            None => (found.unwrap_or(stored), whole.text.clone()),
            Some(why) => (found?, format!("{}\n[the whole output is not kept: {why}]", content_of(found?)?)),
        };
        let Event::ToolResult(result) = found else { return None };
        Some(Event::ToolResult(ToolResult { content: full, omitted: None, ..result.clone() }))
    }

    /// Returns which event of the output a stored event is.
    fn index(&self, original: &Original, seq: Seq) -> Option<usize> {
        usize::try_from(seq.0.checked_sub(original.first.0)?.checked_sub(self.before)?).ok()
    }

    /// Finds the full form of a stored event, and the number of its line.
    fn find(&self, stored: &Event, index: Option<usize>) -> Option<&(Event, u64)> {
        // The diff of a snapshot is not in the output, and an older azureal stored no detail.
        let is_same = |(event, _): &&(Event, u64)| compact_event(event.clone()).equals_but_detail(stored);
        if let Some(found) = index.and_then(|index| self.events.get(index)).filter(is_same) {
            return Some(found);
        }
        let id = tool_use_id(stored).filter(|id| !id.is_empty())?;
        let is_same_kind = |event: &Event| std::mem::discriminant(event) == std::mem::discriminant(stored);
        self.events.iter().find(|(event, _)| is_same_kind(event) && tool_use_id(event) == Some(id))
    }
}

/// Returns how much of an original is missing, if the header says how long the output was when its turn was stored: the
/// power failed before all of it was on the disk. `found` is the length of the output that was read.
pub fn missing_bytes(header: &str, found: u64) -> u64 {
    let Ok(header) = Header::read(header.as_bytes()) else { return 0 };
    let stored = header.stored.map(|stored| stored.bytes).or(header.imported.map(|record| record.bytes));
    // What masking made shorter or longer is not missing.
    let found = header.masked.map_or(found, |masked| masked.bytes);
    stored.unwrap_or(0).saturating_sub(found)
}

fn content_of(event: &Event) -> Option<&str> {
    match event {
        Event::ToolResult(result) => Some(&result.content),
        _ => None,
    }
}

fn tool_use_id(event: &Event) -> Option<&str> {
    match event {
        Event::ToolCall(call) => Some(&call.tool_use_id),
        Event::ToolResult(result) => Some(&result.tool_use_id),
        _ => None,
    }
}

/// Reads the lines of an original, one at a time, until `take` breaks. A last line without a line break is one too.
pub async fn each_line(
    mut original: OpenOriginal,
    mut take: impl FnMut(Line) -> ControlFlow<()> + Send,
) -> Result<(), StoreError> {
    // The line so far, and its length, which may be over the limit.
    let (mut line, mut length) = (Vec::new(), 0_u64);
    let mut end = |line: &mut Vec<u8>, length: &mut u64| {
        let bytes = std::mem::take(length);
        let text = std::mem::take(line);
        take(if bytes > LINE_LIMIT { Line::Oversized { bytes } } else { Line::Bytes(text) })
    };
    while let Some(piece) = original.output.next().await? {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_end) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            length = length.saturating_add(text.len() as u64);
            if length <= LINE_LIMIT {
                line.extend_from_slice(text);
            } else {
                line = Vec::new();
            }
            if is_end && end(&mut line, &mut length).is_break() {
                return Ok(());
            }
        }
    }
    if length > 0 {
        // The rest of the turn, after which there is nothing to stop.
        let _ = end(&mut line, &mut length);
    }
    Ok(())
}
