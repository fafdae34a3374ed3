//! Prompts of the history in the box: browsing with ↑ and ↓, and the search.

use std::collections::BTreeMap;

use super::editor::Editor;
use super::history::{EntryId, History, matches};
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
#[derive(Debug, Clone, Default)]
pub(super) struct Search {
    pub(super) query: String,
    pub(super) found: Option<(EntryId, Editor)>,
    /// Whether no (older) entry has the text.
    pub(super) has_missed: bool,
}

impl Search {
    /// Finds the newest entry with the text, before one.
    fn find(&mut self, history: &History, before: Option<EntryId>) {
        let found = history.before(before).find(|(_, text)| matches(text, &self.query));
        self.set(found);
    }

    fn set(&mut self, found: Option<(EntryId, &str)>) {
        self.has_missed = found.is_none();
        if let Some((id, text)) = found {
            self.found = Some((id, Editor::new(laid_out(text))));
        }
    }

    pub(super) fn older(&mut self, history: &History) {
        self.find(history, self.found.as_ref().map(|(id, _)| *id));
    }

    pub(super) fn newer(&mut self, history: &History) {
        if let Some((id, _)) = self.found {
            self.set(history.after(id).find(|(_, text)| matches(text, &self.query)));
        }
    }

    pub(super) fn add(&mut self, text: &str, history: &History) {
        if self.query.len() + text.len() > LONGEST_QUERY {
            return;
        }
        self.query.push_str(text);
        let still_fits = self
            .found
            .as_ref()
            .is_some_and(|(id, _)| history.get(*id).is_some_and(|text| matches(text, &self.query)));
        if !still_fits {
            self.older(history);
        }
    }

    pub(super) fn delete(&mut self, history: &History) {
        self.query.pop();
        self.find(history, None);
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

    /// Puts another text into the box. The one that is there is kept, if it is the user's own or was changed.
    pub(super) fn go_to(&mut self, place: Place, history: &History) -> bool {
        if place == self.place {
            return true;
        }
        let editor = match (self.parked.remove(&place), place) {
            (Some(editor), _) => editor,
            (None, Place::Own) => Editor::default(),
            (None, Place::Entry(id)) => match history.get(id) {
                Some(text) => Editor::new(laid_out(text)),
                None => return false,
            },
        };
        let left = std::mem::replace(&mut self.editor, editor);
        if self.place == Place::Own || left.is_changed() {
            self.parked.insert(self.place, left);
        }
        self.place = place;
        self.editor.end_run();
        self.paths = super::paths::PathList::default();
        true
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

    /// Empties the box. All texts of the user go to the history, the one that was shown as the newest.
    pub(super) fn empty_into(&mut self, history: &mut History) -> String {
        for text in Self::parked_texts(&std::mem::take(&mut self.parked)) {
            history.add(&text);
        }
        let text = std::mem::take(&mut self.editor).text().expanded();
        history.add(&text);
        self.place = Place::Own;
        self.search = None;
        self.paths = super::paths::PathList::default();
        self.burst.end();
        text
    }
}
