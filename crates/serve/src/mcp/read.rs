//! Reading events of a session.

use azureal::Error;
use azureal::core::{
    Event, EventSource, Page, Redactor, Seq, SessionId, StoredEvent, counted, render_event, visible,
};
use azureal::sessions::called;

use super::arguments::Arguments;
use super::list::SESSIONS;
use super::{MOST_CHARS, RECORD, Server};

/// The characters of an answer that are kept for its last lines.
const LAST_LINES: usize = 500;
/// The longest word that is not cut, in characters.
const WORD: usize = 200;
/// The number of events at the end of a session that are read without a range.
const LAST: u64 = 20;
/// The most events that one answer looks at.
const MOST_EVENTS: u64 = 1_000;
/// The number of events that are read at a time.
const PAGE: usize = 64;
/// Begins a line of the answer itself.
const OWN: &str = "[azureal]";
/// The beginnings of lines that only an answer has, without white space.
const MARKS: [&str; 2] = ["[event", OWN];

/// A range of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    from: u64,
    to: u64,
}

impl Range {
    /// Returns the range that is asked for, in a session whose last event has this number.
    fn of(from: Option<u64>, to: Option<u64>, last: u64) -> Self {
        let (from, to) = match (from, to) {
            (None, None) => (last.saturating_sub(LAST - 1), last),
            (None, Some(to)) => (to.min(last).saturating_sub(LAST - 1), to),
            (Some(from), None) => (from, from.saturating_add(LAST - 1)),
            (Some(from), Some(to)) => (from.min(to), to.max(from)),
        };
        let from = from.max(1);
        Self { from, to: to.max(from).min(last).min(from.saturating_add(MOST_EVENTS - 1)) }
    }
}

impl Server<'_> {
    pub(super) async fn read_session(&self, arguments: &Arguments<'_>) -> Result<String, Error> {
        let session = arguments.text("session")?;
        let session = session.ok_or_else(|| Error::usage("`session` is missing").with_hint(SESSIONS))?;
        let record = self.session(&session).await?;
        let last =
            self.workspace.store.read(record.id, Page::last(1)).await?.pop().map_or(0, |event| event.seq.0);
        let range = Range::of(arguments.number("from")?, arguments.number("to")?, last);
        let offset = usize::try_from(arguments.number("offset")?.unwrap_or(0)).unwrap_or(usize::MAX);
        let is_original = arguments.switch("original")?;
        let mut answer = Answer {
            redactor: self.redactor,
            text: format!(
                "{}\n{OWN} {RECORD} Events {} to {} of {last}:",
                self.session_line(&record, None, []),
                range.from,
                range.to
            ),
            offset,
            next: None,
        };
        if range.from > last {
            return Ok(format!(
                "{} has {last} events; event {} does not exist.",
                called(&record),
                range.from
            ));
        }
        if is_original {
            let history = self.workspace.full_history(record.id).await?;
            answer.read(&history, record.id, range, is_original).await?;
            let gaps = history.gaps().await;
            let lost = gaps.missing.saturating_add(gaps.unmatched);
            if lost > 0 {
                let events = counted(lost, "event");
                answer.says(&format!("Of {events} the whole output is not kept: as stored."));
            }
            if !gaps.unreadable.is_empty() {
                let outputs = counted(gaps.unreadable.len() as u64, "output");
                answer.says(&format!("{outputs} cannot be read, and the events in question are as stored."));
            }
        } else {
            answer.read(&*self.workspace.store, record.id, range, is_original).await?;
        }
        Ok(answer.finish(range, last))
    }
}

/// An answer of bounded size.
struct Answer<'r> {
    redactor: &'r Redactor,
    text: String,
    /// Characters of the next event that are skipped.
    offset: usize,
    /// The event that did not fit, with the number of its characters that are told.
    next: Option<(u64, usize)>,
}

