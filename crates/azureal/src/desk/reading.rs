//! What is read of a session besides its events: their full form, the context, and the whole of it as text.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use azureal_core::{
    ContextBuilder, Event, PAGE_EVENTS, Page, Seq, SessionId, read_context_for, visible, wrap_context,
};
use azureal_engine::FullEvent;
use azureal_exchange::{ExportFormat, ExportOptions, export};
use futures_executor::block_on;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::shared::Shared;
use crate::error::Error;
use crate::meter::Meter;

/// The most events whose full form is read for one request.
const MOST_EVENTS: usize = 512;
/// The most bytes of them.
const MOST_BYTES: usize = 64 << 20;

/// The parts of a context, by the heading that each begins with. Headings in the content of a session are escaped.
const PARTS: [(&str, &str); 4] = [
    ("system message", "## System message\n"),
    ("summary", "## Summary of what happened before\n"),
    ("files, commands and failures before the summary", "## Files, commands and failures of that part\n"),
    ("your prompts before the summary", "## What the user asked in that part, newest first\n"),
];

/// A rendered context.
pub(super) struct RenderedContext {
    pub(super) parts: Vec<(String, u64)>,
    pub(super) text: String,
    pub(super) meter: Meter,
}

impl Shared {
    /// Reads the full form of events, with secrets masked. Those that are stored whole are left out.
    pub(super) fn read_full(
        &self,
        session: SessionId,
        first: Seq,
        last: Seq,
    ) -> Result<Vec<(Seq, Event)>, Error> {
        let workspace = &self.workspace;
        let redactor = workspace.redactor()?;
        let mut history = block_on(workspace.full_events(session))?;
        let (mut full, mut bytes) = (Vec::new(), 0_usize);
        let (mut after, mut left) = (Seq(first.0.saturating_sub(1)), MOST_EVENTS);
        while left > 0 && after < last {
            let page = block_on(workspace.store.read(session, Page::After(after, left.min(PAGE_EVENTS))))?;
            let Some(end) = page.last() else { break };
            (after, left) = (end.seq, left.saturating_sub(page.len()));
            for stored in page.iter().take_while(|stored| stored.seq <= last) {
                let FullEvent::Found(event) = block_on(history.full(stored))? else { continue };
                let event = redactor.redact_event(&event).into_owned();
                bytes = bytes.saturating_add(event.to_json().len());
                if bytes > MOST_BYTES {
                    return Ok(full);
                }
                full.push((stored.seq, event));
            }
        }
        Ok(full)
    }

    /// Renders what the next agent of a session receives; without a session, what the first one does.
    pub(super) fn context(&self, session: Option<SessionId>) -> Result<RenderedContext, Error> {
        let threshold = self.threshold();
        let (text, meter) = match session {
            Some(session) => {
                let record = block_on(self.workspace.store.get(session))?;
                let context = block_on(read_context_for(&*self.workspace.store, session, threshold))?;
                (context.into_string(), Meter::of(&record, threshold))
            }
            None => {
                let system = self.config().default_system_message();
                let text = ContextBuilder::new(system.as_deref(), None).finish().into_string();
                let chars = wrap_context(&text).chars().count() as u64;
                (text, Meter::of_context(chars, None, threshold))
            }
        };
        let wrapped = wrap_context(&text);
        let count = |text: &str| text.chars().count() as u64;
        let mut parts = parts(&text);
        parts.push(("tags".to_owned(), count(&wrapped).saturating_sub(count(&text))));
        parts.retain(|(_, chars)| *chars > 0);
        Ok(RenderedContext { parts, text: wrapped, meter })
    }

