//! The driver: performs what the machine says, and feeds back what came of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Instant;

use azureal_core::agent::{AgentRequest, CacheSeen, Ending, Exit};
use azureal_core::event::{Complete, Outcome};
use azureal_core::{LeaseId, Seq, SessionId, SessionRecord, SessionSnapshot};
use azureal_process::StopTimeouts;
use futures_executor::block_on;
use tracing::{debug, error, info, warn};

use crate::bridge;
use crate::changes::{BeforeTurn, RecordChanges, snapshot_owner};
use crate::context_commands::{CommandRun, CommandStop};
use crate::engine::{EngineOptions, SharedSlots};
use crate::gather::{Gather, GatherError, Gathered};
use crate::handle::{Posted, TurnControls};
use crate::header::SpooledTurn;
use crate::ingest::{Destination, IngestError, Ingested, ingest, ingest_unstarted};
use crate::launch::{AgentRun, STDERR_BYTES};
use crate::output_limit::{OutputLimit, Printed};
use crate::recall::OpenRecall;
use crate::request::{Keeping, TurnOptions};
use crate::spool::Spool;
use crate::start::GO_ON;
use crate::turn_event::{FinishedTurn, TurnError, TurnEvent};
use crate::turn_machine::{Effect, Input, Sent, TurnMachine};

/// A turn that has its session and its lease.
pub(crate) struct TurnTask {
    pub(crate) engine: Arc<EngineOptions>,
    pub(crate) options: Arc<TurnOptions>,
    pub(crate) slots: SharedSlots,
    /// The caller's controls.
    pub(crate) controls: TurnControls,
    pub(crate) session: SessionId,
    /// The lease of the store, if it gives out any.
    pub(crate) lease: Option<LeaseId>,
    /// Where the store remembers the session as the last one used.
    pub(crate) used_in: Option<String>,
    /// Whether another model is asked for than in the turn before, of the same agent.
    pub(crate) switches_model: bool,
    /// Whether the session was created for this turn, and is deleted if the turn does not begin.
    pub(crate) is_new: bool,
}

/// A message to a driver that waits.
pub(crate) enum Message {
    /// An input of the machine.
    Input(Input),
    /// The context is gathered, or not.
    Gathered(Result<Box<Gathered>, GatherError>, Option<BeforeTurn>),
    /// Something that was read in the output of a run. It may come when that run is over.
    Observed {
        /// The run's name.
        run: String,
        /// What it is.
        what: Observed,
    },
}

/// What the driver itself learns from the output of an agent.
pub(crate) enum Observed {
    /// The agent's own name of the run, as soon as it says it.
    Named(String),
    /// The session has become too long.
    Full,
    /// The output has grown, to the limit or towards it.
    Printed(Printed, OutputLimit),
}

/// Runs the turns of one session until none is left.
pub(crate) struct Driver {
    pub(crate) task: TurnTask,
    machine: TurnMachine,
    inbox: Receiver<Message>,
    pub(crate) sender: Sender<Message>,
    poster: Sender<Posted>,
    pub(crate) run: Option<Run>,
    /// The session as the next turn finds it; `None` if it must be read.
    snapshot: Option<SessionSnapshot>,
    /// When the session was created.
    session_made: String,
    /// The generation of the session when this driver began. If it changes, so does what `last_event` says.
    generation: u64,
    /// The last event of the session, as far as this driver knows.
    last_event: Seq,
    /// Whether the session was compacted since the user's last prompt: once is enough.
    pub(crate) was_compacted: bool,
    /// When the turn must be over: one that continues after a compaction is still the same.
    pub(crate) deadline: Option<Instant>,
    /// What is stored of the turn so far.
    stored: Stored,
    /// Whether a turn is stored, be it an earlier one: then a new session is not deleted any more.
    has_stored: bool,
    /// Why the context of the turn could not be gathered.
    not_gathered: Option<GatherError>,
    last: Option<Result<FinishedTurn, TurnError>>,
    /// The context commands that ran before the session was created.
    first_commands: Option<Vec<CommandRun>>,
}

