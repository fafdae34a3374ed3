//! Deduplication of items that Codex prints twice.
//!
//! After a broken connection Codex sends its request again, and finished items come a second time under new ids.
//! After such a break, reasoning and messages that equal those since the last tool item, in their order, are dropped.
//! A different text stays: it was an attempt, and the user has seen it.

use std::ops::Range;

/// The bytes that are remembered. An agent that prints without end must not fill the memory.
const MOST_BYTES: usize = 16 << 20;

/// The texts since the last tool item, and the part of them that has come again.
#[derive(Default)]
pub(super) struct Repeats {
    said: Vec<(Kind, String)>,
    bytes: usize,
    /// The part of `said` that may still come again; empty while no connection broke.
    awaited: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Thought,
    Message,
}

impl Repeats {
    /// A tool was used: earlier texts do not come again.
    pub(super) fn tool(&mut self) {
        *self = Self::default();
    }

    /// The connection broke.
    pub(super) fn broke(&mut self) {
        self.awaited = 0..self.said.len();
    }

    /// Returns whether this text came before.
    pub(super) fn is_repeat(&mut self, kind: Kind, text: &str) -> bool {
        let awaited = self.said.get(self.awaited.clone()).unwrap_or(&[]);
        match awaited.iter().position(|said| said.0 == kind && said.1 == text) {
            Some(at) => {
                self.awaited.start += at + 1;
                true
            }
            None => {
                if self.bytes > MOST_BYTES {
                    self.tool();
                }
                self.bytes += size_of::<(Kind, String)>() + text.len();
                self.said.push((kind, text.to_owned()));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays what is said, `!` for a break and `*` for a tool, and returns what is kept.
    fn kept(script: &str) -> String {
        let mut repeats = Repeats::default();
        let mut kept = Vec::new();
        for word in script.split(' ') {
            match word {
                "!" => repeats.broke(),
                "*" => repeats.tool(),
                text => {
                    let kind = if text.starts_with('t') { Kind::Thought } else { Kind::Message };
                    if !repeats.is_repeat(kind, text) {
                        kept.push(text);
                    }
                }
            }
        }
        kept.join(" ")
    }

    #[test]
    fn what_comes_again_after_a_break_is_dropped() {
        for (script, expected) in [
            ("t1 a ! t1 a b", "t1 a b"),
            ("a a", "a a"),
            ("a ! b", "a b"),
            ("t1 a ! t2 a b", "t1 a t2 b"),
            ("a b ! a ! a b c", "a b c"),
            ("a b ! x ! a b c", "a b x c"),
            ("a * b ! a b", "a b a"),
            ("a * ! a", "a a"),
            ("a ! * a", "a a"),
            ("! a a", "a a"),
            ("a a ! a a a", "a a a"),
        ] {
            assert_eq!(kept(script), expected, "{script}");
        }
    }
}
