//! The driver: performs what the machine says, and tells it what came of that.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use azureal_core::agent::{Agent, AgentOutput, Ending, Permission, PromptCache, TurnRequest};
use azureal_core::bridge::BridgeLimits;
use azureal_core::event::Outcome;
use azureal_core::{ContextFrame, Event, LeaseId, Seq, SessionId, SessionStore, read_record_chars};
use azureal_process::{Child, ChildEnvironment, Patience, ProcessIdentity, Stream};
use futures_executor::block_on;
use tracing::{debug, error, info};

use crate::bridge::{self, Control};
use crate::context_commands::{CommandProgress, CommandStop};
use crate::gather::{AutoCompaction, Briefing, Gather, Gathering};
use crate::growth::Growth;
use crate::header::{SpooledProcess, SpooledTurn};
use crate::ingest::{Destination, IngestError, Ingested, ingest, ingest_unstarted};
use crate::launch::{Launch, exit_of};
use crate::output_limit::{OutputLimit, Printed, guard};
use crate::own_record::Homes;
use crate::spool::{Spool, SpoolError, Spools};
use crate::turn_machine::{Effect, Input, Sent, TurnMachine};
use crate::watch::Watcher;

/// The variable that every process of a run carries, so that none of them gets lost.
pub const RUN_MARKER: &str = "AZUREAL_RUN_ID";
/// The longest output that is looked at for a refusal. A program whose first request is refused prints a few lines.
const REFUSED_BYTES: u64 = 1 << 20;
/// How much of what an agent writes to standard error is kept.
pub(crate) const STDERR_BYTES: usize = 16 << 10;

/// What an agent is told that goes on after a compaction. Nobody typed it, so it is never stored.
pub(crate) const GO_ON: &str = "Go on with the work where the record ends. This is no new request: you were interrupted in the middle \
    of it, to summarise the older part of a session that had become long. Do not begin again, and do not repeat what is done.";

/// Who is asked, where, and how.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Where the session is kept.
    pub store: &'a dyn SessionStore,
    /// Where output is kept until it is there.
    pub spools: &'a Spools,
    /// Who answers.
    pub agent: &'a dyn Agent,
    /// The agent's program.
    pub program: &'a Path,
    /// The session.
    pub session: SessionId,
    /// Where the store remembers the session as the last one used; `None` if it does not.
    pub used_in: Option<&'a str>,
    /// Whether another model is asked for than in the turn before, of the same agent.
    pub switches_model: bool,
    /// The lease of the store that allows it, where that gives out any.
    pub lease: Option<&'a LeaseId>,
    /// The model, if not the agent's own choice.
    pub model: Option<&'a str>,
    /// What the agent may do, if not its own default.
    pub permission: Option<Permission>,
    /// The directory that the agent runs in.
    pub directory: &'a Path,
    /// The variables that agents and commands start with.
    pub environment: &'a ChildEnvironment,
    /// Whether that belongs to a git repository.
    pub in_git: bool,
    /// How long a turn may take.
    pub timeout: Option<Duration>,
    /// How much the agent may print.
    pub output_limit: OutputLimit,
    /// What the agent is told besides the history.
    pub briefing: &'a Briefing,
    /// What is done about a history that becomes too long; nothing without it.
    pub compaction: Option<&'a AutoCompaction<'a>>,
    /// The places where the agent's program keeps its files.
    pub homes: &'a Homes<'a>,
    /// Further arguments for the agent's program, as the user typed them. Summaries are asked for without them.
    pub arguments: &'a [String],
    /// How the history is sent.
    pub cache: PromptCache,
    /// Whether a long history takes the git status along, if the agent's program would tell it before the history.
    pub moves_git_status: bool,
}

