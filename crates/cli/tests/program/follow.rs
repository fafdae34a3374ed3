//! A session that is watched while others write it.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Stdio};

use azureal_core::{Event, NewTurn, SessionId, SessionStore};
use azureal_store::SqliteStore;
use azureal_store::sqlite::SqliteOptions;
use azureal_testkit::model_server::{Answer, Gate, ModelServer};
use azureal_testkit::servers::{PgBouncer, PoolMode};
use azureal_testkit::until;
use futures_executor::block_on;
use serde_json::{Value, json};

use crate::real_agents::{Real, long_worker};
use crate::run::{fake_claude, signal, wait_for_beginning};
use crate::servers::{Server, on_every_server};
use crate::world::{World, assistant, user};

/// A follower, whose lines are read as they come. A test that waits for one that never comes hangs, and is seen.
struct Following {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Following {
    fn start(world: &World, store: &str, arguments: &[&str]) -> Self {
        let mut command = world.command(&[&["show", "--follow"], arguments].concat());
        command.env("AZUREAL_STORE", store).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }

    /// Reads until a line holds this, and returns what came.
    fn until(&mut self, text: &str) -> String {
        let mut all = String::new();
        while !all.contains(text) {
            let line = self.line();
            assert!(!line.is_empty(), "ended before {text:?}: {all}");
            all.push_str(&line);
        }
        all
    }

    /// Waits for its end, and returns its exit code and what it said.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

/// Returns the follower's standard error.
fn sees_turns_of_another_process(world: &World, store: &str) -> String {
    let say = |prompt: &str| {
        let mut command = world.command(&["run", "-s", "talk", "-a", "offline", prompt]);
        assert!(command.env("AZUREAL_STORE", store).output().unwrap().status.success());
    };
    say("First question");
    let mut following = Following::start(world, store, &["talk"]);
    let begin = following.until("✓ done");
    assert!(begin.starts_with("S1 · talk") && begin.contains("First question"), "{begin}");
    say("Second question");
    let next = following.until("✓ done");
    // A turn that is seen before it is stored has no number of its event yet.
    assert!(next.contains("## User  turn 2") && next.contains("\nSecond question"), "{next}");
    assert!(!next.contains("First question\n"), "{next}");
    say("Third question");
    let next = following.until("✓ done");
    assert!(next.contains("## User  turn 3") && next.contains("\nThird question"), "{next}");
    signal(&following.child, "-INT");
    // As with any program that Ctrl-C ends: a shell calls that 130.
    assert_eq!(following.child.wait().unwrap().signal(), Some(2));
    following.end().1
}

#[test]
fn turns_behind_a_pooler_are_seen_and_polling_is_said_once() {
    for (mode, notices) in [(PoolMode::Session, 0), (PoolMode::Transaction, 1)] {
        let Some(pooler) = PgBouncer::shared(mode) else { return };
        let store = format!("{}?project=followed-{mode:?}", pooler.url());
        let stderr = sees_turns_of_another_process(&World::new(), &store);
        assert_eq!(stderr.matches("azureal polls it").count(), notices, "{mode:?}: {stderr}");
    }
}

#[test]
fn turns_of_another_process_are_seen_as_they_land() {
    let world = World::new();
    sees_turns_of_another_process(&world, "a.azs");
}

on_every_server! {
    turns_on_a_server_are_seen_as_they_land
    a_closed_pipe_ends_it_also_while_it_listens_to_a_server
}

fn turns_on_a_server_are_seen_as_they_land<S: Server>() {
    let Some(server) = S::shared() else { return };
    sees_turns_of_another_process(&World::new(), &server.store("followed"));
}

#[test]
fn many_turns_come_in_order_and_once() {
    let world = World::new();
    world.session("talk", &[user("1"), assistant("2"), user("3")]);
    let store = SqliteStore::open(world.store(), SqliteOptions::default()).unwrap();
    let id: SessionId = "S1".parse().unwrap();
    let mut following = Following::start(&world, "", &["talk", "--json", "--last", "1"]);
    let mut numbers = Vec::new();
    let mut turns = 0..150;
    while numbers.len() < 1 + 150 * 10 {
        // The first line says that it has begun; each of the others may wait for what is written here.
        let line: Value = serde_json::from_str(&following.line()).unwrap();
        numbers.push(line["seq"].as_u64().unwrap());
        if let Some(turn) = turns.next() {
            let events = (0..10).map(|n| Event::user(format!("{turn} {n}")));
            block_on(store.append(id, NewTurn::verbatim(events))).unwrap();
        }
    }
    assert_eq!(numbers, (3..=3 + 150 * 10).collect::<Vec<u64>>());
    drop(following.lines);
    following.child.kill().unwrap();
    following.child.wait().unwrap();
}

#[test]
fn nothing_of_what_is_there_and_all_that_comes() {
    let world = World::new();
    world.session("talk", &[user("old")]);
    let store = SqliteStore::open(world.store(), SqliteOptions::default()).unwrap();
    let id: SessionId = "S1".parse().unwrap();
    let mut following = Following::start(&world, "", &["talk", "--last", "0"]);
    assert!(following.line().starts_with("S1 · talk"));
    block_on(store.append(id, NewTurn::verbatim([Event::user("new")]))).unwrap();
    assert_eq!(following.until("new"), "\n## User  turn 2, event 2\nnew\n");
    // It begins anew when it is cleared, and ends when it is deleted.
    block_on(store.clear(id)).unwrap();
    block_on(store.append(id, NewTurn::verbatim([Event::user("newer"), Event::assistant("newest")])))
        .unwrap();
    assert!(following.until("newest").contains("## User  turn 1, event 1\nnewer\n"));
    world.run(&["rm", "S1", "--yes"]).quiet();
    let (code, said) = following.end();
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(said, @r"
    warning: S1 was cleared, and starts again
    error: session S1 was deleted meanwhile
    hint: what is above is all that there was
    ");
}

#[test]
fn a_closed_pipe_ends_it_in_silence_without_another_event() {
    let world = World::new();
    world.session("talk", &[user("Hello")]);
    for arguments in [&["talk"][..], &["talk", "--json"]] {
        let mut following = Following::start(&world, "", arguments);
        following.line();
        let Following { child, lines } = following;
        drop(lines);
        let ended = child.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()));
    }
}

fn a_closed_pipe_ends_it_also_while_it_listens_to_a_server<S: Server>() {
    let Some(server) = S::shared() else { return };
    let world = World::new();
    let store = server.store("closed");
    let mut run = world.command(&["run", "-s", "talk", "-a", "offline", "Hello"]);
    assert!(run.env("AZUREAL_STORE", &store).output().unwrap().status.success());
    let mut following = Following::start(&world, &store, &["talk"]);
    following.until("✓ done");
    let Following { child, lines } = following;
    drop(lines);
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()));
}

