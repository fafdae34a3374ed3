//! Sessions on their way from one store to another.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use azureal_core::{
    Compaction, Event, ListQuery, NewEvent, NewSession, NewTurn, Seq, SessionId, SessionStore, Tokens,
    TurnTotals, append_events,
};
use azureal_store::SqliteStore;
use azureal_store::sqlite::SqliteOptions;
use azureal_testkit::servers::{PostgresServer, RedisServer};
use futures_executor::block_on;
use rusqlite::Connection;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::run::{signal, wait_until};
use crate::servers::{Server, on_every_server};
use crate::terminal::Terminal;
use crate::world::{Ran, World};

/// Texts that a store may not change: white space, unknown kinds, escapes, orders of keys, NUL.
const HOSTILE: [&str; 8] = [
    r#"{"UserMessage":{"content":"NUL \u0000, \u001b[2J"}}"#,
    r#"{ "UserMessage" : { "content" : "spaces" } }"#,
    r#"{"FromTheFuture":{"half":"\ud83d","z":1,"a":[1.0,1e400,0.1000]}}"#,
    r#""AlsoFromTheFuture""#,
    r#"{"AssistantText":{"text":"Hi","unknown":{"b":1,"a":2}}}"#,
    r#"{"Two":1,"Keys":2}"#,
    r#"{"ToolCall":{"tool_use_id":"t","tool_name":"Bash","input":{"command":"ls"}}}"#,
    "{\"AssistantText\":{\"text\":\"\u{202e}\u{feff}é\"}}",
];

fn sqlite(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

fn id(number: u32) -> SessionId {
    SessionId::new(number).unwrap()
}

/// A store with three sessions: an empty one without a name, one with everything, and one that was deleted.
fn make_source(path: &Path) {
    let store = sqlite(path);
    let new = |name: Option<&str>, worktree: &str| NewSession {
        name: name.map(str::to_owned),
        worktree: worktree.to_owned(),
        created_at: Some("2020-01-31T09:30:00Z".to_owned()),
        ..NewSession::default()
    };
    block_on(async {
        store.create(new(None, "")).await.unwrap();
        let gone = store.create(new(Some("gone"), ".")).await.unwrap();
        store.delete(gone).await.unwrap();
        let turn = NewTurn {
            events: HOSTILE.iter().map(|text| NewEvent::verbatim((*text).to_owned()).unwrap()).collect(),
            tokens: Tokens::new(12, 34),
            totals: Some(TurnTotals { completed: Some(false), duration_ms: 567, cost_usd: 0.25 }),
            ..NewTurn::default()
        };
        let summary = |after_seq, summary: &str| Compaction {
            created_at: "2021-01-01T00:00:00Z".to_owned(),
            writer: Some("claude/haiku".to_owned()),
            opening_chars: Some(after_seq * 100),
            ..Compaction::new(Seq(after_seq), summary)
        };
        let summaries = vec![summary(3, "three\0"), summary(7, "seven")];
        store.create_with(new(Some("fix \u{1b}login"), "../feat"), turn, summaries).await.unwrap();
        store.close().await.unwrap();
    });
}

/// All that a store says of a session, but for its number.
#[derive(Debug, Deserialize)]
struct Content {
    session: BTreeMap<String, Value>,
    events: Box<RawValue>,
    compactions: Value,
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        (&self.session, self.events.get(), &self.compactions)
            == (&other.session, other.events.get(), &other.compactions)
    }
}

fn content(world: &World, store: &str, session: &str) -> Content {
    let exported = world.run(&["export", session, "--store", store]).quiet();
    let mut content: Content = serde_json::from_str(&exported).unwrap();
    let number = content.session.remove("id").unwrap();
    if content.session["name"] == number {
        content.session.remove("name");
    }
    content
}

/// The texts of a session, to the byte.
fn texts(path: &Path, session: SessionId) -> Vec<String> {
    let page = block_on(sqlite(path).read(session, azureal_core::Page::After(Seq::START, 100_000))).unwrap();
    page.into_iter().map(|stored| stored.json.unwrap()).collect()
}

fn copy(world: &World, from: &str, to: &str) -> Ran {
    world.run(&["copy", "--from", from, "--to", to])
}

