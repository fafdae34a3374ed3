//! Whole turns through a bridge: a real bridge, a scripted agent or server behind it, a real spool, a real store.

mod alone;
mod endings;
mod http;
mod killed;
mod questions;

use std::fs::{self, File};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use azureal_agents::bridged::{Bridged, MessageParser};
use azureal_core::agent::{Agent, AgentCommand, AgentError, AgentOutput, AgentParser, AgentRequest, Program};
use azureal_core::bridge::{
    AgentProgram, AnsweredBy, BridgeEnd, BridgeLimits, BridgeLine, BridgeTask, Consent, Exchange,
    HttpExchange, JsonRpcExchange, PermissionPolicy,
};
use azureal_core::event::{Init, Outcome, Usage};
use azureal_core::{Event, Keep, Message, Threshold};
use azureal_engine::{
    BridgeHost, CompactionOptions, Control, ControlError, FinishedTurn, Ingested, OpenQuestion, OutputLimit,
    RUN_MARKER, Recovered, Refusal, SpooledTurn, Spools, Summariser, TurnError, TurnEvent, TurnHandle,
    TurnOptions,
};
use azureal_process::{Marker, ProcessIdentity, Spawn, StopTimeouts, Stream, stop};
use azureal_testkit::model_server::{Answer, Gate, ModelServer, StreamPosition};
use azureal_testkit::{thorough, until};
use serde_json::{Value, json};

use crate::harness::{self, CancelOnPanic, PATIENCE, leak, open_store, own_environment, processes};

const CHILD: &str = env!("CARGO_BIN_EXE_azureal-test-child");

/// An agent behind a bridge.
#[derive(Clone)]
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
    fn command(&self, turn: &AgentRequest) -> Result<AgentCommand, AgentError> {
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
    /// The folder of both.
    folder: PathBuf,
    inner: harness::Project,
}

impl Deref for Project {
    type Target = harness::Project;

    fn deref(&self) -> &harness::Project {
        &self.inner
    }
}

impl DerefMut for Project {
    fn deref_mut(&mut self) -> &mut harness::Project {
        &mut self.inner
    }
}

impl Project {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        fs::create_dir(temporary.path().join("project")).unwrap();
        let mut project = Self::open(temporary.path());
        project.temporary = Some(temporary);
        project
    }

    fn open(folder: &Path) -> Self {
        let directory = folder.join("project");
        let mut inner = harness::Project::at(&directory, open_store(&directory));
        let host = BridgeHost { program: CHILD.into(), control: folder.join("run/azureal") };
        inner.spools = inner.spools.with_bridges(host);
        inner.agents = leak([leak(Bridge::new("")) as &dyn Agent]);
        Self { folder: folder.to_owned(), inner }
    }

    fn options(agent: &Bridge) -> TurnOptions {
        TurnOptions::new(leak(agent.clone()), CHILD)
    }

    /// Runs a turn, and does something when it has begun.
    #[track_caller]
    fn run_with(&self, agent: &Bridge, prompt: &str, act: impl FnOnce(&mut Running<'_>)) -> FinishedTurn {
        let mut handle = self.submit(prompt, Self::options(agent));
        let _cancel = CancelOnPanic(handle.controls());
        while let Some(event) = handle.next_event() {
            if let TurnEvent::Began(began) = event {
                let (run, process, control) = (began.run, began.process, began.control.unwrap());
                let mut running = Running { project: self, run, process, control, handle };
                act(&mut running);
                return running.handle.result().unwrap();
            }
        }
        handle.result().unwrap()
    }

    #[track_caller]
    fn run(&self, agent: &Bridge, prompt: &str) -> FinishedTurn {
        self.run_with(agent, prompt, |_| {})
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
        let controls = fs::read_dir(self.folder.join("run/azureal")).into_iter().flatten();
        assert_eq!(self.spool_files(), [] as [PathBuf; 0]);
        assert_eq!(controls.map(|entry| entry.unwrap().path()).collect::<Vec<_>>(), [] as [PathBuf; 0]);
        assert_eq!(processes(run), []);
    }
}

/// A turn that runs.
struct Running<'a> {
    project: &'a Project,
    run: String,
    process: ProcessIdentity,
    control: Control,
    handle: TurnHandle,
}

impl Running<'_> {
    /// Waits for the question of the scripted agent.
    fn question(&self) -> OpenQuestion {
        question(&self.control)
    }

    /// Takes the outputs until one is this.
    fn wait_for(&mut self, is_it: impl Fn(&AgentOutput) -> bool) -> AgentOutput {
        loop {
            match self.handle.next_event().expect("the turn has ended before") {
                TurnEvent::Output(output) if is_it(&output) => return *output,
                _ => {}
            }
        }
    }

    fn wait_for_half(&mut self) {
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
    let mut run = String::new();
    let finished = project.run_with(&Bridge::new("answer"), "hi", |running| run.clone_from(&running.run));
    assert_eq!(finished.complete.outcome, Some(Outcome::Done), "{}", project.error());
    assert_eq!(finished.complete.usage.unwrap().input_tokens, 30);
    assert_eq!(project.history(), [Message::user("hi"), Message::assistant("Hello from the agent")]);
    project.nothing_is_left_of(&run);
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
        project.append(events);
    }
    let agent = leak(Bridge::new("summary"));
    let options = CompactionOptions {
        threshold: Threshold::default(),
        keep: Keep::Usual,
        summarisers: vec![Summariser { agent, program: CHILD.into(), model: None, settings: None }],
        timeout: PATIENCE,
    };
    let summary = project.engine().summarise(project.session, &options, &|| false, &mut |_| {});
    let summary = summary.unwrap().unwrap();
    assert_eq!(summary.failed, []);
    assert!(summary.summary.starts_with("All of it is done"), "{}", summary.summary);
    assert_eq!(summary.agent.as_deref(), Some("bridged"));
}

#[test]
fn an_agent_that_needs_a_bridge_says_so_where_there_is_none() {
    let mut project = Project::new();
    project.spools = Spools::new(project.path(".azureal/spool"));
    let options = Project::options(&Bridge::new("answer"));
    let error = project.submit("hi", options.clone()).result().unwrap_err();
    assert!(matches!(error, TurnError::NoBridge { agent: "bridged" }), "{error:?}");
    assert!(error.to_string().contains("needs a bridge, and no program is named"), "{error}");
    assert_eq!(project.events(), [], "nothing is stored");
    assert!(!project.spools.exist(), "and nothing was begun");
    let inside = BridgeHost { program: CHILD.into(), control: project.path("control") };
    project.spools = project.spools.clone().with_bridges(inside);
    let finished = project.submit("hi", options).result().unwrap();
    assert_eq!(finished.complete.outcome, Some(Outcome::Failed), "the agent may write there");
}
