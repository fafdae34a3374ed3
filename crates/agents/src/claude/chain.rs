//! The conversation of a transcript: the chain of entries from the last one back to the first.
//!
//! Each entry names its parent. Going back in the program (rewind) makes a branch, and the transcript keeps the old one. The
//! first reading of a transcript makes an index of its entries; the second reads the lines of the chain.
//!
//! The chain alone is not all: results of tools that ran at the same time, and blocks of one message, may have different
//! parents. An entry beside the chain belongs to it if it has a result or a block of a message of the chain. Any other
//! entry beside it, such as a prompt, begins an abandoned branch.
//!
//! A compaction begins a new chain, whose first entry names the last one before it (`logicalParentUuid`). So does a prompt
//! that replaces the first one; the entries before that are abandoned.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::wire::QueuedCommand;
use crate::native::lines::{Line, Lines};
use crate::wire::Loose;

/// The number of entries that are indexed. A longer transcript is read in the order of its lines.
const MOST_ENTRIES: usize = 2_000_000;

/// The lines of a transcript that belong to its conversation, and facts that any line may have.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// For each line, whether it belongs to an abandoned branch or is a copy of another one.
    is_left_out: Vec<bool>,
    /// The number of prompts, answers and results in abandoned branches.
    pub(super) abandoned: u64,
    /// The name that the user gave the session.
    pub(super) title: Option<String>,
}

impl Chain {
    /// Reads a transcript once.
    pub(super) fn read(lines: &mut Lines) -> io::Result<Self> {
        let mut index = Index::default();
        while let Some(line) = lines.next()? {
            let entry = match &line {
                Line::Whole(bytes) | Line::Unfinished(bytes) => {
                    serde_json::from_slice::<Entry<'_>>(bytes).ok()
                }
                Line::Oversized { .. } => None,
            };
            index.add(entry);
        }
        Ok(index.chain())
    }

    /// Returns whether a line is no part of the conversation. Lines count from 1.
    pub(super) fn is_left_out(&self, line: u64) -> bool {
        let place = usize::try_from(line).ok().and_then(|line| line.checked_sub(1));
        place.and_then(|place| self.is_left_out.get(place)).copied().unwrap_or(false)
    }

    /// Leaves out a line. Lines count from 0.
    fn leave_out(&mut self, line: usize) {
        self.is_left_out.resize(self.is_left_out.len().max(line + 1), false);
        if let Some(is_left_out) = self.is_left_out.get_mut(line) {
            *is_left_out = true;
        }
    }
}

/// The fields of a line that the chain needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    #[serde(default, borrow)]
    uuid: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    parent_uuid: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    logical_parent_uuid: Option<Cow<'a, str>>,
    #[serde(rename = "type", default, borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    subtype: Option<Cow<'a, str>>,
    #[serde(default)]
    is_sidechain: Option<bool>,
    #[serde(default)]
    is_compact_summary: Option<bool>,
    #[serde(default, borrow)]
    custom_title: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    message: Option<EntryMessage<'a>>,
    #[serde(default, borrow)]
    attachment: Loose<QueuedCommand<'a>>,
}

#[derive(Deserialize)]
struct EntryMessage<'a> {
    #[serde(default, borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
}

/// The role of an entry in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Prompt,
    Result,
    /// A block of the message with this id.
    Answer(u128),
    /// The beginning of the chain after a compaction.
    Compaction,
    /// Attachments and the like.
    Other,
}

#[derive(Debug)]
struct Node {
    line: usize,
    parent: Option<u128>,
    role: Role,
}

#[derive(Debug, Default)]
struct Index {
    lines: usize,
    nodes: Vec<Node>,
    by_id: HashMap<u128, usize>,
    /// The lines that repeat an entry.
    copies: Vec<usize>,
    title: Option<String>,
    is_full: bool,
}

