//! A terminal emulator that knows which sequences the interface may use.

use std::num::NonZero;
use std::time::Instant;

/// The modes of a terminal that a program may leave behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Modes {
    /// Whether the alternate screen is shown.
    pub alternate_screen: bool,
    /// Whether the cursor is hidden.
    pub hidden_cursor: bool,
    /// Whether pasted text is bracketed.
    pub bracketed_paste: bool,
    /// Whether the mouse is reported.
    pub mouse: bool,
    /// Whether the focus is reported.
    pub focus: bool,
    /// Whether lines do not wrap by themselves.
    pub no_wrap: bool,
    /// How many times the kitty keyboard protocol was turned on and not off.
    pub keyboard: u32,
    /// Whether a synchronized frame has begun and not ended.
    pub open_frame: bool,
}

/// A sequence that is not on the list of the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlisted(pub String);

/// The screen of a terminal, and everything that is no text.
pub(super) struct Emulator {
    parser: vt100::Parser<Listed>,
    frame: Option<usize>,
    /// The last bytes, in which a mark of a frame may have begun.
    tail: Vec<u8>,
    pub(super) frames: Vec<usize>,
    /// All screens so far, if they are recorded.
    pub(super) screens: Option<Vec<String>>,
    pub(super) bytes: u64,
    pub(super) last_write: Instant,
    pub(super) is_over: bool,
}

const BEGIN: &[u8] = b"\x1b[?2026h";
const END: &[u8] = b"\x1b[?2026l";

impl Emulator {
    pub(super) fn new(columns: u16, rows: u16) -> Self {
        Self {
            parser: vt100::Parser::new_with_callbacks(cells(rows), cells(columns), 0, Listed::default()),
            frame: None,
            tail: Vec::new(),
            frames: Vec::new(),
            screens: None,
            bytes: 0,
            last_write: Instant::now(),
            is_over: false,
        }
    }

    /// Shows bytes, and returns the replies to the questions among them.
    pub(super) fn take(&mut self, bytes: &[u8]) -> String {
        self.bytes += bytes.len() as u64;
        self.last_write = Instant::now();
        let mut shown = 0;
        for (index, byte) in bytes.iter().enumerate() {
            if self.ends_frame(*byte) && self.screens.is_some() {
                self.show(&bytes[shown..=index]);
                shown = index + 1;
            }
        }
        self.show(&bytes[shown..]);
        std::mem::take(&mut self.parser.callbacks_mut().replies)
    }

    /// Shows bytes up to the end of a frame, or of what there is.
    fn show(&mut self, bytes: &[u8]) {
        self.parser.process(bytes);
        self.record();
    }

    /// Records the screen if it is another one than before.
    fn record(&mut self) {
        let text = self.screens.is_some().then(|| self.text());
        if let (Some(screens), Some(text)) = (&mut self.screens, text)
            && screens.last() != Some(&text)
        {
            screens.push(text);
        }
    }

    /// Records all screens from now on.
    pub(super) fn record_all(&mut self) {
        self.screens.get_or_insert_default();
        self.record();
    }

    /// Counts a byte of a frame. Returns whether it is its last one.
    fn ends_frame(&mut self, byte: u8) -> bool {
        self.tail.push(byte);
        if self.tail.len() > BEGIN.len() {
            self.tail.remove(0);
        }
        if let Some(length) = &mut self.frame {
            *length += 1;
        }
        if self.tail == BEGIN {
            self.frame = Some(BEGIN.len());
        }
        let ended = if self.tail == END { self.frame.take() } else { None };
        self.frames.extend(ended);
        ended.is_some()
    }

    pub(super) fn resize(&mut self, columns: u16, rows: u16) {
        self.parser.screen_mut().set_size(cells(rows), cells(columns));
    }

    pub(super) fn text(&self) -> String {
        self.parser.screen().contents()
    }

    pub(super) fn modes(&self) -> Modes {
        let screen = self.parser.screen();
        Modes {
            alternate_screen: screen.alternate_screen(),
            hidden_cursor: screen.hide_cursor(),
            bracketed_paste: screen.bracketed_paste(),
            mouse: screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None,
            ..self.parser.callbacks().modes
        }
    }

