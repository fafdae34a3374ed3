//! Keys and their names.

use std::fmt;
use std::str::FromStr;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A key with its modifiers, in one form for each: terminals report the same key in several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    code: KeyCode,
    modifiers: KeyModifiers,
}

/// The names of keys that are no characters, as the configuration and the screen write them.
const NAMES: [(KeyCode, &str, &str); 15] = [
    (KeyCode::Enter, "enter", "↵"),
    (KeyCode::Esc, "esc", "Esc"),
    (KeyCode::Tab, "tab", "Tab"),
    (KeyCode::Backspace, "backspace", "Backspace"),
    (KeyCode::Delete, "delete", "Delete"),
    (KeyCode::Insert, "insert", "Insert"),
    (KeyCode::Up, "up", "↑"),
    (KeyCode::Down, "down", "↓"),
    (KeyCode::Left, "left", "←"),
    (KeyCode::Right, "right", "→"),
    (KeyCode::Home, "home", "Home"),
    (KeyCode::End, "end", "End"),
    (KeyCode::PageUp, "pageup", "PgUp"),
    (KeyCode::PageDown, "pagedown", "PgDn"),
    (KeyCode::Char(' '), "space", "Space"),
];

/// The modifiers, as the configuration and the screen write them.
const MODIFIERS: [(KeyModifiers, &str, &str); 3] = [
    (KeyModifiers::CONTROL, "ctrl-", "Ctrl-"),
    (KeyModifiers::ALT, "alt-", "Alt-"),
    (KeyModifiers::SHIFT, "shift-", "Shift-"),
];

/// The highest function key.
const LAST_FUNCTION_KEY: u8 = 24;

impl Key {
    /// Creates a key in its one form.
    pub fn new(code: KeyCode, modifiers: KeyModifiers) -> Self {
        let known = KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT;
        let mut modifiers = modifiers & known;
        let code = match code {
            // A character already says whether Shift was held.
            KeyCode::Char(c) => {
                let is_plain = !modifiers.contains(KeyModifiers::CONTROL);
                let c = if modifiers.contains(KeyModifiers::SHIFT) && is_plain && c.is_ascii_lowercase() {
                    c.to_ascii_uppercase()
                } else if !is_plain {
                    c.to_ascii_lowercase()
                } else {
                    c
                };
                modifiers.remove(KeyModifiers::SHIFT);
                // A terminal without the kitty protocol sends the same byte for Ctrl-_ and Ctrl-7.
                KeyCode::Char(if c == '7' && !is_plain { '_' } else { c })
            }
            KeyCode::BackTab => {
                modifiers.insert(KeyModifiers::SHIFT);
                KeyCode::Tab
            }
            code => code,
        };
        Self { code, modifiers }
    }

    /// Returns the event by which a terminal reports it.
    pub fn event(self) -> KeyEvent {
        KeyEvent::new(self.code, self.modifiers)
    }

    /// Returns the character that the key types; `None` if it types none.
    pub fn character(self) -> Option<char> {
        match self.code {
            KeyCode::Char(c) if self.modifiers.is_empty() => Some(c),
            _ => None,
        }
    }

    /// Returns whether it is this key, without modifiers.
    pub fn is(self, code: KeyCode) -> bool {
        self.code == code && self.modifiers.is_empty()
    }

    /// Returns it for people, in ASCII: `Ctrl-X`, `Alt-Up`, `Enter`.
    pub fn in_ascii(self) -> String {
        let mut text = self.to_string();
        for (symbol, word) in [("↵", "Enter"), ("↑", "Up"), ("↓", "Down"), ("←", "Left"), ("→", "Right")]
        {
            text = text.replace(symbol, word);
        }
        text
    }

    /// Returns its name in the configuration.
    pub fn name(self) -> String {
        self.written(|name| name.1, |modifier| modifier.1)
    }

    fn written(
        self,
        name: impl Fn(&(KeyCode, &'static str, &'static str)) -> &'static str,
        modifier: impl Fn(&(KeyModifiers, &'static str, &'static str)) -> &'static str,
    ) -> String {
        let mut text = String::new();
        for row in MODIFIERS.iter().filter(|row| self.modifiers.contains(row.0)) {
            text.push_str(modifier(row));
        }
        match (NAMES.iter().find(|row| row.0 == self.code), self.code) {
            (Some(row), _) => text.push_str(name(row)),
            (None, KeyCode::F(number)) => {
                text.push_str(&format!("{}{number}", if name(&F) == F.1 { 'f' } else { 'F' }));
            }
            (None, KeyCode::Char(c)) => text.push(c),
            (None, code) => text.push_str(&format!("{code:?}").to_lowercase()),
        }
        text
    }
}

