//! The last step of an import: into the store, once.
//!
//! What was imported from where is remembered as a mark, set in the same transaction as the events: how many
//! there were and what they hash to. A second import finds it and changes nothing. A source that has grown
//! continues its session, as long as nobody else has; where the session was cleared, its events come back.
//! Anything else is another session, and gets the next free mark of that origin: two files that say they are
//! the same session can be imported again and again, in any order, without one pushing out the other.
//!
//! Others may import the same at the same time. What was found is a condition of what is written: if it does
//! not hold any more, nothing is written and it is looked at again.

use std::collections::BTreeMap;

use azureal_core::{
    Compaction, Mark, NewEvent, NewMark, NewSession, Page, Seq, SessionId, SessionStore, StoreError, Tokens,
    Turn, TurnTotals, check_name, normal_timestamp,
};
use serde::{Deserialize, Serialize};

use super::Arrival;
use crate::failure::{Failure, quoted};
use crate::pages::{Range, each_page};

/// How often it is looked again when others change what was found.
const ATTEMPTS: usize = 16;

/// What became of a session that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is a new session of so many events.
    New(SessionId, usize),
    /// It had been imported before, and so much is new.
    Continued(SessionId, Gained),
    /// It had been imported before, all of it.
    Unchanged(SessionId),
}

/// What an import added to a session that was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gained {
    pub(crate) events: usize,
    pub(crate) summaries: usize,
}

/// What a mark remembers of an import.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Note {
    events: usize,
    hash: String,
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    #[serde(default)]
    duration_ms: u64,
    #[serde(default)]
    cost_usd: f64,
}

/// Puts a session into the store, unless it is there.
pub(crate) async fn arrive(
    store: &dyn SessionStore,
    worktree: &str,
    arrival: &mut Arrival,
) -> Result<Outcome, Failure> {
    if let Some(name) = arrival.name.take_if(|name| check_name(name).is_err()) {
        let problem = format!("{} cannot be the name of a session; it has none now", quoted(&name));
        arrival.problems.push(problem);
    }
    let totals = match arrival.totals {
        Some(totals) => totals,
        None => totals_of(&arrival.events)?,
    };
    let note = Note {
        events: arrival.events.len(),
        hash: hash(&arrival.events),
        input_tokens: arrival.tokens.input,
        output_tokens: arrival.tokens.output,
        duration_ms: totals.duration_ms,
        cost_usd: totals.cost_usd,
    };
    let arriving = Arriving { store, worktree, arrival, totals, note };
    for _ in 0..ATTEMPTS {
        if let Some(outcome) = arriving.look_and_put().await? {
            return Ok(outcome);
        }
    }
    let message = format!("{}: its session keeps changing while it is imported", arrival.source);
    Err(Failure::new("conflict", message).with_hint("import it again; nothing of it is there twice"))
}

/// A session on its way into a store.
struct Arriving<'a> {
    store: &'a dyn SessionStore,
    worktree: &'a str,
    arrival: &'a Arrival,
    totals: TurnTotals,
    /// What its mark will remember.
    note: Note,
}

/// What a mark says about an arrival.
enum Found {
    /// No session has this mark.
    Nothing,
    /// The session that has it holds all of this.
    All(SessionId),
    /// The session that has it holds the beginning of this, and nothing else.
    Beginning(Beginning),
    /// The session that has it is another one.
    Another,
}

/// A session that an arrival continues.
struct Beginning {
    id: SessionId,
    /// How many events of the arrival it has: none if it was cleared.
    events: usize,
    /// Its last event.
    last: Seq,
    /// What was imported before.
    old: Note,
}

