//! Checks of stored sessions: the log itself, and what the store says of it.
//!
//! [`LogCheck`] counts a log again, with the same [`Tally`] that stores count with. [`check_sessions`] does that for every session
//! of any store.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use uuid::Uuid;

use crate::{
    Counts, EventRange, ListQuery, Seq, SessionId, SessionRecord, SessionStore, StoreError, StoredEvent,
    Tally, each_page,
};

/// Something that is wrong with a stored session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionProblem {
    /// An event cannot be decoded.
    Undecodable {
        /// Its place.
        seq: Seq,
        /// The reason.
        why: String,
    },
    /// Events are missing, between two others or at the end.
    Gap {
        /// The last event before the gap.
        after: Seq,
        /// The first event after it, or the place of the next one.
        next: Seq,
    },
    /// Two events have one place.
    SharedPlace {
        /// The place.
        seq: Seq,
    },
    /// The stored counts are not those of the log.
    Counts {
        /// The names of the counts that differ.
        differing: Vec<&'static str>,
    },
    /// Stored values cannot be read.
    Values {
        /// The names of the values.
        names: Vec<String>,
    },
    /// A summary covers events that are not in the log.
    Summary {
        /// The last event that it covers.
        after_seq: Seq,
    },
    /// The session has no UUID.
    NoUuid,
    /// Another session has the same UUID.
    SharedUuid {
        /// The UUID.
        uuid: Uuid,
        /// The other session, which has the lower number.
        with: SessionId,
    },
}

impl fmt::Display for SessionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecodable { seq, why } => write!(f, "event {seq} cannot be decoded: {why}"),
            Self::Gap { after, next } => {
                let (first, last) = (after.next(), Seq(next.0.saturating_sub(1)));
                match first == last {
                    true => write!(f, "event {first} is missing"),
                    false => write!(f, "events {first} to {last} are missing"),
                }
            }
            Self::SharedPlace { seq } => write!(f, "two events have the number {seq}"),
            Self::Counts { differing } => {
                write!(f, "its stored counts are not those of its events: {}", differing.join(", "))
            }
            Self::Values { names } => write!(f, "stored values cannot be read: {}", names.join(", ")),
            Self::Summary { after_seq } => {
                write!(f, "a summary covers the events up to {after_seq}, which are not there")
            }
            Self::NoUuid => f.write_str("it has no UUID"),
            Self::SharedUuid { uuid, with } => write!(f, "it has the UUID {uuid}, which is that of {with}"),
        }
    }
}

/// Checks the log of a session, event by event.
#[derive(Debug, Default)]
pub struct LogCheck {
    tally: Tally,
    problems: Vec<SessionProblem>,
}

impl LogCheck {
    /// Adds the next event, in the order in which the store returns them.
    pub fn add(&mut self, stored: &StoredEvent) {
        let last = self.tally.through;
        if stored.seq <= last {
            self.problems.push(SessionProblem::SharedPlace { seq: stored.seq });
        } else if stored.seq > last.next() {
            self.problems.push(SessionProblem::Gap { after: last, next: stored.seq });
        }
        let event = match stored.event() {
            Ok(event) => Some(event),
            Err(damage) => {
                self.problems.push(SessionProblem::Undecodable { seq: stored.seq, why: damage.0 });
                None
            }
        };
        self.tally.add(stored.seq.max(last), event.as_ref());
    }

    /// Returns the counts of the events so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Compares the log with what the store says of it, and returns all problems.
    ///
    /// The tokens of the last request are not compared: a compaction removes them, and the log does not show when that was.
    pub fn finish(mut self, record: &SessionRecord) -> Vec<SessionProblem> {
        let differing = differing(&record.counts, &self.tally.counts);
        if !differing.is_empty() {
            self.problems.push(SessionProblem::Counts { differing });
        }
        if !record.damaged.is_empty() {
            self.problems.push(SessionProblem::Values { names: record.damaged.clone() });
        }
        self.problems
    }
}

/// Returns the names of the counts that differ.
fn differing(stored: &Counts, counted: &Counts) -> Vec<&'static str> {
    let is_different = [
        ("events", stored.events != counted.events),
        ("messages", stored.messages != counted.messages),
        ("preview", stored.preview != counted.preview),
        ("last_prompt", stored.last_prompt != counted.last_prompt),
        ("answered", stored.answered != counted.answered),
        ("agent", stored.agent != counted.agent),
        ("model", stored.model != counted.model),
        ("requested_model", stored.requested_model != counted.requested_model),
        ("rendered_chars", stored.rendered_chars != counted.rendered_chars),
    ];
    is_different.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

