//! What the next agent is told of a turn: with the real agents, as the model server sees it.

use std::fs;

use azureal_testkit::model_server::{Answer, ModelServer};
use azureal_testkit::project::git_repository;
use serde_json::json;

use crate::real_agents::Real;

/// A test run that fails in the middle of a long output.
const FAILING: &str = "for i in $(seq 40); do echo \"test number_$i ... ok\"; done; \
    echo 'test login ... FAILED'; echo 'assertion `left == right` failed'; echo '  left: 401'; echo ' right: 200'; \
    for i in $(seq 40); do echo \"note $i\"; done; exit 1";

fn project(server: &ModelServer) -> Option<Real> {
    let real = Real::new(server)?;
    let project = real.home.project();
    fs::write(project.join("login.txt"), "first\nwrong\nlast\n").unwrap();
    fs::write(project.join("notes.txt"), "old note\n").unwrap();
    git_repository(&project);
    Some(real)
}

/// Returns what the model was sent last, all of it.
fn last_request(server: &ModelServer) -> String {
    server.requests().last().unwrap().user_texts().join("\n")
}

#[track_caller]
fn run(real: &Real, agent: &str, prompt: &str) {
    let arguments = ["run", "-s", "work", "-a", agent, "--permission", "all", prompt];
    let ran = real.run(&arguments);
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn codex_is_told_the_edit_of_claude_and_the_assertion_that_failed() {
    let server = ModelServer::scripted::<Answer>([]);
    let Some(real) = project(&server) else { return };
    let file = real.home.project().join("login.txt");
    server.push(Answer::new().tool("Read", json!({"file_path": file})));
    let edit = json!({"file_path": file, "old_string": "wrong", "new_string": "right"});
    server.push(Answer::new().tool("Edit", edit));
    server.push(Answer::new().tool("Bash", json!({"command": FAILING, "description": "Run the tests"})));
    server.push("The test still fails.");
    run(&real, "claude", "Fix the login");
    server.push("I see.");
    run(&real, "codex", "Your turn");
    let told = last_request(&server);
    for expected in
        ["-wrong\n+right", "test login ... FAILED", "assertion `left == right` failed", "left: 401"]
    {
        assert!(told.contains(expected), "`{expected}` is missing: {told}");
    }
    assert!(!told.contains("number_20 "), "not all of the output: {told}");
    assert!(told.contains("## Changes during this turn\n- modified login.txt +1 −1"), "{told}");
    assert_eq!(told.matches("+right").count(), 1, "the diff is there once: {told}");
}

#[test]
fn claude_is_told_the_edit_of_codex_and_what_a_command_changed() {
    let patch = "*** Begin Patch\n*** Update File: login.txt\n@@\n-wrong\n+right\n*** End Patch\n";
    let server = ModelServer::scripted::<Answer>([]);
    let Some(real) = project(&server) else { return };
    server.push(Answer::new().custom_tool("apply_patch", patch));
    server.push(Answer::new().tool("exec_command", json!({"cmd": "sed -i 's/old/new/' notes.txt"})));
    server.push(Answer::new().tool("exec_command", json!({"cmd": FAILING})));
    server.push("Done.");
    run(&real, "codex", "Fix the login");
    // Codex names its model in its own transcript only.
    let listed = real.run(&["list", "--json"]).json();
    assert!(listed[0]["model"].as_str().is_some_and(|model| !model.is_empty()), "{listed}");
    assert_eq!(fs::read_to_string(real.home.project().join("notes.txt")).unwrap(), "new note\n");
    server.push("I see.");
    run(&real, "claude", "Your turn");
    let told = last_request(&server);
    for expected in ["-wrong\n+right", "-old note\n+new note", "assertion `left == right` failed"] {
        assert!(told.contains(expected), "`{expected}` is missing: {told}");
    }
    assert!(told.contains("- modified login.txt +1 −1\n- modified notes.txt +1 −1"), "{told}");
    assert_eq!(told.matches("+right").count(), 1, "the diff is there once: {told}");
    assert_eq!(told.matches("+new note").count(), 1, "{told}");
}
