//! The events that a pane holds: a bounded window of its session.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use azureal::core::event::FileChange;
use azureal::core::{Block, OutputPart, ToolOutput, compact_event};
use azureal::{Event, Seq, StoredEvent};

/// The most bytes of stored events that a shown pane holds. Their blocks hold about as much again, and so does the running turn.
pub(super) const MOST_BYTES: usize = 6 << 20;
/// The most stored events that a shown pane holds.
pub(super) const MOST_EVENTS: usize = 1_024;
/// The most bytes of stored events that a pane holds while it is not shown.
const HIDDEN_BYTES: usize = 512 << 10;
/// The most stored events that a pane holds while it is not shown.
const HIDDEN_EVENTS: usize = 128;
/// The events beside the view that are never dropped.
const MARGIN: u64 = 16;
/// The longest text of one event. Of a longer one, the two ends are shown.
pub(super) const LONGEST_TEXT: usize = 1 << 20;
/// The bytes that an event takes beside its texts.
const OVERHEAD: usize = 128;

/// An event of a session.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) seq: Seq,
    pub(super) event: Event,
    bytes: usize,
}

impl Held {
    pub(super) fn new(seq: Seq, event: Event) -> Self {
        let event = bounded(event);
        let bytes = size(&event);
        Self { seq, event, bytes }
    }