/// What is stored of a turn that may continue after a compaction.
#[derive(Default)]
struct Stored {
    first: Option<Seq>,
    refused: Vec<String>,
    cache: CacheSeen,
}

/// The turn that is under way.
pub(crate) struct Run {
    pub(crate) spool: Spool,
    destination: Destination,
    pub(crate) started: Instant,
    stopped: Option<Outcome>,
    /// Ends the commands that gather its context.
    gathering: CommandStop,
    pub(crate) agent: Option<AgentRun>,
    /// The server with which the agent looks things up.
    pub(crate) recall: Option<OpenRecall>,
    /// The request that was sent with a breakpoint, so that it can be sent again without one.
    pub(crate) with_breakpoint: Option<AgentRequest>,
    /// Where the output of this start ends, once the program is started a second time.
    pub(crate) output_end: Arc<AtomicU64>,
    /// The session without this turn, and the size of its record, once the context is gathered.
    pub(crate) session: Option<(SessionRecord, u64)>,
    /// The state of the worktree before the turn, once the context is gathered.
    pub(crate) before: Option<BeforeTurn>,
    /// The threads that note the agent's own name of the run in the store: one for each start of its program.
    noting: Vec<thread::JoinHandle<()>>,
}

impl Run {
    /// Waits for the threads that note the run. The append removes the note, so no note may come after it.
    fn wait_until_noted(&mut self) {
        self.noting.drain(..).for_each(|noting| drop(noting.join()));
    }
}

impl Driver {
    pub(crate) fn new(
        task: TurnTask,
        snapshot: SessionSnapshot,
        inbox: Receiver<Message>,
        sender: Sender<Message>,
        poster: Sender<Posted>,
    ) -> Self {
        Self {
            task,
            machine: TurnMachine::default(),
            inbox,
            sender,
            poster,
            run: None,
            session_made: snapshot.record.created_at.clone(),
            generation: snapshot.record.generation,
            last_event: Seq(snapshot.record.counts.events),
            snapshot: Some(snapshot),
            was_compacted: false,
            deadline: None,
            stored: Stored::default(),
            has_stored: false,
            not_gathered: None,
            last: None,
            first_commands: None,
        }
    }

    /// Takes the context commands that ran before the session was created.
    pub(crate) fn with_first_commands(mut self, first_commands: Option<Vec<CommandRun>>) -> Self {
        self.first_commands = first_commands;
        self
    }

    /// Sends a prompt, then those that are staged already, then everything that is staged while it runs. Blocks until all of it
    /// is stored, and returns the last turn, and whether any is stored.
    pub(crate) fn run(
        mut self,
        prompt: String,
        staged: Vec<String>,
    ) -> (Result<FinishedTurn, TurnError>, bool) {
        let mut inputs: Vec<Input> = [prompt].into_iter().chain(staged).map(Input::Submit).collect();
        loop {
            for input in std::mem::take(&mut inputs) {
                for effect in self.machine.step(input) {
                    inputs.extend(self.perform(effect));
                }
            }
            if !inputs.is_empty() {
                continue;
            }
            if !self.machine.is_active() {
                // It may have been staged in the last moment.
                match self.task.controls.last_staged(&self.inbox) {
                    Some(prompt) if self.is_stored_here() => inputs.push(Input::Submit(prompt)),
                    // The next turn would receive a history without this one.
                    Some(prompt) => self.notice(format!("not sent: {prompt}")),
                    None => return (self.last.take().unwrap_or(Err(TurnError::Lost)), self.has_stored),
                }
                continue;
            }
            match self.wait() {
                Message::Input(input) => {
                    let is_refused = input == Input::Exited && self.is_refused();
                    inputs.push(if is_refused { Input::Refused } else { input });
                }
                Message::Gathered(gathered, before) => {
                    if let Some(run) = &mut self.run {
                        run.before = before;
                    }
                    // Another process may have ended the turn before there was an agent that could be ended.
                    let is_set = |run: &Run| run.spool.cancel_sign().is_set_by_another();
                    if self.run.as_ref().is_some_and(is_set) {
                        inputs.push(Input::Cancel);
                    }
                    inputs.push(self.gathered(gathered));
                }
                Message::Observed { run, what } => {
                    if self.run.as_ref().is_some_and(|current| current.spool.turn().run == run) {
                        inputs.extend(self.observed(what));
                    } else {
                        debug!(session = %self.task.session, run, "ignored: what was seen of a run that is over");
                    }
                }
            }
        }
    }