/// Tells the two ways to write a function key apart.
const F: (KeyCode, &str, &str) = (KeyCode::Null, "f", "F");

impl From<KeyEvent> for Key {
    fn from(event: KeyEvent) -> Self {
        Self::new(event.code, event.modifiers)
    }
}

impl fmt::Display for Key {
    /// Writes it for people: `Ctrl-X`, `Alt-↑`, `↵`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.written(|name| name.2, |modifier| modifier.2);
        match self.code {
            KeyCode::Char(c) if !self.modifiers.is_empty() && c.is_ascii_lowercase() => {
                let start = text.strip_suffix(c).unwrap_or(&text);
                write!(f, "{start}{}", c.to_ascii_uppercase())
            }
            _ => f.write_str(&text),
        }
    }
}

impl FromStr for Key {
    type Err = String;

    /// Reads a key as users write it: `ctrl-x`, `alt-enter`, `f5`, `g`, `G`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let problem = || {
            format!(
                "no key is called {}: write keys as `ctrl-x`, `alt-enter`, `f5`, `pageup`, `g`",
                azureal::error::quoted(text)
            )
        };
        let mut modifiers = KeyModifiers::empty();
        let mut rest = text;
        while let Some((row, after)) = MODIFIERS.iter().find_map(|row| {
            let (start, after) = rest.split_at_checked(row.1.len())?;
            (start.eq_ignore_ascii_case(row.1) && !after.is_empty()).then_some((row, after))
        }) {
            modifiers.insert(row.0);
            rest = after;
        }
        let mut characters = rest.chars();
        let code = match (characters.next(), characters.next()) {
            (Some(c), None) if !c.is_control() => KeyCode::Char(c),
            _ => {
                let name = rest.to_ascii_lowercase();
                let function = name.strip_prefix('f').and_then(|number| number.parse().ok());
                match (NAMES.iter().find(|row| row.1 == name), function) {
                    (Some(row), _) => row.0,
                    (None, Some(number)) if (1..=LAST_FUNCTION_KEY).contains(&number) => KeyCode::F(number),
                    _ => return Err(problem()),
                }
            }
        };
        Ok(Self::new(code, modifiers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    #[test]
    fn a_key_is_read_and_written_as_users_write_it() {
        for name in [
            "ctrl-x",
            "alt-enter",
            "f5",
            "g",
            "G",
            "pageup",
            "space",
            "alt-1",
            "shift-tab",
            "-",
            "ctrl-_",
            "?",
        ] {
            assert_eq!(key(name).name(), name);
        }
        assert_eq!(key("Ctrl-X"), key("ctrl-x"));
        assert_eq!(key("ctrl-alt-f12").to_string(), "Ctrl-Alt-F12");
        for (name, shown) in
            [("ctrl-x", "Ctrl-X"), ("alt-up", "Alt-↑"), ("enter", "↵"), ("f1", "F1"), ("G", "G"), ("g", "g")]
        {
            assert_eq!(key(name).to_string(), shown);
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_examples() {
        for name in ["", "ctrl-", "f0", "f25", "f999", "hyper-x", "enterr", "ab", "\u{1b}"] {
            let problem = name.parse::<Key>().unwrap_err();
            assert!(problem.contains("`ctrl-x`"), "{problem}");
        }
    }

    #[test]
    fn one_key_has_one_form_however_the_terminal_reports_it() {
        let event = |code, modifiers| Key::from(KeyEvent::new(code, modifiers));
        assert_eq!(event(KeyCode::Char('G'), KeyModifiers::SHIFT), key("G"));
        assert_eq!(event(KeyCode::Char('g'), KeyModifiers::SHIFT), key("G"));
        assert_eq!(event(KeyCode::Char('X'), KeyModifiers::CONTROL | KeyModifiers::SHIFT), key("ctrl-x"));
        assert_eq!(event(KeyCode::BackTab, KeyModifiers::SHIFT), key("shift-tab"));
        assert_eq!(event(KeyCode::Char('7'), KeyModifiers::CONTROL), key("ctrl-_"));
        assert_eq!(event(KeyCode::Char('?'), KeyModifiers::SHIFT), key("?"));
    }
}