impl Arriving<'_> {
    /// Looks for what is there and adds what is not; nothing if somebody changed it in between.
    async fn look_and_put(&self) -> Result<Option<Outcome>, Failure> {
        let mut copy: u64 = 1;
        loop {
            let name = match copy {
                1 => format!("import:{}", self.arrival.origin),
                copy => format!("import:{}#{copy}", self.arrival.origin),
            };
            match self.compare(&name).await? {
                Found::Nothing => {
                    return match self.at_home().await? {
                        Some(id) => Ok(Some(Outcome::Unchanged(id))),
                        None => self.create(name).await,
                    };
                }
                Found::All(id) => {
                    let Some(summaries) = self.add_summaries(id).await? else { return Ok(None) };
                    return Ok(Some(match summaries {
                        0 => Outcome::Unchanged(id),
                        summaries => Outcome::Continued(id, Gained { events: 0, summaries }),
                    }));
                }
                Found::Beginning(beginning) => return self.go_on(beginning, name).await,
                Found::Another => copy += 1,
            }
        }
    }

    async fn compare(&self, name: &str) -> Result<Found, Failure> {
        loop {
            let Some(mark) = self.store.mark(name).await? else {
                return Ok(Found::Nothing);
            };
            let found = self.compare_with(name, &mark).await?;
            // Somebody may have gone on with the session between our looks at its mark and at its events. Then
            // it only seems to be another one.
            let has_moved =
                matches!(found, Found::Another) && self.store.mark(name).await?.is_none_or(|now| now != mark);
            if !has_moved {
                return Ok(found);
            }
        }
    }

    async fn compare_with(&self, name: &str, mark: &Mark) -> Result<Found, Failure> {
        let (arrival, note) = (self.arrival, &self.note);
        let id = mark.session;
        // What was counted is not asked: another program may have changed the events without counting.
        let last = match self.store.read(id, Page::last(1)).await {
            Err(StoreError::NoSuchSession(_)) => {
                // A program that knows nothing of marks has deleted the session.
                if self.store.mark(name).await?.is_some_and(|now| now == *mark) {
                    self.store.remove_mark(name).await?;
                }
                return Ok(Found::Nothing);
            }
            page => page?.last().map_or(Seq::START, |event| event.seq),
        };
        let Ok(old) = serde_json::from_str::<Note>(&mark.note) else {
            return Ok(Found::Another);
        };
        let goes_on = note.events >= old.events
            && arrival.events.get(..old.events).is_some_and(|beginning| hash(beginning) == old.hash);
        if last == Seq::START && goes_on && note.events > 0 {
            return Ok(Found::Beginning(Beginning { id, events: 0, last, old }));
        }
        if note.events <= old.events {
            // This or an older state of the source: all of it is there if the session begins with it.
            let stored = stored_beginning(self.store, id, note.events).await?;
            let is_there = stored.is_some_and(|stored| stored.hash == note.hash);
            return Ok(if is_there { Found::All(id) } else { Found::Another });
        }
        if !goes_on {
            return Ok(Found::Another);
        }
        Ok(match stored_beginning(self.store, id, old.events).await? {
            Some(stored) if stored.hash == old.hash && stored.last == last => {
                Found::Beginning(Beginning { id, events: old.events, last, old })
            }
            _ => Found::Another,
        })
    }

    /// Returns the session of this store that the arrival was exported from, if it holds all of it.
    async fn at_home(&self) -> Result<Option<SessionId>, Failure> {
        let Some((id, created_at)) = &self.arrival.home else {
            return Ok(None);
        };
        let record = match self.store.get(*id).await {
            Err(StoreError::NoSuchSession(_)) => return Ok(None),
            record => record?,
        };
        if record.created_at != *created_at || created_at.is_empty() {
            return Ok(None);
        }
        let stored = stored_beginning(self.store, *id, self.note.events).await?;
        Ok(stored.is_some_and(|stored| stored.hash == self.note.hash).then_some(*id))
    }

    async fn create(&self, mark: String) -> Result<Option<Outcome>, Failure> {
        let arrival = self.arrival;
        let new = NewSession {
            created_at: arrival.created_at.as_deref().and_then(to_the_second),
            name: arrival.name.clone(),
            worktree: arrival.worktree.clone().unwrap_or_else(|| self.worktree.to_owned()),
        };
        let turn = Turn {
            events: new_events(&arrival.events)?,
            tokens: arrival.tokens,
            mark: Some(self.mark(mark)?),
            totals: Some(self.totals),
            ..Turn::default()
        };
        let created = self.store.create_with(new, turn, summaries(arrival)).await;
        Ok(unless_changed(created)?.map(|id| Outcome::New(id, arrival.events.len())))
    }

    async fn go_on(&self, beginning: Beginning, mark: String) -> Result<Option<Outcome>, Failure> {
        let Beginning { id, events, last, old } = beginning;
        let tail = self.arrival.events.get(events..).unwrap_or(&[]);
        // What was added to the totals then is still in them, also if the events were cleared since.
        let turn = Turn {
            events: new_events(tail)?,
            tokens: Tokens {
                input: self.note.input_tokens.saturating_sub(old.input_tokens),
                output: self.note.output_tokens.saturating_sub(old.output_tokens),
            },
            mark: Some(self.mark(mark)?),
            after: Some(last),
            totals: Some(TurnTotals {
                completed: self.totals.completed,
                duration_ms: self.note.duration_ms.saturating_sub(old.duration_ms),
                cost_usd: (self.note.cost_usd - old.cost_usd).max(0.0),
            }),
            ..Turn::default()
        };
        if unless_changed(self.store.append(id, turn).await)?.is_none() {
            return Ok(None);
        }
        // Should this fail, the next import finds what is missing.
        let summaries = self.add_summaries(id).await?.unwrap_or(0);
        Ok(Some(Outcome::Continued(id, Gained { events: tail.len(), summaries })))
    }

    /// Adds the summaries that the session does not have, and says how many; nothing if it is gone.
    async fn add_summaries(&self, id: SessionId) -> Result<Option<usize>, Failure> {
        let wanted = summaries(self.arrival);
        if wanted.is_empty() {
            return Ok(Some(0));
        }
        let Some(known) = unless_changed(self.store.compactions(id).await)? else {
            return Ok(None);
        };
        let mut added = 0;
        for summary in wanted {
            if known.iter().all(|known| known.after_seq != summary.after_seq) {
                let done = self.store.add_compaction(id, summary.after_seq, &summary.summary).await;
                if unless_changed(done)?.is_none() {
                    return Ok(None);
                }
                added += 1;
            }
        }
        Ok(Some(added))
    }

    fn mark(&self, name: String) -> Result<NewMark, Failure> {
        Ok(NewMark { name, note: crate::output::to_json(&self.note)? })
    }
}

