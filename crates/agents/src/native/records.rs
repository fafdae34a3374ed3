//! The turns of a file with one entry per line.

use std::collections::VecDeque;
use std::path::PathBuf;

use azureal_core::Event;
use azureal_core::agent::AgentOutput;
use jiff::Timestamp;

use super::lines::{Line, Lines};
use super::turns::TurnBuilder;
use super::{NativeError, NativePlace, NativeTurn, NativeTurns};
use crate::unreadable::UNREADABLE;
use crate::wire::Fields;

/// Parses the lines of a file with several turns.
///
/// A prompt is [`Event::UserMessage`]. Where a turn ends, and before the prompt of the next one, there is its
/// [`Event::Complete`].
pub(crate) trait LineParser: Send {
    /// Parses a line, which has this number, from 1.
    fn line(&mut self, number: u64, line: &[u8]) -> Vec<AgentOutput>;

    /// Ends the last turn.
    fn end(&mut self) -> Vec<AgentOutput>;

    /// Returns whether a turn has begun that has not ended.
    fn has_content(&self) -> bool;

    /// Returns the id of the turn that is being read, and its time.
    fn turn(&self) -> (&str, Option<Timestamp>);

    /// Returns whether the source has no end of the turn that ended last.
    fn was_open(&self) -> bool;

    /// Takes the summary of a compaction that the last line had.
    fn take_summary(&mut self) -> Option<String> {
        None
    }

    /// Returns the name of the session, if a line has it.
    fn title(&self) -> Option<&str> {
        None
    }
}

/// A part of a file that is read: all of it, or its first lines.
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    pub(crate) lines: Lines,
    /// The number of lines.
    pub(crate) most: u64,
}

/// Reads the turns of files, one after the other.
pub(crate) struct LineTurns<P> {
    /// The parts that are to be read, the next one last.
    parts: Vec<Part>,
    parser: P,
    builder: TurnBuilder,
    /// The turns that ended with the last line.
    ready: VecDeque<NativeTurn>,
    has_ended: bool,
}

impl<P: LineParser> LineTurns<P> {
    /// Reads one file.
    pub(crate) fn of(path: PathBuf, lines: Lines, parser: P) -> Self {
        Self::of_parts(vec![Part { path, lines, most: u64::MAX }], parser)
    }

    /// Reads several parts, the last one first.
    pub(crate) fn of_parts(parts: Vec<Part>, parser: P) -> Self {
        let (builder, ready) = (TurnBuilder::default(), VecDeque::new());
        Self { parts, parser, builder, ready, has_ended: false }
    }

    /// Adds a part of the session as a whole that cannot be read.
    pub(crate) fn problem(&mut self, entry: &str, reason: impl Into<String>) {
        self.builder.problem(NativePlace::Entry(entry.to_owned()), reason);
    }

    /// Reads the next line; `false` at the end.
    fn read_line(&mut self) -> Result<bool, NativeError> {
        let Some(mut part) = self.parts.pop() else { return Ok(false) };
        if part.lines.number() >= part.most {
            return Ok(true);
        }
        let number = part.lines.number() + 1;
        let place = NativePlace::Line(number);
        match part.lines.next().map_err(NativeError::file(&part.path))? {
            None => return Ok(true),
            Some(Line::Whole(line)) => {
                let outputs = self.parser.line(number, line);
                self.take(outputs, &place);
            }
            Some(Line::Unfinished(line))
                if str::from_utf8(line).is_ok_and(|text| Fields::of(text).is_some()) =>
            {
                let outputs = self.parser.line(number, line);
                self.take(outputs, &place);
            }
            Some(Line::Unfinished(line)) => {
                self.builder.problem(place, format!("it is cut off after {} bytes", line.len()));
            }
            Some(Line::Oversized { bytes }) => {
                self.builder.problem(place, format!("it has {} MiB", bytes >> 20));
            }
        }
        self.parts.push(part);
        Ok(true)
    }

    fn take(&mut self, outputs: Vec<AgentOutput>, place: &NativePlace) {
        for output in outputs {
            match &output {
                AgentOutput::Event(Event::Error(error)) if error.kind == UNREADABLE => {
                    self.builder.problem(place.clone(), error.message.clone());
                    continue;
                }
                // The events before a prompt are those of the turn before, up to its end.
                AgentOutput::Event(event)
                    if !self.builder.has_events() && !matches!(event, Event::Complete(_)) =>
                {
                    let (id, started) = self.parser.turn();
                    self.builder.begin(id, started);
                }
                _ => {}
            }
            if let Some(mut turn) = self.builder.output(output) {
                turn.is_open = self.parser.was_open();
                self.ready.push_back(turn);
            }
        }
        if let Some(summary) = self.parser.take_summary() {
            self.builder.summary(summary);
        }
    }
}

impl<P: LineParser> NativeTurns for LineTurns<P> {
    fn next_turn(&mut self) -> Result<Option<NativeTurn>, NativeError> {
        loop {
            if let Some(turn) = self.ready.pop_front() {
                return Ok(Some(turn));
            }
            if self.has_ended {
                return Ok(None);
            }
            if self.read_line()? {
                continue;
            }
            self.has_ended = true;
            if self.parser.has_content() {
                let outputs = self.parser.end();
                self.take(outputs, &NativePlace::Entry("the end".to_owned()));
            }
            self.ready.extend(self.builder.interrupt());
        }
    }

    fn title(&self) -> Option<&str> {
        self.parser.title()
    }
}
