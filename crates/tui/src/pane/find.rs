//! The search within a session.

use std::collections::HashMap;
use std::ops::Range;

use azureal::desk::Request;
use azureal::{Seq, SessionId};

use super::act::Outcome;
use super::blocks::Key;
use super::{Pane, PromptFor, Target};

/// The most hits of one block that are marked.
const MOST_HITS: usize = 1_000;

/// A searched text.
#[derive(Debug)]
pub(super) struct Search {
    text: String,
    needle: Vec<char>,
    /// The hit that is shown.
    hit: Option<(Key, Range<usize>)>,
    is_backwards: bool,
    /// Whether the search itself went up: then the next hit is above.
    goes_up: bool,
    /// Whether a search that has no hit below looks above too.
    tries_above: bool,
    /// The hits in the blocks on the screen, with the versions of the blocks.
    marks: HashMap<Key, (u32, usize, Vec<Range<usize>>)>,
}

impl Search {
    fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            needle: needle(text),
            hit: None,
            is_backwards: false,
            goes_up: false,
            tries_above: true,
            marks: HashMap::new(),
        }
    }
}

impl Pane {
    /// Searches a text, from the reading cursor down, then up. An empty text ends the search.
    pub fn search(&mut self, text: &str) -> Vec<Request> {
        self.asked.has_failed = false;
        self.asked.text = false;
        if needle(text).is_empty() {
            self.search = None;
            return Vec::new();
        }
        self.search = Some(Search::new(text));
        if !self.is_shown {
            return Vec::new();
        }
        self.refresh();
        let from = self.cursor_index().unwrap_or(0);
        if let Some((index, range)) = self.hit_from(from, None) {
            self.show_hit(index, range);
            return Vec::new();
        }
        if let Some(from) = self.window.last().filter(|_| !self.window.is_at_end) {
            return self.find_text(from, false);
        }
        self.search_above(from)
    }

    /// Shows an event of a session with a text in it, which becomes the searched text. If the session is not open yet, when it is.
    pub fn show_event(&mut self, session: SessionId, seq: Seq, text: &str) -> Vec<Request> {
        self.wanted = Some((session, seq, text.to_owned()));
        self.show_wanted()
    }

    /// Shows the event that is wanted, if its session is open.
    pub(super) fn show_wanted(&mut self) -> Vec<Request> {
        let Some(open) = self.session() else { return Vec::new() };
        let Some((_, seq, text)) = self.wanted.take().filter(|(session, ..)| *session == open) else {
            return Vec::new();
        };
        if needle(&text).is_empty() {
            return self.jump(Target::Event(seq));
        }
        self.search = Some(Search::new(&text));
        self.jump(Target::Hit(seq))
    }

    /// Searches above a block.
    fn search_above(&mut self, from: usize) -> Vec<Request> {
        if let Some(search) = &mut self.search {
            search.tries_above = false;
            search.is_backwards = true;
            search.goes_up = true;
        }
        if let Some((index, range)) = self.hit_before(from, None) {
            self.show_hit(index, range);
            return Vec::new();
        }
        if let Some(from) = self.window.first().filter(|_| !self.window.is_at_start) {
            return self.find_text(from, true);
        }
        self.no_hit();
        Vec::new()
    }

    fn find_text(&mut self, from: Seq, backwards: bool) -> Vec<Request> {
        let Some(search) = &mut self.search else { return Vec::new() };
        search.is_backwards = backwards;
        self.asked.text = true;
        vec![Request::FindText { pane: self.id, text: search.text.clone(), from, backwards }]
    }

    fn no_hit(&mut self) {
        let Some(search) = &self.search else { return };
        self.note = Some(match (&search.hit, search.is_backwards) {
            (None, _) => format!("no hit for `{}`", azureal::visible_line(&search.text)),
            (Some(_), true) => "no hit above".to_owned(),
            (Some(_), false) => "no hit below".to_owned(),
        });
    }

