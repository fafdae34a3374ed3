//! Secrets on their way out: masked in exports and in the log, kept in the store.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use azureal_core::without_control_sequences;
use azureal_testkit::until;
use serde_json::json;

use crate::world::{Ran, World, assistant, user};

/// Secrets of several kinds. Put together here, so that no scanner of repositories finds one.
fn secrets() -> [(&'static str, String); 5] {
    let body = "a1B2c3D4e5F6g7H8i9J0";
    let key = format!(
        "{0} {1}\n{2}\n{2}\n{3} {1}",
        "-----BEGIN",
        "PRIVATE KEY-----",
        "MIIEvQIB".repeat(8),
        "-----END"
    );
    [
        ("github", format!("{}{body}{}", "ghp_", &body[..16])),
        ("anthropic", format!("{}{body}{body}", "sk-ant-api03-")),
        ("password", "hunter2-and-more".to_owned()),
        ("private key", key),
        ("own", "ACME-778899".to_owned()),
    ]
}

/// A session that has every secret in another place.
fn session(world: &World) {
    let [github, anthropic, password, key, own] = secrets().map(|(_, secret)| secret);
    world.session(
        "leaky",
        &[
            user(&format!("Use {github} to push")),
            json!({"ToolCall": {"tool_use_id": "t1", "tool_name": "Bash", "input": {"command": format!("curl -H 'x-api-key: {anthropic}' https://api"), "password": password}}}),
            json!({"ToolResult": {"tool_use_id": "t1", "tool_name": "Bash", "content": format!("DB_PASSWORD={password}\n{key}\ndone"), "is_error": false}}),
            // As tools print them on a terminal, the key in two colours.
            json!({"ToolResult": {"tool_use_id": "t1", "tool_name": "Bash", "content": format!(
                "\u{1b}[1mDB_PASSWORD\u{1b}[0m=\u{1b}[32m{password}\u{1b}[0m \u{1b}[31m{}\u{1b}[m\u{1b}[K{}", &github[..4], &github[4..]
            )}}),
            assistant(&format!("The ticket is {own}.")),
        ],
    );
    world.file("own/.config/azureal/azufig.toml", "[redact]\npatterns = ['ACME-\\d+']\n");
}

fn run(world: &World, arguments: &[&str]) -> Ran {
    let mut command = world.command(arguments);
    command.env("HOME", world.path("own"));
    world.ran(command.output().unwrap())
}

/// Returns the names of the secrets that a text has, also escaped as in JSON and with colours in them.
fn found_in(text: &str) -> Vec<&'static str> {
    let text = text.replace("\\u001b", "\u{1b}");
    let text = without_control_sequences(&text);
    let is_in = |secret: &str| {
        let first = secret.lines().nth(1).unwrap_or(secret);
        text.contains(first)
    };
    secrets().iter().filter(|(_, secret)| is_in(secret)).map(|(name, _)| *name).collect()
}

#[test]
fn an_export_in_every_format_masks_secrets_and_a_raw_one_has_them() {
    let world = World::new();
    session(&world);
    let before = run(&world, &["show", "leaky", "--json"]).stdout;
    assert!(run(&world, &["config"]).quiet().contains("ACME-"), "the patterns are shown");
    for format in ["json", "markdown", "html", "openai", "anthropic", "cllm", "axio", "claude", "codex"] {
        let masked = run(&world, &["export", "leaky", "--format", format]);
        assert_eq!((masked.code, found_in(&masked.stdout)), (0, vec![]), "{format}: {masked}");
        for mask in ["github token", "password", "private key", "own pattern"] {
            assert!(masked.stdout.contains(&format!("[redacted: {mask}]")), "{format}, {mask}: {masked}");
        }
        assert!(masked.stdout.contains("to push") && masked.stdout.contains("done"), "{format}: {masked}");
        assert_eq!(
            masked.stderr,
            "warning: secrets are masked in 5 events of S1; `--raw` exports them as they are\n"
        );
        if ["json", "openai", "anthropic", "cllm", "axio"].contains(&format) {
            masked.json();
        }
        let raw = run(&world, &["export", "leaky", "--format", format, "--raw"]);
        let expected = ["github", "anthropic", "password", "private key", "own"];
        assert_eq!(
            (raw.code, found_in(&raw.stdout), raw.stderr.as_str()),
            (0, expected.to_vec(), ""),
            "{format}"
        );
    }
    let written = run(&world, &["export", "leaky", "-o", "leaky.json"]);
    assert_eq!(written.code, 0, "{written}");
    assert_eq!(found_in(&fs::read_to_string(world.path("p/leaky.json")).unwrap()), [""; 0]);
    assert_eq!(run(&world, &["show", "leaky", "--json"]).stdout, before, "the store has all of it");
}

