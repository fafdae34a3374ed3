//! Text on the screen. All text of the shell passes here: escaped, cut to its place.

use azureal::visible_line;
use ratatui::buffer::{Buffer, CellWidth};
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_segmentation::UnicodeSegmentation;

use crate::theme::{Mark, Theme};

/// A styled piece of a line.
pub(crate) type Piece = (String, Style);

/// Returns a text on one line, cut to a width with a mark at its end.
pub(crate) fn fit(text: &str, width: u16, theme: &Theme) -> String {
    // More characters than this are never shown, and a text may be megabytes long.
    let most = usize::from(width).saturating_mul(8).saturating_add(8);
    let (start, is_cut) = match text.char_indices().nth(most) {
        Some((at, _)) => (text.get(..at).unwrap_or_default(), true),
        None => (text, false),
    };
    let start = one_line(start);
    if !is_cut && start.as_str().cell_width() <= width {
        return start;
    }
    let (mut out, mut column) = (String::new(), 0_u16);
    for grapheme in start.graphemes(true) {
        let cells = grapheme.cell_width();
        if column.saturating_add(cells) >= width {
            break;
        }
        column = column.saturating_add(cells);
        out.push_str(grapheme);
    }
    if width > 0 {
        out.push_str(theme.mark(Mark::More));
    }
    out
}

/// Returns a text on one line: white space becomes a space, everything that acts on a terminal its picture.
pub(crate) fn one_line(text: &str) -> String {
    let spaced = text.replace(['\n', '\t'], " ");
    visible_line(&spaced).into_owned()
}

/// Returns the columns of a text.
pub(crate) fn width(text: &str) -> u16 {
    text.cell_width()
}

/// Fills a text with spaces to a width, or cuts it.
pub(crate) fn pad(text: &str, columns: u16, theme: &Theme) -> String {
    let mut text = fit(text, columns, theme);
    let missing = columns.saturating_sub(width(&text));
    text.push_str(&" ".repeat(missing.into()));
    text
}

/// Like [`pad`], with the text at the right.
pub(crate) fn pad_left(text: &str, columns: u16, theme: &Theme) -> String {
    let text = fit(text, columns, theme);
    let missing = columns.saturating_sub(width(&text));
    format!("{}{text}", " ".repeat(missing.into()))
}