    /// Goes to the next hit in the direction of the search, or to the one before.
    pub(super) fn next_hit(&mut self, is_before: bool) -> Outcome {
        let Some(search) = &mut self.search else {
            return Outcome { opens_search: true, ..Outcome::default() };
        };
        let backwards = search.goes_up != is_before;
        search.is_backwards = backwards;
        search.tries_above = false;
        let hit = search.hit.clone();
        let from = match &hit {
            Some((key, _)) => self.blocks.find(*key),
            None => self.cursor_index(),
        };
        let from = from.unwrap_or(0);
        let after = hit.map(|(_, range)| range.start);
        let found = if backwards { self.hit_before(from, after) } else { self.hit_from(from, after) };
        if let Some((index, range)) = found {
            self.show_hit(index, range);
            return Outcome::default();
        }
        let edge = if backwards {
            self.window.first().filter(|_| !self.window.is_at_start)
        } else {
            self.window.last().filter(|_| !self.window.is_at_end)
        };
        match edge {
            Some(from) => self.find_text(from, backwards).into(),
            None => {
                self.no_hit();
                Outcome { note: self.note.take(), ..Outcome::default() }
            }
        }
    }

    /// Takes the answer to a search for a text or for a prompt.
    pub(super) fn found(&mut self, text: Option<&str>, seq: Option<Seq>) -> Vec<Request> {
        let Some(text) = text else {
            let Some(wanted) = self.asked.prompt.take() else { return Vec::new() };
            if wanted == PromptFor::Fork {
                let end = seq.map_or(self.stored, |next| Seq(next.0.saturating_sub(1)));
                self.fork_at = Some(end.min(self.stored)).filter(|_| self.is_shown);
                return Vec::new();
            }
            let Some(seq) = seq else {
                self.note = Some("no further prompt".to_owned());
                return Vec::new();
            };
            return self.jump(Target::Event(seq));
        };
        let Some(search) = self.search.as_ref().filter(|search| search.text == text) else {
            return Vec::new();
        };
        if !std::mem::take(&mut self.asked.text) {
            return Vec::new();
        }
        match seq {
            Some(seq) => self.jump(Target::Hit(seq)),
            None if search.tries_above => {
                self.refresh();
                let from = self.cursor_index().unwrap_or(0);
                self.search_above(from)
            }
            None => {
                self.no_hit();
                Vec::new()
            }
        }
    }

    /// Shows the hit in an event whose page has just been read.
    pub(super) fn land_on_hit(&mut self, seq: Seq) -> Vec<Request> {
        let is_backwards = self.search.as_ref().is_some_and(|search| search.is_backwards);
        let holders: Vec<usize> = (0..self.blocks.len())
            .filter(|&index| {
                self.blocks.get(index).is_some_and(|block| block.seq <= seq && seq <= block.last)
            })
            .collect();
        let mut hits =
            holders.iter().flat_map(|&index| self.hits(index).into_iter().map(move |hit| (index, hit)));
        let hit = if is_backwards { hits.last() } else { hits.next() };
        match hit {
            Some((index, range)) => self.show_hit(index, range),
            // The text is in a part of the event that is not shown.
            None => {
                self.go_to(seq, usize::from(self.height / 3));
                let key = self.blocks.at_seq(seq).and_then(|index| self.blocks.key(index));
                if let (Some(search), Some(key)) = (&mut self.search, key) {
                    search.hit = Some((key, 0..0));
                }
            }
        }
        Vec::new()
    }

    fn hits(&self, index: usize) -> Vec<Range<usize>> {
        match (&self.search, self.blocks.get(index)) {
            (Some(search), Some(block)) => hits(&block.source(), &search.needle),
            _ => Vec::new(),
        }
    }

    /// Finds the first hit in a block, after a place in it, and in the blocks below.
    fn hit_from(&self, from: usize, after: Option<usize>) -> Option<(usize, Range<usize>)> {
        (from..self.blocks.len()).find_map(|index| {
            let after = after.filter(|_| index == from);
            let hit = self.hits(index).into_iter().find(|hit| after.is_none_or(|after| hit.start > after))?;
            Some((index, hit))
        })
    }

    /// Finds the last hit in a block, before a place in it, and in the blocks above.
    fn hit_before(&self, from: usize, before: Option<usize>) -> Option<(usize, Range<usize>)> {
        (0..self.blocks.len().min(from + 1)).rev().find_map(|index| {
            let before = before.filter(|_| index == from);
            let hits = self.hits(index);
            let hit = hits.into_iter().rfind(|hit| before.is_none_or(|before| hit.start < before))?;
            Some((index, hit))
        })
    }