    /// Writes a whole session as text, with times on the user's clock. Returns the line of an event, from 1; `None` if it is not stored.
    pub(super) fn write_text(
        &self,
        session: SessionId,
        at: Option<Seq>,
        out: &mut dyn Write,
    ) -> Result<Option<u64>, Error> {
        let store = &*self.workspace.store;
        let mut record = block_on(store.get(session))?;
        record.created_at = local_time(&record.created_at, TimeZone::system());
        let at = at.filter(|at| at.0 <= record.counts.events);
        let (written, found) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut out = VisibleLines { written: Some(&written), ..VisibleLines::new(out) };
        let on_event = |seq| {
            if at.is_some_and(|at| seq <= at) {
                found.store(written.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        };
        let options =
            ExportOptions { on_event: Some(&on_event), ..ExportOptions::new(ExportFormat::Markdown) };
        block_on(export(store, &record, options, &mut out))?;
        out.finish().map_err(|error| Error::new("output", error.to_string()))?;
        // Each event follows a blank line.
        Ok(Some(found.into_inner()).filter(|lines| *lines > 0).map(|lines| lines + 2))
    }
}

/// Returns a time on a clock, to the minute. A time that cannot be read stays as it is.
fn local_time(time: &str, zone: TimeZone) -> String {
    time.parse::<Timestamp>()
        .map_or_else(|_| time.to_owned(), |time| time.to_zoned(zone).strftime("%Y-%m-%d %H:%M").to_string())
}

/// Splits a context into its parts with their sizes in characters.
fn parts(text: &str) -> Vec<(String, u64)> {
    let starts = |heading: &str| {
        if text.starts_with(heading) {
            return Some(0);
        }
        text.find(&format!("\n{heading}")).map(|at| at + 1)
    };
    // The system message of the session is its very beginning. A later one is an event.
    let mut found: Vec<(&str, usize)> = PARTS
        .iter()
        .filter_map(|(name, heading)| Some((*name, starts(heading)?)))
        .filter(|(name, at)| *name != "system message" || *at == 0)
        .collect();
    let chars = |from: usize, to: usize| text.get(from..to).unwrap_or_default().chars().count() as u64;
    let mut parts = Vec::new();
    let opening_end = found.last().map_or(0, |(name, at)| {
        // The next section after it is the first event.
        let begin =
            at + PARTS.iter().find(|(known, _)| known == name).map_or(0, |(_, heading)| heading.len());
        let rest = text.get(begin..).unwrap_or_default();
        rest.find("\n## ").map_or(text.len(), |next| begin + next + 1)
    });
    found.push(("events", opening_end));
    let ends = found.iter().skip(1).map(|(_, at)| *at).chain([text.len()]);
    for ((name, from), to) in found.iter().zip(ends) {
        parts.push(((*name).to_owned(), chars(*from, to)));
    }
    parts
}

/// Writes lines with visible characters in the place of control characters.
pub(super) struct VisibleLines<'a> {
    out: &'a mut dyn Write,
    line: Vec<u8>,
    /// Counts the lines that are written.
    written: Option<&'a AtomicU64>,
}

impl<'a> VisibleLines<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, line: Vec::new(), written: None }
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.end_line()?;
        self.out.flush()
    }

    fn end_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        self.out.write_all(visible(&String::from_utf8_lossy(&line)).as_bytes())
    }
}

impl Write for VisibleLines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.end_line()?;
                if let Some(written) = self.written {
                    written.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_context_add_up_to_it() {
        let events = [Event::user("Hello"), Event::assistant("## Summary of what happened before\nno")];
        for (system, summary) in [(None, None), (Some("Be brief."), None), (Some("Be brief."), Some("Much."))]
        {
            let mut context = ContextBuilder::new(system, summary);
            events.iter().for_each(|event| context.push(event));
            let text = context.finish().into_string();
            let parts = parts(&text);
            let sum: u64 = parts.iter().map(|(_, chars)| chars).sum();
            assert_eq!(sum, text.chars().count() as u64, "{parts:?} {text}");
            let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
            let expected = [system.map(|_| "system message"), summary.map(|_| "summary"), Some("events")];
            assert_eq!(names, expected.into_iter().flatten().collect::<Vec<_>>(), "{text}");
            assert!(parts.iter().all(|(_, chars)| *chars > 0), "{parts:?}");
        }
    }

    #[test]
    fn a_time_is_that_of_the_user() {
        let zone = || TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(local_time("2026-01-31T23:30:00Z", zone()), "2026-02-01 01:30");
        assert_eq!(local_time("yesterday", zone()), "yesterday");
    }

    #[test]
    fn text_for_a_pager_has_no_control_characters() {
        let mut out = Vec::new();
        let written = AtomicU64::new(0);
        let mut lines = VisibleLines { written: Some(&written), ..VisibleLines::new(&mut out) };
        for part in ["a\u{1b}[31", "m\tb\nü", "\nlast"] {
            lines.write_all(part.as_bytes()).unwrap();
        }
        lines.finish().unwrap();
        assert_eq!(written.into_inner(), 2);
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains('\u{1b}') && text.contains("\tb\nü\nlast"), "{text:?}");
    }
}
