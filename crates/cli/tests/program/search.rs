//! `azureal search`, and the way from a hit to its event.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::world::{Ran, World, assistant, user};

fn world() -> World {
    let world = World::new();
    let init = |agent: &str| json!({"Init": {"agent": agent, "cwd": "/p", "model": "m"}});
    world.session(
        "login",
        &[
            json!({"SystemMessage": {"content": "injected token"}}),
            user("Two refreshes race on the token row"),
            init("claude"),
            json!({"ToolCall": {"tool_use_id": "t1", "tool_name": "Edit", "file_path": "src/auth/token.rs", "input": {"file_path": "src/auth/token.rs"}}}),
            json!({"ToolResult": {"tool_use_id": "t1", "tool_name": "Edit", "content": "updated find_for_update", "is_error": false}}),
            assistant("The HashMap is locked now. 検索エンジン ✅"),
            json!({"Complete": {"success": true, "duration_ms": 1, "cost_usd": 0.0}}),
        ],
    );
    world.session(
        "bucket",
        &[user("A token bucket, please"), init("codex"), assistant("Here: a bucket of tokens")],
    );
    world
}

fn search(world: &World, arguments: &[&str]) -> Ran {
    world.run(&[&["search"], arguments].concat())
}

/// Returns the places of the hits, in order of session and event.
#[track_caller]
fn found(world: &World, arguments: &[&str]) -> Vec<String> {
    let ran = search(world, &[arguments, &["--json"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran}");
    let json = ran.json();
    let hits = json["hits"].as_array().unwrap().clone();
    assert_eq!(json["total"], hits.len());
    let mut places: Vec<String> =
        hits.iter().map(|hit| format!("{} {}", hit["session"].as_str().unwrap(), hit["seq"])).collect();
    places.sort();
    places
}

#[test]
fn words_phrases_prefixes_and_filters_find_events() {
    let world = world();
    let (prompt, bucket) = ("S1 2", "S2 1");
    for (arguments, expected) in [
        (&["token"][..], &[prompt, "S1 4", bucket][..]),
        (&["TOKEN", "race"], &[prompt]),
        (&["\"token row\""], &[prompt]),
        (&["\"row token\""], &[]),
        (&["tok*", "bucket"], &[bucket, "S2 3"]),
        (&["find_for*"], &["S1 5"]),
        (&["auth/token.rs"], &["S1 4"]),
        (&["hashmap"], &["S1 6"]),
        (&["索エ"], &["S1 6"]),
        (&["✅"], &["S1 6"]),
        (&["injected"], &[]),
        (&["token", "--agent", "codex"], &[bucket]),
        (&["token", "--agent", "Claude"], &[prompt, "S1 4"]),
        (&["token", "--role", "user"], &[prompt, bucket]),
        (&["token", "--role", "tool", "--tool", "edit"], &["S1 4"]),
        (&["token", "--session", "bucket"], &[bucket]),
        (&["token", "--session", "S1", "--session", "bucket", "--role", "user"], &[prompt, bucket]),
        (&["token", "--role", "user", "--role", "tool", "-s", "login"], &[prompt, "S1 4"]),
        (&["token", "--agent", "claude", "--agent", "codex"], &[prompt, "S1 4", bucket]),
        (&["token", "--since", "1h"], &[prompt, "S1 4", bucket]),
        (&["token", "--since", "2100-01-01"], &[]),
        (&["token", "--worktree", "../nowhere"], &[]),
        (&["--regex", r"to\w+ (row|bucket)"], &[prompt, bucket]),
        (&["--regex", "TOKEN"], &[]),
        (&["--regex", "(?i)TOKEN b"], &[bucket]),
        (&["--regex", "-i", "token (row|BUCK)"], &[prompt, bucket]),
        (&["-F", "ok"], &[prompt, "S1 4", bucket, "S2 3"]),
        (&["-F", "oken b"], &[bucket]),
        (&["-F", "oken", "B"], &[]),
        (&["-F", "-i", "oken", "B"], &[bucket]),
        (&["-F", "oken", "--agent", "codex", "--role", "user"], &[bucket]),
        (&["-F", "uth/token.r", "--tool", "edit"], &["S1 4"]),
        (&["-F", "索エン"], &["S1 6"]),
        (&["-F", "(x)"], &[]),
    ] {
        assert_eq!(found(&world, arguments), expected, "{arguments:?}");
    }
}

#[test]
fn a_session_without_a_time_of_its_last_activity_has_that_of_its_creation() {
    let world = world();
    let store = Connection::open(world.store()).unwrap();
    store.execute_batch("UPDATE sessions SET last_active = NULL").unwrap();
    drop(store);
    for option in [&[][..], &["-F"]] {
        let bucket = [&["token", "--role", "user", "--since", "1h", "-s", "bucket"], option].concat();
        assert_eq!(found(&world, &bucket), ["S2 1"]);
        let ran = search(&world, &bucket);
        assert!(ran.stdout.starts_with("S2 bucket  user · codex · event 1 · just now\n"), "{ran}");
        let hit = &search(&world, &[&bucket[..], &["--json"]].concat()).json()["hits"][0];
        assert_eq!(hit["last_active"], "[time]");
    }
}

#[test]
fn a_hit_is_shown_with_marks_and_leads_to_its_event() {
    let world = world();
    let ran = search(&world, &["find_for_update"]);
    assert_eq!(
        ran.quiet(),
        "S1 login  tool Edit · claude · event 5 · just now\n  updated [find_for_update]\n  azureal show S1 --seq 5\n"
    );
    let shown = world.run(&["show", "S1", "--seq", "5"]).quiet();
    // The result is under its call, and the mark is before both.
    let mark = shown.find("[event 5:]").unwrap();
    let call = shown.find("src/auth/token.rs").unwrap();
    let result = shown.find("updated find_for_update").unwrap();
    assert!(mark < call && call < result, "{shown}");
    assert!(shown.contains("## User  turn 1, event 2"), "{shown}");
    let lines = world.run(&["show", "S2", "--seq", "1", "--json"]).json_lines();
    assert_eq!(lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    let ran = world.run(&["show", "S1", "--seq", "99"]);
    assert!(ran.code == 1 && ran.stderr.contains("session S1 has no event 99"), "{ran}");
    // Every hit of a search can be shown by the command that it names.
    for hit in search(&world, &["token", "--json"]).json()["hits"].as_array().unwrap() {
        let command: Vec<&str> = hit["show"].as_str().unwrap().split(' ').skip(1).collect();
        assert!(world.run(&command).quiet().contains(&format!("[event {}:]", hit["seq"])));
    }
}

#[test]
fn only_a_part_of_a_long_session_is_shown_around_an_event() {
    let world = World::new();
    let events: Vec<Value> = (0..100).map(|number| user(&format!("prompt number {number}"))).collect();
    world.session("long", &events);
    let shown = world.run(&["show", "long", "--seq", "50"]).quiet();
    assert!(shown.contains("turn 50, event 50\nprompt number 49\n"), "{shown}");
    assert!(shown.contains("number 44") && shown.contains("number 54"), "{shown}");
    assert!(!shown.contains("number 43") && !shown.contains("number 55"), "{shown}");
}

#[test]
fn a_search_without_hits_says_what_to_try() {
    let world = world();
    for (arguments, hint) in [
        (
            &["nowhere"][..],
            "nothing found; try fewer words, the beginning of a word (`tok*`), `-F` for parts of words, or `--full`",
        ),
        (
            &["token", "--since", "2100-01-01", "--agent", "cluade"],
            "nothing found; try it without `--agent cluade` and `--since 2100-01-01`, with fewer words, or",
        ),
        (&["tok*n"], "nothing found; a star stands for the rest of a word, as in `tok*`; `--regex` takes"),
        (&["--regex", "TOKEN"], "nothing found; case matters: `-i` ignores it"),
        (&["-F", "TOKEN"], "nothing found; case matters: `-i` ignores it"),
        (&["-iF", "nowhere"], "nothing found; try a part of the text, or `--full`"),
        (&["--regex", "(?i)nowhere"], "nothing found; try a part of the text, or `--full`"),
        (
            &["-iF", "token", "--role", "error"],
            "nothing found; try it without `--role error`, or with a part",
        ),
        (&["-F", "TOKEN", "--role", "user"], "nothing found; try it without `--role user`, or with `-i`, as"),
    ] {
        let ran = search(&world, arguments);
        assert!(ran.code == 0 && ran.stdout.is_empty() && ran.stderr.starts_with(hint), "{ran}");
    }
    for (arguments, error) in [
        (&["=>"][..], "error: there is no word to search for\nhint: `azureal search -F -- '->'`"),
        (&["-F", ""], "error: there is no text to search for\n"),
        (&["-F", "--regex", "x"], "error: "),
        (
            &["--regex", "a(b"],
            "error: this is not a regular expression: unclosed group (character 2)\nhint: `-F` searches",
        ),
        (&["--regex", r"\w{1000}{1000}"], "error: the regular expression is too large: repeat less"),
        (
            &["-F", "->"],
            "error: unexpected argument `->`\nhint: put `--` before a text that begins with a dash",
        ),
        (&["x", "--since", "tomorrow"], "error: `tomorrow` is not a time\nhint: `30m`"),
        (&["x", "--role", "system"], "error: "),
    ] {
        let ran = search(&world, arguments);
        assert!(ran.code == 2 && ran.stderr.starts_with(error), "{ran}");
    }
    let ran = search(&world, &["x", "--session", "S9"]);
    assert!(ran.code == 1 && ran.stderr.contains("no session S9"), "{ran}");
    let ran = search(&world, &["token", "-n", "1"]);
    assert!(ran.code == 0 && ran.stderr == "3 events match; `-n` shows more\n", "{ran}");
    assert_eq!(ran.stdout.matches("azureal show").count(), 1);
    // Nothing is created for a project without a store.
    let empty = World::new();
    let ran = search(&empty, &["token"]);
    assert!(ran.code == 0 && ran.stderr.starts_with("no sessions yet; "), "{ran}");
    assert!(!empty.path("p/.azureal").exists() && !empty.path("p/.git/azureal").exists());
}

#[test]
fn an_index_is_private_and_is_made_again() {
    for (name, option) in [("words.sqlite", &[][..]), ("substrings.sqlite", &["-F"])] {
        let world = world();
        let folder = world.path("p/.git/azureal/search");
        let index = folder.join(name);
        let count = |world: &World| found(world, &[&["token", "--role", "user"], option].concat()).len();
        assert_eq!(count(&world), 2);
        assert_eq!(fs::metadata(&index).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "only the index that is needed");
        fs::write(&index, "damaged").unwrap();
        assert_eq!(count(&world), 2);
        assert!(fs::metadata(&index).unwrap().len() > 4096);
        // The next turn, a deletion and a purge.
        world.session("later", &[user("one more token")]);
        assert_eq!(count(&world), 3);
        assert_eq!(world.run(&["rm", "S1", "--yes"]).code, 0);
        let sessions = "SELECT group_concat(id) FROM (SELECT id FROM sessions ORDER BY id)";
        let left: String =
            Connection::open(&index).unwrap().query_row(sessions, [], |row| row.get(0)).unwrap();
        assert_eq!(left, "2,3", "{name}");
        assert_eq!(count(&world), 2);
        assert_eq!(world.run(&["purge", "--yes"]).code, 0);
        assert!(!index.exists());
        assert_eq!(count(&world), 0);
    }
}

#[test]
fn an_index_that_cannot_be_written_costs_a_warning_and_no_hit() {
    let world = world();
    let folder = world.path("p/.git/azureal/search");
    fs::write(&folder, "in its place").unwrap();
    let ran = search(&world, &["token", "--json"]);
    assert_eq!((ran.code, ran.json()["total"].as_u64()), (0, Some(3)), "{ran}");
    assert!(
        ran.stderr.contains("warning: the search index cannot be used, so all events were read"),
        "{ran}"
    );
}

#[test]
fn an_event_that_cannot_be_read_is_reported() {
    for (option, is_indexed) in [(&[][..], false), (&["-F"], false), (&[], true), (&["-F"], true)] {
        let world = world();
        if is_indexed {
            assert_eq!(found(&world, &[&["race"], option].concat()), ["S1 2"]);
        }
        let store = Connection::open(world.store()).unwrap();
        store.execute("UPDATE events SET data = x'28b52ffd00' WHERE session_id = 1 AND seq = 2", []).unwrap();
        drop(store);
        let ran = search(&world, &[&["race", "--json"], option].concat());
        assert_eq!(
            (ran.code, ran.stderr.as_str()),
            (0, "warning: not searched: 1 event that cannot be read; `azureal doctor` names them\n"),
            "{ran}"
        );
        assert_eq!((&ran.json()["damaged_events"], &ran.json()["total"]), (&json!(1), &json!(0)));
        // The others are found, and what is indexed is not read again.
        assert_eq!(found(&world, &[&["bucket"], option].concat()), ["S2 1", "S2 3"]);
    }
}

#[test]
fn the_number_of_hits_is_told_without_any_hit() {
    let world = world();
    for (arguments, expected) in [
        (&["token"][..], "3 events match; `-n` shows more\n"),
        (&["\"token row\""], "1 event matches; `-n` shows more\n"),
        (&["-F", "oken"], "4 events match; `-n` shows more\n"),
        (&["--regex", "re|to"], "4 events match; `-n` shows more\n"),
        (&["-F", "oken", "--role", "error"], "nothing found; try it without `--role error`, or with `-i`"),
    ] {
        let ran = search(&world, &[arguments, &["-n", "0"]].concat());
        assert!(ran.code == 0 && ran.stdout.is_empty() && ran.stderr.starts_with(expected), "{ran}");
    }
    let ran = search(&world, &["token", "-n", "-1"]);
    assert!(ran.code == 2 && ran.stderr.contains("`-1`") && !ran.stderr.contains("dash"), "{ran}");
}

#[test]
fn the_command_of_a_hit_leads_to_the_store_of_the_search() {
    let world = world();
    let other = world.path("p/my other.azs");
    fs::copy(world.store(), &other).unwrap();
    fs::remove_file(world.store()).unwrap();
    let arguments = ["-C", ".", "--store", "my other.azs", "search", "race"];
    let ran = world.run(&arguments);
    assert!(ran.stdout.ends_with("\n  azureal -C . --store 'my other.azs' show S1 --seq 2\n"), "{ran}");
    let hit = &world.run(&[&arguments[..], &["--json"]].concat()).json()["hits"][0];
    assert_eq!(hit["show"], "azureal -C . --store 'my other.azs' show S1 --seq 2");
    let by_variable =
        world.ran(world.command(&["search", "race"]).env("AZUREAL_STORE", &other).output().unwrap());
    assert!(by_variable.stdout.ends_with("\n  azureal show S1 --seq 2\n"), "{by_variable}");
}

#[test]
fn the_output_of_turns_is_searched_too() {
    let world = World::new();
    let fixtures = "../agents/tests/fixtures/claude/current/multi-tool/stdout.jsonl";
    let recording = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(fixtures);
    world.program("claude", &format!("cat > /dev/null\ncat '{}'", recording.display()));
    let ran = world.ran(world.with_programs(&["run", "-a", "claude", "hi"]).output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    // The stored result is short.
    let ran = search(&world, &["logo.png", "--role", "tool"]);
    assert!(ran.code == 0 && ran.stdout.is_empty(), "{ran}");
    let ran = search(&world, &["logo.png", "--role", "tool", "--full", "--json"]);
    let hit = &ran.json()["hits"][0];
    assert_eq!((hit["tool"].as_str(), ran.code), (Some("Bash"), 0), "{ran}");
    let command: Vec<&str> = hit["show"].as_str().unwrap().split(' ').skip(1).collect();
    let shown = world.run(&command).quiet();
    assert!(shown.contains("logo.png"), "{shown}");
}
