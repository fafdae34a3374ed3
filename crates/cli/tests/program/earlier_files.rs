//! Files of the first release and of the original AZUREAL program: read without a change, upgraded by the first write, and
//! nothing of them is lost.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::Value as Cell;
use serde_json::Value;

use crate::world::World;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/first-release").join(name)
}

/// A project with this store of the first release.
fn first_release(store: &str) -> World {
    let world = World::new();
    fs::create_dir(world.path("p/.azureal")).unwrap();
    fs::copy(fixture(store), world.store()).unwrap();
    world
}

/// A project with a store as the original program writes it, version 3.
fn original() -> World {
    let world = World::new();
    fs::create_dir(world.path("p/.azureal")).unwrap();
    Connection::open(world.store())
        .unwrap()
        .execute_batch(
            r#"CREATE TABLE sessions (
                 id INTEGER PRIMARY KEY, name TEXT NOT NULL DEFAULT '', worktree TEXT NOT NULL DEFAULT '',
                 created TEXT NOT NULL DEFAULT (datetime('now')), completed INTEGER, duration_ms INTEGER, cost_usd REAL,
                 last_claude_uuid TEXT NOT NULL DEFAULT '');
               CREATE TABLE events (
                 id INTEGER PRIMARY KEY AUTOINCREMENT,
                 session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
                 seq INTEGER NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL, char_len INTEGER NOT NULL DEFAULT 0,
                 UNIQUE(session_id, seq));
               CREATE INDEX idx_events_session ON events(session_id, seq);
               CREATE TABLE compactions (
                 id INTEGER PRIMARY KEY AUTOINCREMENT,
                 session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
                 after_seq INTEGER NOT NULL, summary TEXT NOT NULL, created TEXT NOT NULL DEFAULT (datetime('now')));
               CREATE INDEX idx_compactions_session ON compactions(session_id);
               CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
               INSERT INTO meta VALUES ('schema_version', '3');
               INSERT INTO sessions (id, name, worktree, completed, duration_ms, cost_usd) VALUES
                 (1, '', 'main', 1, 1500, 0.25), (3, 'named', 'main', NULL, NULL, NULL);
               INSERT INTO events (session_id, seq, kind, data) VALUES
                 (1, 1, 'UserMessage', '{"UserMessage":{"content":"hello"}}'),
                 (1, 2, 'AssistantText', '{"AssistantText":{"text":"hi"}}'),
                 (1, 3, 'UserMessage', '{"UserMessage":{"content":"more"}}'),
                 (1, 4, 'Unheard', '{"Unheard":{"of": "spaces stay"}}'),
                 (3, 1, 'UserMessage', '{"UserMessage":{"content":"other"}}');
               INSERT INTO compactions (session_id, after_seq, summary) VALUES (1, 2, 'a greeting');"#,
        )
        .unwrap();
    world
}

/// The commands that only read, for every session.
fn reading_commands(ids: &[String]) -> Vec<Vec<String>> {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut commands: Vec<_> =
        ["list", "list --all", "list --all --json", "ps", "ps --json"].map(words).into();
    for id in ids {
        for command in [
            "show ID",
            "show ID --json",
            "show ID --last 2",
            "show ID --digest",
            "context ID",
            "context ID --stats",
            "compact ID --list",
            "export ID --format json",
            "export ID --format markdown",
        ] {
            commands.push(words(&command.replace("ID", id)));
        }
    }
    // Loading the vocabulary takes half a second.
    commands.extend(ids.first().map(|id| words(&format!("tokens {id}"))));
    commands
}

fn run(world: &World, command: &[String]) -> String {
    let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
    let ran = world.run(&arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {ran}");
    ran.stdout
}

fn listed(world: &World) -> Vec<Value> {
    world.run(&["list", "--all", "--json"]).json().as_array().unwrap().clone()
}

fn ids(world: &World) -> Vec<String> {
    listed(world).iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect()
}

/// Everything that the earlier program stored, cell by cell. The columns of sessions and compactions are those that it had.
fn cells(store: &Path, sessions: &str, compactions: &str) -> Vec<Vec<Cell>> {
    let connection = Connection::open(store).unwrap();
    let mut all = Vec::new();
    for sql in [
        format!("SELECT {sessions} FROM sessions ORDER BY id"),
        "SELECT id, session_id, seq, kind, data, char_len FROM events ORDER BY id".to_owned(),
        format!("SELECT {compactions} FROM compactions ORDER BY id"),
        "SELECT * FROM meta WHERE key NOT IN ('azureal_format', 'store_uuid') ORDER BY key".to_owned(),
    ] {
        let mut statement = connection.prepare(&sql).unwrap();
        let count = statement.column_count();
        let rows = statement.query_map([], |row| (0..count).map(|index| row.get(index)).collect()).unwrap();
        all.extend(rows.map(|row| row.unwrap()));
    }
    all
}

fn columns(store: &Path, table: &str) -> String {
    let connection = Connection::open(store).unwrap();
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)").unwrap();
    let names = statement.query_map([table], |row| row.get::<_, String>(0)).unwrap();
    names.map(|name| name.unwrap()).collect::<Vec<_>>().join(", ")
}

