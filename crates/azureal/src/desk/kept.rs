//! What an interface keeps for the next one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What an interface keeps for the next one, per store: nothing that was typed is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// The text of prompt boxes, by the UUID of the session; empty for a new session.
    pub drafts: BTreeMap<String, Draft>,
    /// The prompts that were sent, oldest first, over all sessions.
    pub history: Vec<String>,
    /// The session that was shown last, by its UUID.
    pub shown: Option<String>,
    /// The last event that the user has seen, by the UUID of the session.
    pub seen: BTreeMap<String, u64>,
}

/// Text that was typed in a session and is not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Draft {
    /// The text of the prompt box, with pasted text in full.
    pub text: String,
    /// Prompts that wait for the end of the turn, in order.
    pub queued: Vec<String>,
}

impl Draft {
    /// Returns the texts of this draft that another one does not have.
    fn texts_not_in(self, other: Option<&Self>) -> Vec<String> {
        let has =
            |text: &String| other.is_some_and(|other| other.text == *text || other.queued.contains(text));
        let mut texts = self.queued;
        texts.push(self.text);
        texts.retain(|text| !text.trim().is_empty() && !has(text));
        texts
    }
}

/// The most prompts of the history, and their size in bytes.
const HISTORY_PROMPTS: usize = 1_000;
const HISTORY_BYTES: usize = 1 << 20;
/// The size of all drafts, in bytes.
const DRAFT_BYTES: usize = 16 << 20;
/// The most sessions of which it is known what the user has seen.
const MOST_SEEN: usize = 10_000;

impl Kept {
    /// Applies to `self`, which another interface may have written, what has changed between two states of this interface.
    ///
    /// A draft that this interface has not touched stays as the other one has it. If both have changed it, the text of the other one
    /// goes to the history: nothing that was typed is lost.
    pub(super) fn merge(&mut self, before: &Self, after: &Self) {
        let mut displaced = Vec::new();
        for key in before.drafts.keys().chain(after.drafts.keys()) {
            let draft = after.drafts.get(key);
            if before.drafts.get(key) == draft {
                continue;
            }
            let other = match draft {
                Some(draft) => self.drafts.insert(key.clone(), draft.clone()),
                None => self.drafts.remove(key),
            };
            if let Some(other) = other.filter(|other| before.drafts.get(key) != Some(other)) {
                displaced.extend(other.texts_not_in(draft));
            }
        }
        let displaced: Vec<String> =
            displaced.into_iter().filter(|text| text.len() <= HISTORY_BYTES).collect();
        self.history.retain(|prompt| !displaced.contains(prompt));
        self.history.extend(displaced);
        let added = added(&before.history, &after.history);
        self.history.retain(|prompt| !added.contains(prompt));
        self.history.extend_from_slice(added);
        if before.shown != after.shown {
            self.shown.clone_from(&after.shown);
        }
        for (key, seq) in &after.seen {
            if before.seen.get(key) != Some(seq) {
                self.seen.insert(key.clone(), *seq);
            }
        }
        self.bound();
    }

    /// Drops the oldest of what is too much.
    fn bound(&mut self) {
        self.drafts.retain(|_, draft| *draft != Draft::default());
        let mut left = HISTORY_BYTES;
        let fitting = self
            .history
            .iter()
            .rev()
            .take(HISTORY_PROMPTS)
            .take_while(|prompt| left.checked_sub(prompt.len()).inspect(|rest| left = *rest).is_some());
        let fitting = fitting.count();
        self.history.drain(..self.history.len().saturating_sub(fitting));
        while self.seen.len() > MOST_SEEN {
            self.seen.pop_first();
        }
        let size = |draft: &Draft| draft.text.len() + draft.queued.iter().map(String::len).sum::<usize>();
        // The largest goes first: it was pasted rather than typed.
        while self.drafts.values().map(size).sum::<usize>() > DRAFT_BYTES {
            let largest = self.drafts.iter().max_by_key(|(_, draft)| size(draft));
            let Some(key) = largest.map(|(key, _)| key.clone()) else { break };
            self.drafts.remove(&key);
        }
    }
}

