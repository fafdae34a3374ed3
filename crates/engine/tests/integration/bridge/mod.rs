//! Whole turns through a bridge: a real bridge, a scripted agent or server behind it, a real spool, a real store.

mod alone;
mod endings;
mod http;
mod killed;
mod questions;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use azureal_agents::bridged::{Bridged, MessageParser};
use azureal_core::agent::{
    Agent, AgentCommand, AgentError, AgentOutput, AgentParser, Program, PromptCache, TurnRequest,
};
use azureal_core::bridge::{
    AgentProgram, AnsweredBy, BridgeEnd, BridgeLimits, BridgeLine, BridgeTask, Consent, Exchange,
    HttpExchange, JsonRpcExchange, PermissionPolicy,
};
use azureal_core::event::{Init, Outcome, Usage};
use azureal_core::{
    Event, Keep, Message, NewSession, NewTurn, Page, SessionId, SessionStore, Threshold, read_history,
};
use azureal_engine::{
    BridgeHost, Briefing, CompactSetup, Control, ControlError, Controls, Driver, Homes, Ingested, Notice,
    OpenQuestion, OutputLimit, RUN_MARKER, Recovered, Refusal, Setup, SpooledTurn, Spools, Summariser,
    recover, summarise,
};
use azureal_process::{Marker, Patience, ProcessIdentity, Spawn, Stream, find_marked, stop};
use azureal_store::SqliteStore;
use azureal_store::sqlite::SqliteOptions;
use azureal_testkit::model_server::{Answer, Gate, ModelServer, StreamPosition};
use azureal_testkit::{thorough, until};
use futures_executor::block_on;
use serde_json::{Value, json};
use tempfile::TempDir;

const CHILD: &str = env!("CARGO_BIN_EXE_azureal-test-child");
/// How long a fact may take to become true on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// An agent behind a bridge.
struct Bridge {
    script: String,
    /// A model instead of a program.
    url: Option<String>,
    policy: PermissionPolicy,
}

impl Bridge {
    fn new(script: &str) -> Self {
        let policy = PermissionPolicy { allowed_kinds: vec!["read".into()], otherwise: Consent::Ask };
        Self { script: script.to_owned(), url: None, policy }
    }

    fn http(url: &str) -> Self {
        Self { url: Some(format!("{url}/v1/messages")), ..Self::new("") }
    }
}

impl Agent for Bridge {
    fn name(&self) -> &'static str {
        "bridged"
    }
    fn program(&self) -> Program {
        Program::Named("azureal-test-child")
    }
    fn answers_for(&self, _: &str) -> bool {
        false
    }
    fn is_bridged(&self) -> bool {
        true
    }
    fn command(&self, turn: &TurnRequest) -> Result<AgentCommand, AgentError> {
        let text = turn.frame.clone().into_text();
        let exchange = match &self.url {
            None => Exchange::JsonRpc(JsonRpcExchange {
                initialize: json!({ "protocolVersion": 1 }),
                session: json!({ "mcpServers": [] }),
                prompt: json!([{ "type": "text", "text": text }]),
                policy: self.policy.clone(),
            }),
            Some(url) => Exchange::Http(HttpExchange {
                url: url.clone(),
                headers: vec![("x-api-key".into(), "k".into())],
                body: json!({ "model": "m", "stream": true, "messages": [{ "role": "user", "content": text }] }),
            }),
        };
        let args = vec!["agent".to_owned(), self.script.clone()];
        Ok(AgentCommand { args, exchange: Some(exchange), ..AgentCommand::default() })
    }
    fn parser(&self) -> Box<dyn AgentParser> {
        Box::new(Bridged::new("bridged", Updates::default()))
    }
}

/// Reads `session/update`, and the deltas of a model.
#[derive(Default)]
struct Updates {
    text: String,
    usage: Option<Usage>,
}

impl MessageParser for Updates {
    fn message(&mut self, message: &str) -> Vec<AgentOutput> {
        let message: Value = serde_json::from_str(message).unwrap();
        if let Some(session) = message["result"]["sessionId"].as_str() {
            let init = Init { agent_session: Some(session.to_owned()), ..Init::default() };
            return vec![AgentOutput::Event(Event::Init(init))];
        }
        if let Some(usage) = message["result"]["usage"].as_object() {
            let count = |name: &str| usage[name].as_u64().unwrap();
            let (input_tokens, output_tokens) = (count("inputTokens"), count("outputTokens"));
            self.usage = Some(Usage { input_tokens, output_tokens, ..Usage::default() });
        }
        let update = &message["params"]["update"]["content"]["text"];
        let Some(text) = update.as_str().or(message["delta"]["text"].as_str()) else { return Vec::new() };
        self.text.push_str(text);
        vec![AgentOutput::Delta(text.to_owned())]
    }