    pub(crate) fn post(&self, event: TurnEvent) {
        // A caller who does not listen does not want to know.
        drop(self.poster.send(Posted::Event(event)));
    }

    pub(crate) fn post_watcher(&self, watcher: crate::watch::Watcher) {
        drop(self.poster.send(Posted::Watch(watcher)));
    }

    pub(crate) fn notice(&self, text: impl Into<String>) {
        self.post(TurnEvent::Notice(text.into()));
    }

    fn observed(&mut self, what: Observed) -> Option<Input> {
        match what {
            Observed::Named(name) => {
                let (engine, session, poster) =
                    (Arc::clone(&self.task.engine), self.task.session, self.poster.clone());
                // On a thread of its own: the store may be locked or away, and cancels are heard meanwhile.
                let noting = thread::spawn(move || {
                    // Only an aid for recovery; the turn continues without it.
                    if let Err(error) = block_on(engine.store.note_run(session, Some(&engine.note_of(&name))))
                    {
                        drop(poster.send(Posted::Event(TurnEvent::Notice(error.to_string()))));
                    }
                });
                if let Some(run) = &mut self.run {
                    run.noting.push(noting);
                }
                None
            }
            Observed::Full => Some(Input::Full),
            Observed::Printed(Printed::Much(bytes), limit) => {
                self.notice(format!(
                    "{} has printed {} MiB; it is stopped at {} MiB",
                    self.task.options.agent.name(),
                    bytes >> 20,
                    limit.mib()
                ));
                None
            }
            Observed::Printed(Printed::TooMuch, _) => Some(Input::OutputLimit),
        }
    }