/// Returns the prompts of a history that an earlier state of it does not have. The oldest may have been dropped meanwhile.
fn added<'a>(before: &[String], after: &'a [String]) -> &'a [String] {
    let kept = (0..=before.len()).filter_map(|dropped| before.get(dropped..));
    let same = kept.filter(|kept| after.starts_with(kept)).map(<[String]>::len).next();
    after.get(same.unwrap_or(0)..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(drafts: &[(&str, &str)], history: &[&str]) -> Kept {
        let draft = |text: &str| Draft { text: text.to_owned(), queued: Vec::new() };
        Kept {
            drafts: drafts.iter().map(|(key, text)| ((*key).to_owned(), draft(text))).collect(),
            history: history.iter().map(|prompt| (*prompt).to_owned()).collect(),
            ..Kept::default()
        }
    }

    #[test]
    fn two_interfaces_do_not_overwrite_the_drafts_of_each_other() {
        let before = kept(&[("a", "1"), ("b", "1"), ("c", "1")], &["x"]);
        let mut file = kept(&[("a", "1"), ("b", "other"), ("c", "1"), ("d", "other")], &["x", "y"]);
        file.merge(&before, &kept(&[("a", "2"), ("b", "1")], &["x", "z"]));
        assert_eq!(file, kept(&[("a", "2"), ("b", "other"), ("d", "other")], &["x", "y", "z"]));
    }

    #[test]
    fn a_draft_that_two_interfaces_have_changed_is_kept_in_the_history() {
        let mut file = kept(&[("a", "draft A")], &["x", "draft A", "y"]);
        // This interface opened the session before the other one typed.
        file.merge(&kept(&[], &["x"]), &kept(&[("a", "b")], &["x"]));
        assert_eq!(file, kept(&[("a", "b")], &["x", "y", "draft A"]));
        file.merge(&kept(&[("a", "b")], &["x"]), &kept(&[], &["x"]));
        assert_eq!(file, kept(&[], &["x", "y", "draft A"]), "its own text is not kept when it removes that");

        let queued = |text: &str, queued: &[&str]| {
            let queued = queued.iter().map(|prompt| (*prompt).to_owned()).collect();
            let mut kept = kept(&[], &[]);
            kept.drafts.insert("a".to_owned(), Draft { text: text.to_owned(), queued });
            kept
        };
        let mut file = queued("same", &["first", "second"]);
        file.merge(&queued("same", &["first"]), &kept(&[("a", "same")], &[]));
        assert_eq!(file, kept(&[("a", "same")], &["first", "second"]));
        let mut file = kept(&[("a", &"x".repeat(2 << 20))], &["x"]);
        file.merge(&Kept::default(), &kept(&[("a", "b")], &[]));
        assert_eq!(file.history, ["x"], "a text that is too long for the history does not empty it");
    }

    #[test]
    fn a_prompt_is_in_the_history_once_and_where_it_was_used_last() {
        let mut file = kept(&[], &["x", "y"]);
        file.merge(&kept(&[], &["x", "y"]), &kept(&[], &["x", "y", "x"]));
        assert_eq!(file.history, ["y", "x"]);
        // The oldest was dropped.
        file.merge(&kept(&[], &["y", "x"]), &kept(&[], &["x", "z"]));
        assert_eq!(file.history, ["y", "x", "z"]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut file = Kept::default();
        let many: Vec<String> = (0..2_000).map(|n| n.to_string()).collect();
        file.merge(&Kept::default(), &Kept { history: many, ..Kept::default() });
        assert_eq!((file.history.len(), file.history.last().map(String::as_str)), (1_000, Some("1999")));
        let large = vec!["a".repeat(600_000), "b".repeat(600_000)];
        file.merge(&Kept::default(), &Kept { history: large, ..Kept::default() });
        assert_eq!(file.history.len(), 1, "two of them are more than a MiB");
        let text = |count: usize| "x".repeat(count);
        file.merge(
            &Kept::default(),
            &kept(&[("a", &text(10 << 20)), ("b", &text(7 << 20)), ("c", "c")], &[]),
        );
        assert_eq!(file.drafts.keys().collect::<Vec<_>>(), ["b", "c"]);
        file.merge(&Kept::default(), &kept(&[("d", "")], &[]));
        assert!(!file.drafts.contains_key("d"), "an empty draft is none");
    }
}
