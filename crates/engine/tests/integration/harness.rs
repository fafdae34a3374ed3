//! What the tests of turns share: a project, and an agent that is a script.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use azureal_agents::offline::Offline;
use azureal_core::agent::{Agent, AgentCommand, AgentError, AgentParser, AgentRequest, Program};
use azureal_core::event::Outcome;
use azureal_core::{
    Event, Message, NewSession, NewTurn, Page, Seq, SessionId, SessionStore, StoredEvent, read_history,
};
use azureal_engine::{
    ChangeRecorder, Engine, EngineOptions, FinishedTurn, RUN_MARKER, Recovered, SpooledTurn, Spools,
    TurnControls, TurnError, TurnEvent, TurnHandle, TurnOptions, TurnRequest, recover,
};
use azureal_process::{ChildEnvironment, Marker, ProcessIdentity, find_marked};
use azureal_store::sqlite::SqliteOptions;
use azureal_store::{MemoryStore, SqliteStore};
use futures_executor::block_on;
use tempfile::TempDir;

/// How long a fact may take to become true on a machine that does much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the variables of this process, which everything that the tests start gets.
pub(crate) fn own_environment() -> &'static ChildEnvironment {
    static OWN: std::sync::LazyLock<ChildEnvironment> =
        std::sync::LazyLock::new(|| std::env::vars_os().collect());
    &OWN
}

/// Makes an agent that lives as long as the engine wants.
pub(crate) fn leak<A>(agent: A) -> &'static A {
    Box::leak(Box::new(agent))
}

/// An agent that is a shell script; it prints events as our built-in agent does.
pub(crate) struct Script(String);

impl Script {
    pub(crate) fn new(script: impl Into<String>) -> &'static Self {
        leak(Self(script.into()))
    }

    /// Returns the options of a turn with this script.
    pub(crate) fn options(script: impl Into<String>) -> TurnOptions {
        TurnOptions::new(Self::new(script), "/bin/sh")
    }
}

impl Agent for Script {
    fn name(&self) -> &'static str {
        "script"
    }
    fn program(&self) -> Program {
        Program::Named("sh")
    }
    fn answers_for(&self, _: &str) -> bool {
        false
    }
    fn command(&self, turn: &AgentRequest) -> Result<AgentCommand, AgentError> {
        Ok(AgentCommand {
            args: vec!["-c".into(), self.0.clone()],
            stdin: turn.frame.clone().into_text().into_bytes(),
            ..AgentCommand::default()
        })
    }
    fn parser(&self) -> Box<dyn AgentParser> {
        Offline.parser()
    }
}

/// A line that the script prints: what the agent says.
pub(crate) fn says(text: &str) -> String {
    format!("printf '%s\\n' '{}'", Event::assistant(text).to_json())
}

/// A line that the script prints: the turn is done.
pub(crate) const DONE: &str = r#"printf '%s\n' '{"Complete":{"success":true,"duration_ms":1,"cost_usd":0.5,"outcome":"done","usage":{"input_tokens":3,"output_tokens":4,"cache_read_tokens":2,"cache_write_tokens":1}}}'"#;

/// A line of a script: waits until there is a file in the project.
pub(crate) fn waits_for(file: &str) -> String {
    format!("while [ ! -e {file} ]; do sleep 0.02; done")
}

/// A project with a store and one session.
pub(crate) struct Project {
    pub(crate) directory: PathBuf,
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) spools: Spools,
    pub(crate) session: SessionId,
    /// The agents whose turns are recovered.
    pub(crate) agents: &'static [&'static dyn Agent],
    pub(crate) environment: ChildEnvironment,
    /// Records what turns change.
    pub(crate) changes: Option<ChangeRecorder>,
    pub(crate) temporary: Option<TempDir>,
}