    /// Reads a stored event. An event that cannot be read is shown as such.
    pub(super) fn stored(stored: &StoredEvent) -> Self {
        let event = stored.event().unwrap_or_else(|damage| {
            Event::error("damaged", format!("event {} cannot be read: {damage}", stored.seq))
        });
        Self::new(stored.seq, event)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Stored events without a gap, around the place that is shown.
#[derive(Debug, Default)]
pub(super) struct Window {
    events: VecDeque<Held>,
    bytes: usize,
    /// Whether the first event of the session is the first of the window.
    pub(super) is_at_start: bool,
    /// Whether the last stored event of the session is the last of the window.
    pub(super) is_at_end: bool,
}

impl Window {
    /// Creates the window of a session that has no events.
    pub(super) fn whole() -> Self {
        Self { is_at_start: true, is_at_end: true, ..Self::default() }
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Held> {
        self.events.iter()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn first(&self) -> Option<Seq> {
        self.events.front().map(|held| held.seq)
    }

    pub(super) fn last(&self) -> Option<Seq> {
        self.events.back().map(|held| held.seq)
    }

    pub(super) fn holds(&self, seq: Seq) -> bool {
        self.first().is_some_and(|first| first <= seq) && self.last().is_some_and(|last| seq <= last)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds an event, or replaces the one with its number.
    pub(super) fn insert(&mut self, held: Held) {
        self.bytes += held.bytes;
        if held.seq <= Seq(1) {
            self.is_at_start = true;
        }
        match self.events.binary_search_by_key(&held.seq, |other| other.seq) {
            Ok(at) => {
                if let Some(old) = self.events.get_mut(at) {
                    self.bytes -= old.bytes;
                    *old = held;
                }
            }
            Err(at) => self.events.insert(at, held),
        }
    }

    /// Replaces an event by its full form, if it is here. Returns whether it was.
    pub(super) fn replace(&mut self, held: Held) -> bool {
        let is_here = self.events.binary_search_by_key(&held.seq, |other| other.seq).is_ok();
        if is_here {
            self.insert(held);
        }
        is_here
    }

    /// Removes all events from one on: they are to be read again.
    pub(super) fn cut_from(&mut self, first: Seq) {
        while self.events.back().is_some_and(|held| held.seq >= first) {
            self.pop_back();
        }
    }

    /// Drops events that are far from those that are shown, until the window is within its bounds. Returns whether it dropped any.
    pub(super) fn trim(&mut self, near: &RangeInclusive<Seq>, is_shown: bool) -> bool {
        let (most_bytes, most_events) =
            if is_shown { (MOST_BYTES, MOST_EVENTS) } else { (HIDDEN_BYTES, HIDDEN_EVENTS) };
        if self.bytes <= most_bytes && self.events.len() <= most_events {
            return false;
        }
        let before = self.events.len();
        // To less than the bounds: each time, the blocks are folded again.
        while self.bytes > most_bytes / 4 * 3 || self.events.len() > most_events / 4 * 3 {
            let above = self.first().map_or(0, |first| near.start().0.saturating_sub(first.0));
            let below = self.last().map_or(0, |last| last.0.saturating_sub(near.end().0));
            // Some stay beside the view: else a page that was just read could be dropped and read again, without end.
            if above.max(below) <= MARGIN {
                break;
            }
            if above >= below {
                self.pop_front();
            } else {
                self.pop_back();
            }
        }
        self.events.len() < before
    }

    fn pop_front(&mut self) {
        if let Some(held) = self.events.pop_front() {
            self.bytes -= held.bytes;
            self.is_at_start = false;
        }
    }

    fn pop_back(&mut self) {
        if let Some(held) = self.events.pop_back() {
            self.bytes -= held.bytes;
            self.is_at_end = false;
        }
    }
}

/// Shortens the texts of an event that are too long to be laid out.
fn bounded(mut event: Event) -> Event {
    if size(&event) <= LONGEST_TEXT {
        return event;
    }
    match &mut event {
        Event::UserMessage(message) => shorten(&mut message.content),
        Event::AssistantText(answer) => shorten(&mut answer.text),
        Event::Reasoning(reasoning) => shorten(&mut reasoning.text),
        Event::Plan(plan) => shorten(&mut plan.content),
        Event::Hook(hook) => shorten(&mut hook.output),
        Event::SystemMessage(message) => shorten(&mut message.content),
        Event::Error(error) => shorten(&mut error.message),
        Event::ToolResult(result) => {
            shorten(&mut result.content);
            if let Some(detail) = &mut result.detail {
                shorten(detail);
            }
        }
        Event::ToolCall(_) => return still_large(compact_event(event)),
        Event::Message(message) => {
            let most = LONGEST_TEXT / message.content.len().max(1);
            for block in &mut message.content {
                match block {
                    Block::Text { text } => shorten_to(text, most),
                    Block::ToolResult { content: ToolOutput::Text(text), .. } => shorten_to(text, most),
                    Block::Image(_) | Block::ToolUse { .. } | Block::ToolResult { .. } => {}
                }
            }
            return still_large(event);
        }
        _ => return still_large(event),
    }
    event
}

/// Replaces an event that cannot be shortened by a line that says so.
fn still_large(event: Event) -> Event {
    let size = size(&event);
    // Pictures are a line on the screen, whatever their size.
    if size <= 2 * LONGEST_TEXT {
        return event;
    }
    Event::error(
        "large",
        format!("{} of {}: the editor and the pager show it", event.kind(), megabytes(size)),
    )
}

fn shorten(text: &mut String) {
    shorten_to(text, LONGEST_TEXT);
}

/// Leaves the two ends of a text that is longer than `most` bytes.
pub(super) fn shorten_to(text: &mut String, most: usize) {
    if text.len() <= most {
        return;
    }
    let head = text.floor_char_boundary(most / 2);
    let tail = text.ceil_char_boundary(text.len() - most / 2);
    let note = format!("\n\n… {} not shown: the editor and the pager show it …\n\n", megabytes(tail - head));
    text.replace_range(head..tail, &note);
}

fn megabytes(bytes: usize) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000)
}

/// Returns about how many bytes an event takes.
pub(crate) fn size(event: &Event) -> usize {
    OVERHEAD
        + match event {
            Event::UserMessage(message) => message.content.len(),
            Event::AssistantText(answer) => answer.text.len(),
            Event::Reasoning(reasoning) => reasoning.text.len(),
            Event::Plan(plan) => plan.content.len(),
            Event::Hook(hook) => hook.output.len(),
            Event::SystemMessage(message) => message.content.len(),
            Event::Error(error) => error.message.len(),
            Event::ToolCall(call) => call.input.as_str().len() + length(call.detail.as_ref()),
            Event::ToolResult(result) => result.content.len() + length(result.detail.as_ref()),
            Event::Message(message) => message.content.iter().map(block_size).sum(),
            Event::Unknown(unknown) => unknown.json().len(),
            Event::Changes(changes) => {
                let skipped = changes.skipped.iter().map(|skipped| skipped.path.len() + skipped.reason.len());
                files_size(&changes.files) + skipped.sum::<usize>() + length(changes.detail.as_ref())
            }
            Event::Undo(undo) => files_size(&undo.files),
            Event::Init(_)
            | Event::Command(_)
            | Event::Complete(_)
            | Event::ModelSwitch(_)
            | Event::Compacting
            | Event::Compacted => 0,
        }
}

fn length(text: Option<&String>) -> usize {
    text.map_or(0, String::len)
}

fn files_size(files: &[FileChange]) -> usize {
    files.iter().map(|file| OVERHEAD + file.path.len() + length(file.from.as_ref())).sum()
}

fn block_size(block: &Block) -> usize {
    match block {
        Block::Text { text } => text.len(),
        Block::Image(image) => image.data.len(),
        Block::ToolUse { input, .. } => input.as_str().len(),
        Block::ToolResult { content: ToolOutput::Text(text), .. } => text.len(),
        Block::ToolResult { content: ToolOutput::Parts(parts), .. } => parts
            .iter()
            .map(|part| match part {
                OutputPart::Text(text) => text.len(),
                OutputPart::Image(image) => image.data.len(),
            })
            .sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(range: std::ops::Range<u64>, bytes: usize) -> Window {
        let mut window = Window::default();
        for seq in range {
            window.insert(Held::new(Seq(seq), Event::user("x".repeat(bytes))));
        }
        window
    }

    #[test]
    fn the_ends_that_are_far_from_the_view_are_dropped_first() {
        let mut events = window(1..2_001, 10);
        events.is_at_end = true;
        assert!(events.is_at_start);
        assert!(events.trim(&(Seq(1_500)..=Seq(1_600)), true));
        assert_eq!(events.len(), MOST_EVENTS / 4 * 3);
        assert!(!events.is_at_start && events.holds(Seq(1_500)) && events.holds(Seq(1_600)));
        assert!(events.bytes() <= MOST_BYTES);
        let first = events.first().unwrap();
        assert!(first > Seq(500), "{first}");
    }

    #[test]
    fn what_is_shown_stays_even_if_it_is_larger_than_the_bound() {
        let mut events = window(1..61, 500_000);
        assert!(!events.trim(&(Seq(1)..=Seq(60)), true));
        assert!(events.trim(&(Seq(10)..=Seq(12)), true));
        assert_eq!(events.last(), Some(Seq(12 + MARGIN)));
        assert!(events.holds(Seq(10)) && events.holds(Seq(12)));
    }

    #[test]
    fn a_long_text_keeps_its_ends() {
        let text = format!("begin{}end", "é".repeat(LONGEST_TEXT));
        let held = Held::new(Seq(1), Event::assistant(text));
        let Event::AssistantText(answer) = held.event else { panic!() };
        assert!(answer.text.starts_with("begin") && answer.text.ends_with("end"));
        assert!(answer.text.contains("1.0 MB not shown"), "{}", answer.text.len());
        assert!(answer.text.len() < LONGEST_TEXT + 200);
    }

    #[test]
    fn a_replaced_event_is_counted_once() {
        let mut events = window(1..3, 100);
        let bytes = events.bytes();
        assert!(events.replace(Held::new(Seq(2), Event::user("y".repeat(100)))));
        assert!(!events.replace(Held::new(Seq(9), Event::user("y"))));
        assert_eq!((events.bytes(), events.len()), (bytes, 2));
    }

    #[test]
    fn events_are_in_order_however_they_come() {
        let mut events = window(5..8, 1);
        events.insert(Held::new(Seq(3), Event::user("x")));
        events.insert(Held::new(Seq(4), Event::user("x")));
        assert_eq!(events.events().map(|held| held.seq.0).collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
        events.cut_from(Seq(6));
        assert_eq!(events.last(), Some(Seq(5)));
    }
}
