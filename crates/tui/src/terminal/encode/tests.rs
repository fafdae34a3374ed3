//! Frames, shown by another terminal.

use proptest::prelude::*;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::*;
use crate::terminal::canvas::Canvas;

/// Text, and whether its sequences are all of ours.
#[derive(Default)]
struct Unknown(Vec<String>);

impl vt100::Callbacks for Unknown {
    fn unhandled_char(&mut self, _: &mut vt100::Screen, c: char) {
        self.0.push(format!("{c:?}"));
    }
    fn unhandled_control(&mut self, _: &mut vt100::Screen, byte: u8) {
        self.0.push(format!("control {byte:#x}"));
    }
    fn unhandled_escape(&mut self, _: &mut vt100::Screen, _: Option<u8>, _: Option<u8>, byte: u8) {
        self.0.push(format!("escape {byte:#x}"));
    }
    fn unhandled_csi(
        &mut self,
        _: &mut vt100::Screen,
        first: Option<u8>,
        _: Option<u8>,
        parameters: &[&[u16]],
        last: char,
    ) {
        let is_frame = first == Some(b'?') && parameters == [[2026].as_slice()] && "hl".contains(last);
        if !is_frame {
            self.0.push(format!("csi {parameters:?} {last}"));
        }
    }
    fn unhandled_osc(&mut self, _: &mut vt100::Screen, _: &[&[u8]]) {
        self.0.push("osc".to_owned());
    }
    fn audible_bell(&mut self, _: &mut vt100::Screen) {
        self.0.push("bell".to_owned());
    }
    fn copy_to_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8], _: &[u8]) {
        self.0.push("clipboard".to_owned());
    }
}

/// A screen and a terminal that shows it.
struct Pair {
    screen: Screen,
    terminal: vt100::Parser<Unknown>,
}

impl Pair {
    fn new(width: u16, height: u16) -> Self {
        let mut terminal = vt100::Parser::new_with_callbacks(
            height.try_into().unwrap(),
            width.try_into().unwrap(),
            0,
            Unknown::default(),
        );
        // As when the terminal is taken.
        terminal.process(b"\x1b[?25l");
        Self { screen: Screen::default(), terminal }
    }

    /// Shows a frame, and returns the number of its bytes.
    fn show(&mut self, buffer: &Buffer, cursor: Option<Position>) -> usize {
        let bytes = self.screen.frame(buffer, cursor).to_vec();
        self.terminal.process(&bytes);
        assert_eq!(self.terminal.callbacks().0, Vec::<String>::new());
        let screen = self.terminal.screen();
        assert_eq!(screen.hide_cursor(), cursor.is_none());
        if let Some(cursor) = cursor {
            assert_eq!(screen.cursor_position(), (cursor.y, cursor.x));
        }
        for y in 0..buffer.area.height {
            let mut x = 0;
            while x < buffer.area.width {
                let cell = &buffer[(x, y)];
                let found = screen.cell(y, x).unwrap();
                let shown = if found.has_contents() { found.contents() } else { " " };
                assert_eq!(shown, symbol(cell), "at {x}, {y}");
                let place = format!("at {x}, {y}");
                assert_eq!(found.inverse(), cell.modifier.contains(Modifier::REVERSED), "{place}");
                assert_eq!(found.bgcolor() == vt100::Color::Default, cell.bg == Color::Reset, "{place}");
                // A blank cell looks the same in bold and in every colour.
                if shown != " " {
                    assert_eq!(found.bold(), cell.modifier.contains(Modifier::BOLD), "{place}");
                    assert_eq!(found.fgcolor() == vt100::Color::Default, cell.fg == Color::Reset, "{place}");
                }
                x += u16::try_from(symbol(cell).width().max(1)).unwrap();
            }
        }
        bytes.len()
    }
}

#[test]
fn a_frame_that_is_shown_has_no_bytes() {
    let mut pair = Pair::new(20, 3);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 20, 3));
    buffer.set_string(0, 0, "hello", Style::new());
    let cursor = Some(Position { x: 5, y: 0 });
    assert!(pair.show(&buffer, cursor) > 0);
    assert_eq!(pair.show(&buffer, cursor), 0);
    assert!(pair.show(&buffer, None) > 0);
    assert_eq!(pair.show(&buffer, None), 0);
    pair.screen.forget();
    assert!(pair.show(&buffer, None) > 0);
}

#[test]
fn a_frame_with_wide_glyphs_leaves_nothing_behind_when_they_go() {
    let lines = [
        "abcdefghijklmnop",
        "字字字字字字字字",
        "x               ",
        "ab字cd🙂ef       ",
        "                ",
        "a字bcd🙂ef       ",
        "the last line   ",
    ];
    let mut pair = Pair::new(16, 2);
    let mut canvas = Canvas::new((16, 2));
    for line in lines {
        let mut drawn = Buffer::default();
        let (cells, cursor) = canvas.draw(|frame| {
            frame.buffer_mut().set_string(0, 0, line, Style::new());
            drawn.clone_from(frame.buffer_mut());
        });
        assert_eq!(*cells, drawn);
        pair.show(cells, cursor);
        assert_eq!(pair.terminal.screen().contents().trim_end(), line.trim_end());
    }
}

