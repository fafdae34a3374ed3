//! The blocks of a pane: those of its events, and lines that are no events.

use std::collections::HashSet;

use azureal::Event;
use azureal::Seq;
use azureal::core::Tool;
use azureal::transcript::{Author, Block, CallState, Content, Level, Places, Transcript};

use super::window::Held;

/// The first event of a block, and its number among the blocks that begin with that event.
pub(super) type Key = (Seq, u16);

/// The block with the state of the running turn, always the last one.
pub(super) const STATUS: Key = (Seq::END, u16::MAX);
/// The block of a prompt that is no event yet. Its number is not known: other processes may store events before it.
pub(super) const PROMPT: Key = (Seq::END, 0);
/// The part of the line about events that are not held.
const DROPPED_PART: u16 = u16::MAX - 1;
/// The first part of notices: they follow all blocks of the event that they came after.
const NOTICE_PART: u16 = 0x8000;
/// The most notices that are kept.
const MOST_NOTICES: usize = 64;

/// Returns the key of a block after [`Blocks::settle_notices`].
pub(super) fn settled(key: Key, last: Seq) -> Key {
    if (NOTICE_PART..DROPPED_PART).contains(&key.1) { (key.0.min(last), key.1) } else { key }
}

/// The blocks in their order.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    transcript: Transcript,
    places: Places,
    /// Blocks that are no events, ordered by their keys.
    others: Vec<Block>,
    order: Vec<Item>,
    notices: u16,
    /// The events that are changes of files, or their undo.
    changes: HashSet<Seq>,
}

#[derive(Debug, Clone, Copy)]
enum Item {
    Event(usize),
    Other(usize),
}

