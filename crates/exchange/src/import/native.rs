//! Imports sessions that agents' programs keep themselves, turn by turn.
//!
//! The ledger of an imported session is a mark in the store, `native:<agent>:<id>`: the number of turns that were read, the
//! last of them, and the size and time of the source. It is set in the transaction that adds the turns. So a second import
//! of the same source reads nothing, and one of a source that has grown adds the turns that are new. Turns are known by the agent's
//! own ids, not by their events: the events may differ when a later version reads the same turn.
//!
//! | in the store, since the last import | in the source | result |
//! |---|---|---|
//! | – | unchanged | nothing |
//! | nothing was added | has grown | the new turns are appended |
//! | events were added | has grown | a fork of the session at the end of the import gets the new turns |
//! | the session was cleared | any | the turns are added again |
//! | the session was deleted | any | nothing, unless the caller wants it again |
//! | any | has only a beginning of it | nothing |
//! | any | the last imported turn is gone: the user went back in the program | another session with all turns, `forked_from` the first |
//!
//! The other session gets a ledger of its own, and the first one keeps its ledger. A source is compared with all of them: two files
//! can have the same id, such as a session and a backup of it, and each import would else add the turns of both again.
//!
//! An imported session has a UUID that follows from the agent and its id. Without a mark, the session of that UUID is
//! continued after its last turn of the source.

mod ledger;

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use azureal_agents::native::{
    NativeError, NativeHead, NativeHome, NativeProblem, NativeSession, NativeTurn, NativeTurns,
};
use azureal_core::{
    Compaction, Event, EventRange, ListQuery, NewEvent, NewHistory, NewMark, NewSession, NewTurn,
    PREVIEW_CHARS, Seq, SessionId, SessionStore, StoreError, TIMESTAMP_FORMAT, Tokens, Uuid, check_name,
    counted, each_page, prompt_text, to_visible_json,
};
use jiff::Timestamp;

use super::ImportError;
use super::import_session::{free_name, unless_changed};
use ledger::{Counted, LastTurn, Ledger, ledger_mark, milliseconds};

pub use ledger::{finish_native_run, forget_native, has_finished_native_run, native_mark, was_deleted};

/// The number of attempts on a session that other processes keep changing.
const ATTEMPTS: usize = 8;
/// The number of events and of bytes that end a piece, which is stored in one transaction.
const PIECE_EVENTS: usize = 4096;
const PIECE_BYTES: usize = 8 << 20;
/// The time after its last change in which a turn without an end counts as running.
const MAY_RUN: Duration = Duration::from_secs(10 * 60);
/// The number of problems of a session that are reported one by one.
const MOST_PROBLEMS: usize = 100;

/// A session of an agent's program.
#[derive(Clone, Copy)]
pub struct NativeCandidate<'a> {
    /// The agent.
    pub agent: &'static str,
    /// The home of the session.
    pub home: &'a dyn NativeHome,
    /// The session.
    pub session: &'a NativeSession,
    /// Its head.
    pub head: &'a NativeHead,
}

/// The import of native sessions into a store.
pub struct NativeImport<'a> {
    /// The store.
    pub store: &'a dyn SessionStore,
    /// The runs that the store has: sessions of these are not imported.
    pub runs: &'a StoredRuns,
    /// Whether the import only says what it would do.
    pub is_dry: bool,
    /// Whether sessions come back that were deleted from the store.
    pub again: bool,
    /// Whether new sessions are returned as [`NativeStep::Ready`], so that several are stored in one transaction. Whatever has to be
    /// stored by itself is [`NativeStep::Alone`], so that the sessions before it can be stored first.
    pub in_batches: bool,
    /// The time of the import, by which a turn without an end may still run; `None` if no program runs one.
    pub now: Option<SystemTime>,
    /// The place in which the store records a session that gets turns as the last one used; `None` for an import, which uses none.
    pub used_in: Option<&'a str>,
    /// The name of this run, whose caller keeps the sources as originals and says when it has: [`finish_native_run`]. Empty if it
    /// keeps none.
    pub run: &'a str,
}

/// The result of the import of a native session.
#[derive(Debug)]
pub struct NativeImported {
    /// The result.
    pub outcome: NativeOutcome,
    /// The place of the new events in the session.
    pub range: Option<(Seq, Seq)>,
    /// The size of the source at the last import; 0 if there was none.
    pub read_before: u64,
    /// The parts that could not be imported.
    pub problems: Vec<NativeProblem>,
    /// The number of further ones.
    pub further_problems: u64,
    /// Whether the last turn was left out, because it seems to run.
    pub is_running: bool,
    /// The number of turns that were left out, because azureal ran them.
    pub ours: u64,
    /// The beginning of the first new prompt; empty if there is none.
    pub preview: String,
    /// For an unchanged session, the run whose caller keeps its source, and the last event from it.
    pub kept_by: Option<(String, Seq)>,
}

