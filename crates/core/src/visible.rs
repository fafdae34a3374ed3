//! Text from outside, escaped for display.
//!
//! A text of a model, a tool or a file may hold escape sequences that move the cursor, change the title or write to
//! the clipboard. Direction marks make a line read differently from its content. Every text for a terminal is escaped
//! here once, at the edge.

use std::borrow::Cow;
use std::fmt::{Display, Write};

use serde::Serialize;

/// Replaces what a terminal would act on by what it stands for; line breaks and tabs stay.
///
/// ```
/// use azureal_core::visible;
///
/// assert_eq!(visible("a\x1b[2Jb"), "a\u{241b}[2Jb");
/// assert_eq!(visible("x\u{202e}y"), "x<U+202E>y");
/// assert_eq!(visible("plain text\n"), "plain text\n");
/// ```
pub fn visible(text: &str) -> Cow<'_, str> {
    replace(text, |c| matches!(c, '\n' | '\t'))
}

/// Like [`visible`], for text that must stay on one line: line breaks become visible too.
pub fn visible_line(text: &str) -> Cow<'_, str> {
    replace(text, |_| false)
}

/// Quotes a text of a user or of a file in a message: one line, in backquotes.
///
/// ```
/// assert_eq!(azureal_core::quoted("a\nb"), "`a\u{240a}b`");
/// ```
pub fn quoted(text: impl Display) -> String {
    format!("`{}`", visible_line(&text.to_string()))
}

/// Returns whether a terminal may act on this character, or show others in an order they do not have.
pub fn acts_on_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{2028}' | '\u{2029}')
        || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

fn replace(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let acts = |c: char| acts_on_terminal(c) && !stays(c);
    let Some(first) = text.find(acts) else {
        return Cow::Borrowed(text);
    };
    let (clean, rest) = text.split_at(first);
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(clean);
    for c in rest.chars() {
        match u32::from(c) {
            _ if !acts(c) => out.push(c),
            // Control characters below the space have pictures of their own.
            code @ 0..=0x1F => out.push(char::from_u32(0x2400 + code).unwrap_or(char::REPLACEMENT_CHARACTER)),
            0x7F => out.push('\u{2421}'),
            // Writing to a string does not fail.
            code => drop(write!(out, "<U+{code:04X}>")),
        }
    }
    Cow::Owned(out)
}

/// Serializes a value as one line of JSON that is safe to show.
///
/// ```
/// assert_eq!(azureal_core::to_visible_json("a\u{9b}2J")?, r#""a\u009b2J""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn to_visible_json(value: &(impl Serialize + ?Sized)) -> serde_json::Result<String> {
    let text = serde_json::to_string(value)?;
    // A text may have megabytes: it is copied only if a character was escaped.
    let escaped = match visible_json(&text) {
        Cow::Borrowed(_) => None,
        Cow::Owned(escaped) => Some(escaped),
    };
    Ok(escaped.unwrap_or(text))
}

/// Escapes the characters of a JSON text that a terminal would act on, and puts the text on one line.
///
/// JSON itself escapes control characters below the space inside strings. So unescaped ones are between tokens,
/// where a space means the same. All others occur only inside strings.
pub fn visible_json(text: &str) -> Cow<'_, str> {
    escape_json(text, acts_on_terminal)
}

/// Escapes all characters of a JSON text that are not ASCII, for programs that guess at encodings. Line breaks stay.
pub fn ascii_json(text: &str) -> Cow<'_, str> {
    escape_json(text, |c| !c.is_ascii() || (c.is_control() && c != '\n'))
}

fn escape_json(text: &str, acts: impl Fn(char) -> bool) -> Cow<'_, str> {
    let Some(first) = text.find(&acts) else {
        return Cow::Borrowed(text);
    };
    let (clean, rest) = text.split_at(first);
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(clean);
    let mut units = [0; 2];
    for c in rest.chars() {
        match c {
            _ if !acts(c) => out.push(c),
            '\0'..=' ' => out.push(' '),
            _ => {
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_acts_is_left() {
        let everything: String = (0..=0x2FFF).filter_map(char::from_u32).collect();
        assert!(visible_line(&everything).chars().all(|c| !acts_on_terminal(c)));
        assert!(visible(&everything).chars().all(|c| !acts_on_terminal(c) || c == '\n' || c == '\t'));
    }

    #[test]
    fn joined_characters_stay_joined() {
        let family = "👨\u{200D}👩\u{200D}👧";
        assert_eq!(visible(family), family);
    }

    #[test]
    fn json_keeps_its_meaning_and_cannot_act() {
        let hostile = "a\u{1b}]52;c;x\u{7}\u{9b}2J\u{202e}\u{2028}\u{7f}\n\t é 👩";
        let text = to_visible_json(hostile).unwrap();
        assert!(!text.chars().any(acts_on_terminal), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), hostile);
        let ascii = serde_json::to_string(hostile).unwrap();
        let ascii = ascii_json(&ascii);
        assert!(ascii.is_ascii());
        assert_eq!(serde_json::from_str::<String>(&ascii).unwrap(), hostile);
    }

    #[test]
    fn white_space_between_tokens_stays_white_space() {
        assert_eq!(visible_json("{\r\n\t\"a\": \"b\\n\"}"), "{   \"a\": \"b\\n\"}");
    }
}
