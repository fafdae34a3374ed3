//! Whole turns through a bridge: a real bridge, a scripted agent or server behind it, a real spool, a real store.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

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
    Event, Keep, Message, NewSession, Page, SessionId, SessionStore, Threshold, Turn, read_history,
};
use azureal_engine::{
    BridgeHost, Briefing, CompactSetup, Control, ControlError, Controls, Driver, Homes, Ingested, Notice,
    OpenQuestion, OutputLimit, RUN_MARKER, Recovered, Refusal, Setup, SpooledTurn, Spools, Summariser,
    recover, summarise,
};
use azureal_process::{Marker, Patience, ProcessIdentity, Spawn, Stream, find_marked, stop};
use azureal_store::SqliteStore;
use azureal_store::sqlite::SqliteOptions;
use azureal_testkit::model_server::{Answer, Gate, ModelServer, Place};
use futures_executor::block_on;
use serde_json::{Value, json};
use tempfile::TempDir;

const CHILD: &str = env!("CARGO_BIN_EXE_azureal-test-child");
/// How long a fact may take to become true on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "not so after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

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
fn a_permission_question_is_asked_live_and_answered_by_a_person() {
    for (option, said, allowed) in [("yes", "selected \"yes\"", true), ("no", "selected \"no\"", false)] {
        let project = Project::new();
        let ingested = project.run_with(&Bridge::new("ask"), "hi", |running| {
            let asked = running.wait_for(|output| matches!(output, AgentOutput::Question(_)));
            let open = running.question();
            assert_eq!(asked, AgentOutput::Question(open.question.clone()));
            assert_eq!(
                (open.question.title.as_str(), open.question.kind.as_str()),
                ("Run `make`", "execute")
            );
            assert!(open.question.input.contains(r#""command":"make""#));
            running.control.answer(&open, option).unwrap();
            let AgentOutput::Answered(answered) =
                running.wait_for(|output| matches!(output, AgentOutput::Answered(_)))
            else {
                panic!()
            };
            assert_eq!((answered.by, answered.allowed), (AnsweredBy::Person, allowed));
        });
        assert_eq!(ingested.complete.outcome, Some(Outcome::Done), "{}", project.error());
        assert_eq!(project.history()[1], Message::assistant(said));
        let refused: &[String] = if allowed { &[] } else { &["Run `make`".to_owned()] };
        assert_eq!(ingested.refused, refused);
    }
}

#[test]
fn an_answer_must_carry_the_nonce_of_its_question() {
    let project = Project::new();
    project.run_with(&Bridge::new("ask"), "hi", |running| {
        let open = running.question();
        let refused = |question: &OpenQuestion, option: &str| match running.control.answer(question, option) {
            Err(ControlError::Refused(why)) => why,
            other => panic!("{other:?}"),
        };
        for nonce in ["", "0", &uuid_like(&open.nonce)] {
            let guessed = OpenQuestion { nonce: nonce.to_owned(), ..open.clone() };
            assert_eq!(refused(&guessed, "yes"), Refusal::WrongNonce, "{nonce}");
        }
        let mut other = open.clone();
        other.question.id = "q2".to_owned();
        assert_eq!(refused(&other, "yes"), Refusal::NoSuchQuestion);
        assert_eq!(refused(&open, "perhaps"), Refusal::NoSuchOption);
        assert_eq!(running.control.questions().unwrap(), std::slice::from_ref(&open), "it is still open");
        // The nonce is in no file that the agent can read.
        let spool = running.project.path(&format!(".azureal/spool/{}.jsonl", running.turn.run));
        let spool = fs::read_to_string(spool).unwrap();
        assert!(spool.contains("\"question\"") && !spool.contains(&open.nonce), "{spool}");
        running.control.answer(&open, "no").unwrap();
    });
    assert_eq!(project.history()[1], Message::assistant("selected \"no\""));
}

/// Returns another nonce of the same form.
fn uuid_like(nonce: &str) -> String {
    nonce.chars().rev().map(|digit| if digit == 'a' { 'b' } else { 'a' }).collect()
}

#[test]
fn a_policy_answers_what_it_knows() {
    let project = Project::new();
    let ingested = project.run(&Bridge::new("ask-read"), "hi");
    assert_eq!(project.history()[1], Message::assistant("selected \"yes\""));
    assert_eq!(ingested.refused, [] as [String; 0]);
    let mut agent = Bridge::new("ask");
    agent.policy.otherwise = Consent::Refuse;
    let project = Project::new();
    let ingested = project.run(&agent, "hi");
    assert_eq!(project.history()[1], Message::assistant("selected \"no\""));
    assert_eq!(ingested.refused, ["Run `make`"]);
}

#[test]
fn an_agent_cannot_allow_itself_anything() {
    let project = Project::new();
    let agent = Bridge::new(&format!("intrude {}", project.folder.join("run/azureal").display()));
    project.run_with(&agent, "hi", |running| {
        let open = running.question();
        for way in ["direct", "away"] {
            let path = running.project.path(way);
            let found =
                until(way, || fs::read_to_string(&path).ok().filter(|text| text.lines().count() == 3));
            assert_eq!(found, "{\"refused\":\"from_the_agent\"}\n".repeat(3), "{way}");
        }
        assert_eq!(running.control.questions().unwrap(), std::slice::from_ref(&open), "it is still open");
        running.control.answer(&open, "no").unwrap();
    });
    assert_eq!(project.outcomes(), [Outcome::Done], "nor cancel");
    assert_eq!(project.history()[1], Message::assistant("selected \"no\""));
}

#[test]
fn an_agent_does_not_see_where_the_control_channel_is() {
    let project = Project::new();
    project.run(&Bridge::new("look"), "a secret prompt");
    let seen = project.history()[1].first_text().unwrap().to_owned();
    assert!(seen.contains("AZUREAL_RUN_ID=") && seen.contains("__bridge"), "{seen}");
    for hidden in ["run/azureal", ".sock", "a secret prompt", "nonce"] {
        assert!(!seen.contains(hidden), "{hidden}: {seen}");
    }
}

#[test]
fn a_cancel_asks_the_agent_first_and_leaves_nothing() {
    for script in ["wait", "stubborn"] {
        for by_front_end in [true, false] {
            let project = Project::new();
            let run = Mutex::new(String::new());
            let ingested = project.run_with(&Bridge::new(script), "hi", |running| {
                running.turn.run.clone_into(&mut run.lock().unwrap());
                running.wait_for_half();
                assert!(processes(&running.turn.run).len() >= 3, "the bridge, the agent and its tool");
                if by_front_end {
                    running.control.cancel().unwrap();
                } else {
                    running.controls.cancel();
                }
            });
            assert_eq!(ingested.complete.outcome, Some(Outcome::Cancelled), "{script} {}", project.error());
            assert_eq!(project.history()[1], Message::assistant("half"));
            assert!(project.path("heard-cancel").exists(), "{script}");
            project.nothing_is_left_of(&run.lock().unwrap());
        }
    }
}

#[test]
fn an_agent_that_dies_is_told_of_with_its_exit_status() {
    for (script, error) in [
        ("die", "bridged: the agent exited before its turn was over; it was ended by signal 9 (SIGKILL)"),
        ("exit", "bridged: the agent exited before its turn was over; it exited with code 3"),
        (
            "mute",
            "bridged: the agent closed its output before its turn was over; it was ended by signal 2 (SIGINT)",
        ),
    ] {
        let project = Project::new();
        let ingested = project.run(&Bridge::new(script), "hi");
        assert_eq!(ingested.complete.outcome, Some(Outcome::Interrupted), "{script}");
        assert_eq!(project.error(), error);
        assert!(project.history()[1].first_text().unwrap().starts_with("half"));
        assert_eq!(project.run(&Bridge::new("answer"), "again").complete.outcome, Some(Outcome::Done));
    }
}

#[test]
fn a_bridge_that_is_killed_leaves_no_process_and_what_came_is_stored() {
    let project = Project::new();
    let run = Mutex::new(String::new());
    let ingested = project.run_with(&Bridge::new("wait"), "hi", |running| {
        running.turn.run.clone_into(&mut run.lock().unwrap());
        running.wait_for_half();
        kill(running.process.pid);
    });
    assert_eq!(ingested.complete.outcome, Some(Outcome::Interrupted));
    assert!(project.history()[1].first_text().unwrap().starts_with("half"));
    project.nothing_is_left_of(&run.lock().unwrap());
}

/// Says which project another test wants a turn to be driven in, and by which script.
const DRIVE: [&str; 2] = ["AZUREAL_TEST_PROJECT", "AZUREAL_TEST_SCRIPT"];

#[test]
#[ignore = "is started by other tests, as the azureal that is killed"]
fn drives_a_turn_until_it_is_killed() {
    let [Ok(folder), Ok(script)] = DRIVE.map(std::env::var) else { return };
    let project = Project::open(Path::new(&folder));
    project.run(&Bridge::new(&script), "before the crash");
}

/// Starts an azureal of its own that runs a turn.
fn start_azureal(project: &Project, script: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["drives_a_turn_until_it_is_killed", "--ignored", "--nocapture"])
        .env(DRIVE[0], &project.folder)
        .env(DRIVE[1], script)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Runs a turn in an azureal of its own, kills that one when the agent has said something, and returns the turn.
fn kill_azureal(
    project: &Project,
    script: &str,
    has_begun: impl Fn(&str) -> bool,
) -> (SpooledTurn, ProcessIdentity) {
    let mut azureal = start_azureal(project, script);
    let spools = project.path(".azureal/spool");
    until("the agent has begun", || {
        let output = fs::read_dir(&spools).ok()?.filter_map(|entry| {
            let path = entry.ok()?.path();
            (path.extension()? == "jsonl").then(|| fs::read_to_string(path).unwrap_or_default())
        });
        output.last().filter(|output| has_begun(output))
    });
    azureal.kill().unwrap();
    azureal.wait().unwrap();
    until("the turn is an orphan", || match &project.recover()[..] {
        [Recovered::Orphan(turn, process)] => Some((turn.clone(), process.clone())),
        _ => None,
    })
}

#[track_caller]
fn stored_once(project: &Project) -> Ingested {
    let stored = until("the turn is stored", || match project.recover().pop() {
        Some(Recovered::Stored(_, ingested)) => Some(ingested),
        Some(Recovered::Orphan(..)) => None,
        other => panic!("{other:?}"),
    });
    assert!(project.recover().is_empty(), "once");
    assert_eq!(project.outcomes().len(), 1);
    stored
}

#[test]
fn a_turn_whose_azureal_was_killed_can_still_be_watched_and_answered() {
    let project = Project::new();
    let (turn, process) = kill_azureal(&project, "ask", |output| output.contains("\"question\""));
    let agent = Bridge::new("");
    let mut watcher = project.spools.watch(&turn, &agent, Some(process)).unwrap();
    let control = project.spools.control(&turn).unwrap();
    control.answer(&question(&control), "yes").unwrap();
    let mut outputs = Vec::new();
    while let Some(more) = watcher.next_outputs().unwrap() {
        outputs.extend(more);
    }
    assert!(
        outputs.iter().any(|output| matches!(output, AgentOutput::Answered(answered) if answered.allowed))
    );
    assert!(outputs.contains(&AgentOutput::Delta("selected \"yes\"".into())));
    assert_eq!(stored_once(&project).complete.outcome, Some(Outcome::Done));
    let expected = [Message::user("before the crash"), Message::assistant("selected \"yes\"")];
    assert_eq!(project.history(), expected);
    project.nothing_is_left_of(&turn.run);
}

#[test]
fn a_turn_whose_azureal_was_killed_can_be_cancelled() {
    for over_the_channel in [true, false] {
        let project = Project::new();
        let (turn, process) = kill_azureal(&project, "wait", |output| output.contains("half"));
        if over_the_channel {
            project.spools.control(&turn).unwrap().cancel().unwrap();
        } else {
            // As `azureal cancel` does.
            let marker = Marker::new(RUN_MARKER, turn.run.clone()).unwrap();
            project.spools.note_cancel(&turn).unwrap();
            assert_eq!(stop(&process, &marker, &Patience::default()).survivors, []);
        }
        assert_eq!(stored_once(&project).complete.outcome, Some(Outcome::Cancelled));
        assert!(project.path("heard-cancel").exists());
        project.nothing_is_left_of(&turn.run);
    }
}

#[test]
fn a_turn_whose_azureal_and_bridge_were_killed_is_recovered_with_what_came() {
    let project = Project::new();
    let (turn, process) = kill_azureal(&project, "wait", |output| output.contains("half"));
    kill(process.pid);
    assert_eq!(stored_once(&project).complete.outcome, Some(Outcome::Interrupted));
    assert!(project.history()[1].first_text().unwrap().starts_with("half"));
    project.nothing_is_left_of(&turn.run);
}

#[test]
fn a_turn_whose_azureal_was_killed_and_whose_agent_dies_is_recovered() {
    let project = Project::new();
    let (turn, _) = kill_azureal(&project, "wait", |output| output.contains("half"));
    let agent = processes(&turn.run).into_iter().find(|process| {
        let line = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        line.ends_with(b"\0agent\0wait\0")
    });
    kill(agent.unwrap().pid);
    assert_eq!(stored_once(&project).complete.outcome, Some(Outcome::Interrupted));
    assert!(project.error().contains("signal 9"), "{}", project.error());
    project.nothing_is_left_of(&turn.run);
}

/// Returns the processes of the run in a project, with their arguments.
fn processes_of(project: &Project) -> Vec<(ProcessIdentity, String)> {
    let names = fs::read_dir(project.path(".azureal/spool")).into_iter().flatten();
    let runs = names.filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()));
    let marked = runs.collect::<std::collections::BTreeSet<_>>().into_iter().flat_map(|run| processes(&run));
    let line = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    marked
        .map(|process| {
            let line = String::from_utf8_lossy(&line(process.pid)).into_owned();
            (process, line)
        })
        .collect()
}

