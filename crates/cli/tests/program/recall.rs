//! Recall for agents: the real programs look things up in stored sessions, as the model server sees it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use azureal_testkit::model_server::{Answer, Gate, ModelServer};
use azureal_testkit::pty::PtyProgram;
use azureal_testkit::real_agents::{Agents, assert_nobody_else_was_asked};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::real_agents::{Real, finish};
use crate::run::{signal, wait_until};
use crate::servers::{Server, on_every_server};
use crate::world::{Ran, World};

/// A fact in the middle of a long output. A stored event does not have it.
const LONG_OUTPUT: &str = "for i in $(seq 200); do echo \"line $i\"; done; echo \"the relay listens at $((48000 + 151))\"; for i in $(seq 200); do echo \"line $i\"; done";

/// A project with recall, and with a session in which Claude has seen the fact.
struct Project {
    real: Real,
    /// The store on a server; `None` for the project's own file.
    store: Option<String>,
}

impl Project {
    fn new(server: &ModelServer, store: Option<String>) -> Option<Self> {
        let project = Self { real: Real::new(server)?, store };
        let config = project.real.home.home().join(".config/azureal");
        fs::create_dir_all(&config).unwrap();
        let settings = "[recall]\nenabled = true\n[originals]\nshare = true\n";
        fs::write(config.join("azufig.toml"), settings).unwrap();
        let command = json!({"command": LONG_OUTPUT, "description": "Ask the relay"});
        server.push(Answer::new().tool("Bash", command));
        server.push("The relay answers.");
        let prompt = "Ask the relay for its port";
        project.run(&["run", "-s", "relay", "-a", "claude", "--permission", "all", prompt]);
        let stored = project.run(&["show", "relay", "--json"]).stdout;
        assert!(!stored.contains("48151"), "only the original has it: {stored}");
        Some(project)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.real.command(arguments);
        command.envs(self.store.iter().map(|store| ("AZUREAL_STORE", store)));
        command
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> Ran {
        let ran = finish(self.command(arguments).spawn().unwrap());
        assert_eq!(ran.code, 0, "{ran}");
        ran
    }

    /// Returns the sockets of recall that are there.
    fn sockets(&self) -> Vec<PathBuf> {
        let Ok(folder) = fs::read_dir(self.real.home.home().join(".local/state/azureal/control")) else {
            return Vec::new();
        };
        let paths = folder.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "mcp")).collect()
    }
}

/// Returns the name of a recall tool in the requests of an agent.
fn tool_name(agent: &str, tool: &str) -> String {
    match agent {
        "gemini" => format!("mcp_azureal_{tool}"),
        "opencode" => format!("azureal_{tool}"),
        _ => format!("mcp__azureal__{tool}"),
    }
}

/// Returns the call of a recall tool as the model of an agent makes it.
fn call(agent: &str, id: &str, tool: &str, input: &Value) -> Answer {
    if agent != "codex" {
        return Answer::new().tool(&tool_name(agent, tool), input.clone());
    }
    Answer::new().raw(json!({
        "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "status": "completed",
        "namespace": "mcp__azureal", "name": tool, "arguments": input.to_string(),
    }))
}

#[track_caller]
fn recall(agent: &str, store: Option<String>) {
    let server = ModelServer::scripted::<Answer>([]);
    let Some(project) = Project::new(&server, store) else { return };
    server.push(call(agent, "a", "list_sessions", &json!({})));
    server.push(call(agent, "c", "search_sessions", &json!({"query": "relay listens", "original": true})));
    server.push(call(agent, "b", "read_session", &json!({"session": "S1", "original": true})));
    server.push("It listens at 48151.");
    project.run(&["run", "-s", "work", "-a", agent, "--permission", "read", "Which port has the relay?"]);
    let results = server.requests().last().unwrap().tool_results();
    assert!(results.iter().any(|result| result.contains("S1 relay · claude")), "{results:?}");
    assert!(results.iter().any(|result| result.contains("S2 work · the current session")), "{results:?}");
    let [.., found, read] = results.as_slice() else { panic!("{results:?}") };
    assert!(found.contains("S1 relay · event 4") && found.contains("the relay listens at 48151"), "{found}");
    assert!(!found.contains("S2"), "{found}");
    assert!(read.contains("the relay listens at 48151"), "{read}");
    assert!(project.sockets().is_empty(), "{:?}", project.sockets());
}

