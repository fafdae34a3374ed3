//! Outputs that Claude Code keeps in files beside its transcript.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use azureal_testkit::model_server::{Answer, ModelServer};
use azureal_testkit::real_agents::{AgentHome, Agents};
use serde_json::{Value, json};

use crate::import_native::{FIRST, claude_line, project, write};
use crate::real_agents::Real;
use crate::world::{Ran, World};

/// An id that no program has made.
const OTHER: &str = "99999999-2222-4333-8444-555555555555";

/// What `seq 1 60000` prints.
fn whole() -> String {
    (1..=60_000).map(|number| format!("{number}\n")).collect()
}

fn command(world: &World, arguments: &[&str]) -> Command {
    let mut command = world.with_programs(arguments);
    command.env("HOME", world.path("person"));
    command
}

fn run(world: &World, arguments: &[&str]) -> Ran {
    world.ran(command(world, arguments).output().unwrap())
}

/// The folder of the project's sessions of Claude Code.
fn folder(world: &World) -> String {
    let name = project(world).replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    format!("person/.claude/projects/{name}")
}

/// The message with the result of a call, as Claude Code cuts it, and its own form of the result.
fn cut_result(call: &str, path: &str) -> (Value, Value) {
    let text = format!(
        "<persisted-output>\nOutput too large (340.7KB). Full output saved to: {path}\n\nPreview (first 2KB):\n1\n2\n3\n...\n</persisted-output>"
    );
    let result = json!({"type": "tool_result", "tool_use_id": call, "content": text});
    let own = json!({"stdout": "1\n2\n3\n", "stderr": "", "persistedOutputPath": path, "persistedOutputSize": 348_894});
    (json!({"role": "user", "content": [result]}), own)
}

fn call_message(calls: &[&str]) -> Value {
    let call = |id: &&str| json!({"type": "tool_use", "id": id, "name": "Bash", "input": {"command": "seq 1 60000"}});
    json!({
        "id": "m", "role": "assistant", "model": "opus", "stop_reason": "tool_use",
        "content": calls.iter().map(call).collect::<Vec<_>>(),
    })
}

/// A program that prints these calls, whose outputs it keeps at these paths.
fn claude(world: &World, outputs: &[(&str, &str)]) {
    let calls: Vec<&str> = outputs.iter().map(|(call, _)| *call).collect();
    let mut lines = vec![
        json!({"type": "system", "subtype": "init", "session_id": FIRST, "model": "opus", "cwd": "/p"}),
        json!({"type": "assistant", "session_id": FIRST, "message": call_message(&calls)}),
    ];
    for (call, path) in outputs {
        let (message, own) = cut_result(call, path);
        lines.push(json!({"type": "user", "session_id": FIRST, "message": message, "tool_use_result": own}));
    }
    lines.push(json!({"type": "result", "subtype": "success", "is_error": false, "result": "Counted."}));
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    world.file("printed.jsonl", &lines);
    world.program("claude", &format!("cat > /dev/null\ncat '{}'", world.path("printed.jsonl").display()));
}

/// Writes the transcript of the same, as an earlier session of the user.
fn transcript(world: &World, id: &str, outputs: &[(&str, &str)]) -> PathBuf {
    let cwd = project(world);
    let calls: Vec<&str> = outputs.iter().map(|(call, _)| *call).collect();
    let mut lines = vec![
        claude_line(&cwd, id, 0, "user", &json!({"role": "user", "content": "Count"})),
        claude_line(&cwd, id, 1, "assistant", &call_message(&calls)),
    ];
    for (call, path) in outputs {
        let (message, own) = cut_result(call, path);
        let mut line = claude_line(&cwd, id, lines.len(), "user", &message);
        line["toolUseResult"] = own;
        lines.push(line);
    }
    let answer = json!({
        "id": "n", "role": "assistant", "model": "opus", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Counted."}],
    });
    lines.push(claude_line(&cwd, id, lines.len(), "assistant", &answer));
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    write(world, &format!("{}/{id}.jsonl", folder(world)), &lines)
}

fn forget_home(world: &World) {
    fs::remove_dir_all(world.path("person")).unwrap();
    fs::create_dir(world.path("person")).unwrap();
}

