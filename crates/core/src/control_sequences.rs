//! Control sequences for terminals in the output of tools: colours, titles, links.
//!
//! A reader of a page or of a document does not see them. So masking looks at a text without them, and exports leave them out.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// The control sequences of ECMA-48 that programs write.
const SEQUENCES: &str = r"(?x)
    # Ends with a letter or another character of this range, or is cut off.
    (?:\x1b\[|\u{9b}) [\x20-\x3f]* [\x40-\x7e]?
    # A string such as a title ends with a bell, with an escape and a backslash, or with its line.
  | \x1b[\]PX^_] [^\x07\x1b\n]* (?:\x07|\x1b\\)?
    # The character set, the position of the cursor, the mode of the keypad.
  | \x1b[\x20-\x2f]+ [\x30-\x7e]
  | \x1b[78=>]";

/// Colours as JSON and languages write them: `\u001b[31m`, `\x1b[31m`, `\033[31m`, `\e[31m`. The backslashes can be escaped again. No
/// quotation mark is in them, so one that is removed is never half of a pair.
const ESCAPED: &str = r"\\+(?:u001[bB]|u\{1[bB]\}|x1[bB]|033|e)\[[0-9;:?]*[A-Za-z]";

/// Returns the text without control sequences. Borrows the text if it has none.
///
/// ```
/// use azureal_core::without_control_sequences;
///
/// assert_eq!(without_control_sequences("\x1b[1;31mred\x1b[0m"), "red");
/// ```
pub fn without_control_sequences(text: &str) -> Cow<'_, str> {
    static ACTING: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(SEQUENCES).ok());
    ACTING.as_ref().map_or(Cow::Borrowed(text), |sequences| sequences.replace_all(text, ""))
}

/// A text without its control sequences, also without those that are escaped.
pub(crate) struct Uncoloured {
    pub(crate) text: String,
    /// The places where something was removed: in this text, and behind it in the whole text.
    removed: Vec<(usize, usize)>,
}

impl Uncoloured {
    /// Removes the control sequences; `None` if there are none.
    pub(crate) fn of(text: &str) -> Option<Self> {
        static ALL: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(&format!("{SEQUENCES}\n|{ESCAPED}")).ok());
        let (mut plain, mut removed, mut done) = (String::new(), Vec::new(), 0);
        for sequence in ALL.as_ref()?.find_iter(text) {
            plain.push_str(text.get(done..sequence.start())?);
            done = sequence.end();
            removed.push((plain.len(), done));
        }
        if removed.is_empty() {
            return None;
        }
        plain.push_str(text.get(done..)?);
        Some(Self { text: plain, removed })
    }

    /// Returns the part of the whole text that has a part of this one, with the control sequences inside of it.
    pub(crate) fn range_in_whole(&self, range: Range<usize>) -> Range<usize> {
        // Behind the sequences at its start, and before those at its end.
        let start = self.removed.partition_point(|(at, _)| *at <= range.start);
        let end = self.removed.partition_point(|(at, _)| *at < range.end);
        self.in_whole(range.start, start)..self.in_whole(range.end, end)
    }

    /// Returns the place in the whole text, with so many removed parts before it.
    fn in_whole(&self, at: usize, before: usize) -> usize {
        let last = before.checked_sub(1).and_then(|last| self.removed.get(last));
        last.map_or(at, |(here, whole)| whole + at - here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_are_left_out() {
        for (text, expected) in [
            ("plain\n", "plain\n"),
            ("\u{1b}[1;31mred\u{1b}[0m\nnext\u{1b}[K", "red\nnext"),
            ("\u{1b}]0;title\u{7}x\u{1b}]8;;http://a\u{1b}\\y", "xy"),
            ("\u{1b}]0;cut off\nnext", "\nnext"),
            ("\u{1b}]0;cut off\u{1b}[1mbold", "bold"),
            ("\u{1b}(B\u{1b}[mreset\u{9b}0m", "reset"),
            ("\u{1b}[<script>", "cript>"),
            ("\u{1b}x", "\u{1b}x"),
            ("\\u001b[31mwritten", "\\u001b[31mwritten"),
        ] {
            assert_eq!(without_control_sequences(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_part_without_sequences_has_its_place_in_the_whole() {
        for text in [
            "a\u{1b}[31mkey\u{1b}[0mb",
            "akey\u{1b}[0m\u{1b}[1mb",
            "a\u{1b}[31m\u{1b}[Kk\u{1b}[mey\u{1b}[0mb",
            r"a\\u001b[31mkey\033[0mb",
            r"a\x1B[31mk\e[mey\u{1b}[0mb",
        ] {
            let plain = Uncoloured::of(text).unwrap();
            assert_eq!(plain.text, "akeyb", "{text:?}");
            let key = &text[plain.range_in_whole(1..4)];
            assert!(key.starts_with('k') && key.ends_with('y'), "{text:?}: {key:?}");
            assert_eq!(plain.range_in_whole(0..5), 0..text.len(), "{text:?}");
        }
        assert!(Uncoloured::of(r"a\nb [31m").is_none());
    }
}