#[test]
fn claude_reads_in_an_original_what_no_event_has() {
    recall("claude", None);
}

#[test]
fn codex_reads_in_an_original_what_no_event_has() {
    recall("codex", None);
}

on_every_server! {
    claude_reads_in_an_original_on_a_server
    an_agent_that_outlives_azureal_reads_that_there_is_no_recall
}

fn claude_reads_in_an_original_on_a_server<S: Server>() {
    let Some(server) = S::shared() else { return };
    recall("claude", Some(server.store("recall")));
}

fn an_agent_that_outlives_azureal_reads_that_there_is_no_recall<S: Server>() {
    let Some(server) = S::shared() else { return };
    let store = server.store("recall-outlived");
    let secret = store.split('@').next().unwrap().rsplit(':').next().unwrap().to_owned();
    assert!(secret.len() > 5, "the address has a password");
    let model = ModelServer::scripted::<Answer>([]);
    let Some(project) = Project::new(&model, Some(store)) else { return };
    let gate = Gate::new();
    let search = json!({"query": "relay listens", "original": true});
    model.push(call("claude", "a", "search_sessions", &search));
    model.push(Answer::new().text("Again.").hold(&gate).tool("mcp__azureal__search_sessions", search));
    model.push("Without it, then.");
    let mut azureal = project
        .command(&["run", "-s", "work", "-a", "claude", "--permission", "read", "Which port has the relay?"])
        .spawn()
        .unwrap();
    gate.wait_until_reached(Duration::from_secs(60));

    // What the agent and its children were given leads to the socket alone.
    let sockets = project.sockets();
    let [socket] = sockets.as_slice() else { panic!("{sockets:?}") };
    assert_eq!(fs::metadata(socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(socket.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    let agents: Vec<u32> = project.real.processes().into_iter().filter(|pid| *pid != azureal.id()).collect();
    let mut servers = 0;
    for pid in agents {
        let [arguments, environment] = ["cmdline", "environ"].map(|file| {
            String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default()).into_owned()
        });
        assert!(!arguments.contains(&secret) && !environment.contains(&secret), "{pid}: {arguments}");
        servers += usize::from(arguments.contains("--relay"));
    }
    assert!(servers > 0, "the agent has started the server");

    signal(&azureal, "-KILL");
    azureal.wait().unwrap();
    gate.open();
    wait_until("the recovery", || project.run(&["list"]).stderr.contains("recovered the last turn of S2"));
    let results = model.requests().last().unwrap().tool_results();
    let [found, lost] = results.as_slice() else { panic!("{results:?}") };
    assert!(found.contains("the relay listens at 48151"), "{found}");
    assert!(lost.contains("no longer running; continue without recall"), "{lost}");
    let events = project.run(&["show", "work", "--json"]).stdout;
    assert!(events.contains("Without it, then."), "{events}");
    assert!(project.sockets().is_empty(), "{:?}", project.sockets());
}

/// Installs the server for an agent as a person does, and runs the agent without azureal. The question has `change`.
#[track_caller]
fn recall_on_its_own(agent: &'static str, change: &str, arguments: &[&str]) {
    if Agents::find(&[agent]).is_none() {
        return;
    }
    let server = ModelServer::answering(move |request| match request.tool_results().len() {
        0 => call(agent, "a", "search_sessions", &json!({"query": "relay listens", "original": true})),
        1 => call(agent, "b", "read_session", &json!({"session": "S1", "original": true})),
        _ => Answer::from("It listens at 48151."),
    });
    let Some(project) = Project::new(&server, None) else { return };
    let before = server.request_count();

    let mut install = PtyProgram::start(&project.command(&["mcp", "--install", agent]), 120, 40);
    install.wait_for("Do it? [y/N]");
    let question = install.screen();
    assert!(question.contains(change), "{question}");
    install.send("y\r");
    install.wait_for("from its next start");
    assert_eq!(install.wait_for_exit(), Some(0));
    let again = project.run(&["mcp", "--install", agent]).stdout;
    assert!(again.contains("has the server already"), "{again}");

    let mut command = project.real.home.command(agent);
    command.args(arguments).arg("Which port has the relay?");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ran = finish(command.spawn().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stdout.contains("It listens at 48151."), "{ran}");

    let requests = &server.requests()[before..];
    // Codex has its tools searched for.
    if agent != "codex" {
        let offered = requests[0].tools();
        for tool in ["search_sessions", "read_session", "list_sessions"] {
            assert!(offered.contains(&tool_name(agent, tool).as_str()), "{agent}: {offered:?}");
        }
    }
    let results = requests.iter().map(|request| request.tool_results()).max_by_key(Vec::len).unwrap();
    let [found, read] = results.as_slice() else { panic!("{agent}: {results:?}") };
    assert!(found.contains("S1 relay · event 4") && found.contains("the relay listens at 48151"), "{found}");
    assert!(read.contains("the relay listens at 48151"), "{read}");
    assert_nobody_else_was_asked(&server);
}

#[test]
fn claude_on_its_own_reads_in_an_original_after_the_installation() {
    let arguments = ["--allowedTools", "mcp__azureal", "-p"];
    recall_on_its_own("claude", "claude mcp add-json --scope user azureal", &arguments);
}

#[test]
fn codex_on_its_own_reads_in_an_original_after_the_installation() {
    recall_on_its_own("codex", "codex mcp add azureal --", &["exec", "--skip-git-repo-check"]);
}

#[test]
fn gemini_on_its_own_reads_in_an_original_after_the_installation() {
    recall_on_its_own("gemini", "Add to", &["-y", "--skip-trust", "-p"]);
}

#[test]
fn qwen_on_its_own_reads_in_an_original_after_the_installation() {
    recall_on_its_own("qwen", "Add to", &["-y", "--auth-type", "openai", "-p"]);
}

#[test]
fn opencode_on_its_own_reads_in_an_original_after_the_installation() {
    recall_on_its_own("opencode", "Add to", &["run", "--auto"]);
}

#[test]
fn an_installation_without_a_question_shows_the_change_and_one_by_hand_the_reason() {
    let world = World::new();
    let install = |arguments: &[&str]| {
        let mut command = world.command(&[&["mcp", "--install"], arguments].concat());
        world.ran(command.env("HOME", world.path("home")).output().unwrap())
    };
    let shown = install(&["gemini", "--yes"]).quiet();
    assert!(shown.starts_with("Add to ") && shown.contains("\"azureal\": {"), "{shown}");
    let shown = install(&["goose", "--show"]).quiet();
    assert!(shown.starts_with("Add to ") && shown.contains("/goose/config.yaml yourself:"), "{shown}");
    let ran = install(&["goose", "--show", "--json"]).json();
    assert!(ran["why_by_hand"].as_str().unwrap().contains("YAML"), "{ran}");
}

/// Calls a tool of the server for a project, and returns its answer.
#[track_caller]
fn answer(world: &World, tool: &str, arguments: &Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let mut command = world.command(&["mcp"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    writeln!(server.stdin.take().unwrap(), "{message}").unwrap();
    let result = &finish(server).json()["result"];
    assert_eq!(result["isError"], false, "{result}");
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn what_cannot_be_read_is_said() {
    let world = World::new();
    let fixtures = "../agents/tests/fixtures/claude/current/multi-tool/stdout.jsonl";
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join(fixtures);
    world.program("claude", &format!("cat > /dev/null\ncat '{}'", recording.display()));
    let ran = world.ran(world.with_programs(&["run", "-a", "claude", "hi"]).output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    let original = json!({"session": "S1", "from": 1, "to": 100, "original": true});
    let read = answer(&world, "read_session", &original);
    assert!(read.contains("logo.png") && !read.contains("cannot be read"), "{read}");
    let originals = world.snapshot("p/.git/azureal/originals");
    let [(file, _)] = originals.as_slice() else { panic!("{originals:?}") };
    fs::write(file, "garbage").unwrap();
    let read = answer(&world, "read_session", &original);
    assert!(read.contains("\n[azureal] 1 output cannot be read"), "{read}");
    let found = answer(&world, "search_sessions", &json!({"query": "logo.png", "original": true}));
    assert!(found.starts_with("Nothing was found"), "{found}");

    let store = Connection::open(world.store()).unwrap();
    store.execute("UPDATE events SET data = x'28b52ffd00' WHERE session_id = 1 AND seq = 2", []).unwrap();
    drop(store);
    let found = answer(&world, "search_sessions", &json!({"query": "logo.png"}));
    assert!(found.ends_with("\n1 event cannot be read.\n"), "{found}");
}

#[test]
fn a_compacted_context_says_that_the_covered_events_can_be_read() {
    let server = ModelServer::scripted::<Answer>([]);
    let Some(project) = Project::new(&server, None) else { return };
    for answer in ["long ".repeat(4_000), "short".to_owned()] {
        server.push(answer.as_str());
        project.run(&["run", "-s", "relay", "-a", "claude", "--permission", "read", "Tell me more"]);
    }
    project.run(&["compact", "relay", "--agent", "offline", "--keep", "1"]);
    server.push("I see.");
    project.run(&["run", "-s", "relay", "-a", "codex", "--permission", "read", "Go on"]);
    let told = server.requests().last().unwrap().user_texts().join("\n");
    assert!(told.contains("covers events 1 to "), "{told}");
    assert!(told.contains("of session S1") && told.contains("original=true"), "{told}");
    let stored = project.run(&["show", "relay", "--json"]).stdout;
    assert!(!stored.contains("covers events 1 to"), "it belongs to one turn: {stored}");
}

#[test]
fn without_the_setting_and_in_an_ephemeral_turn_no_agent_has_the_tools() {
    let server = ModelServer::scripted::<Answer>([]);
    let Some(project) = Project::new(&server, None) else { return };
    let tools = |agent: &str, options: &[&str]| {
        server.push("Hello.");
        project.run(&[&["run", "-a", agent, "--permission", "read", "Hello"], options].concat());
        server.requests().last().unwrap().body["tools"].to_string()
    };
    for agent in ["claude", "codex"] {
        assert!(tools(agent, &[]).contains("azureal"), "{agent}");
        let offered = tools(agent, &["--ephemeral"]);
        assert!(!offered.contains("azureal"), "{agent}: {offered}");
    }
    fs::remove_file(project.real.home.home().join(".config/azureal/azufig.toml")).unwrap();
    for agent in ["claude", "codex"] {
        let offered = tools(agent, &[]);
        assert!(!offered.contains("azureal"), "{agent}: {offered}");
    }
}

#[test]
fn a_file_of_a_project_cannot_enable_recall() {
    let world = World::new();
    world.file("p/.azureal/azufig.toml", "[recall]\nenabled = true\n");
    assert_eq!(world.run(&["run", "-a", "offline", "hi"]).code, 1);
    let ran = world.run(&["config"]);
    assert!(ran.code == 1 && ran.stderr.contains("a project's file cannot have `[recall]`"), "{ran}");
}