#[test]
fn a_turn_is_stored_once_whenever_its_processes_are_killed() {
    let rounds = if std::env::var_os("AZUREAL_THOROUGH").is_some() { 400 } else { 20 };
    for round in 0..rounds {
        let project = Project::new();
        let mut azureal = start_azureal(&project, if round % 2 == 0 { "answer" } else { "wait" });
        // From the start of the process to the middle of the turn.
        std::thread::sleep(Duration::from_millis(round * 37 % 401));
        let victims: &[&str] =
            [&["azureal"][..], &["azureal", "__bridge"], &["azureal", "agent"]][round as usize % 3];
        if victims.contains(&"azureal") {
            azureal.kill().unwrap();
        }
        for (process, line) in processes_of(&project) {
            if victims.iter().any(|victim| line.contains(victim) && line.contains("test-child")) {
                // It may have ended by itself.
                drop(
                    Command::new("kill")
                        .args(["-9", &process.pid.to_string()])
                        .stderr(Stdio::null())
                        .status(),
                );
            }
        }
        azureal.wait().unwrap();
        let had_begun = fs::read_dir(project.path(".azureal/spool")).is_ok_and(|mut found| {
            found.any(|entry| entry.unwrap().path().extension().is_some_and(|kind| kind == "turn"))
        });
        let before = project.outcomes().len();
        until("all is stored", || {
            let found = project.recover();
            for found in &found {
                match found {
                    Recovered::Orphan(turn, _) => {
                        // One that waits for ever. It may have ended meanwhile.
                        drop(project.spools.control(turn).unwrap().cancel());
                    }
                    Recovered::Stored(..) => {}
                    other => panic!("round {round}: {other:?}"),
                }
            }
            found.is_empty().then_some(())
        });
        let stored = project.outcomes().len();
        assert_eq!(stored, before + usize::from(had_begun && before == 0), "round {round}");
        assert_eq!(processes_of(&project), [], "round {round}");
        let left = processes_in(&project.directory());
        assert_eq!(left, [] as [String; 0], "round {round}");
    }
}