/// The result of one step of an import.
#[derive(Debug)]
pub enum NativeStep {
    /// The session is imported, or not.
    Done(NativeImported),
    /// The session is new, and was read: [`NativeImport::create_all`] stores it.
    Ready(Box<NativeReady>),
    /// The session has to be imported without batches.
    Alone,
}

/// A new session that was read and is not stored yet.
#[derive(Debug)]
pub struct NativeReady {
    history: NewHistory,
    imported: NativeImported,
    /// About the size of its events, in bytes.
    pub size: usize,
}

impl NativeReady {
    /// Returns its name, if it has one. No two sessions of a batch may have the same.
    pub fn name(&self) -> Option<&str> {
        self.history.session.name.as_deref()
    }
}

/// What became of a native session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeOutcome {
    /// A new session. In a dry run it has no number.
    New {
        /// The session in the store.
        id: Option<SessionId>,
        /// Its turns.
        turns: u64,
        /// Its events.
        events: u64,
    },
    /// New turns of a session that was imported before.
    Continued {
        /// The session in the store.
        id: SessionId,
        /// The new turns.
        turns: u64,
        /// The new events.
        events: u64,
    },
    /// New turns of a session that was continued here too, or whose user went back in the program: they are in another session.
    Forked {
        /// The session in the store; `None` in a dry run.
        id: Option<SessionId>,
        /// The session that was imported before.
        from: SessionId,
        /// The new turns.
        turns: u64,
        /// The new events.
        events: u64,
    },
    /// There is nothing new.
    Unchanged {
        /// The session in the store.
        id: SessionId,
    },
    /// It is not imported.
    LeftOut(LeftOut),
}

impl NativeOutcome {
    /// Returns the session in the store; `None` if it is left out, or new in a dry run.
    pub fn session(self) -> Option<SessionId> {
        match self {
            Self::New { id, .. } | Self::Forked { id, .. } => id,
            Self::Continued { id, .. } | Self::Unchanged { id } => Some(id),
            Self::LeftOut(_) => None,
        }
    }

    /// Returns the number of turns and events that are new in the store.
    pub fn added(self) -> (u64, u64) {
        match self {
            Self::New { turns, events, .. }
            | Self::Continued { turns, events, .. }
            | Self::Forked { turns, events, .. } => (turns, events),
            Self::Unchanged { .. } | Self::LeftOut(_) => (0, 0),
        }
    }
}

/// The reason why a native session is not imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// Azureal ran it: the store has it, or another store of azureal.
    Ours,
    /// It is the work of a subagent, which belongs to another session.
    Subagent,
    /// It has no turn.
    Empty,
    /// Its only turn seems to run.
    Running,
    /// It was imported before, and the user deleted it.
    Deleted,
}

impl LeftOut {
    /// Returns the reason, for people.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Ours => "azureal ran it",
            Self::Subagent => "it is the work of a subagent",
            Self::Empty => "it has no turn",
            Self::Running => "its turn seems to run",
            Self::Deleted => "it was deleted here; `--again` imports it",
        }
    }
}

/// The agents' own ids of the runs that a store has, from turns that azureal ran.
#[derive(Debug, Default)]
pub struct StoredRuns(HashSet<String>);

impl StoredRuns {
    /// Reads the runs of a store. Reads all events of sessions that were not imported.
    pub async fn of(store: &dyn SessionStore) -> Result<Self, StoreError> {
        let mut runs = HashSet::new();
        for record in store.list(&ListQuery::default()).await? {
            if record.uuid.is_some_and(is_derived) {
                continue;
            }
            let read = each_page(store, record.id, EventRange::All, |page| {
                for stored in page.iter().filter(|stored| stored.kind == "Init") {
                    if let Ok(Event::Init(init)) = stored.event() {
                        runs.extend(init.agent_session);
                    }
                }
                Ok::<(), StoreError>(())
            });
            match read.await {
                // Another process deleted it.
                Err(StoreError::NoSuchSession(_)) => {}
                read => read?,
            }
        }
        Ok(Self(runs))
    }

    /// Returns whether the store has a run.
    pub fn contains(&self, run: &str) -> bool {
        self.0.contains(run)
    }
}

