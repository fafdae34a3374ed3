//! Events that cannot be read.

use azureal_core::{SessionId, StoredEvent};

/// The stored events of a session that cannot be read: their number, and a description of the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DamagedEvents {
    count: u64,
    first: Option<String>,
}

impl DamagedEvents {
    /// Adds an event.
    pub fn add(&mut self, stored: &StoredEvent, why: &str) {
        self.count += 1;
        self.first.get_or_insert_with(|| format!("event {} ({}): {why}", stored.seq, stored.kind));
    }

    /// Returns the number of events.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns a message for people about the events of session `id`; `None` if there are none.
    pub fn message(&self, id: SessionId) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(match self.count {
            1 => format!("one event of {id} cannot be read: {first}"),
            count => format!("{count} events of {id} cannot be read, the first is {first}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::{Damage, Seq};

    use super::*;

    #[test]
    fn a_message_names_the_first_damaged_event() {
        let id = SessionId::new(3).unwrap();
        let stored = |seq| StoredEvent::new(Seq(seq), "K", Err(Damage("x".into())));
        let mut damaged = DamagedEvents::default();
        assert_eq!(damaged.message(id), None);
        damaged.add(&stored(2), "bad frame");
        assert_eq!(damaged.message(id).unwrap(), "one event of S3 cannot be read: event 2 (K): bad frame");
        damaged.add(&stored(5), "not JSON");
        let message = damaged.message(id).unwrap();
        assert_eq!(message, "2 events of S3 cannot be read, the first is event 2 (K): bad frame");
    }
}
