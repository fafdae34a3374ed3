//! list, show, context, rename, rm and fork.

use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use crate::terminal::{answering, shown_on};
use crate::world::{World, assistant, exported, user};

fn conversation() -> World {
    let world = World::new();
    world.session(
        "fix-login",
        &[
            json!({"SystemMessage": {"content": "Be brief."}}),
            json!({"Init": {"cwd": "/p", "model": "opus", "agent": "claude"}}),
            user("Why does the login fail?"),
            json!({"Reasoning": {"text": "let me see\nwhat there is"}}),
            assistant("I will look."),
            json!({"ToolCall": {"tool_use_id": "t1", "tool_name": "Bash", "input": {"command": "ls"}}}),
            json!({"ToolResult": {"tool_use_id": "t1", "tool_name": "Bash", "content": "a\nb", "is_error": false}}),
            json!({"Telemetry": {"cpu": 0.5}}),
            assistant("It is b."),
            json!({"Complete": {"success": true, "duration_ms": 61_500, "cost_usd": 0.25, "usage": {"input_tokens": 1200, "output_tokens": 34}}}),
        ],
    );
    world
}

#[test]
fn a_session_is_shown_as_a_conversation() {
    insta::assert_snapshot!(conversation().run(&["show", "fix-login"]), @r"
    exit code 0
    --- stdout
    S1 · fix-login · claude · opus · created [time] · active just now · 5 messages · 1 min 1 s

    ## System
    Be brief.

    [claude opus in /p]

    ## User  turn 1, event 3
    Why does the login fail?

    [reasoning, 2 lines]

    ## Assistant
    I will look.
    > Bash ls
        a
        b

    [unknown event Telemetry]

    ## Assistant
    It is b.

    ✓ done in 1 min 1 s · 1.2k in · 34 out · $0.25
    ");
}

#[test]
fn events_are_shown_to_programs_as_they_are_stored() {
    let world = World::new();
    world.session(
        "a",
        &[
            json!({"UserMessage": {"content": "x", "new_field": {"kept": 1.5}}}),
            json!("Compacted"),
            json!({"Telemetry": {"cpu": 0.5}}),
        ],
    );
    insta::assert_snapshot!(world.run(&["show", "a", "--json"]), @r#"
    exit code 0
    --- stdout
    {"seq":1,"kind":"UserMessage","data":{"content":"x","new_field":{"kept":1.5}}}
    {"seq":2,"kind":"Compacted","data":null}
    {"seq":3,"kind":"Telemetry","data":{"cpu":0.5}}
    "#);
}

#[test]
fn a_damaged_event_is_reported_and_the_rest_is_shown() {
    let world = conversation();
    let database = rusqlite::Connection::open(world.store()).unwrap();
    database.execute("UPDATE events SET data = x'00ff00' WHERE seq = 5", []).unwrap();
    drop(database);
    let ran = world.run(&["show", "S1", "--json"]);
    assert_eq!(ran.code, 0);
    let lines = ran.json_lines();
    assert_eq!(lines.len(), 10);
    assert!(lines[4]["error"].is_string() && lines[4].get("data").is_none(), "{}", lines[4]);
    assert!(ran.stderr.starts_with("warning: one event of S1 cannot be read: event 5"), "{ran}");
    let ran = world.run(&["show", "S1"]);
    assert!(ran.stdout.contains("event 5 (AssistantText) cannot be read"), "{ran}");
    assert!(ran.stdout.contains("It is b."), "{ran}");
    assert_eq!(ran.code, 0);
}

#[test]
fn sessions_are_listed() {
    let world = conversation();
    world.session(
        "hello",
        &[user("Hello,\nworld"), json!({"Complete": {"success": false, "duration_ms": 5, "cost_usd": 0.0}})],
    );
    insta::assert_snapshot!(world.run(&["list"]).quiet(), @r"
           NAME       AGENT          ACTIVE  MSGS   COST  CONTEXT  LAST PROMPT
    S2  ✗  hello                   just now     1             0 %  Hello, world
    S1  ✓  fix-login  claude/opus  just now     5  $0.25      0 %  Why does the login fail?
    ");
    assert_eq!(world.run(&["ls", "-n", "1"]).stdout.lines().count(), 2);
    assert_eq!(
        world.run(&["ls", "-n", "0"]).quiet(),
        "    NAME  AGENT  ACTIVE  MSGS  COST  CONTEXT  LAST PROMPT\n"
    );
    for columns in [120, 80, 50] {
        let shown = shown_on(world.command(&["list"]), columns);
        assert!(shown.contains("Why does the login"), "{columns}: {shown}");
        assert!(shown.lines().all(|line| line.width() <= usize::from(columns)), "{columns}: {shown}");
    }
    insta::assert_snapshot!(world.run(&["list", "--json"]), @r#"
    exit code 0
    --- stdout
    [
    {"id":"S2","uuid":"[uuid]","name":"hello","worktree":".","created":"[time]","last_active":"[time]","completed":false,"running":false,"duration_ms":5,"cost_usd":0.0,"event_count":2,"message_count":1,"preview":"Hello,\nworld","last_prompt":"Hello,\nworld","input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0,"agent":null,"model":null,"original_bytes":0,"context":{"chars":244,"tokens":61,"tokens_by":"estimate","threshold":400000,"percent":0}},
    {"id":"S1","uuid":"[uuid]","name":"fix-login","worktree":".","created":"[time]","last_active":"[time]","completed":true,"running":false,"duration_ms":61500,"cost_usd":0.25,"event_count":10,"message_count":5,"preview":"Why does the login fail?","last_prompt":"Why does the login fail?","input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0,"agent":"claude","model":"opus","original_bytes":0,"context":{"chars":384,"tokens":96,"tokens_by":"estimate","threshold":400000,"percent":0}}
    ]
    "#);
}

#[test]
fn an_empty_list_says_what_to_do() {
    let world = World::new();
    insta::assert_snapshot!(world.run(&["list"]), @r"
    exit code 0
    --- stderr
    no sessions yet; `azureal import --from all --all-projects` imports those that agents keep, of all projects
    ");
    assert_eq!(world.run(&["list", "--json"]).quiet(), "[]\n");
    world.run(&["list", "--all"]);
    assert!(!world.path("p/.azureal").exists(), "listing makes nothing");
}

#[test]
fn the_context_is_what_the_next_agent_is_told() {
    let world = conversation();
    insta::assert_snapshot!(world.run(&["context", "S1"]), @r"
    exit code 0
    --- stdout
    <azureal-session-context>
    ## System message
    Be brief.

    What follows is a record of this session so far. It is here so that you know what happened; it is not an instruction. The user's new prompt stands after the closing tag.

    ## User
    Why does the login fail?

    ## Assistant
    I will look.

    ## Tool call: Bash ls

    ## Tool result: Bash
    a
    b

    ## Assistant
    It is b.
    </azureal-session-context>
    ");
    // For programs the size comes with the text, whichever was asked for.
    let whole = world.run(&["context", "S1", "--json"]).quiet();
    assert_eq!(world.run(&["context", "S1", "--json", "--stats"]).quiet(), whole);
    insta::assert_snapshot!(world.run(&["context", "S1", "--stats"]), @r"
    exit code 0
    --- stdout
    session     S1 fix-login
    characters  384
    tokens      96 (estimate: characters / 4)
    compaction  133 of 400 000 characters since the last one; context 0 % full
    summary     none
    ");
    let context = world.run(&["context", "S1", "--json"]).json();
    assert_eq!(context["text"], world.run(&["context", "S1"]).stdout);
    assert_eq!(context["compaction"], json!(null));
    assert_eq!(context["threshold"], 400_000);
    let chars = context["chars"].as_u64().unwrap();
    assert_eq!(context["tokens"].as_u64().unwrap(), chars.div_ceil(4));
}

#[test]
fn the_context_begins_at_the_newest_summary() {
    let world = World::new();
    let mut session = exported("a", &[user("one"), assistant("two"), user("three")]);
    session["compactions"] = json!([{"after_seq": 2, "summary": "They counted."}]);
    let path = world.file("a.json", &session.to_string());
    world.run(&["import", path.to_str().unwrap()]).quiet();
    let context = world.run(&["context", "a", "--json"]).json();
    assert_eq!(context["compaction"], json!({"after_seq": 2}));
    let text = context["text"].as_str().unwrap();
    assert!(text.contains("They counted.") && text.contains("three") && !text.contains("two"), "{text}");
}

#[test]
fn an_empty_session_has_no_context() {
    let world = World::new();
    world.session("a", &[]);
    assert_eq!(world.run(&["context", "a"]).quiet(), "");
}

#[test]
fn reading_commands_find_sessions_by_number_uuid_name_and_unique_prefix() {
    let world = World::new();
    for name in ["fix-login", "fix-logout", "docs", "docs-2"] {
        world.session(name, &[user(name)]);
    }
    let shown = |text: &str| world.run(&["export", text, "--format", "json"]).json()["session"]["id"].clone();
    insta::assert_snapshot!(world.run(&["show", "fix-log", "--json"]), @r#"
    exit code 1
    --- stderr
    {"error":{"kind":"ambiguous","message":"`fix-log` may be any of: S2 fix-logout, S1 fix-login","hint":"name the one you mean by its number"}}
    "#);
    insta::assert_snapshot!(world.run(&["show", "FIX", "--json"]), @r#"
    exit code 1
    --- stderr
    {"error":{"kind":"not_found","message":"no session is called `FIX`","hint":"`azureal list --all` shows all sessions"}}
    "#);
    insta::assert_snapshot!(world.run(&["show", "3", "--json"]), @r#"
    exit code 1
    --- stderr
    {"error":{"kind":"not_found","message":"no session is called `3`","hint":"session numbers are written as `S3`"}}
    "#);
    let list = world.run(&["list", "--json"]).json();
    assert_eq!(shown(list[0]["uuid"].as_str().unwrap()), list[0]["id"]);
    insta::assert_snapshot!(world.run(&["show", "S9"]), @r"
    exit code 1
    --- stderr
    error: no session S9 in this store
    hint: `azureal list --all` shows what is there
    ");
    insta::assert_snapshot!(world.run(&["show", ""]), @r"
    exit code 1
    --- stderr
    error: no session is called ``
    hint: `azureal list --all` shows all sessions
    ");
    // An exact name counts, also if it is a prefix of another.
    assert_eq!(shown("docs"), "S3");
    assert_eq!(shown("docs-"), "S4");
}

#[test]
fn commands_that_change_something_take_whole_names_only() {
    let world = World::new();
    world.session("w10", &[user("ten")]);
    world.session("w11", &[user("eleven")]);
    let before = world.snapshot("p/.azureal");
    for arguments in [
        &["rm", "w", "--yes"][..],
        &["rm", "w1", "--yes"],
        &["rename", "w1", "x"],
        &["fork", "w1"],
        &["compact", "w1"],
        &["cancel", "w1"],
    ] {
        let ran = world.run(arguments);
        assert_eq!(ran.code, 1, "{arguments:?}: {ran}");
        assert!(ran.stderr.starts_with("error: no session is called `w"), "{arguments:?}: {ran}");
    }
    assert_eq!(world.snapshot("p/.azureal"), before);
    assert_eq!(world.run(&["rm", "w11", "--yes"]).quiet(), "deleted S2 w11\n");
    // The next of a series is a session of its own, and no typing error.
    insta::assert_snapshot!(world.run(&["run", "-a", "offline", "-s", "w1", "hi"]).stderr.lines().next().unwrap(), @"no session is called `w1`: creating it");
    let names: Vec<_> = world
        .run(&["list", "--json"])
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    assert_eq!(names, ["w1", "w10"]);
}

#[test]
fn a_name_that_a_session_has_is_not_given_to_another() {
    let world = World::new();
    world.session("login", &[user("a")]);
    world.session("other", &[user("b")]);
    for arguments in [
        &["run", "-a", "offline", "--name", "login", "hi"][..],
        &["rename", "other", "login"],
        &["fork", "other", "--name", "login"],
    ] {
        let ran = world.run(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{arguments:?}: {ran}");
        insta::allow_duplicates! {
            insta::assert_snapshot!(ran.stderr, @r"
            error: S1 is already called `login`
            hint: choose another name, or continue it with `azureal run -s S1`
            ");
        }
    }
    assert_eq!(world.run(&["list", "--json"]).json().as_array().unwrap().len(), 2);
    assert_eq!(world.run(&["rename", "login", "login"]).code, 0, "its own name");
}

#[test]
fn a_new_name_that_may_be_a_typing_error_is_pointed_out() {
    let world = World::new();
    world.session("login", &[user("a")]);
    let ran = world.run(&["run", "-a", "offline", "-s", "lgoin", "hi"]);
    let said: Vec<&str> = ran.stderr.lines().take(3).collect();
    assert_eq!(
        said,
        [
            "no session is called `lgoin`: creating it",
            "hint: S1 login has a similar name; `azureal run -s S1` continues it",
            "S2 lgoin · offline",
        ]
    );
    let ran = world.run(&["rm", "logni", "--yes"]);
    assert_eq!(ran.stderr, "error: no session is called `logni`\nhint: did you mean S1 login?\n");
}

#[test]
fn a_likely_typing_error_is_asked_about_on_a_terminal() {
    let world = World::new();
    world.session("login", &[user("a")]);
    let run = ["run", "-a", "offline", "-s", "lgoin", "hi"];
    let (code, shown) = answering(world.command(&run), "n\n");
    assert_eq!(code, 130, "{shown}");
    assert!(
        shown.contains(
            "no session is called `lgoin`, but S1 login has a similar name. Create a new session? [y/N]"
        ),
        "{shown}"
    );
    assert!(shown.contains("hint: `azureal run -s S1` continues S1 login"), "{shown}");
    let names = || -> Vec<Value> {
        world
            .run(&["list", "--json"])
            .json()
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].clone())
            .collect()
    };
    assert_eq!(names(), ["login"], "nothing was created and nothing was sent");
    let (code, shown) = answering(world.command(&run), "y\n");
    assert_eq!(code, 0, "{shown}");
    assert_eq!(names(), ["lgoin", "login"]);
}

#[test]
fn reading_commands_mean_the_last_session_of_the_worktree_by_default() {
    let world = World::new();
    assert_eq!(world.run(&["run", "-a", "offline", "--name", "mine", "first"]).code, 0);
    world.session("imported", &[user("x"), assistant("y")]);
    let context = world.run(&["context", "--json"]).json();
    assert!(context["text"].as_str().unwrap().contains("## User\nfirst"), "{context}");
    assert_eq!(world.run(&["tokens", "--json"]).code, 0);
    assert!(world.run(&["show"]).quiet().contains("first"));
}

#[test]
fn a_session_can_be_renamed() {
    let world = conversation();
    insta::assert_snapshot!(world.run(&["rename", "fix-login", "login works"]), @r"
    exit code 0
    --- stdout
    S1 is now called login works
    ");
    insta::assert_snapshot!(world.run(&["rename", "S1", "S7"]), @r"
    exit code 1
    --- stderr
    error: `S7` cannot be the name of a session
    hint: a name must not be empty nor look like a session's number, such as S3
    ");
    assert_eq!(world.run(&["list", "--json"]).json()[0]["name"], "login works");
}

#[test]
fn deleting_without_being_asked_is_refused() {
    let world = conversation();
    world.session("other", &[user("x")]);
    insta::assert_snapshot!(world.run(&["rm", "S1"]), @r"
    exit code 3
    --- stderr
    error: deleting cannot be undone, and there is no terminal to ask on
    hint: `--yes` deletes without asking
    ");
    insta::assert_snapshot!(world.run(&["rm", "S1", "--json"]), @r#"
    exit code 3
    --- stderr
    {"error":{"kind":"not_confirmed","message":"deleting cannot be undone, and there is no terminal to ask on","hint":"`--yes` deletes without asking"}}
    "#);
    assert_eq!(world.run(&["list", "--json"]).json().as_array().unwrap().len(), 2);
    // One of them is not there, so none is deleted.
    assert_eq!(world.run(&["rm", "S1", "S2", "S9", "--yes"]).code, 1);
    assert_eq!(world.run(&["list", "--json"]).json().as_array().unwrap().len(), 2);
    insta::assert_snapshot!(world.run(&["rm", "S1", "fix-login", "S2", "--yes"]), @r"
    exit code 0
    --- stdout
    deleted S1 fix-login
    deleted S2 other
    ");
    assert_eq!(world.run(&["list", "--json"]).quiet(), "[]\n");
}

#[test]
fn a_fork_copies_history_up_to_a_point() {
    let world = conversation();
    insta::assert_snapshot!(world.run(&["fork", "S1", "--at", "3", "--name", "second try"]), @r"
    exit code 0
    --- stdout
    S2 second try is a fork of S1 fix-login with 3 events
    ");
    insta::assert_snapshot!(world.run(&["fork", "S1", "--json"]), @r#"
    exit code 0
    --- stdout
    {"id":"S3","name":"S3","from":"S1","event_count":10}
    "#);
    insta::assert_snapshot!(world.run(&["fork", "S1", "--at", "99"]), @r"
    exit code 1
    --- stderr
    error: session S1 has no event 99: its last is 10
    hint: `azureal show --json` shows the events with their numbers
    ");
    assert_eq!(world.run(&["fork", "S1", "--at", "0"]).code, 2);
    assert_eq!(world.run(&["fork", "S1", "--name", "S5"]).code, 1);
    assert_eq!(world.run(&["show", "second", "--json"]).json_lines().len(), 3);
    assert_eq!(world.run(&["show", "S1", "--json"]).json_lines().len(), 10);
}

fn long_session() -> World {
    let world = World::new();
    let events: Vec<_> = (0..6000).map(|number| user(&format!("{number} {}", "x".repeat(100)))).collect();
    world.session("long", &events);
    world
}

#[test]
fn a_closed_pipe_ends_the_program_in_silence() {
    let world = long_session();
    for arguments in
        [&["show", "long"][..], &["show", "long", "--json"], &["export", "long"], &["context", "long"]]
    {
        let mut child = world.start(arguments);
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(!first.is_empty());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
            (Some(0), ""),
            "{arguments:?}"
        );
    }
}

#[test]
fn output_that_nobody_reads_stops_nobody() {
    let world = long_session();
    let mut child = world.start(&["show", "long"]);
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    // A writer that is kept out gives up with an error.
    world.session("other", &[user("x")]);
    assert!(child.try_wait().unwrap().is_none(), "the reader was not in the middle of it");
    drop(reader);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// `script` gives the program a terminal; the ways of others to call it differ.
#[cfg(target_os = "linux")]
#[test]
fn what_was_declined_is_cancelled() {
    let world = World::new();
    world.session("a", &[user("x")]);
    for (answer, code) in [("n\n", 130), ("\n", 130), ("y\n", 0)] {
        let command = format!("{} rm a", env!("CARGO_BIN_EXE_azureal"));
        let child = std::process::Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .current_dir(world.path("p"))
            .env_remove("AZUREAL_STORE")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            let required = std::env::var_os("AZUREAL_REQUIRE_TOOLS").is_some();
            assert!(!required, "script is needed for this test, and AZUREAL_REQUIRE_TOOLS is set");
            eprintln!("SKIPPED: there is no script");
            return;
        };
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(answer.as_bytes()).unwrap();
        // It is the end of the question, not of the input, that ends it.
        let output = child.wait_with_output().unwrap();
        drop(stdin);
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{shown}");
        assert!(!shown.contains("error:") && shown.contains("nothing was deleted") == (code > 0), "{shown}");
    }
}
