//! Control sequences that a terminal sends.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use super::decode::{Input, Reply};

/// The most bytes of a control sequence. Longer ones are dropped up to here.
const CSI_LIMIT: usize = 64;
/// The most bytes of a reply.
const OSC_LIMIT: usize = 4096;

/// A sequence at the beginning of some bytes, with the number of its bytes.
#[derive(Debug)]
pub(super) enum Sequence {
    /// More bytes are needed.
    Incomplete,
    /// It has no meaning here.
    Ignored(usize),
    /// An input.
    Input(Input, usize),
    /// Pasted text follows.
    PasteBegins(usize),
}

impl Sequence {
    pub(super) fn key(code: KeyCode, modifiers: KeyModifiers, length: usize) -> Self {
        Self::Input(Input::Key(KeyEvent::new(code, modifiers)), length)
    }

    /// Adds the bytes before it to its length.
    pub(super) fn after(self, before: usize) -> Self {
        match self {
            Self::Incomplete => Self::Incomplete,
            Self::Ignored(length) => Self::Ignored(length + before),
            Self::Input(input, length) => Self::Input(input, length + before),
            Self::PasteBegins(length) => Self::PasteBegins(length + before),
        }
    }
}

/// Reads what follows ESC O.
pub(super) fn ss3(bytes: &[u8]) -> Sequence {
    let Some(last) = bytes.first() else { return Sequence::Incomplete };
    match letter_key(*last) {
        Some(code) => Sequence::key(code, KeyModifiers::NONE, 1),
        None => Sequence::Ignored(usize::from(last.is_ascii_graphic())),
    }
}

/// Reads what follows ESC ].
pub(super) fn osc(bytes: &[u8]) -> Sequence {
    let Some(end) = bytes.iter().take(OSC_LIMIT).position(|byte| matches!(byte, b'\x07' | b'\x1b')) else {
        return if bytes.len() < OSC_LIMIT { Sequence::Incomplete } else { Sequence::Ignored(OSC_LIMIT) };
    };
    let length = match bytes.get(end..) {
        Some([b'\x07', ..]) => end + 1,
        Some([b'\x1b']) => return Sequence::Incomplete,
        Some([b'\x1b', b'\\', ..]) => end + 2,
        // Another sequence begins: the reply was cut off.
        _ => end,
    };
    let reply = bytes.get(..end).and_then(|text| std::str::from_utf8(text).ok()).and_then(background);
    match reply {
        Some(reply) => Sequence::Input(Input::Reply(reply), length),
        None => Sequence::Ignored(length),
    }
}

/// Parses `11;rgb:ffff/8080/0000`. Each part has one to four digits.
fn background(text: &str) -> Option<Reply> {
    let colour = text.strip_prefix("11;")?;
    let colour = colour.strip_prefix("rgba:").or_else(|| colour.strip_prefix("rgb:"))?;
    let mut parts = colour.split('/').map(|part| {
        let most = match part.len() {
            length @ 1..=4 => (1_u32 << (4 * length)) - 1,
            _ => return None,
        };
        let value = u32::from_str_radix(part, 16).ok()?;
        u16::try_from(value * 0xffff / most).ok()
    });
    Some(Reply::Background(parts.next()??, parts.next()??, parts.next()??))
}

/// Reads what follows ESC [.
pub(super) fn csi(bytes: &[u8]) -> Sequence {
    match bytes {
        // Function keys of the Linux console.
        [b'['] => return Sequence::Incomplete,
        [b'[', last @ b'A'..=b'E', ..] => {
            return Sequence::key(KeyCode::F(last - b'A' + 1), KeyModifiers::NONE, 2);
        }
        // The mouse of terminals without mode 1006: three more bytes.
        [b'M', rest @ ..] => {
            return if rest.len() < 3 { Sequence::Incomplete } else { Sequence::Ignored(4) };
        }
        _ => {}
    }
    let is_inner = |byte: &u8| (0x20..=0x3f).contains(byte);
    let inner = bytes.iter().take(CSI_LIMIT).take_while(|byte| is_inner(byte)).count();
    let Some(last) = bytes.get(inner) else { return Sequence::Incomplete };
    if inner == CSI_LIMIT || !(0x40..=0x7e).contains(last) {
        return Sequence::Ignored(inner);
    }
    let length = inner + 1;
    let parameters = bytes.get(..inner).and_then(|inner| std::str::from_utf8(inner).ok()).unwrap_or_default();
    let input = match (parameters, last) {
        ("", b'I') => Some(Input::Focus(true)),
        ("", b'O') => Some(Input::Focus(false)),
        ("200", b'~') => return Sequence::PasteBegins(length),
        (parameters, b'c') if parameters.starts_with('?') => Some(Input::Reply(Reply::Attributes)),
        (parameters, b'u') if parameters.starts_with('?') => Some(Input::Reply(Reply::Keyboard)),
        (parameters, b'M' | b'm') => mouse(parameters, *last == b'M').map(Input::Mouse),
        (parameters, last) => key(parameters, *last).map(Input::Key),
    };
    match input {
        Some(input) => Sequence::Input(input, length),
        None => Sequence::Ignored(length),
    }
}