#[test]
fn a_glyph_that_the_terminal_draws_narrower_leaves_nothing_behind_it() {
    let mut screen = Screen::default();
    let mut narrow = vt100::Parser::new(1.try_into().unwrap(), 8.try_into().unwrap(), 0);
    for (text, shown) in [("abcdefgh", "abcdefgh"), ("❤️cdef❤️", "❤ cdef❤"), ("abcdefgh", "abcdefgh")]
    {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 8, 1));
        buffer.set_string(0, 0, text, Style::new());
        // Without the mark that makes it wide, the terminal draws it in one cell.
        let bytes = String::from_utf8(screen.frame(&buffer, None).to_vec()).unwrap().replace('\u{fe0f}', "");
        narrow.process(bytes.as_bytes());
        assert_eq!(narrow.screen().contents().trim_end(), shown);
    }
}

#[test]
fn control_characters_in_cells_do_not_reach_the_terminal() {
    let mut pair = Pair::new(20, 1);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 20, 1));
    for (x, hostile) in
        ["\x1b[2J", "\x07", "\n", "\u{9b}31m", "\x1b]52;c;aGk=\x07", "\0", "a\rb", ""].iter().enumerate()
    {
        buffer[(u16::try_from(x).unwrap(), 0)].set_symbol(hostile);
    }
    pair.show(&buffer, None);
    assert_eq!(pair.terminal.screen().contents().trim_end(), "?".repeat(7));
}

#[test]
fn a_key_costs_few_bytes() {
    let mut pair = Pair::new(120, 40);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 120, 40));
    for y in 0..38 {
        buffer.set_string(0, y, format!("line {y} of a text"), Style::new());
    }
    pair.show(&buffer, Some(Position { x: 0, y: 39 }));
    buffer.set_string(0, 39, "x", Style::new());
    let bytes = pair.show(&buffer, Some(Position { x: 1, y: 39 }));
    assert!(bytes < 50, "{bytes} bytes");
}

#[test]
fn a_line_more_beside_a_list_costs_less_than_the_screen() {
    let mut pair = Pair::new(120, 40);
    let frame = |from: u16| {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 120, 40));
        for y in 0..40 {
            if y < 8 {
                buffer.set_string(0, y, format!("S{y} a session in the list"), Style::new().fg(Color::Cyan));
            }
            if (1..38).contains(&y) {
                let words = format!("{} words of a long paragraph that streams, {0} again", from + y);
                buffer.set_string(44, y, words, Style::new());
            }
        }
        buffer
    };
    pair.show(&frame(0), None);
    for from in 1..20 {
        let bytes = pair.show(&frame(from), None);
        assert!(bytes < 1_000, "{bytes} bytes");
    }
}

fn cells() -> impl Strategy<Value = Vec<(u16, u16, String, u8)>> {
    let text = prop_oneof![
        "[a-z ]{0,20}",
        "(字|é|a|🙂| ){0,12}",
        // Replaced or dropped before or while it is written.
        "[\\x00-\\x1f\\x7f\u{80}-\u{9f}a]{0,6}",
    ];
    prop::collection::vec((0_u16..40, 0_u16..12, text, any::<u8>()), 0..20)
}

proptest! {
    #[test]
    fn the_terminal_shows_every_frame(frames in prop::collection::vec((cells(), 0_u16..4), 1..8)) {
        let mut pair = Pair::new(40, 12);
        let mut buffer = Buffer::empty(Rect::new(0, 0, 40, 12));
        for (index, (cells, up)) in frames.iter().enumerate() {
            if *up > 0 {
                // Rows move, as in a text that scrolls.
                let mut moved = Buffer::empty(buffer.area);
                for y in *up..12 {
                    for x in 0..40 {
                        moved[(x, y - up)] = buffer[(x, y)].clone();
                    }
                }
                buffer = moved;
            }
            for (x, y, text, style) in cells {
                let mut look = Style::new();
                if style & 1 != 0 { look = look.add_modifier(Modifier::BOLD); }
                if style & 2 != 0 { look = look.fg(Color::Green); }
                if style & 4 != 0 { look = look.bg(Color::Rgb(1, 2, *style)); }
                if style & 8 != 0 { look = look.add_modifier(Modifier::REVERSED); }
                buffer.set_string(*x, *y, text, look);
            }
            let cursor = (index % 2 == 0).then_some(Position { x: 3, y: 4 });
            pair.show(&buffer, cursor);
        }
    }
}
