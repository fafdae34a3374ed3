//! Prompts of the history in the box: browsing with ↑ and ↓, and the search.

use std::collections::BTreeMap;

use super::editor::Editor;
use super::history::{EntryId, History, matches};
use super::paths::PathList;
use super::{PromptBox, laid_out};

/// The longest text to search for, in bytes.
const LONGEST_QUERY: usize = 200;

/// The text that is in the box: an entry of the history, or the user's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Entry(EntryId),
    #[default]
    Own,
}

/// The search in the history. The box is not changed until an entry is taken.
#[derive(Debug, Clone)]
pub(super) struct Search {
    /// The history as it was at the beginning of the search.
    history: History,
    pub(super) query: String,
    pub(super) found: Option<(EntryId, Editor)>,
    /// Whether no (older) entry has the text.
    pub(super) has_missed: bool,
}

impl Search {
    pub(super) fn new(history: &History) -> Self {
        let mut search =
            Self { history: history.clone(), query: String::new(), found: None, has_missed: false };
        search.older();
        search
    }

    /// Returns whether a text fits into the query: a line, and not too long.
    pub(super) fn takes(&self, text: &str) -> bool {
        self.query.len() + text.len() <= LONGEST_QUERY && !text.contains(['\n', '\r'])
    }

    /// Adds to the query. The entry stays if it has the whole query.
    pub(super) fn add(&mut self, text: &str) {
        if !self.takes(text) {
            return;
        }
        self.query.push_str(text);
        let entry = self.found.as_ref().and_then(|(id, _)| self.history.get(*id));
        if !entry.is_some_and(|entry| matches(entry, &self.query)) {
            self.older();
        }
    }

    /// Removes the last character of the query, and searches from the newest entry.
    pub(super) fn delete(&mut self) {
        self.query.pop();
        self.found = None;
        self.older();
    }

    /// Removes the whole query.
    pub(super) fn clear(&mut self) {
        self.query.clear();
        self.delete();
    }

    pub(super) fn older(&mut self) {
        let before = self.history.before(self.found.as_ref().map(|(id, _)| *id));
        self.found = Self::first(before, &self.query, &mut self.has_missed).or(self.found.take());
    }

    pub(super) fn newer(&mut self) {
        if let Some((id, _)) = self.found {
            let after = self.history.after(id);
            self.found = Self::first(after, &self.query, &mut self.has_missed).or(self.found.take());
        }
    }

    fn first<'h>(
        mut entries: impl Iterator<Item = (EntryId, &'h str)>,
        query: &str,
        has_missed: &mut bool,
    ) -> Option<(EntryId, Editor)> {
        let found = entries.find(|(_, text)| matches(text, query));
        *has_missed = found.is_none();
        found.map(|(id, text)| (id, Editor::new(laid_out(text))))
    }
}

impl PromptBox {
    /// Shows an older or newer entry of the history. Returns whether there is one.
    pub(super) fn browse(&mut self, older: bool, history: &History) -> bool {
        let place = match (self.place, older) {
            (Place::Own, false) => None,
            (Place::Own, true) => history.before(None).next().map(|(id, _)| Place::Entry(id)),
            (Place::Entry(id), true) => history.before(Some(id)).next().map(|(id, _)| Place::Entry(id)),
            (Place::Entry(id), false) => {
                Some(history.after(id).next().map_or(Place::Own, |(id, _)| Place::Entry(id)))
            }
        };
        place.is_some_and(|place| self.go_to(place, history))
    }

    /// Ends the search and puts the entry into the box.
    pub(super) fn take_found(&mut self) {
        if let Some((id, found)) = self.search.take().and_then(|search| search.found) {
            self.show(Place::Entry(id), found);
        }
    }

    /// Shows an entry or the own text. Returns whether it is there.
    fn go_to(&mut self, place: Place, history: &History) -> bool {
        let text = match place {
            Place::Own => Some(Editor::default()),
            Place::Entry(id) => history.get(id).map(|text| Editor::new(laid_out(text))),
        };
        text.map(|editor| self.show(place, editor)).is_some()
    }

    /// Puts another text into the box, or what the user made of it before. The one that is there is kept, if it is the user's own or was changed.
    fn show(&mut self, place: Place, editor: Editor) {
        if place == self.place {
            return;
        }
        let editor = self.parked.remove(&place).unwrap_or(editor);
        let left = std::mem::replace(&mut self.editor, editor);
        if self.place == Place::Own || left.is_changed() {
            self.parked.insert(self.place, left);
        }
        self.place = place;
        self.editor.end_run();
        self.paths = PathList::default();
    }

    /// Returns the texts that are neither in the box nor in the history, oldest first.
    fn parked_texts(parked: &BTreeMap<Place, Editor>) -> impl Iterator<Item = String> {
        parked.values().map(|editor| editor.text().expanded()).filter(|text| !text.trim().is_empty())
    }

    /// Returns the user's texts that are neither the [`draft`](Self::draft) nor in the history: changed entries, and the own text while a changed
    /// entry is shown. They are kept as entries of the history.
    pub fn other_drafts(&self) -> Vec<String> {
        let mut parked = self.parked.clone();
        if !self.editor.is_changed() {
            parked.remove(&Place::Own);
        }
        Self::parked_texts(&parked).collect()
    }

    /// Empties the box and returns its text. The user's texts that were not shown go to the history.
    pub(super) fn empty_into(&mut self, history: &mut History) -> String {
        for text in Self::parked_texts(&std::mem::take(&mut self.parked)) {
            history.add(&text);
        }
        self.end_burst();
        let text = std::mem::take(&mut self.editor).text().expanded();
        self.place = Place::Own;
        self.search = None;
        self.paths = PathList::default();
        text
    }
}
