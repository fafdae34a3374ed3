//! Recall for agents: the real programs look things up in stored sessions, as the model server sees it.

use std::fs;

use azureal_testkit::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

use crate::real_agents::Real;

/// A fact in the middle of a long output. A stored event does not have it.
const LONG_OUTPUT: &str = "for i in $(seq 200); do echo \"line $i\"; done; echo \"the relay listens at $((48000 + 151))\"; for i in $(seq 200); do echo \"line $i\"; done";

/// Returns a project with recall and with a session in which Claude has seen the fact.
fn project(server: &ModelServer) -> Option<Real> {
    let real = Real::new(server)?;
    let config = real.home.home().join(".config/azureal");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("azufig.toml"), "[recall]\nenabled = true\n").unwrap();
    server.push(Answer::new().tool("Bash", json!({"command": LONG_OUTPUT, "description": "Ask the relay"})));
    server.push("The relay answers.");
    let ran = real.run(&[
        "run",
        "-s",
        "relay",
        "-a",
        "claude",
        "--permission",
        "all",
        "Ask the relay for its port",
    ]);
    assert_eq!(ran.code, 0, "{ran}");
    let stored = real.run(&["show", "relay", "--json"]).stdout;
    assert!(!stored.contains("48151"), "only the original has it: {stored}");
    Some(real)
}

/// Returns the call of a recall tool as the model of an agent makes it.
fn call(agent: &str, id: &str, tool: &str, input: &Value) -> Answer {
    if agent == "claude" {
        return Answer::new().tool(&format!("mcp__azureal__{tool}"), input.clone());
    }
    Answer::new().raw(json!({
        "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "status": "completed",
        "namespace": "mcp__azureal", "name": tool, "arguments": input.to_string(),
    }))
}

#[track_caller]
fn recall(agent: &str) {
    let server = ModelServer::scripted::<Answer>([]);
    let Some(real) = project(&server) else { return };
    server.push(call(agent, "a", "list_sessions", &json!({})));
    server.push(call(agent, "c", "search_sessions", &json!({"query": "relay listens", "original": true})));
    server.push(call(agent, "b", "read_session", &json!({"session": "S1", "original": true})));
    server.push("It listens at 48151.");
    let ran =
        real.run(&["run", "-s", "work", "-a", agent, "--permission", "read", "Which port has the relay?"]);
    assert_eq!(ran.code, 0, "{ran}");
    let results = server.requests().last().unwrap().tool_results();
    assert!(results.iter().any(|result| result.contains("S1 relay · claude")), "{results:?}");
    assert!(results.iter().any(|result| result.contains("S2 work · the current session")), "{results:?}");
    let [.., found, read] = results.as_slice() else { panic!("{results:?}") };
    assert!(found.contains("S1 relay · event 4") && found.contains("the relay listens at 48151"), "{found}");
    assert!(!found.contains("S2"), "{found}");
    assert!(read.contains("the relay listens at 48151"), "{read}");
}

#[test]
fn claude_reads_in_an_original_what_no_event_has() {
    recall("claude");
}

#[test]
fn codex_reads_in_an_original_what_no_event_has() {
    recall("codex");
}

#[test]
fn a_compacted_context_says_that_the_covered_events_can_be_read() {
    let server = ModelServer::scripted::<Answer>([]);
    let Some(real) = project(&server) else { return };
    for answer in ["long ".repeat(4_000), "short".to_owned()] {
        server.push(answer.as_str());
        let ran = real.run(&["run", "-s", "relay", "-a", "claude", "--permission", "read", "Tell me more"]);
        assert_eq!(ran.code, 0, "{ran}");
    }
    let compacted = real.run(&["compact", "relay", "--agent", "offline", "--keep", "1"]);
    assert_eq!(compacted.code, 0, "{compacted}");
    server.push("I see.");
    let ran = real.run(&["run", "-s", "relay", "-a", "codex", "--permission", "read", "Go on"]);
    assert_eq!(ran.code, 0, "{ran}");
    let told = server.requests().last().unwrap().user_texts().join("\n");
    assert!(told.contains("covers events 1 to "), "{told}");
    assert!(told.contains("of session S1") && told.contains("original=true"), "{told}");
    let stored = real.run(&["show", "relay", "--json"]).stdout;
    assert!(!stored.contains("covers events 1 to"), "it belongs to one turn: {stored}");
}

#[test]
fn without_the_setting_no_agent_has_the_tools() {
    let server = ModelServer::scripted(["Hello."]);
    let Some(real) = Real::new(&server) else { return };
    let ran = real.run(&["run", "-a", "claude", "--permission", "read", "Hello"]);
    assert_eq!(ran.code, 0, "{ran}");
    let tools = server.requests().last().unwrap().tools().join(" ");
    assert!(!tools.contains("azureal"), "{tools}");
}
