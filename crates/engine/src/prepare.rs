//! Before an agent is asked: the session, its lease, what was interrupted in it, and the options of the turn.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use azureal_core::{NewSession, SessionId, SessionRecord, SessionSnapshot, StoreError};
use azureal_process::{FollowError, ProcessIdentity};
use futures_channel::oneshot;
use futures_executor::block_on;
use tracing::{info, warn};

use crate::drive::{Driver, Message, TurnTask};
use crate::engine::{EngineOptions, SharedSlots, SubmittedTurn};
use crate::find_spools::FoundTurn;
use crate::handle::{Posted, TurnControls, TurnResult};
use crate::header::SpooledTurn;
use crate::ingest::IngestError;
use crate::launch::stop_turn;
use crate::original_run::{OriginalRun, look_at_original, recover_original};
use crate::output_limit::OutputLimit;
use crate::recover::{Recovered, recover, recover_found};
use crate::request::{SessionTarget, TurnOptions, TurnRequest, TurnStart};
use crate::session_lease::{SessionLease, SessionLeased, lease_session};
use crate::spool::OUTPUT;
use crate::turn_event::{Accepted, Busy, FinishedTurn, OriginalRunEvent, TurnError, TurnEvent};
use crate::turn_machine::Input;

/// The time between two attempts to acquire a lease: each is a question to a server that others work with.
const LEASE_PAUSE: Duration = Duration::from_millis(500);
/// The time between two looks for the answer to a question.
const ANSWER_PAUSE: Duration = Duration::from_millis(50);
/// The time between two looks at an agent that is followed.
const FOLLOW_PAUSE: Duration = Duration::from_millis(200);

/// The time between two looks at a turn that another process stores.
const STORE_PAUSE: Duration = Duration::from_millis(50);
/// The number of such looks after which the user is told.
const TOLD_AFTER: u32 = 20;

/// A turn of the session that is not stored yet.
enum Unfinished {
    /// Its agent works in the background.
    Working(Box<SpooledTurn>, ProcessIdentity),
    /// Another process owns it: it stores it.
    Owned,
}

/// A turn that has not begun.
pub(crate) struct Preparation {
    pub(crate) engine: Arc<EngineOptions>,
    pub(crate) slots: SharedSlots,
    pub(crate) inbox: Receiver<Message>,
    pub(crate) sender: Sender<Message>,
    pub(crate) controls: TurnControls,
    pub(crate) poster: Sender<Posted>,
    /// Set as soon as the session is known.
    pub(crate) session: Arc<OnceLock<SessionId>>,
}

impl Preparation {
    /// Runs the turn, and leaves its result. It is one of the submitted turns until then.
    pub(crate) fn run(self, request: TurnRequest, result: &TurnResult, submitted: SubmittedTurn) {
        // The events end when the last poster is dropped: then the result is there.
        let poster = self.poster.clone();
        // A store or a plan of the caller's may panic. The caller gets a result in any case.
        let finished = catch_unwind(AssertUnwindSafe(|| self.turn(request))).unwrap_or(Err(TurnError::Lost));
        drop(submitted);
        result.set(finished);
        drop(poster);
    }

