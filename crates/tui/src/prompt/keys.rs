//! The actions and keys of the box.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::burst::Enter;
use super::editor::Run;
use super::recall::Search;
use super::text::Text;
use super::{History, LARGEST, Layer, PathMark, PromptBox, PromptOutcome, refusal};
use crate::keys::Action;

impl PromptBox {
    /// Performs an action. Actions that are not for the box are ignored.
    pub fn act(&mut self, action: Action, history: &History) -> PromptOutcome {
        match action {
            Action::Send | Action::Queue => return self.enter(action),
            Action::Back | Action::Cancel => {
                return if self.escape() { PromptOutcome::Done } else { PromptOutcome::Ignored };
            }
            _ => {}
        }
        match self.layer() {
            Layer::Search if is_ours(action) => self.act_in_search(action, history),
            Layer::Paths if matches!(action, Action::Up | Action::Down) => {
                self.paths.step(action == Action::Down);
                PromptOutcome::Done
            }
            Layer::Paths if action == Action::CompletePath => self.take_path(),
            _ => self.edit(action, history),
        }
    }

    /// Performs an action on the text.
    fn edit(&mut self, action: Action, history: &History) -> PromptOutcome {
        if !is_ours(action) {
            return PromptOutcome::Ignored;
        }
        self.end_burst();
        let was_removing = std::mem::take(&mut self.is_removing);
        let cursor = self.editor.cursor();
        let editor = &mut self.editor;
        match action {
            Action::Newline => return self.newline(),
            Action::LineStart => editor.move_to(editor.line_start()),
            Action::LineEnd => editor.move_to(editor.line_end()),
            Action::WordLeft => editor.move_to(editor.word_left()),
            Action::WordRight => editor.move_to(editor.word_right()),
            Action::Undo => drop(editor.undo()),
            Action::Redo => drop(editor.redo()),
            Action::DeleteToEnd | Action::DeleteToStart | Action::DeleteWord => {
                self.is_removing = was_removing;
                let range = match action {
                    // At the end of a line, the line break is removed: so the same key again continues with the next line.
                    Action::DeleteToEnd if self.editor.line_end() == cursor => cursor..self.editor.right(),
                    Action::DeleteToEnd => cursor..self.editor.line_end(),
                    Action::DeleteToStart if self.editor.line_start() == cursor => self.editor.left()..cursor,
                    Action::DeleteToStart => self.editor.line_start()..cursor,
                    _ => self.editor.blank_left()..cursor,
                };
                self.remove(range);
            }
            Action::PutBack => {
                let removed = self.removed.clone();
                if self.editor.text().expanded_len() + removed.expanded_len() > LARGEST {
                    return refusal();
                }
                self.editor.insert(removed, Run::Ended);
            }
            Action::Up | Action::Down => return self.move_by_row(action == Action::Down, history),
            Action::HistorySearch => {
                self.paths.close();
                self.search = Some(Search::new(history));
                return PromptOutcome::Done;
            }
            Action::CompletePath => {
                self.paths.reopen();
                return match PathMark::find(self.editor.text(), self.editor.cursor()) {
                    Some(_) => self.complete(true),
                    None => PromptOutcome::Ignored,
                };
            }
            _ => return PromptOutcome::Ignored,
        }
        self.complete(false)
    }

    /// Enter: takes what is chosen, breaks the line, or sends. In a burst it chooses nothing: it was not typed.
    fn enter(&mut self, action: Action) -> PromptOutcome {
        let is_burst = self.burst.size().is_some();
        match self.layer() {
            Layer::Search => {
                self.take_found();
                return PromptOutcome::Done;
            }
            Layer::Paths if !is_burst && !self.paths.is_exact() => return self.take_path(),
            Layer::Paths | Layer::Text => {}
        }
        if action == Action::Queue {
            self.end_burst();
            return self.send(PromptOutcome::Queue);
        }
        match self.burst.enter() {
            Enter::Sends => self.send_unless_escaped(),
            Enter::Breaks(count) => {
                self.editor.insert(Text::from("\n".repeat(count).as_str()), Run::Burst);
                PromptOutcome::Done
            }
            Enter::Held { until_ms } => PromptOutcome::Wait { until_ms },
        }
    }

    /// Sends, or breaks the line in place of a backslash before the cursor. Two backslashes are meant as such.
    pub(super) fn send_unless_escaped(&mut self) -> PromptOutcome {
        let cursor = self.editor.cursor();
        let text = self.editor.text().chars(0..cursor);
        let backslashes = text.len() - text.trim_end_matches('\\').len();
        if backslashes.is_multiple_of(2) {
            return self.send(PromptOutcome::Send);
        }
        self.editor.change(cursor - 1..cursor, Text::from("\n"), Run::Ended);
        self.complete(false)
    }

    /// Returns the outcome, unless the text cannot be sent. A blank text is no prompt.
    fn send(&self, outcome: PromptOutcome) -> PromptOutcome {
        match self.editor.text() {
            text if text.is_blank() => PromptOutcome::Done,
            text if text.expanded_len() > LARGEST => refusal(),
            _ => outcome,
        }
    }

    fn newline(&mut self) -> PromptOutcome {
        if self.editor.text().expanded_len() >= LARGEST {
            return refusal();
        }
        self.editor.insert(Text::from("\n"), Run::Typing);
        self.complete(false)
    }

