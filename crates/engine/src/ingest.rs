//! Storing a turn: the spool is read again from its beginning and appended in one transaction. Then it becomes the turn's
//! original, or is removed: see [`crate::settle`].
//!
//! **Once.** The run is the [operation](azureal_core::Operation) of the append: a store that gets it from two processes, because the
//! first one does not learn what became of it, appends it once. The transaction sets a mark with the run's name, and removes the
//! session's note of the run. The mark is removed after the spool, when that removal is durable. A spool whose mark is set is in the
//! store: it is only settled.
//!
//! **Under a lease.** If the session was taken over while the turn ran, the store refuses it: the other has gone on
//! without it. It is then stored as what it is, a branch: in a fork of the session from where the turn began. A turn that
//! is recovered has no lease any more and is put at the end, after what other processes added meanwhile.

use std::io;
use std::path::PathBuf;

use azureal_core::agent::{Agent, AgentOutput, CacheSeen, Ending};
use azureal_core::event::{Complete, Outcome, Usage};
use azureal_core::{
    Appended, Event, LARGEST_EVENT, LeaseId, NewMark, NewSession, NewTurn, Operation, Seq, SessionId,
    SessionStore, StoreError, Uuid, compact_event, rendered_chars,
};
use azureal_process::{ChildEnvironment, FollowError};

use crate::changes::TurnChanges;
use crate::header::SpooledTurn;
use crate::own_record::{RunFacts, is_note_of, run_facts};
use crate::settle::{KEPT, Settled, find_turn, mark_of, settle};
use crate::spool::{Spool, SpoolError};
use crate::turn_parser::RunStart;
use crate::watch::{OVERSIZED, Watcher};

/// A turn that is in the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Ingested {
    /// The session that it is in.
    pub session: SessionId,
    /// The session that it was meant for, if another process took that over meanwhile: it is in a fork of it.
    pub instead_of: Option<SessionId>,
    /// Where it stands; nothing if it had been stored before.
    pub appended: Option<Appended>,
    /// How it ended.
    pub complete: Complete,
    /// The spool, where it is kept because not all of it could be read and the store has no originals.
    pub kept: Option<PathBuf>,
    /// What became of the output, if not all of it is in the original of the turn: it is still in its spool, and the next start tries
    /// again; or an output that the agent keeps beside its transcript was left out.
    pub notices: Vec<String>,
    /// Why the changes of a recovered turn are not recorded.
    pub not_recorded: Option<Box<str>>,
    /// The tools that the agent was refused, one entry for each call.
    pub refused: Vec<String>,
    /// What became of breakpoints for the provider's prompt cache.
    pub cache: CacheSeen,
    /// The events that are not in the output.
    pub(crate) late: Late,
    /// The size of its events in the context, in characters.
    pub(crate) told: u64,
}

/// The events of a stored turn that a reader of its output does not see: those that are known only since the agent ended, or
/// that say what is missing. The end itself is not among them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Late {
    /// The first stored event that is from the output; `None` if nothing was appended.
    first: Option<Seq>,
    /// How many are.
    from_output: u64,
    pub(crate) events: Vec<Event>,
}

impl Late {
    /// Returns the stored events from the output that are still to be reported, if so many have been: the first, and the end
    /// after the last.
    pub(crate) fn missed(&self, reported: u64) -> Option<(Seq, Seq)> {
        let first = self.first.filter(|_| reported < self.from_output)?;
        Some((Seq(first.0.saturating_add(reported)), Seq(first.0.saturating_add(self.from_output))))
    }
}

/// Why a turn is not in the store. What was printed is kept.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The spool cannot be read.
    #[error(transparent)]
    Output(#[from] FollowError),
    /// The spool cannot be written or removed.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The store does not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The header names no session.
    #[error("the spool {} names no session", .0.display())]
    NoSession(PathBuf),
}

/// Where in its session a turn goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Destination {
    /// After everything that is there. The turn is of another process and may be in the store already, and the store
    /// another one than that process had.
    Recovered,
    /// After everything that is there.
    Live,
    /// The same, if this lease is still the session's; else into a fork of the session at this event.
    Leased(LeaseId, Seq),
}

