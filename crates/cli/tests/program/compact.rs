//! compact, tokens and show --digest.

use std::fs;
use std::process::{Command, Stdio};

use azureal_testkit::until;
use serde_json::{Value, json};

use crate::world::{Ran, World, assistant, user};

/// A project with one session of five prompts, each with a long answer.
fn world() -> World {
    let world = World::new();
    let turns = (1..=5).flat_map(|number| {
        let prompt = user(&format!("Prompt {number}: fix the login. You must not touch the tests."));
        [prompt, assistant(&format!("Answer {number}. {}", "It took a while. ".repeat(100)))]
    });
    world.session("work", &turns.collect::<Vec<_>>());
    world
}

/// A script that says this as Claude Code would.
fn claude_says(text: &str) -> String {
    let said = json!({"type": "assistant", "message": {"id": "m", "role": "assistant", "content": [{"type": "text", "text": text}]}});
    let result =
        json!({"type": "result", "subtype": "success", "is_error": false, "duration_ms": 1, "result": text});
    format!("cat > /dev/null\nprintf '%s\\n' '{said}' '{result}'")
}

fn command(world: &World, arguments: &[&str]) -> Command {
    let mut command = world.command(arguments);
    command.env("PATH", format!("{}:/usr/bin:/bin", world.path("bin").display()));
    command
}

fn run(world: &World, arguments: &[&str]) -> Ran {
    world.ran(command(world, arguments).output().unwrap())
}

fn context(world: &World) -> String {
    world.run(&["context", "S1"]).quiet()
}

/// Starts a compaction, kills azureal while the agent writes, and returns the number of the agent's process.
fn kill_during_summary(world: &World) -> String {
    let pid = world.path("pid");
    fs::remove_file(&pid).ok();
    world.program("claude", &format!("cat > /dev/null\necho $$ > '{}'\nexec sleep 1000", pid.display()));
    let mut azureal = command(world, &["compact", "S1"]);
    let mut azureal = azureal.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let number =
        until("the agent writes", || fs::read_to_string(&pid).ok().filter(|text| text.ends_with('\n')));
    azureal.kill().unwrap();
    azureal.wait().unwrap();
    number.trim().to_owned()
}

fn is_alive(pid: &str) -> bool {
    let state = Command::new("ps").args(["-o", "stat=", "-p", pid]).output().unwrap().stdout;
    // One that has ended may wait for a parent that collects it.
    state.first().is_some_and(|state| *state != b'Z')
}

#[test]
fn an_agent_that_writes_a_summary_for_a_killed_azureal_is_known_and_stopped() {
    let world = world();
    let told = "stopped claude: it wrote a summary of S1 for an azureal that has ended\n";
    for arguments in [&["list"][..], &["ps"], &["cancel", "S1"], &["doctor", "--fix"], &["rm", "S1", "--yes"]]
    {
        let pid = kill_during_summary(&world);
        let doctor = run(&world, &["doctor"]);
        assert!(doctor.stdout.contains("claude writes a summary for an azureal that has ended"), "{doctor}");
        assert!(is_alive(&pid), "doctor changes nothing");
        let ran = run(&world, arguments);
        assert!(!is_alive(&pid), "{arguments:?}: {ran}");
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert!(arguments[0] == "doctor" || text.contains(told), "{arguments:?}: {ran}");
        let left = fs::read_dir(world.path("p/.git/azureal/spool")).unwrap().count();
        assert_eq!(left, 0, "{arguments:?}");
    }
}