/// Returns the results of a session in their full form.
fn full_results(world: &World, session: &str) -> Vec<Value> {
    let shown = run(world, &["show", session, "--full", "--json"]);
    assert_eq!(shown.code, 0, "{shown}");
    shown.json_lines().into_iter().filter(|event| event["kind"] == "ToolResult").collect()
}

/// Asserts that a session has the whole output of its one call, wherever it is asked for.
#[track_caller]
fn assert_whole(world: &World, session: &str) {
    let [result] = &full_results(world, session)[..] else {
        panic!("{session} has another number of results")
    };
    assert!(result["data"]["content"] == whole(), "{session}: {result}");
    let shown = run(world, &["show", session, "--full"]).quiet();
    assert!(shown.contains("    31337\n") && shown.contains("    60000\n"), "{shown}");
    let exported = run(world, &["export", session, "--full", "--format", "json"]).quiet();
    assert!(exported.contains("31336\\n31337\\n31338"), "{session}");
    let found = run(world, &["search", "--full", "31337", "--session", session]);
    assert!(found.stdout.contains("31337"), "{found}");
    // The line of the agent, and that with the whole output.
    let lines = run(world, &["original", session, "--seq", &result["seq"].to_string()]).quiet();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["type"], "user");
    assert_eq!(lines[1]["azureal"]["output"]["text"], whole());
    // Stored events stay short.
    let short = run(world, &["show", session]).quiet();
    assert!(!short.contains("31337"), "{short}");
}

