//! What an interface keeps for the next one.

use std::collections::BTreeMap;

use azureal_core::SessionRecord;
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
    /// The numbers of the [offers](Offer) that the interface has received.
    #[serde(skip)]
    pub offers: Vec<u64>,
}

/// Prompts that an interface which has ended left queued in a session. They belong to this interface now, and wait for its user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// The number of the offer. Until [`Kept::offers`] has it, the desk keeps the prompts.
    pub number: u64,
    /// The prompts, in order.
    pub prompts: Vec<String>,
}

/// Text that was typed in a session and is not sent.
///
/// A text may be shown by several interfaces. A queued prompt belongs to one, because it goes out by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Draft {
    /// The text of the prompt box, with pasted text in full.
    pub text: String,
    /// Prompts of this interface that wait for the end of the turn, in order.
    #[serde(skip)]
    pub queued: Vec<String>,
}

/// The content of the file: what all interfaces share, and the queue of each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct KeptFile {
    #[serde(flatten)]
    pub(super) kept: Kept,
    /// The queued prompts of each interface, by its name and the UUID of the session.
    queues: BTreeMap<String, Queues>,
}

/// Queued prompts of an interface in their order, by the UUID of the session; empty for a new session.
type Queues = BTreeMap<String, Vec<String>>;

/// The most prompts of the history, and their size in bytes.
const HISTORY_PROMPTS: usize = 1_000;
const HISTORY_BYTES: usize = 1 << 20;
/// A prompt of the history over this size is large: it does not displace small ones.
const LARGE: usize = 64 << 10;
const LARGE_PROMPTS: usize = 4;
const LARGE_BYTES: usize = 20 << 20;
/// The size of all drafts, and of all queued prompts, in bytes.
const DRAFT_BYTES: usize = 16 << 20;
/// The most sessions of which it is known what the user has seen.
const MOST_SEEN: usize = 10_000;

impl KeptFile {
    /// Applies to `self`, which other interfaces have written too, what has changed between two states of the interface `owner`.
    /// Returns whether its queue has changed.
    pub(super) fn merge(&mut self, owner: &str, before: &Kept, after: &Kept) -> bool {
        let changed: Vec<(&String, &[String])> = before
            .drafts
            .keys()
            .chain(after.drafts.keys())
            .filter(|key| before.queued(key) != after.queued(key))
            .map(|key| (key, after.queued(key)))
            .collect();
        let has_changed = !changed.is_empty();
        let queues = self.queues.entry(owner.to_owned()).or_default();
        for (key, prompts) in changed {
            match prompts {
                [] => drop(queues.remove(key)),
                prompts => drop(queues.insert(key.clone(), prompts.to_vec())),
            }
        }
        self.bound_queues();
        self.kept.merge(before, after);
        has_changed
    }

    /// Moves the prompts that interfaces which have ended left in a session to `owner`, and returns them.
    pub(super) fn take_queue(
        &mut self,
        owner: &str,
        key: &str,
        has_ended: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let others = self
            .queues
            .iter_mut()
            .filter(|(other, queues)| *other != owner && queues.contains_key(key) && has_ended(other));
        let taken: Vec<String> = others.filter_map(|(_, queues)| queues.remove(key)).flatten().collect();
        if !taken.is_empty() {
            let own = self.queues.entry(owner.to_owned()).or_default();
            own.entry(key.to_owned()).or_default().extend_from_slice(&taken);
        }
        self.queues.retain(|_, queues| !queues.is_empty());
        taken
    }

    /// Drops the largest queued prompts while all of them are too much: those were pasted rather than typed.
    fn bound_queues(&mut self) {
        let all = || self.queues.values().flat_map(BTreeMap::values).flatten().map(String::len);
        let (mut size, mut sizes) = (all().sum::<usize>(), all().collect::<Vec<_>>());
        sizes.sort_unstable();
        while size > DRAFT_BYTES
            && let Some(largest) = sizes.pop()
        {
            size -= largest;
            let mut lists = self.queues.values_mut().flat_map(BTreeMap::values_mut);
            if let Some((prompts, at)) = lists.find_map(|prompts| {
                let at = prompts.iter().position(|prompt| prompt.len() == largest)?;
                Some((prompts, at))
            }) {
                prompts.remove(at);
            }
        }
        for queues in self.queues.values_mut() {
            queues.retain(|_, prompts| !prompts.is_empty());
        }
        self.queues.retain(|_, queues| !queues.is_empty());
    }

    /// Returns whether an interface has queued prompts.
    pub(super) fn has_queue_of(&self, owner: &str) -> bool {
        self.queues.contains_key(owner)
    }
}

impl Kept {
    /// Returns the key of a session: its UUID, or its number in a file that has none.
    pub fn key(record: &SessionRecord) -> String {
        record.uuid.map_or_else(|| record.id.to_string(), |uuid| uuid.to_string())
    }

    /// Returns the queued prompts of a session.
    fn queued(&self, key: &str) -> &[String] {
        self.drafts.get(key).map_or(&[], |draft| draft.queued.as_slice())
    }