    /// Moves the cursor by a row of the screen, or through the history at the first and last row.
    fn move_by_row(&mut self, down: bool, history: &History) -> PromptOutcome {
        let layout = self.layout(usize::MAX);
        let (row, column) = layout.position(self.editor.text(), self.editor.cursor());
        let goal = self.editor.goal().unwrap_or(column);
        let target = if down { row.checked_add(1) } else { row.checked_sub(1) };
        match target.and_then(|row| layout.offset(self.editor.text(), row, goal)) {
            Some(offset) => {
                self.editor.move_to_row(offset, goal);
                self.complete(false)
            }
            None if self.browse(!down, history) => PromptOutcome::Done,
            None => PromptOutcome::Ignored,
        }
    }

    /// Performs an action while the history is searched. Other actions than those of the search take the entry and act on it.
    fn act_in_search(&mut self, action: Action, history: &History) -> PromptOutcome {
        let Some(search) = &mut self.search else { return PromptOutcome::Ignored };
        match action {
            Action::HistorySearch | Action::Up => search.older(),
            Action::Down => search.newer(),
            Action::DeleteWord | Action::DeleteToStart => search.clear(),
            _ => {
                self.take_found();
                return self.edit(action, history);
            }
        }
        PromptOutcome::Done
    }

    /// Handles a key that the table of keys does not have: characters, and keys that edit.
    pub fn key(&mut self, key: KeyEvent, history: &History) -> PromptOutcome {
        if key.kind == KeyEventKind::Release {
            return PromptOutcome::Ignored;
        }
        // Keys with these are for the window system.
        if key.modifiers.intersects(KeyModifiers::SUPER | KeyModifiers::HYPER | KeyModifiers::META) {
            return PromptOutcome::Ignored;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        // Esc and then Ctrl-X, pressed quickly, are reported as one key. AltGr makes no such letter.
        if control && alt && matches!(key.code, KeyCode::Char(c) if c.is_ascii_alphabetic()) {
            return PromptOutcome::Ignored;
        }
        if let KeyCode::Char(c) = key.code
            // AltGr is reported as both.
            && control == alt
        {
            return self.insert(c);
        }
        if let Some(search) = &mut self.search {
            if key.code == KeyCode::Backspace {
                search.delete();
                return PromptOutcome::Done;
            }
            if !matches!(key.code, KeyCode::Enter | KeyCode::Esc | KeyCode::Up | KeyCode::Down | KeyCode::Tab)
            {
                self.take_found();
            }
        }
        match (key.code, control, alt) {
            (KeyCode::Enter, false, false) if !key.modifiers.contains(KeyModifiers::SHIFT) => {
                self.act(Action::Send, history)
            }
            (KeyCode::Enter, ..) => self.act(Action::Newline, history),
            (KeyCode::Up, false, false) => self.act(Action::Up, history),
            (KeyCode::Down, false, false) => self.act(Action::Down, history),
            (KeyCode::Tab, false, false) => self.act(Action::CompletePath, history),
            (KeyCode::Esc, ..) => self.act(Action::Back, history),
            // A control character of the keyboard edits nothing unless the table has it.
            (KeyCode::Char(_), true, _) => PromptOutcome::Ignored,
            _ => self.edit_key(key.code, control || alt),
        }
    }

    /// Handles a key that moves or deletes. With Ctrl or Alt, it does so by words or to the ends of the text.
    fn edit_key(&mut self, key: KeyCode, by_words: bool) -> PromptOutcome {
        self.end_burst();
        let was_removing = std::mem::take(&mut self.is_removing);
        let cursor = self.editor.cursor();
        let editor = &mut self.editor;
        match (key, by_words) {
            (KeyCode::Left, false) => editor.move_to(editor.left()),
            (KeyCode::Right, false) => editor.move_to(editor.right()),
            (KeyCode::Left, true) => editor.move_to(editor.word_left()),
            (KeyCode::Right, true) => editor.move_to(editor.word_right()),
            (KeyCode::Home, false) => editor.move_to(editor.line_start()),
            (KeyCode::End, false) => editor.move_to(editor.line_end()),
            (KeyCode::Home, true) => editor.move_to(0),
            (KeyCode::End, true) => editor.move_to(editor.text().len()),
            (KeyCode::Backspace, false) => drop(editor.remove(editor.left()..cursor, Run::Deleting)),
            (KeyCode::Delete, false) => drop(editor.remove(cursor..editor.right(), Run::Deleting)),
            (KeyCode::Backspace, true) => {
                self.is_removing = was_removing;
                self.remove(self.editor.word_left()..cursor);
            }
            // Alt-D.
            (KeyCode::Delete | KeyCode::Char('d'), true) => {
                self.is_removing = was_removing;
                self.remove(cursor..self.editor.word_right());
            }
            _ => {
                self.is_removing = was_removing;
                return PromptOutcome::Ignored;
            }
        }
        self.complete(false)
    }
}

/// Returns whether an action is for the text of the box.
fn is_ours(action: Action) -> bool {
    matches!(
        action,
        Action::Newline
            | Action::LineStart
            | Action::LineEnd
            | Action::DeleteToEnd
            | Action::DeleteToStart
            | Action::DeleteWord
            | Action::PutBack
            | Action::WordLeft
            | Action::WordRight
            | Action::Undo
            | Action::Redo
            | Action::Up
            | Action::Down
            | Action::HistorySearch
            | Action::CompletePath
    )
}