#[test]
fn a_follower_stops_no_writer() {
    let world = World::new();
    world.session("talk", &[user("Hello")]);
    let mut following = Following::start(&world, "", &["talk"]);
    following.until("Hello");
    // A store is written alone: whoever reads it must have let go.
    let writer = rusqlite::Connection::open(world.store()).unwrap();
    writer.busy_timeout(std::time::Duration::from_secs(1)).unwrap();
    for _ in 0..20 {
        writer.execute_batch("BEGIN EXCLUSIVE; UPDATE sessions SET name = name; COMMIT").unwrap();
    }
    drop(writer);
    following.child.kill().unwrap();
    following.child.wait().unwrap();
}

/// A `claude` that waits for a file in the middle of its answer, and a turn that has begun with it.
fn running_turn(world: &World, prompt: &str) -> (Child, std::path::PathBuf) {
    let gate = world.path("gate");
    fake_claude(world, &format!("until test -e '{}'; do sleep 0.02; done", gate.display()));
    let mut run = world.with_programs(&["run", "-s", "talk", "-a", "claude", prompt]);
    (run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(), gate)
}

#[test]
fn a_running_turn_is_seen_as_it_runs_and_once() {
    let world = World::new();
    world.session("talk", &[user("old"), assistant("older")]);
    let (mut turn, gate) = running_turn(&world, "What is new?");
    wait_for_beginning(&world);
    let mut people = Following::start(&world, "", &["talk", "--last", "1"]);
    let mut program = Following::start(&world, "", &["talk", "--last", "0", "--json"]);
    // Nothing of it is stored yet.
    let shown = people.until("[reasoning, 1 line]");
    assert!(shown.contains("## User  turn 2\nWhat is new?\n"), "{shown}");
    assert!(!shown.contains("running:"), "{shown}");
    let first: Value = serde_json::from_str(&program.line()).unwrap();
    assert_eq!(first, json!({"kind": "UserMessage", "data": {"content": "What is new?"}}));
    assert_eq!(world.run(&["show", "talk", "--json"]).json_lines().len(), 2);

    std::fs::write(gate, "").unwrap();
    turn.wait().unwrap();
    let shown = people.until("✓ done");
    for text in ["I will run a command.", "Finished streaming."] {
        assert_eq!(shown.matches(text).count(), 1, "{shown}");
    }
    assert!(!shown.contains("reasoning") && !shown.contains("What is new?"), "{shown}");
    let mut lines = vec![first];
    while lines.last().unwrap()["kind"] != "Complete" {
        lines.push(serde_json::from_str(&program.line()).unwrap());
    }
    let stored = stored_events(&world);
    let without_numbers = |lines: &[Value]| -> Vec<Value> {
        lines.iter().map(|line| json!([line["kind"], line["data"]])).collect()
    };
    assert_eq!(without_numbers(&lines), without_numbers(&stored[2..]));
    let last = lines.last().unwrap();
    assert_eq!((&last["first_seq"], &last["seq"]), (&json!(3), &json!(2 + lines.len())));

    // The next one too, from its beginning.
    let (mut turn, _) = running_turn(&world, "And now?");
    turn.wait().unwrap();
    let shown = people.until("✓ done");
    assert_eq!(shown.matches("And now?").count(), 1, "{shown}");
    assert!(shown.contains("## User  turn 3"), "{shown}");
    assert_eq!(shown.matches("Finished streaming.").count(), 1, "{shown}");
    for following in [people, program] {
        signal(&following.child, "-INT");
        following.end();
    }
}

