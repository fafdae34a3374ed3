//! The last step of an import: adds to the store what it does not have.
//!
//! A second import of the same session changes nothing. A source that has grown continues its session, as long as that
//! holds nothing else; a cleared session gets its events back. [`super::lookup`] says which session that is.
//!
//! A long session arrives in pieces, each with the mark of the state that it creates. After an interruption, the next import
//! finds a session that is the beginning of its source, and continues it.
//!
//! Other processes may import the same session at the same time. Each write has what the lookup found as its condition: if
//! that no longer holds, the store writes nothing and the lookup is repeated.

use std::collections::BTreeMap;

use azureal_core::{
    Compaction, NewMark, NewSession, NewTurn, Seq, SessionId, SessionStore, StoreError, Tokens, TurnTotals,
    check_name, normal_timestamp,
};
use jiff::{Timestamp, civil, tz};

use super::Arrival;
use super::identity::{home, origin, origin_mark, uuid_key};
use super::lookup::{Beginning, By, Lookup, Note, Same, Search};
use super::texts::Reader;
use crate::failure::{Failure, quoted};
use crate::output::{counted, to_json};

/// How often the lookup is repeated if other processes change what it found.
const ATTEMPTS: usize = 16;

/// The result of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A new session with so many events.
    New(SessionId, usize),
    /// A new session with so many events: a fork of the session that it diverged from.
    Forked(SessionId, usize, SessionId),
    /// A session of this store, and what it gained.
    Continued(SessionId, Gained),
    /// A session of this store that has all of it.
    Unchanged(SessionId),
}

impl Outcome {
    /// Returns the session of this store.
    pub(crate) fn session(self) -> SessionId {
        match self {
            Self::New(id, _) | Self::Forked(id, ..) | Self::Continued(id, _) | Self::Unchanged(id) => id,
        }
    }

    pub(crate) fn is_new(self) -> bool {
        matches!(self, Self::New(..) | Self::Forked(..))
    }
}

/// Says that a session became a fork, for people.
pub(crate) fn diverged(from: SessionId) -> String {
    format!("a fork of {from}: their logs differ")
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

/// Puts a session into the store, unless it is there. Calls `progress` with the number of stored events after each
/// piece; its error stops the import, and the next one continues it.
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
        let Some(outcome) = arriving.look_and_put().await? else {
            continue;
        };
        arriving.remember_origin(outcome.session()).await?;
        if outcome.is_new() {
            report_name(store, outcome.session(), arrival).await?;
        }
        return Ok(outcome);
    }
    let message = format!("{}: its session keeps changing while it is imported", arrival.source);
    Err(Failure::new("conflict", message).with_hint("import it again; nothing of it is there twice"))
}

/// Adds a notice to an arrival whose name belonged to another session.
async fn report_name(store: &dyn SessionStore, id: SessionId, arrival: &mut Arrival) -> Result<(), Failure> {
    let Some(wanted) = arrival.name.take() else {
        return Ok(());
    };
    let name = store.get(id).await?.name;
    if name != wanted {
        arrival.notices.push(format!(
            "{} is the name of another session; {id} is named {}",
            quoted(&wanted),
            quoted(&name)
        ));
    }
    arrival.name = Some(name);
    Ok(())
}

/// A session on its way into a store.
struct Arriving<'a> {
    store: &'a dyn SessionStore,
    worktree: &'a str,
    arrival: &'a Arrival,
    progress: &'a dyn Fn(usize) -> Result<(), Failure>,
}