/// Returns the processes that run in a directory.
fn processes_in(directory: &Path) -> Vec<String> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.parse::<u32>().ok()?;
        let is_there = fs::read_link(format!("/proc/{name}/cwd")).ok()? == directory;
        is_there.then(|| fs::read_to_string(format!("/proc/{name}/cmdline")).unwrap_or_default())
    });
    pids.filter(|line| !line.is_empty()).collect()
}

#[test]
fn garbage_of_an_agent_is_kept_as_evidence_and_the_turn_goes_on() {
    let project = Project::new();
    let ingested = project.run(&Bridge::new("garbage"), "hi");
    assert_eq!(ingested.complete.outcome, Some(Outcome::Done));
    let unreadable = project.events().into_iter().filter_map(|event| match event {
        Event::Error(error) => Some(error.message),
        _ => None,
    });
    let unreadable: Vec<String> = unreadable.collect();
    assert_eq!(unreadable.len(), 3, "{unreadable:?}");
    assert_eq!(unreadable[0], "bridged sent a message of 14 bytes that is no JSON: no json at all");
    assert!(unreadable[2].starts_with("bridged sent a message of 3145728 bytes that is no JSON: xxx"));
}

#[test]
fn an_agent_that_prints_without_end_is_stopped() {
    let project = Project::new();
    let agent = Bridge::new("flood");
    let directory = project.directory();
    let limit = OutputLimit::of_mib(8);
    let setup = Setup { output_limit: limit, ..project.setup(&agent, &directory) };
    let ingested = Driver::new(setup).0.run("hi", &mut |_| {}).unwrap().unwrap();
    assert_eq!(ingested.complete.outcome, Some(Outcome::Failed));
    assert!(project.error().starts_with("bridged was stopped because of its output"), "{}", project.error());
}