impl NativeImport<'_> {
    /// Imports a session, or what is new of it. `worktree` is the worktree that it belongs to.
    pub async fn import(
        &self,
        candidate: NativeCandidate<'_>,
        worktree: &str,
    ) -> Result<NativeStep, ImportError> {
        if candidate.head.is_subagent {
            return Ok(NativeStep::Done(NativeImported::left_out(LeftOut::Subagent)));
        }
        for _ in 0..ATTEMPTS {
            if let Some(step) = self.attempt(candidate, worktree).await? {
                return Ok(step);
            }
        }
        Err(ImportError::KeepsChanging { session: candidate.session.path.display().to_string() })
    }

    /// Notes that a native session was written from a session of the store, whose lease the caller holds. An import then adds what
    /// follows to that session.
    pub async fn adopt(&self, candidate: NativeCandidate<'_>, id: SessionId) -> Result<(), ImportError> {
        let mut reader = Reader::new(candidate, None)?;
        while reader.take()?.is_some() {}
        let events = self.store.get(id).await?.counts.events;
        // The written session is the original of nothing.
        let ledger = reader.ledger(candidate.session, events, "");
        let mark = NewMark {
            name: native_mark(candidate.agent, &candidate.head.id),
            note: to_visible_json(&ledger)?,
        };
        self.store.append(id, NewTurn { mark: Some(mark), ..NewTurn::default() }).await?;
        Ok(())
    }

    /// Stores new sessions that were read; `None` if another process has stored one of them meanwhile: then each has to be
    /// imported again, without batches.
    pub async fn create_all(
        &self,
        ready: Vec<NativeReady>,
    ) -> Result<Option<Vec<NativeImported>>, ImportError> {
        let (mut histories, mut imported) = (Vec::new(), Vec::new());
        for one in ready {
            histories.push(one.history);
            imported.push(one.imported);
        }
        let Some(created) = unless_changed(self.store.create_all(histories).await)? else { return Ok(None) };
        for (imported, created) in imported.iter_mut().zip(created) {
            if let NativeOutcome::New { id, .. } = &mut imported.outcome {
                *id = Some(created);
            }
        }
        Ok(Some(imported))
    }

    /// Imports a session; `None` if another process changed it in between.
    async fn attempt(
        &self,
        candidate: NativeCandidate<'_>,
        worktree: &str,
    ) -> Result<Option<NativeStep>, ImportError> {
        let done = |imported: Option<NativeImported>| Ok(imported.map(NativeStep::Done));
        let (agent, id) = (candidate.agent, candidate.head.id.as_str());
        let mut earlier = Vec::new();
        loop {
            let mark = ledger_mark(agent, id, earlier.len());
            match self.known(candidate, &mark, earlier.is_empty()).await? {
                Known::No => break,
                Known::Deleted => earlier.push((mark, None)),
                Known::Session(found) => {
                    if found.ledger.is_of(candidate.session) && !found.is_cleared() {
                        let outcome = NativeOutcome::Unchanged { id: found.id };
                        let Ledger { size, run, events, .. } = found.ledger;
                        let kept_by = (!run.is_empty()).then_some((run, Seq(events)));
                        return done(Some(NativeImported { kept_by, ..NativeImported::of(outcome, size) }));
                    }
                    earlier.push((mark, Some(found)));
                }
            }
        }
        while let Some((mark, None)) = earlier.last() {
            if !self.again {
                return done(Some(NativeImported::left_out(LeftOut::Deleted)));
            }
            if !self.is_dry {
                self.store.remove_mark(mark).await?;
            }
            earlier.pop();
        }
        if earlier.is_empty() && candidate.head.is_headless && self.runs.contains(id) {
            return done(Some(NativeImported::left_out(LeftOut::Ours)));
        }
        if !earlier.is_empty() && self.in_batches && !self.is_dry {
            return Ok(Some(NativeStep::Alone));
        }
        let mark = ledger_mark(agent, id, earlier.len());
        let mut origin = None;
        for (mark, found) in earlier.into_iter().rev() {
            let Some(found) = found else { continue };
            let is_cleared = found.is_cleared();
            let Earlier { id, events, ledger } = found;
            let mut reader = Reader::new(candidate, self.now)?;
            let target = if is_cleared {
                Target { id, last: Seq(events), from: None, read_before: 0, run: String::new() }
            } else {
                match reader.skip(&ledger)? {
                    Skipped::All => {}
                    Skipped::Ended if self.has_no_more(candidate, id, Seq(ledger.events)).await? => {
                        return done(Some(NativeImported::of(NativeOutcome::Unchanged { id }, ledger.size)));
                    }
                    Skipped::Ended | Skipped::Other => {
                        origin.get_or_insert(id);
                        continue;
                    }
                }
                let from = (events > ledger.events).then_some(id);
                Target { id, last: Seq(ledger.events), from, read_before: ledger.size, run: ledger.run }
            };
            return done(Task { import: self, candidate, mark, reader }.append(target).await?);
        }
        let forked_from = match origin {
            Some(origin) => self.store.get(origin).await?.uuid,
            None => None,
        };
        let reader = Reader::new(candidate, self.now)?;
        let new = self.new_session(candidate, worktree, reader.title(), forked_from).await?;
        Task { import: self, candidate, mark, reader }.create(new, origin).await
    }

    /// Returns whether an import would add nothing of a session, as far as that can be told without reading it.
    pub async fn adds_nothing(&self, candidate: NativeCandidate<'_>) -> Result<bool, ImportError> {
        let head = candidate.head;
        if head.is_subagent || (head.is_headless && self.runs.contains(&head.id)) {
            return Ok(true);
        }
        let mut is_deleted = false;
        for before in 0.. {
            let mark = ledger_mark(candidate.agent, &head.id, before);
            let Some(found) = self.store.mark(&mark).await? else { break };
            let ledger: Ledger = serde_json::from_str(&found.note).unwrap_or_default();
            is_deleted = match self.store.get(found.session).await {
                Err(StoreError::NoSuchSession(_)) => true,
                record if ledger.is_of(candidate.session) => {
                    return Ok(record?.counts.events >= ledger.events);
                }
                record => record.map(|_| false)?,
            };
        }
        Ok(is_deleted && !self.again)
    }

    /// Finds the session of an earlier import, by its mark. The first one may have come by another store.
    async fn known(
        &self,
        candidate: NativeCandidate<'_>,
        mark: &str,
        is_first: bool,
    ) -> Result<Known, ImportError> {
        let (mut has_mark, mut is_deleted) = (false, false);
        if let Some(found) = self.store.mark(mark).await? {
            let ledger = serde_json::from_str::<Ledger>(&found.note).ok();
            match (self.store.get(found.session).await, ledger) {
                (Ok(record), Some(ledger)) => {
                    return Ok(Known::Session(Earlier {
                        id: found.session,
                        events: record.counts.events,
                        ledger,
                    }));
                }
                (Ok(_), None) => has_mark = true,
                (Err(StoreError::NoSuchSession(_)), _) => (has_mark, is_deleted) = (true, true),
                (Err(error), _) => return Err(error.into()),
            }
        }
        let uuid = derived_uuid(candidate.agent, &candidate.head.id);
        let other = if is_first { self.store.find_uuid(uuid).await? } else { None };
        if other.is_none() && is_deleted {
            return Ok(Known::Deleted);
        }
        if has_mark && !self.is_dry {
            self.store.remove_mark(mark).await?;
        }
        let Some(id) = other else { return Ok(Known::No) };
        // It came by another store. The turns of the source are those that name it.
        let (mut ledger, mut is_of_source) = (Ledger::default(), false);
        each_page(self.store, id, EventRange::All, |page| {
            for stored in &page {
                match stored.event() {
                    Ok(Event::Init(init)) => {
                        is_of_source = init.agent_session.as_deref() == Some(candidate.head.id.as_str());
                    }
                    Ok(Event::Complete(complete)) if is_of_source => {
                        ledger.turns += 1;
                        ledger.earlier = ledger.earlier.plus(Counted::of(&complete));
                        ledger.events = stored.seq.0;
                    }
                    _ => {}
                }
            }
            Ok::<(), StoreError>(())
        })
        .await?;
        let events = self.store.get(id).await?.counts.events;
        Ok(Known::Session(Earlier { id, events, ledger }))
    }

    /// Returns whether a source has only a beginning of what a session has up to an event: the same prompts, at the same times.
    async fn has_no_more(
        &self,
        candidate: NativeCandidate<'_>,
        id: SessionId,
        last: Seq,
    ) -> Result<bool, ImportError> {
        let (mut stored, mut given) = (Vec::new(), Vec::new());
        each_page(self.store, id, EventRange::All, |page| {
            let events = page.iter().filter(|event| event.seq <= last).filter_map(|event| event.event().ok());
            events.for_each(|event| add_landmark(&mut stored, &event));
            Ok::<(), StoreError>(())
        })
        .await?;
        let mut reader = Reader::new(candidate, self.now)?;
        while let Some(turn) = reader.take()? {
            turn.events.iter().filter(|_| !turn.is_ours).for_each(|event| add_landmark(&mut given, event));
        }
        Ok(stored.starts_with(&given))
    }

    async fn new_session(
        &self,
        candidate: NativeCandidate<'_>,
        worktree: &str,
        title: Option<String>,
        forked_from: Option<Uuid>,
    ) -> Result<NewSession, ImportError> {
        let head = candidate.head;
        let title = title.or_else(|| head.title.clone()).filter(|title| check_name(title).is_ok());
        let name = match title {
            Some(title) => Some(free_name(self.store, &title).await?),
            None => None,
        };
        Ok(NewSession {
            name,
            worktree: worktree.to_owned(),
            created_at: head.started.map(stored_time),
            // Another log has the derived one.
            uuid: forked_from.is_none().then(|| derived_uuid(candidate.agent, &head.id)),
            forked_from,
        })
    }
}