#[test]
fn the_whole_output_of_a_turn_is_there_when_the_home_of_the_agent_is_gone() {
    let world = World::new();
    let path = format!("{}/{FIRST}/tool-results/b1.txt", folder(&world));
    world.file(&path, &whole());
    write(&world, &format!("{}/{FIRST}.jsonl", folder(&world)), &["{}".to_owned()]);
    claude(&world, &[("call", world.path(&path).to_str().unwrap())]);
    let ran = run(&world, &["run", "-a", "claude", "Count"]);
    assert_eq!(ran.code, 0, "{ran}");
    forget_home(&world);
    assert_whole(&world, "S1");
    let printed = fs::read_to_string(world.path("printed.jsonl")).unwrap();
    let original = command(&world, &["original", "S1"]).output().unwrap().stdout;
    let original = String::from_utf8(original).unwrap();
    let own = original.strip_prefix(&printed).unwrap();
    assert!(own.starts_with(r#"{"azureal":{"output":"#) && own.lines().count() == 1, "{own}");
    // What is copied has it too, and nothing is wrong with it.
    run(&world, &["fork", "S1"]).quiet();
    assert_whole(&world, "S2");
    let target = world.path("copy.azs");
    assert_eq!(run(&world, &["copy", "--to", target.to_str().unwrap()]).code, 0);
    let copied = run(&world, &["--store", target.to_str().unwrap(), "show", "S1", "--full"]).quiet();
    assert!(copied.contains("    31337\n"), "{copied}");
    let checked = run(&world, &["doctor"]);
    assert_eq!(checked.code, 0, "{checked}");
}

#[test]
fn an_imported_session_has_the_whole_outputs_that_are_still_there() {
    let world = World::new();
    let path = format!("{}/{FIRST}/tool-results/b1.txt", folder(&world));
    world.file(&path, &whole());
    // The program of another machine named it by another path.
    transcript(&world, FIRST, &[("call", "/elsewhere/.claude/projects/p/s/tool-results/b1.txt")]);
    transcript(&world, OTHER, &[("gone", "/elsewhere/.claude/projects/p/s/tool-results/b1.txt")]);
    let ran = run(&world, &["import", "--from", "claude"]);
    assert!(ran.code == 0 && ran.stderr.is_empty(), "{ran}");
    forget_home(&world);
    let sessions = run(&world, &["list", "--json"]).json();
    let ids: Vec<&str> =
        sessions.as_array().unwrap().iter().map(|session| session["id"].as_str().unwrap()).collect();
    let is_whole = |id: &&&str| full_results(&world, id)[0]["data"]["content"] == whole();
    assert_eq!(ids.len(), 2);
    let with_whole: Vec<&&str> = ids.iter().filter(is_whole).collect();
    assert_eq!(with_whole.len(), 1, "the other session has an output of the same name, which is gone");
    assert_whole(&world, with_whole[0]);
}

/// Puts secrets where no output of the session is, and returns the paths that a transcript names.
fn secrets(world: &World) -> Vec<String> {
    world.file("person/.claude/.credentials.json", "the secret token");
    world.file("person/.claude/secret.txt", "the secret token");
    let others = format!("{}/{OTHER}/tool-results/b1.txt", folder(world));
    world.file(&others, "the secret token");
    let own = world.path(&format!("{}/{FIRST}/tool-results", folder(world)));
    fs::create_dir_all(&own).unwrap();
    symlink(world.path("person/.claude/.credentials.json"), own.join("link.txt")).unwrap();
    symlink(world.path("person/.claude"), own.join("up")).unwrap();
    let named = [
        world.path("person/.claude/.credentials.json"),
        world.path("person/.claude/secret.txt"),
        world.path(&others),
        own.join("link.txt"),
        own.join("up/secret.txt"),
        own.join("../../../../secret.txt"),
    ];
    named.iter().map(|path| path.to_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn assert_nothing_secret(world: &World) {
    let shown =
        [&["original", "S1"][..], &["show", "S1", "--full"], &["export", "S1", "--full", "--format", "json"]];
    for arguments in shown {
        let shown = run(world, arguments).quiet();
        assert!(!shown.contains("the secret"), "{arguments:?}: {shown}");
    }
    for result in full_results(world, "S1") {
        let content = result["data"]["content"].as_str().unwrap();
        assert!(content.starts_with("<persisted-output>"), "what the agent printed stays: {content}");
    }
}

#[test]
fn a_turn_that_names_credentials_or_the_output_of_another_session_gets_nothing() {
    let world = World::new();
    let paths = secrets(&world);
    let calls: Vec<String> = (0..paths.len()).map(|number| format!("call{number}")).collect();
    let outputs: Vec<(&str, &str)> =
        calls.iter().map(String::as_str).zip(paths.iter().map(String::as_str)).collect();
    write(&world, &format!("{}/{FIRST}.jsonl", folder(&world)), &["{}".to_owned()]);
    claude(&world, &outputs);
    let ran = run(&world, &["run", "-a", "claude", "Count"]);
    assert_eq!(ran.code, 0, "{ran}");
    for (file, why) in [("link.txt", "is no plain file"), ("secret.txt", "does not exist any more")] {
        let told = format!("the whole output in `{file}` is not kept: its file {why}");
        assert!(ran.stderr.contains(&told), "{ran}");
    }
    assert_nothing_secret(&world);
}

#[test]
fn a_transcript_that_names_credentials_or_the_output_of_another_session_gets_nothing() {
    let world = World::new();
    let paths = secrets(&world);
    let calls: Vec<String> = (0..paths.len()).map(|number| format!("call{number}")).collect();
    let outputs: Vec<(&str, &str)> =
        calls.iter().map(String::as_str).zip(paths.iter().map(String::as_str)).collect();
    let transcript = transcript(&world, FIRST, &outputs);
    let ran = run(&world, &["import", transcript.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(
        ran.stderr.contains("the whole output in `link.txt` is not kept: its file is no plain file"),
        "{ran}"
    );
    assert_nothing_secret(&world);
}

#[test]
fn the_real_claude_keeps_its_whole_output_in_the_original_of_the_turn() {
    let server = ModelServer::scripted([
        Answer::new().tool("Bash", json!({"command": "seq 1 60000", "description": "Count"})),
        Answer::new().text("Counted."),
    ]);
    let Some(agents) = Agents::find(&["claude"]) else { return };
    let real = Real { home: AgentHome::new(&agents, &server) };
    let ran = real.run(&["run", "-s", "work", "-a", "claude", "--permission", "all", "Count"]);
    assert_eq!(ran.code, 0, "{ran}");
    fs::remove_dir_all(real.home.claude_config_dir()).unwrap();
    let shown = real.run(&["show", "work", "--full", "--json"]).json_lines();
    let results: Vec<&Value> = shown.iter().filter(|event| event["kind"] == "ToolResult").collect();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["data"]["content"].as_str().unwrap().trim_end(), whole().trim_end());
}
