//! Sequences for the world outside the screen: the clipboard, the bell, questions to the terminal.

use std::fmt::Write;

use azureal::visible_line;
use crossterm::Command;
use crossterm::clipboard::CopyToClipboard;

use crate::theme::Background;

/// The most bytes of a text for the clipboard. Terminals drop longer ones without a word.
pub const CLIPBOARD_LIMIT: usize = 74_000;
/// The most characters of a notification.
const NOTIFICATION_LIMIT: usize = 160;

/// Asks for the background colour, for the keyboard protocol, and last for what every terminal answers.
pub(super) const QUESTIONS: &str = "\x1b]11;?\x1b\\\x1b[?u\x1b[c";

/// Returns the sequence that puts a text into the clipboard (OSC 52); `None` if the text is too large.
pub(super) fn copy(text: &str, is_in_tmux: bool) -> Option<String> {
    if text.len() > CLIPBOARD_LIMIT {
        return None;
    }
    let mut sequence = String::new();
    CopyToClipboard::to_clipboard_from(text).write_ansi(&mut sequence).ok()?;
    if is_in_tmux {
        // tmux takes the sequence itself, or passes it on to its terminal, or neither: that depends on its settings.
        let passed_on = sequence.replace('\x1b', "\x1b\x1b");
        write!(sequence, "\x1bPtmux;{passed_on}\x1b\\").ok()?;
    }
    Some(sequence)
}

/// Returns the bell, and the notification of terminals that have one (OSC 9).
pub(super) fn bell(text: &str) -> String {
    let text: String = visible_line(text).chars().take(NOTIFICATION_LIMIT).collect();
    // The name comes first: some terminals take a leading number for a command.
    format!("\x07\x1b]9;azureal: {text}\x1b\\")
}

/// Returns whether a colour is a dark or a light background.
pub(super) fn background(red: u16, green: u16, blue: u16) -> Background {
    let luma = 2126 * u32::from(red) + 7152 * u32::from(green) + 722 * u32::from(blue);
    if luma > 10_000 * 0x7fff { Background::Light } else { Background::Dark }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_bounded_and_wrapped_for_tmux() {
        assert_eq!(copy("hi", false).as_deref(), Some("\x1b]52;c;aGk=\x1b\\"));
        assert_eq!(
            copy("hi", true).as_deref(),
            Some("\x1b]52;c;aGk=\x1b\\\x1bPtmux;\x1b\x1b]52;c;aGk=\x1b\x1b\\\x1b\\")
        );
        assert!(copy(&"x".repeat(CLIPBOARD_LIMIT), false).is_some());
        assert_eq!(copy(&"x".repeat(CLIPBOARD_LIMIT + 1), false), None);
    }

    #[test]
    fn a_notification_has_no_control_characters_of_its_text() {
        let bell = bell("S3 \x1b]52;c;aGk=\x07 done\nnow\u{9c}");
        let text = bell.strip_prefix("\x07\x1b]9;azureal: ").unwrap().strip_suffix("\x1b\\").unwrap();
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }

    #[test]
    fn backgrounds_are_dark_or_light() {
        assert_eq!(background(0, 0, 0), Background::Dark);
        assert_eq!(background(0x2222, 0x2222, 0x4444), Background::Dark);
        assert_eq!(background(0xffff, 0xffff, 0xffff), Background::Light);
        assert_eq!(background(0xfdfd, 0xf6f6, 0xe3e3), Background::Light);
    }
}