#[test]
fn a_turn_whose_azureal_was_killed_is_followed_to_its_end_and_stored() {
    let world = World::new();
    world.session("talk", &[user("old")]);
    let (mut turn, gate) = running_turn(&world, "Go");
    wait_for_beginning(&world);
    let mut following = Following::start(&world, "", &["talk", "--last", "0"]);
    following.until("[reasoning, 1 line]");
    turn.kill().unwrap();
    turn.wait().unwrap();
    std::fs::write(gate, "").unwrap();
    let shown = following.until("✓ done");
    assert_eq!(shown.matches("Finished streaming.").count(), 1, "{shown}");
    let stored = world.run(&["show", "talk", "--json"]).json_lines();
    assert_eq!(stored.last().unwrap()["data"]["outcome"], "done");
    signal(&following.child, "-INT");
    let (_, said) = following.end();
    assert_eq!(said, "recovered the last turn of S1 (complete)\n");
}

#[test]
fn a_turn_that_is_deleted_while_it_is_followed_is_said_to_be_stored_elsewhere() {
    let world = World::new();
    world.session("talk", &[user("old")]);
    let (mut turn, gate) = running_turn(&world, "Go");
    wait_for_beginning(&world);
    let mut following = Following::start(&world, "", &["talk", "--last", "0"]);
    following.until("[reasoning, 1 line]");
    for spool in crate::run::spooled(&world, "turn") {
        std::fs::remove_file(spool).unwrap();
    }
    let mut said = BufReader::new(following.child.stderr.take().unwrap());
    let mut warning = String::new();
    said.read_line(&mut warning).unwrap();
    assert!(warning.starts_with("warning: the turn above is not stored in S1: "), "{warning}");
    following.child.kill().unwrap();
    following.child.wait().unwrap();
    std::fs::write(gate, "").unwrap();
    turn.wait().unwrap();
}

#[test]
fn a_running_turn_has_its_prompt_in_lists() {
    let world = World::new();
    world.session("talk", &[user("old"), assistant("older")]);
    let prompt = "Why\n does it \u{1b}[31m fail?";
    let (mut turn, gate) = running_turn(&world, prompt);
    wait_for_beginning(&world);
    let active = world.run(&["ps", "--json"]).json()[0].clone();
    assert_eq!((&active["session"], &active["prompt"]), (&json!("S1"), &json!(prompt)));
    let pid = &active["pid"];
    let listed = world.run(&["list", "--json"]).json()[0].clone();
    assert_eq!((&listed["running"], &listed["turn"]), (&json!(true), &active));
    for (arguments, start, end) in [
        (&["ps"][..], "S1 · claude since ", format!(", process {pid}: \"Why does it ␛[31m fail?\"\n")),
        (&["list"], "       claude since ", ": \"Why does it ␛[31m fail?\"\n".to_owned()),
        (&["show"], "running: claude since ", format!(", process {pid}: \"Why does it ␛[31m fail?\"\n")),
    ] {
        let shown = world.run(arguments).quiet();
        let line = shown.lines().last().unwrap();
        assert!(line.starts_with(start) && shown.ends_with(&end), "{shown}");
    }
    std::fs::write(gate, "").unwrap();
    turn.wait().unwrap();
    let listed = world.run(&["list", "--json"]).json()[0].clone();
    assert_eq!((&listed["running"], &listed["turn"]), (&json!(false), &Value::Null));
    assert!(!world.run(&["show"]).stdout.contains("running:"));
}

#[test]
fn reading_commands_mean_the_session_of_the_running_turn_by_default() {
    let world = World::new();
    world.session("talk", &[user("old"), assistant("ancient")]);
    assert_eq!(world.run(&["run", "-a", "offline", "--name", "other", "Something else"]).code, 0);
    let last = || {
        let tokens = world.run(&["tokens", "--json"]).json()["session"].clone();
        let context = world.run(&["context", "--json"]).json()["text"].as_str().unwrap().contains("ancient");
        let [export, show] = [&["export", "--format", "markdown"][..], &["show"]]
            .map(|arguments| world.run(arguments).stdout.contains("ancient"));
        (tokens, context, export, show)
    };
    assert_eq!(last(), (json!("S2"), false, false, false));
    let (mut turn, gate) = running_turn(&world, "Go");
    wait_for_beginning(&world);
    assert_eq!(last(), (json!("S1"), true, true, true));
    std::fs::write(gate, "").unwrap();
    turn.wait().unwrap();
    assert_eq!(last(), (json!("S1"), true, true, true));
}

