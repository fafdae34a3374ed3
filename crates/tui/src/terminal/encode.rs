//! Encodes the difference between two screens as bytes for a terminal.
//!
//! The bytes of a frame are text, SGR, cursor moves, erased rests of lines, scrolled rows and the marks of a synchronized frame. There is
//! no other way to the terminal for what is drawn.

use std::io::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Position;
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr;

use super::scroll::Scroll;

/// Begins a synchronized frame (DEC 2026): a terminal that knows it shows the whole frame at once.
pub const BEGIN_FRAME: &str = "\x1b[?2026h";
/// Ends a synchronized frame.
pub const END_FRAME: &str = "\x1b[?2026l";

/// Blank cells at the end of a row from which on one sequence erases them.
const ERASE_FROM: usize = 4;
/// Changed cells from which on it is worth looking for rows that moved.
const SCROLL_FROM: usize = 200;

/// The cells that a terminal shows.
#[derive(Debug, Default)]
pub struct Screen {
    /// The cells; `None` if they are unknown.
    shown: Option<Buffer>,
    cursor: Option<Position>,
    pen: Pen,
    /// The position of the terminal's cursor; `None` if it is unknown.
    at: Option<Position>,
    out: Vec<u8>,
}

/// The style of written text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Pen {
    fg: Color,
    bg: Color,
    modifier: Modifier,
}

impl Screen {
    /// Forgets what the terminal shows: the next frame paints every cell.
    pub fn forget(&mut self) {
        self.shown = None;
    }

    /// Encodes a frame. Returns no bytes if the terminal shows it already.
    pub fn frame(&mut self, next: &Buffer, cursor: Option<Position>) -> &[u8] {
        self.out.clear();
        self.at = None;
        self.pen = Pen::default();
        let mut shown = match self.shown.take() {
            Some(shown) if shown.area == next.area => shown,
            _ => {
                self.out.extend_from_slice(b"\x1b[0m\x1b[H\x1b[2J");
                Buffer::empty(next.area)
            }
        };
        let mut changes = changes(&shown, next);
        if changes.len() >= SCROLL_FROM
            && let Some(scroll) = Scroll::find(&shown, next)
        {
            self.scroll(scroll);
            scroll.apply(&mut shown);
            changes = self::changes(&shown, next);
        }
        self.cells(&changes, next);
        self.write_pen(Pen::default());
        shown.clone_from(next);
        self.shown = Some(shown);
        let is_still = self.out.is_empty() && self.cursor == cursor;
        if is_still {
            return &self.out;
        }
        let drawn = std::mem::take(&mut self.out);
        self.out.extend_from_slice(BEGIN_FRAME.as_bytes());
        if self.cursor.is_some() && (cursor.is_none() || !drawn.is_empty()) {
            self.out.extend_from_slice(b"\x1b[?25l");
        }
        self.out.extend_from_slice(&drawn);
        if let Some(position) = cursor {
            self.move_to(position);
            self.out.extend_from_slice(b"\x1b[?25h");
        }
        self.cursor = cursor;
        self.out.extend_from_slice(END_FRAME.as_bytes());
        &self.out
    }

    /// Writes the changed cells.
    fn cells(&mut self, changes: &[(Position, &Cell)], next: &Buffer) {
        for changed in changes.chunk_by(|(first, _), (second, _)| first.y == second.y) {
            let Some(y) = changed.first().map(|(position, _)| position.y) else { continue };
            let row = row(next, y);
            let blank_from = row.iter().rposition(|cell| !is_blank(cell)).map_or(0, |last| last + 1);
            let is_written = |(position, _): &&(Position, &Cell)| usize::from(position.x) < blank_from;
            let (written, erased): (Vec<_>, Vec<_>) = changed.iter().partition(is_written);
            for (position, cell) in written {
                self.cell(position, cell, next);
            }
            match erased.first() {
                Some((position, _)) if erased.len() >= ERASE_FROM => {
                    self.write_pen(Pen::default());
                    self.move_to(*position);
                    self.out.extend_from_slice(b"\x1b[K");
                }
                _ => {
                    for (position, cell) in erased {
                        self.cell(position, cell, next);
                    }
                }
            }
        }
    }

    fn cell(&mut self, position: Position, cell: &Cell, next: &Buffer) {
        self.approach(position, next);
        self.write_pen(Pen::of(cell));
        let width = width(cell);
        // Terminals differ in the width of a grapheme of several characters, and in the position behind the last column.
        let is_simple = symbol(cell).chars().nth(1).is_none();
        if !is_simple && width > 1 {
            // A terminal that draws it narrower would leave what is behind it.
            self.out.extend(std::iter::repeat_n(b' ', width));
            self.at = None;
            self.move_to(position);
        }
        self.out.extend_from_slice(symbol(cell).as_bytes());
        let x = position.x.saturating_add(u16::try_from(width).unwrap_or(1));
        let is_known = x < next.area.right() && is_simple;
        self.at = is_known.then_some(Position { x, y: position.y });
    }

    /// Moves to a cell, by writing the cells before it again if that is shorter.
    fn approach(&mut self, position: Position, next: &Buffer) {
        if let Some(at) = self.at
            && at.y == position.y
            && at.x < position.x
            && position.x - at.x <= 3
        {
            let between = (at.x..position.x).filter_map(|x| next.cell((x, position.y)));
            let is_simple = |cell: &Cell| Pen::of(cell) == self.pen && symbol(cell).len() == 1;
            if between.clone().all(is_simple) {
                self.out.extend(between.flat_map(|cell| symbol(cell).bytes()));
                self.at = Some(position);
                return;
            }
        }
        self.move_to(position);
    }

