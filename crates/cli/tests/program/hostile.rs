//! Text from outside must not act on the terminal, wherever it is printed.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::world::{World, assistant, user};

/// Clears the screen, sets the clipboard, uses the eight-bit forms, turns the text around, ends a line.
const HOSTILE: &str =
    "a\u{1b}[2J\u{1b}]52;c;eA==\u{7}\u{9b}31m\u{202e}txt\u{2066}\u{2028}\u{7f}\u{0}\r\u{8}z";

#[track_caller]
fn check(world: &World, arguments: &[&str]) {
    let ran = world.run(arguments);
    for (name, text) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
        let acting: Vec<char> = text
            .chars()
            .filter(|c| azureal_core::acts_on_terminal(*c) && !matches!(c, '\n' | '\t'))
            .collect();
        assert_eq!(acting, Vec::<char>::new(), "{arguments:?} {name}: {text:?}");
    }
    assert!(!(ran.stdout.is_empty() && ran.stderr.is_empty()), "{arguments:?} prints nothing");
}

#[test]
fn nothing_that_acts_reaches_the_terminal() {
    let world = World::new();
    let tool =
        json!({"ToolCall": {"tool_use_id": HOSTILE, "tool_name": HOSTILE, "input": {"command": HOSTILE}}});
    let result = json!({"ToolResult": {"tool_use_id": "t", "tool_name": HOSTILE, "content": HOSTILE, "is_error": true}});
    world.session(
        "plain",
        &[
            json!({"SystemMessage": {"content": HOSTILE}}),
            json!({"Init": {"cwd": HOSTILE, "model": HOSTILE, "agent": HOSTILE}}),
            user(HOSTILE),
            assistant(HOSTILE),
            tool,
            result,
            json!({"Plan": {"name": HOSTILE, "content": HOSTILE}}),
            json!({"Hook": {"name": HOSTILE, "output": HOSTILE}}),
            json!({"Command": {"name": HOSTILE}}),
            json!({"Error": {"message": HOSTILE, "kind": HOSTILE}}),
            json!({"ModelSwitch": {"model": HOSTILE}}),
            json!({"Reasoning": {"text": HOSTILE}}),
            json!({HOSTILE: {}}),
            json!({"Message": {"role": "user", "content": [
                {"type": "text", "text": HOSTILE},
                {"type": "tool_use", "id": "t", "name": HOSTILE, "input": {"path": HOSTILE}},
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": HOSTILE}]},
            ]}}),
        ],
    );
    let name = HOSTILE.replace('\0', "");
    check(&world, &["rename", "plain", &name]);
    for arguments in [
        &["list"][..],
        &["list", "--all"],
        &["list", "--json"],
        &["show", "S1"],
        &["show", "S1", "--json"],
        &["show", "S1", "--seq", "3"],
        &["search", "txt"],
        &["search", "txt", "--json"],
        &["search", "--regex", "a"],
        &["context", "S1", "--json"],
        &["context", "S1", "--stats"],
        &["export", "S1"],
        &["export", "S1", "--format", "markdown"],
        &["export", "S1", "--format", "cllm"],
        &["export", "S1", "--format", "axio"],
        &["fork", "S1"],
        &["fork", "S1", "--name", &name],
        &["fork", "S1", "--name", &name, "--json"],
        &["show", &name],
        &["show", &name, "--json"],
        &["show", "a"],
        &["rm", &name],
        &["rename", &name, &name],
        &[&name],
        &["show", "--x", &name, "--json"],
        &["show", "S1", "--last", &name],
        &["import", &name],
        &["import", &name, "--json"],
        &["--store", &name, "list", "--bad"],
        &["-C", &name, "list"],
        &["export", "S1", "-o", &format!("/nonexistent/{name}")],
        &["copy", "--to", "copied.azs"],
        &["copy", "--to", "copied.azs", "--json"],
        &["copy", "--from", &name, "--to", "copied.azs"],
        &["copy", "--to", "copied.azs", "--session", &name],
        &["rm", "S1", "--yes"],
    ] {
        check(&world, arguments);
    }
}

#[test]
fn nothing_that_acts_comes_from_a_file() {
    let world = World::new();
    let name = HOSTILE.replace('\0', "");
    let conversation = json!({
        "id": HOSTILE,
        "model": HOSTILE,
        "messages": [
            {"role": HOSTILE, "content": HOSTILE},
            {"role": "user", "content": [{"type": HOSTILE, "x": HOSTILE}]},
            {"role": "user", "content": 7},
        ],
    });
    let path = world.file(&format!("in/{name}.json"), &conversation.to_string());
    check(&world, &["import", path.to_str().unwrap()]);
    let path = world.file(&format!("in2/{name}.json"), &conversation.to_string()[..30]);
    check(&world, &["import", path.to_str().unwrap()]);
    check(&world, &["import", world.path("in2").to_str().unwrap()]);
    check(&world, &["show", "S1"]);
}

