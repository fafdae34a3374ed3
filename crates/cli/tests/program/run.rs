//! run, and what is left when it does not end as it should.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use azureal_testkit::model_server::ModelServer;
use azureal_testkit::real_agents::{AgentHome, Agents, assert_nobody_else_was_asked};
use azureal_testkit::until;
use serde_json::{Value, json};

use crate::world::{Ran, World, assistant, user};

/// What the real program printed when it was recorded: a text, a tool call, a text.
pub(crate) const RECORDED: &str =
    include_str!("../../../agents/tests/fixtures/claude/current/partial-messages/stdout.jsonl");
/// How many of its lines come before the first finished text.
const BEGINNING: usize = 19;

/// The answer of a scripted `claude` to `--version`.
pub(crate) const SAYS_VERSION: &str =
    "if [ \"$1\" = --version ]; then echo '2.1.197 (Claude Code)'; exit; fi";

/// Puts a program `claude` on the path that prints the beginning of the recording, does something, and prints the rest.
pub(crate) fn fake_claude(world: &World, in_between: &str) {
    let lines: Vec<&str> = RECORDED.lines().collect();
    let start = world.file("bin/start.jsonl", &format!("{}\n", lines[..BEGINNING].join("\n")));
    let rest = world.file("bin/rest.jsonl", &format!("{}\n", lines[BEGINNING..].join("\n")));
    let script =
        format!("cat > /dev/null\ncat '{}'\n{in_between}\ncat '{}'", start.display(), rest.display());
    world.program("claude", &format!("{SAYS_VERSION}\n{script}"));
}

