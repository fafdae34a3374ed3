//! Decodes the bytes that a terminal sends: keys, mouse, pasted text, focus and replies.
//!
//! crossterm has such a decoder, but it takes replies to colour queries for typed text, and takes a sequence that arrives in two pieces
//! for the key Esc.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseEvent};

use super::input::Parse;
use super::sequences::{Sequence, csi, osc, ss3};

/// The most bytes of one pasted text. The rest is dropped, and [`Input::PasteTruncated`] follows the text.
pub const PASTE_LIMIT: usize = 32 << 20;

/// Time to wait for the rest of a key's sequence. After it, the bytes are keys of their own: a lone Esc.
const REST_OF_KEY: Duration = Duration::from_millis(30);
/// Time to wait for the rest of a reply.
const REST_OF_REPLY: Duration = Duration::from_secs(1);

/// Time to wait for the rest of a pasted text. After it, keys are keys again: its end may be lost.
const REST_OF_PASTE: Duration = Duration::from_secs(2);
/// More bytes than this at a time, after a paste without an end, are the rest of it: nobody types so fast.
const MOST_TYPED: usize = 16;

const PASTE_END: &[u8] = b"\x1b[201~";

/// Input from a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A key.
    Key(KeyEvent),
    /// The mouse.
    Mouse(MouseEvent),
    /// Pasted text, with `\n` at the end of lines.
    Paste(String),
    /// The pasted text before it was longer than [`PASTE_LIMIT`].
    PasteTruncated,
    /// Whether the terminal has the focus.
    Focus(bool),
    /// A reply to a query.
    Reply(Reply),
    /// A line that was typed on a terminal that edits lines itself.
    Line(String),
}

/// A reply of a terminal to a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The background colour: red, green and blue, each scaled to 16 bits.
    Background(u16, u16, u16),
    /// The kitty keyboard protocol is supported.
    Keyboard,
    /// The device attributes. Every terminal sends them, so they are the last reply.
    Attributes,
}

/// A decoder. It keeps incomplete sequences until the rest arrives.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    waiting: Vec<u8>,
    paste: Option<Paste>,
    /// Whether the end of the last paste did not come in time.
    has_stalled: bool,
}

#[derive(Debug, Default)]
struct Paste {
    bytes: Vec<u8>,
    is_truncated: bool,
}

impl Parse for Decoder {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<Input>) {
        let is_typed = bytes.len() <= MOST_TYPED || bytes.starts_with(b"\x1b");
        if self.has_stalled && !is_typed {
            self.paste.get_or_insert_default();
        }
        if self.paste.is_some() {
            self.push_paste(bytes, out);
        } else {
            self.waiting.extend_from_slice(bytes);
            self.decode(out);
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if self.paste.is_some() {
            return Some(REST_OF_PASTE);
        }
        match self.waiting.as_slice() {
            [] => None,
            [b'\x1b', b']', _, ..] => Some(REST_OF_REPLY),
            _ => Some(REST_OF_KEY),
        }
    }

    fn give_up(&mut self, out: &mut Vec<Input>) {
        if let Some(paste) = self.paste.take() {
            self.has_stalled = true;
            return paste.end(out);
        }
        let waiting = std::mem::take(&mut self.waiting);
        let key = match waiting.as_slice() {
            [b'\x1b'] => KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE),
            // Alt with a key that begins a sequence too.
            [b'\x1b', c @ (b'[' | b']')] => KeyEvent::new(KeyCode::Char(char::from(*c)), KeyModifiers::ALT),
            [b'\x1b', b'O'] => KeyEvent::new(KeyCode::Char('O'), KeyModifiers::ALT | KeyModifiers::SHIFT),
            _ => return,
        };
        out.push(Input::Key(key));
    }
}

impl Decoder {
    fn decode(&mut self, out: &mut Vec<Input>) {
        let mut used = 0;
        loop {
            let rest = self.waiting.get(used..).unwrap_or_default();
            match sequence(rest) {
                Sequence::Incomplete => break,
                Sequence::Ignored(length) => used += length,
                Sequence::Input(input, length) => {
                    out.push(input);
                    used += length;
                }
                Sequence::PasteBegins(length) => {
                    let bytes = self.waiting.split_off(used + length);
                    self.waiting.clear();
                    (self.paste, self.has_stalled) = (Some(Paste::default()), false);
                    return self.push_paste(&bytes, out);
                }
            }
        }
        self.waiting.drain(..used);
    }