    fn end(&mut self) -> Vec<AgentOutput> {
        let text = std::mem::take(&mut self.text);
        if text.is_empty() { Vec::new() } else { vec![AgentOutput::Event(Event::assistant(text))] }
    }

    fn usage(&self) -> Option<Usage> {
        self.usage
    }
}

/// A project with a store and one session, and a folder for control channels beside it.
struct Project {
    folder: PathBuf,
    _temporary: Option<TempDir>,
    store: SqliteStore,
    spools: Spools,
    session: SessionId,
    briefing: Briefing,
}

impl Project {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        fs::create_dir(temporary.path().join("project")).unwrap();
        let project = Self::open(temporary.path());
        Self { _temporary: Some(temporary), ..project }
    }

    fn open(folder: &Path) -> Self {
        let store = SqliteStore::open(folder.join("project/.azureal/sessions.azs"), SqliteOptions::default())
            .unwrap();
        let session =
            block_on(store.list(&azureal_core::ListQuery::default())).unwrap().first().map(|found| found.id);
        let session = session.unwrap_or_else(|| block_on(store.create(NewSession::default())).unwrap());
        let spools = Spools::new(folder.join("project/.azureal/spool"))
            .with_bridges(BridgeHost { program: CHILD.into(), control: folder.join("run/azureal") });
        Self {
            folder: folder.to_owned(),
            _temporary: None,
            store,
            spools,
            session,
            briefing: Briefing::default(),
        }
    }

    fn directory(&self) -> PathBuf {
        self.folder.join("project")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    fn setup<'a>(&'a self, agent: &'a dyn Agent, directory: &'a Path) -> Setup<'a> {
        Setup {
            store: &self.store,
            spools: &self.spools,
            agent,
            program: Path::new(CHILD),
            lease: None,
            session: self.session,
            used_in: None,
            switches_model: false,
            model: None,
            permission: None,
            directory,
            in_git: false,
            timeout: None,
            output_limit: OutputLimit::default(),
            briefing: &self.briefing,
            compaction: None,
            homes: &Homes::NONE,
            arguments: &[],
            cache: PromptCache::Off,
            moves_git_status: false,
        }
    }

    /// Runs a turn, and something beside it from when it has begun.
    fn run_with(&self, agent: &Bridge, prompt: &str, beside: impl FnOnce(&Running<'_>) + Send) -> Ingested {
        let directory = self.directory();
        let (driver, controls) = Driver::new(self.setup(agent, &directory));
        let (sender, began) = std::sync::mpsc::channel::<(String, _, _, Option<Control>)>();
        let ingested = std::thread::scope(|scope| {
            let beside = scope.spawn(move || {
                let Ok((run, process, watcher, control)) = began.recv() else { return };
                let (turn, control) = (SpooledTurn { run, ..blank() }, control.unwrap());
                let _cancel = CancelOnPanic(controls.clone());
                beside(&Running {
                    project: self,
                    turn,
                    process,
                    control,
                    controls,
                    watcher: Mutex::new(watcher),
                });
            });
            let ingested = driver.run(prompt, &mut |notice| {
                if let Notice::Began { run, process, watcher, control } = notice {
                    sender.send((run.to_owned(), process.clone(), watcher, control)).unwrap();
                }
            });
            drop(sender);
            beside.join().unwrap();
            ingested
        });
        ingested.unwrap().unwrap()
    }

    fn run(&self, agent: &Bridge, prompt: &str) -> Ingested {
        self.run_with(agent, prompt, |_| {})
    }

    fn recover(&self) -> Vec<Recovered> {
        let homes = Homes { variable: &|_| None, home: None };
        block_on(recover(&self.store, &self.spools, &[&Bridge::new("")], &homes)).unwrap()
    }

    fn events(&self) -> Vec<Event> {
        let page = block_on(self.store.read(self.session, Page::last(1000))).unwrap();
        page.iter().map(|stored| stored.event().unwrap()).collect()
    }

    fn history(&self) -> Vec<Message> {
        block_on(read_history(&self.store, self.session)).unwrap()
    }

    fn outcomes(&self) -> Vec<Outcome> {
        let outcome = |event: &Event| match event {
            Event::Complete(complete) => complete.outcome,
            _ => None,
        };
        self.events().iter().filter_map(outcome).collect()
    }

    fn error(&self) -> String {
        let error = self.events().into_iter().find_map(|event| match event {
            Event::Error(error) => Some(error.message),
            _ => None,
        });
        error.unwrap_or_default()
    }

    /// Neither a spool, nor a control channel, nor a process of a run is left.
    #[track_caller]
    fn nothing_is_left_of(&self, run: &str) {
        let files = |folder: PathBuf| {
            let entries = fs::read_dir(folder).into_iter().flatten();
            entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
        };
        assert_eq!(files(self.path(".azureal/spool")), [] as [PathBuf; 0]);
        assert_eq!(files(self.folder.join("run/azureal")), [] as [PathBuf; 0]);
        assert_eq!(processes(run), []);
    }
}

