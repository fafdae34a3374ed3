//! What the user does in a pane.

use azureal::Seq;
use azureal::desk::Request;
use azureal::transcript::{Author, Block, Content};

use super::blocks::STATUS;
use super::rows::folds_by_click;
use super::view::{Place, Spot};
use super::{Pane, PromptFor, Target};
use crate::keys::Action;

/// The effect of an action beyond the pane.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    /// Requests to perform.
    pub requests: Vec<Request>,
    /// A text for the clipboard.
    pub copy: Option<String>,
    /// The last event of a fork that the user wants.
    pub fork_at: Option<Seq>,
    /// Whether the user wants to type a text to search for.
    pub opens_search: bool,
    /// A text for the status line.
    pub note: Option<String>,
}

impl Outcome {
    fn note(text: &str) -> Self {
        Self { note: Some(text.to_owned()), ..Self::default() }
    }
}

impl From<Vec<Request>> for Outcome {
    fn from(requests: Vec<Request>) -> Self {
        Self { requests, ..Self::default() }
    }
}

impl Pane {
    /// Performs an action of reading in a pane that is shown. Any other has no effect.
    pub fn act(&mut self, action: Action) -> Outcome {
        if !self.is_shown {
            return Outcome::default();
        }
        self.asked.has_failed = false;
        self.refresh();
        let page = isize::try_from(self.height.saturating_sub(2).max(1)).unwrap_or(1);
        if action != Action::CopyCode {
            self.copied = None;
        }
        match action {
            Action::RowUp => self.scroll(-1),
            Action::RowDown => self.scroll(1),
            Action::HalfUp => self.scroll(-(page / 2).max(1)),
            Action::HalfDown => self.scroll((page / 2).max(1)),
            Action::PageUp => self.scroll(-page),
            Action::PageDown => self.scroll(page),
            Action::Top => return self.go_to_top(),
            Action::Bottom => return self.go_to_end(),
            Action::PromptBefore => return self.go_to_prompt(true),
            Action::PromptAfter => return self.go_to_prompt(false),
            Action::Fold => self.fold_at_cursor(),
            Action::FoldAll => self.fold_all(),
            Action::Find => return Outcome { opens_search: true, ..Outcome::default() },
            Action::FindNext => return self.next_hit(false),
            Action::FindPrevious => return self.next_hit(true),
            Action::CopyBlock => return self.copy_block(),
            Action::CopyTurn => return self.copy_turn(),
            Action::CopyCode => return self.copy_code(),
            Action::ForkHere => return self.fork_here(),
            _ => {}
        }
        Outcome::default()
    }

    /// Chooses the block at a place on the screen, and folds it if it is no text of a conversation.
    pub fn click(&mut self, row: u16, column: u16) -> Vec<Request> {
        let _ = column;
        let Some(row) = self.view.get(usize::from(row)).copied() else { return Vec::new() };
        self.cursor = self.anchor((row.index, row.row));
        let is_blank = self.cache.rows(row.key).get(row.row).is_none();
        if !is_blank && self.blocks.get(row.index).is_some_and(folds_by_click) {
            self.fold_at_cursor();
        }
        Vec::new()
    }

    /// Returns the number of the block at the reading cursor.
    pub(super) fn cursor_index(&self) -> Option<usize> {
        match self.cursor {
            Some(cursor) => self.blocks.find(cursor.key),
            // At the end. The state of the turn is no block to read.
            None => (0..self.blocks.len()).rev().find(|&index| self.blocks.key(index) != Some(STATUS)),
        }
    }

    fn go_to_top(&mut self) -> Outcome {
        if self.window.is_at_start {
            self.show_spot((0, 0), 0);
            return Outcome::default();
        }
        self.jump(Target::Start).into()
    }

    fn go_to_end(&mut self) -> Outcome {
        if self.window.is_at_end {
            self.place = Place::End;
            self.cursor = None;
            return Outcome::default();
        }
        self.jump(Target::End).into()
    }

    fn go_to_prompt(&mut self, backwards: bool) -> Outcome {
        let Some(from) = self.cursor_index() else { return Outcome::default() };
        let is_prompt = |index: &usize| self.blocks.get(*index).is_some_and(is_prompt);
        let found = if backwards {
            (0..from).rev().find(is_prompt)
        } else {
            (from + 1..self.blocks.len()).find(is_prompt)
        };
        if let Some(index) = found {
            self.show_spot((index, 0), 0);
            return Outcome::default();
        }
        let (is_at_edge, edge, note) = if backwards {
            (self.window.is_at_start, self.window.first(), "no earlier prompt")
        } else {
            (self.window.is_at_end, self.window.last(), "no later prompt")
        };
        match edge {
            Some(from) if !is_at_edge => {
                self.asked.prompt = Some(PromptFor::Reading);
                vec![Request::FindPrompt { pane: self.id, from, backwards }].into()
            }
            _ => Outcome::note(note),
        }
    }

    fn fold_at_cursor(&mut self) {
        let Some(index) = self.cursor_index() else { return };
        // An empty text has no rows: nothing of it is seen to fold, and the cursor would leave it.
        if self.anchor((index, 0)).is_none_or(|anchor| self.cache.rows(anchor.key).is_empty()) {
            return;
        }
        self.fold_around(index, |pane| {
            if let Some(block) = pane.blocks.get(index) {
                pane.folds.toggle(block);
            }
        });
    }

    fn fold_all(&mut self) {
        let Some(index) = self.cursor_index() else { return };
        self.fold_around(index, |pane| pane.folds.toggle_all());
    }

    /// Changes folds. At the end, the view stays there if the beginning of the block stays on the screen. Elsewhere, the block stays where
    /// it is on the screen; if its first row is not on it, it begins at the top.
    fn fold_around(&mut self, index: usize, change: impl FnOnce(&mut Self)) {
        let Some(top) = self.top() else { return };
        let above = self.rows_between(top, (index, 0));
        change(self);
        self.cursor = self.anchor((index, 0));
        if self.place == Place::End && self.top().is_some_and(|top| top <= (index, 0)) {
            return;
        }
        self.show_spot((index, 0), above);
        self.top();
    }

    /// Counts the rows from one to a later one, at most those of a screen.
    fn rows_between(&mut self, from: Spot, to: Spot) -> usize {
        let mut rows = 0;
        let mut spot = to;
        while spot > from && rows < usize::from(self.height) {
            spot = self.up(spot, 1).0;
            rows += 1;
        }
        rows
    }
}

/// Returns whether a block is a prompt of the user.
pub(super) fn is_prompt(block: &Block) -> bool {
    matches!(&block.content, Content::Text(text) if text.author == Author::User)
}