    fn push_paste(&mut self, bytes: &[u8], out: &mut Vec<Input>) {
        let Some(mut paste) = self.paste.take() else { return };
        // The end may have begun in the bytes before.
        let from = paste.bytes.len().saturating_sub(PASTE_END.len() - 1);
        paste.bytes.extend_from_slice(bytes);
        let new = paste.bytes.get(from..).unwrap_or_default();
        let end = new.windows(PASTE_END.len()).position(|window| window == PASTE_END);
        let Some(end) = end.map(|end| from + end) else {
            paste.bound();
            self.paste = Some(paste);
            return;
        };
        let rest = paste.bytes.split_off(end + PASTE_END.len());
        paste.bytes.truncate(end);
        paste.end(out);
        self.has_stalled = false;
        self.push(&rest, out);
    }
}

impl Paste {
    fn end(mut self, out: &mut Vec<Input>) {
        let is_truncated = self.is_truncated || self.bytes.len() > PASTE_LIMIT;
        self.bytes.truncate(PASTE_LIMIT);
        out.push(Input::Paste(text(&self.bytes)));
        if is_truncated {
            out.push(Input::PasteTruncated);
        }
    }

    /// Drops what is over the limit, except for bytes that may begin the end.
    fn bound(&mut self) {
        let over = self.bytes.len().saturating_sub(PASTE_LIMIT + PASTE_END.len());
        if over > 0 {
            self.is_truncated = true;
            self.bytes.drain(PASTE_LIMIT..PASTE_LIMIT + over);
        }
    }
}

/// Decodes pasted text. Terminals send `\r` for the end of a line.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", "\n").replace('\r', "\n")
}

/// Reads the sequence at the beginning of some bytes.
fn sequence(bytes: &[u8]) -> Sequence {
    match bytes {
        [] | [b'\x1b'] => Sequence::Incomplete,
        [b'\x1b', b'[', rest @ ..] => csi(rest).after(2),
        [b'\x1b', b'O', rest @ ..] => ss3(rest).after(2),
        [b'\x1b', b']', rest @ ..] => osc(rest).after(2),
        [b'\x1b', b'\x1b', ..] => Sequence::key(KeyCode::Esc, KeyModifiers::NONE, 1),
        [b'\x1b', rest @ ..] => match character(rest).after(1) {
            Sequence::Input(Input::Key(key), length) => {
                Sequence::key(key.code, key.modifiers | KeyModifiers::ALT, length)
            }
            other => other,
        },
        _ => character(bytes),
    }
}

/// Reads a control character or a character of a text.
fn character(bytes: &[u8]) -> Sequence {
    let Some(&first) = bytes.first() else { return Sequence::Incomplete };
    let control = |c: u8| Sequence::key(KeyCode::Char(char::from(c)), KeyModifiers::CONTROL, 1);
    match first {
        b'\r' => Sequence::key(KeyCode::Enter, KeyModifiers::NONE, 1),
        b'\t' => Sequence::key(KeyCode::Tab, KeyModifiers::NONE, 1),
        0x7f => Sequence::key(KeyCode::Backspace, KeyModifiers::NONE, 1),
        0 => control(b' '),
        1..=0x1a => control(first - 1 + b'a'),
        // The same names as crossterm: 0x1f is Ctrl-7, which is Ctrl-_ and Ctrl-/ too.
        0x1c..=0x1f => control(first - 0x1c + b'4'),
        _ => utf8(bytes),
    }
}

fn utf8(bytes: &[u8]) -> Sequence {
    let length = match bytes.first() {
        Some(0..=0x7f) => 1,
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => return Sequence::Ignored(1),
    };
    let is_broken = |byte: &u8| !(0x80..=0xbf).contains(byte);
    if let Some(broken) = bytes.iter().take(length).skip(1).position(is_broken) {
        return Sequence::Ignored(broken + 1);
    }
    let Some(bytes) = bytes.get(..length) else { return Sequence::Incomplete };
    let Some(c) = std::str::from_utf8(bytes).ok().and_then(|text| text.chars().next()) else {
        return Sequence::Ignored(length);
    };
    // C1 controls, which some terminals take from UTF-8 too, are no text.
    if c.is_control() {
        return Sequence::Ignored(length);
    }
    let modifiers = if c.is_uppercase() { KeyModifiers::SHIFT } else { KeyModifiers::NONE };
    Sequence::key(KeyCode::Char(c), modifiers, length)
}

#[cfg(test)]
mod tests {
    use crossterm::event::{MouseButton, MouseEventKind};
    use proptest::prelude::*;

    use super::*;

    fn decode(bytes: &[u8]) -> Vec<Input> {
        let mut decoder = Decoder::default();
        let mut out = Vec::new();
        decoder.push(bytes, &mut out);
        decoder.give_up(&mut out);
        out
    }

    fn key(code: KeyCode, modifiers: KeyModifiers) -> Input {
        Input::Key(KeyEvent::new(code, modifiers))
    }