/// Breaks a text into rows of a width, at spaces where there are some. Stops after `most` rows, the last of which is cut.
pub(crate) fn wrap(text: &str, columns: u16, most: usize, theme: &Theme) -> Vec<String> {
    let columns = columns.max(1);
    let mut rows = Vec::new();
    for line in text.lines() {
        let line = visible_line(&line.replace('\t', "    ")).into_owned();
        let mut rest = line.as_str();
        loop {
            if rows.len().saturating_add(1) >= most && width(rest) > columns {
                rows.push(fit(rest, columns, theme));
                return rows;
            }
            let (row, after) = break_at(rest, columns);
            rows.push(row.to_owned());
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        if rows.len() >= most {
            return rows;
        }
    }
    rows
}

/// Breaks a line of code into rows of a width, wherever a row is full. A mark begins the further rows. Stops after `most` rows, the last of
/// which is cut.
pub(crate) fn hard_wrap(line: &str, columns: u16, most: usize, theme: &Theme) -> Vec<String> {
    let columns = columns.max(2);
    let line = visible_line(&line.replace('\t', "    ")).into_owned();
    let mut rows: Vec<String> = Vec::new();
    let (mut row, mut column) = (String::new(), 0_u16);
    for grapheme in line.graphemes(true) {
        let cells = grapheme.cell_width();
        if column.saturating_add(cells) > columns {
            if rows.len().saturating_add(1) >= most {
                rows.push(fit(&format!("{row}{grapheme}"), columns, theme));
                return rows;
            }
            rows.push(std::mem::replace(&mut row, theme.mark(Mark::More).to_owned()));
            column = 1;
        }
        column = column.saturating_add(cells);
        row.push_str(grapheme);
    }
    rows.push(row);
    rows
}

/// Splits a line where its first row ends.
fn break_at(line: &str, columns: u16) -> (&str, &str) {
    let (mut column, mut space) = (0_u16, None);
    for (at, grapheme) in line.grapheme_indices(true) {
        if grapheme == " " && at > 0 {
            space = Some(at);
        }
        column = column.saturating_add(grapheme.cell_width());
        if column > columns {
            let end = space.unwrap_or(if at == 0 { grapheme.len() } else { at });
            let (row, rest) = line.split_at_checked(end).unwrap_or((line, ""));
            return (row, rest.trim_start_matches(' '));
        }
    }
    (line, "")
}

/// Writes pieces from the left end of a row. Returns the column after them.
pub(crate) fn write(buf: &mut Buffer, area: Rect, row: u16, pieces: &[Piece]) -> u16 {
    let mut x = area.x;
    let y = area.y.saturating_add(row);
    let within = area.intersection(buf.area);
    if row >= area.height || y >= within.bottom() || within.width == 0 || area.x < buf.area.x {
        return x;
    }
    for (text, style) in pieces {
        if x >= within.right() {
            break;
        }
        let room = within.right().saturating_sub(x);
        x = buf.set_stringn(x, y, visible_line(text), room.into(), *style).0;
    }
    x
}

/// Writes pieces at the left and others at the right end of a row; those at the left give way.
pub(crate) fn write_both(buf: &mut Buffer, area: Rect, row: u16, left: &[Piece], right: &[Piece]) {
    let taken: u16 = right.iter().map(|(text, _)| width(text)).sum();
    let room = area.width.saturating_sub(taken);
    write(buf, Rect { width: room, ..area }, row, left);
    write(buf, Rect { x: area.x.saturating_add(room), width: taken.min(area.width), ..area }, row, right);
}

/// Makes an area empty.
pub(crate) fn clear(buf: &mut Buffer, area: Rect) {
    for position in area.intersection(buf.area).positions() {
        if let Some(cell) = buf.cell_mut(position) {
            cell.reset();
        }
    }
}

/// Sets the style of a whole row.
pub(crate) fn style_row(buf: &mut Buffer, area: Rect, row: u16, style: Style) {
    if row < area.height {
        let line = Rect { y: area.y.saturating_add(row), height: 1, ..area };
        buf.set_style(line.intersection(buf.area), style);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEME: Theme = Theme { has_colours: true, background: None, is_ascii: false };

    #[test]
    fn a_text_is_cut_with_a_mark_and_never_wider_than_its_place() {
        assert_eq!(fit("fix-login", 9, &THEME), "fix-login");
        assert_eq!(fit("fix-login-race", 9, &THEME), "fix-logi…");
        assert_eq!(fit("日本語", 4, &THEME), "日…");
        assert_eq!(fit("abc", 0, &THEME), "");
        assert_eq!(fit("a\nb\u{1b}[2J", 20, &THEME), "a b␛[2J");
        assert_eq!(pad("ab", 4, &THEME), "ab  ");
        assert_eq!(pad_left("ab", 4, &THEME), "  ab");
        assert_eq!(fit(&"x".repeat(1_000_000), 5, &THEME), "xxxx…");
    }

    #[test]
    fn a_long_line_is_broken_at_spaces() {
        assert_eq!(wrap("one two three", 7, 9, &THEME), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh", 3, 9, &THEME), ["abc", "def", "gh"]);
        assert_eq!(wrap("one two three four", 7, 2, &THEME), ["one two", "three …"]);
        assert_eq!(wrap("日本語", 1, 9, &THEME).len(), 3, "too narrow for any of them");
    }

    #[test]
    fn a_long_line_of_code_is_broken_where_the_row_is_full() {
        assert_eq!(hard_wrap("+a bc def", 5, 9, &THEME), ["+a bc", "… def"]);
        assert_eq!(hard_wrap("+abcdefghi", 5, 2, &THEME), ["+abcd", "…efg…"]);
        assert_eq!(hard_wrap("", 5, 9, &THEME), [""]);
        assert_eq!(hard_wrap("-\ta\u{1b}", 9, 9, &THEME), ["-    a␛"]);
    }
}
