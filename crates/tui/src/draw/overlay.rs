//! Overlays: centred, or the whole screen if that is small.

use azureal::transcript::Tone;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};

use super::areas::is_small;
use super::text::{clear, fit, style_row, width, write};
use crate::overlay::{Layer, View, view};
use crate::state::State;
use crate::theme::Mark;

/// The widest overlay.
const WIDEST: u16 = 96;
/// The widest overlay with lines of code.
const WIDEST_CODE: u16 = 160;
/// The columns of a row that are no text: an indent, and a mark of the chosen row.
const INDENT: u16 = 3;

/// The places of an overlay.
struct Frame {
    area: Rect,
    view: View,
    /// The rows that have room.
    rows: u16,
}

fn outer_width(state: &State, widest: u16) -> u16 {
    if is_small(state) { state.size.0 } else { state.size.0.saturating_sub(8).min(widest) }
}

/// Returns the columns of the text of an overlay.
fn text_width(outer: u16) -> u16 {
    outer.saturating_sub(INDENT).saturating_sub(1).max(1)
}

/// Returns the columns of lines of code in an overlay.
pub(crate) fn code_width(state: &State) -> u16 {
    text_width(outer_width(state, WIDEST_CODE))
}

/// Returns the places of a layer; `None` if it is not drawn.
fn frame(state: &State, layer: &Layer) -> Option<Frame> {
    let screen = Rect::new(0, 0, state.size.0, state.size.1);
    let widest = if matches!(layer, Layer::Changes(_)) { WIDEST_CODE } else { WIDEST };
    let outer = outer_width(state, widest);
    let view = view(state, layer, text_width(outer))?;
    // Title, keys, and the line that is typed in.
    let around = if view.input.is_some() { 4 } else { 3 };
    let wanted = view.row_count().saturating_add(around);
    let height = if is_small(state) { screen.height } else { wanted.min(screen.height.saturating_sub(4)) };
    let area = Rect {
        x: screen.width.saturating_sub(outer) / 2,
        y: screen.height.saturating_sub(height) / 2,
        width: outer,
        height,
    };
    let rows = height.saturating_sub(around);
    Some(Frame { area, view, rows })
}

/// Returns how far the topmost layer can be scrolled.
pub(crate) fn scroll_end(state: &State) -> u16 {
    let Some(Frame { view, rows, .. }) = state.layers.last().and_then(|layer| frame(state, layer)) else {
        return 0;
    };
    view.row_count().saturating_sub(rows)
}

/// Returns the rows of the topmost layer that have room.
pub(crate) fn visible_rows(state: &State) -> u16 {
    state.layers.last().and_then(|layer| frame(state, layer)).map_or(1, |frame| frame.rows)
}

/// Draws a layer. Returns the place of the cursor.
pub(super) fn draw(state: &State, layer: &Layer, buf: &mut Buffer) -> Option<Position> {
    let Frame { area, view, rows } = frame(state, layer)?;
    let theme = &state.theme;
    let area = area.intersection(buf.area);
    // What is beside it is empty too: it would read as a part of it.
    let cleared = Rect { x: 0, width: buf.area.width, ..area };
    clear(buf, cleared);
    let bar = Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD);
    style_row(buf, area, 0, bar);
    write(buf, area, 0, &[(fit(&format!(" {}", view.title), area.width, theme), bar)]);
    let mut top = 1_u16;
    let mut cursor = None;
    if let Some((label, text, column)) = &view.input {
        let start = [(format!(" {label}"), theme.tone(Tone::User))];
        let x = write(buf, area, top, &start);
        let room = area.right().saturating_sub(x).saturating_sub(1);
        // The end of a long text is shown.
        let hidden = column.saturating_sub(room);
        let shown: String = skip_columns(text, hidden);
        write(buf, Rect { x, width: room.saturating_add(1), ..area }, top, &[(shown, Style::new())]);
        if area.height > top && area.width > 0 {
            let x = x.saturating_add(column.saturating_sub(hidden)).min(area.right().saturating_sub(1));
            cursor = Some(Position { x, y: area.y.saturating_add(top) });
        }
        top = top.saturating_add(1);
    }
    let end = view.row_count().saturating_sub(rows);
    let chosen = view.chosen.and_then(|row| u16::try_from(row).ok());
    // The chosen row is always in view.
    let scroll = match chosen {
        Some(row) => row.saturating_add(1).saturating_sub(rows),
        None => view.scroll,
    };
    let scroll = scroll.min(end);
    for (row, pieces) in (0..rows).zip(view.rows.iter().skip(usize::from(scroll).saturating_sub(view.first)))
    {
        let is_chosen = chosen == Some(row.saturating_add(scroll));
        let at = row.saturating_add(top);
        let mark = if is_chosen { theme.mark(Mark::Chosen) } else { " " };
        let x = write(buf, area, at, &[(format!(" {mark} "), Style::new())]);
        write(buf, Rect { x, width: area.right().saturating_sub(x), ..area }, at, pieces);
        if is_chosen {
            style_row(buf, area, at, theme.chosen());
        }
    }
    let foot = area.height.saturating_sub(1);
    if foot >= top {
        let more = if scroll < end {
            format!("  {} {} more", theme.mark(Mark::Below), end.saturating_sub(scroll))
        } else {
            String::new()
        };
        let rule = theme.mark(Mark::Rule);
        let text = fit(&format!("{rule} {}{more} ", view.keys), area.width, theme);
        let x = write(buf, area, foot, &[(text.clone(), Style::new())]);
        let fill = rule.repeat(usize::from(area.width.saturating_sub(width(&text))));
        write(buf, Rect { x, width: area.right().saturating_sub(x), ..area }, foot, &[(fill, Style::new())]);
    }
    cursor
}

/// Returns a text without its first columns.
fn skip_columns(text: &str, columns: u16) -> String {
    use unicode_segmentation::UnicodeSegmentation;

    let mut skipped = 0_u16;
    let mut rest = text;
    for grapheme in text.graphemes(true) {
        if skipped >= columns {
            break;
        }
        skipped = skipped.saturating_add(width(grapheme));
        rest = rest.get(grapheme.len()..).unwrap_or_default();
    }
    rest.to_owned()
}