/// Returns the events of the session `talk` with their times, which [`World::run`] replaces.
fn stored_events(world: &World) -> Vec<Value> {
    let shown = world.command(&["show", "talk", "--json"]).output().unwrap();
    String::from_utf8(shown.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn turns_of_any_length_are_seen_once_and_in_order() {
    let world = World::new();
    world.session("talk", &[user("old")]);
    let mut following = Following::start(&world, "", &["talk", "--json", "--last", "1"]);
    following.line();
    // Some are over before a follower looks, some end while it looks, some are seen as they run.
    for pause in ["0", "0.1", "0.25", "0.3", "0.35", "0.5", "0.6", "0"] {
        fake_claude(&world, &format!("sleep {pause}"));
        // The same prompt each time, so that only their order tells them apart.
        let run = world.with_programs(&["run", "-s", "talk", "-a", "claude", "Go"]).output().unwrap();
        assert!(run.status.success());
    }
    let stored = stored_events(&world);
    let (mut live, mut seen) = (0, Vec::new());
    while seen.len() < stored.len() - 1 {
        let line: Value = serde_json::from_str(&following.line()).unwrap();
        live += usize::from(line["seq"].is_null());
        seen.push(json!([line["kind"], line["data"]]));
    }
    let expected: Vec<Value> = stored[1..].iter().map(|line| json!([line["kind"], line["data"]])).collect();
    assert_eq!(seen, expected);
    assert!(live > 0, "some were seen as they ran");
    following.child.kill().unwrap();
    following.child.wait().unwrap();
}

#[test]
fn a_turn_of_a_real_agent_is_seen_as_it_runs() {
    for agent in ["claude", "codex"] {
        let gate = Gate::new();
        let server = ModelServer::scripted([Answer::new()
            .text("Half an answer.")
            .hold(&gate)
            .text("The other half.")]);
        let Some(real) = Real::new(&server) else { return };
        let mut turn = real.asking(agent, "The first prompt", &[]).stdout(Stdio::null()).spawn().unwrap();
        until("the turn", || (real.run(&["ps", "--json"]).json()[0]["pid"].is_u64()).then_some(()));
        let mut child = real.command(&["show", "--follow", "work"]).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut following = Following { child, lines };
        let live = following.until("Half an answer.");
        assert!(live.contains("## User  turn 1\nThe first prompt\n"), "{agent}: {live}");
        gate.open();
        assert!(turn.wait().unwrap().success());
        let rest = following.until("✓ done");
        assert_eq!((rest.matches("half").count(), rest.matches("Half").count()), (1, 0), "{agent}: {rest}");
        following.child.kill().unwrap();
        following.child.wait().unwrap();
    }
}

#[test]
fn a_turn_that_is_compacted_in_the_middle_is_seen_once() {
    let server =
        ModelServer::answering(|request| long_worker(request).delay(std::time::Duration::from_millis(150)));
    let Some(real) = Real::new(&server) else { return };
    let config = real.home.home().join(".config/azureal/azufig.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(&config, "[compaction]\nthreshold_characters = 6000\n").unwrap();
    assert_eq!(real.run(&["run", "-s", "work", "-a", "offline", "Hello"]).code, 0);
    let before = real.events().len();
    let mut child = real.command(&["show", "--follow", "work", "--json", "--last", "1"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let begun: Vec<Value> = (0..before).map(|_| next()).collect();
    assert_eq!(begun.last().unwrap()["kind"], "Complete", "it has begun");
    let ran = real.run(&["run", "-s", "work", "-a", "claude", "--permission", "all", "Do all the steps"]);
    assert_eq!(ran.code, 0, "{ran}");
    let stored = real.events().split_off(before);
    assert!(stored.iter().any(|event| event["kind"] == "Compacted"), "{stored:?}");
    let seen: Vec<Value> = stored.iter().map(|_| next()).collect();
    let shape = |line: &Value| json!([line["kind"], line["data"]]);
    assert_eq!(seen.iter().map(shape).collect::<Vec<_>>(), stored.iter().map(shape).collect::<Vec<_>>());
    let live = seen.iter().filter(|line| line["seq"].is_null()).count();
    assert!(live > stored.len() / 2, "most were seen as it ran: {live} of {}", stored.len());
    child.kill().unwrap();
    child.wait().unwrap();
}