#[test]
fn text_can_be_had_as_it_is() {
    let world = World::new();
    world.session("a", &[user(HOSTILE)]);
    assert!(world.run(&["show", "a", "--raw"]).stdout.contains(HOSTILE));
    // What an agent is told is exact where no terminal shows it.
    assert!(world.run(&["context", "a"]).stdout.contains(HOSTILE));
    let lines = world.run(&["show", "a", "--json"]).json_lines();
    assert_eq!(lines[0]["data"]["content"], HOSTILE);
}

#[test]
fn the_name_of_a_file_is_not_a_message() {
    let world = World::new();
    let name = "x\nerror: all is lost\nhint: run this";
    let bad = world.file(&format!("in/{name}.json"), r#"{"id": "a", "model": "#);
    let odd = world.file(&format!("odd/{name}.json"), r#"[{"role": "user", "content": "x"}, 7]"#);
    for arguments in [
        &["import", bad.to_str().unwrap()][..],
        &["import", world.path("in").to_str().unwrap()],
        &["import", odd.to_str().unwrap()],
        &["import", name, "nowhere"],
        &["export", "x", "-o", bad.to_str().unwrap()],
        &["export", "x", "-o", &format!("/nonexistent/{name}")],
        &["list", "--store", bad.to_str().unwrap()],
        &["-C", name, "list"],
        &["show", name],
        &["show", "a", name],
        &["show", "a", "x\n\nmore\n\nerror: all is lost"],
    ] {
        let ran = world.run(arguments);
        assert!(!ran.stderr.is_empty(), "{arguments:?}");
        assert!(!ran.stderr.contains("\nerror: all"), "{arguments:?}: {ran}");
        assert!(!ran.stderr.contains("\nhint: run this"), "{arguments:?}: {ran}");
    }
}

#[test]
fn what_a_repository_lays_beside_its_store_is_neither_read_nor_written() {
    let world = World::new();
    world.session("old", &[user("Hello"), assistant("Hi!")]);
    let store = rusqlite::Connection::open(world.store()).unwrap();
    store
        .execute("UPDATE sessions SET last_claude_uuid = '11111111-1111-1111-1111-111111111111'", [])
        .unwrap();
    drop(store);
    let precious = world.file("precious", "keep me\n");
    let spool = world.path("p/.azureal/spool");
    fs::remove_dir_all(&spool).ok();
    fs::create_dir(&spool).unwrap();
    let turn = r#"{"turn":{"run":"abc","session":1,"prompt":"p","agent":"claude","model":null,"directory":"/x","started_at":"2026-01-31T09:30:00Z"}}
{"process":{"pid":999999,"began":"1"}}
"#;
    fs::write(spool.join("abc.turn"), turn).unwrap();
    std::os::unix::fs::symlink(&precious, spool.join("abc.err")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", spool.join("abc.jsonl")).unwrap();
    std::os::unix::fs::symlink(&precious, spool.join("S1.lease")).unwrap();
    // As git checks it out, and as an archive can unpack it.
    for mode in [0o755, 0o700] {
        fs::set_permissions(&spool, fs::Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(spool.join("abc.turn"), fs::Permissions::from_mode(mode & 0o666)).unwrap();
        for arguments in [&["list"][..], &["show", "old"], &["run", "-s", "old", "-a", "offline", "hi"]] {
            let ran = world.run(arguments);
            assert!(!ran.stdout.contains("keep me") && ran.stderr.contains("warning"), "{ran}");
        }
        assert_eq!(fs::read_to_string(&precious).unwrap(), "keep me\n");
        assert_eq!(world.run(&["show", "old", "--json"]).json_lines().len(), 2, "nothing was stored");
    }
}

#[test]
fn a_store_that_would_run_something_is_refused() {
    let world = World::new();
    world.session("old", &[user("Hello"), assistant("Hi!")]);
    rusqlite::Connection::open(world.store())
        .unwrap()
        .execute_batch(
            "ALTER TABLE sessions DROP COLUMN preview;
             ALTER TABLE sessions ADD COLUMN preview TEXT GENERATED ALWAYS AS (hex(zeroblob(50000000)));",
        )
        .unwrap();
    let before = fs::read(world.store()).unwrap();
    for arguments in [&["list"][..], &["show", "old"], &["run", "-s", "old", "-a", "offline", "hi"]] {
        let ran = world.run(arguments);
        assert_eq!(ran.code, 3, "{ran}");
        insta::allow_duplicates! {
            insta::assert_snapshot!(ran.stderr, @r"
            error: [folder]/p/.azureal/sessions.azs defines a generated column in the table `sessions`, which azureal did not create
            hint: `sqlite3 FILE .schema` shows it; drop it there if the file is yours. Nothing was changed
            ");
        }
    }
    assert!(fs::read(world.store()).unwrap() == before);
}
