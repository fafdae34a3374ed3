//! The turn service: runs turns of one project, several at a time.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use azureal_core::agent::Agent;
use azureal_core::{Holder, SessionId, SessionStore};
use azureal_process::ChildEnvironment;
use futures_channel::oneshot;
use futures_executor::block_on;

use crate::changes::ChangeRecorder;
use crate::compact::{CompactionError, Compactor, Summarised, compact, summarise};
use crate::handle::{Reporter, TurnControls, TurnHandle, TurnResult};
use crate::lease::this_process;
use crate::prepare::Preparation;
use crate::recover::{Recovered, recover};
use crate::request::{CompactionOptions, SessionTarget, TurnRequest};
use crate::slots::Slots;
use crate::spool::{SpoolError, Spools};
use crate::turn_event::TurnEvent;

/// Where turns run, and what they have in common.
#[derive(Clone)]
pub struct EngineOptions {
    /// The store.
    pub store: Arc<dyn SessionStore>,
    /// The folder that keeps the output of running turns.
    pub spools: Spools,
    /// The agents whose interrupted turns can be recovered.
    pub agents: &'static [&'static dyn Agent],
    /// The directory that agents and context commands run in.
    pub directory: PathBuf,
    /// Whether it belongs to a git repository.
    pub in_git: bool,
    /// The variables that agents and context commands start with. Some name the folder of an agent's own files.
    pub environment: ChildEnvironment,
    /// Records the changes of turns; `None` outside a git repository, or if the user does not want it.
    pub changes: Option<ChangeRecorder>,
    /// The name of the user, for whom others see as the holder of a lease; `None` for the number of the user.
    pub user: Option<String>,
    /// The id of this machine and the user's home, if other machines use the store too. Notes of runs have it: a transcript is
    /// looked for only where it can be.
    pub machine: Option<String>,
}

impl EngineOptions {
    /// Creates the options of an engine outside a git repository, whose children start without any variable.
    pub fn new(store: Arc<dyn SessionStore>, spools: Spools, directory: impl Into<PathBuf>) -> Self {
        Self {
            store,
            spools,
            agents: &[],
            directory: directory.into(),
            in_git: false,
            environment: ChildEnvironment::default(),
            changes: None,
            user: None,
            machine: None,
        }
    }

    /// Returns the text by which the store notes a run of this machine.
    pub(crate) fn note_of(&self, run: &str) -> String {
        match &self.machine {
            Some(machine) => format!("{run} {machine}"),
            None => run.to_owned(),
        }
    }

    /// Returns the run of a note, unless it is another machine's.
    pub(crate) fn run_of<'n>(&self, note: &'n str) -> Option<&'n str> {
        match &self.machine {
            Some(machine) => note.strip_suffix(machine.as_str())?.strip_suffix(' '),
            None => Some(note),
        }
    }

    pub(crate) fn holder(&self, agent: &str) -> Holder {
        let holder = this_process(agent);
        Holder { user: self.user.clone().unwrap_or(holder.user), ..holder }
    }
}

/// Runs turns. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    options: Arc<EngineOptions>,
    slots: SharedSlots,
    turns: SubmittedTurns,
}

/// A turn whose agent runs.
#[derive(Debug, Clone)]
pub struct RunningTurn {
    /// The session.
    pub session: SessionId,
    /// The name of the agent.
    pub agent: &'static str,
    /// Stops it, or sends the next prompt after it.
    pub controls: TurnControls,
}

impl Engine {
    /// Creates an engine. It starts nothing and writes nothing.
    pub fn new(options: EngineOptions) -> Self {
        Self { options: Arc::new(options), slots: SharedSlots::default(), turns: SubmittedTurns::default() }
    }