impl Arriving<'_> {
    /// Looks for the session and adds what it lacks; `None` if another process changed it in between.
    async fn look_and_put(&self) -> Result<Option<Outcome>, Failure> {
        let search = Search { store: self.store, arrival: self.arrival };
        match search.look_up().await? {
            Lookup::Same { session, by } => {
                let id = session.id();
                let mark = match &by {
                    By::Mark(mark) | By::Origin(mark) => Some(mark.as_str()),
                    By::Uuid | By::Home(_) => None,
                };
                let outcome = self.add_missing(session, mark).await?;
                if outcome.is_some() {
                    self.remember_uuid(id, &by).await?;
                }
                Ok(outcome)
            }
            Lookup::Diverged { from, mark } => {
                let created = self.create(&mark, true).await?;
                Ok(created.map(|id| Outcome::Forked(id, self.arrival.texts.count, from)))
            }
            Lookup::New { mark } => {
                let created = self.create(&mark, false).await?;
                Ok(created.map(|id| Outcome::New(id, self.arrival.texts.count)))
            }
        }
    }

    async fn add_missing(&self, session: Same<'_>, mark: Option<&str>) -> Result<Option<Outcome>, Failure> {
        match session {
            Same::All(id) => Ok(self.add_summaries(id).await?.map(|summaries| match summaries {
                0 => Outcome::Unchanged(id),
                summaries => Outcome::Continued(id, Gained { events: 0, summaries }),
            })),
            Same::Beginning(beginning) => self.append_rest(beginning, mark).await,
        }
    }

    /// Creates the session; `None` if another process did. A fork gets a new UUID.
    async fn create(&self, mark: &str, is_fork: bool) -> Result<Option<SessionId>, Failure> {
        let arrival = self.arrival;
        let identity = &arrival.identity;
        let (uuid, forked_from) =
            if is_fork { (None, identity.uuid) } else { (identity.uuid, identity.forked_from) };
        let name = match &arrival.name {
            Some(name) => Some(self.free_name(name).await?),
            None => None,
        };
        let new = NewSession {
            created_at: arrival.created_at.as_deref().and_then(to_the_second),
            name,
            worktree: arrival.worktree.clone().unwrap_or_else(|| self.worktree.to_owned()),
            uuid,
            forked_from,
        };
        let (tokens, totals) = (Tokens::default(), TurnTotals::default());
        let mut rest = arrival.texts.reader();
        let turn = self.next_turn(&mut rest, tokens, totals, Some(mark)).await?;
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
        if !is_whole && self.append_rest(beginning, Some(mark)).await?.is_none() {
            return Ok(None);
        }
        Ok(Some(id))
    }

    /// Returns the name, or with a number behind it that makes it unused: `login-2`, `login-3`.
    async fn free_name(&self, name: &str) -> Result<String, Failure> {
        let numbered = |number: u64| if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
        let is_taken =
            async |number| Ok::<_, StoreError>(!self.store.find(&numbered(number)).await?.is_empty());
        // Thousands of sessions may have the name: doubling and halving needs few lookups.
        let (mut taken, mut free) = (0, 1);
        while is_taken(free).await? {
            (taken, free) = (free, free * 2);
        }
        while free - taken > 1 {
            let middle = taken.midpoint(free);
            if is_taken(middle).await? {
                taken = middle;
            } else {
                free = middle;
            }
        }
        Ok(numbered(free))
    }

    /// Appends what a session lacks, piece by piece; `None` if another process changed it meanwhile.
    async fn append_rest(
        &self,
        beginning: Beginning<'_>,
        mark: Option<&str>,
    ) -> Result<Option<Outcome>, Failure> {
        let Beginning { id, mut last, tokens, totals, mut rest } = beginning;
        let begun = rest.read();
        while rest.read() < self.arrival.texts.count {
            let turn = self.next_turn(&mut rest, tokens, totals, mark).await?;
            let appended = self.store.append(id, NewTurn { after: Some(last), ..turn }).await;
            let Some(appended) = unless_changed(appended)? else {
                return Ok(None);
            };
            last = appended.last;
            (self.progress)(rest.read())?;
        }
        // If this is interrupted, the next import adds the rest.
        let summaries = self.add_summaries(id).await?.unwrap_or(0);
        Ok(Some(Outcome::Continued(id, Gained { events: rest.read() - begun, summaries })))
    }

    /// Returns the next piece as a turn, with the mark of what the session holds then. The last piece also adds tokens and
    /// totals: those that the session does not have yet.
    async fn next_turn(
        &self,
        rest: &mut Reader<'_>,
        tokens: Tokens,
        totals: TurnTotals,
        mark: Option<&str>,
    ) -> Result<NewTurn, Failure> {
        let arrival = self.arrival;
        let events = rest.piece().await?;
        let note = to_json(&Note { events: rest.read(), hash: rest.hash() })?;
        let mut turn = NewTurn {
            events,
            mark: mark.map(|mark| NewMark { name: mark.to_owned(), note }),
            totals: Some(TurnTotals::default()),
            ..NewTurn::default()
        };
        if rest.read() == arrival.texts.count {
            turn.tokens = arrival.tokens.saturating_sub(tokens);
            turn.totals = Some(TurnTotals {
                completed: arrival.totals.completed,
                duration_ms: arrival.totals.duration_ms.saturating_sub(totals.duration_ms),
                cost_usd: (arrival.totals.cost_usd - totals.cost_usd).max(0.0),
            });
        }
        Ok(turn)
    }

    /// Sets the marks by which a session that was recognised without its UUID is recognised by it from now on.
    async fn remember_uuid(&self, id: SessionId, by: &By) -> Result<(), Failure> {
        let (Some(uuid), By::Origin(mark) | By::Home(Some(mark))) = (self.arrival.identity.uuid, by) else {
            return Ok(());
        };
        let texts = &self.arrival.texts;
        self.set_mark(id, mark.clone(), to_json(&Note { events: texts.count, hash: texts.hash.clone() })?)
            .await?;
        // A session that comes from here keeps the UUID that it has here.
        if matches!(by, By::Origin(_)) {
            self.set_mark(id, origin_mark(id), uuid_key(uuid)).await?;
        }
        Ok(())
    }

    /// Remembers the origin of a session without a UUID, unless its number and creation time say it.
    async fn remember_origin(&self, id: SessionId) -> Result<(), Failure> {
        let identity = &self.arrival.identity;
        let name = origin_mark(id);
        if identity.uuid.is_some()
            || home(&identity.origin).is_none()
            || origin(&id.to_string(), &self.store.get(id).await?.created_at) == identity.origin
            || self.store.mark(&name).await?.is_some()
        {
            return Ok(());
        }
        self.set_mark(id, name, identity.origin.clone()).await
    }

    async fn set_mark(&self, id: SessionId, name: String, note: String) -> Result<(), Failure> {
        let mark = Some(NewMark { name, note });
        self.store.append(id, NewTurn { mark, ..NewTurn::default() }).await?;
        Ok(())
    }

    /// Adds the summaries that the session lacks, and returns how many; `None` if the session is gone.
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