    #[test]
    fn each_key_is_decoded() {
        use KeyCode::{BackTab, Backspace, Char, Delete, Down, End, Enter, Esc, F, Home, PageUp, Tab, Up};
        const NONE: KeyModifiers = KeyModifiers::NONE;
        const SHIFT: KeyModifiers = KeyModifiers::SHIFT;
        const ALT: KeyModifiers = KeyModifiers::ALT;
        const CONTROL: KeyModifiers = KeyModifiers::CONTROL;
        for (bytes, code, modifiers) in [
            ("a", Char('a'), NONE),
            ("A", Char('A'), SHIFT),
            ("é", Char('é'), NONE),
            ("字", Char('字'), NONE),
            ("🙂", Char('🙂'), NONE),
            ("\r", Enter, NONE),
            ("\n", Char('j'), CONTROL),
            ("\t", Tab, NONE),
            ("\x7f", Backspace, NONE),
            ("\x03", Char('c'), CONTROL),
            ("\x1a", Char('z'), CONTROL),
            ("\x1f", Char('7'), CONTROL),
            ("\0", Char(' '), CONTROL),
            ("\x1b", Esc, NONE),
            ("\x1bb", Char('b'), ALT),
            ("\x1bB", Char('B'), ALT | SHIFT),
            ("\x1b1", Char('1'), ALT),
            ("\x1b\r", Enter, ALT),
            ("\x1b\x7f", Backspace, ALT),
            ("\x1b[", Char('['), ALT),
            ("\x1b]", Char(']'), ALT),
            ("\x1bO", Char('O'), ALT | SHIFT),
            ("\x1b[A", Up, NONE),
            ("\x1bOA", Up, NONE),
            ("\x1b[1;5B", Down, CONTROL),
            ("\x1b[1;3A", Up, ALT),
            ("\x1b[H", Home, NONE),
            ("\x1b[1~", Home, NONE),
            ("\x1b[4~", End, NONE),
            ("\x1b[3~", Delete, NONE),
            ("\x1b[5~", PageUp, NONE),
            ("\x1b[5;5~", PageUp, CONTROL),
            ("\x1bOP", F(1), NONE),
            ("\x1b[11~", F(1), NONE),
            ("\x1b[[A", F(1), NONE),
            ("\x1b[15~", F(5), NONE),
            ("\x1b[20~", F(9), NONE),
            ("\x1b[24~", F(12), NONE),
            ("\x1b[Z", BackTab, SHIFT),
            ("\x1b[13;2u", Enter, SHIFT),
            ("\x1b[27u", Esc, NONE),
            ("\x1b[99;5u", Char('c'), CONTROL),
            ("\x1b[9;2u", BackTab, SHIFT),
            ("\x1b[57414u", Enter, NONE),
            ("\x1b[27;2;13~", Enter, SHIFT),
            ("\x1b[97;5:2u", Char('a'), CONTROL),
        ] {
            assert_eq!(decode(bytes.as_bytes()), [key(code, modifiers)], "{bytes:?}");
        }
    }

    #[test]
    fn sequences_without_a_meaning_are_ignored() {
        for bytes in [
            "\x1b[97;5:3u", // A released key.
            "\x1b[57358u",  // Caps Lock.
            "\x1b[M !!",    // An old report of the mouse.
            "\x1b[0n",
            "\x1b[12;40R",
            "\x1b[>0;276;0c",
            "\x1b]52;c;aGk=\x07",
            "\u{9b}",
        ] {
            assert_eq!(decode(bytes.as_bytes()), [], "{bytes:?}");
            let mut with_key = bytes.as_bytes().to_vec();
            with_key.push(b'x');
            assert_eq!(decode(&with_key), [key(KeyCode::Char('x'), KeyModifiers::NONE)], "{bytes:?}");
        }
    }

    #[test]
    fn replies_are_no_keys() {
        let replies = "\x1b]11;rgb:ffff/8080/0000\x1b\\\x1b[?0u\x1b[?62;4c";
        let expected =
            [Reply::Background(0xffff, 0x8080, 0), Reply::Keyboard, Reply::Attributes].map(Input::Reply);
        assert_eq!(decode(replies.as_bytes()), expected);
        assert_eq!(decode(b"\x1b]11;rgb:00/00/ff\x07"), [Input::Reply(Reply::Background(0, 0, 0xffff))]);
    }

