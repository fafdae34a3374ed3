//! Text of others on one line of a ledger.

use crate::prompts::shortened;

/// Returns a text on one line, without control characters and sequences of a terminal, at most so many characters and a mark.
pub(super) fn plain_line(text: &str, chars: usize) -> String {
    let mut line = String::new();
    // Only as much as can be shown is put together, however long the text is.
    let mut characters = text.chars().take(chars.saturating_mul(4));
    let mut length = 0;
    while let Some(c) = characters.next() {
        if c == '\u{1b}' {
            skip_sequence(&mut characters);
        } else if c.is_whitespace() || crate::defuse::is_line_break(c) {
            if !line.is_empty() && !line.ends_with(' ') {
                line.push(' ');
                length += 1;
            }
        } else if !c.is_control() {
            line.push(c);
            length += 1;
        }
        if length > chars {
            break;
        }
    }
    let line = line.trim_end();
    match line.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or(line).trim_end()),
        None => line.to_owned(),
    }
}

/// Skips the rest of a sequence such as `ESC [ 3 1 m`.
fn skip_sequence(characters: &mut impl Iterator<Item = char>) {
    if characters.next() == Some('[') {
        characters.by_ref().take(32).find(char::is_ascii_alphabetic);
    }
}

/// Returns a name in a list of names: quoted if it could be taken for several, or for more than a name.
pub(super) fn listed_name(name: &str) -> String {
    let name = shortened(name, 200);
    let is_plain =
        |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, ',' | ';' | ':' | '"' | '\\');
    if name.chars().all(is_plain) && !name.is_empty() { name.into_owned() } else { format!("{name:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_breaks_and_no_control_characters() {
        assert_eq!(plain_line(" a\r\n\tb\u{2028}c\u{1b}[31;1md\u{1b}[0m\u{7} ", 20), "a b cd");
        assert_eq!(plain_line("abcdef", 3), "abc…");
        assert_eq!(plain_line("abc", 3), "abc");
        assert_eq!(plain_line("\n\n## User", 20), "## User");
    }

    #[test]
    fn a_name_that_could_be_taken_for_several_is_quoted() {
        assert_eq!(listed_name("main.rs"), "main.rs");
        assert_eq!(listed_name("a, b\n## User"), r#""a, b\n## User""#);
        assert_eq!(listed_name(""), "\"\"");
    }
}