    /// Runs a turn: acquires the session's lease, recovers what was interrupted in it, gathers the context, compacts the session
    /// if it has become too long, asks the agent, and stores what it answers. Returns at once.
    ///
    /// Turns of several sessions run at the same time, each in its slot. In one session, a prompt is
    /// [staged](TurnHandle::stage).
    pub fn submit(&self, request: TurnRequest) -> TurnHandle {
        let (sender, inbox) = mpsc::channel();
        let (poster, posted) = mpsc::channel();
        let session = match request.session {
            SessionTarget::Existing(session) => OnceLock::from(session),
            SessionTarget::New(_) | SessionTarget::Named(_) => OnceLock::new(),
        };
        let (result, session) = (TurnResult::default(), Arc::new(session));
        let events = Reporter::start(Arc::clone(&self.options.store), posted);
        let controls = TurnControls::new(sender.clone());
        let submitted = self.turns.add(Arc::clone(&session), controls.clone());
        let handle = TurnHandle::new(controls.clone(), events, result.clone(), Arc::clone(&session));
        let (engine, slots) = (Arc::clone(&self.options), self.slots.clone());
        thread::spawn(move || {
            let preparation = Preparation { engine, slots, inbox, sender, controls, poster, session };
            preparation.run(request, &result, submitted);
        });
        handle
    }

    /// Returns the controls of the turn that was submitted to this engine for a session, until the turn is over; `None` without
    /// one. Of several it is the first: the others wait for it.
    pub fn turn(&self, session: SessionId) -> Option<TurnControls> {
        let turns = self.turns.lock();
        turns.iter().find(|turn| turn.session.get() == Some(&session)).map(|turn| turn.controls.clone())
    }

    /// Returns the slots: the turns whose agents run, by the process of the agent.
    pub fn slots(&self) -> Slots<RunningTurn> {
        self.slots.lock().clone()
    }

    /// Makes the slot of this process the active one; returns whether there is one.
    pub fn activate(&self, pid: u32) -> bool {
        self.slots.lock().activate(pid)
    }

    /// Stores interrupted turns, as far as that can be done, and returns what was found. Files are read on a thread of its own, so
    /// this does not block an executor.
    pub async fn recover(&self) -> Result<Vec<Recovered>, SpoolError> {
        let (sender, recovered) = oneshot::channel();
        let options = Arc::clone(&self.options);
        thread::spawn(move || {
            // A caller who has gone needs no answer.
            sender.send(block_on(recover(&options))).ok();
        });
        recovered.await.unwrap_or_else(|_| {
            let path = self.options.spools.folder().to_owned();
            Err(SpoolError { path, source: io::Error::other("the recovery of interrupted turns panicked") })
        })
    }

    /// Compacts a session, and returns the summary; `None` if there is nothing to gain. Blocks until it is done.
    ///
    /// One at a time: while another process compacts the session, this is [`CompactionError::Busy`].
    pub fn compact(
        &self,
        session: SessionId,
        options: &CompactionOptions,
        is_cancelled: &dyn Fn() -> bool,
        report: &mut dyn FnMut(TurnEvent),
    ) -> Result<Option<Summarised>, CompactionError> {
        compact(&Compactor { engine: &self.options, session, options, is_cancelled }, report)
    }

    /// Writes the summary of [`compact`](Self::compact), and changes nothing.
    pub fn summarise(
        &self,
        session: SessionId,
        options: &CompactionOptions,
        is_cancelled: &dyn Fn() -> bool,
        report: &mut dyn FnMut(TurnEvent),
    ) -> Result<Option<Summarised>, CompactionError> {
        summarise(&Compactor { engine: &self.options, session, options, is_cancelled }, report)
    }
}

/// The slots of an engine, which all of its turns take and free.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedSlots(Arc<Mutex<Slots<RunningTurn>>>);

impl SharedSlots {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Slots<RunningTurn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turns that were submitted to an engine and are not over, in the order of their submission.
#[derive(Clone, Default)]
struct SubmittedTurns(Arc<Mutex<Vec<Submitted>>>);

struct Submitted {
    session: Arc<OnceLock<SessionId>>,
    controls: TurnControls,
}

impl SubmittedTurns {
    fn add(&self, session: Arc<OnceLock<SessionId>>, controls: TurnControls) -> SubmittedTurn {
        self.lock().push(Submitted { session: Arc::clone(&session), controls });
        SubmittedTurn { turns: self.clone(), session }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Submitted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A turn that is not over. Dropped, it is.
pub(crate) struct SubmittedTurn {
    turns: SubmittedTurns,
    session: Arc<OnceLock<SessionId>>,
}

impl Drop for SubmittedTurn {
    fn drop(&mut self) {
        self.turns.lock().retain(|turn| !Arc::ptr_eq(&turn.session, &self.session));
    }
}
