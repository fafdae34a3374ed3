//! Which session an arriving one is: UUIDs, logs, origins and names.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use azureal_testkit::until;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::servers::{Server, on_every_server};
use crate::world::{Ran, World, assistant, exported, user};

/// The creation time of every session of [`talk`].
const SECOND: &str = "2026-01-31T09:30:00Z";

/// A session as the file has it: number, name, UUID, parent and count of events.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored {
    id: u32,
    name: String,
    uuid: Option<String>,
    forked_from: Option<String>,
    events: u32,
}

fn sessions(path: &Path) -> Vec<Stored> {
    let file = Connection::open(path).unwrap();
    let sql =
        "SELECT id, name, uuid, forked_from, (SELECT count(*) FROM events WHERE session_id = sessions.id)
               FROM sessions ORDER BY id";
    let mut statement = file.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| {
        Ok(Stored {
            id: row.get(0)?,
            name: row.get(1)?,
            uuid: row.get(2)?,
            forked_from: row.get(3)?,
            events: row.get(4)?,
        })
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// The UUIDs of a file, sorted.
fn uuids(path: &Path) -> Vec<String> {
    let mut uuids: Vec<String> = sessions(path).into_iter().map(|session| session.uuid.unwrap()).collect();
    uuids.sort();
    uuids
}

fn sql(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// Has a turn with the offline agent; a new session, or this one.
#[track_caller]
fn say(world: &World, store: &str, session: Option<&str>, prompt: &str) {
    let mut arguments = vec!["run", "-a", "offline", "--store", store];
    arguments.extend(session.iter().flat_map(|session| ["-s", session]));
    arguments.push(prompt);
    let ran = world.run(&arguments);
    assert_eq!(ran.code, 0, "{ran}");
}

/// A session of one turn, made in the same second as every other.
fn talk(world: &World, store: &str) {
    say(world, store, None, "one");
    same_second(&world.path("p").join(store));
}

fn same_second(path: &Path) {
    sql(path, &format!("UPDATE sessions SET created = '{SECOND}'"));
}

fn copy(world: &World, from: &str, to: &str) -> Ran {
    world.run(&["copy", "--from", from, "--to", to])
}

fn events(world: &World, store: &str, session: &str) -> Value {
    let exported = world.run(&["export", session, "--store", store]);
    exported.json()["events"].take()
}

/// The file of another project of the original program, whose S1 is from the same second.
fn original(path: &Path, events: &[Value]) {
    fs::remove_file(path).ok();
    sql(
        path,
        "CREATE TABLE sessions (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL DEFAULT '',
               worktree TEXT NOT NULL DEFAULT '', created TEXT NOT NULL DEFAULT (datetime('now')),
               completed INTEGER, duration_ms INTEGER, cost_usd REAL, last_claude_uuid TEXT NOT NULL DEFAULT '');
             CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT,
               session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, seq INTEGER NOT NULL,
               kind TEXT NOT NULL, data TEXT NOT NULL, char_len INTEGER NOT NULL DEFAULT 0,
               UNIQUE(session_id, seq));
             CREATE TABLE compactions (id INTEGER PRIMARY KEY AUTOINCREMENT,
               session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
               after_seq INTEGER NOT NULL, summary TEXT NOT NULL,
               created TEXT NOT NULL DEFAULT (datetime('now')));
             CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
             INSERT INTO meta VALUES ('schema_version', '3');
             INSERT INTO sessions (id, worktree, created) VALUES (1, 'main', '2026-01-31 09:30:00');",
    );
    let file = Connection::open(path).unwrap();
    for (index, event) in events.iter().enumerate() {
        let kind = event.as_object().unwrap().keys().next().unwrap();
        file.execute(
            "INSERT INTO events (session_id, seq, kind, data) VALUES (1, ?1, ?2, CAST(?3 AS BLOB))",
            (index as u32 + 1, kind, event.to_string()),
        )
        .unwrap();
    }
}

#[test]
fn a_fork_and_the_session_it_comes_from_arrive_as_two() {
    let world = World::new();
    let (a, b) = (world.path("p/a.azs"), world.path("p/b.azs"));
    talk(&world, "a.azs");
    world.run(&["fork", "S1", "--store", "a.azs"]).quiet();
    same_second(&a);
    say(&world, "a.azs", Some("S1"), "two");
    // The fork arrives first, and gets the number that the other one has at home.
    assert_eq!(copy(&world, "a.azs", "b.azs").quiet(), "S2 -> S1, 4 events\nS1 -> S2, 8 events\n");
    assert_eq!(uuids(&b), uuids(&a));
    let [origin, fork] = &sessions(&a)[..] else { panic!() };
    assert_eq!(fork.forked_from, origin.uuid);
    assert_eq!(sessions(&b)[0], Stored { id: 1, name: "S1".to_owned(), ..fork.clone() });
    assert_eq!(events(&world, "b.azs", "S2"), events(&world, "a.azs", "S1"));
    assert_eq!(copy(&world, "a.azs", "b.azs").quiet(), "S2 -> S1, unchanged\nS1 -> S2, unchanged\n");
    assert_eq!(copy(&world, "b.azs", "a.azs").quiet(), "S1 -> S2, unchanged\nS2 -> S1, unchanged\n");
}

on_every_server! {
    a_fork_arrives_from_a_server_beside_the_session_it_comes_from
    a_session_that_was_continued_on_a_server_and_in_a_file_becomes_a_fork_once
    copies_that_were_continued_in_three_files_meet_on_a_server_once
}

fn a_fork_arrives_from_a_server_beside_the_session_it_comes_from<S: Server>() {
    let Some(server) = S::shared() else { return };
    let world = World::new();
    let (a, b) = (world.path("p/a.azs"), world.path("p/b.azs"));
    let on_server = server.store("forks");
    talk(&world, "a.azs");
    world.run(&["fork", "S1", "--store", "a.azs"]).quiet();
    same_second(&a);
    copy(&world, "a.azs", &on_server).quiet();
    say(&world, &on_server, Some("S1"), "two");
    // The one that was active last arrives last.
    assert_eq!(copy(&world, &on_server, "b.azs").quiet(), "S2 -> S1, 4 events\nS1 -> S2, 8 events\n");
    assert_eq!(uuids(&b), uuids(&a));
    assert_eq!(sessions(&b)[0].forked_from, sessions(&a)[0].uuid);
    assert_eq!(copy(&world, &on_server, "a.azs").quiet(), "S2 -> S2, unchanged\nS1 -> S1, 4 new events\n");
}

fn a_session_that_was_continued_on_a_server_and_in_a_file_becomes_a_fork_once<S: Server>() {
    let Some(server) = S::shared() else { return };
    let world = World::new();
    let on_server = server.store("diverged");
    talk(&world, "a.azs");
    copy(&world, "a.azs", &on_server).quiet();
    say(&world, "a.azs", Some("S1"), "here");
    say(&world, &on_server, Some("S1"), "there");
    let fork = "S1 -> S2, 8 events, a fork of S1: their logs differ\n";
    assert_eq!(copy(&world, "a.azs", &on_server).quiet(), fork);
    assert_eq!(copy(&world, "a.azs", &on_server).quiet(), "S1 -> S2, unchanged\n");
    say(&world, "a.azs", Some("S1"), "here again");
    assert_eq!(copy(&world, "a.azs", &on_server).quiet(), "S1 -> S2, 4 new events\n");
    let forked_from = |session: &str| {
        let exported = world.run(&["export", session, "--store", &on_server]);
        exported.json()["session"]["forked_from"].take()
    };
    assert_eq!(forked_from("S1"), Value::Null);
    assert_eq!(forked_from("S2"), json!(sessions(&world.path("p/a.azs"))[0].uuid));
}

fn copies_that_were_continued_in_three_files_meet_on_a_server_once<S: Server>() {
    let Some(server) = S::shared() else { return };
    let world = World::new();
    let on_server = server.store("three");
    let files = ["a.azs", "b.azs", "c.azs"];
    talk(&world, files[0]);
    for copy in &files[1..] {
        fs::copy(world.path("p/a.azs"), world.path("p").join(copy)).unwrap();
    }
    files.iter().for_each(|file| say(&world, file, Some("S1"), file));
    // Each file knows the fork of another one before they meet.
    let merges = [
        ("b.azs", "a.azs"),
        ("b.azs", "c.azs"),
        ("a.azs", &on_server),
        ("c.azs", &on_server),
        ("b.azs", &on_server),
        (&on_server, "a.azs"),
        (&on_server, "b.azs"),
        (&on_server, "c.azs"),
    ];
    for round in 0..2 {
        for (from, to) in merges {
            assert_eq!(copy(&world, from, to).code, 0, "{from} to {to}");
        }
        for store in files.iter().copied().chain([on_server.as_str()]) {
            let listed = world.run(&["list", "--all", "--json", "--store", store]).json();
            assert_eq!(listed.as_array().unwrap().len(), 3, "{store}, round {round}: {listed}");
        }
    }
}

#[test]
fn two_conversations_of_one_second_stay_two_where_one_begins_with_the_other() {
    let world = World::new();
    let conversation = |id: &str, texts: &[&str]| {
        let messages: Vec<Value> =
            texts.iter().map(|text| json!({"role": "user", "content": text})).collect();
        json!({"id": id, "model": "", "messages": messages, "created_at": SECOND}).to_string()
    };
    world.file("in/a.json", &conversation("a", &["1", "2", "3"]));
    world.file("in/b.json", &conversation("b", &["1", "2", "3", "4", "5", "6", "7"]));
    let folder = world.path("in");
    let import = |store: &str| world.run(&["import", folder.to_str().unwrap(), "--store", store]).quiet();
    assert_eq!(import("a.azs").matches("with").count(), 2);
    assert_eq!(import("a.azs").matches("unchanged").count(), 2, "the same files are no news");
    // Each arrives first once: under the number of the other.
    for (first, other) in [("a", "b"), ("b", "a")] {
        let to = format!("{first}-first.azs");
        for session in [first, other] {
            world.run(&["copy", "--from", "a.azs", "--to", &to, "--session", session]).quiet();
        }
        let arrived: Vec<_> =
            sessions(&world.path("p").join(&to)).into_iter().map(|one| (one.name, one.events)).collect();
        let expected = |name: &str| (name.to_owned(), if name == "a" { 3 } else { 7 });
        assert_eq!(arrived, [expected(first), expected(other)]);
        assert_eq!(copy(&world, "a.azs", &to).quiet().matches("unchanged").count(), 2);
    }
}

#[test]
fn a_session_of_another_project_from_the_same_second_is_not_appended() {
    let world = World::new();
    let here = [user("hi"), assistant("Hello.")];
    world.session("here", &here);
    // Made here, not imported.
    sql(
        &world.store(),
        &format!("DELETE FROM meta WHERE key GLOB 'mark:*'; UPDATE sessions SET created = '{SECOND}'"),
    );
    let before = events(&world, ".azureal/sessions.azs", "S1");
    let theirs = world.path("theirs.azs");
    let import = || world.run(&["import", theirs.to_str().unwrap()]);
    let longer = [&here[..], &[user("Their prompt"), assistant("Their answer")]].concat();
    original(&theirs, &longer);
    insta::assert_snapshot!(import(), @r"
    exit code 0
    --- stdout
    S2 with 4 events, from [folder]/theirs.azs S1
    ");
    assert_eq!(events(&world, ".azureal/sessions.azs", "S1"), before);
    assert!(import().quiet().starts_with("S2 is unchanged"));
    // It continues the session that it became.
    original(&theirs, &[&longer[..], &[user("More")]].concat());
    assert!(import().quiet().starts_with("S2 has 1 new event"));
    assert_eq!(events(&world, ".azureal/sessions.azs", "S1"), before);
    // One that went another way is another.
    original(&theirs, &[user("hi"), assistant("Good day.")]);
    assert!(import().quiet().starts_with("S3 with 2 events"));
}

#[test]
fn a_project_that_was_copied_and_continued_in_both_places_keeps_both() {
    let world = World::new();
    let (a, b) = (world.path("p/a.azs"), world.path("p/b.azs"));
    say(&world, "a.azs", Some("login"), "one");
    fs::copy(&a, &b).unwrap();
    say(&world, "b.azs", Some("login"), "there");
    assert_eq!(copy(&world, "b.azs", "a.azs").quiet(), "S1 login -> S1, 4 new events\n");
    say(&world, "a.azs", Some("login"), "here");
    say(&world, "b.azs", Some("login"), "there again");
    let mine = events(&world, "a.azs", "S1");
    let ran = world.run(&["import", "b.azs", "--store", "a.azs", "--json"]);
    assert_eq!(
        ran.json()["imported"],
        json!([{"id": "S2", "source": "b.azs S1", "events": 12, "name": "login-2", "continued": false,
                "diverged_from": "S1"}]),
        "{ran}"
    );
    assert_eq!(events(&world, "a.azs", "S1"), mine);
    assert_eq!(events(&world, "a.azs", "S2"), events(&world, "b.azs", "S1"));
    let [first, fork] = &sessions(&a)[..] else { panic!() };
    assert_eq!((&first.uuid, &fork.forked_from), (&sessions(&b)[0].uuid, &first.uuid));
    assert_ne!(fork.uuid, first.uuid);
    // It is known from then on, from a store and from an export, and grows.
    world.run(&["export", "S1", "--store", "b.azs", "-o", "b.json"]).quiet();
    for source in ["b.azs", "b.json"] {
        assert!(world.run(&["import", source, "--store", "a.azs"]).quiet().starts_with("S2 is unchanged"));
    }
    say(&world, "b.azs", Some("login"), "more");
    assert_eq!(copy(&world, "b.azs", "a.azs").quiet(), "S1 login -> S2, 4 new events\n");
    // Where the fork was continued too, it becomes another one.
    say(&world, "a.azs", Some("S2"), "mine");
    say(&world, "b.azs", Some("login"), "theirs");
    insta::assert_snapshot!(copy(&world, "b.azs", "a.azs"), @r"
    exit code 0
    --- stdout
    S1 login -> S3, 20 events, a fork of S1: their logs differ
    --- stderr
    warning: b.azs S1: `login` is the name of another session; S3 is named `login-3`
    ");
    assert_eq!(copy(&world, "b.azs", "a.azs").quiet(), "S1 login -> S3, unchanged\n");
    assert_eq!(sessions(&a).len(), 3);
}

#[test]
fn a_session_that_became_a_fork_elsewhere_is_recognised_at_home() {
    let world = World::new();
    let (a, b) = (world.path("p/a.azs"), world.path("p/b.azs"));
    say(&world, "a.azs", Some("login"), "one");
    // So that it has its identity before it is copied.
    fs::copy(&a, &b).unwrap();
    say(&world, "a.azs", Some("login"), "here");
    say(&world, "b.azs", Some("login"), "there");
    for _ in 0..2 {
        for (from, to) in [("b.azs", "a.azs"), ("a.azs", "b.azs")] {
            assert_eq!(copy(&world, from, to).code, 0);
        }
    }
    for store in [&a, &b] {
        assert_eq!(sessions(store).len(), 2, "each conversation stands once in {}", store.display());
    }
    world.run(&["export", "S2", "--store", "a.azs", "-o", "fork.json"]).quiet();
    assert!(world.run(&["import", "fork.json", "--store", "b.azs"]).quiet().starts_with("S1 is unchanged"));
    // A fork that the user made is a session of its own, also if it holds only a part of its origin.
    assert_eq!(world.run(&["fork", "S1", "--store", "a.azs"]).code, 0);
    assert_eq!(copy(&world, "a.azs", "b.azs").code, 0);
    assert_eq!(sessions(&b).len(), 3);
}

#[test]
fn a_fork_that_another_store_brought_is_recognised() {
    let world = World::new();
    let (a, b, c) = (world.path("p/a.azs"), world.path("p/b.azs"), world.path("p/c.azs"));
    talk(&world, "a.azs");
    fs::copy(&a, &b).unwrap();
    // A fork that the user made, and which is the beginning of both.
    world.run(&["fork", "S1", "--store", "a.azs"]).quiet();
    say(&world, "a.azs", Some("S1"), "here");
    say(&world, "b.azs", Some("S1"), "there");
    assert!(copy(&world, "b.azs", "a.azs").quiet().starts_with("S1 -> S3, 8 events, a fork of S1"));
    assert_eq!(sessions(&a)[1].events, 4, "the user's fork is left alone");
    copy(&world, "a.azs", "c.azs").quiet();
    let fork = sessions(&c).iter().position(|session| session.uuid == sessions(&a)[2].uuid).unwrap() + 1;
    assert_eq!(copy(&world, "b.azs", "c.azs").quiet(), format!("S1 -> S{fork}, unchanged\n"));
    say(&world, "b.azs", Some("S1"), "more");
    assert_eq!(copy(&world, "b.azs", "c.azs").quiet(), format!("S1 -> S{fork}, 4 new events\n"));
    assert_eq!(copy(&world, "b.azs", "c.azs").quiet(), format!("S1 -> S{fork}, unchanged\n"));
    assert_eq!(sessions(&c).len(), 3);
}

#[test]
fn a_file_without_uuids_is_known_by_number_time_and_log() {
    let world = World::new();
    let (a, old) = (world.path("p/a.azs"), world.path("p/old.azs"));
    talk(&world, "a.azs");
    fs::copy(&a, &old).unwrap();
    sql(&old, "UPDATE sessions SET uuid = NULL, name = ''");
    // All of it is here.
    assert_eq!(copy(&world, "old.azs", "a.azs").quiet(), "S1 -> S1, unchanged\n");
    say(&world, "a.azs", Some("S1"), "two");
    assert_eq!(copy(&world, "old.azs", "a.azs").quiet(), "S1 -> S1, unchanged\n");
    for change in
        ["UPDATE sessions SET id = 7", "UPDATE sessions SET id = 1, created = '2020-01-01T00:00:00Z'"]
    {
        sql(
            &old,
            &format!(
                "PRAGMA foreign_keys = OFF; {change}; UPDATE events SET session_id = (SELECT id FROM sessions)"
            ),
        );
        assert!(copy(&world, "old.azs", "a.azs").quiet().contains(", 4 events\n"), "{change}");
        assert!(copy(&world, "old.azs", "a.azs").quiet().contains(", unchanged\n"), "{change}");
    }
    assert_eq!(sessions(&a).len(), 3);
}

#[test]
fn sessions_that_got_their_uuids_after_they_were_copied_are_still_one() {
    let world = World::new();
    let (a, b) = (world.path("p/a.azs"), world.path("p/b.azs"));
    // `a` and `b` as the first release left them: copied, under another number, and without UUIDs.
    talk(&world, "a.azs");
    sql(&a, "UPDATE sessions SET uuid = NULL");
    say(&world, "b.azs", Some("other"), "other");
    assert_eq!(copy(&world, "a.azs", "b.azs").quiet(), "S1 -> S2, 4 events\n");
    sql(&b, "UPDATE sessions SET uuid = NULL");
    // Each gets a UUID of its own with its next turn.
    say(&world, "a.azs", Some("S1"), "two");
    say(&world, "b.azs", Some("other"), "again");
    assert_ne!(sessions(&a)[0].uuid, sessions(&b)[1].uuid);
    fs::copy(&b, world.path("p/back.azs")).unwrap();
    assert_eq!(copy(&world, "a.azs", "b.azs").quiet(), "S1 -> S2, 4 new events\n");
    assert_eq!(copy(&world, "a.azs", "b.azs").quiet(), "S1 -> S2, unchanged\n");
    say(&world, "b.azs", Some("S2"), "three");
    assert!(copy(&world, "b.azs", "a.azs").quiet().contains("S2 -> S1, 4 new events\n"));
    assert!(copy(&world, "b.azs", "a.azs").quiet().contains("S2 -> S1, unchanged\n"));
    // Wherever it is copied to from there, it is one.
    for from in ["b.azs", "a.azs"] {
        copy(&world, from, "c.azs").quiet();
    }
    world.run(&["export", "S2", "--store", "b.azs", "-o", "two.json"]).quiet();
    assert!(world.run(&["import", "two.json", "--store", "a.azs"]).quiet().starts_with("S1 is unchanged"));
    let arrived: Vec<_> = sessions(&world.path("p/c.azs")).into_iter().map(|one| one.events).collect();
    assert_eq!(arrived, [8, 12]);
    // Back first, before the UUID of its home was known.
    say(&world, "back.azs", Some("S2"), "back");
    fs::copy(&a, world.path("p/home.azs")).unwrap();
    sql(
        &world.path("p/home.azs"),
        "DELETE FROM events WHERE seq > 4; DELETE FROM meta WHERE key GLOB 'mark:*'",
    );
    assert!(copy(&world, "back.azs", "home.azs").quiet().contains("S2 -> S1, 4 new events\n"));
    assert!(copy(&world, "back.azs", "home.azs").quiet().contains("S2 -> S1, unchanged\n"));
}

#[test]
fn a_copy_with_the_number_of_its_origin_continues_it_at_home() {
    let world = World::new();
    let (a, b) = (world.path("p/a.azs"), world.path("p/b.azs"));
    talk(&world, "a.azs");
    sql(&a, "UPDATE sessions SET uuid = NULL");
    copy(&world, "a.azs", "b.azs").quiet();
    sql(&b, "UPDATE sessions SET uuid = NULL");
    say(&world, "b.azs", Some("S1"), "two");
    world.run(&["rename", "S1", "login", "--store", "a.azs"]).quiet();
    assert_ne!(uuids(&a), uuids(&b));
    assert_eq!(copy(&world, "b.azs", "a.azs").quiet(), "S1 -> S1, 4 new events\n");
    assert_eq!(copy(&world, "b.azs", "a.azs").quiet(), "S1 -> S1, unchanged\n");
    say(&world, "a.azs", Some("S1"), "three");
    assert_eq!(copy(&world, "a.azs", "b.azs").quiet(), "S1 login -> S1, 4 new events\n");
    say(&world, "b.azs", Some("S1"), "four");
    assert_eq!(copy(&world, "b.azs", "a.azs").quiet(), "S1 -> S1, 4 new events\n");
    assert_eq!((sessions(&a).len(), sessions(&b).len()), (1, 1));
    assert_eq!(events(&world, "a.azs", "S1"), events(&world, "b.azs", "S1"));
}

#[test]
fn a_session_that_is_known_by_a_uuid_is_not_extended_by_another_of_its_origin() {
    let world = World::new();
    let (a, b) = (world.path("p/a.azs"), world.path("p/b.azs"));
    talk(&world, "a.azs");
    sql(&a, "UPDATE sessions SET uuid = NULL");
    copy(&world, "a.azs", "b.azs").quiet();
    fs::copy(&a, world.path("p/other.azs")).unwrap();
    // Any change gives a session its UUID.
    world.run(&["rename", "S1", "login", "--store", "a.azs"]).quiet();
    assert_eq!(copy(&world, "a.azs", "b.azs").quiet(), "S1 login -> S1, unchanged\n");
    say(&world, "other.azs", Some("S1"), "elsewhere");
    assert_eq!(copy(&world, "other.azs", "b.azs").quiet(), "S1 -> S2, 8 events\n");
    say(&world, "a.azs", Some("S1"), "two");
    assert_eq!(copy(&world, "a.azs", "b.azs").quiet(), "S1 login -> S1, 4 new events\n");
    assert_eq!(sessions(&b).len(), 2);
}

#[test]
fn a_name_that_another_session_has_gets_a_number() {
    let world = World::new();
    say(&world, "b.azs", Some("login"), "theirs");
    for number in 1..=3 {
        let store = format!("a{number}.azs");
        say(&world, &store, Some("login"), "mine");
        let ran = match number {
            1 => world.run(&["import", &store, "--store", "b.azs"]),
            _ => copy(&world, &store, "b.azs"),
        };
        assert_eq!((ran.code, ran.stdout.contains("4 events")), (0, true), "{ran}");
        let name = format!("login-{}", number + 1);
        let notice = format!(
            "warning: {store} S1: `login` is the name of another session; S{} is named `{name}`\n",
            number + 1
        );
        assert_eq!(ran.stderr, notice, "{ran}");
        // The same session has its name already.
        assert_eq!(
            copy(&world, &store, "b.azs").quiet(),
            format!("S1 login -> S{}, unchanged\n", number + 1)
        );
    }
    let names: Vec<_> = sessions(&world.path("p/b.azs")).into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["login", "login-2", "login-3", "login-4"]);
    say(&world, "a5.azs", Some("login"), "mine");
    let ran = world.run(&["copy", "--from", "a5.azs", "--to", "b.azs", "--json"]);
    assert_eq!((ran.code, &ran.json()["problems"]), (0, &json!([])), "{ran}");
    assert_eq!(
        ran.json()["notices"],
        json!([{"session": "S1", "message": "`login` is the name of another session; S5 is named `login-5`"}])
    );
}

#[test]
fn a_name_that_looks_like_a_number_is_not_taken() {
    let world = World::new();
    say(&world, "a.azs", None, "one");
    sql(&world.path("p/a.azs"), "UPDATE sessions SET name = 'S7'");
    let ran = copy(&world, "a.azs", "b.azs");
    assert_eq!((ran.code, ran.stdout.as_str()), (1, "S1 S7 -> S1, 4 events\n"), "{ran}");
    assert!(ran.stderr.contains("`S7` cannot be the name of a session; it has none now"), "{ran}");
    assert_eq!(sessions(&world.path("p/b.azs"))[0].name, "S1");
}

#[test]
fn a_fork_that_many_bring_at_once_arrives_once() {
    let world = World::new();
    let (a, b) = (world.path("p/a.azs"), world.path("p/b.azs"));
    say(&world, "a.azs", Some("login"), "one");
    fs::copy(&a, &b).unwrap();
    say(&world, "a.azs", Some("login"), "here");
    say(&world, "b.azs", Some("login"), "there");
    say(&world, "b.azs", Some("new"), "new");
    let imports: Vec<_> =
        (0..6).map(|_| world.start(&["import", "b.azs", "--store", "a.azs", "--json"])).collect();
    let mut imported = 0;
    for import in imports {
        let ran = world.ran(import.wait_with_output().unwrap());
        assert_eq!(ran.code, 0, "{ran}");
        imported += ran.json()["imported"].as_array().unwrap().len();
    }
    assert_eq!(imported, 2, "the fork and the new one");
    let arrived: Vec<_> = sessions(&a).into_iter().map(|one| (one.name, one.events)).collect();
    assert_eq!(arrived, [("login".to_owned(), 8), ("login-2".to_owned(), 8), ("new".to_owned(), 4)]);
}

#[test]
fn an_export_carries_the_identity_and_an_import_keeps_it() {
    let world = World::new();
    talk(&world, "a.azs");
    world.run(&["fork", "S1", "--store", "a.azs", "--name", "branch"]).quiet();
    world.run(&["export", "branch", "--store", "a.azs", "-o", "branch.json"]).quiet();
    let file: Value =
        serde_json::from_str(&fs::read_to_string(world.path("p/branch.json")).unwrap()).unwrap();
    let [origin, fork] = &sessions(&world.path("p/a.azs"))[..] else { panic!() };
    assert_eq!(
        (&file["session"]["uuid"], &file["session"]["forked_from"]),
        (&json!(fork.uuid), &json!(origin.uuid))
    );
    world.run(&["import", "branch.json", "--store", "b.azs"]).quiet();
    assert_eq!(sessions(&world.path("p/b.azs")), [Stored { id: 1, ..fork.clone() }]);
    assert_eq!(copy(&world, "a.azs", "b.azs").quiet(), "S1 -> S2, 4 events\nS2 branch -> S1, unchanged\n");
    // A file of the first release has neither, and nobody is misled by one that is no UUID.
    let mut older = exported("older", &[user("x")]);
    older["session"]["uuid"] = json!("not a UUID");
    world.file("p/older.json", &older.to_string());
    assert!(
        world.run(&["import", "older.json", "--store", "b.azs"]).quiet().starts_with("S3 older with 1 event")
    );
    assert!(world.run(&["import", "older.json", "--store", "b.azs"]).quiet().starts_with("S3 is unchanged"));
}

#[test]
fn a_turn_is_not_stored_in_another_session_of_the_same_number() {
    let world = World::new();
    fs::remove_dir_all(world.path("p/.git")).unwrap();
    assert_eq!(world.run(&["run", "-a", "offline", "one"]).code, 0);
    world.program("claude", "cat > /dev/null\ntouch started\nwhile [ ! -e go ]; do sleep 0.05; done");
    let mut child = world.with_programs(&["run", "-s", "S1", "-a", "claude", "of the old store"]);
    let child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the agent runs", || world.path("p/started").exists().then_some(()));
    fs::remove_dir_all(world.path("p/.azureal")).unwrap();
    // Sessions are told apart by the second in which they were created.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    assert_eq!(world.run(&["run", "-a", "offline", "brand new"]).code, 0);
    world.file("p/go", "");
    let ran = world.ran(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 1, "{ran}");
    let events = world.run(&["show", "S1", "--json"]).json_lines();
    let prompts: Vec<&str> = events.iter().filter_map(|event| event["data"]["content"].as_str()).collect();
    assert_eq!(prompts, ["brand new"]);
}