/// Whether there was an import under a mark.
enum Known {
    No,
    Session(Earlier),
    /// Its session was deleted.
    Deleted,
}

/// The session of an earlier import.
struct Earlier {
    id: SessionId,
    /// The number of its events now.
    events: u64,
    ledger: Ledger,
}

impl Earlier {
    /// Returns whether events of the import are gone.
    fn is_cleared(&self) -> bool {
        self.events < self.ledger.events
    }
}

/// Whether the turns of a ledger are in a source.
enum Skipped {
    All,
    /// The source ends before the last of them.
    Ended,
    /// Another turn is in the place of the last of them.
    Other,
}

/// Adds the hash of an event to those by which two readings of a session are compared: prompts, and times of turns.
fn add_landmark(landmarks: &mut Vec<u64>, event: &Event) {
    let text = match event {
        Event::UserMessage(message) => Some(message.content.as_str()),
        Event::Complete(complete) => complete.started_at.as_deref(),
        _ => None,
    };
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    // A turn that went on after an import has two ends.
    if text.is_some() && landmarks.last() != Some(&hasher.finish()) {
        landmarks.push(hasher.finish());
    }
}

/// The session that turns are added to.
struct Target {
    id: SessionId,
    /// Its last event, or the one that a fork ends with.
    last: Seq,
    /// The session to fork.
    from: Option<SessionId>,
    read_before: u64,
    /// The run of the earlier import.
    run: String,
}