#[test]
fn a_file_to_a_file() {
    let world = World::new();
    make_source(&world.path("p/a.azs"));
    let before = world.snapshot("p");
    insta::assert_snapshot!(copy(&world, "a.azs", "b.azs"), @r"
    exit code 0
    --- stdout
    S1 -> S1, 0 events
    S3 fix ␛login -> S2, 8 events
    ");
    assert_eq!(texts(&world.path("p/b.azs"), id(2)), HOSTILE);
    for (there, here) in [("S1", "S1"), ("S3", "S2")] {
        assert_eq!(content(&world, "a.azs", there), content(&world, "b.azs", here));
    }
    assert_eq!(content(&world, "b.azs", "S1").session["worktree"], "");
    // Again is nothing new, and the source is as it was to the byte.
    let after = fs::read(world.path("p/b.azs")).unwrap();
    insta::assert_snapshot!(copy(&world, "a.azs", "b.azs"), @r"
    exit code 0
    --- stdout
    S1 -> S1, unchanged
    S3 fix ␛login -> S2, unchanged
    ");
    assert_eq!(fs::read(world.path("p/b.azs")).unwrap(), after);
    fs::remove_file(world.path("p/b.azs")).unwrap();
    assert_eq!(world.snapshot("p"), before);
}

on_every_server! {
    a_file_to_a_server_and_back_is_the_same_to_the_byte
    the_times_of_the_last_activity_go_to_a_server_and_back
    killed_at_any_moment_it_goes_on_to_a_server
    killed_at_any_moment_it_goes_on_from_a_server
}

fn a_file_to_a_server_and_back_is_the_same_to_the_byte<S: Server>() {
    let Some(server) = S::shared() else { return };
    let world = World::new();
    make_source(&world.path("p/a.azs"));
    let on_server = server.store("copies");
    let report = world.run(&["copy", "--from", "a.azs", "--to", &on_server, "--json"]);
    assert_eq!(report.code, 0, "{report}");
    assert_eq!(
        report.json(),
        json!({"sessions": [
            {"from": "S1", "to": "S1", "name": "S1", "outcome": "new", "events": 0},
            {"from": "S3", "to": "S2", "name": "fix \u{1b}login", "outcome": "new", "events": 8},
        ], "notices": [], "problems": []})
    );
    assert_eq!(
        copy(&world, "a.azs", &on_server).quiet(),
        "S1 -> S1, unchanged\nS3 fix ␛login -> S2, unchanged\n"
    );
    copy(&world, &on_server, "b.azs").quiet();
    assert_eq!(texts(&world.path("p/b.azs"), id(2)), HOSTILE);
    for (there, here) in [("S1", "S1"), ("S3", "S2")] {
        assert_eq!(content(&world, "a.azs", there), content(&world, "b.azs", here));
    }
    // Where it is from it is already, under the number that it has there.
    for from in [&*on_server, "b.azs"] {
        let said = copy(&world, from, "a.azs").quiet();
        assert_eq!(said, "S1 -> S1, unchanged\nS2 fix ␛login -> S3, unchanged\n");
    }
    let same = copy(&world, &on_server, &on_server);
    assert_eq!(same.code, 2, "{same}");
    // Between two projects of one server, too.
    let elsewhere = server.store("copies-2");
    copy(&world, &on_server, &elsewhere).quiet();
    assert_eq!(content(&world, "a.azs", "S3"), content(&world, &elsewhere, "S2"));
}

#[test]
fn one_server_to_another_and_back() {
    let (Some(postgres), Some(redis)) = (PostgresServer::shared(), RedisServer::shared()) else { return };
    let world = World::new();
    make_source(&world.path("p/a.azs"));
    let (first, second) = (postgres.store("between-servers"), redis.store("between-servers"));
    copy(&world, "a.azs", &first).quiet();
    copy(&world, &first, &second).quiet();
    for session in ["S1", "S2"] {
        assert_eq!(content(&world, &first, session), content(&world, &second, session));
    }
    // Each knows where its sessions are from, also when they came by way of the other.
    for (from, to) in [(&first, &second), (&second, &first)] {
        assert_eq!(copy(&world, from, to).quiet(), "S1 -> S1, unchanged\nS2 fix ␛login -> S2, unchanged\n");
    }
    assert_eq!(
        copy(&world, &second, "a.azs").quiet(),
        "S1 -> S1, unchanged\nS2 fix ␛login -> S3, unchanged\n"
    );
}

#[test]
fn what_grew_on_either_side_is_copied_once() {
    let world = World::new();
    let (a, b) = (world.path("p/a.azs"), world.path("p/b.azs"));
    make_source(&a);
    let say = |path: &Path, number, text: &str| {
        let store = sqlite(path);
        block_on(append_events(&store, id(number), [Event::user(text)])).unwrap();
        block_on(store.add_tokens(id(number), Tokens::new(1, 0))).unwrap();
    };
    copy(&world, "a.azs", "b.azs").quiet();
    say(&a, 3, "more");
    assert!(copy(&world, "a.azs", "b.azs").quiet().contains("S3 fix ␛login -> S2, 1 new event\n"));
    say(&b, 2, "on the other side");
    assert!(copy(&world, "b.azs", "a.azs").quiet().contains("S2 fix ␛login -> S3, 1 new event\n"));
    say(&a, 3, "and back");
    assert!(copy(&world, "a.azs", "b.azs").quiet().contains("S3 fix ␛login -> S2, 1 new event\n"));
    assert_eq!(content(&world, "a.azs", "S3"), content(&world, "b.azs", "S2"));
    assert_eq!(content(&world, "b.azs", "S2").session["input_tokens"], 15);
    // Where both sides went on, neither is changed: it is another session then.
    say(&a, 3, "this");
    say(&b, 2, "that");
    let ran = copy(&world, "a.azs", "b.azs");
    assert!(
        ran.stdout.contains("S3 fix ␛login -> S3, 12 events, a fork of S2: their logs differ\n"),
        "{ran}"
    );
    assert!(copy(&world, "a.azs", "b.azs").quiet().contains("S3 fix ␛login -> S3, unchanged\n"));
    let (there, here) = (content(&world, "a.azs", "S3"), content(&world, "b.azs", "S3"));
    assert_eq!((there.events.get(), &there.compactions), (here.events.get(), &here.compactions));
    assert_eq!(here.session["forked_from"], there.session["uuid"]);
    // A summary that came later comes after.
    let summary =
        Compaction { created_at: "2026-01-31T09:30:00Z".to_owned(), ..Compaction::new(Seq(12), "all of it") };
    block_on(sqlite(&a).add_compaction(id(3), &summary)).unwrap();
    assert!(copy(&world, "a.azs", "b.azs").quiet().contains("S3 fix ␛login -> S3, 1 new summary\n"));
    assert!(block_on(sqlite(&b).compactions(id(3))).unwrap().contains(&summary), "with the time it was made");
    // One that is another there is a difference, which is told.
    block_on(sqlite(&b).add_compaction(id(3), &Compaction::new(Seq(12), "something else"))).unwrap();
    insta::assert_snapshot!(copy(&world, "a.azs", "b.azs"), @r"
    exit code 1
    --- stdout
    S1 -> S1, unchanged
    --- stderr
    error: S3 differs from a.azs S3: its summary of the first 12 events is another one, or none
    hint: delete S3 where it was copied to, and copy it again
    ");
}

#[test]
fn sessions_are_named_by_number_and_by_name() {
    let world = World::new();
    make_source(&world.path("p/.azureal.azs"));
    fs::create_dir(world.path("p/.azureal")).unwrap();
    fs::rename(world.path("p/.azureal.azs"), world.store()).unwrap();
    // Without `--from` it is the project's own.
    let ran = world.run(&["copy", "--to", "b.azs", "--session", "fix \u{1b}login", "--session", "s3"]);
    assert_eq!(ran.quiet(), "S3 fix ␛login -> S1, 8 events\n");
    let ran = world.run(&["copy", "--to", "b.azs", "--session", "S1", "--json"]);
    assert_eq!(ran.json()["sessions"][0]["to"], "S2");
    insta::assert_snapshot!(world.run(&["copy", "--to", "b.azs", "--session", "S2"]), @r"
    exit code 1
    --- stderr
    error: no session S2 in this store
    hint: `azureal list --all` shows what is there
    ");
    assert_eq!(world.run(&["copy", "--to", "c.azs", "--session", "nobody"]).code, 1);
    assert!(!world.path("p/c.azs").exists());
}

#[test]
fn what_cannot_be_copied_says_why() {
    let world = World::new();
    make_source(&world.path("p/a.azs"));
    world.file("p/text.azs", "hello");
    let mut said = String::new();
    for arguments in [
        &["copy"][..],
        &["copy", "--from", "a.azs", "--to", "memory:"],
        &["copy", "--from", "memory:", "--to", "b.azs"],
        &["copy", "--from", "a.azs", "--to", "./a.azs"],
        &["copy", "--from", "nowhere.azs", "--to", "b.azs"],
        &["copy", "--from", "text.azs", "--to", "b.azs"],
        &["copy", "--from", "a.azs", "--to", "text.azs"],
        &["copy", "--from", "mysql://u:secret@h", "--to", "b.azs"],
        &["copy", "--from", "a.azs", "--to", "redis://:secret@127.0.0.1:1/?x=y"],
    ] {
        let ran = world.run(arguments);
        assert!(ran.code != 0 && ran.stdout.is_empty(), "{arguments:?}: {ran}");
        said.push_str(ran.stderr.lines().next().unwrap());
        said.push('\n');
    }
    assert!(!said.contains("secret"), "{said}");
    let known: Vec<&str> = said.lines().take(7).collect();
    insta::assert_snapshot!(known.join("\n"), @r"
    error: missing `--from <STORE>` and `--to <STORE>`
    error: a store in memory is gone when the copy is done
    error: a store in memory is empty: there is nothing to copy
    error: the sessions would be copied to where they are
    error: nowhere.azs: no such file or directory
    error: text.azs is damaged: file is not a database
    error: [folder]/p/text.azs is not an azureal store: it is no SQLite file
    ");
    assert!(!world.path("p/b.azs").exists());
}

#[test]
fn an_event_that_cannot_be_read_is_left_out_and_told() {
    let world = World::new();
    let path = world.path("p/a.azs");
    make_source(&path);
    let damage = Connection::open(&path).unwrap();
    damage.execute("UPDATE events SET data = x'00' WHERE session_id = 3 AND seq = 2", []).unwrap();
    drop(damage);
    for outcome in ["7 events", "unchanged"] {
        let ran = copy(&world, "a.azs", "b.azs");
        assert_eq!(ran.code, 1, "{ran}");
        assert_eq!(
            ran.stdout,
            format!(
                "S1 -> S1, {}\nS3 fix ␛login -> S2, {outcome}\n",
                match outcome {
                    "unchanged" => outcome,
                    _ => "0 events",
                }
            )
        );
        assert!(ran.stderr.contains("warning: a.azs S3: event 2 ("), "{ran}");
        assert!(ran.stderr.contains("error: not everything could be copied as it is"), "{ran}");
    }
    let expected = [&HOSTILE[..1], &HOSTILE[2..]].concat();
    assert_eq!(texts(&world.path("p/b.azs"), id(2)), expected);
    // Summaries cover what they covered.
    let covered = &content(&world, "b.azs", "S2").compactions;
    assert_eq!((&covered[0]["after_seq"], &covered[1]["after_seq"]), (&json!(2), &json!(6)), "{covered}");
}

/// How many events the long session has: several pieces.
const LONG: usize = 40_000;

fn make_long_source(path: &Path) {
    let store = sqlite(path);
    block_on(async {
        for name in ["first", "long", "last"] {
            let id =
                store.create(NewSession { name: Some(name.into()), ..NewSession::default() }).await.unwrap();
            let count = if name == "long" { LONG } else { 3 };
            let events = (0..count).map(|n| Event::user(format!("{name} {n}")));
            let turn = NewTurn { tokens: Tokens::new(7, 9), ..NewTurn::verbatim(events) };
            store.append(id, turn).await.unwrap();
            store.add_compaction(id, &Compaction::new(Seq(count as u64 - 1), "nearly all")).await.unwrap();
        }
        store.close().await.unwrap();
    });
}

#[track_caller]
fn goes_on_when_it_is_killed(world: &World, from: &str, to: &str) {
    let sessions =
        || world.run(&["list", "--all", "--json", "--store", to]).json().as_array().unwrap().clone();
    let in_store =
        || sessions().iter().map(|session| session["event_count"].as_u64().unwrap() as usize).sum::<usize>();
    let mut moments = Vec::new();
    // At the beginning, between the pieces, at the end.
    for moment in [0, 1, 4, 10_000, 20_000, 30_000, LONG] {
        let mut child = world
            .command(&["copy", "--from", from, "--to", to])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while in_store() < moment && child.try_wait().unwrap().is_none() {}
        signal(&child, "-KILL");
        child.wait().unwrap();
        moments.push(in_store());
    }
    assert!(moments.is_sorted(), "{moments:?}");
    assert!(moments.iter().any(|events| (10_000..LONG).contains(events)), "too late to tell: {moments:?}");
    let ran = copy(world, from, to);
    assert_eq!(ran.code, 0, "{ran}");
    for name in ["first", "long", "last"] {
        let (there, here) = (content(world, from, name), content(world, to, name));
        assert_eq!((there.session, there.events.get()), (here.session, here.events.get()));
        // When a summary was made is not kept where its session came in pieces.
        let summaries = |compactions: Value| -> Vec<(Value, Value)> {
            let compactions = compactions.as_array().unwrap().clone();
            compactions.into_iter().map(|mut one| (one["after_seq"].take(), one["summary"].take())).collect()
        };
        assert_eq!(summaries(there.compactions), summaries(here.compactions));
    }
    assert_eq!(sessions().len(), 3);
    assert_eq!(copy(world, from, to).quiet().matches("unchanged").count(), 3);
}

#[test]
fn killed_at_any_moment_it_goes_on() {
    let world = World::new();
    make_long_source(&world.path("p/a.azs"));
    goes_on_when_it_is_killed(&world, "a.azs", "b.azs");
}

fn killed_at_any_moment_it_goes_on_to_a_server<S: Server>() {
    let Some(server) = S::shared() else { return };
    let world = World::new();
    make_long_source(&world.path("p/a.azs"));
    goes_on_when_it_is_killed(&world, "a.azs", &server.store("killed-copies"));
}

fn killed_at_any_moment_it_goes_on_from_a_server<S: Server>() {
    let Some(server) = S::shared() else { return };
    let world = World::new();
    make_long_source(&world.path("p/a.azs"));
    let on_server = server.store("long-source");
    copy(&world, "a.azs", &on_server).quiet();
    goes_on_when_it_is_killed(&world, &on_server, "b.azs");
}

#[test]
fn stopped_by_the_user_it_leaves_nothing_behind_and_goes_on() {
    let world = World::new();
    make_long_source(&world.path("p/a.azs"));
    let temporary = world.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut command = world.command(&["copy", "--from", "a.azs", "--to", "b.azs"]);
    command.env("TMPDIR", &temporary).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut first = [0; 5];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    signal(&child, "-INT");
    let ran = world.ran(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stderr.contains("run the command again to continue")), (130, true), "{ran}");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    copy(&world, "a.azs", "b.azs").quiet();
    assert_eq!(texts(&world.path("p/a.azs"), id(2)), texts(&world.path("p/b.azs"), id(2)));
}

#[test]
fn a_killed_copy_leaves_its_folder_to_the_next_one_and_nobody_else_can_look_into_it() {
    let world = World::new();
    make_source(&world.path("p/a.azs"));
    let temporary = world.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let folders = || fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    // It waits for whoever writes the file, with the folder at hand.
    let writer = Connection::open(world.path("p/a.azs")).unwrap();
    writer.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "umask 000; exec \"$0\" copy --from a.azs --to b.azs"]);
    command
        .arg(env!("CARGO_BIN_EXE_azureal"))
        .current_dir(world.path("p"))
        .env_clear()
        .env("TMPDIR", &temporary);
    let mut killed = command.stdout(Stdio::null()).spawn().unwrap();
    let is_marked = |folder: &PathBuf| {
        fs::metadata(folder.join(".azureal-temporary")).is_ok_and(|marker| marker.len() > 0)
    };
    wait_until("the copy of the file", || folders().iter().any(is_marked));
    let mode = fs::metadata(&folders()[0]).unwrap().permissions().mode() & 0o777;
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!((mode, folders().len()), (0o700, 1));
    writer.execute_batch("ROLLBACK").unwrap();
    let mut next = world.command(&["copy", "--from", "a.azs", "--to", "b.azs"]);
    assert_eq!(world.ran(next.env("TMPDIR", &temporary).output().unwrap()).code, 0);
    assert_eq!(folders(), [""; 0].map(PathBuf::from));
}

#[test]
fn copies_at_the_same_time_bring_a_session_once() {
    let world = World::new();
    make_long_source(&world.path("p/a.azs"));
    let copies: Vec<_> =
        (0..3).map(|_| world.start(&["copy", "--from", "a.azs", "--to", "b.azs", "--json"])).collect();
    for copy in copies {
        let ran = world.ran(copy.wait_with_output().unwrap());
        assert_eq!(ran.code, 0, "{ran}");
    }
    assert_eq!(
        world.run(&["list", "--all", "--json", "--store", "b.azs"]).json().as_array().unwrap().len(),
        3
    );
    assert_eq!(texts(&world.path("p/a.azs"), id(2)), texts(&world.path("p/b.azs"), id(2)));
}

#[test]
fn a_terminal_shows_how_far_it_is() {
    let world = World::new();
    make_long_source(&world.path("p/a.azs"));
    let terminal = Terminal::open();
    let mut child = world
        .command(&["copy", "--from", "a.azs", "--to", "b.azs"])
        .stderr(terminal.side_of_the_program())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success());
    let mut shown = Vec::new();
    // When all is read of a terminal that nobody writes to any more, that is an error on some systems.
    drop(terminal.into_our_side().read_to_end(&mut shown));
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("░") && shown.contains(" % S2 long"), "{shown:?}");
    assert!(shown.ends_with("\r\u{1b}[J"), "{shown:?}");
}

