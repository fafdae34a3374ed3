//! The real agents, when azureal is killed and what was printed is gone: their own records have it.

use std::fs;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use azureal_testkit::model_server::{Answer, Gate, ModelServer};
use azureal_testkit::real_agents::{AgentHome, Agents};
use azureal_testkit::until;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

fn azureal(home: &AgentHome, arguments: &[&str]) -> Output {
    home.command(env!("CARGO_BIN_EXE_azureal")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn start(home: &AgentHome, arguments: &[&str]) -> Child {
    let mut command = home.command(env!("CARGO_BIN_EXE_azureal"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until the agent's own name of its run is noted.
fn wait_for_note(home: &AgentHome) {
    let store = rusqlite::Connection::open(home.project().join(".azureal/sessions.azs")).unwrap();
    let note = || store.query_row("SELECT run FROM sessions", [], |row| row.get::<_, String>(0)).ok();
    until("the run is noted", || note().filter(|note| !note.is_empty()));
}

/// Waits until a command recovers a turn, and returns what it says of that.
fn recovery_of(home: &AgentHome) -> String {
    until("something is recovered", || {
        Some(stderr(&azureal(home, &["list"]))).filter(|report| report.contains("recovered"))
    })
}

#[test]
fn what_was_printed_and_is_gone_comes_from_the_agents_own_record() {
    let Some(agents) = Agents::find(&["claude", "codex"]) else { return };
    for (agent, record) in [("claude", "Claude Code's transcript"), ("codex", "Codex's rollout")] {
        let gate = Gate::new();
        let held = Answer::from("The second answer.").hold(&gate);
        // Long enough to be a block of its own in the message that Claude Code keeps of the second turn.
        let long = "The first answer. ".repeat(300);
        let server = ModelServer::scripted([Answer::from(long.trim_end()), held]);
        let home = AgentHome::new(&agents, &server);
        let first = azureal(&home, &["run", "-s", "topic", "-a", agent, "--permission", "read", "First"]);
        assert!(first.status.success(), "{}", stderr(&first));

        let arguments = ["run", "-s", "topic", "-a", agent, "--permission", "read", "Second, as typed"];
        let mut child = start(&home, &arguments);
        server.wait_for_requests(2, LIMIT);
        wait_for_note(&home);
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir_all(home.project().join(".azureal/spool")).unwrap();
        gate.open();

        let report = recovery_of(&home);
        assert!(
            report.contains(&format!("recovered the last turn of S1 (complete) from {record}\n")),
            "{report}"
        );
        assert_eq!(stderr(&azureal(&home, &["list"])), "", "{agent}: it is recovered once");

        let shown = String::from_utf8(azureal(&home, &["show", "topic", "--json"]).stdout).unwrap();
        let events: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of_kind = |kind: &str, field: &str| -> Vec<Value> {
            events
                .iter()
                .filter(|event| event["kind"] == kind)
                .map(|event| event["data"][field].clone())
                .collect()
        };
        assert_eq!(of_kind("UserMessage", "content"), [json!("First"), json!("Second, as typed")], "{agent}");
        assert_eq!(of_kind("AssistantText", "text"), [json!(long.trim_end()), json!("The second answer.")]);
        assert_eq!(of_kind("Complete", "outcome"), [json!("done"), json!("done")], "{agent}: {shown}");
    }
}

#[test]
fn what_claude_says_after_background_work_comes_from_its_transcript_too() {
    let Some(agents) = Agents::find(&["claude"]) else { return };
    let gate = Gate::new();
    let job = json!({"command": "sleep 0.2", "description": "job", "run_in_background": true});
    let server = ModelServer::scripted([
        Answer::new().tool("Bash", job),
        Answer::from("It started."),
        Answer::from("It reported.").hold(&gate),
    ]);
    let home = AgentHome::new(&agents, &server);
    let mut child =
        start(&home, &["run", "-s", "topic", "-a", "claude", "--permission", "all", "Start a job"]);
    server.wait_for_requests(3, LIMIT);
    wait_for_note(&home);
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_dir_all(home.project().join(".azureal/spool")).unwrap();
    gate.open();
    let report = recovery_of(&home);
    assert!(
        report.contains("recovered the last turn of S1 (complete) from Claude Code's transcript\n"),
        "{report}"
    );
    let shown = String::from_utf8(azureal(&home, &["show", "topic", "--json"]).stdout).unwrap();
    let events: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<&Value> = events
        .iter()
        .filter(|event| matches!(event["kind"].as_str(), Some("UserMessage" | "AssistantText")))
        .map(|event| event["data"].as_object().unwrap().values().next().unwrap())
        .collect();
    assert_eq!(texts, ["Start a job", "It started.", "It reported."], "{shown}");
}