fn start(world: &World, arguments: &[&str]) -> Child {
    world.with_programs(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn finish(world: &World, child: Child) -> Ran {
    world.ran(child.wait_with_output().unwrap())
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    until(what, || is_so().then_some(()));
}

pub(crate) fn spooled(world: &World, extension: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(world.path("p/.git/azureal/spool")) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

/// Waits until the fake agent has said all that it says before it goes on.
#[track_caller]
pub(crate) fn wait_for_beginning(world: &World) {
    wait_until("the beginning of the answer", || {
        spooled(world, "jsonl")
            .iter()
            .any(|path| fs::read_to_string(path).is_ok_and(|text| text.lines().count() >= BEGINNING))
    });
}

fn kinds(world: &World, session: &str) -> Vec<String> {
    let lines = world.run(&["show", session, "--json"]).json_lines();
    lines.iter().map(|line| line["kind"].as_str().unwrap().to_owned()).collect()
}

fn last_event(world: &World, session: &str) -> Value {
    world.run(&["show", session, "--json"]).json_lines().pop().unwrap()
}

pub(crate) fn signal(child: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_session_goes_on_with_whoever_answers() {
    let world = World::new();
    let ran = world.run(&["run", "-a", "offline", "Where is the key?"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stdout.starts_with("Ada here") && ran.stdout.contains("“Where is the key?”"), "{ran}");
    assert!(ran.stderr.starts_with("S1 · offline\n✓ done in "), "{ran}");

    let ran = world.run(&["run", "-c", "-m", "ben", "What did I ask?"]);
    assert!(ran.stdout.contains("Until now you asked “Where is the key?”"), "{ran}");
    let ran = world.run(&["run", "-s", "S1", "-m", "default", "More"]);
    assert!(ran.stdout.starts_with("Ada here"), "{ran}");
    let prompts: Vec<Value> = world
        .run(&["show", "S1", "--json"])
        .json_lines()
        .into_iter()
        .filter(|line| line["kind"] == "UserMessage")
        .map(|line| line["data"]["content"].clone())
        .collect();
    assert_eq!(prompts, ["Where is the key?", "What did I ask?", "More"]);
    assert_eq!(spooled(&world, "jsonl").len() + spooled(&world, "turn").len(), 0);
}

/// Puts a program on the path that answers like Claude Code, with the model that it was asked for, and notes its arguments.
fn noting_claude(world: &World) {
    let arguments = world.path("arguments");
    let script = format!(
        r#"cat > /dev/null
echo "$@" >> '{}'
model=default-model
while [ $# -gt 0 ]; do [ "$1" = --model ] && model="real-$2"; shift; done
echo '{{"type":"system","subtype":"init","cwd":"/p","session_id":"one","model":"'$model'"}}'
echo '{{"type":"assistant","message":{{"id":"m","role":"assistant","content":[{{"type":"text","text":"hi"}}]}}}}'
echo '{{"type":"result","subtype":"success","is_error":false,"duration_ms":5,"result":"hi"}}'"#,
        arguments.display()
    );
    world.program("claude", &script);
}

/// Returns the model of each run of that program; `None` if it was not asked for one.
fn requested_models(world: &World) -> Vec<Option<String>> {
    let arguments = fs::read_to_string(world.path("arguments")).unwrap();
    let model = |line: &str| {
        let mut words = line.split(' ').skip_while(|word| *word != "--model");
        words.nth(1).map(str::to_owned)
    };
    arguments.lines().map(model).collect()
}

#[test]
fn a_model_that_the_agent_does_not_name_is_not_announced() {
    let world = World::new();
    let earlier =
        [user("hi"), json!({"Init": {"cwd": "/p", "agent": "codex", "model": "gpt-5"}}), assistant("Hello.")];
    world.session("work", &earlier);
    let prints = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../agents/tests/fixtures/codex/current/plain/stdout.jsonl");
    world.program("codex", &format!("cat > /dev/null\ncat '{}'", prints.display()));
    let ran =
        world.ran(world.with_programs(&["run", "-s", "work", "-a", "codex", "again"]).output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains("S1 work · codex · gpt-5"), "{ran}");
    assert!(!ran.stderr.lines().any(|line| line.starts_with("model")), "{ran}");
}

#[test]
fn the_model_sticks_to_the_session_like_its_agent() {
    let world = World::new();
    noting_claude(&world);
    world.program("codex", "exit 3");
    let run = |arguments: &[&str]| {
        let ran = world.ran(world.with_programs(&[&["run"], arguments].concat()).output().unwrap());
        ran.stderr.lines().find(|line| line.starts_with("S1")).unwrap().to_owned()
    };
    let listed = || {
        let session = world.run(&["list", "--json"]).json()[0].clone();
        (session["agent"].clone(), session["model"].clone())
    };
    assert_eq!(run(&["-a", "claude/haiku", "--name", "mm", "hi"]), "S1 mm · claude · haiku");
    assert_eq!(run(&["-s", "mm", "again"]), "S1 mm · claude · haiku");
    assert_eq!(run(&["-c", "-a", "claude", "again"]), "S1 mm · claude · haiku");
    assert_eq!(listed(), (json!("claude"), json!("real-haiku")));
    assert_eq!(run(&["-s", "mm", "-m", "opus", "again"]), "S1 mm · claude · opus");
    // An agent that dies before its first line is the last agent, and shows no model of another.
    assert_eq!(run(&["-s", "mm", "-a", "codex", "again"]), "S1 mm · codex");
    assert_eq!(listed(), (json!("codex"), Value::Null));
    assert_eq!(run(&["-s", "mm", "and again"]), "S1 mm · codex");
    // Back at the first agent, its model is the one that it was last asked for.
    assert_eq!(run(&["-s", "mm", "-a", "claude", "again"]), "S1 mm · claude · opus");
    assert_eq!(run(&["-s", "mm", "-m", "haiku", "again"]), "S1 mm · claude · haiku");
    assert_eq!(run(&["-s", "mm", "-m", "default", "again"]), "S1 mm · claude");
    assert_eq!(run(&["-s", "mm", "again"]), "S1 mm · claude · default-model");
    let model = |name: &str| Some(name.to_owned());
    assert_eq!(
        requested_models(&world),
        ["haiku", "haiku", "haiku", "opus", "opus", "haiku"]
            .map(model)
            .into_iter()
            .chain([None, None])
            .collect::<Vec<_>>()
    );
    let lines = world.run(&["show", "mm", "--json"]).json_lines();
    let switches: Vec<&str> = lines
        .iter()
        .filter(|line| line["kind"] == "ModelSwitch")
        .map(|line| line["data"]["model"].as_str().unwrap())
        .collect();
    assert_eq!(switches, ["opus", "haiku", "default"]);
}

#[test]
fn the_model_of_a_turn_that_was_waited_for_sticks_too() {
    let world = World::new();
    noting_claude(&world);
    let fast = fs::read_to_string(world.path("bin/claude")).unwrap();
    let gate = world.path("gate");
    world.program("claude", &format!("while [ ! -e '{}' ]; do sleep 0.05; done\n{fast}", gate.display()));
    let first = start(&world, &["run", "--name", "ww", "-a", "claude/haiku", "first"]);
    wait_until("a running turn", || !world.run(&["ps", "--json"]).json().as_array().unwrap().is_empty());
    let second = start(&world, &["run", "-s", "ww", "--wait", "-a", "claude", "second"]);
    // Time to look at the session and begin to wait. Without it the test would pass too, and show nothing.
    thread::sleep(Duration::from_millis(500));
    fs::write(&gate, "").unwrap();
    assert_eq!(finish(&world, first).code, 0);
    let ran = finish(&world, second);
    assert!(ran.stderr.contains("S1 ww · claude · haiku\n"), "{ran}");
    assert_eq!(requested_models(&world), [Some("haiku".to_owned()), Some("haiku".to_owned())]);
}

#[test]
fn a_name_that_several_ask_for_at_once_is_given_to_one() {
    let world = World::new();
    let all: Vec<Child> =
        (0..4).map(|_| start(&world, &["run", "--name", "same", "-a", "offline", "hi"])).collect();
    let codes: Vec<i32> = all.into_iter().map(|child| finish(&world, child).code).collect();
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
    let list = world.run(&["list", "--json"]).json();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
}

#[test]
fn live_events_are_the_stored_events_when_the_model_is_switched() {
    let world = World::new();
    noting_claude(&world);
    let run = |arguments: &[&str]| world.ran(world.with_programs(arguments).output().unwrap());
    run(&["run", "-a", "claude", "hi"]);
    let live = run(&["run", "-c", "-m", "opus", "--json", "again"]).json_lines();
    assert_eq!(live[0], json!({"session": "S1", "agent": "claude", "model": "opus"}));
    let kinds = |lines: &[Value]| -> Vec<String> {
        lines.iter().filter_map(|line| line["kind"].as_str().map(str::to_owned)).collect()
    };
    let stored = run(&["show", "S1", "--json"]).json_lines();
    assert_eq!(kinds(&live), ["UserMessage", "ModelSwitch", "Init", "AssistantText", "Complete"]);
    assert_eq!(kinds(&stored[4..]), kinds(&live));
}

#[test]
fn continue_means_the_session_that_was_last_used_in_this_worktree() {
    let world = World::new();
    world.file("p/.git/worktrees/feat/HEAD", "ref: refs/heads/feat\n");
    world.file("p/.git/worktrees/feat/commondir", "../..\n");
    let git_file = format!("gitdir: {}\n", world.path("p/.git/worktrees/feat").display());
    world.file("feat/.git", &git_file);
    world.file("p/.git/worktrees/feat/gitdir", &format!("{}\n", world.path("feat/.git").display()));
    world.program("claude", "exit 3");
    let run_in = |folder: &str, arguments: &[&str]| {
        let mut command = world.with_programs(&[&["run"], arguments].concat());
        let ran = world.ran(command.current_dir(world.path(folder)).output().unwrap());
        ran.stderr.split(' ').next().unwrap_or_default().to_owned()
    };
    assert_eq!(run_in("p", &["-a", "offline", "by hand"]), "S1");
    world.session(
        "imported",
        &[json!({"UserMessage": {"content": "x"}}), json!({"AssistantText": {"text": "y"}})],
    );
    assert_eq!(run_in("p", &["-c", "more"]), "S1", "an import is not a use");
    assert_eq!(run_in("p", &["-a", "claude", "fails at once"]), "S3");
    assert_eq!(run_in("p", &["-c", "more"]), "S3", "it was tried last");
    assert_eq!(run_in("feat", &["-a", "offline", "in the other worktree"]), "S4");
    assert_eq!(run_in("p", &["-a", "offline", "here again"]), "S5");
    assert_eq!(run_in("feat", &["-s", "S1", "a session of the first worktree"]), "S1");
    assert_eq!(run_in("feat", &["-c", "more"]), "S1", "used there last");
    assert_eq!(run_in("p", &["-c", "more"]), "S5", "used here last");
    assert_eq!(world.run(&["rm", "S5", "--yes"]).code, 0);
    assert_eq!(run_in("p", &["-c", "more"]), "S1", "the newest of this worktree that has an answer");
    let listed = world.run(&["list", "--json", "--all"]).json();
    let newest = &listed[0];
    assert_eq!(
        (&newest["id"], &newest["preview"], &newest["last_prompt"]),
        (&json!("S1"), &json!("by hand"), &json!("more"))
    );
    assert_eq!(newest["last_active"], "[time]");
}

#[test]
fn a_name_makes_a_session_and_a_number_does_not() {
    let world = World::new();
    for prompt in ["one", "two"] {
        assert_eq!(world.run(&["run", "-a", "offline", "-s", "topic", prompt]).code, 0);
    }
    assert_eq!(world.run(&["run", "-a", "offline", "--name", "other", "three"]).code, 0);
    assert_eq!(world.run(&["run", "-s", "topic", "four"]).code, 0);
    let list = world.run(&["list", "--json"]).json();
    let names: Vec<_> = list.as_array().unwrap().iter().map(|session| &session["name"]).collect();
    assert_eq!(names, ["topic", "other"]);
    insta::assert_snapshot!(world.run(&["run", "-s", "S9", "x"]), @r"
    exit code 1
    --- stderr
    error: no session S9 in this store
    hint: `azureal list --all` shows what is there
    ");
}

#[test]
fn a_machine_without_agents_says_so() {
    let world = World::new();
    let ran = world.run(&["run", "x"]);
    assert!(ran.stderr.starts_with("no agent is installed, so the built-in offline agent answers"), "{ran}");
    insta::assert_snapshot!(world.run(&["run", "-a", "codex", "x"]), @r"
    exit code 1
    --- stderr
    error: codex is not installed: it is not on the PATH
    hint: install it, or name another with `-a`; `azureal agents` shows which there are
    ");
    insta::assert_snapshot!(world.run(&["run", "-a", "eliza", "x"]), @r#"
    exit code 1
    --- stderr
    error: there is no agent "eliza"; there are claude, codex, offline
    hint: `azureal agents` shows which are installed
    "#);
    assert_eq!(world.run(&["list", "--json"]).json().as_array().unwrap().len(), 1, "nothing else was made");
}

#[test]
fn a_prompt_is_needed() {
    let world = World::new();
    for arguments in [&["run"][..], &["run", " "], &["run", "-c", ""]] {
        let ran = world.run(arguments);
        assert_eq!(ran.code, 2, "{ran}");
        assert!(ran.stderr.starts_with("error: no prompt"), "{ran}");
    }
    assert!(!world.store().exists());
    assert_eq!(world.run(&["run", "-c", "x"]).code, 1, "there is nothing to go on with");
}

#[test]
fn a_prompt_that_no_agent_takes_is_refused() {
    let world = World::new();
    let long = fs::File::open(world.file("long", &"x".repeat((10 << 20) + 1))).unwrap();
    let output = world.command(&["run", "-a", "offline"]).stdin(long).output().unwrap();
    insta::assert_snapshot!(world.ran(output), @r"
    exit code 1
    --- stderr
    error: the prompt is longer than 10 MiB
    hint: name the file in the prompt instead, so that the agent reads what it needs
    ");
    assert!(!world.store().exists());
}

#[test]
fn the_prompt_comes_from_both_sides() {
    let world = World::new();
    let run = |arguments: &[&str], input: &str| {
        let mut child =
            world.command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let line = String::from_utf8(output.stdout).unwrap().lines().nth(1).unwrap().to_owned();
        serde_json::from_str::<Value>(&line).unwrap()["data"]["content"].clone()
    };
    let arguments = ["run", "-a", "offline", "--json"];
    assert_eq!(run(&arguments, "only this\n"), "only this");
    let both = [&arguments[..], &["Look:"]].concat();
    assert_eq!(run(&both, "a\nb\n"), "Look:\n\na\nb");
    assert_eq!(run(&both, ""), "Look:");
}

#[test]
fn an_open_and_silent_input_is_not_waited_for() {
    let world = World::new();
    let mut child = world
        .command(&["run", "-a", "offline", "x"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let open = child.stdin.take();
    wait_until("the end", || child.try_wait().unwrap().is_some());
    drop(open);
    assert!(child.wait().unwrap().success());
}

#[test]
fn programs_get_every_event_as_it_happens() {
    let world = World::new();
    fake_claude(&world, "");
    let ran = finish(&world, start(&world, &["run", "--json", "Do it"]));
    assert_eq!(ran.code, 0, "{ran}");
    let lines = ran.json_lines();
    assert_eq!(lines[0], json!({"session": "S1", "agent": "claude", "model": null}));
    assert_eq!((&lines[1]["kind"], &lines[1]["data"]), (&json!("UserMessage"), &json!({"content": "Do it"})));
    let deltas: String = lines.iter().filter_map(|line| line["delta"].as_str()).collect();
    assert_eq!(deltas, "I will run a command.Finished streaming.");
    let last = lines.last().unwrap();
    assert_eq!((&last["kind"], &last["first_seq"], &last["seq"]), (&json!("Complete"), &json!(1), &json!(8)));
    // The meter goes up with every event, until it is what is stored; the provider's count takes the place of an estimate.
    let meters: Vec<_> = lines.iter().filter_map(|line| line.get("context")).collect();
    assert!(
        meters.windows(2).all(|pair| pair[0]["chars"].as_u64() <= pair[1]["chars"].as_u64()),
        "{meters:?}"
    );
    assert_eq!((&meters[0]["tokens"], &meters[0]["tokens_by"]), (&json!(4), &json!("estimate")));
    let ended = meters[meters.len() - 1];
    assert_eq!((&ended["tokens"], &ended["tokens_by"]), (&json!(120), &json!("claude")));
    assert_eq!(world.run(&["list", "--json"]).json()[0]["context"], *ended);
    let context = world.run(&["context", "S1", "--json"]).json();
    assert_eq!((&context["tokens"], &context["chars"]), (&json!(120), &ended["chars"]));
    let stats = world.run(&["context", "S1", "--stats"]).quiet();
    assert!(stats.contains("tokens      120 (claude counted, its own instructions included)\n"), "{stats}");
    let live: Vec<_> = lines.iter().filter_map(|line| line["kind"].as_str()).collect();
    assert_eq!(live, kinds(&world, "S1"), "what was shown is what is stored");
}

#[test]
fn people_see_text_and_one_line_for_each_tool() {
    let world = World::new();
    fake_claude(&world, "");
    let ran = finish(&world, start(&world, &["run", "Do it"]));
    let ended = ran.stderr.lines().last().unwrap();
    assert!(ended.starts_with("✓ done in ") && ended.ends_with(" · 200 in · 40 out · $0.0020 · S1"), "{ran}");
    insta::assert_snapshot!(ran.stdout, @r"
    I will run a command.
    ✓ Bash echo streamed output here
    Finished streaming.
    ");
}

#[test]
fn one_turn_at_a_time() {
    let world = World::new();
    fake_claude(&world, "sleep 1000");
    let first = start(&world, &["run", "-s", "work", "Do it"]);
    wait_for_beginning(&world);
    let second = finish(&world, start(&world, &["run", "-s", "work", "And this"]));
    assert_eq!(second.code, 1, "{second}");
    let expected =
        format!("error: a turn of S1 is running: claude for [time], run by process {}\n", first.id());
    assert!(second.stderr.starts_with(&expected), "{second}");
    assert!(second.stderr.contains("azureal cancel S1") && second.stderr.contains("azureal fork S1"));
    assert_eq!(world.run(&["run", "-a", "offline", "-s", "elsewhere", "x"]).code, 0, "others are free");
    signal(&first, "-INT");
    assert_eq!(finish(&world, first).code, 130);
}

#[test]
fn who_waits_is_next() {
    let world = World::new();
    let gate = world.path("gate");
    fake_claude(&world, &format!("while [ ! -e '{}' ]; do sleep 0.05; done", gate.display()));
    let first = start(&world, &["run", "-s", "work", "First"]);
    wait_for_beginning(&world);
    // Who does not want to wait any more is not next.
    let mut tired = start(&world, &["run", "--wait", "-s", "work", "-a", "offline", "Never"]);
    let mut said = String::new();
    BufReader::new(tired.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("waiting: a turn of S1 is running: claude for "), "{said}");
    signal(&tired, "-INT");
    assert_eq!(finish(&world, tired).code, 130);
    let second = start(&world, &["run", "--wait", "-s", "work", "-a", "offline", "Second"]);
    fs::write(gate, "").unwrap();
    assert_eq!(finish(&world, first).code, 0);
    let second = finish(&world, second);
    assert_eq!(second.code, 0, "{second}");
    assert!(second.stdout.contains("asked: “First”"), "{second}");
}

#[test]
fn eight_turns_at_once_keep_apart() {
    let world = World::new();
    let prompts: Vec<String> = (1..=8).map(|number| format!("prompt {number}")).collect();
    let children: Vec<Child> =
        prompts.iter().map(|prompt| start(&world, &["run", "-a", "offline", prompt])).collect();
    for (prompt, child) in prompts.iter().zip(children) {
        let ran = finish(&world, child);
        assert_eq!(ran.code, 0, "{ran}");
        assert!(ran.stdout.contains(&format!("“{prompt}”")), "{ran}");
    }
    let list = world.run(&["list", "--json"]);
    assert_eq!(list.stderr, "", "nothing is left to recover");
    let list = list.json();
    let mut found: Vec<String> = Vec::new();
    for session in list.as_array().unwrap() {
        assert_eq!(session["completed"], true);
        let events = world.run(&["show", session["id"].as_str().unwrap(), "--json"]).json_lines();
        let asked: Vec<_> = events.iter().filter(|event| event["kind"] == "UserMessage").collect();
        assert_eq!(asked.len(), 1);
        found.push(asked[0]["data"]["content"].as_str().unwrap().to_owned());
        assert_eq!(events.iter().filter(|event| event["kind"] == "Complete").count(), 1);
        let answer = events.iter().find(|event| event["kind"] == "AssistantText").unwrap();
        assert!(answer["data"]["text"].as_str().unwrap().contains(found.last().unwrap()), "{answer}");
    }
    found.sort();
    assert_eq!(found, prompts);
}

#[test]
fn an_interrupt_cancels_and_keeps_what_came() {
    let world = World::new();
    fake_claude(&world, "sleep 1000");
    let child = start(&world, &["run", "Do it"]);
    wait_for_beginning(&world);
    signal(&child, "-INT");
    let ran = finish(&world, child);
    assert_eq!(ran.code, 130, "{ran}");
    assert!(ran.stderr.contains("\nthe turn of S1 was cancelled"), "{ran}");
    assert!(ran.stdout.starts_with("I will run"), "{ran}");
    assert_eq!(kinds(&world, "S1"), ["UserMessage", "Init", "Reasoning", "AssistantText", "Complete"]);
    assert_eq!(last_event(&world, "S1")["data"]["outcome"], "cancelled");
    assert_eq!(spooled(&world, "jsonl").len(), 0);
    assert_eq!(world.run(&["run", "-c", "-a", "offline", "Go on"]).code, 0);
}

#[test]
fn a_turn_that_takes_too_long_is_stopped() {
    let world = World::new();
    fake_claude(&world, "sleep 1000");
    let ran = finish(&world, start(&world, &["run", "--timeout", "0.5", "Do it"]));
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("error: the turn of S1 exceeded its time limit of 0.5 s"), "{ran}");
    assert_eq!(last_event(&world, "S1")["data"]["outcome"], "timeout");
}

#[test]
fn an_agent_that_dies_is_a_failure_and_no_loss() {
    let world = World::new();
    fake_claude(&world, "echo 'out of luck' >&2; kill -9 $$");
    let ran = finish(&world, start(&world, &["run", "--json", "Do it"]));
    assert_eq!(ran.code, 1, "{ran}");
    let error: Value = serde_json::from_str(ran.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(error["error"]["kind"], "interrupted", "{ran}");
    let live: Vec<Value> = ran.json_lines().into_iter().filter(|line| !line["kind"].is_null()).collect();
    let live: Vec<_> = live.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(live, kinds(&world, "S1"));
    assert!(live.ends_with(&["AssistantText", "Error", "Complete"]), "{live:?}");
}

#[test]
fn a_turn_whose_azureal_was_killed_is_recovered_once() {
    let world = World::new();
    let gate = world.path("gate");
    fake_claude(&world, &format!("while ! test -e '{}'; do sleep 0.05; done", gate.display()));
    let mut child = start(&world, &["run", "Do it"]);
    wait_for_beginning(&world);
    child.kill().unwrap();
    child.wait().unwrap();

    let ran = world.run(&["list", "--json"]);
    assert!(ran.stderr.starts_with("S1: claude is still running in the background ("), "{ran}");
    fs::write(&gate, "").unwrap();
    let mut reports = Vec::new();
    wait_until("the recovery", || {
        reports.push(world.run(&["list"]).stderr);
        reports.last().unwrap().starts_with("recovered")
    });
    assert_eq!(reports.last().unwrap(), "recovered the last turn of S1 (complete)\n");
    assert_eq!(world.run(&["list"]).stderr, "");
    let stored = kinds(&world, "S1");
    assert_eq!(stored.iter().filter(|kind| *kind == "UserMessage").count(), 1);
    assert_eq!(last_event(&world, "S1")["data"]["outcome"], "done");
}

#[test]
fn the_next_prompt_waits_for_an_agent_that_was_left_behind() {
    let world = World::new();
    fake_claude(&world, "sleep 1");
    let mut child = start(&world, &["run", "Do it"]);
    wait_for_beginning(&world);
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = world.run(&["run", "-c", "-a", "offline", "What happened?"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains("recovered the last turn of S1") && ran.stdout.contains("Bash"), "{ran}");
}

#[test]
fn an_interrupt_while_an_agent_is_followed_ends_that_and_sends_nothing() {
    let world = World::new();
    fake_claude(&world, "sleep 1000");
    let mut child = start(&world, &["run", "Do it"]);
    wait_for_beginning(&world);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut child = start(&world, &["run", "-c", "-a", "offline", "What happened?"]);
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    told.find(|line| line.as_ref().unwrap().contains("waiting until it ends")).unwrap().unwrap();
    signal(&child, "-INT");
    let rest: Vec<String> = told.map(|line| line.unwrap()).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(rest.last().unwrap(), "hint: `azureal show S1` shows its output so far",);
    assert_eq!(last_event(&world, "S1")["data"]["outcome"], "cancelled");
    assert_eq!(kinds(&world, "S1").iter().filter(|kind| *kind == "UserMessage").count(), 1);
    assert_eq!(world.run(&["ps", "--json"]).json(), json!([]));
}

#[test]
fn a_running_turn_is_shown_and_cancelled_from_elsewhere() {
    let world = World::new();
    fake_claude(&world, "sleep 1000");
    assert_eq!(world.run(&["ps"]).stderr, "no turn is running\n");
    assert_eq!(world.run(&["run", "-s", "work", "-a", "offline", "Before"]).code, 0);
    assert_eq!(world.run(&["list", "--json"]).json()[0]["completed"], true);
    let child = start(&world, &["run", "-s", "work", "-m", "opus", "Do it"]);
    wait_for_beginning(&world);
    assert_eq!(world.run(&["list", "--json"]).json()[0]["completed"], Value::Null, "it has not ended yet");
    let running = world.run(&["ps", "--json"]).json();
    let turn = &running[0];
    assert_eq!(running.as_array().unwrap().len(), 1);
    assert_eq!(
        (&turn["session"], &turn["agent"], &turn["model"], &turn["orphan"]),
        (&json!("S1"), &json!("claude"), &json!("opus"), &json!(false))
    );
    let shown = world.run(&["ps"]).quiet();
    assert!(shown.starts_with("S1 · claude/opus since "), "{shown}");
    assert!(shown.ends_with(&format!(", process {}: \"Do it\"\n", turn["pid"])), "{shown}");

    assert_eq!(world.run(&["list", "--json"]).json()[0]["running"], true);
    assert!(world.run(&["list"]).stdout.contains("S1  ●  work"));
    insta::assert_snapshot!(world.run(&["rm", "work", "--yes"]), @r"
    exit code 1
    --- stderr
    error: a turn of S1 work is running
    hint: wait for it, or end it with `azureal cancel S1`; nothing was deleted
    ");
    assert_eq!(world.run(&["cancel", "work"]).quiet(), "cancelled the turn of S1 work\n");
    let ran = finish(&world, child);
    assert_eq!(ran.code, 130, "{ran}");
    assert_eq!(last_event(&world, "S1")["data"]["outcome"], "cancelled");
    assert_eq!(world.run(&["ps", "--json"]).json(), json!([]));
    insta::assert_snapshot!(world.run(&["cancel", "S1"]), @r"
    exit code 1
    --- stderr
    error: no turn of S1 work is running
    hint: `azureal ps` shows which are
    ");
}

#[test]
fn an_agent_that_was_left_behind_is_cancelled_and_stored() {
    let world = World::new();
    fake_claude(&world, "sleep 1000");
    let mut child = start(&world, &["run", "Do it"]);
    wait_for_beginning(&world);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(world.run(&["ps", "--json"]).json()[0]["orphan"], true);
    let ran = world.run(&["cancel", "S1"]);
    assert_eq!(ran.stdout, "cancelled the turn of S1\n", "{ran}");
    assert!(ran.stderr.contains("recovered the last turn of S1"), "{ran}");
    assert_eq!(last_event(&world, "S1")["data"]["outcome"], "cancelled");
    assert_eq!(world.run(&["ps", "--json"]).quiet(), "[]\n");
}

#[test]
fn the_demo_explains_itself_and_leaves_a_store() {
    let world = World::new();
    fs::create_dir(world.path("empty")).unwrap();
    let demo = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        world.ran(command.current_dir(world.path("empty")).output().unwrap())
    };
    let ran = demo(&["demo", "tour"]);
    assert_eq!(ran.code, 0, "{ran}");
    for part in [
        "azureal run -a offline/ada \"The login fails",
        "Until now you asked “The login fails",
        "   | <azureal-session-context>\n",
        "   | What did I ask before you came?\n",
        "azureal -C [folder]/empty/tour show S1\n",
        "The store of this tour is [folder]/empty/tour/.azureal/sessions.azs;",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {ran}");
    }
    let shown = demo(&["-C", "tour", "show", "S1", "--json"]);
    assert!(!shown.stdout.contains("azureal-session-context"), "{shown}");
    let asked = shown.json_lines().iter().filter(|line| line["kind"] == "UserMessage").count();
    assert_eq!(asked, 3);
    let again = demo(&["demo", "tour"]);
    assert_eq!((again.code, again.stdout.as_str()), (3, ""), "{again}");
}

#[test]
fn one_session_spans_the_real_programs() {
    let Some(agents) = Agents::find(&["claude", "codex"]) else { return };
    let server = ModelServer::scripted(["The colour is red.", "Codex has heard of red.", "Claude is back."]);
    let home = AgentHome::new(&agents, &server);
    let run = |agent: &str, prompt: &str| {
        let mut command = home.command(env!("CARGO_BIN_EXE_azureal"));
        let arguments = ["run", "-s", "topic", "-a", agent, "--permission", "read", prompt];
        let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let prompts = ["Which colour?", "And now?", "Last one"];
    assert_eq!(run("claude", prompts[0]), "The colour is red.\n");
    assert_eq!(run("codex", prompts[1]), "Codex has heard of red.\n");
    assert_eq!(run("claude", prompts[2]), "Claude is back.\n");

    let requests = server.requests();
    let told: Vec<String> = requests.iter().map(|request| request.user_texts().join("\n")).collect();
    assert_eq!(told.len(), 3);
    assert!(!told[0].contains("azureal-session-context"), "{}", told[0]);
    for text in &told[1..] {
        assert_eq!(text.matches("<azureal-session-context>").count(), 1, "{text}");
        assert_eq!(text.matches("</azureal-session-context>").count(), 1, "{text}");
        assert!(text.contains("Which colour?") && text.contains("The colour is red."), "{text}");
    }
    assert!(told[2].contains("Codex has heard of red."), "{}", told[2]);

    let mut show = home.command(env!("CARGO_BIN_EXE_azureal"));
    let shown = String::from_utf8(show.args(["show", "topic", "--json"]).output().unwrap().stdout).unwrap();
    assert!(!shown.contains("azureal-session-context"), "{shown}");
    let events = shown.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let asked: Vec<Value> = events
        .filter(|event| event["kind"] == "UserMessage")
        .map(|event| event["data"]["content"].clone())
        .collect();
    assert_eq!(asked, prompts);
    assert_nobody_else_was_asked(&server);
}

#[test]
fn a_signal_that_was_ignored_before_stays_so() {
    let world = World::new();
    let gate = world.path("gate");
    fake_claude(&world, &format!("while ! test -e '{}'; do sleep 0.05; done", gate.display()));
    let program = world.with_programs(&[]).get_program().to_owned();
    let mut shell = Command::new("/bin/sh");
    let path = format!("{}:/usr/bin:/bin", world.path("bin").display());
    shell.args(["-c", "trap '' HUP; exec \"$0\" run 'Do it'"]).arg(program).current_dir(world.path("p"));
    let child = shell
        .env_clear()
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    wait_for_beginning(&world);
    signal(&child, "-HUP");
    fs::write(gate, "").unwrap();
    let ran = finish(&world, child);
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn a_time_that_no_clock_reaches_is_no_limit() {
    let world = World::new();
    let ran = world.run(&["run", "-a", "offline", "--timeout", "1e19", "hello"]);
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn an_agent_that_lost_its_azureal_while_the_prompt_was_typed_is_waited_for() {
    let world = World::new();
    let gate = world.path("gate");
    fake_claude(&world, &format!("while ! test -e '{}'; do sleep 0.05; done", gate.display()));
    let mut first = start(&world, &["run", "-s", "work", "First"]);
    wait_for_beginning(&world);
    // It looks around, and then waits for its prompt.
    let mut second = world
        .with_programs(&["run", "-s", "work", "-a", "offline"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(500));
    first.kill().unwrap();
    first.wait().unwrap();
    second.stdin.take().unwrap().write_all(b"Second").unwrap();
    thread::sleep(Duration::from_millis(500));
    assert_eq!(second.try_wait().unwrap(), None, "the first agent is still at work");
    fs::write(gate, "").unwrap();
    let ran = finish(&world, second);
    assert_eq!(ran.code, 0, "{ran}");
    let events = world.run(&["show", "work", "--json"]).json_lines();
    let prompts: Vec<&Value> = events
        .iter()
        .filter(|event| event["kind"] == "UserMessage")
        .map(|event| &event["data"]["content"])
        .collect();
    assert_eq!(prompts, ["First", "Second"]);
}

#[test]
fn an_ephemeral_turn_writes_no_prompt_down() {
    let world = World::new();
    let look = "cat \"$TMPDIR\"/azureal-*/spool/*.turn > \"$TMPDIR/seen\"";
    fake_claude(&world, look);
    let temporary = world.path("tmp");
    fs::create_dir(&temporary).unwrap();
    // One of a killed azureal, which has its mark, and one of the user.
    for name in ["azureal-999999-left", "azureal-999999-mine"] {
        fs::create_dir(temporary.join(name)).unwrap();
        fs::set_permissions(temporary.join(name), fs::Permissions::from_mode(0o700)).unwrap();
    }
    let abandoned = temporary.join("azureal-999999-left");
    let inode = fs::metadata(&abandoned).unwrap().ino().to_string();
    fs::write(abandoned.join(".azureal-temporary"), inode).unwrap();
    let mut run = world.with_programs(&["run", "--ephemeral", "My secret"]);
    let ran = world.ran(run.env("TMPDIR", &temporary).output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    let seen = fs::read_to_string(temporary.join("seen")).unwrap();
    assert!(seen.contains("\"agent\":\"claude\"") && !seen.contains("My secret"), "{seen}");
    let mut left: Vec<_> =
        fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["azureal-999999-mine", "seen"]);
}

/// Returns the prompts of a session.
fn prompts(world: &World, session: &str) -> Vec<String> {
    let events = world.run(&["show", session, "--json"]).json_lines();
    let prompts = events.iter().filter(|event| event["kind"] == "UserMessage");
    prompts.map(|event| event["data"]["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_prompt_may_begin_with_a_dash() {
    let world = World::new();
    for prompt in ["- fix the list", "--help me with this", "-1 is wrong"] {
        let ran = world.run(&["run", "-s", "list", prompt, "-a", "offline"]);
        assert_eq!(ran.code, 0, "{ran}");
    }
    let ran = world.run(&["run", "-soffline talk", "-aoffline", "--system", "- be brief", "hello"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(prompts(&world, "list"), ["- fix the list", "--help me with this", "-1 is wrong"]);
    assert_eq!(prompts(&world, "offline talk"), ["hello"]);
    // A mistyped option is not sent to anybody.
    for option in ["--ephemral", "-x", "--continu"] {
        let ran = world.run(&["run", "-a", "offline", option]);
        assert!(ran.code == 2 && ran.stderr.contains("unexpected argument"), "{ran}");
    }
}

#[test]
fn a_dash_alone_reads_the_prompt_from_standard_input() {
    let world = World::new();
    let mut command = world.command(&["run", "-a", "offline", "-"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // It waits for the input however long that takes, as it does without an argument.
    child.stdin.take().unwrap().write_all(b"from the pipe\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(prompts(&world, "S1"), ["from the pipe"]);
    insta::assert_snapshot!(world.run(&["run", "-a", "offline", "-"]), @r#"
    exit code 2
    --- stderr
    error: no prompt
    hint: write it as in `azureal run "What does this do?"`, or send it on standard input
    "#);
}

#[test]
fn a_folder_whose_name_is_not_utf_8_can_be_used() {
    let world = World::new();
    let folder = world.path("").join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir_all(folder.join(".git")).unwrap();
    fs::write(folder.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let run = |arguments: &[&str]| world.ran(world.command(arguments).current_dir(&folder).output().unwrap());
    for arguments in [
        &["run", "-a", "offline", "hello"][..],
        &["run", "-c", "-a", "offline", "more"],
        &["run", "--json", "-s", "S1", "-a", "offline", "and more"],
        &["show", "S1"],
        &["export", "S1", "--format", "json"],
        &["trust", "--show", "--json"],
        &["config", "--json"],
        &["demo", "--json", "tour"],
    ] {
        let ran = run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran}");
    }
    let listed = run(&["list", "--json"]).json();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["message_count"]), (1, &6.into()), "{listed}");
}