/// Makes a store whose sessions were active on days of their own, with and without events.
fn make_store_of_days(path: &Path) {
    let store = sqlite(path);
    let day = |day: u32| Some(format!("2024-02-{day:02}T12:00:00Z"));
    let new = |name: &str, created: u32, active: u32| NewSession {
        name: Some(name.to_owned()),
        named_at: day(created),
        worktree: ".".to_owned(),
        created_at: day(created),
        last_active: day(active),
        ..NewSession::default()
    };
    block_on(async {
        store.create(new("first", 1, 1)).await.unwrap();
        store.create(new("second", 2, 2)).await.unwrap();
        store.create(new("third", 3, 20)).await.unwrap();
        store.create(new("fourth", 4, 4)).await.unwrap();
        for (session, active) in [(2, 9), (4, 6)] {
            let turn = NewTurn { happened_at: day(active), ..NewTurn::verbatim([Event::user("again")]) };
            store.append(id(session), turn).await.unwrap();
        }
        store.close().await.unwrap();
    });
}

const DAYS: [(&str, u32); 4] = [("third", 20), ("second", 9), ("fourth", 6), ("first", 1)];

/// Checks the order of a store's sessions, and in a file also their times.
fn check_days(world: &World, store: &str) {
    let listed = world.run(&["list", "--all", "--json", "--store", store]).json();
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|session| session["name"].as_str().unwrap()).collect();
    assert_eq!(names, DAYS.map(|(name, _)| name), "{store}");
    if !store.ends_with(".azs") {
        return;
    }
    let records = block_on(sqlite(&world.path("p").join(store)).list(&ListQuery::default())).unwrap();
    for (record, (_, day)) in records.iter().zip(DAYS) {
        assert_eq!(record.last_active, format!("2024-02-{day:02}T12:00:00Z"), "{store}: {}", record.name);
        assert_eq!(record.named_at, record.created_at, "{store}: {}", record.name);
    }
}