    /// Waits for the program to end, the time to be up, or the user to want something.
    fn wait(&self) -> Message {
        let is_running = matches!(&self.run, Some(Run { stopped: None, .. }));
        match self.deadline.filter(|_| is_running) {
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                match self.inbox.recv_timeout(left) {
                    Ok(message) => message,
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                        Message::Input(Input::TimeUp)
                    }
                }
            }
            // We hold a sender ourselves, so this cannot be disconnected.
            None => self.inbox.recv().unwrap_or(Message::Input(Input::Cancel)),
        }
    }

    fn perform(&mut self, effect: Effect) -> Vec<Input> {
        match effect {
            Effect::Gather(sent) => {
                self.gather(sent).err().map(|error| self.not_gathered(error)).into_iter().collect()
            }
            Effect::Start(frame) => self.started(|driver| driver.start(frame)),
            Effect::StartAgain => self.started(Self::start_again),
            Effect::Stop(outcome) => {
                self.stop(outcome);
                Vec::new()
            }
            Effect::Ingest => self.ingest(),
            Effect::IngestUnstarted(outcome, why) => self.ingest_unstarted(outcome, why),
            Effect::Tell(text) => {
                self.notice(text);
                Vec::new()
            }
            // A cancel that came too late, an exit that was known: nothing is lost by it.
            Effect::Ignored(input) => {
                log_ignored(self.task.session, &input);
                Vec::new()
            }
        }
    }

    /// Starts the agent, unless the turn is cancelled.
    fn started(&mut self, start: impl FnOnce(&mut Self) -> Result<(), String>) -> Vec<Input> {
        if self.run.as_ref().is_some_and(|run| run.spool.is_cancelled()) {
            return vec![Input::Cancel, Input::NotStarted("cancelled".to_owned())];
        }
        vec![start(self).map_or_else(Input::NotStarted, |()| Input::Started)]
    }

    fn stop(&mut self, outcome: Outcome) {
        info!(session = %self.task.session, ?outcome, "stops the turn");
        let Some(run) = &mut self.run else { return };
        run.stopped = Some(outcome);
        if outcome == Outcome::Cancelled
            && let Err(error) = run.spool.cancel()
        {
            // Only for the next azureal, should this one end before the turn is stored.
            warn!(session = %self.task.session, %error, "a cancel is not noted");
        }
        run.gathering.stop();
        if let Some(agent) = run.agent.clone() {
            self.cancel(&agent);
        }
    }

    /// Keeps the prompt, and begins to gather its context on a thread of its own, so that prompts and cancels are
    /// heard meanwhile.
    fn gather(&mut self, sent: Sent) -> Result<(), GatherError> {
        let TurnTask { engine, options, session, lease, .. } = &self.task;
        let (engine, options, session, lease) =
            (Arc::clone(engine), Arc::clone(options), *session, lease.clone());
        let goes_on = sent == Sent::GoOn;
        let prompt = match sent {
            Sent::Prompt(prompt) => {
                self.was_compacted = false;
                self.stored = Stored::default();
                self.not_gathered = None;
                // A deadline that is further off than the clock reaches is none.
                self.deadline = options.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
                prompt
            }
            Sent::GoOn => GO_ON.to_owned(),
        };
        let snapshot = self.snapshot.take();
        let name = uuid::Uuid::new_v4().simple().to_string();
        let turn = SpooledTurn {
            run: name.clone(),
            session: session.number(),
            session_made: self.session_made.clone(),
            after: self.last_event.0,
            generation: Some(self.generation),
            prompt: prompt.clone(),
            goes_on,
            agent: options.agent.name().to_owned(),
            model: options.model.clone(),
            switches_model: self.task.switches_model && !goes_on,
            used_in: self.task.used_in.clone(),
            directory: engine.directory.clone(),
            started_at: crate::clock::now_text(),
        };
        let spool = engine.spools.begin(turn)?;
        let stop = CommandStop::default();
        let cancel = spool.cancel_sign().clone();
        let recall = options.recall.as_ref().and_then(|recall| {
            let opened = recall.open(&name, session, &engine);
            opened.map_err(|error| self.notice(format!("no recall in this turn: {error}"))).ok()
        });
        let has_recall = recall.is_some();
        self.run = Some(Run {
            spool,
            destination: destination(lease.as_ref(), self.last_event),
            started: Instant::now(),
            stopped: None,
            gathering: stop.clone(),
            agent: None,
            recall,
            with_breakpoint: None,
            output_end: Arc::default(),
            session: None,
            before: None,
            noting: Vec::new(),
        });
        let (sender, poster, may_compact) = (self.sender.clone(), self.poster.clone(), !self.was_compacted);
        let first = self.first_commands.take();
        thread::spawn(move || {
            let gather = Gather {
                engine: &engine,
                options: &options,
                session,
                lease: lease.as_ref(),
                run: &name,
                stop: &stop,
                cancel: &cancel,
                may_compact,
                has_recall,
                first,
            };
            // Not on the thread of the driver, which hears cancels while a store is locked or away.
            let read = || block_on(SessionSnapshot::read(&*engine.store, session));
            let snapshot =
                match snapshot.map_or_else(|| catch_unwind(AssertUnwindSafe(read)), |read| Ok(Ok(read))) {
                    Ok(Ok(snapshot)) => snapshot,
                    failed => {
                        let error = failed.map_or(GatherError::NoHistory, |read| match read {
                            Err(error) => error.into(),
                            Ok(_) => GatherError::NoHistory,
                        });
                        drop(sender.send(Message::Gathered(Err(error), None)));
                        return;
                    }
                };
            let owner = snapshot_owner(&snapshot.record);
            let is_stored = options.briefing.keeping != Keeping::Ephemeral;
            let recorder = engine.changes.as_ref();
            let (gathered, before) = thread::scope(|threads| {
                // Beside the commands: the agent waits for both.
                let choice = if is_stored { options.changes } else { RecordChanges::Off };
                let before = recorder.map(|recorder| {
                    let (stop, poster) = (stop.clone(), poster.clone());
                    let (owner, name) = (&owner, &name);
                    threads.spawn(move || {
                        let mut notice = |text| drop(poster.send(Posted::Event(TurnEvent::Notice(text))));
                        recorder.before(choice, owner, name, &|| stop.is_stopped(), &mut notice)
                    })
                });
                // A store of the caller's may panic. The driver waits for an answer in any case.
                let gathered = catch_unwind(AssertUnwindSafe(|| {
                    gather.gather(snapshot, &prompt, &mut |event| drop(poster.send(Posted::Event(event))))
                }));
                let before = before.and_then(|before| before.join().ok().flatten());
                (gathered.unwrap_or(Err(GatherError::NoHistory)), before)
            });
            // The driver listens until it has heard this.
            drop(sender.send(Message::Gathered(gathered.map(Box::new), before)));
        });
        Ok(())
    }

    /// Keeps why the context could not be gathered. The turn is stored with the text of it.
    fn not_gathered(&mut self, error: GatherError) -> Input {
        let why = error.to_string();
        self.not_gathered = Some(error);
        Input::NotGathered(why)
    }

    fn gathered(&mut self, gathered: Result<Box<Gathered>, GatherError>) -> Input {
        let gathered = match gathered {
            Ok(gathered) => *gathered,
            Err(error) => return self.not_gathered(error),
        };
        self.was_compacted |= gathered.was_compacted;
        if let Some(run) = &mut self.run {
            let record_chars = gathered.session.record_chars();
            // It may have a system message now.
            run.destination =
                destination(self.task.lease.as_ref(), Seq(gathered.session.record.counts.events));
            run.session = Some((gathered.session.record, record_chars));
        }
        Input::Gathered(gathered.frame)
    }

    fn ingest(&mut self) -> Vec<Input> {
        let Some(mut run) = self.run.take() else { return vec![Input::Stored { is_done: false }] };
        let agent = self.task.options.agent;
        if let Some(ended) = &run.agent {
            if matches!(ended.exit(), Some(Exit::Signal(_)))
                || (agent.is_bridged() && !bridge::has_ended(run.spool.output_path()))
            {
                // It was killed, and perhaps only a wrapper: what it left would continue unseen, and write
                // to a file that is about to be removed.
                self.cancel(ended);
            }
            self.task.slots.lock().free(ended.process().pid);
        }
        match run.spool.put_back() {
            Ok(false) => {}
            Ok(true) => {
                self.notice("the file with the agent's output was deleted, and was written again".to_owned());
            }
            Err(error) => self.notice(error.to_string()),
        }
        let output = run.spool.output_path().to_owned();
        let ending = Ending {
            exit: run.agent.as_ref().and_then(AgentRun::exit),
            stderr: run.spool.errors_text(STDERR_BYTES),
            fragment: Vec::new(),
            duration: run.started.elapsed(),
            stopped: run.stopped,
        };
        let EngineOptions { store, spools, environment, changes, .. } = &*self.task.engine;
        // First ours, whose thread is woken by way of its file.
        drop(run.recall.take());
        spools.remove_sockets(&run.spool.turn().run);
        // Should we die before it is stored, the next process that finds it knows how it ended.
        let (ending, cancel) = self.close(&mut run.spool, ending);
        let changes = changes.as_ref().zip(run.before.take()).zip(run.session.as_ref());
        let changes = changes.and_then(|((recorder, before), (record, _))| {
            recorder.after(&snapshot_owner(record), before, &mut |text| self.notice(text))
        });
        run.wait_until_noted();
        let ingested =
            block_on(ingest(&**store, agent, run.spool, ending, &run.destination, environment, changes));
        let stored = self.settle(ingested, run.session.map(|(record, _)| record), &output);
        cancel.into_iter().chain([stored]).collect()
    }

    /// Notes the end of a turn, and returns how it ended and what the machine is to know before it is stored: a cancel of another
    /// process takes back what waits.
    fn close(&self, spool: &mut Spool, ending: Ending) -> (Ending, Option<Input>) {
        let (ending, noted) = spool.close(ending);
        if let Err(error) = noted {
            self.notice(error.to_string());
        }
        (ending, spool.cancel_sign().is_set_by_another().then_some(Input::Cancel))
    }

    fn ingest_unstarted(&mut self, outcome: Outcome, why: String) -> Vec<Input> {
        let Some(mut run) = self.run.take() else {
            let source = self.not_gathered.take().unwrap_or(GatherError::Stopped);
            self.last = Some(Err(match self.stored.first {
                Some(_) => TurnError::NotContinued { session: self.task.session, source },
                None => TurnError::NotBegun(source),
            }));
            return vec![Input::NotStored(why)];
        };
        let is_refused = matches!(self.not_gathered, Some(GatherError::Command { .. }));
        if is_refused && self.stored.first.is_none() {
            return vec![self.refuse(run, outcome)];
        }
        let ending = Ending {
            stderr: why,
            duration: run.started.elapsed(),
            stopped: Some(outcome),
            ..Ending::default()
        };
        let (ending, cancel) = self.close(&mut run.spool, ending);
        run.wait_until_noted();
        let store = &*self.task.engine.store;
        let output = run.spool.output_path().to_owned();
        let ingested = block_on(ingest_unstarted(
            store,
            self.task.options.agent,
            run.spool,
            ending.stopped.unwrap_or(outcome),
            &ending.stderr,
            &run.destination,
        ));
        let stored = self.settle(ingested, run.session.map(|(record, _)| record), &output);
        cancel.into_iter().chain([stored]).collect()
    }

    /// Stores nothing of a turn that a context command refused.
    fn refuse(&mut self, run: Run, outcome: Outcome) -> Input {
        let source = self.not_gathered.take().unwrap_or(GatherError::Stopped);
        if self.has_stored {
            // The caller has the prompt of its request, and no other.
            self.notice(format!("not sent: {}", run.spool.turn().prompt));
        }
        self.last = Some(match run.spool.remove() {
            Ok(_) => Err(TurnError::NotGathered { outcome: Some(outcome), source }),
            Err(error) => Err(TurnError::Spool(error)),
        });
        Input::Stored { is_done: false }
    }

    /// Reports what came of storing a turn whose output is, or was, in this file.
    fn settle(
        &mut self,
        ingested: Result<Ingested, IngestError>,
        record: Option<SessionRecord>,
        output: &Path,
    ) -> Input {
        let ingested = match ingested {
            Ok(ingested) => ingested,
            Err(error) => {
                // The user is told why.
                error!(session = %self.task.session, "the turn is not stored");
                let why = error.to_string();
                let is_kept = output.symlink_metadata().is_ok();
                self.last = Some(Err(if is_kept {
                    TurnError::NotStored(error)
                } else {
                    TurnError::OutputLost(error)
                }));
                return Input::NotStored(why);
            }
        };
        let Complete { outcome, .. } = ingested.complete;
        info!(session = %ingested.session, ?outcome, is_new = ingested.appended.is_some(), "stored the turn");
        ingested.notices.iter().for_each(|notice| self.notice(notice));
        let not_gathered = self.not_gathered.take();
        // A turn that went to a fork is not in the session that was created for it.
        let is_ours = self.task.is_new && !self.has_stored && ingested.instead_of.is_none();
        if let Some(source) = not_gathered.filter(|_| is_ours) {
            // The session is deleted with all that is in it.
            self.last = Some(Err(TurnError::NotGathered { outcome, source }));
            return Input::Stored { is_done: false };
        }
        self.has_stored = true;
        if let (None, Some(appended)) = (ingested.instead_of, ingested.appended) {
            self.last_event = appended.last;
        }
        let input = match ingested.instead_of {
            // What waits was meant for a session that has this turn in it.
            Some(session) => {
                Input::NotStored(format!("{session} was taken over by another process while this turn ran"))
            }
            None => Input::Stored { is_done: outcome == Some(Outcome::Done) },
        };
        let (late, finished) = self.finished(ingested, record);
        drop(self.poster.send(Posted::Stored(late, Box::new(finished.clone()))));
        self.last = Some(Ok(finished));
        input
    }

    /// Joins what is stored of a turn: one that was compacted in the middle is stored in two parts.
    fn finished(
        &mut self,
        mut ingested: Ingested,
        record: Option<SessionRecord>,
    ) -> (crate::ingest::Late, FinishedTurn) {
        let Stored { first, refused, cache } = &mut self.stored;
        *first = first.or(ingested.appended.map(|appended| appended.first));
        refused.append(&mut ingested.refused);
        cache.add(ingested.cache);
        let store = &*self.task.engine.store;
        let is_where_it_belongs = ingested.appended.is_some() && ingested.instead_of.is_none();
        let record = match record.filter(|_| is_where_it_belongs) {
            Some(mut record) => {
                record.counts.rendered_chars = record.counts.rendered_chars.saturating_add(ingested.told);
                record.counts.context_tokens = ingested.complete.usage.and_then(|usage| usage.context_tokens);
                Some(record)
            }
            None => block_on(store.get(ingested.session)).ok(),
        };
        let finished = FinishedTurn {
            session: ingested.session,
            instead_of: ingested.instead_of,
            first: *first,
            last: ingested.appended.map(|appended| appended.last),
            complete: ingested.complete,
            kept: ingested.kept,
            refused: refused.clone(),
            cache: *cache,
            context_chars: record.as_ref().map_or(0, SessionRecord::context_chars),
            context_tokens: record.and_then(|record| record.counts.context_tokens),
        };
        (ingested.late, finished)
    }

    /// Ends an agent and everything that belongs to its run.
    pub(crate) fn cancel(&self, agent: &AgentRun) {
        if !agent.cancel(&StopTimeouts::default()) {
            self.notice("some processes of the agent could not be ended");
        }
    }

    /// Returns whether the last turn is stored, and in its session.
    fn is_stored_here(&self) -> bool {
        matches!(&self.last, Some(Ok(finished)) if finished.instead_of.is_none())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A turn whose thread panics leaves no slot.
        if let Some(agent) = self.run.as_ref().and_then(|run| run.agent.as_ref()) {
            self.task.slots.lock().free(agent.process().pid);
        }
    }
}

/// Returns where a turn goes that begins after this event.
fn destination(lease: Option<&LeaseId>, last_event: Seq) -> Destination {
    lease.map_or(Destination::Live, |lease| Destination::Leased(lease.clone(), last_event))
}

/// Logs an input that means nothing in the state of the turn: by its name, since the rest may be text of the user.
fn log_ignored(session: SessionId, input: &Input) {
    debug!(%session, input = input.name(), "ignored: it means nothing now");
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use tracing::Level;

    use super::*;

    #[test]
    fn an_ignored_input_is_logged_without_its_text() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let log = tracing_subscriber::fmt().with_max_level(Level::TRACE).with_ansi(false);
        let log = log.with_writer(std::sync::Mutex::new(File::create(&path).unwrap())).finish();
        tracing::subscriber::with_default(log, || {
            for input in [Input::Submit("secret".into()), Input::NotStored("secret".into()), Input::Exited] {
                log_ignored(SessionId::new(7).unwrap(), &input);
            }
        });
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| line.split_once(": ").unwrap().1).collect();
        let expected = ["submit", "not stored", "exited"]
            .map(|name| format!("ignored: it means nothing now session=S7 input={name:?}"));
        assert_eq!(lines, expected);
    }
}
