//! The turns of a file with one record per line, for parsers that write to a [`Draft`].

use std::path::{Path, PathBuf};

use super::draft::Draft;
use super::lines::{Line, Lines};
use super::{NativeError, NativePlace, NativeTurn, NativeTurns};
use crate::unreadable::excerpt;
use crate::wire::Fields;

/// Parses the records of a session.
pub(crate) trait RecordParser: Send {
    /// Parses a record, which is on the line of this number, from 1. Returns the reason if it cannot be read, or a part
    /// of it.
    fn record(&mut self, number: u64, fields: &Fields<'_>, draft: &mut Draft) -> Result<(), String>;

    /// Returns the name of the session, if a record has it.
    fn title(&self) -> Option<&str>;
}

/// Reads the records of a file, one after the other.
pub(crate) struct RecordLines<P> {
    path: PathBuf,
    lines: Lines,
    draft: Draft,
    parser: P,
    has_ended: bool,
}

impl<P: RecordParser> RecordLines<P> {
    pub(crate) fn open(path: &Path, draft: Draft, parser: P) -> Result<Self, NativeError> {
        Ok(Self { path: path.to_owned(), lines: Lines::open(path)?, draft, parser, has_ended: false })
    }

    /// Adds a part of the session as a whole that is left out.
    pub(crate) fn problem(&mut self, entry: &str, reason: &str) {
        self.draft.problem(NativePlace::Entry(entry.to_owned()), reason);
    }

    /// Reads the next line; `false` at the end.
    fn read_line(&mut self) -> Result<bool, NativeError> {
        let number = self.lines.number() + 1;
        let line = self.lines.next().map_err(NativeError::file(&self.path))?;
        let (bytes, is_last) = match line {
            None => return Ok(false),
            Some(Line::Whole(bytes)) => (bytes, false),
            Some(Line::Unfinished(bytes)) => (bytes, true),
            Some(Line::Oversized { bytes }) => {
                self.draft.problem(NativePlace::Line(number), format!("it has {} MiB", bytes >> 20));
                return Ok(true);
            }
        };
        if bytes.trim_ascii().is_empty() {
            return Ok(true);
        }
        let text = String::from_utf8_lossy(bytes);
        let parsed = match Fields::of(&text) {
            Some(fields) => self.parser.record(number, &fields, &mut self.draft),
            None if is_last => Err(format!("it is cut off after {} bytes", bytes.len())),
            None => Err(format!("it is no JSON object: {}", excerpt(bytes))),
        };
        if let Err(reason) = parsed {
            self.draft.problem(NativePlace::Line(number), reason);
        }
        Ok(true)
    }
}

impl<P: RecordParser> NativeTurns for RecordLines<P> {
    fn next_turn(&mut self) -> Result<Option<NativeTurn>, NativeError> {
        loop {
            if let Some(turn) = self.draft.take() {
                return Ok(Some(turn));
            }
            if self.has_ended {
                return Ok(None);
            }
            if !self.read_line()? {
                self.has_ended = true;
                self.draft.finish();
            }
        }
    }

    fn title(&self) -> Option<&str> {
        self.parser.title()
    }
}
