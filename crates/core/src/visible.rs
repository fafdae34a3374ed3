//! Text from outside, made safe to show.
//!
//! Whatever a model, a tool or a file says may hold escape sequences that move the cursor, change the title
//! or write to the clipboard, and direction marks that make a line read differently from what it is. Every
//! text that goes to a terminal passes through here once, at the edge.

use std::borrow::Cow;
use std::fmt::Write;

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

/// Says whether a terminal may act on this character, or show others in an order they do not have.
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
}