/// Stores what a run printed, and removes its spool.
pub(crate) async fn ingest(
    store: &dyn SessionStore,
    agent: &dyn Agent,
    spool: Spool,
    ending: Ending,
    destination: &Destination,
    environment: &ChildEnvironment,
    changes: Option<TurnChanges>,
) -> Result<Ingested, IngestError> {
    // First: the process that stored it may have died after moving the output.
    if *destination == Destination::Recovered
        && let Some(mark) = store.mark(&mark_of(spool.turn())).await?
    {
        let ingested = Ingested::new(mark.session, Complete::default());
        let is_kept = mark.note == KEPT;
        let settled = match spool.stored() {
            Some(stored) => {
                let place = Some((Seq(stored.first), Seq(stored.last)));
                Settled { agent, place, is_kept, run: None }
            }
            None => {
                // It died before it could note the place.
                let events = parse(agent, &spool, ending, environment).map(|parsed| parsed.events);
                let events = events.unwrap_or_default();
                let place = find_turn(store, mark.session, &events).await?;
                Settled { agent, place, is_kept, run: last_run(&events).map(|run| (run, environment)) }
            }
        };
        return settle(store, spool, ingested, settled).await;
    }
    let Parsed { mut events, late_from, refused, cache } = parse(agent, &spool, ending, environment)?;
    if let Some(changes) = changes {
        changes.add_to(&mut events);
    }
    let target = Target { store, agent, environment: Some(environment), destination };
    let ingested = store_once(&target, spool, events, late_from).await?;
    Ok(Ingested { refused, cache, ..ingested })
}

/// Where the turn of an agent goes.
struct Target<'a> {
    store: &'a dyn SessionStore,
    agent: &'a dyn Agent,
    /// The environment of the agent; `None` if it never started.
    environment: Option<&'a ChildEnvironment>,
    destination: &'a Destination,
}

/// The events of a turn, as they are stored.
struct Parsed {
    events: Vec<Event>,
    /// The first event that is not in the output.
    late_from: usize,
    refused: Vec<String>,
    cache: CacheSeen,
}

/// Reads a finished spool.
fn parse(
    agent: &dyn Agent,
    spool: &Spool,
    mut ending: Ending,
    environment: &ChildEnvironment,
) -> Result<Parsed, IngestError> {
    let mut gathered = Gathered::default();
    let mut watcher = Watcher::of_turn(spool.output_path(), agent, spool.turn(), None)?;
    ending.fragment = watcher.read_to_end(|output| gathered.take(output))?;
    gathered.unread = watcher.skipped();
    let from_output = gathered.events.len();
    if watcher.untold() > 0 {
        let why =
            format!("{} further lines could not be read; the output of the turn is kept", watcher.untold());
        gathered.push(Event::error(OVERSIZED, why));
    }
    // What was asked and how it ended is told in any case.
    let mut events = vec![opening(spool.turn())];
    let mut refused = std::mem::take(&mut gathered.refused);
    let cache = gathered.cache;
    events.append(&mut gathered.finish());
    let mut last = Gathered::default();
    watcher.end(&ending).into_iter().for_each(|output| last.take(output));
    refused.append(&mut last.refused);
    events.append(&mut last.finish());
    let late_from = from_output + 1;
    if matches!(events.last(), Some(Event::Complete(end)) if end.continues) {
        // Right before its end: we stopped it, because of what comes now.
        events.insert(events.len().saturating_sub(1), Event::Compacting);
    }
    if ending.stopped == Some(Outcome::Failed) {
        let why = format!(
            "{} was stopped because of its output: it had printed {} MiB",
            spool.turn().agent,
            spool.printed() >> 20
        );
        events.insert(events.len().saturating_sub(1), Event::error(OUTPUT_LIMIT, why));
    }
    complete_from_record(&mut events, agent, environment);
    // From the header: who reads the spool again finds the same events.
    for event in &mut events {
        if let Event::Complete(complete) = event {
            complete.started_at = Some(spool.turn().started_at.clone()).filter(|time| !time.is_empty());
        }
    }
    Ok(Parsed { events, late_from, refused, cache })
}

impl Ingested {
    pub(crate) fn new(session: SessionId, complete: Complete) -> Self {
        Self {
            session,
            instead_of: None,
            appended: None,
            complete,
            kept: None,
            notices: Vec::new(),
            not_recorded: None,
            refused: Vec::new(),
            cache: CacheSeen::default(),
            late: Late::default(),
            told: 0,
        }
    }
}

/// The kind of the error that stands for an output that reached its limit.
const OUTPUT_LIMIT: &str = "output_limit";

