//! The prompts of all sessions that can be used again.

use std::collections::VecDeque;
use std::sync::Arc;

/// The most entries, and the most bytes of all entries that are not large.
const MOST_ENTRIES: usize = 1_000;
const MOST_BYTES: usize = 1 << 20;
/// An entry over this size, in bytes, is large: it does not displace small ones. The newest is always kept, because it may be a prompt that was
/// never sent.
const LARGE: usize = 64 << 10;
const MOST_LARGE: usize = 4;
const MOST_LARGE_BYTES: usize = 20 << 20;
/// The bytes of an entry that a search looks at.
const SEARCHED: usize = 64 << 10;

/// The prompts of all sessions, each once, oldest first: sent ones, and those that were cleared without being sent.
///
/// Bounded: 1,000 entries and 1 MiB; of entries over 64 KiB the newest four, with at most 20 MiB.
#[derive(Debug, Clone, Default)]
pub struct History {
    entries: VecDeque<Entry>,
    next: u64,
}

#[derive(Debug, Clone)]
struct Entry {
    /// Grows from entry to entry, so that a place in the history stays valid when others are added or dropped.
    id: EntryId,
    text: Arc<str>,
    /// Whether a session has it.
    is_sent: bool,
}

/// An entry of a [`History`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryId(u64);

impl History {
    /// Returns the history that an earlier interface kept, oldest entry first.
    pub fn from_kept(entries: &[String]) -> Self {
        let mut history = Self::default();
        for entry in entries {
            history.add(entry);
        }
        history
    }

    /// Returns the entries, oldest first, for [`Kept::history`](azureal::desk::Kept::history). Large ones that were sent are left out: their
    /// sessions have them.
    pub fn kept(&self) -> Vec<String> {
        let kept = self.entries.iter().filter(|entry| !(entry.is_sent && entry.text.len() > LARGE));
        kept.map(|entry| entry.text.to_string()).collect()
    }

    /// Notes that a session has a prompt.
    pub fn mark_sent(&mut self, text: &str) {
        if let Some(entry) = self.entries.iter_mut().rfind(|entry| *entry.text == *text) {
            entry.is_sent = true;
        }
    }

    /// Adds a prompt as the newest. An older entry with the same text is removed. A blank text is not added.
    pub fn add(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        self.entries.retain(|entry| *entry.text != *text);
        self.next += 1;
        self.entries.push_back(Entry { id: EntryId(self.next), text: text.into(), is_sent: false });
        self.drop_oldest(|entry| entry.text.len() > LARGE, MOST_LARGE, MOST_LARGE_BYTES);
        self.drop_oldest(|entry| entry.text.len() <= LARGE, MOST_ENTRIES, MOST_BYTES);
    }

    /// Drops the oldest entries of a class over its bounds, except for the newest one.
    fn drop_oldest(&mut self, belongs: impl Fn(&Entry) -> bool, most: usize, most_bytes: usize) {
        let (mut count, mut bytes) = (0, 0);
        let mut keep = VecDeque::with_capacity(self.entries.len());
        while let Some(entry) = self.entries.pop_back() {
            if belongs(&entry) {
                count += 1;
                bytes += entry.text.len();
                if count > 1 && (count > most || bytes > most_bytes) {
                    continue;
                }
            }
            keep.push_front(entry);
        }
        self.entries = keep;
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&str> {
        let index = self.entries.binary_search_by_key(&id, |entry| entry.id).ok()?;
        self.entries.get(index).map(|entry| &*entry.text)
    }

    /// Returns the entries before one, newest first; all for `None`.
    pub(super) fn before(&self, id: Option<EntryId>) -> impl Iterator<Item = (EntryId, &str)> {
        let end = id.map_or(self.entries.len(), |id| self.entries.partition_point(|entry| entry.id < id));
        self.entries.range(..end).rev().map(|entry| (entry.id, &*entry.text))
    }

    /// Returns the entries after one, oldest first.
    pub(super) fn after(&self, id: EntryId) -> impl Iterator<Item = (EntryId, &str)> {
        let start = self.entries.partition_point(|entry| entry.id <= id);
        self.entries.range(start..).map(|entry| (entry.id, &*entry.text))
    }
}

/// Returns whether an entry has a text, ignoring case. Only the beginning of a large entry is searched.
pub(super) fn matches(entry: &str, query: &str) -> bool {
    let searched = entry.get(..entry.floor_char_boundary(SEARCHED)).unwrap_or(entry);
    searched.to_lowercase().contains(&query.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_added_again_becomes_the_newest_and_is_there_once() {
        let mut history = History::from_kept(&["a".into(), "b".into(), "c".into()]);
        history.add("a");
        assert_eq!(history.kept(), ["b", "c", "a"]);
        assert_eq!(history.before(None).map(|(_, text)| text).collect::<Vec<_>>(), ["a", "c", "b"]);
    }

    #[test]
    fn a_blank_text_is_no_entry() {
        let mut history = History::default();
        history.add(" \n\t");
        assert!(history.is_empty());
    }

    #[test]
    fn the_oldest_entries_over_the_bounds_are_dropped() {
        let mut history = History::default();
        for n in 0..1_200 {
            history.add(&format!("prompt {n}"));
        }
        assert_eq!(history.len(), MOST_ENTRIES);
        assert_eq!(history.kept().first().map(String::as_str), Some("prompt 200"));
        for n in 0..100 {
            history.add(&format!("{n} {}", "x".repeat(LARGE - 10)));
        }
        assert!(history.kept().iter().map(String::len).sum::<usize>() <= MOST_BYTES);
    }

    #[test]
    fn a_large_entry_does_not_displace_small_ones() {
        let mut history = History::from_kept(&["a".into(), "b".into()]);
        for n in 0..6 {
            history.add(&format!("{n}{}", "x".repeat(9 << 20)));
        }
        let kept = history.kept();
        assert_eq!(kept.get(..2).unwrap_or_default(), ["a", "b"]);
        assert_eq!(kept.iter().skip(2).filter_map(|text| text.chars().next()).collect::<String>(), "45");
        history.add(&"y".repeat(9 << 20));
        history.mark_sent(&"y".repeat(9 << 20));
        assert_eq!((history.len(), history.kept().len()), (4, 3), "a sent one is not written to disk");
    }

    #[test]
    fn a_place_stays_valid_when_entries_are_added_and_removed() {
        let mut history = History::from_kept(&["a".into(), "b".into(), "c".into()]);
        let (b, _) = history.before(None).nth(1).expect("there are three entries");
        history.add("b");
        assert_eq!(history.get(b), None);
        assert_eq!(history.before(Some(b)).map(|(_, text)| text).collect::<Vec<_>>(), ["a"]);
        assert_eq!(history.after(b).map(|(_, text)| text).collect::<Vec<_>>(), ["c", "b"]);
    }
}