impl Answer<'_> {
    async fn read<S: EventSource + ?Sized>(
        &mut self,
        source: &S,
        session: SessionId,
        range: Range,
        is_original: bool,
    ) -> Result<(), Error> {
        let mut after = Seq(range.from - 1);
        while self.next.is_none() {
            let page = source.read_events(session, Page::After(after, PAGE)).await?;
            let Some(last) = page.last().map(|event| event.seq) else { break };
            after = last;
            for stored in &page {
                if stored.seq.0 > range.to || self.next.is_some() {
                    return Ok(());
                }
                self.push(stored, is_original);
            }
        }
        Ok(())
    }

    fn push(&mut self, stored: &StoredEvent, is_original: bool) {
        let offset = std::mem::take(&mut self.offset);
        let rendered = match stored.event() {
            Ok(event) => render_event(&if is_original { whole(event) } else { event }),
            Err(damage) => format!("[this event cannot be read: {}]", damage.0),
        };
        if rendered.is_empty() {
            return;
        }
        // Before it is cut: a part of a secret does not look like one.
        let rendered = inert(&self.redactor.redact(&rendered));
        let length = rendered.chars().count();
        if offset >= length {
            return;
        }
        // The rest of a text does not begin a line, so that it cannot begin with a heading.
        let rest = if offset > 0 { "…" } else { "" };
        let head = format!("\n\n[event {}]\n{rest}", stored.seq);
        let room = MOST_CHARS.saturating_sub(LAST_LINES + self.text.chars().count() + head.len());
        // An event begins only where a good part of it fits.
        let is_first = !self.text.contains("\n\n[event ");
        if length - offset > room && !is_first && room < MOST_CHARS / 4 {
            self.next = Some((stored.seq.0, offset));
            return;
        }
        let mut told: String = rendered.chars().skip(offset).take(room).collect();
        if length - offset > room {
            // Not within a word, if one ends near by.
            let tail = told.char_indices().rev().nth(WORD).map_or(0, |(at, _)| at);
            if let Some((at, _)) = told.char_indices().rev().find(|(at, c)| *at > tail && c.is_whitespace()) {
                told.truncate(at);
            }
            self.next = Some((stored.seq.0, offset + told.chars().count()));
        }
        self.text.push_str(&head);
        self.text.push_str(&told);
    }

    /// Adds a line of the answer itself.
    fn says(&mut self, line: &str) {
        self.text.push_str(&format!("\n\n{OWN} {line}"));
    }

    fn finish(mut self, range: Range, last: u64) -> String {
        let to = range.to;
        match self.next {
            Some((seq, 0)) => self.says(&format!("The answer is full. Go on with from={seq} to={to}.")),
            Some((seq, offset)) => self.says(&format!(
                "The answer is full, in the middle of event {seq}. Go on with from={seq} to={to} offset={offset}."
            )),
            None if to < last => self.says(&format!("Later events: from={}.", to + 1)),
            None => {}
        }
        self.text
    }
}

/// Returns a text in which no line can pose as one of the answer itself, and nothing acts on the terminal that the agent shows it on.
///
/// Then a line ends in one way only. White space and characters that are not ASCII do not disguise a beginning.
fn inert(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let mut inert = String::with_capacity(text.len() + 16);
    for line in visible(&text).split_inclusive('\n') {
        let letters = line.chars().filter(char::is_ascii_graphic).map(|c| c.to_ascii_lowercase());
        if MARKS.iter().any(|mark| letters.clone().take(mark.len()).eq(mark.chars())) {
            inert.push('\\');
        }
        inert.push_str(line);
    }
    inert
}

/// Returns an event whose whole content is rendered, instead of the part for a context.
fn whole(event: Event) -> Event {
    match event {
        Event::ToolResult(mut result) => {
            result.detail = None;
            Event::ToolResult(result)
        }
        event => event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_within_the_session_and_bounded() {
        for (from, to, last, expected) in [
            (None, None, 100, (81, 100)),
            (None, None, 3, (1, 3)),
            (None, Some(50), 100, (31, 50)),
            (None, Some(500), 100, (81, 100)),
            (Some(40), None, 100, (40, 59)),
            (Some(40), Some(45), 100, (40, 45)),
            (Some(45), Some(40), 100, (40, 45)),
            (Some(0), Some(5), 100, (1, 5)),
            (Some(1), Some(u64::MAX), 5_000, (1, 1_000)),
            (None, Some(0), 100, (1, 1)),
        ] {
            let range = Range::of(from, to, last);
            assert_eq!((range.from, range.to), expected, "{from:?} {to:?} {last}");
        }
    }
}
