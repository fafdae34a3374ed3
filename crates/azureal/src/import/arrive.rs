//! The last step of an import: into the store, once.
//!
//! What was imported from where is remembered as a mark, set in the same transaction as the events: how many
//! there were and what they hash to. A second import finds it and changes nothing. A source that has grown
//! continues its session, as long as that holds nothing else; where the session was cleared, its events come back.
//! Anything else is another session, and gets the next free mark of that origin: two files that say they are
//! the same session can be imported again and again, in any order, without one pushing out the other.
//!
//! A long session arrives in pieces, each with the mark of the state that it makes: whoever is interrupted in
//! between has imported a source that has grown since, and goes on.
//!
//! Others may import the same at the same time. What was found is a condition of what is written: if it does
//! not hold any more, nothing is written and it is looked at again.

use std::collections::BTreeMap;

use azureal_core::{
    Compaction, Mark, NewMark, NewSession, Seq, SessionId, SessionStore, StoreError, Tokens, Turn,
    TurnTotals, check_name, normal_timestamp,
};
use serde::{Deserialize, Serialize};

use super::Arrival;
use super::azureal::{home, origin, origin_mark};
use super::texts::{Hash, Reader};
use crate::failure::{Failure, quoted};
use crate::output::{counted, to_json};
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

impl Outcome {
    /// Returns the session that it is now.
    pub(crate) fn session(self) -> SessionId {
        match self {
            Self::New(id, _) | Self::Continued(id, _) | Self::Unchanged(id) => id,
        }
    }
}

/// What an import added to a session that was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gained {
    pub(crate) events: usize,
    pub(crate) summaries: usize,
}

impl Gained {
    pub(crate) fn in_words(self) -> String {
        let events = counted(self.events as u64, "new event");
        let summaries = match self.summaries {
            1 => "1 new summary".to_owned(),
            count => format!("{count} new summaries"),
        };
        match (self.events, self.summaries) {
            (_, 0) => events,
            (0, _) => summaries,
            _ => format!("{events} and {summaries}"),
        }
    }
}

/// What a mark remembers of an import.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    events: usize,
    hash: String,
}