#[test]
fn sessions_stand_in_the_order_in_which_they_were_active() {
    let world = World::new();
    make_store_of_days(&world.path("p/a.azs"));
    check_days(&world, "a.azs");
    copy(&world, "a.azs", "copied.azs").quiet();
    let ways: [&[&str]; 4] = [
        &["import", "a.azs", "--store", "imported.azs"],
        &["backup", "backup.azs", "--store", "a.azs"],
        &["restore", "backup.azs", "--store", "restored.azs", "--yes"],
        &["copy", "--from", "restored.azs", "--to", "again.azs"],
    ];
    for arguments in ways {
        let ran = world.run(arguments);
        assert_eq!(ran.code, 0, "{ran}");
    }
    for store in ["copied.azs", "imported.azs", "backup.azs", "restored.azs", "again.azs"] {
        check_days(&world, store);
    }
}

fn the_times_of_the_last_activity_go_to_a_server_and_back<S: Server>() {
    let Some(server) = S::shared() else { return };
    let world = World::new();
    make_store_of_days(&world.path("p/a.azs"));
    let on_server = server.store("days");
    copy(&world, "a.azs", &on_server).quiet();
    copy(&world, &on_server, "b.azs").quiet();
    for store in [&*on_server, "b.azs"] {
        check_days(&world, store);
    }
}