/// Returns what a turn begins with: the prompt, or that it continues after a compaction, which is no prompt.
fn opening(turn: &SpooledTurn) -> Event {
    turn.opening()
}

/// The most that a turn takes in memory, in bytes. An agent that runs wild must not take the memory along: the
/// rest stays in the spool, which is then kept. No event in it is larger than a store takes.
pub(crate) const LARGEST_TURN: usize = LARGEST_EVENT;
/// How many refused calls are counted.
const MOST_REFUSED: usize = 1_000;
/// What an event takes besides its text, here and on its way into the store. Many short ones take the most.
const EVENT_COST: usize = 512;

/// The events of a turn, as they are kept, up to a bound.
#[derive(Default)]
struct Gathered {
    events: Vec<Event>,
    size: usize,
    is_full: bool,
    /// How many events there was no room for.
    left_out: u64,
    /// How many bytes were not even read.
    unread: u64,
    refused: Vec<String>,
    cache: CacheSeen,
}

impl Gathered {
    fn take(&mut self, output: AgentOutput) {
        match output {
            AgentOutput::Event(event) => self.push(event),
            AgentOutput::Refused(mut tools) => {
                tools.truncate(MOST_REFUSED.saturating_sub(self.refused.len()));
                self.refused.append(&mut tools);
            }
            AgentOutput::Cache(seen) => self.cache.add(seen),
            AgentOutput::Delta(_)
            | AgentOutput::Usage(_)
            | AgentOutput::Notice(_)
            | AgentOutput::Retry(_)
            | AgentOutput::Question(_)
            | AgentOutput::Answered(_) => {}
        }
    }

    fn push(&mut self, event: Event) {
        if self.is_full {
            self.left_out += 1;
            return;
        }
        let event = compact_event(event);
        let size = cost(&event);
        if self.size + size > LARGEST_TURN {
            self.left_out += 1;
            // One that is too large by itself does not cost those after it.
            self.is_full = size <= LARGEST_TURN;
            return;
        }
        self.size += size;
        self.events.push(event);
    }

    fn finish(mut self) -> Vec<Event> {
        if self.left_out > 0 || self.unread > 0 {
            let unread = match self.unread {
                0 => String::new(),
                bytes => format!(", and {} MiB were not read", bytes.div_ceil(1 << 20)),
            };
            let why = format!(
                "the agent printed more than a turn can hold: {} events were not stored{unread}; the \
                 output of the turn is kept",
                self.left_out
            );
            self.events.push(Event::error(OVERSIZED, why));
        }
        self.events
    }
}

/// Returns what an event takes in memory.
pub(crate) fn cost(event: &Event) -> usize {
    json_length(event) + EVENT_COST
}

/// Returns how long the JSON of an event is, without writing it: it may have 64 MiB.
fn json_length(event: &Event) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    match serde_json::to_writer(&mut counter, event) {
        Ok(()) => counter.0,
        Err(_) => event.to_json().len(),
    }
}

/// Returns the agent's own name of the run: the last one, as a program that was refused was started twice.
fn last_run(events: &[Event]) -> Option<String> {
    events.iter().rev().find_map(|event| match event {
        Event::Init(init) => init.agent_session.clone(),
        _ => None,
    })
}

/// Fills in what an agent's output does not say and its own record does: the model, the size of the last request, and the tokens of a
/// turn that was interrupted.
fn complete_from_record(events: &mut [Event], agent: &dyn Agent, environment: &ChildEnvironment) {
    let Some(run) = last_run(events) else { return };
    let (mut start, mut end) = (None, None);
    for event in events.iter_mut().rev() {
        match event {
            Event::Init(init) if start.is_none() => start = Some(init),
            Event::Complete(complete) if end.is_none() => end = Some(complete),
            _ => {}
        }
    }
    let start = start.filter(|init| init.model.is_empty());
    let end = end.filter(|complete| complete.usage.is_none_or(|usage| usage.context_tokens.is_none()));
    if start.is_none() && end.is_none() {
        return;
    }
    let RunFacts { usage, model } = run_facts(agent, environment, &run).unwrap_or_default();
    if let (Some(init), Some(model)) = (start, model) {
        init.model = model;
    }
    if let (Some(complete), Some(recorded)) = (end, usage) {
        let said = complete.usage.unwrap_or(recorded);
        complete.usage = Some(Usage { context_tokens: recorded.context_tokens, ..said });
    }
}

