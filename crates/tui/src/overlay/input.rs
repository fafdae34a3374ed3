//! A line of text in an overlay.

use unicode_segmentation::UnicodeSegmentation;

use crate::draw::text::width;
use crate::keys::{Action, Context, Key, Keys};

/// The longest text of an input, in bytes.
const LONGEST: usize = 4_096;

/// A line of text that the user edits. The cursor is between graphemes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Input {
    before: String,
    after: String,
}

impl Input {
    /// Creates an input with a text and the cursor at its end.
    pub(crate) fn new(text: &str) -> Self {
        let mut input = Self::default();
        input.insert(text);
        input
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> String {
        format!("{}{}", self.before, self.after)
    }

    /// Returns whether there is no text.
    pub(crate) fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }

    /// Returns the column of the cursor.
    pub(crate) fn column(&self) -> u16 {
        width(&crate::draw::text::one_line(&self.before))
    }

    /// Inserts a text, without its line breaks and as far as there is room.
    pub(crate) fn insert(&mut self, text: &str) {
        for c in text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }) {
            if self.before.len().saturating_add(self.after.len()) < LONGEST {
                self.before.push(c);
            }
        }
    }

    /// Edits the text by a key. Returns whether the key means something here.
    pub(crate) fn press(&mut self, key: Key, keys: &Keys) -> bool {
        if let Some(c) = key.character() {
            self.insert(c.encode_utf8(&mut [0; 4]));
            return true;
        }
        match keys.action(Context::Prompt, key) {
            Some(Action::Left) => self.left(),
            Some(Action::Right) => self.right(),
            Some(Action::LineStart) => {
                self.after.insert_str(0, &self.before);
                self.before.clear();
            }
            Some(Action::LineEnd) => {
                self.before.push_str(&self.after);
                self.after.clear();
            }
            Some(Action::Backspace) => drop(pop(&mut self.before)),
            Some(Action::DeleteForward) => {
                let first = self.after.graphemes(true).next().map_or(0, str::len);
                self.after.drain(..first);
            }
            Some(Action::DeleteToStart) => self.before.clear(),
            Some(Action::DeleteToEnd) => self.after.clear(),
            Some(Action::DeleteWord) => {
                let trimmed = self.before.trim_end().len();
                self.before.truncate(trimmed);
                let start = self.before.rfind(' ').map_or(0, |at| at.saturating_add(1));
                self.before.truncate(start);
            }
            _ => return false,
        }
        true
    }

    fn left(&mut self) {
        if let Some(last) = pop(&mut self.before) {
            self.after.insert_str(0, &last);
        }
    }

    fn right(&mut self) {
        let first = self.after.graphemes(true).next().map_or(0, str::len);
        let moved: String = self.after.drain(..first).collect();
        self.before.push_str(&moved);
    }
}

/// Removes the last grapheme.
fn pop(text: &mut String) -> Option<String> {
    let last = text.graphemes(true).next_back()?.to_owned();
    text.truncate(text.len().saturating_sub(last.len()));
    Some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_edited_by_the_keys_of_the_prompt() {
        let keys = Keys::default();
        let mut input = Input::new("fix login");
        let mut press = |names: &[&str]| {
            for name in names {
                assert!(input.press(name.parse().unwrap(), &keys), "{name}");
            }
            input.text()
        };
        assert_eq!(press(&["ctrl-w"]), "fix ");
        assert_eq!(press(&["left", "backspace", "e", "d"]), "fied ");
        assert_eq!(press(&["home", "delete", "end", "!"]), "ied !");
        assert_eq!(press(&["ctrl-u"]), "");
        assert!(!input.press("enter".parse().unwrap(), &keys));
    }
}