impl Index {
    fn add(&mut self, entry: Option<Entry<'_>>) {
        self.lines += 1;
        let Some(entry) = entry else { return };
        if entry.custom_title.is_some() {
            self.title = entry.custom_title.as_deref().map(str::to_owned);
        }
        let Some(uuid) = entry.uuid.as_deref().filter(|_| entry.is_sidechain != Some(true)) else { return };
        if self.nodes.len() >= MOST_ENTRIES {
            self.is_full = true;
            return;
        }
        let is_compaction =
            entry.subtype.as_deref() == Some("compact_boundary") || entry.is_compact_summary == Some(true);
        let role = match (entry.kind.as_deref(), &entry.message) {
            _ if is_compaction => Role::Compaction,
            (Some("assistant"), Some(message)) => Role::Answer(message.id.as_deref().map_or(0, id)),
            (Some("user"), Some(message)) if message.has_result() => Role::Result,
            (Some("user"), _) => Role::Prompt,
            (Some("attachment"), _) if entry.attachment.0.is_some_and(|queued| queued.typed().is_some()) => {
                Role::Prompt
            }
            _ => Role::Other,
        };
        let parent = entry.parent_uuid.or(entry.logical_parent_uuid);
        let node = Node { line: self.lines - 1, parent: parent.as_deref().map(id), role };
        // Some versions write the entries of a branch (`/branch`) twice.
        let next = self.nodes.len();
        if *self.by_id.entry(id(uuid)).or_insert(next) == next {
            self.nodes.push(node);
        } else {
            self.copies.push(node.line);
        }
    }

    fn chain(self) -> Chain {
        let title = self.title.clone();
        if self.is_full {
            return Chain { title, ..Chain::default() };
        }
        let mut is_in = self.walk();
        let answers: HashSet<u128> = self
            .nodes
            .iter()
            .zip(&is_in)
            .filter_map(|(node, is_in)| match node.role {
                Role::Answer(message) if *is_in && message != 0 => Some(message),
                _ => None,
            })
            .collect();
        // Parents come before their children.
        for place in 0..self.nodes.len() {
            let Some(node) = self.nodes.get(place) else { break };
            let parent = node.parent.and_then(|parent| self.by_id.get(&parent));
            let hangs_on = parent.is_some_and(|parent| is_in.get(*parent).copied().unwrap_or(false));
            let belongs = match node.role {
                Role::Result | Role::Other => hangs_on,
                Role::Answer(message) => answers.contains(&message),
                Role::Prompt | Role::Compaction => false,
            };
            if let Some(is_in) = is_in.get_mut(place) {
                *is_in |= belongs;
            }
        }
        let mut chain = Chain { title, ..Chain::default() };
        for line in self.copies {
            chain.leave_out(line);
        }
        for (node, is_in) in self.nodes.iter().zip(is_in) {
            if !is_in {
                chain.leave_out(node.line);
                chain.abandoned += u64::from(node.role != Role::Other);
            }
        }
        chain
    }

    /// Walks from the last entry to the first, and returns for each entry whether it is on the way.
    fn walk(&self) -> Vec<bool> {
        let mut is_in = vec![false; self.nodes.len()];
        let mut place = self.nodes.iter().rposition(|node| node.role != Role::Other);
        while let Some(at) = place {
            let (Some(node), Some(visited)) = (self.nodes.get(at), is_in.get_mut(at)) else { break };
            // Damaged entries may name each other as parents.
            if std::mem::replace(visited, true) {
                break;
            }
            place = match node.parent {
                // A parent that is not here was in another file: the conversation is the one before.
                Some(parent) => self.by_id.get(&parent).copied().or(at.checked_sub(1)),
                None if node.role == Role::Prompt => None,
                None => at.checked_sub(1),
            };
        }
        is_in
    }
}

impl EntryMessage<'_> {
    fn has_result(&self) -> bool {
        self.content.is_some_and(|content| {
            content.get().starts_with('[') && content.get().contains("\"tool_result\"")
        })
    }
}