fn task(run: &str, script: &str, limits: BridgeLimits) -> BridgeTask {
    BridgeTask {
        run: run.to_owned(),
        marker: RUN_MARKER.to_owned(),
        program: Some(AgentProgram {
            path: CHILD.into(),
            args: vec!["agent".into(), script.into()],
            env: Vec::new(),
        }),
        control: None,
        limits,
        exchange: Exchange::JsonRpc(JsonRpcExchange {
            prompt: json!([{ "type": "text", "text": "hi" }]),
            policy: PermissionPolicy { otherwise: Consent::Ask, ..PermissionPolicy::default() },
            ..JsonRpcExchange::default()
        }),
    }
}

fn start_bridge(folder: &Path, stdout: File, task: &BridgeTask) -> azureal_process::Child {
    let marker = Marker::new(RUN_MARKER, task.run.clone()).unwrap();
    let mut spawn = Spawn::new(CHILD, folder, stdout, marker);
    spawn.args = vec!["__bridge".into()];
    spawn.stdin = serde_json::to_vec(task).unwrap();
    spawn.stderr = Stream::File(File::create(folder.join("err")).unwrap());
    spawn.start().unwrap()
}

/// Runs a bridge alone, and returns what it wrote.
fn bridge_alone(script: &str, limits: BridgeLimits) -> (Vec<BridgeLine>, BridgeEnd) {
    let folder = tempfile::tempdir().unwrap();
    let run =
        format!("alone-{}", folder.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.'));
    let task = BridgeTask { control: Some(folder.path().join("s")), ..task(&run, script, limits) };
    let output = folder.path().join("out");
    let child = start_bridge(folder.path(), File::create(&output).unwrap(), &task);
    assert!(child.wait_timeout(PATIENCE).is_some(), "{script} does not end");
    assert_eq!(processes(&run), [], "{script}");
    assert!(!folder.path().join("s").exists(), "the socket is removed");
    let text = fs::read_to_string(&output).unwrap();
    let mut lines: Vec<BridgeLine> =
        text.lines().map(|line| BridgeLine::read(line.as_bytes()).unwrap()).collect();
    let Some(BridgeLine::End(end)) = lines.pop() else { panic!("{text}") };
    (lines, end)
}

#[test]
fn every_limit_of_a_bridge_holds_without_azureal() {
    let limits = BridgeLimits::default();
    let (lines, end) = bridge_alone("flood", BridgeLimits { messages: 100, ..limits });
    assert_eq!(end.reason.as_deref(), Some("the agent sent more than 100 messages"));
    assert!(lines.len() < 110, "{}", lines.len());

    let (lines, end) = bridge_alone("flood", BridgeLimits { output_bytes: 1 << 20, ..limits });
    assert_eq!(end.reason.as_deref(), Some("the agent printed more than 1048576 bytes"));
    let written: usize = lines.iter().map(|line| serde_json::to_string(line).unwrap().len()).sum();
    assert!(written < 1_100_000, "{written}");

    let (lines, end) = bridge_alone("garbage", BridgeLimits { message_bytes: 100_000, ..limits });
    assert_eq!(end.outcome, Outcome::Done);
    let too_long = lines.iter().find_map(|line| match line {
        BridgeLine::Unreadable(found) if found.why == "is too long" => Some((found.bytes, found.text.len())),
        _ => None,
    });
    assert_eq!(too_long, Some((3 << 20, 2048)));

    let (_, end) = bridge_alone("stubborn", BridgeLimits { turn_ms: 300, ..limits });
    assert_eq!(end.outcome, Outcome::Timeout);

    let (lines, end) = bridge_alone("ask", BridgeLimits { question_ms: 100, ..limits });
    assert_eq!(end.outcome, Outcome::Done);
    let answered = lines.iter().find_map(|line| match line {
        BridgeLine::Answer(answered) => Some((answered.by, answered.allowed)),
        _ => None,
    });
    assert_eq!(answered, Some((AnsweredBy::Timeout, false)));
}

#[test]
fn an_agent_whose_output_cannot_be_kept_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let task = BridgeTask { control: None, ..task("full", "wait", BridgeLimits::default()) };
    let full = File::options().write(true).open("/dev/full").unwrap();
    let child = start_bridge(folder.path(), full, &task);
    assert_eq!(child.wait_timeout(PATIENCE), Some(azureal_process::Exit::Code(1)));
    assert_eq!(processes("full"), []);
}

