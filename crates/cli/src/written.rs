//! A text that an agent is writing, printed as it grows.
//!
//! A printed row stays: only rows that further text does not change are printed. The others are a draft, which is drawn
//! and erased again.

use std::time::{Duration, Instant};

use azureal::transcript::{Block, Content, GrowingText, Row, Text};
use azureal_core::Seq;

use crate::screen::Screen;
use crate::spinner::Draft;

/// The longest text that is laid out as one, in bytes. What follows is laid out on its own.
const LONGEST: usize = 256 << 10;
/// The most that is kept of a text that is being written, in bytes. An agent may print without end.
const MOST_WRITTEN: usize = 16 << 20;
/// The time between two layouts, as a multiple of the time that a layout takes.
const PAUSE: u32 = 4;

/// A text that is being written.
pub(crate) struct Written {
    screen: Screen,
    /// The text without its source.
    head: Text,
    /// What was written.
    source: String,
    /// The beginning of what is laid out as one.
    start: usize,
    growing: GrowingText,
    width: Option<usize>,
    /// The number of rows that are printed.
    printed: usize,
    /// The end of what is printed, from `start`.
    end: usize,
    /// The end of the last layout, and the time that it took.
    laid_out: Option<(Instant, Duration)>,
}

impl Written {
    /// Starts a text with the heading of this one.
    pub(crate) fn new(screen: Screen, head: Text, width: Option<usize>) -> Self {
        let head = Text { source: String::new(), ..head };
        Self {
            screen,
            growing: growing(screen, &head, width),
            head,
            source: String::new(),
            start: 0,
            width,
            printed: 0,
            end: 0,
            laid_out: None,
        }
    }

    /// Adds to the text.
    pub(crate) fn add(&mut self, text: &str) {
        if self.source.len() < MOST_WRITTEN {
            self.source.push_str(text);
        }
    }

    /// Returns the lines that can be printed, and the draft that follows them. `None` if the last layout was just now.
    pub(crate) fn print(&mut self, width: Option<usize>) -> Option<(String, Draft)> {
        let begun = Instant::now();
        let is_early = |(last, took): (Instant, Duration)| begun.duration_since(last) < took * PAUSE;
        if self.laid_out.is_some_and(is_early) {
            return None;
        }
        self.lay_out(width);
        let mut lines = self.lines_to(self.growing.stable_rows());
        let long = self.source.len() - self.start;
        if long > 2 * LONGEST || (long > LONGEST && self.source.ends_with('\n')) {
            lines.push_str(&self.end_part());
        }
        let draft = self.growing.rows().get(self.printed..).unwrap_or_default();
        let draft = draft.iter().map(|row| self.screen.line(row)).collect();
        let draft = Draft { lines: draft, width: usize::from(self.growing.layout().width) };
        self.laid_out = Some((Instant::now(), begun.elapsed()));
        Some((lines, draft))
    }

    /// Returns the lines that are missing if the finished text is what was written and some more.
    pub(crate) fn finish(&mut self, text: &str, width: Option<usize>) -> Option<String> {
        let mut rest = text.strip_prefix(self.source.trim_end())?;
        self.source.truncate(self.source.trim_end().len().max(self.start));
        let mut lines = String::new();
        while !rest.is_empty() {
            let end = rest.floor_char_boundary(LONGEST / 4);
            let (piece, next) = rest.split_at_checked(end)?;
            self.source.push_str(piece);
            rest = next;
            if self.source.len() - self.start > LONGEST {
                self.lay_out(width);
                lines.push_str(&self.end_part());
            }
        }
        lines.push_str(&self.rest(width));
        Some(lines)
    }

    /// Returns the lines that are missing of what was written.
    pub(crate) fn rest(&mut self, width: Option<usize>) -> String {
        self.lay_out(width);
        self.lines_to(self.growing.rows().len())
    }

    /// Prints all that is laid out as one, so that something new begins.
    fn end_part(&mut self) -> String {
        let lines = self.lines_to(self.growing.rows().len());
        (self.start, self.printed, self.end) = (self.source.len(), 0, 0);
        self.head.has_heading = false;
        self.growing = growing(self.screen, &self.head, self.width);
        lines
    }

    fn lay_out(&mut self, width: Option<usize>) {
        if width != self.width {
            self.width = width;
            self.growing = growing(self.screen, &self.head, width);
        }
        let source = self.source.get(self.start..).unwrap_or_default().to_owned();
        self.growing.update(&Text { source, ..self.head.clone() });
        self.printed = self.find_printed();
    }

    /// Returns the number of rows that are printed. A new width or the definition of a link changes the rows: then the place in the source counts.
    fn find_printed(&self) -> usize {
        let rows = self.growing.rows();
        let end_of = |rows: &[Row]| rows.iter().map(|row| row.source.end).max().unwrap_or(0);
        if self.end == 0 || rows.get(..self.printed).is_some_and(|printed| end_of(printed) == self.end) {
            return self.printed.min(rows.len());
        }
        let next = rows.iter().position(|row| row.source.end > self.end).unwrap_or(rows.len());
        let is_blank = |row: &&Row| row.text().trim().is_empty();
        next - rows.get(..next).unwrap_or_default().iter().rev().take_while(is_blank).count()
    }

    /// Prints rows up to one.
    fn lines_to(&mut self, end: usize) -> String {
        let rows = self.growing.rows().get(self.printed..end).unwrap_or_default();
        if rows.is_empty() {
            return String::new();
        }
        let mut rows = rows.to_vec();
        self.end = rows.iter().map(|row| row.source.end).fold(self.end, usize::max);
        self.printed = end;
        let source = self.source.get(self.start..).unwrap_or_default().to_owned();
        let block = Block::new(Seq::START, 0, Content::Text(Text { source, ..self.head.clone() }));
        self.screen.colour(&block, &mut rows);
        self.screen.lines(&rows)
    }
}

fn growing(screen: Screen, head: &Text, width: Option<usize>) -> GrowingText {
    let block = Block::new(Seq::START, 0, Content::Text(head.clone()));
    GrowingText::new(screen.layout(&block, width))
}