/// The import of one session, from a reader.
struct Task<'a> {
    import: &'a NativeImport<'a>,
    candidate: NativeCandidate<'a>,
    mark: String,
    reader: Reader,
}

impl Task<'_> {
    /// Creates a session of all turns. `from` is an earlier one that they do not continue.
    async fn create(
        mut self,
        new: NewSession,
        from: Option<SessionId>,
    ) -> Result<Option<NativeStep>, ImportError> {
        let store = self.import.store;
        let Some(piece) = self.reader.piece()? else {
            return Ok(Some(NativeStep::Done(self.reader.nothing())));
        };
        let (mut turns, mut events) = (piece.turns, piece.events.len() as u64);
        let outcome = |id, turns, events| match from {
            Some(from) => NativeOutcome::Forked { id, from, turns, events },
            None => NativeOutcome::New { id, turns, events },
        };
        if self.import.is_dry {
            while let Some(piece) = self.reader.piece()? {
                turns += piece.turns;
                events += piece.events.len() as u64;
            }
            return Ok(Some(NativeStep::Done(self.reader.finished(outcome(None, turns, events), None, 0))));
        }
        let size = piece.size;
        let (turn, summaries) = self.turn(piece, Seq::START)?;
        if self.import.in_batches {
            if !self.reader.ahead.is_empty() {
                return Ok(Some(NativeStep::Alone));
            }
            let history = NewHistory { session: new, turn, compactions: summaries };
            let range = Some((Seq(1), Seq(events)));
            let imported = self.reader.finished(outcome(None, turns, events), range, 0);
            return Ok(Some(NativeStep::Ready(Box::new(NativeReady { history, imported, size }))));
        }
        let created = store.create_with(new, turn, summaries).await;
        let Some(id) = unless_changed(created)? else { return Ok(None) };
        let mut last = Seq(events);
        while let Some(piece) = self.reader.piece()? {
            turns += piece.turns;
            let Some(end) = self.add(id, piece, last).await? else { return Ok(None) };
            events += end.0 - last.0;
            last = end;
        }
        let range = Some((Seq(1), last));
        Ok(Some(NativeStep::Done(self.reader.finished(outcome(Some(id), turns, events), range, 0))))
    }

    /// Appends the turns that are left, to the session or to a fork of it.
    async fn append(mut self, target: Target) -> Result<Option<NativeImported>, ImportError> {
        let Target { mut id, last: begun, from, read_before, run } = target;
        let (mut turns, mut events, mut last) = (0, 0, begun);
        let mut is_first = true;
        while let Some(piece) = self.reader.piece()? {
            turns += piece.turns;
            events += piece.events.len() as u64;
            if self.import.is_dry {
                continue;
            }
            if let Some(from) = from.filter(|_| is_first) {
                let record = self.import.store.get(from).await?;
                let name = match record.has_own_name() {
                    true => Some(free_name(self.import.store, &record.name).await?),
                    false => None,
                };
                let new = NewSession { name, worktree: record.worktree, ..NewSession::default() };
                let Some(fork) = unless_changed(self.import.store.fork(from, begun, new).await)? else {
                    return Ok(None);
                };
                id = fork;
            }
            is_first = false;
            let Some(end) = self.add(id, piece, last).await? else { return Ok(None) };
            last = end;
        }
        if events == 0 {
            // The source has changed, and has nothing new: the next import need not read it.
            if !self.import.is_dry && !self.reader.is_running {
                let ledger = self.reader.ledger(self.candidate.session, begun.0, &run);
                let turn = NewTurn { mark: Some(self.new_mark(&ledger)?), ..NewTurn::default() };
                unless_changed(self.import.store.append(id, turn).await)?;
            }
            return Ok(Some(self.reader.finished(NativeOutcome::Unchanged { id }, None, read_before)));
        }
        let dry = self.import.is_dry;
        let outcome = match from {
            Some(from) => NativeOutcome::Forked { id: (!dry).then_some(id), from, turns, events },
            None => NativeOutcome::Continued { id, turns, events },
        };
        let range = (!dry).then_some((begun.next(), last));
        Ok(Some(self.reader.finished(outcome, range, read_before)))
    }

    /// Appends a piece, and returns the new end; `None` if another process changed the session.
    async fn add(&self, id: SessionId, piece: Piece, last: Seq) -> Result<Option<Seq>, ImportError> {
        let (turn, summaries) = self.turn(piece, last)?;
        let appended = self.import.store.append(id, NewTurn { after: Some(last), ..turn }).await;
        let Some(appended) = unless_changed(appended)? else { return Ok(None) };
        for summary in summaries {
            unless_changed(self.import.store.add_compaction(id, &summary).await)?;
        }
        Ok(Some(appended.last))
    }

    /// Returns a piece as a turn with the mark of the resulting state, and its summaries.
    fn turn(&self, piece: Piece, last: Seq) -> Result<(NewTurn, Vec<Compaction>), ImportError> {
        let Piece { events, tokens, summaries, happened_at, .. } = piece;
        let ledger =
            self.reader.ledger(self.candidate.session, last.0 + events.len() as u64, self.import.run);
        let turn = NewTurn {
            events,
            tokens,
            mark: Some(self.new_mark(&ledger)?),
            happened_at: happened_at.map(stored_time),
            used_in: self.import.used_in.map(str::to_owned),
            ..NewTurn::default()
        };
        let summary = |(after, text): (usize, String)| Compaction {
            writer: Some(self.candidate.agent.to_owned()),
            ..Compaction::new(Seq(last.0 + after as u64), text)
        };
        // One that covers nothing is none.
        let summaries = summaries.into_iter().map(summary).filter(|summary| summary.after_seq > Seq::START);
        Ok((turn, summaries.collect()))
    }

    fn new_mark(&self, ledger: &Ledger) -> Result<NewMark, ImportError> {
        Ok(NewMark { name: self.mark.clone(), note: to_visible_json(ledger)? })
    }
}

