//! The prompt box: a multi-line editor with pasted texts, history, paths and waiting prompts.
//!
//! Nothing that the user types or pastes is lost: it is in the box, in the changes that can be undone, in the history or among the waiting
//! prompts. The text is kept as typed; only the screen shows control characters by their pictures.

mod burst;
mod draw;
mod editor;
mod history;
mod keys;
mod layout;
mod paths;
mod recall;
mod text;
mod waiting;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

pub use history::History;
pub use waiting::Waiting;

use burst::{Burst, Ended};
use editor::{Editor, Run};
use layout::Layout;
use paths::{PathList, PathMark};
use recall::{Place, Search};
use text::Text;

/// The largest prompt, in bytes: what `azureal run` takes, and what the header of a running turn has room for.
pub const LARGEST: usize = 10 << 20;

/// A pasted text over one of these becomes a placeholder.
const PASTED_CHARS: usize = 1_000;
const PASTED_LINES: usize = 10;

/// A text that is put into the box whole, such as a draft, becomes a placeholder over one of these: what a user typed stays readable.
const WHOLE_CHARS: usize = 8_000;
const WHOLE_LINES: usize = 200;

/// The most bytes that are laid out, apart from typed ones. Pasted text over it becomes a placeholder, however small it is.
const MOST_INLINE: usize = 32 << 10;

/// The prompt box.
#[derive(Debug, Clone, Default)]
pub struct PromptBox {
    editor: Editor,
    /// The text that the editor has, and the other texts of the user.
    place: Place,
    parked: BTreeMap<Place, Editor>,
    search: Option<Search>,
    paths: PathList,
    /// The text that was deleted last by words or lines, and whether the next deletion adds to it.
    removed: Text,
    is_removing: bool,
    burst: Burst,
    /// The size of the last drawing. Motions by rows depend on it, and the first row that is shown stays where it is.
    view: Cell<View>,
}

#[derive(Debug, Clone, Copy)]
struct View {
    /// The columns for text.
    width: u16,
    /// The first row that is shown.
    top: usize,
}

impl Default for View {
    fn default() -> Self {
        Self { width: 78, top: 0 }
    }
}

/// The result of a key or an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptOutcome {
    /// The box has used it.
    Done,
    /// The box has no use for it.
    Ignored,
    /// The prompt is to be sent: [`PromptBox::take`].
    Send,
    /// The prompt is to be queued: [`PromptBox::take`].
    Queue,
    /// Paths with this prefix are to be asked for: [`Request::CompletePath`](azureal::desk::Request::CompletePath).
    Complete {
        /// The prefix.
        prefix: String,
    },
    /// [`PromptBox::tick`] is to be called at this time, unless a key comes before it.
    Wait {
        /// The time in milliseconds.
        until_ms: u64,
    },
    /// The text was not taken, for this reason. The box is as it was.
    Refused(String),
}

/// The part of the box that receives keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The text.
    Text,
    /// The list of paths.
    Paths,
    /// The search in the history.
    Search,
}

impl PromptBox {
    /// Returns an empty box.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the text with pasted texts in full.
    pub fn text(&self) -> String {
        self.editor.text().expanded()
    }

    /// Returns the text to keep as the draft of the session: the text of the box, or the user's own text while an unchanged entry of the
    /// history is shown. The rest of the user's texts are the [`other_drafts`](Self::other_drafts).
    pub fn draft(&self) -> String {
        match self.parked.get(&Place::Own) {
            Some(own) if !self.editor.is_changed() => own.text().expanded(),
            _ => self.text(),
        }
    }

    /// Replaces the text, which can be undone. A large text becomes a placeholder.
    pub fn set_text(&mut self, text: &str) {
        self.end_burst();
        (self.search, self.is_removing) = (None, false);
        self.paths = PathList::default();
        self.editor.change(0..self.editor.text().len(), laid_out(text), Run::Ended);
    }

    /// Returns whether the box has no text.
    pub fn is_empty(&self) -> bool {
        self.editor.text().is_empty()
    }

    /// Returns the part of the box that receives keys.
    pub fn layer(&self) -> Layer {
        match (&self.search, self.paths.is_open()) {
            (Some(_), _) => Layer::Search,
            (None, true) => Layer::Paths,
            (None, false) => Layer::Text,
        }
    }

    /// Takes the text out, to send or queue it, and adds it to the history. The user's own text, if an entry of the history was sent instead,
    /// is in the history before it.
    pub fn take(&mut self, history: &mut History) -> String {
        let text = self.empty_into(history);
        history.add(&text);
        text
    }

    /// Empties the box. The text is the newest entry of the history. Returns whether there was any.
    pub fn clear_into(&mut self, history: &mut History) -> bool {
        let text = self.empty_into(history);
        history.add(&text);
        !text.is_empty()
    }

    /// Closes the list of paths or the search. Returns whether one of them was open. The text stays as it is.
    pub fn escape(&mut self) -> bool {
        if self.search.take().is_some() {
            return true;
        }
        let was_open = self.paths.is_open();
        if was_open {
            self.paths.close();
        }
        was_open
    }

    /// Sets the time of the keys that follow, which makes pastes known in terminals that do not mark them. Called before each key and after
    /// [`PromptOutcome::Wait`]. Returns [`PromptOutcome::Send`] if an Enter was held and sends.
    pub fn tick(&mut self, now_ms: u64) -> PromptOutcome {
        self.burst.set_now(now_ms);
        match self.burst.end_if_late() {
            Some(ended) => {
                self.fold(ended);
                if ended.was_held { self.send_unless_escaped() } else { PromptOutcome::Done }
            }
            None => PromptOutcome::Ignored,
        }
    }