    fn move_to(&mut self, position: Position) {
        match self.at {
            Some(at) if at == position => return,
            Some(at) if at.y == position.y && at.x < position.x => {
                self.sequence(position.x - at.x, None, 'C');
            }
            _ => self.sequence(position.y + 1, Some(position.x + 1), 'H'),
        }
        self.at = Some(position);
    }

    fn sequence(&mut self, first: u16, second: Option<u16>, last: char) {
        // Writing to a vector does not fail.
        drop(match second {
            Some(second) => write!(self.out, "\x1b[{first};{second}{last}"),
            None => write!(self.out, "\x1b[{first}{last}"),
        });
    }

    /// Moves rows of the terminal. New rows are blank.
    fn scroll(&mut self, scroll: Scroll) {
        self.sequence(scroll.top + 1, Some(scroll.bottom), 'r');
        self.sequence(scroll.by, None, if scroll.is_up { 'S' } else { 'T' });
        self.out.extend_from_slice(b"\x1b[r");
        self.at = None;
    }

    fn write_pen(&mut self, pen: Pen) {
        if pen == self.pen {
            return;
        }
        let mut codes: Vec<String> = Vec::new();
        let mut from = self.pen;
        // Attributes are only added; to remove one, all are reset.
        if !pen.modifier.contains(from.modifier) || pen == Pen::default() {
            codes.push(if pen == Pen::default() { String::new() } else { "0".to_owned() });
            from = Pen::default();
        }
        for (modifier, code) in [
            (Modifier::BOLD, "1"),
            (Modifier::DIM, "2"),
            (Modifier::ITALIC, "3"),
            (Modifier::UNDERLINED, "4"),
            (Modifier::SLOW_BLINK, "5"),
            (Modifier::RAPID_BLINK, "6"),
            (Modifier::REVERSED, "7"),
            (Modifier::HIDDEN, "8"),
            (Modifier::CROSSED_OUT, "9"),
        ] {
            if pen.modifier.contains(modifier) && !from.modifier.contains(modifier) {
                codes.push(code.to_owned());
            }
        }
        if pen.fg != from.fg {
            codes.push(colour(pen.fg, 0));
        }
        if pen.bg != from.bg {
            codes.push(colour(pen.bg, 10));
        }
        drop(write!(self.out, "\x1b[{}m", codes.join(";")));
        self.pen = pen;
    }
}

impl Pen {
    fn of(cell: &Cell) -> Self {
        Self { fg: cell.fg, bg: cell.bg, modifier: cell.modifier }
    }
}

/// Returns the cells of `next` that have to be written over `shown`.
///
/// A wide glyph takes two cells. A terminal that overwrites one of them leaves the other blank, in a style of its choice: so the other one
/// is written too.
fn changes<'a>(shown: &Buffer, next: &'a Buffer) -> Vec<(Position, &'a Cell)> {
    let mut changes = Vec::new();
    for y in next.area.rows().map(|row| row.y) {
        let (before, after) = (row(shown, y), row(next, y));
        // The cell behind the last one that is covered by what was written, and behind the last one that lost its glyph.
        let (mut covered, mut broken) = (0, 0);
        for (x, (before, after)) in before.iter().zip(after).enumerate() {
            if x >= covered {
                covered = x + width(after);
                if is_same(before, after) && x >= broken {
                    continue;
                }
                let x = u16::try_from(x).unwrap_or(u16::MAX);
                changes.push((Position { x, y }, after));
            }
            broken = broken.max(x + width(before));
        }
    }
    changes
}

fn is_same(first: &Cell, second: &Cell) -> bool {
    symbol(first) == symbol(second) && Pen::of(first) == Pen::of(second)
}

/// Returns the SGR code of a colour. Codes of backgrounds are higher by 10.
fn colour(colour: Color, plus: u8) -> String {
    let code = match colour {
        Color::Reset => 39,
        Color::Black => 30,
        Color::Red => 31,
        Color::Green => 32,
        Color::Yellow => 33,
        Color::Blue => 34,
        Color::Magenta => 35,
        Color::Cyan => 36,
        Color::Gray => 37,
        Color::DarkGray => 90,
        Color::LightRed => 91,
        Color::LightGreen => 92,
        Color::LightYellow => 93,
        Color::LightBlue => 94,
        Color::LightMagenta => 95,
        Color::LightCyan => 96,
        Color::White => 97,
        Color::Indexed(index) => return format!("{};5;{index}", 38 + plus),
        Color::Rgb(red, green, blue) => return format!("{};2;{red};{green};{blue}", 38 + plus),
    };
    (code + plus).to_string()
}

/// Returns the text of a cell. A control character would act on the terminal, so it is replaced.
fn symbol(cell: &Cell) -> &str {
    match cell.symbol() {
        "" => " ",
        symbol if symbol.chars().any(char::is_control) => "?",
        symbol => symbol,
    }
}

/// Returns the number of cells that a glyph covers.
fn width(cell: &Cell) -> usize {
    symbol(cell).width().max(1)
}

fn is_blank(cell: &Cell) -> bool {
    symbol(cell) == " " && Pen::of(cell) == Pen::default()
}

/// Returns the cells of a row.
pub(super) fn row(buffer: &Buffer, y: u16) -> &[Cell] {
    let width = usize::from(buffer.area.width);
    let from = usize::from(y - buffer.area.y) * width;
    buffer.content.get(from..from + width).unwrap_or_default()
}

#[cfg(test)]
mod tests;