#[test]
fn a_task_that_cannot_be_read_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out");
    for stdin in ["", "{\"run\":\"a\"", "[]"] {
        let marker = Marker::new(RUN_MARKER, "unread").unwrap();
        let mut spawn = Spawn::new(CHILD, folder.path(), File::create(&output).unwrap(), marker);
        spawn.args = vec!["__bridge".into()];
        spawn.stdin = stdin.into();
        assert_eq!(spawn.start().unwrap().wait(), azureal_process::Exit::Code(1));
        let text = fs::read(&output).unwrap();
        let Ok(BridgeLine::End(end)) = BridgeLine::read(&text) else { panic!("{stdin}") };
        assert!(end.reason.unwrap().starts_with("the task of the bridge cannot be read: "), "{stdin}");
    }
}

#[test]
fn a_model_behind_http_goes_through_a_bridge() {
    let server = ModelServer::scripted([Answer::new().text_in(["Hello ", "from the model"])]);
    let project = Project::new();
    let ingested = project.run(&Bridge::http(&server.url()), "hi");
    assert_eq!(ingested.complete.outcome, Some(Outcome::Done), "{}", project.error());
    assert_eq!(project.history(), [Message::user("hi"), Message::assistant("Hello from the model")]);
    assert_eq!(server.requests()[0].prompt(), Some("hi"));
}