    fn turn(self, request: TurnRequest) -> Result<FinishedTurn, TurnError> {
        let snapshot = match &request.session {
            SessionTarget::Existing(id) => {
                self.note_session(*id);
                Some(block_on(SessionSnapshot::read(&*self.engine.store, *id))?)
            }
            SessionTarget::New(_) | SessionTarget::Named(_) => None,
        };
        // Before anything is created or acquired: what is wrong with the request leaves no trace.
        let options = self.plan(&request, snapshot.as_ref())?;
        let mut staged = Vec::new();
        let first_commands = self.run_first_commands(&request, &options, &mut staged)?;
        let session = match &request.session {
            SessionTarget::Existing(id) => *id,
            SessionTarget::New(new) => self.create(new)?,
            SessionTarget::Named(new) => block_on(self.engine.store.find_or_create(new.clone()))?,
        };
        self.note_session(session);
        // A session without its lease is not deleted, also if it was created just now: another process may run a turn in it.
        let (lease, has_waited) = self.acquire(session, options.agent.name(), request.waits, &mut staged)?;
        let (engine, poster) = (Arc::clone(&self.engine), self.poster.clone());
        let (finished, is_unused) =
            match self.accept(&request, session, snapshot, options, &lease, has_waited, &mut staged) {
                Ok((task, snapshot)) => {
                    let (is_new, learn_cache) = (task.is_new, task.options.learn_cache.clone());
                    let Self { inbox, sender, poster, .. } = self;
                    let (finished, has_stored) = Driver::new(task, snapshot, inbox, sender, poster)
                        .with_first_commands(first_commands)
                        .run(request.prompt, staged);
                    if let (Some(learn_cache), Ok(finished)) = (learn_cache, &finished) {
                        learn_cache(finished.cache);
                    }
                    // The output of a turn that is not stored belongs to the session, or is in the agent's own transcript.
                    let is_kept = matches!(finished, Err(TurnError::NotStored(_) | TurnError::OutputLost(_)));
                    (finished, is_new && !has_stored && !is_kept)
                }
                Err(error) => {
                    let is_ours = matches!(request.session, SessionTarget::New(_));
                    (Err(error), is_ours && is_empty(&engine, session))
                }
            };
        if is_unused && let Err(error) = block_on(engine.store.delete(session)) {
            let why = format!("{session} was created for this turn and could not be deleted: {error}");
            drop(poster.send(Posted::Event(TurnEvent::Notice(why))));
        }
        // After the session is deleted, so that no turn begins in it; before the result is there, so that the next turn need
        // not wait.
        drop(lease);
        finished
    }

    fn note_session(&self, session: SessionId) {
        self.session.get_or_init(|| session);
    }

    /// Finds out how the turn is run, now that its lease is held.
    #[expect(clippy::too_many_arguments, reason = "the state of a turn between two steps")]
    fn accept(
        &self,
        request: &TurnRequest,
        session: SessionId,
        snapshot: Option<SessionSnapshot>,
        mut options: TurnOptions,
        lease: &SessionLease,
        has_waited: bool,
        staged: &mut Vec<String>,
    ) -> Result<(TurnTask, SessionSnapshot), TurnError> {
        if has_waited {
            // A process that had the lease until now may have lost its spool.
            self.recover_noted(session)?;
        }
        self.recover(session, options.output_limit, staged)?;
        let mut is_new = !matches!(request.session, SessionTarget::Existing(_));
        // Another turn may have ended before the lease was acquired, with another agent or model.
        let mut record = block_on(self.engine.store.get(session))?;
        if self.recover_original(&record, lease, staged)? {
            record = block_on(self.engine.store.get(session))?;
        }
        let unchanged = snapshot.filter(|read| read.record.revision == record.revision);
        let snapshot = match unchanged {
            Some(snapshot) => snapshot,
            None => {
                let read = block_on(SessionSnapshot::of(&*self.engine.store, record))?;
                // It was found by its name, or another process has begun it since.
                is_new = is_new && read.record.counts.events == 0;
                if !is_new {
                    options = self.plan(request, Some(&read))?;
                }
                read
            }
        };
        for notice in std::mem::take(&mut options.notices) {
            self.post(TurnEvent::Notice(notice));
        }
        self.post(TurnEvent::Accepted(Box::new(Accepted::of(&snapshot.record, is_new, &options))));
        let task = TurnTask {
            engine: Arc::clone(&self.engine),
            slots: self.slots.clone(),
            controls: self.controls.clone(),
            session,
            lease: lease.id().cloned(),
            used_in: request.used_in.clone(),
            switches_model: !is_new && switches_model(&snapshot, &options),
            is_new,
            options: Arc::new(options),
        };
        Ok((task, snapshot))
    }