/// Events that are stored in one transaction.
#[derive(Default)]
struct Piece {
    events: Vec<NewEvent>,
    /// About the size of the events, in bytes.
    size: usize,
    turns: u64,
    tokens: Tokens,
    /// The time of the last turn.
    happened_at: Option<Timestamp>,
    /// Summaries, each with the number of events of the piece that it covers.
    summaries: Vec<(usize, String)>,
}

/// Reads the turns of a session in pieces.
struct Reader {
    turns: Box<dyn NativeTurns>,
    /// The turns that were read ahead.
    ahead: VecDeque<NativeTurn>,
    may_run: bool,
    /// When the session began: a turn before that is one of its origin. `None` if all that follow are its own.
    begun: Option<Timestamp>,
    /// The number of turns that were taken, and the last one of them.
    read: u64,
    last: LastTurn,
    /// The part of the next turn that was imported before.
    before: Option<LastTurn>,
    /// The tokens and the cost of the turns before the last one, if the source counts them for the whole session only.
    earlier: Counted,
    is_running: bool,
    ours: u64,
    /// The beginning of the first prompt that is imported; empty as long as there is none.
    preview: String,
    problems: Vec<NativeProblem>,
    further_problems: u64,
}

impl Reader {
    fn new(candidate: NativeCandidate<'_>, now: Option<SystemTime>) -> Result<Self, ImportError> {
        let changed = candidate.session.changed.filter(|_| now.is_some());
        let age = changed.zip(now).and_then(|(changed, now)| now.duration_since(changed).ok());
        let mut reader = Self {
            turns: candidate.home.turns(candidate.session)?,
            ahead: VecDeque::new(),
            // A source whose time is in the future was changed just now.
            may_run: changed.is_some() && age.is_none_or(|age| age < MAY_RUN),
            begun: candidate.head.started,
            read: 0,
            last: LastTurn::default(),
            before: None,
            earlier: Counted::default(),
            is_running: false,
            ours: 0,
            preview: String::new(),
            problems: Vec::new(),
            further_problems: 0,
        };
        reader.read_ahead(1)?;
        Ok(reader)
    }