#[test]
fn a_model_that_fails_is_told_of() {
    for (answer, error) in [
        (Answer::error(500, "out of order"), "answered with status 500: "),
        (Answer::new().text("half").cut(Place::Events(4)), "the response was cut off"),
    ] {
        let server = ModelServer::scripted([answer]);
        let project = Project::new();
        let ingested = project.run(&Bridge::http(&server.url()), "hi");
        assert_eq!(ingested.complete.outcome, Some(Outcome::Failed));
        assert!(project.error().contains(error), "{}", project.error());
    }
    let project = Project::new();
    assert_eq!(
        project.run(&Bridge::http("https://example.org"), "hi").complete.outcome,
        Some(Outcome::Failed)
    );
    assert!(project.error().contains("only `http://` and a loopback address"), "{}", project.error());
}

#[test]
fn a_model_that_stops_in_its_answer_is_cancelled() {
    let gate = Gate::new();
    let server = ModelServer::scripted([Answer::new().text("half").hold(&gate).text("never")]);
    let project = Project::new();
    let ingested = project.run_with(&Bridge::http(&server.url()), "hi", |running| {
        running.wait_for_half();
        running.controls.cancel();
    });
    assert_eq!(ingested.complete.outcome, Some(Outcome::Cancelled));
    assert_eq!(project.history()[1], Message::assistant("half"));
    gate.open();
}

#[test]
fn an_agent_behind_a_bridge_writes_a_summary() {
    let project = Project::new();
    let long = |text: &str| Event::assistant(text.repeat(400));
    for number in 0..6 {
        let events = vec![Event::user(format!("prompt {number}")), long("words of an answer ")];
        block_on(project.store.append(project.session, Turn::verbatim(events))).unwrap();
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