    /// Ends a burst, because something other than a fast character follows. A held Enter is a line break.
    fn end_burst(&mut self) {
        if let Some(ended) = self.burst.end() {
            if ended.was_held {
                self.editor.insert(Text::from("\n"), Run::Burst);
            }
            self.fold(ended);
        }
    }

    /// Makes a placeholder of a large burst.
    fn fold(&mut self, Ended { start, chars, lines, .. }: Ended) {
        let cursor = self.editor.cursor();
        if chars > PASTED_CHARS || lines >= PASTED_LINES {
            let text = self.editor.text().slice(start..cursor).expanded();
            self.editor.change(start..cursor, Text::pasted(text), Run::Ended);
        }
    }

    /// Types a character, into the text or into the search.
    pub fn insert(&mut self, c: char) -> PromptOutcome {
        if let Some(search) = &mut self.search {
            search.add(c.encode_utf8(&mut [0; 4]));
            return PromptOutcome::Done;
        }
        self.is_removing = false;
        if self.editor.text().expanded_len() + c.len_utf8() > LARGEST {
            return refusal();
        }
        if self.burst.character(self.editor.cursor()) {
            self.editor.insert(Text::from("\n"), Run::Burst);
        }
        let size = self.burst.size();
        let c = if c == '\r' { '\n' } else { c };
        let run = if size.is_some() { Run::Burst } else { Run::Typing };
        self.editor.insert(Text::from(c.encode_utf8(&mut [0; 4]) as &str), run);
        let Some((start, chars, lines)) = size else { return self.complete(true) };
        let cursor = self.editor.cursor();
        if cursor - start > MOST_INLINE {
            // The parts become one at the end of the burst.
            let parts = start + self.editor.text().slice(start..cursor).inline_start();
            let text = self.editor.text().slice(parts..cursor).expanded();
            self.editor.change(parts..cursor, Text::pasted(text), Run::Ended);
        }
        match self.burst.over_ms() {
            Some(until_ms) if chars > PASTED_CHARS || lines >= PASTED_LINES => {
                self.paths = PathList::default();
                PromptOutcome::Wait { until_ms }
            }
            _ => self.complete(true),
        }
    }

    /// Pastes a text, into the search if it fits there, else into the text. A large one becomes a placeholder, which is one unit for the cursor. CR LF and CR become line breaks; all other
    /// characters stay as they are.
    pub fn paste(&mut self, text: &str) -> PromptOutcome {
        self.end_burst();
        self.burst.turn_off();
        if let Some(search) = self.search.as_mut().filter(|search| search.takes(text)) {
            search.add(text);
            return PromptOutcome::Done;
        }
        (self.search, self.is_removing) = (None, false);
        if self.editor.text().expanded_len() + text.len() > LARGEST {
            return refusal();
        }
        let text = line_breaks(text);
        let is_large =
            is_over(&text, PASTED_CHARS, PASTED_LINES) || self.editor.text().len() + text.len() > MOST_INLINE;
        let text = if is_large { Text::pasted(text) } else { Text::from(text.as_str()) };
        self.editor.insert(text, Run::Ended);
        self.complete(false)
    }

    /// Takes the answer of [`Request::CompletePath`](azureal::desk::Request::CompletePath). A late answer is dropped.
    pub fn paths(&mut self, prefix: &str, paths: Vec<String>) {
        self.paths.answer(prefix, paths);
    }

    /// Follows the path at the cursor.
    fn complete(&mut self, opens: bool) -> PromptOutcome {
        let mark = PathMark::find(self.editor.text(), self.editor.cursor());
        match self.paths.follow(mark, opens) {
            Some(prefix) => PromptOutcome::Complete { prefix },
            None => PromptOutcome::Done,
        }
    }

    /// Puts the chosen path into the text.
    fn take_path(&mut self) -> PromptOutcome {
        let Some((start, path)) = self.paths.chosen() else { return PromptOutcome::Ignored };
        let mut written = paths::written(path);
        let is_folder = path.ends_with('/');
        let cursor = self.editor.cursor();
        let rest = self.editor.text().chars(cursor..self.editor.text().len());
        if !is_folder && !rest.starts_with(char::is_whitespace) {
            written.push(' ');
        }
        self.editor.change(start..cursor, Text::from(written.as_str()), Run::Ended);
        self.complete(is_folder)
    }

    /// Removes a range by words or lines. Ranges that are removed one after the other can be put back together.
    fn remove(&mut self, range: Range<usize>) {
        let is_before = range.start < self.editor.cursor();
        if range.is_empty() {
            return;
        }
        let removed = self.editor.remove(range, Run::Ended);
        if !self.is_removing {
            self.removed = removed;
        } else if is_before {
            let after = std::mem::replace(&mut self.removed, removed);
            self.removed.append(&after);
        } else {
            self.removed.append(&removed);
        }
        self.is_removing = true;
    }

    fn layout(&self, most: usize) -> Layout {
        Layout::new(self.editor.text(), self.view.get().width, most)
    }
}

fn refusal() -> PromptOutcome {
    let text = format!("the prompt would be longer than {} MiB; name the file instead", LARGEST >> 20);
    PromptOutcome::Refused(text)
}

/// Returns a text with line feeds as its only line breaks.
fn line_breaks(text: &str) -> String {
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text.to_owned() }
}

fn is_over(text: &str, chars: usize, lines: usize) -> bool {
    text.chars().nth(chars).is_some() || text.lines().nth(lines).is_some()
}

/// Returns a whole text for the box.
fn laid_out(text: &str) -> Text {
    let text = line_breaks(text);
    if is_over(&text, WHOLE_CHARS, WHOLE_LINES) { Text::pasted(text) } else { Text::from(text.as_str()) }
}
