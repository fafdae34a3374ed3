//! A cache of rendered ledgers.
//!
//! Until the next compaction a ledger is the same at every turn, and reading the events for it is most of the cost of a context.

use crate::{Compaction, SessionId, SessionRecord};

/// The version of the rules and of the rendering. A change that renders any log in another way needs the next number, or a ledger of
/// an earlier azureal stays in use until the next compaction.
pub(super) const RULES: u32 = 1;

/// Keeps rendered ledgers, one per session, outside the store. It may lose them at any time.
pub trait LedgerCache: Send + Sync {
    /// Returns the ledger that was put under exactly this key.
    fn get(&self, key: &LedgerKey) -> Option<String>;

    /// Keeps a ledger in place of the session's earlier one. A ledger that cannot be kept is rendered again.
    fn put(&self, key: &LedgerKey, ledger: &str);
}

/// Everything that a rendered ledger depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerKey {
    /// The session, by which an entry is found.
    pub session: SessionId,
    /// The rest, which must be equal: on one line.
    pub text: String,
}

impl LedgerKey {
    /// Returns the key of the ledger beside a summary, for a rendering of at most so many characters. `None` if the session has no
    /// identity yet.
    pub(crate) fn of(record: &SessionRecord, compaction: &Compaction, most: usize) -> Option<Self> {
        let uuid = record.uuid?;
        // Appending does not change this number, and removing events does: so the numbers of events stand for the same events.
        let changes = record.revision.checked_sub(record.counts.events)?;
        let text = format!("{RULES} {uuid} {changes} {} {most}", compaction.after_seq);
        Some(Self { session: record.id, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Seq, Uuid};

    #[test]
    fn a_key_stays_the_same_while_events_are_appended_and_for_nothing_else() {
        let mut record = SessionRecord::new(SessionId::new(3).unwrap());
        let compaction = Compaction::new(Seq(9), "They met.");
        assert_eq!(LedgerKey::of(&record, &compaction, 100), None, "it has no identity");
        record.uuid = Some(Uuid::from_u128(7));
        (record.counts.events, record.revision) = (20, 25);
        let key = LedgerKey::of(&record, &compaction, 100).unwrap();
        let appended = SessionRecord { revision: 26, ..record.clone() };
        assert_ne!(LedgerKey::of(&appended, &compaction, 100).unwrap(), key, "another change");
        let mut appended = SessionRecord { revision: 30, ..record.clone() };
        appended.counts.events = 25;
        assert_eq!(LedgerKey::of(&appended, &compaction, 100).unwrap(), key);
        // A clear counts the events that it removes, and one.
        let mut cleared = SessionRecord { revision: 46, ..record.clone() };
        cleared.counts.events = 20;
        assert_ne!(LedgerKey::of(&cleared, &compaction, 100).unwrap(), key);
        assert_ne!(LedgerKey::of(&record, &Compaction::new(Seq(8), "They met."), 100).unwrap(), key);
        assert_ne!(LedgerKey::of(&record, &compaction, 101).unwrap(), key);
        let other = SessionRecord { uuid: Some(Uuid::from_u128(8)), ..record };
        assert_ne!(LedgerKey::of(&other, &compaction, 100).unwrap(), key);
    }
}