#[test]
fn names_and_ids_are_masked() {
    let world = World::new();
    let [(_, secret), ..] = secrets();
    let call = json!({"tool_use_id": secret, "tool_name": secret, "file_path": secret, "input": {&secret: secret, "command": secret}});
    let events = [
        json!({"SystemMessage": {"content": secret, "context_executed_at": "t", "context_commands": [{"name": secret, "command": secret}]}}),
        user("hi"),
        json!({"Init": {"cwd": secret, "model": secret, "agent": secret, "agent_session": secret}}),
        json!({"ToolCall": call}),
        json!({"ToolResult": {"tool_use_id": secret, "tool_name": secret, "content": secret, "detail": secret}}),
        json!({"Changes": {"worktree": secret, "files": [{"path": secret, "from": secret}]}}),
        json!({secret.clone(): {"x": 1}}),
        json!({"Error": {"message": secret, "kind": secret}}),
    ];
    let mut session = crate::world::exported(&format!("of {secret}"), &events);
    for field in ["worktree", "agent", "model"] {
        session["session"][field] = json!(secret);
    }
    session["compactions"] = json!([{"after_seq": 2, "summary": secret, "created": "", "writer": secret}]);
    let file = world.file("session.json", &session.to_string());
    assert_eq!(world.run(&["import", file.to_str().unwrap()]).code, 0);
    for format in [
        "json",
        "markdown",
        "html",
        "openai",
        "anthropic",
        "cllm",
        "axio",
        "claude",
        "codex",
        "gemini",
        "qwen",
    ] {
        let masked = world.run(&["export", "S1", "-f", format]);
        assert!(masked.code == 0 && !masked.stdout.contains(&secret), "{format}: {masked}");
    }
}

#[test]
fn values_of_the_environment_are_masked() {
    let world = World::new();
    world.session("s", &[user("it says: correct horse battery 9")]);
    let mut command = world.command(&["export", "s", "-f", "markdown"]);
    command.env("DEPLOY_TOKEN", "correct horse battery 9");
    let ran = world.ran(command.output().unwrap());
    assert!(ran.stdout.contains("it says: [redacted: value of DEPLOY_TOKEN]"), "{ran}");
}

#[test]
fn a_raw_export_comes_back_and_a_masked_one_is_another_session() {
    let world = World::new();
    session(&world);
    run(&world, &["export", "leaky", "--raw", "-o", "raw.json"]).quiet();
    assert!(run(&world, &["import", "raw.json"]).quiet().contains("unchanged"));
    run(&world, &["export", "leaky", "-o", "masked.json"]);
    let imported = run(&world, &["import", "masked.json"]);
    assert!(imported.code == 0 && imported.stdout.contains("S2"), "{imported}");
    let copied = run(&world, &["copy", "--session", "S1", "--to", "other.azs"]);
    assert_eq!(copied.code, 0, "{copied}");
    let shown = run(&world, &["show", "leaky", "--json", "--store", "other.azs"]);
    assert_eq!(found_in(&shown.stdout).len(), 5, "a copy changes no byte: {shown}");
}