/// Puts a session into the store, unless it is there. `progress` hears how many of its events are there, piece by
/// piece, and can put an end to it; what is there then is gone on with the next time.
pub(crate) async fn arrive(
    store: &dyn SessionStore,
    worktree: &str,
    arrival: &mut Arrival,
    progress: &dyn Fn(usize) -> Result<(), Failure>,
) -> Result<Outcome, Failure> {
    if let Some(name) = arrival.name.take_if(|name| check_name(name).is_err()) {
        let problem = format!("{} cannot be the name of a session; it has none now", quoted(&name));
        arrival.problems.push(problem);
    }
    let arriving = Arriving { store, worktree, arrival, progress };
    for _ in 0..ATTEMPTS {
        if let Some(outcome) = arriving.look_and_put().await? {
            arriving.remember_origin(outcome.session()).await?;
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
    progress: &'a dyn Fn(usize) -> Result<(), Failure>,
}

/// What a session of the store has to do with an arrival.
enum Found<'a> {
    /// There is none.
    Nothing,
    /// It holds all of it.
    All(SessionId),
    /// It holds the beginning of it, and nothing else.
    Beginning(Beginning<'a>),
    /// It is another one.
    Another,
}

/// A session that an arrival continues.
struct Beginning<'a> {
    id: SessionId,
    /// Its last event.
    last: Seq,
    /// What it has of the totals. Those are still there if its events were cleared.
    tokens: Tokens,
    totals: TurnTotals,
    /// The events that it does not have: all of them if it was cleared.
    rest: Reader<'a>,
}

impl<'a> Arriving<'a> {
    /// Looks for what is there and adds what is not; nothing if somebody changed it in between.
    async fn look_and_put(&self) -> Result<Option<Outcome>, Failure> {
        let mut copy: u64 = 1;
        loop {
            let name = match copy {
                1 => format!("import:{}", self.arrival.origin),
                copy => format!("import:{}#{copy}", self.arrival.origin),
            };
            let found = match self.compare(&name).await? {
                Found::Nothing => self.at_home().await?,
                Found::Another => {
                    copy += 1;
                    continue;
                }
                found => found,
            };
            return match found {
                Found::All(id) => {
                    let Some(summaries) = self.add_summaries(id).await? else { return Ok(None) };
                    Ok(Some(match summaries {
                        0 => Outcome::Unchanged(id),
                        summaries => Outcome::Continued(id, Gained { events: 0, summaries }),
                    }))
                }
                Found::Beginning(beginning) => self.go_on(beginning, &name).await,
                Found::Nothing | Found::Another => self.create(&name).await,
            };
        }
    }

    /// Compares with the session that bears a mark.
    async fn compare(&self, name: &str) -> Result<Found<'a>, Failure> {
        loop {
            let Some(mark) = self.store.mark(name).await? else {
                return Ok(Found::Nothing);
            };
            let found = self.compare_with(mark.session, Some(&mark)).await?;
            // Somebody may have changed the session between our looks at its mark and at its events. Then it only
            // seems to be another one.
            let is_settled = match &found {
                Found::All(_) | Found::Beginning(_) => true,
                Found::Nothing | Found::Another => {
                    self.store.mark(name).await?.is_some_and(|now| now == mark)
                }
            };
            if is_settled && matches!(found, Found::Nothing) {
                // A program that knows nothing of marks has deleted the session.
                self.store.remove_mark(name).await?;
            }
            if is_settled {
                return Ok(found);
            }
        }
    }

    /// Compares with a session, which bears this mark if it was imported.
    async fn compare_with(&self, id: SessionId, mark: Option<&Mark>) -> Result<Found<'a>, Failure> {
        let texts = &self.arrival.texts;
        let read = async {
            let stored = stored_beginning(self.store, id, texts.count).await?;
            Ok((stored, self.store.get(id).await?))
        };
        let (stored, record) = match read.await {
            Err(StoreError::NoSuchSession(_)) => return Ok(Found::Nothing),
            read => read?,
        };
        let Some(stored) = stored else {
            return Ok(Found::Another);
        };
        if stored.count == texts.count {
            return Ok(if stored.hash == texts.hash { Found::All(id) } else { Found::Another });
        }
        let mut rest = texts.reader();
        let is_beginning = if stored.count == 0 {
            // It was cleared. What it held says whether it was this.
            let held = mark.and_then(|mark| serde_json::from_str::<Note>(&mark.note).ok());
            self.begins_with(held).await?
        } else {
            rest.skip_to(stored.count).await?;
            rest.hash() == stored.hash
        };
        if !is_beginning {
            return Ok(Found::Another);
        }
        Ok(Found::Beginning(Beginning {
            id,
            last: stored.last,
            tokens: record.tokens,
            totals: TurnTotals {
                completed: record.completed,
                duration_ms: record.duration_ms,
                cost_usd: record.cost_usd,
            },
            rest,
        }))
    }

    /// Says whether the arrival begins with what a mark remembers.
    async fn begins_with(&self, held: Option<Note>) -> Result<bool, Failure> {
        let Some(held) = held.filter(|held| held.events <= self.arrival.texts.count) else {
            return Ok(false);
        };
        let mut reader = self.arrival.texts.reader();
        reader.skip_to(held.events).await?;
        Ok(reader.hash() == held.hash)
    }

    /// Compares with the session of this store that the arrival is a copy of, if this is where it is from.
    async fn at_home(&self) -> Result<Found<'a>, Failure> {
        let Some((id, created_at)) = home(&self.arrival.origin) else {
            return Ok(Found::Nothing);
        };
        let record = match self.store.get(id).await {
            Err(StoreError::NoSuchSession(_)) => return Ok(Found::Nothing),
            record => record?,
        };
        if record.created_at != created_at || created_at.is_empty() {
            return Ok(Found::Nothing);
        }
        // Every session begins with one that has no events. One that came from elsewhere itself has this number by
        // chance, and may be as old.
        if self.arrival.texts.count == 0 && self.store.mark(&origin_mark(id)).await?.is_some() {
            return Ok(Found::Nothing);
        }
        self.compare_with(id, None).await
    }

    async fn create(&self, mark: &str) -> Result<Option<Outcome>, Failure> {
        let arrival = self.arrival;
        let new = NewSession {
            created_at: arrival.created_at.as_deref().and_then(to_the_second),
            name: arrival.name.clone(),
            worktree: arrival.worktree.clone().unwrap_or_else(|| self.worktree.to_owned()),
            ..NewSession::default()
        };
        let (tokens, totals) = (Tokens::default(), TurnTotals::default());
        let mut rest = arrival.texts.reader();
        let turn = self.next_turn(&mut rest, tokens, totals, mark).await?;
        let last = Seq(rest.read() as u64);
        let mut within = summaries(arrival);
        within.retain(|summary| summary.after_seq <= last);
        let created = self.store.create_with(new, turn, within).await;
        let Some(id) = unless_changed(created)? else {
            return Ok(None);
        };
        (self.progress)(rest.read())?;
        let is_whole = rest.read() == arrival.texts.count;
        let beginning = Beginning { id, last, tokens, totals, rest };
        if !is_whole && self.go_on(beginning, mark).await?.is_none() {
            return Ok(None);
        }
        Ok(Some(Outcome::New(id, arrival.texts.count)))
    }

    /// Adds what a session does not have, piece by piece; nothing if somebody changed it meanwhile.
    async fn go_on(&self, beginning: Beginning<'_>, mark: &str) -> Result<Option<Outcome>, Failure> {
        let Beginning { id, mut last, tokens, totals, mut rest } = beginning;
        let begun = rest.read();
        while rest.read() < self.arrival.texts.count {
            let turn = self.next_turn(&mut rest, tokens, totals, mark).await?;
            let appended = self.store.append(id, Turn { after: Some(last), ..turn }).await;
            let Some(appended) = unless_changed(appended)? else {
                return Ok(None);
            };
            last = appended.last;
            (self.progress)(rest.read())?;
        }
        // Should this fail, the next import finds what is missing.
        let summaries = self.add_summaries(id).await?.unwrap_or(0);
        Ok(Some(Outcome::Continued(id, Gained { events: rest.read() - begun, summaries })))
    }

    /// Makes a turn of the next piece, with the mark of what the session holds then. Tokens and totals come with the
    /// last one: what is more than the session has.
    async fn next_turn(
        &self,
        rest: &mut Reader<'_>,
        tokens: Tokens,
        totals: TurnTotals,
        mark: &str,
    ) -> Result<Turn, Failure> {
        let arrival = self.arrival;
        let events = rest.piece().await?;
        let note = Note { events: rest.read(), hash: rest.hash() };
        let mut turn = Turn {
            events,
            mark: Some(NewMark { name: mark.to_owned(), note: to_json(&note)? }),
            totals: Some(TurnTotals::default()),
            ..Turn::default()
        };
        if rest.read() == arrival.texts.count {
            turn.tokens = Tokens {
                input: arrival.tokens.input.saturating_sub(tokens.input),
                output: arrival.tokens.output.saturating_sub(tokens.output),
            };
            turn.totals = Some(TurnTotals {
                completed: arrival.totals.completed,
                duration_ms: arrival.totals.duration_ms.saturating_sub(totals.duration_ms),
                cost_usd: (arrival.totals.cost_usd - totals.cost_usd).max(0.0),
            });
        }
        Ok(turn)
    }

    /// Notes which session of which store this one is a copy of, unless that can be told by its number: copied on, or
    /// back to where it is from, it is the same one.
    async fn remember_origin(&self, id: SessionId) -> Result<(), Failure> {
        let (store, known_as) = (self.store, &self.arrival.origin);
        let name = origin_mark(id);
        if home(known_as).is_none()
            || origin(&id.to_string(), &store.get(id).await?.created_at) == *known_as
            || store.mark(&name).await?.is_some()
        {
            return Ok(());
        }
        let mark = Some(NewMark { name, note: known_as.clone() });
        store.append(id, Turn { mark, ..Turn::default() }).await?;
        Ok(())
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
                let done = self.store.add_compaction(id, &summary).await;
                if unless_changed(done)?.is_none() {
                    return Ok(None);
                }
                added += 1;
            }
        }
        Ok(Some(added))
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
pub(super) fn summaries(arrival: &Arrival) -> Vec<Compaction> {
    let mut by_place = BTreeMap::new();
    for summary in &arrival.compactions {
        let after_seq = Seq(summary.covers as u64);
        // What covered nothing but events that were left out covers nothing.
        if after_seq > Seq::START {
            let created_at = to_the_second(&summary.created_at).unwrap_or_default();
            let compaction = Compaction { created_at, ..Compaction::new(after_seq, &summary.text) };
            by_place.insert(after_seq, compaction);
        }
    }
    by_place.into_values().collect()
}

