//! Warnings about events and sessions that cannot be read.

use azureal::exchange::DamagedEvents;
use azureal_core::{SessionId, SessionRecord};

use crate::output;

/// Warns about the events of a session that cannot be read.
pub(crate) fn warn_of_damaged_events(damaged: &DamagedEvents, id: SessionId) {
    if let Some(message) = damaged.message(id) {
        output::warn(&message);
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