    fn post(&self, event: TurnEvent) {
        // A caller who does not listen does not want to know.
        drop(self.poster.send(Posted::Event(event)));
    }

    fn plan(
        &self,
        request: &TurnRequest,
        snapshot: Option<&SessionSnapshot>,
    ) -> Result<TurnOptions, TurnError> {
        let options = (request.plan)(&TurnStart::of(snapshot)).map_err(TurnError::Plan)?;
        if options.agent.is_bridged() && self.engine.spools.bridges().is_none() {
            return Err(TurnError::NoBridge { agent: options.agent.name() });
        }
        options.agent.check(&options.request(self.engine.in_git))?;
        Ok(options)
    }

    /// Creates a session, unless another process was faster with its name.
    fn create(&self, new: &NewSession) -> Result<SessionId, TurnError> {
        let store = &self.engine.store;
        let id = block_on(store.create(new.clone()))?;
        let Some(name) = &new.name else { return Ok(id) };
        match block_on(store.find(name))?.into_iter().min() {
            Some(session) if session < id => {
                block_on(store.delete(id))?;
                Err(TurnError::NameTaken { name: name.clone(), session })
            }
            _ => Ok(id),
        }
    }

    /// Acquires the lease of the session; waits for it, if that is wanted. Returns whether it had to wait.
    fn acquire(
        &self,
        session: SessionId,
        agent: &str,
        waits: bool,
        staged: &mut Vec<String>,
    ) -> Result<(SessionLease, bool), TurnError> {
        let EngineOptions { store, spools, .. } = &*self.engine;
        let mut waits_for: Option<Busy> = None;
        loop {
            let busy = match block_on(lease_session(store, spools, session, &self.engine.holder(agent)))? {
                SessionLeased::Ours(lease) => return Ok((lease, waits_for.is_some())),
                SessionLeased::Busy(busy) => busy,
            };
            if !waits {
                return Err(TurnError::Busy(busy));
            }
            if waits_for.as_ref() != Some(&busy) {
                self.post(TurnEvent::Waiting(busy.clone()));
                waits_for = Some(busy.clone());
            }
            if self.is_cancelled_within(LEASE_PAUSE, staged) {
                return Err(TurnError::GaveUpWaiting(busy));
            }
        }
    }

