//! A session that is watched while others write it.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Stdio};

use azureal_core::{Event, NewTurn, SessionId, SessionStore};
use azureal_store::SqliteStore;
use azureal_store::sqlite::SqliteOptions;
use azureal_testkit::servers::{PgBouncer, PoolMode};
use futures_executor::block_on;
use serde_json::Value;

use crate::run::signal;
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
    assert!(next.contains("## User\nSecond question") && !next.contains("First question\n"), "{next}");
    say("Third question");
    assert!(following.until("✓ done").contains("## User\nThird question"));
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
    assert_eq!(following.until("new"), "\n## User\nnew\n");
    // It begins anew when it is cleared, and ends when it is deleted.
    block_on(store.clear(id)).unwrap();
    block_on(store.append(id, NewTurn::verbatim([Event::user("newer"), Event::assistant("newest")])))
        .unwrap();
    assert!(following.until("newest").contains("newer"));
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