#[test]
fn reading_a_file_that_needs_the_upgrade_changes_no_byte_of_it() {
    for world in [first_release("sessions.azs"), first_release("interrupted.azs"), original()] {
        let before = fs::read(world.store()).unwrap();
        for command in reading_commands(&ids(&world)) {
            run(&world, &command);
            assert!(fs::read(world.store()).unwrap() == before, "{command:?}");
        }
    }
}

#[test]
fn a_file_of_the_first_release_is_listed_as_it_was() {
    let world = first_release("sessions.azs");
    let expected: Value = serde_json::from_str(&fs::read_to_string(fixture("list.json")).unwrap()).unwrap();
    let check = |what: &str| {
        for expected in expected.as_array().unwrap() {
            let found = listed(&world).into_iter().find(|session| session["id"] == expected["id"]).unwrap();
            for (key, value) in expected.as_object().unwrap() {
                // Times are not compared here, and the context is measured in another way since.
                if key != "context" && key != "created" {
                    assert_eq!(found[key], *value, "{what}: {key} of {}", expected["id"]);
                }
            }
        }
    };
    check("as it is");
    run(&world, &["fork", "S3"].map(str::to_owned));
    check("upgraded");
}

#[test]
fn the_first_write_upgrades_and_loses_nothing() {
    for world in [first_release("sessions.azs"), original()] {
        let store = world.store();
        let (sessions, compactions) = (columns(&store, "sessions"), columns(&store, "compactions"));
        let has_uuid = |columns: &str| columns.split(", ").any(|name| name == "uuid");
        assert!(!has_uuid(&sessions), "{sessions}");
        // What is counted may be counted in another way since.
        let kept: Vec<&str> = sessions.split(", ").filter(|name| !COUNTED.contains(name)).collect();
        let kept = kept.join(", ");
        let before = cells(&store, &kept, &compactions);
        let all = ids(&world);
        let shown = |world: &World| -> Vec<String> {
            reading_commands(&all)
                .iter()
                .filter(|command| command[0] == "show" || command.last().unwrap() == "--list")
                .map(|command| run(world, command))
                .collect()
        };
        let shown_before = shown(&world);

        let ran = world.run(&["rename", "S3", "a new name"]);
        assert_eq!(ran.code, 0, "{ran}");
        assert!(has_uuid(&columns(&store, "sessions")));
        let uuids = || -> BTreeSet<String> {
            let connection = Connection::open(&store).unwrap();
            let mut statement = connection.prepare("SELECT uuid FROM sessions").unwrap();
            statement.query_map([], |row| row.get(0)).unwrap().map(|uuid| uuid.unwrap()).collect()
        };
        let given = uuids();
        assert_eq!(given.len(), all.len());
        assert!(given.iter().all(|uuid| uuid.len() == 36), "{given:?}");

        // Back to what it was called, and nothing differs.
        let name = if sessions.contains("active") { "S3" } else { "named" };
        Connection::open(&store)
            .unwrap()
            .execute("UPDATE sessions SET name = ?1 WHERE id = 3", [name])
            .unwrap();
        assert_eq!(cells(&store, &kept, &compactions), before);
        assert_eq!(shown(&world), shown_before);

        // Later writes keep what the first one gave.
        assert_eq!(world.run(&["run", "-s", "S1", "-a", "offline", "go on"]).code, 0);
        assert_eq!(uuids(), given);
        let events = run(&world, &["show", "S1", "--json"].map(str::to_owned));
        let before = &shown_before[all.iter().position(|id| id == "S1").unwrap() * 5 + 1];
        assert!(events.starts_with(before.as_str()) && events.len() > before.len(), "{events}");
    }
}

/// The columns of a session that azureal counts over its events.
const COUNTED: [&str; 12] = [
    "counted_seq",
    "event_count",
    "message_count",
    "open_message",
    "preview",
    "agent",
    "model",
    "told",
    "model_tokens",
    "last_event",
    "active",
    "tallied_seq",
];

#[test]
fn an_interrupted_turn_of_the_first_release_is_stored_once() {
    let world = first_release("interrupted.azs");
    let spool = world.path("p/.azureal/spool");
    fs::create_dir(&spool).unwrap();
    fs::set_permissions(&spool, Permissions::from_mode(0o700)).unwrap();
    let private = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    for kind in ["turn", "jsonl", "err"] {
        let path = spool.join(format!("48bcecaac3c840caa9e9417ea8b98cb9.{kind}"));
        fs::copy(fixture(&format!("interrupted.{kind}")), &path).unwrap();
        private(&path);
    }
    // The first release left the lease of every session behind.
    for session in 1..=5 {
        let path = spool.join(format!("S{session}.lease"));
        let holder =
            r#"{"user":"user 1000","host":"h","pid":7,"agent":"claude","since":"2026-10-01T09:30:00Z"}"#;
        fs::write(&path, holder).unwrap();
        private(&path);
    }
    for _ in 0..2 {
        assert_eq!(world.run(&["list"]).code, 0);
        let events = world.run(&["show", "S5", "--json"]).json_lines();
        let kinds: Vec<&str> = events.iter().map(|event| event["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == "ToolCall").count(), 2, "{kinds:?}");
        let prompts = events.iter().filter(|event| event["data"]["content"] == "interrupted").count();
        assert_eq!((prompts, *kinds.last().unwrap()), (1, "Complete"), "{kinds:?}");
    }
    assert!(!spool.exists(), "the folder of earlier versions is removed once it is empty");
}