    /// Waits for a cancel. Prompts that come meanwhile are kept for later.
    pub(crate) fn is_cancelled_within(&self, pause: Duration, staged: &mut Vec<String>) -> bool {
        let end = Instant::now() + pause;
        loop {
            match self.inbox.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Message::Input(Input::Cancel)) => return true,
                Ok(Message::Input(Input::Submit(prompt))) => staged.push(prompt),
                // Nothing else comes before the turn begins.
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    /// Stores turns that were interrupted. If an agent of this session still works, or another process stores a turn of it, waits and
    /// looks again: the history would miss the rest of that turn. No other turn of the session can begin meanwhile, because
    /// its lease is held.
    fn recover(
        &self,
        session: SessionId,
        limit: OutputLimit,
        staged: &mut Vec<String>,
    ) -> Result<(), TurnError> {
        let (mut is_followed, mut is_cancelled, mut waits) = (false, false, 0_u32);
        let mut reported = Vec::new();
        while let Some(unfinished) = self.recover_spools(session, &mut reported, staged)? {
            match unfinished {
                Unfinished::Working(turn, process) if !std::mem::replace(&mut is_followed, true) => {
                    is_cancelled = self.follow(&turn, &process, limit, staged);
                }
                Unfinished::Working(turn, process) => {
                    if self.is_cancelled_within(FOLLOW_PAUSE, staged) {
                        // Once its agent has ended, processes that it started may still write for a while.
                        is_cancelled = true;
                        self.stop(&turn, &process);
                    }
                }
                Unfinished::Owned => {
                    if self.is_cancelled_within(STORE_PAUSE, staged) {
                        return Err(TurnError::Stopped { session });
                    }
                    waits += 1;
                    if waits == TOLD_AFTER {
                        let why = format!("waits: another command stores the last turn of {session}");
                        self.post(TurnEvent::Notice(why));
                    }
                }
            }
        }
        if is_cancelled { Err(TurnError::Stopped { session }) } else { Ok(()) }
    }

    /// Looks for the transcripts of runs that are noted and have no spool, and reports those of this session.
    fn recover_noted(&self, session: SessionId) -> Result<(), TurnError> {
        for found in block_on(recover(&self.engine))? {
            if matches!(&found, Recovered::Noted(id, ..) if *id == session) {
                self.post(TurnEvent::Recovered(Box::new(found)));
            }
        }
        Ok(())
    }

    /// Stores what can be stored, reports it, and returns the turn of this session that is not stored yet. Processes that were
    /// `reported` are not reported again. A cancel is heard between two turns.
    fn recover_spools(
        &self,
        session: SessionId,
        reported: &mut Vec<ProcessIdentity>,
        staged: &mut Vec<String>,
    ) -> Result<Option<Unfinished>, TurnError> {
        let mut unfinished = None;
        for found in self.engine.spools.find()? {
            if self.is_cancelled_within(Duration::ZERO, staged) {
                return Err(TurnError::Stopped { session });
            }
            let Some(found) = block_on(recover_found(&self.engine, found)) else { continue };
            let is_ours = found.turn().is_some_and(|turn| turn.session_id() == Some(session));
            // Turns that other processes run are no news to this one.
            let is_news = match &found {
                Recovered::Running(..) => {
                    if is_ours && unfinished.is_none() {
                        unfinished = Some(Unfinished::Owned);
                    }
                    false
                }
                Recovered::Orphan(turn, process) => {
                    if is_ours {
                        unfinished = Some(Unfinished::Working(Box::new(turn.clone()), process.clone()));
                    }
                    let is_known = reported.contains(process);
                    if !is_known {
                        reported.push(process.clone());
                    }
                    !is_known
                }
                _ => true,
            };
            match found {
                // It may be stored later, and then behind this one.
                Recovered::Failed(_, IngestError::Store(error)) if is_ours && !is_lasting(&error) => {
                    return Err(TurnError::Store(error));
                }
                Recovered::Failed(turn, error) if is_ours && may_pass(&error) => {
                    let spool = self.engine.spools.folder_of(&turn).join(format!("{}.{OUTPUT}", turn.run));
                    return Err(TurnError::Unstored { session, spool, source: error });
                }
                found if is_news => self.post(TurnEvent::Recovered(Box::new(found))),
                _ => {}
            }
        }
        Ok(unfinished)
    }

    /// Waits for an agent that runs in the background, and reports its output. A cancel stops it. Returns whether one came.
    fn follow(
        &self,
        turn: &SpooledTurn,
        process: &ProcessIdentity,
        limit: OutputLimit,
        staged: &mut Vec<String>,
    ) -> bool {
        let EngineOptions { spools, agents, .. } = &*self.engine;
        info!(session = turn.session, run = turn.run, "follows an agent that runs in the background");
        self.post(TurnEvent::Following(Box::new(turn.clone())));
        let agent = agents.iter().find(|agent| agent.name() == turn.agent);
        // An output that cannot be read does not stop the agent, nor the waiting.
        if let Some(watcher) = agent.and_then(|agent| spools.watch(turn, *agent, Some(process.clone())).ok())
        {
            drop(self.poster.send(Posted::Watch(watcher)));
        }
        let (mut is_cancelled, mut is_stopped) = (false, false);
        while process.is_alive() {
            is_cancelled |= self.is_cancelled_within(FOLLOW_PAUSE, staged);
            let is_flood = spools.printed(turn) >> 20 > limit.mib();
            if is_flood && !is_stopped {
                let why = format!("{} has printed more than {} MiB: it is stopped", turn.agent, limit.mib());
                self.post(TurnEvent::Notice(why));
            }
            if (is_cancelled || is_flood) && !std::mem::replace(&mut is_stopped, true) {
                self.stop(turn, process);
            }
        }
        is_cancelled
    }

    /// Stops an agent that runs in the background, on a thread of its own: it is given time. One that cannot be stopped is
    /// waited for.
    fn stop(&self, turn: &SpooledTurn, process: &ProcessIdentity) {
        let (spools, turn, process) = (self.engine.spools.clone(), turn.clone(), process.clone());
        thread::spawn(move || {
            if let Err(error) = stop_turn(&spools, &turn, Some(&process)) {
                warn!(error = ?error.to_string(), "an agent in the background is not stopped");
            }
        });
    }

    /// Recovers the turn that the original AZUREAL program noted in a session and never stored, if it has ended and the user
    /// agrees. Otherwise nothing changes, and this turn continues without it. Returns whether the session has changed.
    fn recover_original(
        &self,
        record: &SessionRecord,
        lease: &SessionLease,
        staged: &mut Vec<String>,
    ) -> Result<bool, TurnError> {
        let EngineOptions { store, spools, agents, environment, .. } = &*self.engine;
        let session = record.id;
        let Some(run) = &record.original_run else { return Ok(false) };
        // The first release of azureal noted its runs in the same place. The spool has that turn, and is stored when it can be.
        let is_of = |turns: Vec<FoundTurn>| turns.iter().any(|turn| turn.session == session);
        if spools.found_turns().map_or(true, is_of) {
            return Ok(false);
        }
        let (idle, record) = match look_at_original(agents, environment, run) {
            // The original program may know more of it.
            OriginalRun::Missing => return Ok(false),
            OriginalRun::Running(idle) => {
                self.post(TurnEvent::OriginalRun(Box::new(OriginalRunEvent::Running { session, idle })));
                return Ok(false);
            }
            OriginalRun::Abandoned(idle, record) => (idle, record),
        };
        let (answer, mut answered) = oneshot::channel();
        let question = OriginalRunEvent::Abandoned { session, idle, record, answer };
        self.post(TurnEvent::OriginalRun(Box::new(question)));
        loop {
            match answered.try_recv() {
                Ok(Some(true)) => break,
                // A question that is dropped is a no.
                Ok(Some(false)) | Err(oneshot::Canceled) => return Ok(false),
                Ok(None) if self.is_cancelled_within(ANSWER_PAUSE, staged) => {
                    return Err(TurnError::Stopped { session });
                }
                Ok(None) => {}
            }
        }
        let noted =
            block_on(recover_original(&**store, agents, environment, session, run, lease.id().cloned()));
        self.post(TurnEvent::OriginalRun(Box::new(OriginalRunEvent::Recovered { session, noted })));
        Ok(true)
    }
}

/// Returns whether the turn asks the session's agent for another model than the turn before.
fn switches_model(snapshot: &SessionSnapshot, options: &TurnOptions) -> bool {
    let counts = &snapshot.record.counts;
    counts.agent.as_deref() == Some(options.agent.name()) && counts.requested_model != options.model
}

/// Returns whether a turn that the store refused for this reason will never be stored.
fn is_lasting(error: &StoreError) -> bool {
    matches!(error, StoreError::NoSuchSession(_) | StoreError::TooLarge { .. })
}

/// Returns whether a turn that was not stored for this reason may be stored later.
fn may_pass(error: &IngestError) -> bool {
    match error {
        IngestError::Store(error) => !is_lasting(error),
        IngestError::Output(FollowError::Unreadable { source, .. }) => source.kind() != ErrorKind::NotFound,
        IngestError::Spool(_) => true,
        IngestError::Output(_) | IngestError::NoSession(_) => false,
    }
}

/// Returns whether a session has no events, and so can be deleted without loss.
fn is_empty(engine: &EngineOptions, session: SessionId) -> bool {
    block_on(engine.store.get(session)).is_ok_and(|record| record.counts.events == 0)
}