impl Blocks {
    /// Folds the events again.
    pub(super) fn rebuild<'a>(&mut self, events: impl Iterator<Item = &'a Held>) {
        self.transcript = Transcript::new(self.places.clone());
        self.changes.clear();
        for held in events {
            self.push(held);
        }
    }

    /// Sets the directories that paths are relative to. Returns whether they are other ones.
    pub(super) fn set_places(&mut self, places: Places) -> bool {
        let is_other = self.places != places;
        self.places = places;
        is_other
    }

    pub(super) fn clear(&mut self) {
        self.transcript = Transcript::new(self.places.clone());
        self.order.clear();
    }

    pub(super) fn push(&mut self, held: &Held) {
        if matches!(held.event, Event::Changes(_) | Event::Undo(_)) {
            self.changes.insert(held.seq);
        }
        self.transcript.push(held.seq, &held.event);
    }

    /// Returns whether a block is the line of changes of files, or of their undo.
    pub(super) fn is_change(&self, block: &Block) -> bool {
        self.changes.contains(&block.seq) && block.part < NOTICE_PART
    }

    pub(super) fn push_delta(&mut self, seq: Seq, text: &str) {
        self.transcript.push_delta(seq, text);
    }

    /// Adds a line after an event.
    pub(super) fn notice(&mut self, after: Seq, level: Level, text: String) -> Key {
        self.notices = self.notices.wrapping_add(1) % (DROPPED_PART - NOTICE_PART - 1);
        let key = (after, NOTICE_PART + self.notices);
        self.add(Block::new(key.0, key.1, Content::Notice(level, text)));
        let is_notice = |block: &Block| (NOTICE_PART..DROPPED_PART).contains(&block.part);
        if self.others.iter().filter(|block| is_notice(block)).count() > MOST_NOTICES
            && let Some(oldest) = self.others.iter().position(is_notice)
        {
            self.others.remove(oldest);
        }
        key
    }

    /// Puts notices that came after events which are not there any more after the last event.
    pub(super) fn settle_notices(&mut self, last: Seq) {
        for block in &mut self.others {
            let (seq, _) = settled((block.seq, block.part), last);
            if seq != block.seq {
                (block.seq, block.last) = (seq, seq);
            }
        }
        self.others.sort_by_key(|block| (block.seq, block.part));
    }

    /// Shows a prompt that is no event yet, in the place of the one before.
    pub(super) fn prompt(&mut self, prompt: &str) {
        self.remove(PROMPT);
        self.add(Block::prompt(PROMPT.0, prompt));
    }

    /// Shows the state of the running turn.
    pub(super) fn status(&mut self, text: Option<String>) {
        self.remove(STATUS);
        if let Some(text) = text {
            self.add(Block::new(STATUS.0, STATUS.1, Content::Notice(Level::Info, text)));
        }
    }

    /// Says that the first events of the running turn are not held: the first one that is, and their number.
    pub(super) fn dropped(&mut self, dropped: Option<(Seq, u64)>) {
        self.others.retain(|block| block.part != DROPPED_PART);
        if let Some((first, count)) = dropped {
            let text = format!("{count} earlier events of this turn are shown when it is stored");
            self.add(Block::new(
                Seq(first.0.saturating_sub(1)),
                DROPPED_PART,
                Content::Notice(Level::Info, text),
            ));
        }
    }

    fn add(&mut self, block: Block) {
        let key = (block.seq, block.part);
        let at = self.others.partition_point(|other| (other.seq, other.part) <= key);
        self.others.insert(at, block);
    }

    /// Removes a block that is no event.
    pub(super) fn remove(&mut self, key: Key) {
        self.others.retain(|block| (block.seq, block.part) != key);
    }

    /// Removes all blocks that are no events.
    pub(super) fn clear_others(&mut self) {
        self.others.clear();
    }

    /// Puts all blocks in order. To be called after changes, before blocks are asked for. Blocks that are no events and do not belong
    /// to the events that are held are left out.
    pub(super) fn put_in_order(&mut self, first: Seq, is_at_end: bool) {
        self.order.clear();
        let events = self.transcript.blocks();
        let end = events.last().map_or(Seq::START, |block| block.seq);
        let mut others = self
            .others
            .iter()
            .enumerate()
            .filter(|(_, block)| block.seq >= first && (is_at_end || block.seq <= end))
            .peekable();
        for (at, block) in events.iter().enumerate() {
            while let Some((other, _)) =
                others.next_if(|(_, other)| (other.seq, other.part) < (block.seq, block.part))
            {
                self.order.push(Item::Other(other));
            }
            self.order.push(Item::Event(at));
        }
        self.order.extend(others.map(|(other, _)| Item::Other(other)));
    }

    /// Returns the last command of each turn whose end is held. A command that failed shows its reason anyway.
    pub(super) fn last_commands(&self) -> HashSet<Key> {
        let mut found = HashSet::new();
        let mut last = None;
        for block in self.transcript.blocks() {
            match &block.content {
                Content::Text(text) if text.author == Author::User => last = None,
                Content::Call(call) if !call.is_subagents && Tool::named(&call.tool) == Tool::Bash => {
                    last = (call.state == CallState::Done).then_some((block.seq, block.part));
                }
                Content::End(_) => found.extend(last.take()),
                _ => {}
            }
        }
        found
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Block> {
        match *self.order.get(index)? {
            Item::Event(at) => self.transcript.blocks().get(at),
            Item::Other(at) => self.others.get(at),
        }
    }

    pub(super) fn key(&self, index: usize) -> Option<Key> {
        self.get(index).map(|block| (block.seq, block.part))
    }

    /// Finds a block; if it is gone, the block that its event belongs to now, else the nearest one after it, else the last one.
    pub(super) fn find(&self, key: Key) -> Option<usize> {
        let last = self.len().checked_sub(1)?;
        let at = self.order.partition_point(|item| {
            let block = match *item {
                Item::Event(at) => self.transcript.blocks().get(at),
                Item::Other(at) => self.others.get(at),
            };
            block.is_some_and(|block| (block.seq, block.part) < key)
        });
        if self.key(at) == Some(key) {
            return Some(at);
        }
        // A result whose call came with an older page is now part of the block of that call.
        let holder = (0..at).rev().take(64).find(|&before| {
            self.get(before)
                .is_some_and(|block| block.last >= key.0 && matches!(block.content, Content::Call(_)))
        });
        Some(holder.unwrap_or(at).min(last))
    }

    /// Finds the first block at or after an event.
    pub(super) fn at_seq(&self, seq: Seq) -> Option<usize> {
        self.find((seq, 0))
    }

    pub(super) fn is_exact(&self, key: Key) -> bool {
        self.find(key).is_some_and(|at| self.key(at) == Some(key))
    }
}
