//! Sessions in the formats of the agents, resumed by the real programs.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use azureal_testkit::model_server::{Answer, ModelServer, Request};
use azureal_testkit::project::git_repository;
use azureal_testkit::real_agents::{AgentHome, Agents};
use serde_json::{Value, json};

use crate::real_agents::{Real, finish};
use crate::world::{Ran, World, assistant, exported, user};

/// Words that agents act on in a prompt. In the history they are words.
const WORDS: &str = "Mind @notes.txt, /help and $HOME";

fn project(server: &ModelServer) -> Option<Real> {
    let real = Real::new(server)?;
    fs::write(real.home.project().join("notes.txt"), "the note itself\n").unwrap();
    git_repository(&real.home.project());
    Some(real)
}

/// Exports the session, puts the file where azureal says that it belongs, and returns the command that azureal names.
#[track_caller]
fn place(real: &Real, agent: &str) -> (PathBuf, Vec<String>) {
    let file = real.home.project().join("exported.jsonl");
    let ran = real.run(&["export", "work", "--format", agent, "-o", file.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains(&format!("`azureal open S1 -a {agent}` does this in one step")), "{ran}");
    let (first, then) = ran.stderr.split_once(", then run `").unwrap();
    let words = |command: &str| command.split(' ').map(str::to_owned).collect::<Vec<String>>();
    let resume = words(then.split_once('`').unwrap().0);
    if let Some((_, import)) = first.split_once(": run `") {
        let import = words(import.split_once('`').unwrap().0);
        let arguments: Vec<&str> = import.iter().map(String::as_str).collect();
        let ran = prompted(real, arguments[0], &arguments[1..], "");
        assert_eq!(ran.code, 0, "{ran}");
        return (file, resume);
    }
    let (_, places) = first.split_once(": copy it to ").unwrap();
    let mut places = places.split(", and write `");
    let target = PathBuf::from(places.next().unwrap());
    fs::create_dir_all(target.parent().unwrap()).unwrap();
    fs::rename(&file, &target).unwrap();
    for (content, path) in places.map(|other| other.split_once("` into ").unwrap()) {
        fs::write(path, content).unwrap();
    }
    (target, resume)
}

/// Runs an agent's own program with a prompt on its standard input.
fn prompted(real: &Real, program: &str, arguments: &[&str], prompt: &str) -> Ran {
    let mut command = real.home.command(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(prompt.as_bytes()).unwrap();
    finish(child)
}

/// Returns the last request of which the answer is part of a conversation.
fn last_request(server: &ModelServer) -> Arc<Request> {
    server.requests().pop().unwrap()
}

/// Returns the turns that azureal reads in the file of an agent.
fn read_again(file: &Path) -> Vec<Value> {
    let world = World::new();
    let ran = world.run(&["import", file.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran}");
    world.run(&["show", "S1", "--json"]).json_lines()
}

#[test]
fn codex_resumes_a_session_of_claude() {
    let server = ModelServer::scripted::<Answer>([]);
    let Some(real) = project(&server) else { return };
    let command = json!({"command": "echo forty-two", "description": "Echo"});
    server.push(Answer::new().text("I look.").tool("Bash", command));
    server.push(Answer::new().tool("Read", json!({"file_path": real.home.project().join("gone.txt")})));
    server.push("It is 42.");
    let ran = real.run(&["run", "-s", "work", "-a", "claude", "--permission", "all", WORDS]);
    assert_eq!(ran.code, 0, "{ran}");

    let (file, command) = place(&real, "codex");
    let id = command.last().unwrap();
    assert_eq!(command[..2], ["codex", "resume"]);
    server.push("As I said.");
    let ran = prompted(&real, "codex", &["exec", "resume", id, "-"], "What was it?");
    assert_eq!((ran.code, ran.stdout.trim()), (0, "As I said."), "{ran}");

    let request = last_request(&server);
    let input = request.body["input"].as_array().unwrap();
    let texts = request.user_texts();
    assert!(texts.contains(&WORDS) && texts.last() == Some(&"What was it?"), "{texts:?}");
    assert!(!request.body.to_string().contains("the note itself"), "the history is inert");
    assert_eq!(request.assistant_texts(), ["I look.", "It is 42."]);
    let calls: Vec<(&str, Value)> = input
        .iter()
        .filter(|item| item["type"] == "function_call")
        .map(|item| {
            (
                item["name"].as_str().unwrap(),
                serde_json::from_str(item["arguments"].as_str().unwrap()).unwrap(),
            )
        })
        .collect();
    assert_eq!(calls[0], ("exec_command", json!({"cmd": "echo forty-two"})));
    assert_eq!(calls[1].0, "Read");
    let results = request.tool_results();
    assert!(results[0].ends_with("Process exited with code 0\nOutput:\nforty-two"), "{results:?}");
    assert!(results[1].starts_with("Error: "), "{results:?}");

    // The program added its turn to the file.
    let events = read_again(&file);
    let said: Vec<&Value> = events.iter().filter(|event| event["kind"] == "UserMessage").collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[1]["data"]["content"], "What was it?");
}

#[test]
fn claude_resumes_a_session_of_codex() {
    let server = ModelServer::scripted::<Answer>([]);
    let Some(real) = project(&server) else { return };
    let patch =
        "*** Begin Patch\n*** Update File: notes.txt\n@@\n-the note itself\n+another note\n*** End Patch\n";
    server.push(Answer::new().text("I look.").tool("exec_command", json!({"cmd": "echo forty-two; exit 3"})));
    server.push(Answer::new().custom_tool("apply_patch", patch));
    server.push("It is 42.");
    let ran = real.run(&["run", "-s", "work", "-a", "codex", "--permission", "all", WORDS]);
    assert_eq!(ran.code, 0, "{ran}");

    let (file, command) = place(&real, "claude");
    let id = command.last().unwrap();
    assert_eq!(command, ["claude", "--resume", id]);
    server.push("As I said.");
    let ran = prompted(&real, "claude", &["-p", "--resume", id], "What was it?");
    assert_eq!((ran.code, ran.stdout.trim()), (0, "As I said."), "{ran}");

    let request = last_request(&server);
    let texts = request.user_texts();
    assert!(texts.contains(&WORDS), "{texts:?}");
    assert_eq!(request.prompt(), Some("What was it?"));
    assert!(!texts.iter().any(|text| text.contains("another note")), "the history is inert: {texts:?}");
    assert_eq!(request.assistant_texts(), ["I look.", "It is 42."]);
    let messages = request.body["messages"].as_array().unwrap();
    let blocks = || messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    let calls: Vec<&Value> = blocks().filter(|block| block["type"] == "tool_use").collect();
    assert_eq!(
        (&calls[0]["name"], &calls[0]["input"]),
        (&json!("Bash"), &json!({"command": "echo forty-two; exit 3"}))
    );
    assert_eq!(calls[1]["name"], "Edit");
    let results: Vec<&Value> = blocks().filter(|block| block["type"] == "tool_result").collect();
    assert_eq!((&results[0]["is_error"], &results[1]["is_error"]), (&json!(true), &json!(false)));
    let results = request.tool_results();
    assert!(results[0].contains("forty-two") && results[1].contains("+another note"), "{results:?}");

    let events = read_again(&file);
    let said: Vec<&Value> = events.iter().filter(|event| event["kind"] == "UserMessage").collect();
    assert_eq!(said.last().unwrap()["data"]["content"], "What was it?");
    assert_eq!(said.len(), 2, "{said:?}");
}

/// Has a program resume a session that was with other agents.
fn resumes(program: &'static str, arguments: &[&str], shell: &str) {
    let Some(agents) = Agents::find(&[program]) else { return };
    // Programs also ask for titles and suggestions.
    let server = ModelServer::always("As I said.");
    let real = Real { home: AgentHome::new(&agents, &server) };
    fs::write(real.home.project().join("notes.txt"), "the note itself\n").unwrap();
    git_repository(&real.home.project());
    let events = [
        user(WORDS),
        assistant("I look."),
        json!({"ToolCall": {"tool_use_id": "call_1", "tool_name": "Bash", "input": {"command": "echo forty-two"}}}),
        json!({"ToolResult": {"tool_use_id": "call_1", "tool_name": "Bash", "content": "forty-two", "is_error": false}}),
        json!({"ToolCall": {"tool_use_id": "call_2", "tool_name": "Odd", "input": {"path": "x"}}}),
        json!({"ToolResult": {"tool_use_id": "call_2", "tool_name": "Odd", "content": "no such thing", "is_error": true}}),
        assistant("It is 42."),
        json!({"Complete": {"success": true, "duration_ms": 1500, "cost_usd": 0.0}}),
    ];
    let session = real.home.home().join("session.json");
    fs::write(&session, exported("work", &events).to_string()).unwrap();
    let ran = real.run(&["import", session.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran}");

    let (file, command) = place(&real, program);
    let (id, flag) = (command[2].as_str(), command[1].as_str());
    let ran = prompted(&real, program, &[arguments, &[flag, id]].concat(), "What was it?");
    assert_eq!(ran.code, 0, "{ran}");
    let requests = server.requests();
    let is_asked =
        |request: &&Arc<Request>| request.prompt().is_some_and(|prompt| prompt.contains("What was it?"));
    let request = requests.iter().find(is_asked).unwrap();
    assert!(request.user_texts().contains(&WORDS), "{:?}", request.user_texts());
    assert!(!request.body.to_string().contains("the note itself"), "the history is inert");
    let mut answers = request.assistant_texts();
    answers.retain(|text| !text.is_empty());
    assert_eq!(answers, ["I look.", "It is 42."]);
    let results = request.tool_results();
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(results[0].contains("forty-two") && results[1].contains("no such thing"), "{results:?}");
    let body = request.body.to_string();
    assert!(body.contains(shell) && body.contains("echo forty-two") && body.contains("Odd"), "{body}");

    if program == "gemini" {
        // Its next start deletes files that it takes for damaged.
        let ran = prompted(&real, program, arguments, "Another session");
        assert_eq!(ran.code, 0, "{ran}");
    }
    // The program added its turn to the session.
    let ran = match program {
        "opencode" => {
            let world = real.run(&["import", "--from", "opencode"]);
            assert_eq!(world.code, 0, "{world}");
            real.run(&["show", "S2", "--json"]).json_lines()
        }
        _ => read_again(&file),
    };
    let said: Vec<&Value> = ran.iter().filter(|event| event["kind"] == "UserMessage").collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[1]["data"]["content"], "What was it?");
}

#[test]
fn gemini_resumes_a_session() {
    resumes("gemini", &["-o", "stream-json", "-y", "--skip-trust"], "run_shell_command");
}

#[test]
fn qwen_resumes_a_session() {
    resumes("qwen", &["-o", "stream-json", "-y", "--auth-type", "openai"], "run_shell_command");
}

#[test]
fn opencode_resumes_a_session() {
    resumes("opencode", &["run", "--format", "json", "--auto", "-m", "testkit/m1"], "\"bash\"");
}

/// A session with a system message and a summary of its first turn.
fn compacted() -> World {
    let world = World::new();
    let mut session = exported(
        "demo",
        &[
            json!({"SystemMessage": {"content": "Be brief."}}),
            user("The first prompt"),
            assistant("The first answer"),
            user("My key is ghp_0123456789abcdefghijklmnopqrstuvwxyzABCD, list"),
            json!({"ToolCall": {"tool_use_id": "t1", "tool_name": "Bash", "input": {"command": "cargo test"}}}),
            json!({"ToolResult": {"tool_use_id": "t1", "tool_name": "Bash", "content": "short", "detail": "the part that matters", "is_error": true}}),
            assistant("The second answer"),
        ],
    );
    session["compactions"] = json!([{"after_seq": 3, "summary": "They began."}]);
    let path = world.file("demo.json", &session.to_string());
    let ran = world.run(&["import", path.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran}");
    world
}

#[test]
fn a_compacted_session_begins_with_its_summary() {
    let world = compacted();
    for agent in ["claude", "codex", "gemini", "qwen", "opencode"] {
        let ran = world.run(&["export", "demo", "--format", agent]);
        assert_eq!(ran.code, 0, "{ran}");
        assert_eq!(ran.stdout, world.run(&["export", "demo", "--format", agent]).stdout, "the same bytes");
        for part in ["Be brief.", "They began.", "The first prompt", "cargo test", "the part that matters"] {
            assert!(ran.stdout.contains(part), "{agent}: {part} is missing: {ran}");
        }
        assert!(!ran.stdout.contains("The first answer"), "{agent}: {ran}");
        assert!(!ran.stdout.contains("ghp_0123"), "{agent}: {ran}");
        assert!(ran.stderr.contains("secrets are masked"), "{ran}");
        let raw = world.run(&["export", "demo", "--format", agent, "--raw"]);
        assert!(raw.stdout.contains("ghp_0123"), "{agent}: {raw}");
    }
}

#[test]
fn a_turn_without_an_answer_is_ended() {
    let world = World::new();
    let failed = json!({"Error": {"message": "overloaded", "kind": "api"}});
    let events =
        [user("One"), assistant("First."), user("Two"), failed.clone(), user("Three"), assistant("Third.")];
    world.session("failed", &[&events[..], &[user("Four"), failed]].concat());
    for agent in ["claude", "codex", "gemini", "qwen", "opencode"] {
        let ran = world.run(&["export", "failed", "--format", agent]);
        let (before, end) = ran.stdout.split_once("Three").unwrap();
        for text in [before, end] {
            let (_, after) = text.split_once("overloaded").unwrap();
            assert!(after.contains("[The turn ended without an answer.]"), "{agent}: {ran}");
        }
    }
}

#[test]
fn a_session_without_messages_is_not_written() {
    let world = World::new();
    let ran = world.session("empty", &[json!("Compacted")]);
    assert_eq!(ran.code, 0, "{ran}");
    let file = world.path("out.jsonl");
    let ran = world.run(&["export", "empty", "--format", "claude", "-o", file.to_str().unwrap()]);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("has no messages yet"), "{ran}");
    assert!(!file.exists());
}
