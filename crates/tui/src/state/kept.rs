//! What is kept for the next interface: drafts, waiting prompts, history, seen marks.

use std::collections::BTreeMap;

use azureal::SessionRecord;
use azureal::desk::{Draft, Kept, PaneId};

use super::Slot;
use crate::prompt::History;

/// The shortest time between two writes.
const PAUSE_MS: u64 = 1_000;
/// The most drafts of sessions that are not open.
const MOST_DRAFTS: usize = 500;

/// Decides when what must not be lost is written, and what it is.
#[derive(Debug, Clone)]
pub(crate) struct Keeper {
    kept: Kept,
    /// Whether something changed since the last write.
    is_stale: bool,
    last_ms: u64,
    /// The earliest time of the next write.
    due_ms: Option<u64>,
    /// Whether the session that was shown last is still to be opened.
    pub(crate) is_start_open: bool,
}

impl Default for Keeper {
    fn default() -> Self {
        Self { kept: Kept::default(), is_stale: false, last_ms: 0, due_ms: None, is_start_open: true }
    }
}

impl Keeper {
    /// Takes what an earlier interface kept.
    pub(crate) fn restore(&mut self, kept: Kept) {
        self.kept = kept;
    }

    /// Returns the session that was shown last, by its UUID.
    pub(crate) fn last_shown(&self) -> Option<&str> {
        self.kept.shown.as_deref()
    }

    /// Notes that an offer of the desk was received.
    pub(crate) fn received(&mut self, offer: u64) {
        self.kept.offers.push(offer);
    }

    /// Takes the draft of a session, if an earlier interface kept one.
    pub(crate) fn take_draft(&mut self, key: &str) -> Option<Draft> {
        self.kept.drafts.remove(key)
    }

    /// Keeps the text of a slot that is closed.
    pub(crate) fn put_draft(&mut self, slot: &Slot) {
        let draft = draft_of(slot);
        if draft != Draft::default() {
            let key = slot.pane.record().map(Kept::key).unwrap_or_default();
            join(self.kept.drafts.entry(key).or_default(), draft);
        }
    }

    /// Notes that something changed.
    pub(crate) fn touch(&mut self, now_ms: u64) {
        self.is_stale = true;
        self.due_ms.get_or_insert(now_ms.max(self.last_ms.saturating_add(PAUSE_MS)));
    }

    /// Notes that something changed that is written at once.
    pub(crate) fn hurry(&mut self, now_ms: u64) {
        self.is_stale = true;
        self.due_ms = Some(now_ms);
    }

    /// Returns when the next write is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.due_ms.filter(|_| self.is_stale)
    }

    /// Returns whether a session has events that the user has not seen. A session that was never shown here has none.
    pub(crate) fn is_unread(&self, record: &SessionRecord) -> bool {
        let seen = self.kept.seen.get(&Kept::key(record));
        seen.is_some_and(|seen| *seen < record.counts.events)
    }

    /// Notes that the user has seen a session up to its last event.
    pub(crate) fn saw(&mut self, record: &SessionRecord, now_ms: u64) {
        let seen = self.kept.seen.entry(Kept::key(record)).or_default();
        if *seen != record.counts.events {
            *seen = record.counts.events;
            self.touch(now_ms);
        }
    }

    /// Returns what is to be written, if a write is due.
    pub(crate) fn due(
        &mut self,
        slots: &BTreeMap<PaneId, Slot>,
        shown: PaneId,
        history: &History,
        now_ms: u64,
    ) -> Option<Kept> {
        if !self.is_stale || self.due_ms.is_some_and(|due| due > now_ms) {
            return None;
        }
        (self.is_stale, self.due_ms, self.last_ms) = (false, None, now_ms);
        self.kept.shown = slots.get(&shown).and_then(|slot| slot.pane.record()).map(Kept::key);
        self.kept.history = history.kept();
        while self.kept.drafts.len() > MOST_DRAFTS {
            self.kept.drafts.pop_first();
        }
        let mut kept = self.kept.clone();
        // Text of the user that is neither in a box nor sent: it can be found with the history.
        kept.history.extend(slots.values().flat_map(|slot| slot.prompt.other_drafts()));
        for slot in slots.values() {
            let draft = draft_of(slot);
            let key = slot.pane.record().map(Kept::key).unwrap_or_default();
            if draft != Draft::default() {
                join(kept.drafts.entry(key).or_default(), draft);
            }
        }
        Some(kept)
    }
}

/// Returns the text of a slot that is not sent.
fn draft_of(slot: &Slot) -> Draft {
    Draft { text: slot.prompt.draft(), queued: slot.waiting.kept() }
}

/// Adds a draft to another: several new conversations share one key.
fn join(draft: &mut Draft, other: Draft) {
    if draft.text.is_empty() {
        draft.text = other.text;
    } else if !other.text.is_empty() {
        draft.queued.push(other.text);
    }
    draft.queued.extend(other.queued);
}
