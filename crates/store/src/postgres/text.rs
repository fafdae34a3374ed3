//! Texts that PostgreSQL can hold: all but the NUL character, which is escaped.
//!
//! Nearly every text is stored unchanged, so that queries by hand find it.

use std::borrow::Cow;

/// Precedes an escaped character: itself, or the sign for NUL. A control character that no one types.
const ESCAPE: char = '\u{1a}';
const NUL: char = '0';

/// Returns a text as it is stored.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        match char {
            '\0' => escaped.extend([ESCAPE, NUL]),
            ESCAPE => escaped.extend([ESCAPE, ESCAPE]),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

/// Returns a text as it was given.
pub(super) fn unescaped(stored: &str) -> String {
    let mut text = String::with_capacity(stored.len());
    let mut chars = stored.chars();
    while let Some(char) = chars.next() {
        match char {
            ESCAPE => match chars.next() {
                Some(NUL) => text.push('\0'),
                // A text of another program may hold anything.
                Some(other) => text.push(other),
                None => text.push(ESCAPE),
            },
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_text_is_stored_as_it_is() {
        assert_eq!(escaped("it's 0 \\u0000 \n"), "it's 0 \\u0000 \n");
        assert_eq!(escaped("a\0b\u{1a}"), "a\u{1a}0b\u{1a}\u{1a}");
    }

    proptest! {
        #[test]
        fn every_text_comes_back_and_none_has_a_nul(chars in proptest::collection::vec(
            prop_oneof![Just('\0'), Just('\u{1a}'), Just('0'), any::<char>()], 0..12))
        {
            let text: String = chars.into_iter().collect();
            let stored = escaped(&text).into_owned();
            prop_assert!(!stored.contains('\0'));
            prop_assert_eq!(unescaped(&stored), text);
        }
    }
}