/// The first events of a session.
pub(super) struct StoredBeginning {
    pub(super) count: usize,
    pub(super) hash: String,
    last: Seq,
}

/// Returns what the first events of a session hash to, at most so many; nothing if one of them cannot be read.
pub(super) async fn stored_beginning(
    store: &dyn SessionStore,
    id: SessionId,
    most: usize,
) -> Result<Option<StoredBeginning>, StoreError> {
    let (mut hash, mut count, mut last) = (Hash::default(), 0, Seq::START);
    let mut is_readable = true;
    each_page(store, id, Range::First(most), |page| {
        for stored in &page {
            match &stored.json {
                Ok(json) => hash.add(json),
                Err(_) => is_readable = false,
            }
            count += 1;
            last = stored.seq;
        }
        Ok::<(), StoreError>(())
    })
    .await?;
    Ok(is_readable.then(|| StoredBeginning { count, hash: hash.text(), last }))
}

#[cfg(test)]
mod tests {
    use azureal_core::{Event, SessionRecord, append_events};
    use azureal_store::MemoryStore;
    use futures_executor::block_on;

    use super::super::texts::{PIECE_EVENTS, Texts};
    use super::super::{Summary, verify};
    use super::*;

    fn arrival(texts: &[&str]) -> Arrival {
        Arrival {
            source: "test".into(),
            origin: "test:1".into(),
            name: Some("n".into()),
            worktree: None,
            created_at: None,
            texts: Texts::at_hand(texts.iter().map(|text| Event::user(*text).to_json()).collect()),
            compactions: Vec::new(),
            tokens: Tokens { input: texts.len() as u64 * 10, output: 0 },
            totals: TurnTotals::default(),
            problems: Vec::new(),
        }
    }