/// Finds the sessions that share a UUID with one of a lower number.
pub fn shared_uuids(
    sessions: impl IntoIterator<Item = (SessionId, Option<Uuid>)>,
) -> Vec<(SessionId, SessionProblem)> {
    let mut sessions: Vec<_> =
        sessions.into_iter().filter_map(|(id, uuid)| uuid.map(|uuid| (id, uuid))).collect();
    sessions.sort();
    let mut first = BTreeMap::new();
    let mut shared = Vec::new();
    for (id, uuid) in sessions {
        match first.get(&uuid) {
            Some(with) => shared.push((id, SessionProblem::SharedUuid { uuid, with: *with })),
            None => drop(first.insert(uuid, id)),
        }
    }
    shared
}

/// The number of attempts to check a session that changes meanwhile.
const ATTEMPTS: usize = 3;

/// Checks every session of a store through its own interface. `progress` gets the number of checked sessions and of all; the check ends
/// early if it returns `Break`.
///
/// The store may be written meanwhile: a session that changes during its check is checked again.
pub async fn check_sessions(
    store: &dyn SessionStore,
    mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Vec<(SessionId, SessionProblem)>, StoreError> {
    let records = store.list(&ListQuery::default()).await?;
    let mut problems = shared_uuids(records.iter().map(|record| (record.id, record.uuid)));
    for (done, record) in records.iter().enumerate() {
        if progress(done, records.len()).is_break() {
            return Ok(problems);
        }
        match check_session(store, record.id).await {
            // It was deleted meanwhile.
            Err(StoreError::NoSuchSession(_)) => {}
            found => problems.extend(found?.into_iter().map(|problem| (record.id, problem))),
        }
    }
    problems.sort_by_key(|(id, _)| *id);
    Ok(problems)
}

/// Checks one session through the interface of its store.
async fn check_session(store: &dyn SessionStore, id: SessionId) -> Result<Vec<SessionProblem>, StoreError> {
    let mut attempts = 1..ATTEMPTS;
    loop {
        let record = store.get(id).await?;
        let mut log = LogCheck::default();
        each_page(store, id, EventRange::All, |page| {
            page.iter().for_each(|stored| log.add(stored));
            Ok::<(), StoreError>(())
        })
        .await?;
        let last = log.tally().through;
        let summaries = store.compactions(id).await?;
        if store.get(id).await?.revision != record.revision && attempts.next().is_some() {
            continue;
        }
        let mut problems = log.finish(&record);
        let beyond = summaries.iter().filter(|summary| summary.after_seq > last);
        problems.extend(beyond.map(|summary| SessionProblem::Summary { after_seq: summary.after_seq }));
        if record.uuid.is_none() {
            problems.push(SessionProblem::NoUuid);
        }
        return Ok(problems);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Damage, Event};

    fn stored(seq: u64, json: Result<String, Damage>) -> StoredEvent {
        StoredEvent::new(Seq(seq), "UserMessage", json)
    }

    #[test]
    fn a_log_is_checked_for_gaps_shared_places_damage_and_counts() {
        let json = || Ok(Event::user("hello").to_json());
        let mut log = LogCheck::default();
        for event in
            [stored(1, json()), stored(4, json()), stored(4, json()), stored(5, Err(Damage("cut".into())))]
        {
            log.add(&event);
        }
        let id = SessionId::new(1).unwrap();
        let mut record = SessionRecord::new(id);
        record.counts = log.tally().counts.clone();
        record.counts.messages += 1;
        let texts: Vec<String> = log.finish(&record).iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "events 2 to 3 are missing",
                "two events have the number 4",
                "event 5 cannot be decoded: cut",
                "its stored counts are not those of its events: messages",
            ]
        );
    }

    #[test]
    fn the_session_of_the_lowest_number_keeps_a_shared_uuid() {
        let [one, two, three] = [1, 2, 3].map(|number| SessionId::new(number).unwrap());
        let uuid = Uuid::from_u128(7);
        let shared = shared_uuids([(three, Some(uuid)), (one, Some(uuid)), (two, None)]);
        assert_eq!(shared, [(three, SessionProblem::SharedUuid { uuid, with: one })]);
    }
}