    fn title(&self) -> Option<String> {
        self.turns.title().map(str::to_owned)
    }

    /// Reads turns, and takes their problems, until so many are ahead.
    fn read_ahead(&mut self, count: usize) -> Result<(), NativeError> {
        while self.ahead.len() < count {
            let Some(mut turn) = self.turns.next_turn()? else { break };
            for problem in std::mem::take(&mut turn.problems) {
                if self.problems.len() < MOST_PROBLEMS {
                    self.problems.push(problem);
                } else {
                    self.further_problems += 1;
                }
            }
            if let (Some(started), Some(Event::Complete(complete))) = (turn.started, turn.events.last_mut()) {
                complete.started_at = Some(stored_time(started));
                // A fork begins with turns of its origin, which counts them.
                if self.begun.is_some_and(|begun| started < begun) {
                    (complete.usage, complete.cost_usd, complete.duration_ms) = (None, 0.0, 0);
                }
            }
            if !turn.events.is_empty() {
                self.ahead.push_back(turn);
            }
        }
        Ok(())
    }

    /// Takes the next turn; `None` at the end, or if it seems to run.
    fn take(&mut self) -> Result<Option<NativeTurn>, NativeError> {
        self.read_ahead(2)?;
        let is_last = self.ahead.len() == 1;
        if is_last && self.may_run && self.ahead.front().is_some_and(|turn| turn.is_open) {
            self.is_running = true;
            return Ok(None);
        }
        let Some(mut turn) = self.ahead.pop_front() else { return Ok(None) };
        // A count of the whole session cannot be told apart from that of the turns that azureal ran.
        let total = self.turns.total().filter(|_| is_last && self.ours == 0 && !turn.is_ours);
        if let (Some(total), Some(Event::Complete(complete))) = (total, turn.events.last_mut()) {
            Counted::new(total.usage, total.cost_usd).minus(self.earlier).put(complete);
        }
        self.read += 1;
        self.last = LastTurn::of(&turn);
        Ok(Some(turn))
    }

    /// Skips the turns of the ledger. Events that the last of them got since stay.
    fn skip(&mut self, ledger: &Ledger) -> Result<Skipped, NativeError> {
        self.earlier = ledger.earlier;
        // Turns that follow those of the ledger are the session's own.
        self.begun = None;
        while self.read < ledger.turns {
            let Some(turn) = self.take()? else {
                // The last one may run again.
                let is_last = self.is_running && self.read + 1 == ledger.turns;
                return Ok(if is_last { Skipped::All } else { Skipped::Ended });
            };
            if self.read < ledger.turns {
                continue;
            }
            let known = &ledger.last;
            if !known.id.is_empty() && turn.id != known.id {
                return Ok(Skipped::Other);
            }
            // The end of the turn was stored. If it has more events now, these follow, with their own end.
            if !known.id.is_empty() && self.last.events > known.events && !turn.is_ours {
                self.read -= 1;
                self.before = Some(known.clone());
                self.ahead.push_front(turn);
                break;
            }
            if self.last.events < known.events {
                self.last = known.clone();
            }
            self.earlier = self.earlier.plus(known.counted);
        }
        // What was imported before is not reported again.
        self.problems.clear();
        self.further_problems = 0;
        Ok(Skipped::All)
    }

