//! A text with a cursor: editing, undo and redo.

use std::ops::Range;

use super::text::{Kind, Text};

/// The most changes that can be undone, and the most bytes of text in them. The last change can always be undone.
const MOST_CHANGES: usize = 1_000;
const MOST_BYTES: usize = 64 << 20;

/// A text with a cursor, and its changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Editor {
    text: Text,
    /// Never inside a unit.
    cursor: usize,
    /// The column that motions by rows try to keep.
    goal: Option<u16>,
    done: Vec<Change>,
    undone: Vec<Change>,
    run: Run,
}

#[derive(Debug, Clone)]
struct Change {
    at: usize,
    removed: Text,
    inserted: Text,
    /// The cursor before and after.
    cursor: (usize, usize),
}

impl Change {
    fn bytes(&self) -> usize {
        self.removed.expanded_len() + self.inserted.expanded_len()
    }
}

/// Changes that are undone together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Run {
    /// None: the next change is its own.
    #[default]
    Ended,
    /// Typed characters, up to the end of a word.
    Typing,
    /// Characters deleted one by one.
    Deleting,
    /// Characters that arrive too fast to be typed.
    Burst,
}

impl Editor {
    pub(super) fn new(text: Text) -> Self {
        Self { cursor: text.len(), text, ..Self::default() }
    }

    pub(super) fn text(&self) -> &Text {
        &self.text
    }

    pub(super) fn cursor(&self) -> usize {
        self.cursor
    }

    /// Returns whether the text differs from the one that it began with.
    pub(super) fn is_changed(&self) -> bool {
        !self.done.is_empty()
    }

    pub(super) fn goal(&self) -> Option<u16> {
        self.goal
    }

    pub(super) fn move_to(&mut self, at: usize) {
        self.cursor = self.text.snap(at);
        (self.goal, self.run) = (None, Run::Ended);
    }

    /// Moves the cursor to another row, where it keeps its column as far as the row is long enough.
    pub(super) fn move_to_row(&mut self, at: usize, goal: u16) {
        self.move_to(at);
        self.goal = Some(goal);
    }

    pub(super) fn left(&self) -> usize {
        self.text.unit_before(self.cursor).map_or(self.cursor, |(_, start)| start)
    }

    pub(super) fn right(&self) -> usize {
        self.text.unit(self.cursor).map_or(self.cursor, |(_, end)| end)
    }

    pub(super) fn word_left(&self) -> usize {
        let word = self.text.skip_left(self.cursor, |kind| matches!(kind, Kind::Space | Kind::Sign));
        match self.text.skip_left(word, |kind| kind == Kind::Word) {
            at if at == word => self.text.skip_left(word, |kind| kind == Kind::Paste),
            at => at,
        }
    }

    pub(super) fn word_right(&self) -> usize {
        let word = self.text.skip_right(self.cursor, |kind| matches!(kind, Kind::Space | Kind::Sign));
        match self.text.skip_right(word, |kind| kind == Kind::Word) {
            at if at == word => self.text.skip_right(word, |kind| kind == Kind::Paste),
            at => at,
        }
    }

    /// Returns the start of the word before the cursor, where only spaces separate words.
    pub(super) fn blank_left(&self) -> usize {
        let word = self.text.skip_left(self.cursor, |kind| kind == Kind::Space);
        match self.text.skip_left(word, |kind| matches!(kind, Kind::Word | Kind::Sign)) {
            at if at == word => self.text.skip_left(word, |kind| kind == Kind::Paste),
            at => at,
        }
    }

    pub(super) fn line_start(&self) -> usize {
        self.text.line_start(self.cursor)
    }

    pub(super) fn line_end(&self) -> usize {
        self.text.line_end(self.cursor)
    }

    /// Inserts a text at the cursor.
    pub(super) fn insert(&mut self, text: Text, run: Run) {
        self.change(self.cursor..self.cursor, text, run);
    }

    /// Removes a range and returns it. The cursor goes to its start.
    pub(super) fn remove(&mut self, range: Range<usize>, run: Run) -> Text {
        let removed = self.text.slice(range.clone());
        if !range.is_empty() {
            self.change(range, Text::default(), run);
        }
        removed
    }

    /// Replaces a range by a text. The cursor goes to its end.
    pub(super) fn change(&mut self, range: Range<usize>, text: Text, run: Run) {
        let (at, before) = (range.start, self.cursor);
        let removed = self.text.splice(range, &text);
        self.cursor = self.text.snap(at + text.len());
        let change = Change { at, removed, inserted: text, cursor: (before, self.cursor) };
        self.undone.clear();
        self.goal = None;
        if !(run == self.run && self.done.last_mut().is_some_and(|last| joins(last, &change, run))) {
            self.done.push(change);
            self.forget();
        }
        self.run = run;
    }

    /// Drops the oldest changes over the bounds.
    fn forget(&mut self) {
        let mut bytes: usize = self.done.iter().map(Change::bytes).sum();
        let mut dropped = 0;
        for change in self.done.iter().take(self.done.len().saturating_sub(1)) {
            if bytes <= MOST_BYTES && self.done.len() - dropped <= MOST_CHANGES {
                break;
            }
            bytes -= change.bytes();
            dropped += 1;
        }
        self.done.drain(..dropped);
    }

    /// Ends a run of changes that are undone together.
    pub(super) fn end_run(&mut self) {
        self.run = Run::Ended;
    }

    pub(super) fn undo(&mut self) -> bool {
        let Some(change) = self.done.pop() else { return false };
        self.text.splice(change.at..change.at + change.inserted.len(), &change.removed);
        self.move_to(change.cursor.0);
        self.undone.push(change);
        true
    }

    pub(super) fn redo(&mut self) -> bool {
        let Some(change) = self.undone.pop() else { return false };
        self.text.splice(change.at..change.at + change.removed.len(), &change.inserted);
        self.move_to(change.cursor.1);
        self.done.push(change);
        true
    }
}

/// Adds a change to the one before it, if both are of one run.
fn joins(last: &mut Change, next: &Change, run: Run) -> bool {
    let continues =
        next.removed.is_empty() && last.removed.is_empty() && last.at + last.inserted.len() == next.at;
    let is_joined = match run {
        Run::Ended => false,
        Run::Typing => {
            let ends_word = last.inserted.chars(0..last.inserted.len()).ends_with(char::is_whitespace);
            let begins_word = !next.inserted.chars(0..next.inserted.len()).starts_with(char::is_whitespace);
            continues && !(ends_word && begins_word)
        }
        Run::Burst => continues,
        Run::Deleting if !(last.inserted.is_empty() && next.inserted.is_empty()) => false,
        Run::Deleting if next.at + next.removed.len() == last.at => {
            let mut removed = next.removed.clone();
            removed.append(&last.removed);
            (last.at, last.removed) = (next.at, removed);
            true
        }
        Run::Deleting if next.at == last.at => {
            last.removed.append(&next.removed);
            true
        }
        Run::Deleting => false,
    };
    if is_joined {
        last.inserted.append(&next.inserted);
        last.cursor.1 = next.cursor.1;
    }
    is_joined
}