/// Stores that a turn ended before its agent ran, and why, and removes its spool.
pub(crate) async fn ingest_unstarted(
    store: &dyn SessionStore,
    agent: &dyn Agent,
    spool: Spool,
    outcome: Outcome,
    why: &str,
    destination: &Destination,
) -> Result<Ingested, IngestError> {
    let mut events = vec![opening(spool.turn())];
    events.append(&mut RunStart::of(spool.turn()).unreported());
    if outcome == Outcome::Failed {
        events.push(Event::error("not_started", why));
    }
    events.push(Event::Complete(Complete { outcome: Some(outcome), ..Complete::default() }));
    store_once(&Target { store, agent, environment: None, destination }, spool, events, 1).await
}

/// Stores a turn whose events from `late_from` on are not in the output.
async fn store_once(
    target: &Target<'_>,
    spool: Spool,
    events: Vec<Event>,
    late_from: usize,
) -> Result<Ingested, IngestError> {
    let Target { store, agent, environment, destination } = *target;
    let meant_for =
        spool.turn().session_id().ok_or_else(|| IngestError::NoSession(spool.output_path().to_owned()))?;
    let made = &spool.turn().session_made;
    let is_recovered = *destination == Destination::Recovered;
    if is_recovered && !made.is_empty() && store.get(meant_for).await?.created_at != *made {
        return Err(StoreError::NoSuchSession(meant_for).into());
    }
    let complete = events.iter().rev().find_map(|event| match event {
        Event::Complete(complete) => Some(complete.clone()),
        _ => None,
    });
    let complete = complete.unwrap_or_default();
    let is_kept = events.iter().any(|event| matches!(event, Event::Error(error) if error.kind == OVERSIZED));
    let run = events.iter().find_map(|event| match event {
        Event::Init(init) => init.agent_session.clone(),
        _ => None,
    });
    let record_of = last_run(&events).zip(environment);
    let mut late = Late {
        events: events
            .iter()
            .skip(late_from)
            .filter(|event| !matches!(event, Event::Complete(_)))
            .cloned()
            .collect(),
        from_output: late_from.saturating_sub(1) as u64,
        first: None,
    };
    let told = events.iter().map(rendered_chars).fold(0, u64::saturating_add);
    let mark = if is_recovered { store.mark(&mark_of(spool.turn())).await? } else { None };
    let (session, appended) = match mark {
        Some(mark) => (mark.session, None),
        None => {
            let usage = complete.usage.unwrap_or_default();
            let turn = NewTurn {
                tokens: usage.into(),
                mark: Some(NewMark {
                    name: mark_of(spool.turn()),
                    note: if is_kept { KEPT.to_owned() } else { String::new() },
                }),
                used_in: spool.turn().used_in.clone(),
                ends_run: true,
                // Another process may send it too, while the server still works on the first try.
                operation: spool.turn().operation(),
                session_created: Some(made.clone()).filter(|made| !made.is_empty()),
                ..NewTurn::verbatim(events)
            };
            append(store, meant_for, made, turn, destination).await?
        }
    };
    let instead_of = (session != meant_for).then_some(meant_for);
    if instead_of.is_some()
        && let Some(run) = &run
        && store.noted_runs().await?.iter().any(|(id, note)| *id == meant_for && is_note_of(note, run))
    {
        // Our own note, on a session that is another's now: the turn must not be recovered into it.
        store.note_run(meant_for, None).await?;
    }
    // After the opening.
    late.first = appended.map(|appended| appended.first.next());
    let ingested = Ingested { instead_of, appended, late, told, ..Ingested::new(session, complete) };
    let place = match appended {
        Some(appended) => Some((appended.first, appended.last)),
        None => spool.stored().map(|stored| (Seq(stored.first), Seq(stored.last))),
    };
    settle(store, spool, ingested, Settled { agent, place, is_kept, run: record_of }).await
}