    fn show_hit(&mut self, index: usize, range: Range<usize>) {
        let Some(block) = self.blocks.get(index) else { return };
        let key = (block.seq, block.part);
        self.folds.open(block);
        self.height_of(index);
        let row = self.cache.rows(key).iter().position(|row| row.source.contains(&range.start)).unwrap_or(0);
        if let Some(search) = &mut self.search {
            search.hit = Some((key, range));
        }
        // What is on the screen stays where it is.
        self.lay_out();
        if self.view.iter().any(|shown| shown.key == key && shown.row == row) {
            self.cursor = self.anchor((index, row));
        } else {
            self.show_spot((index, row), usize::from(self.height / 3));
        }
    }

    /// Finds the hits in the blocks on the screen.
    pub(super) fn mark_hits(&mut self) {
        let Some(mut search) = self.search.take() else { return };
        let mut marks = HashMap::new();
        for row in &self.view {
            if marks.contains_key(&row.key) {
                continue;
            }
            let Some(block) = self.blocks.get(row.index) else { continue };
            let source = block.source();
            let known = search
                .marks
                .remove(&row.key)
                .filter(|known| (known.0, known.1) == (block.version, source.len()));
            marks.insert(
                row.key,
                known.unwrap_or_else(|| (block.version, source.len(), hits(&source, &search.needle))),
            );
        }
        search.marks = marks;
        self.search = Some(search);
    }

    /// Returns the hits in a block on the screen, and whether each is the one that was gone to.
    pub(super) fn marks(&self, key: Key) -> impl Iterator<Item = (&Range<usize>, bool)> {
        let search = self.search.as_ref();
        let hits = search.and_then(|search| search.marks.get(&key)).map_or(&[][..], |(_, _, hits)| hits);
        let current = search.and_then(|search| search.hit.as_ref()).filter(|hit| hit.0 == key);
        hits.iter().map(move |hit| (hit, current.is_some_and(|(_, range)| range == hit)))
    }

    /// Returns the searched text.
    pub fn searched(&self) -> Option<&str> {
        self.search.as_ref().map(|search| search.text.as_str())
    }
}

/// Prepares a text for a search that ignores case: lower case, one space for any white space.
fn needle(text: &str) -> Vec<char> {
    let mut needle: Vec<char> = Vec::new();
    for c in text.trim().chars().flat_map(char::to_lowercase) {
        let c = if c.is_whitespace() { ' ' } else { c };
        if c != ' ' || needle.last() != Some(&' ') {
            needle.push(c);
        }
    }
    needle
}

/// Finds a text, ignoring case. A space stands for any white space, line breaks included.
fn hits(source: &str, needle: &[char]) -> Vec<Range<usize>> {
    let mut hits = Vec::new();
    let mut end = 0;
    for (start, _) in source.char_indices() {
        if start < end {
            continue;
        }
        if let Some(length) = source.get(start..).and_then(|rest| match_length(rest, needle)) {
            end = start + length;
            hits.push(start..end);
            if hits.len() == MOST_HITS {
                break;
            }
        }
    }
    hits
}

/// Returns the number of bytes at the beginning of a text that match.
fn match_length(text: &str, needle: &[char]) -> Option<usize> {
    let mut chars = text.char_indices().peekable();
    let mut expected = needle.iter().copied().peekable();
    while let Some(first) = expected.peek().copied() {
        let (_, c) = chars.next()?;
        if first == ' ' {
            if !c.is_whitespace() {
                return None;
            }
            while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {}
            expected.next();
            continue;
        }
        for lower in c.to_lowercase() {
            if expected.next() != Some(lower) {
                return None;
            }
        }
    }
    Some(chars.peek().map_or(text.len(), |(at, _)| *at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_and_line_breaks_do_not_matter() {
        let found = |source: &str, text: &str| {
            let hits = hits(source, &needle(text));
            hits.into_iter().map(|hit| source[hit].to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found("A Token and a\n  token", "token"), ["Token", "token"]);
        assert_eq!(found("a soft\n    break", "SOFT break"), ["soft\n    break"]);
        assert_eq!(found("ÄRGER ärger", "ärger"), ["ÄRGER", "ärger"]);
        assert_eq!(found("aaaa", "aa"), ["aa", "aa"]);
        assert_eq!(found("İstanbul", "i\u{307}stanbul"), ["İstanbul"]);
        assert!(found("abc", "abd").is_empty());
        assert!(needle("  ").is_empty());
    }
}