    /// Returns the next events to store; `None` at the end.
    fn piece(&mut self) -> Result<Option<Piece>, NativeError> {
        let mut piece = Piece::default();
        while piece.events.len() < PIECE_EVENTS && piece.size < PIECE_BYTES {
            let Some(mut turn) = self.take()? else { break };
            if turn.is_ours {
                self.ours += 1;
                continue;
            }
            let before = self.before.take().unwrap_or_default();
            if let Some(Event::Complete(complete)) = turn.events.last_mut() {
                before.leave_new(complete);
            }
            piece.turns += 1;
            piece.tokens = piece.tokens + self.last.counted.minus(before.counted).tokens();
            piece.happened_at = turn.started.or(piece.happened_at);
            piece.size += turn.size;
            let begun = piece.events.len();
            let new = turn.summaries.into_iter().filter(|summary| summary.after > before.events);
            piece.summaries.extend(new.map(|summary| (begun + summary.after - before.events, summary.text)));
            let events = turn.events.into_iter().skip(before.events);
            piece.events.extend(events.inspect(|event| self.look_for_preview(event)).map(NewEvent::from));
        }
        Ok((!piece.events.is_empty()).then_some(piece))
    }

    fn look_for_preview(&mut self, event: &Event) {
        if self.preview.is_empty()
            && let Some(prompt) = prompt_text(event)
        {
            self.preview = prompt.chars().take(PREVIEW_CHARS).collect();
        }
    }

    /// Returns the ledger of what was read so far.
    fn ledger(&self, session: &NativeSession, events: u64, run: &str) -> Ledger {
        // Until everything is read, the next import has to look at the source.
        let is_whole = self.ahead.is_empty() && !self.is_running;
        Ledger {
            turns: self.read,
            last: self.last.clone(),
            earlier: self.earlier,
            events,
            size: if is_whole { session.size } else { 0 },
            changed: if is_whole { milliseconds(session.changed) } else { 0 },
            run: run.to_owned(),
        }
    }

    /// Returns the result for a session without any turn to import.
    fn nothing(self) -> NativeImported {
        let why = match () {
            () if self.is_running => LeftOut::Running,
            () if self.ours > 0 => LeftOut::Ours,
            () => LeftOut::Empty,
        };
        self.finished(NativeOutcome::LeftOut(why), None, 0)
    }

    fn finished(self, outcome: NativeOutcome, range: Option<(Seq, Seq)>, read_before: u64) -> NativeImported {
        let Self { problems, further_problems, is_running, ours, preview, .. } = self;
        NativeImported {
            outcome,
            range,
            read_before,
            problems,
            further_problems,
            is_running,
            ours,
            preview,
            kept_by: None,
        }
    }
}

impl NativeImported {
    /// Returns what could not be imported, one text for each part.
    pub fn messages(&self) -> Vec<String> {
        let mut messages: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        if self.further_problems > 0 {
            messages.push(format!("{} more parts were left out", self.further_problems));
        }
        if self.is_running && !matches!(self.outcome, NativeOutcome::LeftOut(_)) {
            messages.push("its last turn was left out: it seems to run; the next import adds it".to_owned());
        }
        if self.ours > 0 && !matches!(self.outcome, NativeOutcome::LeftOut(_)) {
            let turns = counted(self.ours, "turn");
            messages.push(format!("{turns} left out: azureal ran them"));
        }
        messages
    }

    fn of(outcome: NativeOutcome, read_before: u64) -> Self {
        Self {
            outcome,
            range: None,
            read_before,
            problems: Vec::new(),
            further_problems: 0,
            is_running: false,
            ours: 0,
            preview: String::new(),
            kept_by: None,
        }
    }

    fn left_out(why: LeftOut) -> Self {
        Self::of(NativeOutcome::LeftOut(why), 0)
    }
}

/// Returns the UUID of an imported session: of version 8, from the agent and its id.
fn derived_uuid(agent: &str, id: &str) -> Uuid {
    let mut hasher = blake3::Hasher::new_derive_key("azureal imported session");
    hasher.update(agent.as_bytes());
    hasher.update(&[0]);
    hasher.update(id.as_bytes());
    let hash = hasher.finalize();
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(hash.as_bytes()).for_each(|(byte, hashed)| *byte = *hashed);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid::from_bytes(bytes)
}

fn is_derived(uuid: Uuid) -> bool {
    uuid.get_version_num() == 8
}

fn stored_time(time: Timestamp) -> String {
    time.strftime(TIMESTAMP_FORMAT).to_string()
}

#[cfg(test)]
mod tests;
