//! Drawing of the box.

use std::borrow::Cow;

use azureal::transcript::Tone;
use azureal::visible_line;
use ratatui::buffer::{Buffer, CellWidth};
use ratatui::layout::{Position, Rect};
use ratatui::style::Modifier;

use super::editor::Editor;
use super::layout::{Layout, cut};
use super::recall::Search;
use super::text::{Text, Unit};
use super::{PromptBox, View};
use crate::theme::Theme;

/// The columns of the mark in front.
const MARK: u16 = 2;

/// Returns the columns for text, beside the mark. A very narrow box has no mark.
fn text_width(width: u16) -> u16 {
    if width > MARK + 2 { width - MARK } else { width }
}

impl PromptBox {
    /// Returns the rows that the box needs at a width: at least one, at most `most`.
    pub fn height(&self, width: u16, most: u16) -> u16 {
        let most = most.max(1);
        let width = text_width(width);
        let rows = |editor: &Editor, most: u16| {
            let rows = Layout::new(editor.text(), width, most.into()).rows().len();
            u16::try_from(rows).unwrap_or(most).clamp(1, most)
        };
        self.view.set(View { width, ..self.view.get() });
        match &self.search {
            None => rows(&self.editor, most),
            Some(Search { found: Some((_, found)), .. }) if most > 1 => 1 + rows(found, most - 1),
            Some(_) => 1,
        }
    }

    /// Draws the box and returns the place of the cursor.
    pub fn draw(&self, area: Rect, buf: &mut Buffer, theme: &Theme) -> Option<Position> {
        let area = area.intersection(buf.area);
        if area.is_empty() {
            return None;
        }
        let view = View { width: text_width(area.width), ..self.view.get() };
        self.view.set(view);
        match &self.search {
            Some(search) => Some(draw_search(search, area, buf, theme)),
            None => {
                let place = (self.editor.cursor(), view.top);
                let (cursor, top) = draw_text(self.editor.text(), place, area, buf, theme);
                self.view.set(View { top, ..view });
                Some(cursor)
            }
        }
    }

    /// Returns the rows of the list of paths; 0 if there is none.
    pub fn popup_height(&self) -> u16 {
        if self.search.is_some() { 0 } else { self.paths.height() }
    }

    /// Draws the list of paths in the lowest rows of an area, which is that above the box.
    pub fn draw_popup(&self, area: Rect, buf: &mut Buffer, theme: &Theme) {
        if self.search.is_none() {
            self.paths.draw(area, buf, theme);
        }
    }
}

/// Draws a text with the mark in front, from a row on, or from one where the cursor is seen. Returns the place of the cursor and that row.
fn draw_text(
    text: &Text,
    (cursor, top): (usize, usize),
    area: Rect,
    buf: &mut Buffer,
    theme: &Theme,
) -> (Position, usize) {
    let width = text_width(area.width);
    let left = area.right() - width;
    let layout = Layout::new(text, width, usize::MAX);
    let (row, column) = layout.position(text, cursor);
    let height = usize::from(area.height);
    let lowest = layout.rows().len().saturating_sub(height);
    let top = top.min(lowest).clamp((row + 1).saturating_sub(height), row);
    if left > area.x && top == 0 {
        let mark = if theme.is_ascii { ">" } else { "›" };
        buf.set_stringn(area.x, area.y, mark, 1, theme.tone(Tone::User));
    }
    for (y, row) in (area.y..area.bottom()).zip(layout.rows().iter().skip(top)) {
        let mut x = left;
        layout.walk(text, *row, |_, (unit, symbols), cells| {
            let style = match unit {
                Unit::Paste(_) => theme.tone(Tone::Name),
                Unit::Grapheme(_) => theme.tone(Tone::Plain),
            };
            let symbols = match unit {
                // Its label is cut in a narrow box.
                Unit::Paste(_) if theme.is_ascii => Cow::Owned(symbols.replace('…', "~")),
                _ => Cow::Borrowed(symbols),
            };
            buf.set_stringn(x, y, symbols, cells.into(), style);
            x += cells;
            true
        });
    }
    let x = (left + column).min(area.right() - 1);
    let y = area.y + u16::try_from(row - top).unwrap_or(0).min(area.height - 1);
    (Position { x, y }, top)
}

/// Draws the search: a line with its text, and the entry below it, or beside it if there is one row only.
fn draw_search(search: &Search, area: Rect, buf: &mut Buffer, theme: &Theme) -> Position {
    let title = match (search.has_missed, &search.found) {
        (false, _) if area.width < 30 => "? ",
        (true, _) if area.width < 30 => "no: ",
        (false, _) => "history: ",
        (true, None) => "history, none: ",
        (true, Some(_)) => "history, no more: ",
    };
    let query = visible_line(&search.query);
    let style = theme.tone(Tone::Name);
    let (x, y) = buf.set_stringn(area.x, area.y, title, area.width.into(), style);
    let free = (area.right() - x).max(1);
    // The end of a long query is shown.
    let mut shown = &*query;
    while shown.cell_width() >= free && !shown.is_empty() {
        let first = shown.chars().next().map_or(0, char::len_utf8);
        shown = shown.get(first..).unwrap_or_default();
    }
    let (x, _) = buf.set_stringn(x.min(area.right() - 1), y, shown, free.into(), theme.tone(Tone::User));
    let cursor = Position { x: x.min(area.right() - 1), y };
    let Some((_, found)) = &search.found else { return cursor };
    if area.height > 1 {
        let below = Rect { y: area.y + 1, height: area.height - 1, ..area };
        draw_text(found.text(), (0, 0), below, buf, theme);
    } else if let Some(free) = area.right().checked_sub(cursor.x + 3).filter(|free| *free > 3) {
        let layout = Layout::new(found.text(), u16::MAX, 1);
        let mut line = String::new();
        if let Some(row) = layout.rows().first() {
            layout.walk(found.text(), *row, |_, (_, symbols), _| {
                line.push_str(symbols);
                line.len() < 4 * usize::from(free)
            });
        }
        let line = if line.cell_width() > free { cut(&line, free, theme) } else { line };
        buf.set_stringn(
            cursor.x + 2,
            y,
            line,
            free.into(),
            theme.tone(Tone::Plain).add_modifier(Modifier::ITALIC),
        );
    }
    cursor
}