impl Project {
    /// A project in a folder of its own, with a store in a file.
    pub(crate) fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let store = open_store(temporary.path());
        Self::in_temporary(temporary, store)
    }

    /// A project in a folder of its own, with a store in memory.
    pub(crate) fn in_memory() -> Self {
        Self::in_temporary(tempfile::tempdir().unwrap(), Arc::new(MemoryStore::default()))
    }

    pub(crate) fn in_temporary(temporary: TempDir, store: Arc<dyn SessionStore>) -> Self {
        let project = Self::at(temporary.path(), store);
        Self { temporary: Some(temporary), ..project }
    }

    /// A project in a folder that is there. Its session is the first one of the store.
    pub(crate) fn at(directory: &Path, store: Arc<dyn SessionStore>) -> Self {
        std::fs::create_dir_all(directory.join(".azureal")).unwrap();
        let first = block_on(store.list(&azureal_core::ListQuery::default())).unwrap().pop();
        let session = match first {
            Some(record) => record.id,
            None => block_on(store.create(NewSession::default())).unwrap(),
        };
        Self {
            directory: directory.to_owned(),
            store,
            spools: Spools::new(directory.join(".azureal/spool")),
            session,
            agents: &[&Offline],
            environment: own_environment().clone(),
            changes: None,
            temporary: None,
        }
    }

    pub(crate) fn engine(&self) -> Engine {
        Engine::new(EngineOptions {
            agents: self.agents,
            environment: self.environment.clone(),
            changes: self.changes.clone(),
            ..EngineOptions::new(Arc::clone(&self.store), self.spools.clone(), &self.directory)
        })
    }

    pub(crate) fn submit(&self, prompt: &str, options: TurnOptions) -> TurnHandle {
        self.engine().submit(TurnRequest::new(self.session, prompt, options))
    }

    /// Runs a turn of a script.
    #[track_caller]
    pub(crate) fn run(&self, script: &str, prompt: &str) -> FinishedTurn {
        self.submit(prompt, Script::options(script)).result().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn stored(&self) -> Vec<StoredEvent> {
        block_on(self.store.read(self.session, Page::last(10_000))).unwrap()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.stored().iter().map(|stored| stored.event().unwrap()).collect()
    }

    pub(crate) fn append(&self, events: impl IntoIterator<Item = Event>) {
        block_on(self.store.append(self.session, NewTurn::verbatim(events))).unwrap();
    }

    pub(crate) fn history(&self) -> Vec<Message> {
        block_on(read_history(&*self.store, self.session)).unwrap()
    }

    /// Returns the first texts of the messages.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.history().iter().filter_map(|message| message.first_text().map(str::to_owned)).collect()
    }

    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        let outcome = |event: &Event| match event {
            Event::Complete(complete) => complete.outcome,
            _ => None,
        };
        self.events().iter().filter_map(outcome).collect()
    }

    pub(crate) fn compactions(&self) -> usize {
        block_on(self.store.compactions(self.session)).unwrap().len()
    }

    pub(crate) fn spool_files(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.path(".azureal/spool")) else { return vec![] };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Recovers turns of its agents, which have no files of their own.
    pub(crate) fn recover(&self) -> Vec<Recovered> {
        block_on(recover(&EngineOptions {
            agents: self.agents,
            changes: self.changes.clone(),
            ..EngineOptions::new(Arc::clone(&self.store), self.spools.clone(), &self.directory)
        }))
        .unwrap()
    }

    /// Returns the header of a turn that was interrupted.
    pub(crate) fn spooled(&self, run: &str) -> SpooledTurn {
        SpooledTurn {
            run: run.into(),
            session: self.session.number(),
            session_made: String::new(),
            after: 0,
            generation: None,
            prompt: "before the crash".into(),
            goes_on: false,
            agent: "offline".into(),
            model: None,
            switches_model: false,
            used_in: None,
            directory: self.directory.clone(),
            started_at: "2026-01-31T09:30:00Z".into(),
        }
    }

    /// Returns the number of the last event.
    pub(crate) fn last(&self) -> Seq {
        Seq(block_on(self.store.get(self.session)).unwrap().counts.events)
    }
}

/// Opens the store of a project in a file.
pub(crate) fn open_store(directory: &Path) -> Arc<dyn SessionStore> {
    let path = directory.join(".azureal/sessions.azs");
    Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap())
}

/// Takes all events of a turn, and returns its result.
pub(crate) fn drive(
    mut handle: TurnHandle,
    mut take: impl FnMut(TurnEvent, &TurnControls),
) -> Result<FinishedTurn, TurnError> {
    let controls = handle.controls();
    // A test that fails must not leave its agent behind.
    let _cancel = CancelOnPanic(handle.controls());
    while let Some(event) = handle.next_event() {
        take(event, &controls);
    }
    handle.result()
}

/// Cancels the turn of a test that fails.
pub(crate) struct CancelOnPanic(pub(crate) TurnControls);

impl Drop for CancelOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

/// Returns the processes of a run.
pub(crate) fn processes(run: &str) -> Vec<ProcessIdentity> {
    find_marked(&Marker::new(RUN_MARKER, run).unwrap())
}
