//! The rows of a text on the screen.
//!
//! A text is laid out again after each change. That is cheap because the characters of a box are bounded ([`MOST_INLINE`](super::MOST_INLINE));
//! a pasted text is as long as its label.

use std::borrow::Cow;
use std::fmt::Write;

use azureal::visible_line;
use ratatui::buffer::CellWidth;
use unicode_segmentation::UnicodeSegmentation;

use super::text::{Kind, Text, Unit};
use crate::theme::Theme;

/// The columns from one tab stop to the next.
const TAB: u16 = 4;

/// The rows of a text at a width.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// The columns for text.
    width: u16,
    rows: Vec<Row>,
}

/// A row: a range of bytes, without the line break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Layout {
    /// Lays out a text. Words move to the next row as a whole; words longer than a row are broken between graphemes. The last column stays
    /// free, so that the cursor has a cell after each row.
    ///
    /// Stops after `most` rows.
    pub(super) fn new(text: &Text, width: u16, most: usize) -> Self {
        let width = width.saturating_sub(1).max(1);
        let (mut rows, mut start, mut column, mut at) = (Vec::new(), 0, 0_u16, 0);
        // The last place in this row where it can be broken.
        let mut gap = None;
        // Whether the row before ended with a space in the free column: a row does not begin with the space between two words.
        let mut hangs = false;
        while let Some((unit, end)) = text.unit(at) {
            if rows.len() >= most {
                return Self { width, rows };
            }
            if is_line_break(unit) {
                // After a space in the free column, the row has ended already.
                if !(hangs && at == start) {
                    rows.push(Row { start, end: at });
                }
                (start, at, column, gap, hangs) = (end, end, 0, None, false);
                continue;
            }
            let cells = shown(unit, column, width).1;
            if matches!(unit, Unit::Paste(_)) && at > start {
                gap = Some(at);
            }
            if column == width && unit.kind() == Kind::Space && cells == 1 {
                rows.push(Row { start, end });
                (start, at, column, gap, hangs) = (end, end, 0, None, true);
                continue;
            }
            if column + cells > width && at > start {
                let end = gap.unwrap_or(at);
                rows.push(Row { start, end });
                (start, at, column, gap, hangs) = (end, end, 0, None, false);
                continue;
            }
            column += cells;
            at = end;
            // East Asian text has no spaces: a row can be broken after each wide character.
            if matches!(unit.kind(), Kind::Space | Kind::Paste) || (cells == 2 && unit.kind() == Kind::Word) {
                gap = Some(at);
            }
        }
        rows.push(Row { start, end: at });
        Self { width, rows }
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the row and the column of an offset.
    pub(super) fn position(&self, text: &Text, offset: usize) -> (usize, u16) {
        let index = self.rows.partition_point(|row| row.start <= offset).saturating_sub(1);
        let mut column = 0;
        if let Some(row) = self.rows.get(index) {
            self.walk(text, *row, |at, _, cells| {
                if at < offset {
                    column += cells;
                }
                at < offset
            });
        }
        (index, column)
    }

    /// Returns the offset at a column of a row, or at its end if it is shorter.
    pub(super) fn offset(&self, text: &Text, index: usize, column: u16) -> Option<usize> {
        let row = *self.rows.get(index)?;
        let (mut at_column, mut offset) = (0, row.end);
        let is_soft = self.rows.get(index + 1).is_some_and(|next| next.start == row.end);
        self.walk(text, row, |at, _, cells| {
            let fits = at_column + cells <= column;
            if !fits {
                offset = at;
            } else if is_soft {
                // The end of this row is the start of the next one: the last place that is in this row is before its last unit.
                offset = at;
            }
            at_column += cells;
            fits
        });
        Some(offset)
    }

    /// Calls a function with each unit of a row: its offset, its text on the screen and its columns. Stops if the function returns `false`.
    pub(super) fn walk(
        &self,
        text: &Text,
        row: Row,
        mut each: impl FnMut(usize, (Unit<'_>, &str), u16) -> bool,
    ) {
        let (mut at, mut column) = (row.start, 0);
        while at < row.end
            && let Some((unit, end)) = text.unit(at)
        {
            let (symbols, cells) = shown(unit, column, self.width);
            if !each(at, (unit, &symbols), cells) {
                return;
            }
            column += cells;
            at = end;
        }
    }
}

fn is_line_break(unit: Unit<'_>) -> bool {
    matches!(unit, Unit::Grapheme("\n"))
}

/// Returns the text of a unit on the screen at a column, and its columns: at least one, at most `most`.
fn shown<'t>(unit: Unit<'t>, column: u16, most: u16) -> (Cow<'t, str>, u16) {
    let symbols = match unit {
        Unit::Grapheme("\t") => {
            let cells = (TAB - column % TAB).min(most);
            return (Cow::Owned(" ".repeat(cells.into())), cells);
        }
        Unit::Paste(paste) => Cow::Borrowed(paste.label()),
        Unit::Grapheme(grapheme) => visible_grapheme(grapheme),
    };
    let cells = symbols.cell_width();
    if cells <= most { (symbols, cells) } else { (Cow::Owned(cut_with(&symbols, most, '…')), most) }
}

/// Escapes a grapheme. One that has no width would be hidden, so it is escaped too.
fn visible_grapheme(grapheme: &str) -> Cow<'_, str> {
    let symbols = visible_line(grapheme);
    if symbols.cell_width() > 0 {
        return symbols;
    }
    Cow::Owned(symbols.chars().fold(String::new(), |mut out, c| {
        // Writing to a string does not fail.
        let _ = write!(out, "<U+{:04X}>", u32::from(c));
        out
    }))
}

/// Cuts a text to a number of columns, with a mark as the last one.
pub(super) fn cut(text: &str, most: u16, theme: &Theme) -> String {
    cut_with(text, most, if theme.is_ascii { '~' } else { '…' })
}

/// Fills the text with spaces if a wide character leaves a column free.
fn cut_with(text: &str, most: u16, mark: char) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for grapheme in text.graphemes(true) {
        let cells = grapheme.cell_width();
        if column + cells >= most {
            break;
        }
        out.push_str(grapheme);
        column += cells;
    }
    out.push(mark);
    out.extend((column + 1..most).map(|_| ' '));
    out
}
