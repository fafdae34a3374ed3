//! An append that is sent again until its outcome is known, and done once.

use uuid::Uuid;

#[cfg(doc)]
use crate::{NewTurn, SessionStore, StoreError};
use crate::{Seq, SessionRecord};

/// An append that may be repeated: [`NewTurn::operation`].
///
/// A caller that does not learn whether its append was done sends the same turn with the same operation again, at any later time and
/// from any process. The store keeps the id with the first and the last event of the turn. If the session has these events, a
/// repeat changes nothing and returns their place, whatever else it says ([`NewTurn::after`], [`NewTurn::lease`]).
///
/// The id goes with its events, and is not copied to a fork. So if the session was cleared since the first try, nobody knows
/// whether the turn was in it: [`StoreError::Cleared`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Its id. Each turn needs its own.
    pub id: Uuid,
    /// The length of the session before the first try: the events of the operation come after it. An earlier place is as good, and
    /// may cost more.
    pub after: Seq,
    /// The [generation](SessionRecord::generation) of the session before the first try.
    pub generation: u64,
}

impl Operation {
    /// Creates the operation of a turn that was not sent yet, from the record of its session.
    pub fn new(id: Uuid, record: &SessionRecord) -> Self {
        Self { id, after: Seq(record.counts.events), generation: record.generation }
    }
}
