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
//! If azureal wrote the source from a session of the store, the user goes back to a turn of that session: the new turns are in a fork of it.
//!
//! The other session gets a ledger of its own, and the first one keeps its ledger. A source is compared with all of them: two files
//! can have the same id, such as a session and a backup of it, and each import would else add the turns of both again.
//!
//! An imported session has a UUID that follows from the agent and its id. Without a mark, the session of that UUID is
//! continued after its last turn of the source.

mod ledger;
mod outcome;
mod reader;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::SystemTime;

use azureal_agents::native::{self, NativeHead, NativeHome, NativeSession};
use azureal_core::{
    Compaction, Event, EventRange, ListQuery, NewHistory, NewMark, NewSession, NewTurn, Page, Seq, SessionId,
    SessionRecord, SessionStore, StoreError, TIMESTAMP_FORMAT, TurnIndex, Uuid, check_name, each_page,
    prompt_text, to_visible_json,
};
use jiff::Timestamp;

use super::ImportError;
use super::counted::Counted;
use super::import_session::{free_name, unless_changed};
use crate::identity::{derived_uuid, is_derived};
use ledger::{Ledger, ledger_mark};
use reader::{Piece, Reader, Skipped};

pub use ledger::{finish_native_run, forget_native, has_finished_native_run, native_mark, was_deleted};
pub use outcome::{LeftOut, NativeImported, NativeOutcome};

/// The number of attempts on a session that other processes keep changing.
const ATTEMPTS: usize = 8;
/// The number of sessions with the same beginning that are compared.
const MOST_RELATIVES: usize = 32;

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
    /// The ids of the sessions that begin with the same entry: forks and their origin, the ones that were used last at the end. It may be
    /// one of them.
    pub family: &'a [String],
}

impl<'a> NativeCandidate<'a> {
    /// Returns the ids of other sessions of its family. A program may have forked one a thousand times; that one is among the first.
    fn relatives(self) -> impl Iterator<Item = &'a String> {
        self.family.iter().take(MOST_RELATIVES).filter(move |id| **id != self.head.id)
    }
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

/// The agents' own ids of the runs that a store has, from turns that azureal ran.
#[derive(Debug, Default)]
pub struct StoredRuns(HashSet<String>);