/// Appends a turn where it belongs, and says which session that is, and where in it; nothing if it was there already.
async fn append(
    store: &dyn SessionStore,
    session: SessionId,
    created_at: &str,
    mut turn: NewTurn,
    destination: &Destination,
) -> Result<(SessionId, Option<Appended>), StoreError> {
    let lease = match destination {
        Destination::Leased(lease, _) => Some(lease.clone()),
        Destination::Live | Destination::Recovered => None,
    };
    let sent = |turn: &NewTurn| NewTurn { lease: lease.clone(), ..turn.clone() };
    let mut appended = store.append(session, sent(&turn)).await;
    if let (Err(StoreError::Cleared(_)), Some(operation)) = (&appended, turn.operation) {
        if let Some(mark) = &turn.mark
            && let Some(stored) = store.mark(&mark.name).await?
        {
            // It was in the session when that was cleared.
            return Ok((stored.session, None));
        }
        let generation = store.get(session).await?.generation;
        turn.operation = Some(sent_again(operation, generation));
        appended = store.append(session, sent(&turn)).await;
    }
    match (appended, destination) {
        (Err(StoreError::Fenced(_)), Destination::Leased(_, began_after)) => {
            // A process of this machine that took the session over may have stored it meanwhile.
            if let Some(mark) = &turn.mark
                && let Some(stored) = store.mark(&mark.name).await?
            {
                return Ok((stored.session, None));
            }
            let record = store.get(session).await?;
            if !created_at.is_empty() && record.created_at != created_at {
                // The database was replaced: this is another session of the same number.
                return Err(StoreError::NoSuchSession(session));
            }
            let worktree = record.worktree;
            // A fork is created now.
            let turn = NewTurn { session_created: None, operation: None, ..turn };
            let fork =
                store.fork(session, *began_after, NewSession { worktree, ..NewSession::default() }).await?;
            Ok((fork, Some(store.append(fork, turn).await?)))
        }
        (appended, _) => Ok((session, Some(appended?))),
    }
}

/// Returns the operation of a turn that is not stored and whose session was cleared since it began. Each process that sends it finds
/// the same one.
fn sent_again(operation: Operation, generation: u64) -> Operation {
    let id = Uuid::from_u128(operation.id.as_u128().wrapping_add(u128::from(generation)));
    Operation { id, after: Seq::START, generation }
}

#[cfg(test)]
mod tests {
    use azureal_agents::offline::Offline;
    use azureal_core::Page;
    use azureal_store::MemoryStore;
    use futures_executor::block_on;

    use super::*;
    use crate::Spools;
    use crate::spool::tests::turn;

    /// A run in a session, which several processes may store.
    struct World {
        store: MemoryStore,
        session: SessionId,
        run: String,
    }

    impl World {
        fn new() -> Self {
            let store = MemoryStore::default();
            let session = block_on(store.create(NewSession::default())).unwrap();
            let earlier = NewTurn::verbatim([Event::user("before"), Event::assistant("now")]);
            block_on(store.append(session, earlier)).unwrap();
            Self { store, session, run: Uuid::new_v4().simple().to_string() }
        }

        /// Stores the run once more, by a process that knows nothing of the others.
        fn ingest(&self, destination: &Destination) -> Ingested {
            let folder = tempfile::tempdir().unwrap();
            let (session, generation) = (self.session.number(), Some(0));
            let turn = SpooledTurn { session, after: 2, generation, ..turn(&self.run) };
            let spool = Spools::new(folder.path().join("spool")).begin(turn).unwrap();
            let stored =
                ingest_unstarted(&self.store, &Offline, spool, Outcome::Failed, "no room", destination);
            block_on(stored).unwrap()
        }

        fn prompts(&self) -> usize {
            let events = block_on(self.store.read(self.session, Page::After(Seq::START, 100))).unwrap();
            events.iter().filter(|event| event.kind == "UserMessage").count()
        }
    }

    #[test]
    fn a_run_that_two_processes_store_is_one_turn() {
        let world = World::new();
        let first = world.ingest(&Destination::Live);
        assert_eq!(first.appended.map(|appended| appended.first), Some(Seq(3)));
        for destination in [Destination::Recovered, Destination::Live] {
            assert_eq!(world.ingest(&destination).appended, first.appended, "{destination:?}");
        }
        assert_eq!(world.prompts(), 2);
    }

    #[test]
    fn a_run_whose_session_was_cleared_meanwhile_is_stored_once() {
        let world = World::new();
        block_on(world.store.clear(world.session)).unwrap();
        for destination in [Destination::Live, Destination::Recovered] {
            assert_eq!(
                world.ingest(&destination).appended.map(|appended| appended.first),
                Some(Seq(1)),
                "{destination:?}"
            );
        }
        assert_eq!(world.prompts(), 1);
    }
}