/// What is going on, for whoever wants to know.
pub enum Notice<'a> {
    /// Something about the commands that gather the context of a turn.
    Command(&'a CommandProgress),
    /// The session has become too long, and this agent is asked for a summary.
    Summary(&'a str),
    /// The context of a turn cannot be had, or is not wanted any more: the turn does not begin.
    NotGathered(&'a str),
    /// A run has begun; it can be watched from its first line.
    Began {
        /// The run's name.
        run: &'a str,
        /// The agent's process.
        process: &'a ProcessIdentity,
        /// Reads what it prints.
        watcher: Watcher,
        /// Answers its questions; `None` for an agent that cannot ask any.
        control: Option<Control>,
    },
    /// A turn is in the store.
    Stored(&'a Ingested),
    /// Something the person should know.
    Tell(&'a str),
}

/// What reaches a driver while it waits.
#[derive(Debug)]
enum Word {
    /// Something for the machine.
    Input(Input),
    /// Something that was read in the output of a run. It may come when that run is over.
    Observed {
        /// The run's name.
        run: String,
        /// What it is.
        what: Observed,
    },
    /// What is worth telling of what is being gathered.
    Gathering(Gathering),
}

/// What the driver itself learns from the output of an agent.
#[derive(Debug)]
enum Observed {
    /// The agent's own name of the run, as soon as it says it.
    Named(String),
    /// The session has become too long.
    Full,
    /// The output has grown, to the limit or towards it.
    Printed(Printed, OutputLimit),
}

/// Sends prompts and cancels to a driver that runs.
#[derive(Debug, Clone)]
pub struct Controls(Sender<Word>);

impl Controls {
    /// Sends a prompt. While a turn runs, that one is stopped and stored first.
    pub fn submit(&self, prompt: impl Into<String>) {
        // A driver that has gone needs no more inputs.
        drop(self.0.send(Word::Input(Input::Submit(prompt.into()))));
    }

    /// Cancels what runs.
    pub fn cancel(&self) {
        drop(self.0.send(Word::Input(Input::Cancel)));
    }
}

/// Runs the turns of one session until none is left.
pub struct Driver<'a> {
    setup: Setup<'a>,
    turn: TurnMachine,
    words: Receiver<Word>,
    sender: Sender<Word>,
    run: Option<Run>,
    /// Whether the session was compacted since the person's last prompt: once is enough.
    compacted: bool,
    /// When the turn must be over: one that goes on after a compaction is still the same.
    deadline: Option<Instant>,
    last: Option<Result<Ingested, IngestError>>,
}

/// The turn that is under way.
struct Run {
    spool: Spool,
    destination: Destination,
    started: Instant,
    stopped: Option<Outcome>,
    /// Ends the commands that gather its context.
    gathering: CommandStop,
    child: Option<Child>,
    /// What was sent with a breakpoint, so that it can be sent again without one.
    with_breakpoint: Option<TurnRequest>,
    /// Where the output of this start ends, once the program is started a second time.
    output_end: Arc<AtomicU64>,
}

impl<'a> Driver<'a> {
    /// Makes a driver that has nothing to do yet.
    pub fn new(setup: Setup<'a>) -> (Self, Controls) {
        let (sender, words) = mpsc::channel();
        let controls = Controls(sender.clone());
        let driver = Self {
            setup,
            turn: TurnMachine::default(),
            words,
            sender,
            run: None,
            compacted: false,
            deadline: None,
            last: None,
        };
        (driver, controls)
    }

    /// Sends a prompt, and everything that is sent while it runs. Blocks until all of it is stored, and returns
    /// what became of the last turn.
    pub fn run(
        mut self,
        prompt: impl Into<String>,
        notice: &mut dyn FnMut(Notice<'_>),
    ) -> Option<Result<Ingested, IngestError>> {
        thread::scope(|scope| self.drive(scope, prompt.into(), notice));
        self.last
    }

    fn drive<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        prompt: String,
        notice: &mut dyn FnMut(Notice<'_>),
    ) where
        'a: 'scope,
    {
        let mut inputs = vec![Input::Submit(prompt)];
        loop {
            for input in std::mem::take(&mut inputs) {
                if let Input::NotGathered(why) = &input {
                    notice(Notice::NotGathered(why));
                }
                for effect in self.turn.step(input) {
                    inputs.extend(self.perform(effect, scope, notice));
                }
            }
            if !inputs.is_empty() {
                continue;
            }
            if !self.turn.is_active() {
                return;
            }
            match self.wait() {
                Word::Input(input) => {
                    // Somebody else may have ended the turn before there was an agent that could be ended.
                    let is_gathered = matches!(input, Input::Gathered(_) | Input::NotGathered(_));
                    if is_gathered && self.run.as_ref().is_some_and(|run| run.spool.is_cancelled()) {
                        inputs.push(Input::Cancel);
                    }
                    let is_refused = input == Input::Exited && self.is_refused();
                    inputs.push(if is_refused { Input::Refused } else { input });
                }
                Word::Gathering(Gathering::Command(progress)) => notice(Notice::Command(&progress)),
                Word::Gathering(Gathering::Summary(agent)) => notice(Notice::Summary(&agent)),
                Word::Gathering(Gathering::Compacted(line)) => {
                    self.compacted = true;
                    notice(Notice::Tell(&line));
                }
                Word::Observed { run, what } => {
                    if self.run.as_ref().is_some_and(|current| current.spool.turn().run == run) {
                        inputs.extend(self.observed(what, notice));
                    } else {
                        debug!(session = %self.setup.session, run, "ignored: what was seen of a run that is over");
                    }
                }
            }
        }
    }

    fn observed(&self, what: Observed, notice: &mut dyn FnMut(Notice<'_>)) -> Option<Input> {
        match what {
            Observed::Named(name) => {
                // Only an aid for recovery; the turn continues without it.
                if let Err(error) = block_on(self.setup.store.note_run(self.setup.session, Some(&name))) {
                    notice(Notice::Tell(&error.to_string()));
                }
                None
            }
            Observed::Full => Some(Input::Full),
            Observed::Printed(Printed::Much(bytes), limit) => {
                notice(Notice::Tell(&format!(
                    "{} has printed {} MiB; it is stopped at {} MiB",
                    self.setup.agent.name(),
                    bytes >> 20,
                    limit.mib()
                )));
                None
            }
            Observed::Printed(Printed::TooMuch, _) => Some(Input::OutputLimit),
        }
    }

    /// Waits for the program to end, the time to be up, or the person to want something.
    fn wait(&self) -> Word {
        let is_running = matches!(&self.run, Some(Run { stopped: None, .. }));
        match self.deadline.filter(|_| is_running) {
            Some(deadline) => match self
                .words
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(word) => word,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Word::Input(Input::TimeUp),
            },
            // We hold a sender ourselves, so this cannot be disconnected.
            None => self.words.recv().unwrap_or(Word::Input(Input::Cancel)),
        }
    }

    fn perform<'scope>(
        &mut self,
        effect: Effect,
        scope: &'scope Scope<'scope, '_>,
        notice: &mut dyn FnMut(Notice<'_>),
    ) -> Option<Input>
    where
        'a: 'scope,
    {
        match effect {
            Effect::Gather(sent) => self.gather(sent, scope).err().map(Input::NotGathered),
            Effect::Start(frame) => Some(started(self.start(frame, notice))),
            Effect::StartAgain => Some(started(self.start_again(notice))),
            Effect::Stop(outcome) => {
                info!(session = %self.setup.session, ?outcome, "stops the turn");
                if let Some(run) = &mut self.run {
                    run.stopped = Some(outcome);
                    run.gathering.stop();
                    if let Some(child) = &run.child {
                        end_all(child, notice);
                    }
                }
                None
            }
            Effect::Ingest => Some(self.ingest(notice)),
            Effect::IngestUnstarted(outcome, why) => Some(self.ingest_unstarted(outcome, &why, notice)),
            Effect::Tell(text) => {
                notice(Notice::Tell(&text));
                None
            }
            // A cancel that came too late, an exit that was known: nothing is lost by it.
            Effect::Ignored(input) => {
                log_ignored(self.setup.session, &input);
                None
            }
        }
    }

    /// Keeps the prompt, and begins to gather its context on a thread of its own, so that prompts and cancels are
    /// heard meanwhile.
    fn gather<'scope>(&mut self, sent: Sent, scope: &'scope Scope<'scope, '_>) -> Result<(), String>
    where
        'a: 'scope,
    {
        let setup = self.setup;
        let goes_on = sent == Sent::GoOn;
        let prompt = match sent {
            Sent::Prompt(prompt) => {
                self.compacted = false;
                // One that is further off than the clock reaches is none.
                self.deadline = setup.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
                prompt
            }
            Sent::GoOn => GO_ON.to_owned(),
        };
        let compaction = setup.compaction.filter(|_| !self.compacted);
        let name = uuid::Uuid::new_v4().simple().to_string();
        let record = block_on(setup.store.get(setup.session)).map_err(|error| error.to_string())?;
        let turn = SpooledTurn {
            run: name.clone(),
            session: setup.session.number(),
            session_made: record.created_at,
            prompt: prompt.clone(),
            goes_on,
            agent: setup.agent.name().to_owned(),
            model: setup.model.map(str::to_owned),
            switches_model: setup.switches_model && !goes_on,
            used_in: setup.used_in.map(str::to_owned),
            directory: setup.directory.to_owned(),
            started_at: crate::clock::now_text(),
        };
        let spool = setup.spools.begin(turn).map_err(|error| error.to_string())?;
        let stop = CommandStop::default();
        let (gathering, cancel_note) = (stop.clone(), spool.cancel_note());
        let destination = setup
            .lease
            .map_or(Destination::End, |lease| Destination::Under(lease.clone(), Seq(record.counts.events)));
        self.run = Some(Run {
            spool,
            destination,
            started: Instant::now(),
            stopped: None,
            gathering,
            child: None,
            with_breakpoint: None,
            output_end: Arc::default(),
        });
        let sender = self.sender.clone();
        scope.spawn(move || {
            let gather = Gather {
                store: setup.store,
                session: setup.session,
                lease: setup.lease,
                directory: setup.directory,
                environment: setup.environment,
                briefing: setup.briefing,
                run: &name,
                stop: &stop,
                cancel_note: &cancel_note,
                compaction,
                spools: setup.spools,
                in_git: setup.in_git,
                tells_git_status: setup.moves_git_status && setup.in_git && setup.agent.tells_git_status(),
            };
            // The driver hears us until it has heard how this ended.
            let gathered =
                gather.frame(&prompt, &mut |gathering| drop(sender.send(Word::Gathering(gathering))));
            drop(sender.send(Word::Input(match gathered {
                Ok(frame) => Input::Gathered(frame),
                Err(error) => Input::NotGathered(error.to_string()),
            })));
        });
        Ok(())
    }

    /// Returns what watches over how much a turn adds; nothing where that is not to be stopped, or there was no room
    /// to begin with.
    fn growth(&self, frame: &ContextFrame) -> Option<Growth> {
        let auto = self.setup.compaction.filter(|_| !self.compacted)?;
        let record = block_on(self.setup.store.get(self.setup.session)).ok()?;
        let told = block_on(read_record_chars(self.setup.store, &record)).ok()?;
        let told = told.saturating_add(frame.prompt.chars().count() as u64);
        let room = auto.threshold.chars().checked_sub(told)?;
        Some(Growth::new(room))
    }

    /// Says whether the agent's program ended because its first request was refused for our breakpoint.
    fn is_refused(&self) -> bool {
        let Some(Run { spool, child: Some(child), with_breakpoint: Some(_), .. }) = &self.run else {
            return false;
        };
        if !matches!(child.wait(), azureal_process::Exit::Code(1..)) || spool.printed() > REFUSED_BYTES {
            return false;
        }
        let Ok(mut watcher) = Watcher::of_turn(spool.output_path(), self.setup.agent, spool.turn(), None)
        else {
            return false;
        };
        let (mut is_refused, mut has_begun) = (false, false);
        let read = watcher.read_to_end(|output| match output {
            AgentOutput::Cache(seen) => is_refused |= seen.refusal.is_some(),
            AgentOutput::Event(Event::Init(_) | Event::ModelSwitch(_) | Event::Hook(_)) => {}
            AgentOutput::Event(_) => has_begun = true,
            _ => {}
        });
        // A line that was cut off would take the first one of the second start along.
        read.is_ok_and(|fragment| fragment.is_empty()) && is_refused && !has_begun
    }

    /// Sends the same without a breakpoint. The output goes to the same spool, whose parser knows.
    fn start_again(&mut self, notice: &mut dyn FnMut(Notice<'_>)) -> Result<(), String> {
        let request = self.run.as_mut().and_then(|run| run.with_breakpoint.take());
        let Some(request) = request else { return Err("there is nothing to send again".to_owned()) };
        notice(Notice::Tell("the provider refused a cache breakpoint; asking again without it"));
        if let Some(run) = &self.run {
            if let Some(child) = &run.child {
                // What it left behind would write into the same output.
                end_all(child, notice);
            }
            // Whoever watches the first start reads no further: a slow one comes to it when the second has printed.
            run.output_end.store(run.spool.output_length(), Ordering::SeqCst);
        }
        self.launch(&TurnRequest { cache: PromptCache::Segments, ..request }, notice)
    }

    fn start(&mut self, frame: ContextFrame, notice: &mut dyn FnMut(Notice<'_>)) -> Result<(), String> {
        let setup = self.setup;
        let Some(run) = &mut self.run else { return Err("there is no run to start".to_owned()) };
        if let Destination::Under(_, began_after @ Seq::START) = &mut run.destination
            && let Ok(record) = block_on(setup.store.get(setup.session))
        {
            // The system message of the session, if it was made just now.
            *began_after = Seq(record.counts.events);
        }
        let request = TurnRequest {
            frame,
            model: setup.model.map(str::to_owned),
            permission: setup.permission,
            in_git: setup.in_git,
            settings: None,
            arguments: setup.arguments.to_vec(),
            cache: setup.cache,
        };
        let has_breakpoint =
            matches!(request.cache, PromptCache::Breakpoint(_)) && !request.frame.sealed.is_empty();
        run.with_breakpoint = has_breakpoint.then(|| request.clone());
        self.launch(&request, notice)
    }

    /// Starts the agent's program.
    fn launch(&mut self, request: &TurnRequest, notice: &mut dyn FnMut(Notice<'_>)) -> Result<(), String> {
        let setup = self.setup;
        let growth = self.growth(&request.frame);
        let Some(run) = &mut self.run else { return Err("there is no run to start".to_owned()) };
        let from = run.spool.output_length();
        let text = |error: SpoolError| error.to_string();
        let limit = setup.output_limit.on_disk_of(setup.spools.folder());
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let output = [run.spool.output().map_err(text)?, run.spool.errors().map_err(text)?];
        let launch = Launch {
            agent: setup.agent,
            program: setup.program,
            directory: setup.directory,
            environment: setup.environment,
            spools: setup.spools,
            run: &run.spool.turn().run,
            session: Some(setup.session),
            limits: BridgeLimits {
                // Where we live, we are the first to notice.
                output_bytes: limit.kill(),
                turn_ms: left.map_or(BridgeLimits::default().turn_ms, |left| {
                    u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
                }),
                ..BridgeLimits::default()
            },
        };
        // A file, because it is there after us: the agent may outlive us and go on writing.
        let errors = Stream::File(run.spool.errors().map_err(text)?);
        let child = launch
            .start(request, run.spool.output().map_err(text)?, errors)
            .map_err(|error| error.with_hint())?;
        let process = child.identity().clone();
        info!(
            session = %setup.session,
            run = run.spool.turn().run,
            agent = setup.agent.name(),
            program = ?setup.program,
            pid = process.pid,
            "started the agent"
        );
        if run.child.replace(child.clone()).is_none() {
            run.started = Instant::now();
        }
        run.output_end = Arc::new(AtomicU64::new(u64::MAX));
        let noted = SpooledProcess { pid: process.pid, began: process.started.clone() };
        if let Err(error) = run.spool.note_process(noted) {
            // It runs, so the turn goes on. It can be found by what it carries.
            notice(Notice::Tell(&error.to_string()));
        }
        if run.spool.is_cancelled() {
            // By somebody who saw no process that could be ended.
            drop(self.sender.send(Word::Input(Input::Cancel)));
        }

        let turn = run.spool.turn();
        let watch = |process| {
            Watcher::of_run(run.spool.output_path(), from, setup.agent, turn, Some(process))
                .map(|watcher| watcher.ending_at(&run.output_end))
        };
        match watch(process.clone()) {
            Ok(watcher) => {
                let control = setup.agent.is_bridged().then(|| setup.spools.control(turn)).flatten();
                notice(Notice::Began { run: &turn.run, process: &process, watcher, control });
            }
            // Not being able to watch does not stop the turn.
            Err(error) => notice(Notice::Tell(&error.to_string())),
        }
        // Threads of their own, so that prompts and cancels are received meanwhile. Two, because an agent may print faster
        // than it can be read: its end must not wait for that. A driver that has gone needs neither.
        if let Ok(watcher) = watch(process) {
            let (sender, run) = (self.sender.clone(), run.spool.turn().run.clone());
            thread::spawn(move || {
                observe(watcher, growth, &mut |what| {
                    drop(sender.send(Word::Observed { run: run.clone(), what }));
                });
            });
        }
        let (sender, run) = (self.sender.clone(), run.spool.turn().run.clone());
        thread::spawn(move || {
            guard(&child, &output, limit, |printed| {
                let what = Observed::Printed(printed, limit);
                drop(sender.send(Word::Observed { run: run.clone(), what }));
            });
            drop(sender.send(Word::Input(Input::Exited)));
        });
        Ok(())
    }

    fn ingest(&mut self, notice: &mut dyn FnMut(Notice<'_>)) -> Input {
        let Some(mut run) = self.run.take() else { return Input::Stored { is_done: false } };
        let agent = self.setup.agent;
        if let Some(child) = &run.child
            && (matches!(child.wait(), azureal_process::Exit::Signal(_))
                || (agent.is_bridged() && !bridge::has_ended(run.spool.output_path())))
        {
            // Somebody killed it, and perhaps only a wrapper: what it left would go on working unseen, and write
            // to a file that is about to be removed.
            end_all(child, notice);
        }
        let ending = Ending {
            exit: run.child.as_ref().and_then(exit_of),
            stderr: run.spool.errors_text(STDERR_BYTES),
            fragment: Vec::new(),
            duration: run.started.elapsed(),
            stopped: run.stopped.or_else(|| run.spool.is_cancelled().then_some(Outcome::Cancelled)),
        };
        self.setup.spools.remove_control(&run.spool.turn().run);
        // Should we die before it is stored, whoever finds it knows how it ended.
        if let Err(error) = run.spool.note_ended(&ending) {
            notice(Notice::Tell(&error.to_string()));
        }
        let ingested = block_on(ingest(
            self.setup.store,
            self.setup.agent,
            run.spool,
            ending,
            &run.destination,
            self.setup.homes,
        ));
        self.settle(ingested, notice)
    }

    fn ingest_unstarted(&mut self, outcome: Outcome, why: &str, notice: &mut dyn FnMut(Notice<'_>)) -> Input {
        let Some(run) = self.run.take() else {
            self.last = Some(Err(IngestError::NotBegun(why.to_owned())));
            return Input::NotStored(why.to_owned());
        };
        let ingested =
            block_on(ingest_unstarted(self.setup.store, run.spool, outcome, why, &run.destination));
        self.settle(ingested, notice)
    }

    fn settle(
        &mut self,
        ingested: Result<Ingested, IngestError>,
        notice: &mut dyn FnMut(Notice<'_>),
    ) -> Input {
        match &ingested {
            Ok(ingested) => {
                let outcome = ingested.complete.outcome;
                info!(session = %ingested.session, ?outcome, is_new = ingested.appended.is_some(), "stored the turn");
                notice(Notice::Stored(ingested));
            }
            // The person is told why.
            Err(_) => error!(session = %self.setup.session, "the turn is not stored"),
        }
        let input = match &ingested {
            // What waits was meant for a session that has this turn in it.
            Ok(Ingested { instead_of: Some(session), .. }) => {
                Input::NotStored(format!("{session} was taken over by somebody else while this turn ran"))
            }
            Ok(ingested) => Input::Stored { is_done: ingested.complete.outcome == Some(Outcome::Done) },
            Err(error) => Input::NotStored(error.to_string()),
        };
        self.last = Some(ingested);
        input
    }
}

fn started(started: Result<(), String>) -> Input {
    match started {
        Ok(()) => Input::Started,
        Err(why) => Input::NotStarted(why),
    }
}

/// Logs an input that means nothing in the state of the turn: by its name, since the rest may be text of the user.
fn log_ignored(session: SessionId, input: &Input) {
    debug!(%session, input = input.name(), "ignored: it means nothing now");
}

/// Ends an agent and everything that belongs to its run.
fn end_all(child: &Child, notice: &mut dyn FnMut(Notice<'_>)) {
    let report = child.stop(&Patience::default());
    if !report.survivors.is_empty() {
        notice(Notice::Tell("some processes of the agent could not be ended"));
    }
}

/// Reads the output along, until the agent has named the run and, where that is watched, the session has become too long.
fn observe(mut watcher: Watcher, mut growth: Option<Growth>, report: &mut dyn FnMut(Observed)) {
    let mut is_named = false;
    while !is_named || growth.is_some() {
        // An output that cannot be read is not worth an error here: it is read again when it is stored.
        let Ok(Some(outputs)) = watcher.next_outputs() else { return };
        for output in outputs {
            let AgentOutput::Event(event) = output else { continue };
            if let Event::Init(init) = &event
                && !is_named
            {
                is_named = true;
                init.agent_session.clone().map(Observed::Named).into_iter().for_each(&mut *report);
            }
            if growth.as_mut().is_some_and(|growth| growth.is_full_with(&event)) {
                growth = None;
                report(Observed::Full);
            }
        }
    }
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