impl StoredRuns {
    /// Reads the runs of a store. Reads all events of sessions that were not imported.
    pub async fn of(store: &dyn SessionStore) -> Result<Self, StoreError> {
        let mut runs = HashSet::new();
        for record in store.list(&ListQuery::default()).await? {
            // A fork may have turns that azureal ran.
            if record.forked_from.is_none() && record.uuid.is_some_and(is_derived) {
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
        let ledger = Ledger { is_written: true, ..reader.ledger(candidate.session, events, "") };
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
        // The turns that a fork has from its origin are known when that is stored.
        let is_alone = !earlier.is_empty() || candidate.relatives().next().is_some();
        if is_alone && self.in_batches && !self.is_dry {
            return Ok(Some(NativeStep::Alone));
        }
        let mark = ledger_mark(agent, id, earlier.len());
        // The latest one is the first.
        let mut origins = Vec::new();
        let mut is_written = false;
        for (its_mark, found) in earlier.into_iter().rev() {
            let Some(found) = found else { continue };
            let is_cleared = found.is_cleared();
            let Earlier { id, events, ledger } = *found;
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
                        is_written |= ledger.is_written;
                        if let Some((reader, last)) = self.left_of_written(candidate, id, &ledger).await? {
                            let read_before = ledger.size;
                            let target = Target { id, last, from: Some(id), read_before, run: ledger.run };
                            let task = Task { import: self, candidate, mark, reader };
                            return done(task.append(target).await?);
                        }
                        origins.push(id);
                        continue;
                    }
                }
                let from = (events > ledger.events).then_some(id);
                Target { id, last: Seq(ledger.events), from, read_before: ledger.size, run: ledger.run }
            };
            return done(Task { import: self, candidate, mark: its_mark, reader }.append(target).await?);
        }
        let origin = origins.first().copied();
        let forked_from = match origin {
            Some(origin) => self.store.get(origin).await?.uuid,
            None => None,
        };
        let mut reader = Reader::new(candidate, self.now)?;
        reader.is_written = is_written;
        origins.extend(self.stored_relatives(candidate).await?);
        for origin in origins {
            reader.counted.push(self.landmarks(origin, Seq::END).await?);
        }
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
                    let (id, events) = (found.session, record.counts.events);
                    return Ok(Known::Session(Box::new(Earlier { id, events, ledger })));
                }
                (Ok(_), None) => has_mark = true,
                (Err(StoreError::NoSuchSession(_)), _) => (has_mark, is_deleted) = (true, true),
                (Err(error), _) => return Err(error.into()),
            }
        }
        let uuid = native_uuid(candidate.agent, &candidate.head.id);
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
        Ok(Known::Session(Box::new(Earlier { id, events, ledger })))
    }

    /// Returns whether a source has only a beginning of what a session has up to an event: the same prompts, at the same times.
    async fn has_no_more(
        &self,
        candidate: NativeCandidate<'_>,
        id: SessionId,
        last: Seq,
    ) -> Result<bool, ImportError> {
        let (stored, mut given) = (self.landmarks(id, last).await?, Vec::new());
        let mut reader = Reader::new(candidate, self.now)?;
        while let Some(turn) = reader.take()? {
            turn.events.iter().filter(|_| !turn.is_ours).for_each(|event| add_landmark(&mut given, event));
        }
        Ok(stored.starts_with(&given))
    }

    /// Returns the sessions of the store that other sessions of the family were imported to.
    async fn stored_relatives(&self, candidate: NativeCandidate<'_>) -> Result<Vec<SessionId>, StoreError> {
        let mut stored = Vec::new();
        for id in candidate.relatives() {
            for before in 0.. {
                let Some(mark) = self.store.mark(&ledger_mark(candidate.agent, id, before)).await? else {
                    break;
                };
                match self.store.get(mark.session).await {
                    Err(StoreError::NoSuchSession(_)) => {}
                    record => stored.push(record?.id),
                }
            }
        }
        Ok(stored)
    }

    /// Finds what is left of the turns that azureal wrote into a source from a session, after the user went back there. Returns a reader that
    /// is behind them, and the end of the last one in the session; `None` if that is not certain.
    async fn left_of_written(
        &self,
        candidate: NativeCandidate<'_>,
        id: SessionId,
        ledger: &Ledger,
    ) -> Result<Option<(Reader, Seq)>, ImportError> {
        let writer = native::writer(candidate.agent).filter(|_| ledger.is_written);
        let Some(writer) = writer else { return Ok(None) };
        let mut reader = Reader::new(candidate, self.now)?;
        let left = reader.skip_written(|turn| writer.wrote(&candidate.head.id, turn))?;
        let Some((left, last)) = left else { return Ok(None) };
        let turns = TurnIndex::read(self.store, id).await?;
        let is_imported = |turn: &usize| turns.first_event(*turn).is_some_and(|seq| seq.0 <= ledger.events);
        let imported = (1..=turns.count()).take_while(is_imported).count();
        // The turns of both end together: the source may begin with a summary.
        let gone = usize::try_from(ledger.turns.saturating_sub(left)).unwrap_or(usize::MAX);
        let Some(turn) = imported.checked_sub(gone) else { return Ok(None) };
        let (Some(begun), Some(end)) = (turns.first_event(turn), turns.last_event(turn)) else {
            return Ok(None);
        };
        let stored = self.store.read(id, Page::After(Seq(begun.0 - 1), 1)).await?;
        let stored = stored.first().and_then(|stored| stored.event().ok());
        let prompts = last.events.iter().find_map(prompt_text).zip(stored.as_ref().and_then(prompt_text));
        // A system message may be beside the prompt in the source.
        let is_same = prompts.is_some_and(|(given, stored)| given.contains(stored.trim()));
        Ok(is_same.then_some((reader, end.min(Seq(ledger.events)))))
    }

    /// Returns the landmarks of a session up to an event.
    async fn landmarks(&self, id: SessionId, last: Seq) -> Result<Vec<u64>, StoreError> {
        let mut landmarks = Vec::new();
        each_page(self.store, id, EventRange::All, |page| {
            let events = page.iter().filter(|event| event.seq <= last).filter_map(|event| event.event().ok());
            events.for_each(|event| add_landmark(&mut landmarks, &event));
            Ok::<(), StoreError>(())
        })
        .await?;
        Ok(landmarks)
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
            uuid: forked_from.is_none().then(|| native_uuid(candidate.agent, &head.id)),
            forked_from,
            ..NewSession::default()
        })
    }
}

/// Whether there was an import under a mark.
enum Known {
    No,
    Session(Box<Earlier>),
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
        mut new: NewSession,
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
        if from.is_some() {
            new.created_at = piece.begun.map(stored_time).or(new.created_at);
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
                let created_at = piece.begun.map(stored_time);
                let new = NewSession { name, worktree: record.worktree, created_at, ..NewSession::default() };
                id = match self.left_fork(record.uuid, begun, &new).await? {
                    Some(fork) => fork,
                    None => {
                        let forked = self.import.store.fork(from, begun, new).await;
                        let Some(fork) = unless_changed(forked)? else { return Ok(None) };
                        fork
                    }
                };
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

    /// Finds a fork that an import created and that has none of the new turns, because the import was killed.
    async fn left_fork(
        &self,
        from: Option<Uuid>,
        at: Seq,
        new: &NewSession,
    ) -> Result<Option<SessionId>, StoreError> {
        // The time is that of the first new turn, so it is no fork of the user.
        let Some((from, created_at)) = from.zip(new.created_at.as_ref()) else { return Ok(None) };
        let found = self.import.store.list(&ListQuery::default()).await?;
        let is_left = |found: &&SessionRecord| {
            (found.forked_from, found.counts.events) == (Some(from), at.0) && found.created_at == *created_at
        };
        Ok(found.iter().find(is_left).map(|found| found.id))
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

/// Returns the UUID of an imported session.
fn native_uuid(agent: &str, id: &str) -> Uuid {
    derived_uuid("azureal imported session", [agent, id])
}

fn stored_time(time: Timestamp) -> String {
    time.strftime(TIMESTAMP_FORMAT).to_string()
}

#[cfg(test)]
mod tests;