/// Reads a key from the parameters and the last byte of its sequence.
fn key(parameters: &str, last: u8) -> Option<KeyEvent> {
    if !parameters.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b';' | b':')) {
        return None;
    }
    let mut parts = parameters.split(';');
    let mut number = || parts.next().map(|part| part.split(':').map(|number| number.parse::<u32>().ok()));
    let first = number().and_then(|mut numbers| numbers.next().flatten());
    let mut second = number();
    let modifiers = second.as_mut().and_then(|numbers| numbers.next().flatten()).unwrap_or(1);
    // Press and repeat are 1 and 2, release is 3.
    if second.as_mut().and_then(|numbers| numbers.next().flatten()) == Some(3) {
        return None;
    }
    let third = number().and_then(|mut numbers| numbers.next().flatten());
    let (code, modifiers) = match (last, first) {
        (b'Z', _) => (KeyCode::BackTab, self::modifiers(modifiers) | KeyModifiers::SHIFT),
        // A key without a sequence of its own, as xterm encodes it.
        (b'~', Some(27)) => unicode_key(third?, self::modifiers(modifiers))?,
        (b'~', Some(number)) => (numbered_key(number)?, self::modifiers(modifiers)),
        (b'u', Some(code)) => unicode_key(code, self::modifiers(modifiers))?,
        // The position of the cursor, which we do not ask for, has the same last byte as F3.
        (b'R', Some(first)) if first != 1 => return None,
        (last, _) => (letter_key(last)?, self::modifiers(modifiers)),
    };
    Some(KeyEvent::new(code, modifiers))
}

/// Decodes modifiers: bits, plus one.
fn modifiers(encoded: u32) -> KeyModifiers {
    let bits = encoded.saturating_sub(1);
    let mut modifiers = KeyModifiers::NONE;
    for (bit, modifier) in [
        (1, KeyModifiers::SHIFT),
        (2, KeyModifiers::ALT),
        (4, KeyModifiers::CONTROL),
        (8, KeyModifiers::SUPER),
        (16, KeyModifiers::HYPER),
        (32, KeyModifiers::META),
    ] {
        if bits & bit != 0 {
            modifiers |= modifier;
        }
    }
    modifiers
}

fn letter_key(last: u8) -> Option<KeyCode> {
    Some(match last {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'F' => KeyCode::End,
        b'H' => KeyCode::Home,
        b'P'..=b'S' => KeyCode::F(last - b'P' + 1),
        b'M' => KeyCode::Enter,
        _ => return None,
    })
}

fn numbered_key(number: u32) -> Option<KeyCode> {
    let function = |first: u32, key: u32| u8::try_from(number - first + key).ok().map(KeyCode::F);
    match number {
        1 | 7 => Some(KeyCode::Home),
        2 => Some(KeyCode::Insert),
        3 => Some(KeyCode::Delete),
        4 | 8 => Some(KeyCode::End),
        5 => Some(KeyCode::PageUp),
        6 => Some(KeyCode::PageDown),
        11..=15 => function(11, 1),
        17..=21 => function(17, 6),
        23..=26 => function(23, 11),
        28..=29 => function(28, 15),
        31..=34 => function(31, 17),
        _ => None,
    }
}

/// Decodes a key of the kitty protocol.
fn unicode_key(code: u32, modifiers: KeyModifiers) -> Option<(KeyCode, KeyModifiers)> {
    let code = match code {
        9 if modifiers.contains(KeyModifiers::SHIFT) => KeyCode::BackTab,
        9 => KeyCode::Tab,
        13 | 57414 => KeyCode::Enter,
        27 => KeyCode::Esc,
        8 | 127 => KeyCode::Backspace,
        57399..=57408 => KeyCode::Char(char::from_digit(code - 57399, 10)?),
        57409 => KeyCode::Char('.'),
        57410 => KeyCode::Char('/'),
        57411 => KeyCode::Char('*'),
        57412 => KeyCode::Char('-'),
        57413 => KeyCode::Char('+'),
        57415 => KeyCode::Char('='),
        57417 => KeyCode::Left,
        57418 => KeyCode::Right,
        57419 => KeyCode::Up,
        57420 => KeyCode::Down,
        57421 => KeyCode::PageUp,
        57422 => KeyCode::PageDown,
        57423 => KeyCode::Home,
        57424 => KeyCode::End,
        57425 => KeyCode::Insert,
        57426 => KeyCode::Delete,
        // Keys without a character, such as Caps Lock.
        57344..=63743 => return None,
        _ => KeyCode::Char(char::from_u32(code).filter(|c| !c.is_control())?),
    };
    Some((code, modifiers))
}

/// Reads `<button;column;row` of mode 1006.
fn mouse(parameters: &str, is_press: bool) -> Option<MouseEvent> {
    let mut numbers = parameters.strip_prefix('<')?.split(';').map(|part| part.parse::<u16>().ok());
    let button = numbers.next()??;
    let column = numbers.next()??.checked_sub(1)?;
    let row = numbers.next()??.checked_sub(1)?;
    let which = match button & 3 {
        0 => MouseButton::Left,
        1 => MouseButton::Middle,
        _ => MouseButton::Right,
    };
    let kind = match (button & 0b1100_0011, button & 32 != 0) {
        (64, _) => MouseEventKind::ScrollUp,
        (65, _) => MouseEventKind::ScrollDown,
        (66, _) => MouseEventKind::ScrollLeft,
        (67, _) => MouseEventKind::ScrollRight,
        (3, true) => MouseEventKind::Moved,
        (0..=2, true) => MouseEventKind::Drag(which),
        (0..=2, false) if is_press => MouseEventKind::Down(which),
        (0..=2, false) => MouseEventKind::Up(which),
        _ => return None,
    };
    let mut modifiers = KeyModifiers::NONE;
    for (bit, modifier) in [(4, KeyModifiers::SHIFT), (8, KeyModifiers::ALT), (16, KeyModifiers::CONTROL)] {
        if button & bit != 0 {
            modifiers |= modifier;
        }
    }
    Some(MouseEvent { kind, column, row, modifiers })
}