fn processes(run: &str) -> Vec<ProcessIdentity> {
    find_marked(&Marker::new(RUN_MARKER, run).unwrap())
}

fn blank() -> SpooledTurn {
    serde_json::from_value(json!({
        "run": "", "session": 1, "prompt": "", "agent": "bridged", "model": null, "directory": "", "started_at": ""
    }))
    .unwrap()
}

/// Ends the turn of a test that has failed beside it, which would wait for ever.
struct CancelOnPanic(Controls);

impl Drop for CancelOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

/// A turn that runs.
struct Running<'a> {
    project: &'a Project,
    turn: SpooledTurn,
    process: ProcessIdentity,
    control: Control,
    controls: Controls,
    watcher: Mutex<azureal_engine::Watcher>,
}

impl Running<'_> {
    /// Waits for the question of the scripted agent.
    fn question(&self) -> OpenQuestion {
        question(&self.control)
    }

    /// Watches the output until it says this.
    fn wait_for(&self, mut is_it: impl FnMut(&AgentOutput) -> bool) -> AgentOutput {
        let mut watcher = self.watcher.lock().unwrap();
        loop {
            let outputs = watcher.next_outputs().unwrap().expect("the run has ended before");
            if let Some(found) = outputs.into_iter().find(&mut is_it) {
                return found;
            }
        }
    }

    fn wait_for_half(&self) {
        self.wait_for(|output| *output == AgentOutput::Delta("half".into()));
    }
}

fn question(control: &Control) -> OpenQuestion {
    until("a question is open", || control.questions().ok()?.pop())
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

#[test]
fn a_turn_goes_through_a_bridge() {
    let project = Project::new();
    let run = Mutex::new(String::new());
    let ingested = project.run_with(&Bridge::new("answer"), "hi", |running| {
        running.turn.run.clone_into(&mut run.lock().unwrap());
    });
    assert_eq!(ingested.complete.outcome, Some(Outcome::Done), "{}", project.error());
    assert_eq!(ingested.complete.usage.unwrap().input_tokens, 30);
    assert_eq!(project.history(), [Message::user("hi"), Message::assistant("Hello from the agent")]);
    project.nothing_is_left_of(&run.lock().unwrap());
    // A long prompt, which no argument and no pipe takes at once.
    let project = Project::new();
    project.run(&Bridge::new("count"), &"x".repeat(3_000_000));
    assert_eq!(project.history()[1], Message::assistant("3000000"));
}

#[test]
fn an_agent_behind_a_bridge_writes_a_summary() {
    let project = Project::new();
    let long = |text: &str| Event::assistant(text.repeat(400));
    for number in 0..6 {
        let events = vec![Event::user(format!("prompt {number}")), long("words of an answer ")];
        block_on(project.store.append(project.session, NewTurn::verbatim(events))).unwrap();
    }
    let (agent, directory) = (Bridge::new("summary"), project.directory());
    let summariser = Summariser { agent: &agent, program: Path::new(CHILD), model: None, settings: None };
    let setup = CompactSetup {
        store: &project.store,
        spools: &project.spools,
        session: project.session,
        summarisers: &[summariser],
        directory: &directory,
        in_git: false,
        threshold: Threshold::default(),
        keep: Keep::Usual,
        timeout: PATIENCE,
        is_cancelled: &|| false,
    };
    let summary = summarise(&setup, &mut |_| {}).unwrap().unwrap();
    assert_eq!(summary.failed, []);
    assert!(summary.summary.starts_with("All of it is done"), "{}", summary.summary);
    assert_eq!(summary.agent.as_deref(), Some("bridged"));
}

#[test]
fn an_agent_that_needs_a_bridge_says_so_where_there_is_none() {
    let project = Project::new();
    let spools = Spools::new(project.path(".azureal/spool"));
    let (agent, directory) = (Bridge::new("answer"), project.directory());
    let setup = Setup { spools: &spools, ..project.setup(&agent, &directory) };
    let ingested = Driver::new(setup).0.run("hi", &mut |_| {}).unwrap().unwrap();
    assert_eq!(ingested.complete.outcome, Some(Outcome::Failed));
    assert!(project.error().contains("needs a bridge, and no program is named"), "{}", project.error());
    let inside = BridgeHost { program: CHILD.into(), control: project.path("control") };
    let spools = spools.with_bridges(inside);
    let setup = Setup { spools: &spools, ..project.setup(&agent, &directory) };
    let ingested = Driver::new(setup).0.run("hi", &mut |_| {}).unwrap().unwrap();
    assert_eq!(ingested.complete.outcome, Some(Outcome::Failed), "the agent may write there");
}