    #[test]
    fn the_mouse_is_decoded() {
        let mouse = |kind, column, row, modifiers| Input::Mouse(MouseEvent { kind, column, row, modifiers });
        let none = KeyModifiers::NONE;
        assert_eq!(
            decode(b"\x1b[<0;3;5M\x1b[<0;3;5m\x1b[<64;1;1M\x1b[<65;10;2M\x1b[<18;4;4M"),
            [
                mouse(MouseEventKind::Down(MouseButton::Left), 2, 4, none),
                mouse(MouseEventKind::Up(MouseButton::Left), 2, 4, none),
                mouse(MouseEventKind::ScrollUp, 0, 0, none),
                mouse(MouseEventKind::ScrollDown, 9, 1, none),
                mouse(MouseEventKind::Down(MouseButton::Right), 3, 3, KeyModifiers::CONTROL),
            ]
        );
    }

    #[test]
    fn pasted_text_is_one_input_with_its_control_characters() {
        assert_eq!(
            decode(b"\x1b[200~one\rtwo\r\nthree\x1b[A\x03\x1b[201~x"),
            [
                Input::Paste("one\ntwo\nthree\x1b[A\x03".to_owned()),
                key(KeyCode::Char('x'), KeyModifiers::NONE)
            ]
        );
        assert_eq!(decode(b"\x1b[I\x1b[O"), [Input::Focus(true), Input::Focus(false)]);
    }

    #[test]
    fn a_paste_is_bounded() {
        let mut decoder = Decoder::default();
        let mut out = Vec::new();
        decoder.push(b"\x1b[200~", &mut out);
        for _ in 0..40 {
            decoder.push(&vec![b'a'; 1 << 20], &mut out);
            assert!(decoder.paste.as_ref().unwrap().bytes.len() <= PASTE_LIMIT + PASTE_END.len());
        }
        decoder.push(b"\x1b[20", &mut out);
        decoder.push(b"1~", &mut out);
        let [Input::Paste(text), Input::PasteTruncated] = out.as_slice() else { panic!() };
        assert_eq!(text.len(), PASTE_LIMIT);
    }

    #[test]
    fn a_paste_without_an_end_is_ended_and_its_late_rest_is_no_key() {
        let mut decoder = Decoder::default();
        let mut out = Vec::new();
        decoder.push(b"\x1b[200~one\r", &mut out);
        assert_eq!((decoder.timeout(), out.len()), (Some(REST_OF_PASTE), 0));
        decoder.give_up(&mut out);
        assert_eq!(out, [Input::Paste("one\n".to_owned())]);
        assert_eq!(decoder.timeout(), None);
        out.clear();
        decoder.push(b"\x03", &mut out);
        assert_eq!(out, [key(KeyCode::Char('c'), KeyModifiers::CONTROL)]);
        out.clear();
        decoder.push(b"the rest of the text\r", &mut out);
        decoder.push(b"\x1b[201~\r", &mut out);
        assert_eq!(
            out,
            [Input::Paste("the rest of the text\n".to_owned()), key(KeyCode::Enter, KeyModifiers::NONE)]
        );
        out.clear();
        decoder.push(b"typed ahead, with a key\r", &mut out);
        assert_eq!(out.len(), 24, "keys again");
    }

    #[test]
    fn a_lone_escape_waits_for_the_rest_of_a_sequence() {
        let mut decoder = Decoder::default();
        let mut out = Vec::new();
        decoder.push(b"\x1b", &mut out);
        assert_eq!((decoder.timeout(), out.len()), (Some(REST_OF_KEY), 0));
        decoder.push(b"[A", &mut out);
        assert_eq!(decoder.timeout(), None);
        assert_eq!(out, [key(KeyCode::Up, KeyModifiers::NONE)]);
    }

    /// Pieces of what terminals send, and of what they should not.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let known = [
            "a",
            "é",
            "字",
            "\r",
            "\x1b[A",
            "\x1b[1;5C",
            "\x1bOP",
            "\x1b[200~pa\x1b[Bste\r\x1b[201~",
            "\x1b[I",
            "\x1b]11;rgb:00/00/00\x1b\\",
            "\x1b[?1u",
            "\x1b[<0;3;5M",
            "\x1bx",
            "\x1b[27;2;13~",
            "\x1b[M !!",
        ];
        prop_oneof![
            8 => prop::sample::select(known.to_vec()).prop_map(|piece| piece.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..6),
        ]
    }

    proptest! {
        #[test]
        fn bytes_that_come_in_pieces_are_the_same_input(
            pieces in prop::collection::vec(piece(), 0..20),
            cuts in prop::collection::vec(1_usize..8, 1..40),
        ) {
            let bytes = pieces.concat();
            let mut decoder = Decoder::default();
            let mut out = Vec::new();
            let mut rest = bytes.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                decoder.push(now, &mut out);
                rest = later;
            }
            decoder.give_up(&mut out);
            prop_assert_eq!(out, decode(&bytes));
        }
    }
}