    pub(super) fn unlisted(&self) -> Vec<Unlisted> {
        self.parser.callbacks().unlisted.clone()
    }

    pub(super) fn clipboard(&self) -> Vec<String> {
        self.parser.callbacks().clipboard.clone()
    }

    pub(super) fn bells(&self) -> usize {
        self.parser.callbacks().bells
    }
}

fn cells(count: u16) -> NonZero<u16> {
    count.try_into().unwrap()
}

/// Takes the sequences that the emulator does not know itself: those on the list of the interface are noted, the others are unlisted.
#[derive(Default)]
struct Listed {
    modes: Modes,
    replies: String,
    unlisted: Vec<Unlisted>,
    clipboard: Vec<String>,
    bells: usize,
}

impl Listed {
    fn unlisted(&mut self, what: String) {
        self.unlisted.push(Unlisted(what));
    }
}

impl vt100::Callbacks for Listed {
    fn audible_bell(&mut self, _: &mut vt100::Screen) {
        self.bells += 1;
    }

    fn visual_bell(&mut self, _: &mut vt100::Screen) {
        self.unlisted("a visual bell".to_owned());
    }

    fn resize(&mut self, _: &mut vt100::Screen, size: (u16, u16)) {
        self.unlisted(format!("a size: {size:?}"));
    }

    fn set_window_icon_name(&mut self, _: &mut vt100::Screen, name: &[u8]) {
        self.unlisted(format!("an icon name: {}", String::from_utf8_lossy(name)));
    }

    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        self.unlisted(format!("a title: {}", String::from_utf8_lossy(title)));
    }

    fn copy_to_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8], data: &[u8]) {
        self.clipboard.push(String::from_utf8_lossy(data).into_owned());
    }

    fn paste_from_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8]) {
        self.unlisted("the clipboard is read".to_owned());
    }

    fn unhandled_char(&mut self, _: &mut vt100::Screen, c: char) {
        self.unlisted(format!("the character {c:?}"));
    }

    fn unhandled_control(&mut self, _: &mut vt100::Screen, byte: u8) {
        self.unlisted(format!("the control character {byte:#04x}"));
    }

    fn unhandled_escape(&mut self, _: &mut vt100::Screen, first: Option<u8>, _: Option<u8>, last: u8) {
        // ESC \ ends the strings before it.
        if (first, last) != (None, b'\\') {
            self.unlisted(format!("ESC {:?} {:?}", first.map(char::from), char::from(last)));
        }
    }

    fn unhandled_csi(
        &mut self,
        _: &mut vt100::Screen,
        first: Option<u8>,
        second: Option<u8>,
        parameters: &[&[u16]],
        last: char,
    ) {
        let numbers: Vec<u16> = parameters.iter().flat_map(|parameter| parameter.iter().copied()).collect();
        let is_on = last == 'h';
        match (first, numbers.as_slice(), last) {
            (Some(b'?'), [2026], 'h' | 'l') => self.modes.open_frame = is_on,
            (Some(b'?'), [1004], 'h' | 'l') => self.modes.focus = is_on,
            (Some(b'?'), [7], 'h' | 'l') => self.modes.no_wrap = !is_on,
            (Some(b'>'), [1], 'u') => self.modes.keyboard += 1,
            (Some(b'<'), _, 'u') => self.modes.keyboard = self.modes.keyboard.saturating_sub(1),
            (Some(b'?'), _, 'u') => self.replies.push_str("\x1b[?0u"),
            (None, _, 'c') => self.replies.push_str("\x1b[?62;22c"),
            _ => self.unlisted(format!("CSI {:?} {second:?} {numbers:?} {last}", first.map(char::from))),
        }
    }

    fn unhandled_osc(&mut self, _: &mut vt100::Screen, parameters: &[&[u8]]) {
        match parameters {
            [b"11", b"?"] => self.replies.push_str("\x1b]11;rgb:0000/0000/0000\x1b\\"),
            [b"9", ..] => {}
            _ => {
                let parts: Vec<_> = parameters.iter().map(|part| String::from_utf8_lossy(part)).collect();
                self.unlisted(format!("OSC {}", parts.join(";")));
            }
        }
    }
}