/// Returns nothing where the store refused because somebody has changed what was found.
fn unless_changed<T>(answer: Result<T, StoreError>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(
            StoreError::Moved { .. }
            | StoreError::Marked(_)
            | StoreError::NoSuchSession(_)
            | StoreError::NoSuchEvent { .. },
        ) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Brings a time of another program into the form that is stored; nothing if it is no time.
fn to_the_second(time: &str) -> Option<String> {
    let time: jiff::Timestamp = normal_timestamp(time).parse().ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Returns the summaries as they are stored, one for each place.
fn summaries(arrival: &Arrival) -> Vec<Compaction> {
    let mut by_place = BTreeMap::new();
    for summary in &arrival.compactions {
        let after_seq = Seq(summary.covers as u64);
        // What covered nothing but events that were left out covers nothing.
        if after_seq > Seq::START {
            let created_at = to_the_second(&summary.created_at).unwrap_or_default();
            by_place.insert(after_seq, Compaction { after_seq, summary: summary.text.clone(), created_at });
        }
    }
    by_place.into_values().collect()
}

fn totals_of(texts: &[String]) -> Result<TurnTotals, Failure> {
    let events = new_events(texts)?;
    Ok(TurnTotals::of(events.iter().map(NewEvent::event)))
}

fn new_events(texts: &[String]) -> Result<Vec<NewEvent>, Failure> {
    texts
        .iter()
        .map(|text| {
            NewEvent::verbatim(text.clone())
                .map_err(|error| Failure::new("broken", format!("an event cannot be read: {error}")))
        })
        .collect()
}

/// Returns one hash for a list of texts; where one ends and the next begins counts.
fn hash<T: AsRef<str>>(texts: &[T]) -> String {
    let mut hasher = blake3::Hasher::new();
    for text in texts {
        add_to_hash(&mut hasher, text.as_ref());
    }
    hasher.finalize().to_hex().to_string()
}

fn add_to_hash(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

/// The first events of a session.
struct StoredBeginning {
    hash: String,
    last: Seq,
}

/// Returns what the first events of a session hash to; nothing if there are fewer, or one cannot be read.
async fn stored_beginning(
    store: &dyn SessionStore,
    id: SessionId,
    count: usize,
) -> Result<Option<StoredBeginning>, Failure> {
    let mut hasher = blake3::Hasher::new();
    let (mut read, mut last) = (0, Seq::START);
    let whole = each_page(store, id, Range::First(count), |page| {
        for stored in &page {
            if let Ok(json) = &stored.json {
                add_to_hash(&mut hasher, json);
                read += 1;
                last = stored.seq;
            }
        }
        Ok::<(), StoreError>(())
    });
    whole.await?;
    Ok((read == count).then(|| StoredBeginning { hash: hasher.finalize().to_hex().to_string(), last }))
}

#[cfg(test)]
mod tests {
    use azureal_core::{Event, SessionRecord, append_events};
    use azureal_store::MemoryStore;
    use futures_executor::block_on;

    use super::super::Summary;
    use super::*;

    fn arrival(texts: &[&str]) -> Arrival {
        Arrival {
            source: "test".into(),
            origin: "test:1".into(),
            name: Some("n".into()),
            worktree: None,
            created_at: None,
            events: texts.iter().map(|text| Event::user(*text).to_json()).collect(),
            compactions: Vec::new(),
            tokens: Tokens { input: texts.len() as u64 * 10, output: 0 },
            totals: None,
            home: None,
            problems: Vec::new(),
        }
    }

    struct Bench(MemoryStore);

    impl Bench {
        fn import(&self, texts: &[&str]) -> Outcome {
            block_on(arrive(&self.0, ".", &mut arrival(texts))).unwrap()
        }

        fn get(&self, id: SessionId) -> SessionRecord {
            block_on(self.0.get(id)).unwrap()
        }
    }

    fn id(number: u32) -> SessionId {
        SessionId::new(number).unwrap()
    }

    fn continued(number: u32, events: usize) -> Outcome {
        Outcome::Continued(id(number), Gained { events, summaries: 0 })
    }

    #[test]
    fn the_same_thing_twice_changes_nothing() {
        let bench = Bench(MemoryStore::default());
        assert_eq!(bench.import(&["a", "b"]), Outcome::New(id(1), 2));
        assert_eq!(bench.import(&["a", "b"]), Outcome::Unchanged(id(1)));
        // An older state of the same source brings nothing either.
        assert_eq!(bench.import(&["a"]), Outcome::Unchanged(id(1)));
        assert_eq!(bench.import(&[]), Outcome::Unchanged(id(1)));
    }

    #[test]
    fn a_source_that_has_grown_continues_its_session() {
        let bench = Bench(MemoryStore::default());
        bench.import(&["a"]);
        assert_eq!(bench.import(&["a", "b", "c"]), continued(1, 2));
        assert_eq!(bench.import(&["a", "b", "c"]), Outcome::Unchanged(id(1)));
        let record = bench.get(id(1));
        assert_eq!((record.counts.events, record.tokens.input), (3, 30));
    }

    #[test]
    fn a_session_that_went_on_here_is_left_alone() {
        let bench = Bench(MemoryStore::default());
        bench.import(&["a"]);
        block_on(append_events(&bench.0, id(1), [Event::user("mine")])).unwrap();
        assert_eq!(bench.import(&["a"]), Outcome::Unchanged(id(1)));
        assert_eq!(bench.import(&["a", "b"]), Outcome::New(id(2), 2));
        assert_eq!(bench.import(&["a", "b"]), Outcome::Unchanged(id(2)));
        assert_eq!(bench.import(&["a", "b", "c"]), continued(2, 1));
        assert_eq!(bench.get(id(1)).counts.events, 2);
    }

    #[test]
    fn two_sources_of_one_origin_do_not_push_each_other_out() {
        let bench = Bench(MemoryStore::default());
        assert_eq!(bench.import(&["x", "1"]), Outcome::New(id(1), 2));
        assert_eq!(bench.import(&["x", "2"]), Outcome::New(id(2), 2));
        assert_eq!(bench.import(&["x", "1"]), Outcome::Unchanged(id(1)));
        assert_eq!(bench.import(&["x", "2"]), Outcome::Unchanged(id(2)));
    }

    #[test]
    fn what_was_deleted_can_be_imported_again() {
        let bench = Bench(MemoryStore::default());
        bench.import(&["a"]);
        block_on(bench.0.delete(id(1))).unwrap();
        assert_eq!(bench.import(&["a"]), Outcome::New(id(2), 1));
        assert_eq!(bench.import(&["a"]), Outcome::Unchanged(id(2)));
    }

    #[test]
    fn what_was_cleared_comes_back() {
        let bench = Bench(MemoryStore::default());
        bench.import(&["a", "b"]);
        block_on(bench.0.clear(id(1))).unwrap();
        assert_eq!(bench.import(&["a", "b"]), continued(1, 2));
        assert_eq!(bench.import(&["a", "b"]), Outcome::Unchanged(id(1)));
        // Clearing leaves the totals, so they are not added a second time.
        assert_eq!((bench.get(id(1)).counts.events, bench.get(id(1)).tokens.input), (2, 20));
        block_on(bench.0.clear(id(1))).unwrap();
        assert_eq!(bench.import(&["a", "b", "c"]), continued(1, 3));
        assert_eq!((bench.get(id(1)).counts.events, bench.get(id(1)).tokens.input), (3, 30));
        // One that went on after it was cleared is left alone.
        block_on(bench.0.clear(id(1))).unwrap();
        block_on(append_events(&bench.0, id(1), [Event::user("mine")])).unwrap();
        assert_eq!(bench.import(&["a", "b", "c"]), Outcome::New(id(2), 3));
        assert_eq!(bench.get(id(1)).counts.events, 1);
    }

    #[test]
    fn a_cleared_session_is_not_filled_with_another() {
        let bench = Bench(MemoryStore::default());
        bench.import(&["x", "1"]);
        block_on(bench.0.clear(id(1))).unwrap();
        assert_eq!(bench.import(&["x", "2"]), Outcome::New(id(2), 2));
    }

    #[test]
    fn summaries_that_came_later_are_added() {
        let bench = Bench(MemoryStore::default());
        bench.import(&["a"]);
        let summary = |covers, text: &str| Summary { covers, text: text.into(), created_at: String::new() };
        let mut grown = arrival(&["a"]);
        grown.compactions = vec![summary(0, "nothing"), summary(1, "first"), summary(1, "second")];
        let gained = Gained { events: 0, summaries: 1 };
        assert_eq!(block_on(arrive(&bench.0, ".", &mut grown)).unwrap(), Outcome::Continued(id(1), gained));
        assert_eq!(block_on(arrive(&bench.0, ".", &mut grown)).unwrap(), Outcome::Unchanged(id(1)));
        assert_eq!(block_on(bench.0.compactions(id(1))).unwrap()[0].summary, "second");
    }

    #[test]
    fn texts_are_hashed_with_their_bounds() {
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&[""]), hash::<&str>(&[]));
    }
}