    /// Applies to `self`, which another interface may have written, what has changed between two states of this interface.
    ///
    /// A text that this interface has not touched stays as the other one has it. If both have changed it, the text of the other one
    /// goes to the history: nothing that was typed is lost.
    fn merge(&mut self, before: &Self, after: &Self) {
        let text_of = |kept: &Self, key: &str| {
            kept.drafts.get(key).map(|draft| draft.text.clone()).filter(|text| !text.is_empty())
        };
        let mut displaced = Vec::new();
        for key in before.drafts.keys().chain(after.drafts.keys()) {
            let (was, text) = (text_of(before, key), text_of(after, key));
            if was == text {
                continue;
            }
            let other = match &text {
                Some(text) => {
                    let draft = Draft { text: text.clone(), queued: Vec::new() };
                    self.drafts.insert(key.clone(), draft)
                }
                None => self.drafts.remove(key),
            };
            let other = other.map(|other| other.text).filter(|other| !other.trim().is_empty());
            displaced.extend(other.filter(|other| ![&was, &text].contains(&&Some(other.clone()))));
        }
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
        self.drafts.retain(|_, draft| !draft.text.is_empty());
        bound_history(&mut self.history);
        while self.seen.len() > MOST_SEEN {
            self.seen.pop_first();
        }
        let size = |draft: &Draft| draft.text.len();
        // The largest goes first: it was pasted rather than typed.
        while self.drafts.values().map(size).sum::<usize>() > DRAFT_BYTES {
            let largest = self.drafts.iter().max_by_key(|(_, draft)| size(draft));
            let Some(key) = largest.map(|(key, _)| key.clone()) else { break };
            self.drafts.remove(&key);
        }
    }
}

/// Drops the oldest prompts, and the oldest large ones, that are too much. What is dropped drops no other one.
fn bound_history(history: &mut Vec<String>) {
    let (mut small, mut large) = ((0, 0), (0, 0));
    let is_kept = history.iter().rev().map(|prompt| {
        let ((count, bytes), most, most_bytes) = match prompt.len() > LARGE {
            true => (&mut large, LARGE_PROMPTS, LARGE_BYTES),
            false => (&mut small, HISTORY_PROMPTS, HISTORY_BYTES),
        };
        *count += 1;
        *bytes += prompt.len();
        *count <= most && *bytes <= most_bytes
    });
    // The newest first.
    let mut is_kept: Vec<bool> = is_kept.collect();
    history.retain(|_| is_kept.pop().unwrap_or(true));
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
        let mut file = kept(&[("a", &"x".repeat(2 << 20))], &["x"]);
        file.merge(&Kept::default(), &kept(&[("a", "b")], &[]));
        assert_eq!(file.history.iter().map(String::len).collect::<Vec<_>>(), [1, 2 << 20]);
    }

    #[test]
    fn a_queued_prompt_belongs_to_one_interface() {
        let queued = |text: &str, queued: &[&str]| {
            let queued = queued.iter().map(|prompt| (*prompt).to_owned()).collect();
            let mut kept = kept(&[], &[]);
            kept.drafts.insert("a".to_owned(), Draft { text: text.to_owned(), queued });
            kept
        };
        let (nothing, mut file) = (Kept::default(), KeptFile::default());
        assert!(file.merge("one", &nothing, &queued("text", &["first", "second"])));
        assert!(file.merge("two", &nothing, &queued("text", &["other"])));
        assert!(!file.merge("two", &queued("text", &["other"]), &queued("more", &["other"])));
        assert_eq!(file.kept, queued("more", &[]), "a text belongs to all of them");
        let parsed: KeptFile = serde_json::from_slice(&serde_json::to_vec(&file).unwrap()).unwrap();
        assert_eq!(parsed, file);

        // The first one sends a prompt.
        file.merge("one", &queued("text", &["first", "second"]), &queued("text", &["second"]));
        assert_eq!(file.take_queue("three", "a", |_| false), [""; 0], "their interfaces still run");
        assert_eq!(file.take_queue("three", "b", |_| true), [""; 0], "another session");
        assert_eq!(file.take_queue("three", "a", |owner| owner == "one"), ["second"]);
        assert_eq!(file.take_queue("four", "a", |owner| owner == "one"), [""; 0], "one taker");
        assert_eq!(file.take_queue("four", "a", |_| true), ["second", "other"]);
        assert!(file.has_queue_of("four") && !file.has_queue_of("three"));
        file.merge("four", &queued("", &["second", "other"]), &nothing);
        assert_eq!(file.queues, BTreeMap::new());

        file.merge("one", &nothing, &queued("", &["small", &"x".repeat(12 << 20), &"y".repeat(9 << 20)]));
        let left = file.take_queue("two", "a", |_| true);
        assert_eq!(left.iter().map(String::len).collect::<Vec<_>>(), [5, 9 << 20]);
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
    fn a_large_prompt_drops_no_small_one_from_the_history() {
        let mut file = kept(&[], &["a", "b"]);
        let large = |n: usize| format!("{n}{}", "x".repeat(1_300_000));
        file.merge(&kept(&[], &["a", "b"]), &kept(&[], &["a", "b", &large(0), "c"]));
        let sizes = |file: &Kept| file.history.iter().map(String::len).collect::<Vec<_>>();
        assert_eq!(sizes(&file), [1, 1, 1_300_001, 1]);
        let many: Vec<String> = (0..9).map(large).collect();
        file.merge(&Kept::default(), &Kept { history: many, ..Kept::default() });
        assert_eq!(sizes(&file), [1, 1, 1, 1_300_001, 1_300_001, 1_300_001, 1_300_001]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut file = Kept::default();
        let many: Vec<String> = (0..2_000).map(|n| n.to_string()).collect();
        file.merge(&Kept::default(), &Kept { history: many, ..Kept::default() });
        assert_eq!((file.history.len(), file.history.last().map(String::as_str)), (1_000, Some("1999")));
        let medium: Vec<String> = (10..40).map(|n| format!("{n}{}", "a".repeat(60_000))).collect();
        file.merge(&Kept::default(), &Kept { history: medium, ..Kept::default() });
        assert_eq!(file.history.len(), 17, "more of them are more than a MiB");
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