/// Returns the number of an id: that of a UUID, or a hash of another text.
fn id(text: &str) -> u128 {
    let is_uuid = text.len() == 36 && text.bytes().filter(|byte| *byte == b'-').count() == 4;
    let number = is_uuid.then(|| u128::from_str_radix(&text.replace('-', ""), 16).ok()).flatten();
    number.unwrap_or_else(|| {
        let hash = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            (salt, text).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        hash(0) << 64 | hash(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries as `kind id parent`: `p` prompt, `q` prompt while the agent worked, `r` result, `o` other, `c` compaction boundary,
    /// anything else a block of the message of this id.
    fn kept(entries: &[&str]) -> (String, u64) {
        let line = |entry: &&str| {
            let words: Vec<&str> = entry.split(' ').collect();
            let (kind, message) = match words[0] {
                "p" => (r#""type":"user""#, r#"{"content":"x"}"#.to_owned()),
                "r" => (r#""type":"user""#, r#"{"content":[{"type":"tool_result"}]}"#.to_owned()),
                "o" => (r#""type":"attachment","attachment":{"type":"skill_listing"}"#, "null".to_owned()),
                "q" => (
                    r#""type":"attachment","attachment":{"type":"queued_command","prompt":"x","commandMode":"prompt"}"#,
                    "null".to_owned(),
                ),
                "c" => (r#""type":"system","subtype":"compact_boundary""#, "null".to_owned()),
                message => (r#""type":"assistant""#, format!(r#"{{"id":"{message}"}}"#)),
            };
            let parent = words.get(2).filter(|parent| **parent != "-");
            let field = if words[0] == "c" { "logicalParentUuid" } else { "parentUuid" };
            let parent = parent.map_or("null".to_owned(), |parent| format!("{parent:?}"));
            format!(r#"{{{kind},"uuid":"{}","{field}":{parent},"message":{message}}}"#, words[1])
        };
        let text: Vec<String> = entries.iter().map(line).collect();
        let mut lines = Lines::of(Box::new(io::Cursor::new(text.join("\n").into_bytes())));
        let chain = Chain::read(&mut lines).unwrap();
        let ids = entries.iter().zip(1..).filter(|(_, line)| !chain.is_left_out(*line));
        (ids.map(|(entry, _)| entry.split(' ').nth(1).unwrap()).collect(), chain.abandoned)
    }

    #[test]
    fn the_chain_from_the_last_entry_is_the_conversation() {
        assert_eq!(kept(&["p 1 -", "m 2 1", "p 3 2", "n 4 3"]), ("1234".into(), 0));
        // Back to the first answer, and another prompt.
        assert_eq!(
            kept(&["p 1 -", "m 2 1", "p 3 2", "n 4 3", "p 5 2", "o 6 5", "z 7 6"]),
            ("12567".into(), 2)
        );
        // Another first prompt.
        assert_eq!(kept(&["p 1 -", "m 2 1", "p 3 -", "n 4 3"]), ("34".into(), 2));
    }

    #[test]
    fn results_and_blocks_beside_the_chain_belong_to_it() {
        // Two calls in one message, whose results hang on their own calls.
        assert_eq!(kept(&["p 1 -", "m 2 1", "m 3 2", "r 4 2", "r 5 3", "n 6 5"]), ("123456".into(), 0));
        assert_eq!(kept(&["p 1 -", "m 2 1", "r 3 2", "m 4 2", "r 5 4", "n 6 3"]), ("123456".into(), 0));
        // A result of an abandoned branch does not.
        assert_eq!(kept(&["p 1 -", "m 2 1", "r 3 2", "p 4 1", "n 5 4"]), ("145".into(), 2));
    }

    #[test]
    fn a_compaction_goes_on_where_the_chain_before_it_ended() {
        assert_eq!(kept(&["p 1 -", "m 2 1", "c 3 2", "p 4 3", "n 5 4"]), ("12345".into(), 0));
        assert_eq!(kept(&["p 1 -", "m 2 1", "c 3 -", "p 4 3", "n 5 4"]), ("12345".into(), 0));
        // The parent is in another file.
        assert_eq!(kept(&["p 1 -", "m 2 1", "p 3 9", "n 4 3"]), ("1234".into(), 0));
    }

    #[test]
    fn a_copy_of_an_entry_is_left_out_and_does_not_count_as_abandoned() {
        assert_eq!(kept(&["p 1 -", "m 2 1", "p 1 -", "m 2 1", "p 3 2"]), ("123".into(), 0));
        // A copy of an abandoned entry does not bring it back.
        assert_eq!(kept(&["p 1 -", "m 2 1", "p 3 -", "m 2 1", "n 4 3"]), ("34".into(), 2));
    }

    #[test]
    fn a_prompt_that_was_typed_while_the_agent_worked_is_one() {
        assert_eq!(kept(&["p 1 -", "m 2 1", "r 3 2", "q 4 3", "n 5 4"]), ("12345".into(), 0));
        assert_eq!(kept(&["p 1 -", "m 2 1", "r 3 2", "q 4 3", "n 5 4", "p 6 -"]), ("6".into(), 5));
    }

    #[test]
    fn damaged_entries_end_the_chain() {
        assert_eq!(kept(&["p 1 2", "m 2 1"]).0, "12");
        assert_eq!(kept(&[]), (String::new(), 0));
    }
}
