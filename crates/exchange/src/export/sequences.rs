//! Output of tools without what they write for terminals.

use std::borrow::Cow;

use azureal_core::without_control_sequences;

/// Removes what tools write for terminals: colours and other control sequences, and the `\r` of line ends.
pub(super) fn without_sequences(text: &str) -> Cow<'_, str> {
    let text = without_control_sequences(text);
    if text.contains("\r\n") { Cow::Owned(text.replace("\r\n", "\n")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_terminals_is_left_out() {
        for (text, expected) in [
            ("plain\n", "plain\n"),
            ("\u{1b}[1;31mred\u{1b}[0m\r\nnext\u{1b}[K", "red\nnext"),
            ("a\rb\r", "a\rb\r"),
        ] {
            assert_eq!(without_sequences(text), expected, "{text:?}");
        }
    }
}