/// Returns `None` if the store refused because another process has changed what was found.
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

/// Converts a time of another program to the stored form; `None` if it is no time. Without a zone it is UTC: SQLite and
/// cllm write that.
fn to_the_second(time: &str) -> Option<String> {
    let time = normal_timestamp(time);
    let time: Timestamp = match time.parse() {
        Ok(time) => time,
        Err(_) => tz::TimeZone::UTC.to_timestamp(time.parse::<civil::DateTime>().ok()?).ok()?,
    };
    Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Returns the summaries as they are stored, one for each place.
pub(super) fn summaries(arrival: &Arrival) -> Vec<Compaction> {
    let mut by_place = BTreeMap::new();
    for summary in &arrival.compactions {
        // A summary of nothing but events that were left out is left out too.
        if summary.after_seq > Seq::START {
            let created_at = to_the_second(&summary.created_at).unwrap_or_default();
            by_place.insert(summary.after_seq, Compaction { created_at, ..summary.clone() });
        }
    }
    by_place.into_values().collect()
}

#[cfg(test)]
mod tests {
    use azureal_core::{Event, SessionRecord, append_events};
    use azureal_store::MemoryStore;
    use futures_executor::block_on;

    use super::super::Identity;
    use super::super::texts::{PIECE_EVENTS, Texts};
    use super::super::verify;
    use super::*;

    fn arrival(texts: &[&str]) -> Arrival {
        Arrival {
            source: "test".into(),
            identity: Identity::of_origin("test:1".into()),
            name: Some("n".into()),
            worktree: None,
            created_at: None,
            texts: Texts::at_hand(texts.iter().map(|text| Event::user(*text).to_json()).collect()),
            compactions: Vec::new(),
            tokens: Tokens::new(texts.len() as u64 * 10, 0),
            totals: TurnTotals::default(),
            notices: Vec::new(),
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
        let summary = |after, text: &str| Compaction::new(Seq(after), text);
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
        whole.compactions = covers.map(|covers| Compaction::new(Seq(covers as u64), "s")).into();
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
        summarised.compactions = vec![Compaction::new(Seq(1), "s")];
        assert!(differs(&summarised).message().contains("summary of the first 1 event"));
    }
}
