//! Events and sessions that cannot be read, told at the end.

use azureal_core::{SessionId, SessionRecord, StoredEvent};

use crate::output;

/// Keeps count of events that cannot be read, to tell of them at the end.
#[derive(Debug, Default)]
pub(crate) struct Damaged {
    count: u64,
    first: Option<String>,
}

impl Damaged {
    pub(crate) fn note(&mut self, stored: &StoredEvent, why: &str) {
        self.count += 1;
        self.first.get_or_insert_with(|| format!("event {} ({}): {why}", stored.seq, stored.kind));
    }

    /// Tells of them on standard error.
    pub(crate) fn report(&self, id: SessionId) {
        let Some(first) = &self.first else { return };
        output::warn(&match self.count {
            1 => format!("one event of {id} cannot be read: {first}"),
            count => format!("{count} events of {id} cannot be read, the first is {first}"),
        });
    }
}

/// How many damaged sessions are reported one by one.
const REPORTED: usize = 10;

/// Reports stored values of sessions that cannot be read, on standard error.
pub(crate) fn warn_of_damage(records: &[SessionRecord]) {
    let damaged: Vec<&SessionRecord> = records.iter().filter(|record| !record.damaged.is_empty()).collect();
    for record in damaged.iter().take(REPORTED) {
        let values = record.damaged.join(", ");
        output::warn(&format!("{} has values in the store that cannot be read: {values}", record.id));
    }
    if let Some(more) = damaged.len().checked_sub(REPORTED).filter(|more| *more > 0) {
        output::warn(&format!("{more} more sessions have values in the store that cannot be read"));
    }
}
