//! Sessions on their way in, from every format.

use std::fs;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::GzEncoder;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::world::{World, assistant, exported, user};

/// A conversation as cllm keeps it.
pub(crate) const CLLM: &str = r#"{
  "id": "conv-1a2b3c4d",
  "model": "gpt-4",
  "messages": [
    {"role": "system", "content": "Be brief.\n\n--- Context: git ---\nclean\n--- End Context ---"},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi!"}
  ],
  "created_at": "2025-10-31T16:47:14.123456Z",
  "updated_at": "2025-10-31T16:47:15Z",
  "metadata": {
    "total_tokens": 42,
    "context_executed_at": "2025-10-31T16:47:14Z",
    "context_commands": [{"name": "git", "command": "git status", "exit_code": 0, "duration_ms": 12}]
  }
}"#;

fn count(world: &World) -> usize {
    world.run(&["list", "--all", "--json"]).json().as_array().unwrap().len()
}

/// Imports twice, and says what came of it the first time; the second time nothing may change.
#[track_caller]
fn import_twice(world: &World, path: &str) -> crate::world::Ran {
    let path = world.path(path);
    let path = path.to_str().unwrap();
    let first = world.run(&["import", path]);
    let before = world.snapshot("p/.azureal");
    let second = world.run(&["import", path, "--json"]);
    assert_eq!(second.code, 0, "{second}");
    assert_eq!(second.json()["imported"], json!([]), "{second}");
    assert!(!second.json()["unchanged"].as_array().unwrap().is_empty());
    assert_eq!(world.snapshot("p/.azureal"), before);
    first
}