#[test]
fn the_log_has_no_secret() {
    let world = World::new();
    let [(_, github), ..] = secrets();
    // The log names the files of the configuration.
    let home = format!("{github}/own");
    world.file(&format!("{home}/.config/azureal/azufig.toml"), "model = 'sonnet'\n");
    let mut command = world.command(&["config"]);
    command.env("HOME", world.path(&home)).env("AZUREAL_LOG", world.path("x.log"));
    let ran = world.ran(command.output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    let log = fs::read_to_string(world.path("x.log")).unwrap();
    assert!(log.contains("[redacted: github token]/own") && !log.contains(&github), "{log}");
}

#[test]
fn a_pattern_that_cannot_be_used_is_named() {
    let world = World::new();
    world.session("s", &[user("hi")]);
    world.file("own/.config/azureal/azufig.toml", "[redact]\npatterns = ['fine', '(oops']\n");
    insta::assert_snapshot!(run(&world, &["export", "s"]), @r"
    exit code 1
    --- stderr
    error: [folder]/own/.config/azureal/azufig.toml:2:21: the pattern `(oops` cannot be used: unclosed group
    hint: `azureal config --help` shows what a configuration file may hold; nothing was run
    ");
    // Nothing is masked by a raw export.
    assert_eq!(run(&world, &["export", "s", "--raw"]).code, 0);
    let mut command = world.command(&["list"]);
    command.env("HOME", world.path("own")).env("AZUREAL_LOG", world.path("x.log"));
    let ran = world.ran(command.output().unwrap());
    assert!(
        ran.code == 0 && ran.stderr.contains("nothing is logged") && ran.stderr.contains("(oops"),
        "{ran}"
    );
    assert!(!world.path("x.log").exists());
}

#[test]
fn a_project_cannot_say_what_is_masked() {
    let world = World::new();
    world.file("p/.azureal/azufig.toml", "[redact]\npatterns = ['.']\n");
    insta::assert_snapshot!(run(&world, &["config"]), @r"
    exit code 1
    --- stderr
    error: [folder]/p/.azureal/azufig.toml:1:2: a project's file cannot set `redact`; set it in your own azufig.toml
    hint: `azureal config --help` shows what a configuration file may hold; nothing was run
    ");
    // It has no say in an export.
    world.session("s", &[user("hi")]);
    assert!(run(&world, &["export", "s"]).quiet().contains("hi"));
}

#[test]
fn full_events_are_masked_while_they_arrive_and_afterwards() {
    let world = World::new();
    let [github, ..] = secrets().map(|(_, secret)| secret);
    let text = json!({"type": "assistant", "message": {"content": [{"type": "text", "text": format!("Use {github} now")}]}});
    let end = json!({"type": "result", "subtype": "success", "is_error": false, "result": "x"});
    world.program(
        "claude",
        &format!("cat > /dev/null\necho '{text}'\nwhile [ ! -e go ]; do sleep 0.05; done\necho '{end}'"),
    );
    let mut turn = world
        .with_programs(&["run", "-s", "work", "-a", "claude", "hi"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the agent has answered", || {
        let ran = world.run(&["list", "--json"]);
        ran.json().as_array().unwrap().first().is_some_and(|session| session["running"] == true).then_some(())
    });
    let mut follower = world.command(&["show", "-f", "--full", "work"]);
    let mut follower = follower.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let live = lines.find_map(|line| line.ok().filter(|line| line.starts_with("Use "))).unwrap();
    assert_eq!(live, "Use [redacted: github token] now");
    world.file("p/go", "");
    assert!(turn.wait().unwrap().success());
    follower.kill().unwrap();
    follower.wait().unwrap();
    let stored = world.run(&["show", "--full", "work"]);
    assert!(stored.stdout.contains("Use [redacted: github token] now"), "{stored}");
    assert!(stored.stderr.contains("secrets are masked in 1 event"), "{stored}");
    assert!(world.run(&["show", "--full", "--raw", "work"]).stdout.contains(&github));
}
