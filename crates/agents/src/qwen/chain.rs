//! The conversation of a session of Qwen Code: the chain of records from the last one back to the first.
//!
//! Each record names its parent. When the user goes back, the next record names an earlier one, and the records in between are
//! left. A parent that cannot be found was on a damaged line: the chain continues with the record before.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;

use serde::Deserialize;

use crate::native::lines::{Line, Lines};
use crate::wire::{Fields, lenient};

/// The number of records that are indexed. A longer session is read in the order of its lines.
const MOST_RECORDS: usize = 2_000_000;

/// The lines of a session that belong to its conversation.
#[derive(Default)]
pub(super) struct Chain {
    /// For each line, whether the user went back from it.
    is_abandoned: Vec<bool>,
    /// The number of these lines with a prompt, an answer or a result.
    pub(super) abandoned: u64,
}

struct Node {
    line: usize,
    id: u64,
    parent: Option<u64>,
    is_said: bool,
}

impl Chain {
    /// Reads a session once.
    pub(super) fn read(lines: &mut Lines) -> io::Result<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Links {
            #[serde(default, deserialize_with = "lenient")]
            uuid: Option<String>,
            #[serde(default, deserialize_with = "lenient")]
            parent_uuid: Option<String>,
            #[serde(rename = "type", default, deserialize_with = "lenient")]
            kind: String,
        }
        let hasher = RandomState::new();
        let mut nodes = Vec::new();
        loop {
            let line = usize::try_from(lines.number()).unwrap_or(usize::MAX);
            let Some(found) = lines.next()? else { break };
            let (Line::Whole(bytes) | Line::Unfinished(bytes)) = found else { continue };
            let text = String::from_utf8_lossy(bytes);
            let Some(links) = Fields::of(&text).and_then(|fields| fields.read::<Links>()) else { continue };
            let Some(uuid) = links.uuid else { continue };
            if nodes.len() >= MOST_RECORDS {
                return Ok(Self::default());
            }
            nodes.push(Node {
                line,
                id: hasher.hash_one(&uuid),
                parent: links.parent_uuid.map(|parent| hasher.hash_one(&parent)),
                is_said: links.kind != "system",
            });
        }
        Ok(Self::of(&nodes))
    }

    fn of(nodes: &[Node]) -> Self {
        let places: HashMap<u64, usize> =
            nodes.iter().enumerate().map(|(place, node)| (node.id, place)).collect();
        let mut is_in = vec![false; nodes.len()];
        let mut place = nodes.len().checked_sub(1);
        while let Some(at) = place {
            let (Some(node), Some(is_in)) = (nodes.get(at), is_in.get_mut(at)) else { break };
            *is_in = true;
            // A parent is always before its record, so this ends, whatever a damaged record names.
            let parent = node.parent.map(|parent| places.get(&parent).copied().filter(|parent| *parent < at));
            place = parent.and_then(|known| known.or(at.checked_sub(1)));
        }
        let mut chain = Self::default();
        for node in nodes.iter().zip(&is_in).filter(|(_, is_in)| !**is_in).map(|(node, _)| node) {
            chain.is_abandoned.resize(node.line + 1, false);
            if let Some(abandoned) = chain.is_abandoned.last_mut() {
                *abandoned = true;
            }
            chain.abandoned += u64::from(node.is_said);
        }
        chain
    }

    /// Returns whether the user went back from a line. Lines count from 1.
    pub(super) fn is_abandoned(&self, line: u64) -> bool {
        let place = usize::try_from(line).ok().and_then(|line| line.checked_sub(1));
        place.and_then(|place| self.is_abandoned.get(place)).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abandoned(records: &[&str]) -> Vec<u64> {
        let text: Vec<String> = records
            .iter()
            .map(|record| match record.split_once('<') {
                Some((id, "")) => format!(r#"{{"uuid":"{id}","parentUuid":null,"type":"user"}}"#),
                Some((id, parent)) => format!(r#"{{"uuid":"{id}","parentUuid":"{parent}","type":"user"}}"#),
                None => (*record).to_owned(),
            })
            .collect();
        let mut lines = Lines::of(Box::new(io::Cursor::new(text.join("\n").into_bytes())));
        let chain = Chain::read(&mut lines).unwrap();
        let found: Vec<u64> = (1..=records.len() as u64).filter(|line| chain.is_abandoned(*line)).collect();
        assert_eq!(found.len() as u64, chain.abandoned);
        found
    }

    #[test]
    fn records_that_the_user_went_back_from_are_left_out() {
        assert!(abandoned(&["a<", "b<a", "c<b"]).is_empty());
        assert_eq!(abandoned(&["a<", "b<a", "c<b", "d<a", "e<d"]), [2, 3]);
        assert_eq!(abandoned(&["a<", "b<a", "c<"]), [1, 2], "the first prompt was replaced");
    }

    #[test]
    fn a_damaged_record_does_not_cut_the_chain() {
        assert!(abandoned(&["a<", "half a li", "c<b", "d<c"]).is_empty());
        assert!(abandoned(&["a<", "b<c", "c<b"]).is_empty(), "each names the other as its parent");
        assert!(abandoned(&["a<a", "b<b"]).is_empty());
        assert!(abandoned(&[]).is_empty());
    }
}