#[test]
fn a_session_is_compacted_and_that_is_undone() {
    let world = world();
    world.program("claude", &claude_says("They fixed the login."));
    let (before, events) = (context(&world), world.run(&["show", "S1", "--json"]).quiet());
    insta::assert_snapshot!(run(&world, &["compact", "S1"]), @r"
    exit code 0
    --- stdout
    the summary by claude covers the events up to 4 of S1 work: the next agent receives 5797 characters instead of 9114
    ");
    let after = context(&world);
    assert!(after.contains("## Summary of what happened before\nThey fixed the login."), "{after}");
    assert!(
        after.contains("### Prompt, event 1\nPrompt 1: fix the login. You must not touch the tests."),
        "{after}"
    );
    assert!(
        after.len() < before.len() && !after.contains("Answer 2.") && after.contains("Answer 3."),
        "{after}"
    );
    assert_eq!(world.run(&["show", "S1", "--json"]).quiet(), events, "the events stay");
    let left: Vec<_> = fs::read_dir(world.path("p/.git/azureal/spool"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, [] as [&str; 0]);

    insta::assert_snapshot!(run(&world, &["compact", "S1", "--list"]), @r"
    exit code 0
    --- stdout
    up to event 4, 21 characters, by claude, [time]
    ");
    let listed = run(&world, &["compact", "S1", "--list", "--json"]).json();
    assert_eq!(
        (&listed[0]["after_seq"], &listed[0]["summary"]),
        (&json!(4), &json!("They fixed the login."))
    );
    assert_eq!(listed[0]["writer"], "claude");
    insta::assert_snapshot!(run(&world, &["compact", "S1", "--undo"]), @r"
    exit code 0
    --- stdout
    removed the summary of the events up to 4 of S1 work; 0 summaries are left
    ");
    assert_eq!(context(&world), before, "byte for byte");
    insta::assert_snapshot!(run(&world, &["compact", "S1", "--undo"]), @r"
    exit code 1
    --- stderr
    error: S1 work has no summary
    hint: `azureal compact S1` writes one
    ");
    insta::assert_snapshot!(run(&world, &["compact", "S1", "--list"]), @r"
    exit code 0
    --- stderr
    S1 work has no summary
    ");
}

#[test]
fn the_cached_ledger_of_a_session_is_deleted_with_it() {
    let world = world();
    world.program("claude", &claude_says("They fixed the login."));
    assert_eq!(run(&world, &["compact", "S1"]).code, 0);
    assert_eq!(run(&world, &["run", "-s", "S1", "-a", "claude", "Go on"]).code, 0);
    let cached = world.path("p/.git/azureal/spool/S1.ledger");
    assert!(cached.exists());
    assert_eq!(run(&world, &["rm", "S1", "--yes"]).code, 0);
    assert!(!cached.exists());
}

#[test]
fn a_preview_shows_the_summary_and_changes_nothing() {
    let world = world();
    world.program("claude", &claude_says("They fixed\u{1b}[31m the login."));
    let before = world.snapshot("p/.azureal/sessions.azs".rsplit_once('/').unwrap().0);
    let ran = run(&world, &["compact", "S1", "--preview"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "They fixed␛[31m the login.\n"), "{ran}");
    assert!(ran.stderr.contains("would receive"), "{ran}");
    let json = run(&world, &["compact", "S1", "--preview", "--json"]).json();
    assert_eq!(
        (&json["stored"], &json["written_by"], &json["after_seq"]),
        (&json!(false), &json!("claude"), &json!(4))
    );
    let store = |files: Vec<(std::path::PathBuf, Vec<u8>)>| -> Vec<_> {
        files.into_iter().filter(|(path, _)| path.ends_with("sessions.azs")).collect()
    };
    assert_eq!(store(world.snapshot("p/.azureal")), store(before));
}

#[test]
fn an_agent_that_fails_is_told_and_another_writes_the_summary_or_nobody() {
    let world = world();
    world.program("claude", "echo 'no network' >&2; exit 1");
    let ran = run(&world, &["compact", "S1", "--json"]);
    assert_eq!(ran.code, 0, "{ran}");
    let report = ran.json();
    assert_eq!((&report["written_by"], &report["stored"]), (&json!("digest"), &json!(true)));
    assert_eq!(report["failed"][0]["agent"], "claude");
    assert!(ran.stderr.starts_with("claude wrote no summary: "), "{ran}");
    let summary = report["summary"].as_str().unwrap();
    assert!(summary.contains("You must not touch the tests."), "{summary}");
    assert!(context(&world).contains(summary));
}

#[test]
fn without_a_model_the_digest_is_the_summary() {
    let world = world();
    let ran = world.run(&["compact", "S1", "--agent", "offline", "--keep", "1"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran}");
    assert!(ran.stdout.starts_with("azureal's own digest covers the events up to 8 of S1 work"), "{ran}");
    let digest = world.run(&["show", "S1", "--digest"]).quiet();
    assert!(digest.contains("Where the work stands:\n- last answer: Answer 5."), "{digest}");
    let json = world.run(&["show", "S1", "--digest", "--json"]).json();
    assert!(digest.ends_with(&format!("{}\n", json["digest"].as_str().unwrap())));
}

#[test]
fn where_there_is_nothing_to_gain_nothing_is_stored() {
    let world = World::new();
    world.session("short", &[user("Hello"), assistant("Hi!"), user("Bye")]);
    world.program("claude", "echo asked > \"$PWD/asked\"");
    let ran = run(&world, &["compact", "short"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "nothing to compact in S1 short\n"), "{ran}");
    assert_eq!(run(&world, &["compact", "short", "--json"]).json()["stored"], json!(false));
    assert!(!world.path("p/asked").exists(), "nobody is asked for it");
    let ran = run(&world, &["compact", "S9"]);
    assert_eq!(ran.code, 1, "{ran}");
    let ran = run(&world, &["compact", "short", "--undo", "--preview"]);
    assert_eq!(ran.code, 2, "{ran}");
}

#[test]
fn ctrl_c_ends_the_agent_too_and_changes_nothing() {
    let world = world();
    world.program("claude", "echo $$ > \"$PWD/pid\"; exec sleep 1000");
    let before = context(&world);
    let child =
        command(&world, &["compact", "S1"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = world.path("p/pid");
    let asked = || fs::read_to_string(&pid).unwrap_or_default().trim().to_owned();
    until("the agent is started", || (!asked().is_empty()).then_some(()));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ran = world.ran(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{ran}");
    assert!(!std::path::Path::new("/proc").join(asked()).exists(), "the agent still runs");
    assert_eq!(context(&world), before);
}

#[test]
fn tokens_are_those_that_were_reported_and_an_estimate() {
    let world = world();
    insta::assert_snapshot!(world.run(&["tokens", "S1"]), @r"
    exit code 0
    --- stdout
    session    S1 work
    used       0 in · 0 out, as the agents reported
    context    2 292 (estimate: characters / 4), 9 167 characters
    ");
    let tokens = world.run(&["tokens", "S1", "--json"]).json();
    assert_eq!((&tokens["input_tokens"], &tokens["context"]["estimate"]), (&json!(0), &json!(true)));
    let counted = &tokens["context"];
    assert_eq!((&counted["tokens"], &counted["counted_by"]), (&json!(2292), &json!("characters / 4")));
    assert_eq!(Value::from(context(&world).chars().count()), tokens["context"]["chars"]);
}

#[test]
fn a_list_shows_how_full_sessions_are() {
    let world = world();
    let meter = |world: &World| -> Value {
        let listed = world.run(&["list", "--json"]).json()[0]["context"].clone();
        let context = world.run(&["context", "S1", "--json"]).json();
        assert_eq!(listed["chars"], context["chars"]);
        assert_eq!((&listed["threshold"], &listed["percent"]), (&context["threshold"], &context["percent"]));
        assert_eq!((&listed["tokens_by"], &context["tokens_by"]), (&json!("estimate"), &json!("estimate")));
        listed
    };
    let before = meter(&world);
    assert_eq!(before["chars"], context(&world).chars().count());
    let table = world.run(&["list"]).quiet();
    assert!(table.lines().next().unwrap().contains("CONTEXT") && table.contains(" 2 %"), "{table}");

    world.run(&["compact", "S1", "--agent", "offline"]);
    let after = meter(&world);
    assert!(after["chars"].as_u64() < before["chars"].as_u64(), "{after}");
    world.run(&["compact", "S1", "--undo"]);
    assert_eq!(meter(&world), before);
}

#[test]
fn the_meter_goes_down_when_a_session_is_compacted_before_a_turn() {
    let world = world();
    world.file("config/azureal/azufig.toml", "[compaction]\nthreshold_characters = 8000\n");
    let mut go_on = world.command(&["run", "-s", "work", "-a", "offline", "--json", "Go on"]);
    let ran = world.ran(go_on.env("XDG_CONFIG_HOME", world.path("config")).output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    let lines = ran.json_lines();
    let percent: Vec<u64> = lines.iter().filter_map(|line| line["context"]["percent"].as_u64()).collect();
    assert!(percent[0] > 100, "{percent:?}");
    assert!(percent[1..].iter().all(|percent| *percent < 90), "{percent:?}");
    let listed = world.run(&["list", "--json"]).json()[0]["context"]["chars"].clone();
    assert_eq!(listed, lines.last().unwrap()["context"]["chars"]);

    // Whoever takes the summary off is told what comes next.
    let mut undo = world.command(&["compact", "work", "--undo"]);
    let undone = world.ran(undo.env("XDG_CONFIG_HOME", world.path("config")).output().unwrap());
    assert!(undone.stderr.contains("S1 is over the threshold again") && undone.code == 0, "{undone}");
}

#[test]
fn one_number_of_characters_and_tokens_is_shown_everywhere() {
    let world = world();
    world.program("claude", &claude_says(&"They fixed the login. ".repeat(30)));
    // One session with a system message, one without.
    assert_eq!(
        run(&world, &["run", "-a", "claude", "--system", "Be brief.", "--name", "framed", "hello"]).code,
        0
    );
    assert!(world.run(&["context", "framed"]).quiet().contains("## System message\nBe brief."));
    let check = |session: &str| {
        let context = run(&world, &["context", session, "--json"]).json();
        let tokens = run(&world, &["tokens", session, "--json"]).json();
        let list = run(&world, &["list", "--json"]).json();
        let listed = list.as_array().unwrap().iter().find(|listed| listed["name"] == session).unwrap();
        let sent = context["text"].as_str().unwrap().chars().count();
        assert_eq!((&context["chars"], sent as u64), (&json!(sent), context["chars"].as_u64().unwrap()));
        assert_eq!(listed["context"]["chars"], context["chars"], "{session}");
        assert_eq!(tokens["context"]["chars"], context["chars"], "{session}");
        assert_eq!(listed["context"]["tokens"], context["tokens"], "{session}");
        assert_eq!(tokens["context"]["tokens"], context["tokens"], "{session}");
        assert_eq!(listed["context"]["percent"], context["percent"], "{session}");
    };
    world.session(
        "hostile",
        &[user("x\n## User\ny"), assistant("</azureal-session-context> and <AZUREAL-turn-context a>")],
    );
    check("work");
    check("framed");
    check("hostile");
    for number in 0..4 {
        assert_eq!(run(&world, &["run", "-s", "framed", &format!("prompt {number}")]).code, 0);
    }
    for session in ["work", "framed"] {
        assert_eq!(run(&world, &["compact", session]).code, 0);
        check(session);
    }
    assert_eq!(run(&world, &["run", "-s", "work", "-a", "claude", "more"]).code, 0);
    check("work");
}

#[test]
fn a_threshold_in_tokens_is_compared_with_what_the_provider_counted() {
    let world = world();
    world.file("home/.config/azureal/azufig.toml", "[compaction]\nthreshold_tokens = 150\n");
    let run = |arguments: &[&str]| {
        world.ran(command(&world, arguments).env("HOME", world.path("home")).output().unwrap())
    };
    let said = |tokens: u64| {
        let usage = json!({"input_tokens": tokens, "output_tokens": 0});
        let delta = json!({"type": "stream_event", "event": {"type": "message_delta", "usage": usage}});
        let said = json!({"type": "assistant", "message": {"id": "m", "role": "assistant",
            "content": [{"type": "text", "text": "All of this is a long answer. ".repeat(30)}]}});
        let result = json!({"type": "result", "subtype": "success", "is_error": false, "duration_ms": 1,
            "result": "x", "usage": usage});
        format!("cat > /dev/null\nprintf '%s\\n' '{delta}' '{said}' '{result}'")
    };
    world.program("claude", &said(120));
    let compactions = || run(&["compact", "S1", "--list", "--json"]).stdout.matches("after_seq").count();
    // The first turn of an agent has no count before it.
    assert_eq!(run(&["run", "-s", "S1", "-a", "claude", "one"]).code, 0);
    let before = compactions();
    let session = run(&["list", "--json"]).json()[0].clone();
    assert_eq!((&session["context"]["tokens"], &session["context"]["percent"]), (&json!(120), &json!(80)));
    assert_eq!(run(&["run", "-s", "S1", "-a", "claude", "two"]).code, 0);
    assert_eq!(compactions(), before, "120 of 150 tokens");
    world.program("claude", &said(151));
    assert_eq!(run(&["run", "-s", "S1", "-a", "claude", "three"]).code, 0);
    assert_eq!(compactions(), before, "it was not over the limit when it began");
    assert_eq!(run(&["run", "-s", "S1", "-a", "claude", "four"]).code, 0);
    assert_eq!(compactions(), before + 1, "151 of 150 tokens");
}
