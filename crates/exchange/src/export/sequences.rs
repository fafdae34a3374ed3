//! Output of tools without what they write for terminals.

use std::borrow::Cow;

/// Removes what tools write for terminals: colours and other escape sequences, and the `\r` of line ends.
pub(super) fn without_sequences(text: &str) -> Cow<'_, str> {
    if !text.contains(['\u{1b}', '\r']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\r', Some('\n')) => {}
            // A control sequence ends with a letter, or another character of this range.
            ('\u{1b}', Some('[')) => {
                chars.next();
                while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
                chars.next_if(|c| matches!(c, '@'..='~'));
            }
            // A string such as a title ends with a bell, or with an escape and a backslash.
            ('\u{1b}', Some(']')) => {
                while chars.next_if(|c| !matches!(c, '\u{7}' | '\u{1b}' | '\n')).is_some() {}
                match chars.peek() {
                    Some('\u{7}') => drop(chars.next()),
                    Some('\u{1b}') => {
                        chars.next();
                        chars.next_if_eq(&'\\');
                    }
                    _ => {}
                }
            }
            (c, _) => out.push(c),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_of_terminals_are_left_out() {
        for (text, expected) in [
            ("plain\n", "plain\n"),
            ("\u{1b}[1;31mred\u{1b}[0m\r\nnext\u{1b}[K", "red\nnext"),
            ("\u{1b}]0;title\u{7}x\u{1b}]8;;http://a\u{1b}\\y", "xy"),
            ("\u{1b}[<script>", "cript>"),
            ("\u{1b}x", "\u{1b}x"),
        ] {
            assert_eq!(without_sequences(text), expected, "{text:?}");
        }
    }
}