#[test]
fn a_cllm_conversation() {
    let world = World::new();
    world.file("c.json", CLLM);
    insta::assert_snapshot!(import_twice(&world, "c.json"), @r"
    exit code 0
    --- stdout
    S1 conv-1a2b3c4d with 4 events, from [folder]/c.json
    ");
    insta::assert_snapshot!(world.run(&["show", "conv-1", "--json"]), @r#"
    exit code 0
    --- stdout
    {"seq":1,"kind":"SystemMessage","data":{"content":"Be brief.\n\n--- Context: git ---\nclean\n--- End Context ---","context_executed_at":"[time]","context_commands":[{"name":"git","command":"git status","exit_code":0,"duration_ms":12}]}}
    {"seq":2,"kind":"ModelSwitch","data":{"model":"gpt-4"}}
    {"seq":3,"kind":"UserMessage","data":{"content":"Hello"}}
    {"seq":4,"kind":"AssistantText","data":{"text":"Hi!","starts":true}}
    "#);
    assert_eq!(world.run(&["list", "--json"]).json()[0]["input_tokens"], 42);
}

#[test]
fn a_conversation_that_has_grown_goes_on() {
    let world = World::new();
    let mut conversation: Value = serde_json::from_str(CLLM).unwrap();
    let path = world.file("c.json", CLLM);
    let path = path.to_str().unwrap();
    world.run(&["import", path]).quiet();
    conversation["messages"].as_array_mut().unwrap().push(json!({"role": "user", "content": "More"}));
    conversation["metadata"]["total_tokens"] = json!(50);
    world.file("c.json", &conversation.to_string());
    insta::assert_snapshot!(world.run(&["import", path]), @r"
    exit code 0
    --- stdout
    S1 conv-1a2b3c4d has 1 new event, from [folder]/c.json
    ");
    let list = world.run(&["list", "--json"]).json();
    assert_eq!((list.as_array().unwrap().len(), &list[0]["input_tokens"]), (1, &json!(50)));
    // A moved file is the same conversation.
    fs::rename(path, world.path("moved.json")).unwrap();
    assert!(world.run(&["import", world.path("moved.json").to_str().unwrap()]).quiet().contains("unchanged"));
    // One that was rewritten is another.
    conversation["messages"][1]["content"] = json!("Good day");
    world.file("c.json", &conversation.to_string());
    insta::assert_snapshot!(world.run(&["import", path]), @r"
    exit code 0
    --- stdout
    S2 conv-1a2b3c4d-2 with 5 events, from [folder]/c.json
    --- stderr
    warning: [folder]/c.json: `conv-1a2b3c4d` is the name of another session; S2 is named `conv-1a2b3c4d-2`
    ");
    assert_eq!(count(&world), 2);
    import_twice(&world, "c.json");
    import_twice(&world, "moved.json");
    assert_eq!(count(&world), 2);
    // What was deleted can be had again.
    world.run(&["rm", "S1", "--yes"]).quiet();
    assert!(world.run(&["import", world.path("moved.json").to_str().unwrap()]).quiet().starts_with("S3 "));
}

#[test]
fn a_time_without_a_zone_is_utc() {
    let world = World::new();
    for (name, time) in [("python", "2025-10-31T16:47:14.123456"), ("sqlite", "2025-10-31 16:47:14.5")] {
        let mut conversation: Value = serde_json::from_str(CLLM).unwrap();
        conversation["id"] = json!(name);
        conversation["created_at"] = json!(time);
        world.file(&format!("in/{name}.json"), &conversation.to_string());
    }
    world.run(&["import", world.path("in").to_str().unwrap()]).quiet();
    let file = Connection::open(world.store()).unwrap();
    let mut statement = file.prepare("SELECT created, last_active FROM sessions").unwrap();
    let times = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let times: Vec<(String, String)> = times.map(Result::unwrap).collect();
    let (created, updated) = ("2025-10-31T16:47:14Z".to_owned(), "2025-10-31T16:47:15Z".to_owned());
    assert_eq!(times, [(created.clone(), updated.clone()), (created, updated)]);
}

#[test]
fn an_imported_session_is_listed_where_it_was_used_last() {
    let world = World::new();
    world.run(&["run", "-s", "today", "-a", "offline", "What I work on"]);
    for (name, time) in [
        ("older", "2024-01-01T00:00:00Z"),
        ("newer", "2025-01-01T00:00:00Z"),
        ("oldest", "2023-01-01T00:00:00Z"),
    ] {
        let mut conversation: Value = serde_json::from_str(CLLM).unwrap();
        (conversation["id"], conversation["created_at"], conversation["updated_at"]) =
            (json!(name), json!(time), json!(time));
        world.file("conversation.json", &conversation.to_string());
        world.run(&["import", world.path("conversation.json").to_str().unwrap()]).quiet();
    }
    let names = |arguments: &[&str]| {
        let listed = world.run(arguments).json();
        listed
            .as_array()
            .unwrap()
            .iter()
            .map(|session| session["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&["list", "--json"]), ["today", "newer", "older", "oldest"]);
    assert_eq!(names(&["list", "--json", "-n", "2"]), ["today", "newer"]);
    // Used here, it moves up.
    world.run(&["run", "-s", "oldest", "-a", "offline", "More"]);
    assert_eq!(names(&["list", "--json"]), ["oldest", "today", "newer", "older"]);
}

#[test]
fn a_folder_of_conversations() {
    let world = World::new();
    let mut second: Value = serde_json::from_str(CLLM).unwrap();
    second["id"] = json!("older");
    second["created_at"] = json!("2024-01-01T00:00:00Z");
    world.file("conversations/a.json", CLLM);
    world.file("conversations/b.json", &second.to_string());
    world.file("conversations/half.json", &CLLM[..200]);
    world.file("conversations/package.json", r#"{"name": "x"}"#);
    world.file("conversations/notes.txt", "hello");
    world.file("conversations/empty.json", "");
    world.file("conversations/below/c.json", CLLM);
    insta::assert_snapshot!(import_twice(&world, "conversations"), @r"
    exit code 0
    --- stdout
    S1 older with 4 events, from [folder]/conversations/b.json
    S2 conv-1a2b3c4d with 4 events, from [folder]/conversations/a.json
    --- stderr
    warning: [folder]/conversations: 3 other files passed over
    warning: [folder]/conversations/half.json ends in the middle of its JSON: EOF while parsing a string at line 6 column 37
    ");
}

#[test]
fn a_list_of_messages() {
    let world = World::new();
    let messages = json!([
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "as plain text"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AQID"}}]},
        {"role": "assistant", "content": [{"type": "reasoning", "text": "hm", "redacted": false, "id": ""}, {"type": "text", "text": "b"}, {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok", "is_error": false}]},
        {"role": "assistant", "content": [{"type": "audio", "media_type": "audio/wav", "data": "AAAA"}]},
        {"role": "assistant"},
        {"no": "role"},
        {"role": "user", "content": 7},
    ]);
    world.file("list.json", &messages.to_string());
    insta::assert_snapshot!(world.run(&["import", world.path("list.json").to_str().unwrap()]), @r"
    exit code 0
    --- stdout
    S1 list with 9 events, from [folder]/list.json
    --- stderr
    warning: [folder]/list.json: the message at position 7 was left out, because it cannot be read: it has no role
    warning: [folder]/list.json: the message at position 8 was left out, because it cannot be read: its content is neither text nor a list of blocks
    warning: [folder]/list.json: reasoning block, kept apart from the messages (1×)
    ");
    let ok = json!({"messages": [messages[1], messages[4]]});
    world.file("wrapped.json", &ok.to_string());
    insta::assert_snapshot!(import_twice(&world, "wrapped.json"), @r"
    exit code 0
    --- stdout
    S2 wrapped with 2 events, from [folder]/wrapped.json
    ");
    insta::assert_snapshot!(world.run(&["show", "list"]), @r"
    exit code 0
    --- stdout
    S1 · list · created [time] · active just now · 7 messages

    ## System
    Be brief.

    ## User  turn 1, event 2
    as plain text

    ## User  turn 2, event 3
    a

    [image: image/png, 3 bytes]
    [reasoning, 1 line]

    ## Assistant
    b
    > Bash ls
        ok

    [audio: audio/wav, 3 bytes]
    ");
}

/// A database as axio writes it; `table` and `tokens` are what its tables are called.
fn axio(world: &World, path: &str, table: &str, tokens: &str, extra: &str) -> Connection {
    let connection = Connection::open(world.path(path)).unwrap();
    connection
        .execute_batch(&format!(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE {table} (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
               project TEXT NOT NULL, position INTEGER NOT NULL, role TEXT NOT NULL, content TEXT NOT NULL,
               {extra} created_at TEXT NOT NULL DEFAULT (datetime('now')), UNIQUE(session_id, position));
             CREATE TABLE {tokens} (session_id TEXT NOT NULL, project TEXT NOT NULL,
               input_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
               PRIMARY KEY(session_id, project));
             INSERT INTO {tokens} VALUES ('one', '/p', 100, 20), ('one', '/q', 5, 1);"
        ))
        .unwrap();
    connection
}

fn add(connection: &Connection, table: &str, session: &str, position: i64, role: &str, content: &str) {
    connection
        .execute(
            &format!("INSERT INTO {table} (session_id, project, position, role, content, created_at) VALUES (?1, '/p', ?2, ?3, ?4, '2026-01-31 09:30:0' || ?2)"),
            (session, position, role, content),
        )
        .unwrap();
}

fn gzip(text: &str) -> String {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(text.as_bytes()).unwrap();
    format!("gzip:{}", BASE64.encode(encoder.finish().unwrap()))
}

#[test]
fn an_axio_database() {
    let world = World::new();
    fs::create_dir(world.path("db")).unwrap();
    let table = "axio_context_messages";
    let connection = axio(&world, "db/axio.db", table, "axio_context_tokens", "provenance TEXT,");
    let long = format!(r#"[{{"type": "text", "text": "{}"}}]"#, "long ".repeat(200));
    add(&connection, table, "one", 0, "user", r#"plain:[{"type": "text", "text": "Hello"}]"#);
    add(&connection, table, "one", 1, "assistant", &gzip(&long));
    add(&connection, table, "two", 0, "user", r#"[{"type": "text", "text": "raw"}]"#);
    add(&connection, table, "two", 1, "assistant", "gzip:broken");
    add(
        &connection,
        table,
        "two",
        2,
        "assistant",
        r#"plain:[{"type": "video", "media_type": "video/mp4", "data": "AA=="}]"#,
    );
    connection
        .execute(
            &format!("UPDATE {table} SET provenance = '{{}}' WHERE session_id = 'one' AND position = 0"),
            [],
        )
        .unwrap();
    drop(connection);
    let before = world.snapshot("db");
    assert_eq!(before.len(), 1);
    insta::assert_snapshot!(import_twice(&world, "db/axio.db"), @r"
    exit code 0
    --- stdout
    S1 one with 2 events, from [folder]/db/axio.db one
    S2 two with 2 events, from [folder]/db/axio.db two
    --- stderr
    warning: [folder]/db/axio.db one: `provenance` of a message, left out (1×)
    warning: [folder]/db/axio.db two: the message at position 1 was left out, because it cannot be read: Invalid padding
    ");
    assert_eq!(world.snapshot("db"), before, "the source is as it was, and alone");
    let one = world.run(&["list", "--json"]).json();
    let one = one.as_array().unwrap().iter().find(|session| session["name"] == "one").unwrap();
    assert_eq!((&one["input_tokens"], &one["output_tokens"]), (&json!(105), &json!(21)));
    assert_eq!(one["message_count"], 2);
}

#[test]
fn an_axio_database_without_messages_and_one_that_counted_tokens() {
    let world = World::new();
    fs::create_dir(world.path("db")).unwrap();
    let table = "axio_context_messages";
    let connection = axio(&world, "db/axio.db", table, "axio_context_tokens", "provenance TEXT,");
    let path = world.path("db/axio.db");
    let path = path.to_str().unwrap();
    insta::assert_snapshot!(world.run(&["import", path]), @r"
    exit code 1
    --- stderr
    error: [folder]/db/axio.db has no messages
    ");
    let text = r#"[{"type": "text", "text": "x", "signature": "s", "provider": "google"}]"#;
    add(&connection, table, "one", 0, "assistant", text);
    world.run(&["import", path]);
    connection.execute("UPDATE axio_context_tokens SET input_tokens = 500 WHERE project = '/p'", []).unwrap();
    insta::assert_snapshot!(world.run(&["import", path]), @r"
    exit code 0
    --- stdout
    S1 one has 400 new tokens, from [folder]/db/axio.db one
    --- stderr
    warning: [folder]/db/axio.db one: `provider` of a `text` block, left out (1×)
    warning: [folder]/db/axio.db one: provider's signature, left out (1×)
    ");
    assert!(world.run(&["import", path]).stdout.contains("unchanged"));
    let one = &world.run(&["list", "--json"]).json()[0];
    assert_eq!((&one["input_tokens"], &one["output_tokens"]), (&json!(505), &json!(21)));
}

#[test]
fn an_older_axio_database_in_use() {
    let world = World::new();
    fs::create_dir(world.path("db")).unwrap();
    let connection = axio(&world, "db/axio.db", "messages", "context_tokens", "");
    add(&connection, "messages", "one", 0, "user", r#"[{"type": "text", "text": "Hello"}]"#);
    // What was written is in the log only, while the connection is open.
    assert!(world.path("db/axio.db-wal").exists());
    insta::assert_snapshot!(import_twice(&world, "db/axio.db"), @r"
    exit code 0
    --- stdout
    S1 one with 1 event, from [folder]/db/axio.db one
    ");
    add(&connection, "messages", "one", 1, "assistant", r#"[{"type": "text", "text": "Hi"}]"#);
    let path = world.path("db/axio.db");
    assert!(world.run(&["import", path.to_str().unwrap()]).quiet().contains("S1 one has 1 new event,"));
}

#[test]
fn another_store() {
    let other = World::new();
    let mut session = exported(
        "first",
        &[user("one"), assistant("two"), json!("Compacted"), json!({"Telemetry": {"a": 1.50}})],
    );
    session["compactions"] = json!([{"after_seq": 2, "summary": "sum"}]);
    session["session"]["input_tokens"] = json!(9);
    let path = other.file("first.json", &session.to_string());
    other.run(&["import", path.to_str().unwrap()]).quiet();
    other.session("second", &[user("x"), user("y"), user("z")]);
    other.session("empty", &[]);
    other.run(&["fork", "first"]).quiet();
    Connection::open(other.store())
        .unwrap()
        .execute("UPDATE events SET data = x'00' WHERE session_id = 2 AND seq = 2", [])
        .unwrap();
    let before = other.snapshot("p/.azureal");

    let world = World::new();
    fs::create_dir(world.path("in")).unwrap();
    fs::copy(other.store(), world.path("in/a.azs")).unwrap();
    let copied = world.snapshot("in");
    insta::assert_snapshot!(import_twice(&world, "in/a.azs"), @r"
    exit code 0
    --- stdout
    S1 first with 4 events, from [folder]/in/a.azs S1
    S2 second with 2 events, from [folder]/in/a.azs S2
    S3 empty with 0 events, from [folder]/in/a.azs S3
    S4 with 4 events, from [folder]/in/a.azs S4
    --- stderr
    warning: [folder]/in/a.azs S2: event 2 (UserMessage) was left out, because it cannot be read: not an event: expected value at line 1 column 1
    ");
    assert_eq!((other.snapshot("p/.azureal"), world.snapshot("in")), (before, copied));
    // To the byte.
    let show = |world: &World| world.run(&["show", "first", "--json"]).quiet();
    assert_eq!(show(&world), show(&other));
    assert_eq!(world.run(&["context", "first"]).quiet(), other.run(&["context", "first"]).quiet());
    assert_eq!(world.run(&["show", "second", "--json"]).json_lines().len(), 2);
    let first = world.run(&["list", "--json"]).json();
    let first = first.as_array().unwrap().iter().find(|session| session["name"] == "first").unwrap();
    assert_eq!(first["input_tokens"], 9);
    // What was exported from there is the same session.
    let exported = other.run(&["export", "first", "-o", "first.json"]);
    assert_eq!(exported.code, 0);
    let path = other.path("p/first.json");
    assert!(world.run(&["import", path.to_str().unwrap()]).quiet().contains("unchanged"));
}

#[test]
fn a_large_store_that_is_imported_again_is_no_list_of_unchanged_sessions() {
    let world = World::new();
    let talks: Vec<Value> = (0..23).map(|number| exported(&format!("t{number}"), &[user("hi")])).collect();
    for (number, talk) in talks.iter().enumerate() {
        world.file(&format!("in/{number}.json"), &talk.to_string());
    }
    world.run(&["import", world.path("in").to_str().unwrap(), "--store", "other.azs"]).quiet();
    let import = |arguments: &[&str]| world.run(&[&["import", "other.azs"], arguments].concat());
    assert_eq!(import(&[]).quiet().lines().count(), 23);
    let again = import(&[]).quiet();
    assert_eq!((again.matches(" is unchanged, from").count(), again.lines().count()), (20, 21), "{again}");
    assert!(again.ends_with("3 more sessions unchanged\n"), "{again}");
    assert_eq!(import(&["--json"]).json()["unchanged"].as_array().unwrap().len(), 23);
}

#[test]
fn the_store_of_a_project_is_named_if_its_folder_is_imported() {
    let world = World::new();
    world.session("here", &[user("hi")]);
    let folder = world.path("p");
    let ran = world.run(&["--store", "other.azs", "import", folder.to_str().unwrap()]);
    let hint = "hint: `azureal import [folder]/p/.azureal/sessions.azs` imports its store";
    assert!(ran.code == 1 && ran.stderr.contains(hint), "{ran}");
}

#[test]
fn a_store_of_the_original_program() {
    let world = World::new();
    fs::create_dir(world.path("in")).unwrap();
    let connection = Connection::open(world.path("in/sessions.azs")).unwrap();
    connection
        .execute_batch(
            r##"CREATE TABLE sessions (id INTEGER PRIMARY KEY, name TEXT NOT NULL DEFAULT '',
                 worktree TEXT NOT NULL DEFAULT '', created TEXT NOT NULL DEFAULT (datetime('now')),
                 completed INTEGER, duration_ms INTEGER, cost_usd REAL,
                 last_claude_uuid TEXT NOT NULL DEFAULT '');
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
               INSERT INTO sessions (id, name, worktree, created) VALUES
                 (4, '', 'main', '2026-01-31 09:30:00'), (2, 'first', '', '2026-01-30 09:30:00'),
                 (5, 'codex', '', '2026-02-01 09:30:00');
               -- The columns have the last turn.
               UPDATE sessions SET completed = 1, duration_ms = 2000, cost_usd = 0.25 WHERE id = 5;
               -- It stores plain JSON where it cannot compress.
               INSERT INTO events (session_id, seq, kind, data, char_len) VALUES
                 (4, 1, 'UserMessage', CAST('{"UserMessage":{"content":"Hello"}}' AS BLOB), 5),
                 (4, 2, 'AssistantText', CAST('{"AssistantText":{"text":"Hi"}}' AS BLOB), 2),
                 (5, 1, 'UserMessage', CAST('{"UserMessage":{"content":"# AGENTS.md instructions for /p <INSTRUCTIONS>x</INSTRUCTIONS>"}}' AS BLOB), 62),
                 (5, 2, 'UserMessage', CAST('{"UserMessage":{"content":"<azureal-session-context>\nold\n</azureal-session-context>\n\nnew"}}' AS BLOB), 61),
                 (5, 3, 'Complete', CAST('{"Complete":{"success":true,"duration_ms":1000,"cost_usd":0.5}}' AS BLOB), 0),
                 (5, 4, 'UserMessage', CAST('{"UserMessage":{"content":"again"}}' AS BLOB), 5),
                 (5, 5, 'Complete', CAST('{"Complete":{"success":true,"duration_ms":2000,"cost_usd":0.25}}' AS BLOB), 0),
                 (2, 1, 'UserMessage', CAST('{"UserMessage":{"content":"Before"}}' AS BLOB), 6);
               INSERT INTO compactions (session_id, after_seq, summary) VALUES (4, 1, 'They met.');"##,
        )
        .unwrap();
    drop(connection);
    let before = world.snapshot("in");
    insta::assert_snapshot!(import_twice(&world, "in/sessions.azs"), @r"
    exit code 0
    --- stdout
    S1 with 2 events, from [folder]/in/sessions.azs S4
    S2 codex with 5 events, from [folder]/in/sessions.azs S5
    S3 first with 1 event, from [folder]/in/sessions.azs S2
    ");
    assert_eq!(world.snapshot("in"), before);
    // A branch's name is one of the forms that a worktree has had; without any, it is the current one.
    let list = world.run(&["list", "--json"]).json();
    assert_eq!(list.as_array().unwrap().len(), 3);
    let codex = list.as_array().unwrap().iter().find(|session| session["name"] == "codex").unwrap();
    // What later builds hide is hidden, and the turns are added up.
    assert_eq!((&codex["preview"], &codex["message_count"]), (&json!("new"), &json!(2)));
    assert_eq!((&codex["duration_ms"], &codex["cost_usd"]), (&json!(3000), &json!(0.75)));
    let context = world.run(&["context", "codex"]).quiet();
    assert!(
        !context.contains("AGENTS.md") && !context.contains("old") && context.contains("new"),
        "{context}"
    );
    assert_eq!(world.run(&["context", "S1", "--json"]).json()["compaction"], json!({"after_seq": 1}));
}

#[test]
fn a_store_is_not_imported_into_itself() {
    let world = World::new();
    world.session("a", &[user("x")]);
    insta::assert_snapshot!(world.run(&["import", ".azureal/sessions.azs"]), @r"
    exit code 1
    --- stderr
    error: .azureal/sessions.azs is the store that would be imported into
    hint: `--store` names another one to import into
    ");
    assert_eq!(count(&world), 1);
}

#[test]
fn a_source_whose_writer_died_is_read_and_left_alone() {
    let world = World::new();
    fs::create_dir(world.path("live")).unwrap();
    fs::create_dir(world.path("dead")).unwrap();
    let connection = axio(&world, "live/axio.db", "messages", "context_tokens", "");
    add(&connection, "messages", "one", 0, "user", r#"[{"type": "text", "text": "Hello"}]"#);
    for suffix in ["", "-wal"] {
        let from = world.path(&format!("live/axio.db{suffix}"));
        fs::copy(from, world.path(&format!("dead/axio.db{suffix}"))).unwrap();
    }
    drop(connection);
    let before = world.snapshot("dead");
    assert!(import_twice(&world, "dead/axio.db").quiet().contains("S1 one with 1 event,"));
    assert_eq!(world.snapshot("dead"), before);
}

#[test]
fn half_of_a_transaction_is_not_imported() {
    let world = World::new();
    fs::create_dir(world.path("live")).unwrap();
    fs::create_dir(world.path("dead")).unwrap();
    let connection = axio(&world, "live/axio.db", "messages", "context_tokens", "");
    connection.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA cache_size = 2;").unwrap();
    let content = format!(r#"[{{"type": "text", "text": "{}"}}]"#, "long ".repeat(2000));
    add(&connection, "messages", "one", 0, "user", &content);
    connection.execute_batch("BEGIN").unwrap();
    for position in 1..9 {
        add(&connection, "messages", "one", position, "user", &content);
    }
    // More than fits into memory: some of it is in the file, and how to take it back is in the journal.
    for suffix in ["", "-journal"] {
        let from = world.path(&format!("live/axio.db{suffix}"));
        fs::copy(from, world.path(&format!("dead/axio.db{suffix}"))).unwrap();
    }
    drop(connection);
    let before = world.snapshot("dead");
    assert!(import_twice(&world, "dead/axio.db").quiet().contains("S1 one with 1 event,"));
    assert_eq!(world.snapshot("dead"), before);
}

#[test]
fn what_cannot_be_imported_says_why() {
    let world = World::new();
    let import = |name: &str, text: &str| {
        let path = world.file(&format!("in/{name}"), text);
        world.run(&["import", path.to_str().unwrap()])
    };
    insta::assert_snapshot!(import("empty", ""), @r"
    exit code 1
    --- stderr
    error: [folder]/in/empty is empty
    ");
    insta::assert_snapshot!(import("garbage", "\u{0}\u{1}\u{2}hello"), @r"
    exit code 1
    --- stderr
    error: [folder]/in/garbage is in none of the formats that import knows
    hint: `azureal import --help` lists them
    ");
    insta::assert_snapshot!(import("text", "[this is no JSON"), @r"
    exit code 1
    --- stderr
    error: [folder]/in/text is not JSON: expected ident at line 1 column 3
    hint: `azureal import --help` lists the formats that it knows
    ");
    insta::assert_snapshot!(import("half.json", &CLLM[..CLLM.len() / 2]), @r"
    exit code 1
    --- stderr
    error: [folder]/in/half.json ends in the middle of its JSON: EOF while parsing a value at line 9 column 15
    hint: nothing of it was imported; get a whole copy of the file
    ");
    insta::assert_snapshot!(import("other.json", r#"{"name":"x","version":"1"}"#), @r"
    exit code 1
    --- stderr
    error: [folder]/in/other.json is in none of the formats that import knows
    hint: `azureal import --help` lists them
    ");
    insta::assert_snapshot!(import("list.json", "[]"), @r"
    exit code 1
    --- stderr
    error: [folder]/in/list.json has no messages
    ");
    insta::assert_snapshot!(import("newer.json", r#"{"format":"azureal-session","version":2,"session":{"id":"S1","name":"S1"},"events":[]}"#), @r"
    exit code 1
    --- stderr
    error: [folder]/in/newer.json was written by a newer azureal: it has version 2, and this one knows up to 1
    hint: use a newer azureal; nothing was imported
    ");
    insta::assert_snapshot!(import("magic.db", "SQLite format 3\0 and then nothing of the kind"), @r"
    exit code 1
    --- stderr
    error: [folder]/in/magic.db is damaged: file is not a database
    hint: get a whole copy of it; of a store of azureal, `azureal doctor --fix --store FILE` saves every row that can be read
    ");
    insta::assert_snapshot!(world.run(&["import", "nowhere"]), @r"
    exit code 1
    --- stderr
    error: nowhere: no such file or directory
    ");
    insta::assert_snapshot!(world.run(&["import", "/dev/null"]), @r"
    exit code 1
    --- stderr
    error: /dev/null is not a plain file
    ");
    fs::create_dir(world.path("nothing")).unwrap();
    insta::assert_snapshot!(world.run(&["import", world.path("nothing").to_str().unwrap(), "--json"]), @r#"
    exit code 1
    --- stdout
    {"imported":[],"unchanged":[],"notices":[],"problems":[{"source":"[folder]/nothing","message":"[folder]/nothing holds nothing that can be imported"}]}
    --- stderr
    {"error":{"kind":"not_recognised","message":"[folder]/nothing holds nothing that can be imported","hint":"`azureal import --help` lists what can be"}}
    "#);
    Connection::open(world.path("in/foreign.db")).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    insta::assert_snapshot!(world.run(&["import", world.path("in/foreign.db").to_str().unwrap()]), @r"
    exit code 1
    --- stderr
    error: [folder]/in/foreign.db is in none of the formats that import knows
    hint: `azureal import --help` lists them
    ");
    assert!(!world.path("p/.azureal").exists(), "nothing was imported, so nothing was made");
}

#[test]
fn what_goes_wrong_with_one_does_not_stop_the_others() {
    let world = World::new();
    let (bad, good) = (world.file("bad", "no"), world.file("c.json", CLLM));
    let paths = [bad.to_str().unwrap(), "nowhere", good.to_str().unwrap()];
    insta::assert_snapshot!(world.run(&["import", paths[0], paths[1], paths[2]]), @r"
    exit code 1
    --- stdout
    S1 conv-1a2b3c4d with 4 events, from [folder]/c.json
    --- stderr
    warning: [folder]/bad is in none of the formats that import knows
    warning: nowhere: no such file or directory
    error: 2 things could not be imported
    ");
    assert_eq!(count(&world), 1);
}

#[test]
fn a_format_can_be_asked_for() {
    let world = World::new();
    let path = world.file("c.json", CLLM);
    let path = path.to_str().unwrap();
    assert_eq!(world.run(&["import", path, "--format", "azs"]).code, 1);
    assert_eq!(world.run(&["import", path, "--format", "json"]).code, 1);
    assert_eq!(world.run(&["import", path, "--format", "cllm"]).code, 0);
    assert_eq!(world.run(&["import", path, "--format", "claude"]).code, 1);
    assert_eq!(world.run(&["import", path, "--format", "other"]).code, 2);
}

#[test]
fn names_that_cannot_be_names_are_left_out() {
    let world = World::new();
    world.file("c.json", r#"{"id":"S7","model":"","messages":[{"role":"user","content":"x"}]}"#);
    insta::assert_snapshot!(import_twice(&world, "c.json"), @r"
    exit code 0
    --- stdout
    S1 with 1 event, from [folder]/c.json
    --- stderr
    warning: [folder]/c.json: `S7` cannot be the name of a session; it has none now
    ");
}

/// Runs six imports of the same file at once, and returns what they said.
fn six_at_once(world: &World, path: &str) -> Vec<String> {
    let children: Vec<_> = (0..6).map(|_| world.start(&["import", path])).collect();
    children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""));
            String::from_utf8(output.stdout).unwrap()
        })
        .collect()
}

#[test]
fn imports_at_the_same_time_bring_a_thing_once() {
    let conversation = |messages: usize| {
        let messages: Vec<Value> =
            (0..messages).map(|n| json!({"role": "user", "content": format!("message {n}")})).collect();
        json!({"id": "c", "model": "", "messages": messages, "metadata": {"total_tokens": messages.len()}})
    };
    for _ in 0..3 {
        let world = World::new();
        let path = world.file("c.json", &conversation(300).to_string());
        let path = path.to_str().unwrap();
        let said = six_at_once(&world, path);
        assert_eq!(said.iter().filter(|line| line.contains("with 300 events")).count(), 1, "{said:?}");
        assert_eq!(said.iter().filter(|line| line.contains("unchanged")).count(), 5, "{said:?}");
        assert_eq!(count(&world), 1);
        world.file("c.json", &conversation(400).to_string());
        let said = six_at_once(&world, path);
        assert_eq!(said.iter().filter(|line| line.contains("has 100 new events")).count(), 1, "{said:?}");
        let list = world.run(&["list", "--json"]).json();
        assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
        assert_eq!((&list[0]["event_count"], &list[0]["input_tokens"]), (&json!(400), &json!(400)));
    }
}

#[test]
fn summaries_that_came_later_are_imported() {
    let world = World::new();
    let mut session = exported("a", &[user("one"), user("two"), user("three")]);
    session["compactions"] = json!([{"after_seq": 1, "summary": "first", "created": "2026-01-31T09:30:00Z"}]);
    let path = world.file("a.json", &session.to_string());
    let path = path.to_str().unwrap();
    world.run(&["import", path]).quiet();
    session["compactions"].as_array_mut().unwrap().push(json!({"after_seq": 2, "summary": "second"}));
    world.file("a.json", &session.to_string());
    insta::assert_snapshot!(world.run(&["import", path]), @r"
    exit code 0
    --- stdout
    S1 a has 1 new summary, from [folder]/a.json
    ");
    assert_eq!(world.run(&["context", "a", "--json"]).json()["compaction"], json!({"after_seq": 2}));
    import_twice(&world, "a.json");
}

#[test]
fn a_session_that_was_cleared_comes_back() {
    let world = World::new();
    world.session("a", &[user("one"), user("two")]);
    Connection::open(world.store()).unwrap().execute_batch("DELETE FROM events").unwrap();
    insta::assert_snapshot!(world.session("a", &[user("one"), user("two")]), @r"
    exit code 0
    --- stdout
    S1 a has 2 new events, from [folder]/in/a.json
    ");
    assert_eq!(world.run(&["show", "a", "--json"]).json_lines().len(), 2);
}

#[test]
fn totals_and_times_are_taken_over() {
    let world = World::new();
    let mut session = exported(
        "a",
        &[user("one"), json!({"Complete": {"success": true, "duration_ms": 1500, "cost_usd": 0.5}})],
    );
    for (field, value) in
        [("completed", json!(false)), ("duration_ms", json!(9000)), ("cost_usd", json!(2.25))]
    {
        session["session"][field] = value;
    }
    session["compactions"] = json!([{"after_seq": 1, "summary": "s", "created": "2025-12-24T18:00:00Z"}]);
    let path = world.file("a.json", &session.to_string());
    world.run(&["import", path.to_str().unwrap()]).quiet();
    let check = |world: &World, duration: u64, cost: f64| {
        let list = world.run(&["list", "--all", "--json"]).json();
        assert_eq!(list[0]["completed"], json!(false));
        assert_eq!((&list[0]["duration_ms"], &list[0]["cost_usd"]), (&json!(duration), &json!(cost)));
        let created: String = Connection::open(world.store())
            .unwrap()
            .query_row("SELECT created FROM compactions", [], |row| row.get(0))
            .unwrap();
        assert_eq!(created, "2025-12-24T18:00:00Z");
    };
    check(&world, 9000, 2.25);
    // Also out of a store.
    let other = World::new();
    let path = world.store();
    other.run(&["import", path.to_str().unwrap()]).quiet();
    check(&other, 9000, 2.25);
    // What has grown adds what is new.
    session["events"].as_array_mut().unwrap().push(json!({"seq": 3, "kind": "Compacted", "data": null}));
    session["session"]["duration_ms"] = json!(10_000);
    session["session"]["cost_usd"] = json!(2.5);
    let path = world.file("a.json", &session.to_string());
    world.run(&["import", path.to_str().unwrap()]).quiet();
    check(&world, 10_000, 2.5);
}

#[test]
fn a_session_that_has_another_name_now_is_called_by_it() {
    let world = World::new();
    world.session("old", &[user("one")]);
    world.run(&["rename", "old", "new"]).quiet();
    assert!(world.session("old", &[user("one"), user("two")]).stdout.starts_with("S1 new has 1 new event"));
    let path =
        world.file("in/old.json", &exported("old", &[user("one"), user("two"), user("3")]).to_string());
    let ran = world.run(&["import", path.to_str().unwrap(), "--json"]);
    assert_eq!(ran.json()["imported"][0]["name"], "new");
}

#[test]
fn what_was_exported_from_here_is_here() {
    let world = World::new();
    world.session("a", &[user("one"), user("two")]);
    world.run(&["fork", "a", "--name", "mine"]).quiet();
    world.run(&["export", "mine", "-o", "mine.json"]).quiet();
    insta::assert_snapshot!(world.run(&["import", "mine.json"]), @r"
    exit code 0
    --- stdout
    S2 is unchanged, from mine.json
    ");
    assert_eq!(count(&world), 2);
    // Another log under the same UUID is another session.
    let mut changed: Value =
        serde_json::from_str(&fs::read_to_string(world.path("p/mine.json")).unwrap()).unwrap();
    changed["events"][0]["data"]["content"] = json!("other");
    world.file("p/mine.json", &changed.to_string());
    insta::assert_snapshot!(world.run(&["import", "mine.json"]), @r"
    exit code 0
    --- stdout
    S3 mine-2 with 2 events, from mine.json, a fork of S2: their logs differ
    --- stderr
    warning: mine.json: `mine` is the name of another session; S3 is named `mine-2`
    ");
}

#[test]
fn a_conversation_loses_nothing_in_silence() {
    let world = World::new();
    world.file(
        "c.json",
        r#"{"id": "c", "model": "", "system_prompt": "Be brief.", "messages": [
             {"role": "user", "content": "half \ud83d of it", "name": "alice"},
             {"role": "assistant", "content": null, "tool_calls": [
               {"id": "c1", "type": "function", "function": {"name": "get", "arguments": "{\"q\": 1}"}}]},
             {"role": "tool", "tool_call_id": "c1", "content": "42"}],
           "metadata": {"title": "My \ud83d title", "tags": ["a", "b"], "total_tokens": 7}}"#,
    );
    insta::assert_snapshot!(import_twice(&world, "c.json"), @r#"
    exit code 0
    --- stdout
    S1 c with 5 events, from [folder]/c.json
    --- stderr
    warning: [folder]/c.json: `tags` of the conversation, left out: `["a","b"]`
    warning: [folder]/c.json: `title` of the conversation, left out: `"My \ud83d title"`
    warning: [folder]/c.json: `name` of a message, kept as a note in the text (1×)
    warning: [folder]/c.json: `text` block that cannot be read, kept as its JSON in the text (1×)
    "#);
    insta::assert_snapshot!(world.run(&["show", "c", "--json"]), @r#"
    exit code 0
    --- stdout
    {"seq":1,"kind":"SystemMessage","data":{"content":"Be brief."}}
    {"seq":2,"kind":"UserMessage","data":{"content":"[text block: \"half \\ud83d of it\"]"}}
    {"seq":3,"kind":"UserMessage","data":{"content":"[name: alice]","starts":false}}
    {"seq":4,"kind":"ToolCall","data":{"tool_use_id":"c1","tool_name":"get","input":{"q": 1},"starts":true}}
    {"seq":5,"kind":"ToolResult","data":{"tool_use_id":"c1","tool_name":"","content":"42","is_error":false,"starts":true}}
    "#);
}

#[test]
fn a_session_that_another_program_deleted_can_be_had_again() {
    let world = World::new();
    world.session("a", &[user("one")]);
    world.session("b", &[user("two")]);
    // It knows nothing of what we remember of an import.
    Connection::open(world.store()).unwrap().execute_batch("DELETE FROM sessions WHERE id = 1").unwrap();
    let ran = world.session("a", &[user("one")]);
    assert!(ran.stdout.starts_with("S3 a with 1 event"), "{ran}");
    assert!(world.session("a", &[user("one")]).stdout.contains("unchanged"));
}