    struct Bench(MemoryStore);

    impl Bench {
        fn import(&self, texts: &[&str]) -> Outcome {
            block_on(arrive(&self.0, ".", &mut arrival(texts), &|_| Ok(()))).unwrap()
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
        assert_eq!(
            block_on(arrive(&bench.0, ".", &mut grown, &|_| Ok(()))).unwrap(),
            Outcome::Continued(id(1), gained)
        );
        assert_eq!(
            block_on(arrive(&bench.0, ".", &mut grown, &|_| Ok(()))).unwrap(),
            Outcome::Unchanged(id(1))
        );
        assert_eq!(block_on(bench.0.compactions(id(1))).unwrap()[0].summary, "second");
    }

    #[test]
    fn a_long_session_that_was_interrupted_goes_on() {
        let bench = Bench(MemoryStore::default());
        let long: Vec<String> = (0..PIECE_EVENTS * 3 + 5).map(|n| n.to_string()).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let mut whole = arrival(&long);
        whole.totals = TurnTotals { completed: Some(true), duration_ms: 70, cost_usd: 0.5 };
        let covers = [PIECE_EVENTS, PIECE_EVENTS * 2];
        whole.compactions =
            covers.map(|covers| Summary { covers, text: "s".into(), created_at: String::new() }).into();
        for pieces in 1..=3 {
            let stopped = block_on(arrive(&bench.0, ".", &mut whole, &|events| {
                if events == pieces * PIECE_EVENTS { Err(Failure::cancelled("")) } else { Ok(()) }
            }));
            assert_eq!(stopped.unwrap_err().kind(), "cancelled");
            let record = bench.get(id(1));
            assert_eq!(record.counts.events as usize, pieces * PIECE_EVENTS);
            assert_eq!((record.completed, record.duration_ms, record.tokens.input), (None, 0, 0));
        }
        let gained = Gained { events: 5, summaries: 1 };
        let end = |whole: &mut Arrival| block_on(arrive(&bench.0, ".", whole, &|_| Ok(()))).unwrap();
        assert_eq!(end(&mut whole), Outcome::Continued(id(1), gained));
        assert_eq!(end(&mut whole), Outcome::Unchanged(id(1)));
        let record = bench.get(id(1));
        assert_eq!((record.completed, record.duration_ms, record.cost_usd), (Some(true), 70, 0.5));
        assert_eq!(record.tokens.input, long.len() as u64 * 10);
        assert_eq!(block_on(bench.0.compactions(id(1))).unwrap().len(), 2);
        block_on(verify(&bench.0, &whole, id(1))).unwrap();
    }

    #[test]
    fn what_is_not_what_arrived_is_found() {
        let bench = Bench(MemoryStore::default());
        bench.import(&["a", "b"]);
        let differs = |arrival: &Arrival| block_on(verify(&bench.0, arrival, id(1))).unwrap_err();
        block_on(verify(&bench.0, &arrival(&["a", "b"]), id(1))).unwrap();
        // A session that has gone on here still holds it.
        block_on(verify(&bench.0, &arrival(&["a"]), id(1))).unwrap();
        for other in [&["a", "c"][..], &["a", "b", "c"], &["ab"]] {
            assert_eq!(differs(&arrival(other)).kind(), "differs");
        }
        let mut summarised = arrival(&["a", "b"]);
        summarised.compactions = vec![Summary { covers: 1, text: "s".into(), created_at: String::new() }];
        assert!(differs(&summarised).message().contains("summary of the first 1 event"));
    }
}
