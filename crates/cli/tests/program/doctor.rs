//! The check of a store and its surroundings: each damage is named, a repair keeps everything that can be read, and nothing is found where
//! nothing is wrong.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::Connection;
use serde_json::Value;

use crate::world::{Ran, World, assistant, user};

/// A text that compression does not shorten, so that events take room in the file.
fn noise(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("{state:x}")
    };
    (0..40).map(|_| next()).collect()
}

/// Two sessions with many events, and one with three turns and their output.
fn world() -> World {
    let world = World::new();
    for name in ["one", "two"] {
        let events: Vec<Value> =
            (0..40).flat_map(|turn| [user(&format!("{name} {turn}")), assistant(&noise(turn))]).collect();
        world.session(name, &events);
    }
    for prompt in ["a", "b", "c"] {
        world.run(&["run", "-s", "three", "-a", "offline", prompt]);
    }
    world
}

impl World {
    fn sql(&self, sql: &str) {
        let connection = Connection::open(self.store()).unwrap();
        connection.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        connection.execute_batch(sql).unwrap();
    }

    fn doctor(&self) -> Ran {
        self.run(&["doctor", "--json"])
    }

    fn in_git(&self, path: &str) -> PathBuf {
        self.path("p/.git/azureal").join(path)
    }

    /// The output of the turns of the third session, in the order of its events.
    fn originals(&self) -> Vec<PathBuf> {
        let uuid: String = Connection::open(self.store())
            .unwrap()
            .query_row("SELECT uuid FROM sessions WHERE id = 3", [], |row| row.get(0))
            .unwrap();
        let mut files: Vec<PathBuf> = fs::read_dir(self.in_git("originals").join(uuid))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        let first = |path: &PathBuf| -> u64 {
            path.file_name().unwrap().to_str().unwrap().split('-').next().unwrap().parse().unwrap()
        };
        files.sort_by_key(first);
        files
    }

    /// All events that the program shows, with their places. Those of a repair are not among them.
    fn events(&self) -> BTreeSet<String> {
        let list = self.run(&["list", "--all", "--json"]);
        let mut found = BTreeSet::new();
        if list.code != 0 {
            return found;
        }
        for session in list.json().as_array().unwrap() {
            let id = session["id"].as_str().unwrap();
            for line in self.run(&["show", "--json", id]).stdout.lines() {
                let is_repair = ["an event is missing here", "was set aside", "\"error\":\""];
                if !is_repair.iter().any(|text| line.contains(text)) {
                    found.insert(format!("{id} {line}"));
                }
            }
        }
        found
    }

    /// A page of the file that has events, counted from 0.
    fn page_of_events(&self) -> u64 {
        let bytes = fs::read(self.store()).unwrap();
        // A leaf of a table with few cells has large ones.
        let is_leaf = |page: &usize| {
            let page = &bytes[page * 4096..];
            page[0] == 13 && (3..30).contains(&u16::from_be_bytes([page[3], page[4]]))
        };
        let leaves: Vec<usize> = (1..bytes.len() / 4096).filter(is_leaf).collect();
        leaves[leaves.len() / 2] as u64
    }

    fn overwrite(&self, page: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(self.store()).unwrap();
        file.write_all_at(bytes, page * 4096).unwrap();
    }
}

fn kinds(findings: &Value) -> Vec<&str> {
    findings.as_array().unwrap().iter().map(|finding| finding["kind"].as_str().unwrap()).collect()
}

fn private(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o700)).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// What a repair does about a damage.
#[derive(Clone, Copy, PartialEq)]
enum Expected {
    /// Repairs it. So many events at most cannot be read any more, before and after.
    Repaired { lost: usize },
    /// Leaves it, and says what the user can do.
    Left,
}

struct Damage {
    name: &'static str,
    kind: &'static str,
    expected: Expected,
    cause: fn(&World),
}

const REPAIRED: Expected = Expected::Repaired { lost: 0 };

const DAMAGES: [Damage; 32] = [
    Damage {
        name: "a cut file",
        kind: "integrity",
        expected: Expected::Repaired { lost: 90 },
        cause: |world| {
            let length = fs::metadata(world.store()).unwrap().len();
            let file = OpenOptions::new().write(true).open(world.store()).unwrap();
            file.set_len(length - 5 * 4096 - 100).unwrap();
        },
    },
    Damage {
        name: "a page of zeros",
        kind: "integrity",
        expected: Expected::Repaired { lost: 20 },
        cause: |world| world.overwrite(world.page_of_events(), &[0; 4096]),
    },
    Damage {
        name: "an empty file",
        kind: "integrity",
        expected: Expected::Repaired { lost: 200 },
        cause: |world| {
            OpenOptions::new().write(true).open(world.store()).unwrap().set_len(0).unwrap();
        },
    },
    Damage {
        name: "a header of zeros",
        kind: "integrity",
        expected: REPAIRED,
        cause: |world| world.overwrite(0, &[0; 4096]),
    },
    Damage {
        name: "a page of another file",
        kind: "integrity",
        expected: Expected::Repaired { lost: 20 },
        cause: |world| {
            let other = "Another file has this text. ".repeat(200);
            world.overwrite(world.page_of_events(), &other.as_bytes()[..4096]);
        },
    },
    Damage {
        name: "a missing hot journal",
        kind: "integrity",
        expected: Expected::Repaired { lost: 20 },
        cause: |world| {
            let connection = Connection::open(world.store()).unwrap();
            connection
                .execute_batch(
                    "PRAGMA cache_size = 5; BEGIN;
                     INSERT INTO events (session_id, seq, kind, data, char_len)
                       SELECT session_id, seq + 1000, kind, data, char_len FROM events WHERE session_id < 3;
                     UPDATE sessions SET preview = printf('%.*c', 3000, 'x');",
                )
                .unwrap();
            let half_written = fs::read(world.store()).unwrap();
            drop(connection);
            fs::write(world.store(), half_written).unwrap();
        },
    },
    Damage {
        name: "a row of a wrong type",
        kind: "row_type",
        expected: REPAIRED,
        cause: |world| world.sql("UPDATE sessions SET tokens_in = 'many', preview = x'ff' WHERE id = 2"),
    },
    Damage {
        name: "an undecodable event",
        kind: "undecodable_event",
        expected: REPAIRED,
        cause: |world| world.sql("UPDATE events SET data = x'28b52ffd0000' WHERE session_id = 2 AND seq = 9"),
    },
    Damage {
        name: "a gap",
        kind: "gap",
        expected: REPAIRED,
        cause: |world| world.sql("DELETE FROM events WHERE session_id = 2 AND seq BETWEEN 9 AND 12"),
    },
    Damage {
        name: "a lost end",
        kind: "gap",
        expected: REPAIRED,
        cause: |world| world.sql("DELETE FROM events WHERE session_id = 3 AND seq > 10"),
    },
    Damage {
        name: "a number beyond all others",
        kind: "gap",
        expected: Expected::Left,
        cause: |world| world.sql("UPDATE events SET seq = 5000000 WHERE session_id = 2 AND seq = 80"),
    },
    Damage {
        name: "a duplicate UUID",
        kind: "duplicate_uuid",
        expected: REPAIRED,
        cause: |world| {
            world.sql("UPDATE sessions SET uuid = (SELECT uuid FROM sessions WHERE id = 3) WHERE id = 2");
        },
    },
    Damage {
        name: "wrong counters",
        kind: "counts",
        expected: REPAIRED,
        cause: |world| {
            world.sql("UPDATE sessions SET event_count = 3, message_count = 1, told = 7 WHERE id = 2");
        },
    },
    Damage {
        name: "orphan events",
        kind: "orphan_events",
        expected: REPAIRED,
        cause: |world| world.sql("DELETE FROM sessions WHERE id = 2"),
    },
    Damage {
        name: "a missing original",
        kind: "missing_original",
        expected: Expected::Left,
        cause: |world| fs::remove_file(&world.originals()[1]).unwrap(),
    },
    Damage {
        name: "originals of another session",
        kind: "foreign_original",
        expected: Expected::Left,
        cause: |world| {
            let path = world.in_git("originals/6ba7b810-9dad-41d1-80b4-00c04fd430c8/1-4-x.zst");
            fs::create_dir(path.parent().unwrap()).unwrap();
            fs::copy(&world.originals()[0], &path).unwrap();
            private(&path, "");
            fs::copy(&world.originals()[0], &path).unwrap();
        },
    },
    Damage {
        name: "an original of other events",
        kind: "foreign_original",
        expected: REPAIRED,
        cause: |world| {
            let last = world.originals().pop().unwrap();
            let run = last.file_name().unwrap().to_str().unwrap().rsplit('-').next().unwrap().to_owned();
            fs::rename(&last, last.with_file_name(format!("900-904-{run}"))).unwrap();
        },
    },
    Damage {
        name: "an original of another turn",
        kind: "foreign_original",
        expected: REPAIRED,
        cause: |world| {
            let originals = world.originals();
            fs::copy(&originals[0], &originals[1]).unwrap();
        },
    },
    Damage {
        name: "an original that is cut",
        kind: "unreadable_original",
        expected: REPAIRED,
        cause: |world| {
            let file = OpenOptions::new().write(true).open(&world.originals()[1]).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        },
    },
    Damage {
        name: "a stale index",
        kind: "index",
        expected: REPAIRED,
        cause: |world| {
            assert_eq!(world.run(&["search", "one"]).code, 0);
            let found = world.doctor();
            assert_eq!(found.json()["findings"], Value::Array(Vec::new()), "a new index: {found}");
            let index = Connection::open(world.in_git("search/words.sqlite")).unwrap();
            index.execute_batch("UPDATE sessions SET id = 77 WHERE id = 1").unwrap();
        },
    },
    Damage {
        name: "a damaged index",
        kind: "index",
        expected: REPAIRED,
        cause: |world| private(&world.in_git("search/words.sqlite"), &"no index ".repeat(100)),
    },
    Damage {
        name: "a stale index of substrings",
        kind: "index",
        expected: REPAIRED,
        cause: |world| {
            assert_eq!(world.run(&["search", "-F", "one"]).code, 0);
            let found = world.doctor();
            assert_eq!(found.json()["findings"], Value::Array(Vec::new()), "a new index: {found}");
            let index = Connection::open(world.in_git("search/substrings.sqlite")).unwrap();
            index.execute_batch("UPDATE sessions SET id = 77 WHERE id = 1").unwrap();
        },
    },
    Damage {
        name: "a spool without a header",
        kind: "spool",
        expected: REPAIRED,
        cause: |world| private(&world.in_git("spool/abc.jsonl"), "{\"type\":\"system\"}\n"),
    },
    Damage {
        name: "a spool with an unreadable header",
        kind: "spool",
        expected: REPAIRED,
        cause: |world| {
            private(&world.in_git("spool/abc.turn"), "no header");
            private(&world.in_git("spool/abc.jsonl"), "{\"type\":\"system\"}\n");
        },
    },
    Damage {
        name: "a stale lease",
        kind: "stale_lease",
        expected: REPAIRED,
        cause: |world| private(&world.in_git("spool/S2.lease"), "{}"),
    },
    Damage {
        name: "modes for everybody",
        kind: "mode",
        expected: REPAIRED,
        cause: |world| {
            for (path, mode) in [
                (world.store(), 0o644),
                (world.path("p/.azureal"), 0o755),
                (world.in_git(""), 0o755),
                (world.originals()[0].clone(), 0o644),
                (world.in_git("snapshots"), 0o755),
            ] {
                fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            }
        },
    },
    Damage {
        name: "a foreign owner",
        kind: "owner",
        expected: Expected::Left,
        cause: |world| {
            std::os::unix::fs::chown(world.originals()[0].clone(), Some(12_345), None).unwrap();
        },
    },
    Damage {
        name: "a foreign owner of the folder in the git directory",
        kind: "owner",
        expected: Expected::Left,
        cause: |world| std::os::unix::fs::chown(world.in_git(""), Some(12_345), None).unwrap(),
    },
    Damage {
        name: "a second name that differs",
        kind: "second_name",
        expected: REPAIRED,
        cause: |world| {
            fs::remove_file(world.in_git("sessions.azs")).unwrap();
            fs::copy(world.store(), world.in_git("sessions.azs")).unwrap();
        },
    },
    Damage {
        name: "a repair that was killed before the new file had the name",
        kind: "second_name",
        expected: Expected::Repaired { lost: 90 },
        cause: |world| {
            let file = OpenOptions::new().write(true).open(world.store()).unwrap();
            file.write_all_at(&[0; 4096], 5 * 4096).unwrap();
            fs::hard_link(world.store(), world.path("p/.azureal/sessions.azs.damaged-x")).unwrap();
        },
    },
    Damage {
        name: "a deleted first name",
        kind: "second_name",
        expected: REPAIRED,
        cause: |world| fs::remove_file(world.store()).unwrap(),
    },
    Damage {
        name: "a deleted first name of a damaged file",
        kind: "second_name",
        expected: Expected::Repaired { lost: 20 },
        cause: |world| {
            world.overwrite(world.page_of_events(), &[0; 4096]);
            fs::remove_file(world.store()).unwrap();
        },
    },
];

#[test]
fn each_damage_is_named_and_repaired_without_losing_what_can_be_read() {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(damage) = DAMAGES.get(next.fetch_add(1, Ordering::Relaxed)) {
                    try_damage(damage);
                }
            });
        }
    });
}

fn try_damage(damage: &Damage) {
    let Damage { name, kind, expected, cause } = damage;
    if *kind == "owner" && rustix_euid() != 0 {
        eprintln!("{name}: only root can give a file away");
        return;
    }
    let world = world();
    let healthy = world.doctor();
    assert_eq!(healthy.code, 0, "{name}: {healthy}");
    assert_eq!(healthy.json()["findings"], Value::Array(Vec::new()), "{name}: {healthy}");
    let all = world.events();
    // The index of a search before the damage.
    assert!(world.run(&["search", "two"]).stdout.contains("[two]"), "{name}");
    cause(&world);
    let before = world.snapshot("p");
    let found = world.doctor();
    let report = found.json();
    assert!(kinds(&report["findings"]).contains(kind), "{name}: {found}");
    let is_note = report["findings"].as_array().unwrap().iter().all(|finding| finding["severity"] == "note");
    assert_eq!(
        (found.code, report["healthy"].as_bool()),
        (i32::from(!is_note), Some(is_note)),
        "{name}: {found}"
    );
    assert!(world.snapshot("p") == before, "{name}: a check changes nothing");
    let people = world.run(&["doctor"]);
    assert_eq!(people.code, found.code, "{name}: {people}");
    // Every other command repairs what is wrong with names, modes and leases.
    if ["integrity", "row_type", "undecodable_event", "gap", "orphan_events"].contains(kind) {
        // A search answers, or says why not.
        let search = world.run(&["search", "two"]);
        let is_answered = search.code == 0 && search.stdout.contains("[two]");
        assert!(is_answered || !search.stderr.is_empty(), "{name}: {search}");
    }

    let fixed = world.run(&["doctor", "--fix", "--json"]);
    let report = fixed.json();
    let fixable: Vec<&Value> =
        report["findings"].as_array().unwrap().iter().filter(|finding| !finding["fix"].is_null()).collect();
    assert!(fixable.is_empty(), "{name}: {fixed}");
    match expected {
        Expected::Repaired { lost } => {
            assert_eq!(fixed.code, 0, "{name}: {fixed}");
            assert!(!report["fixed"]["done"].as_array().unwrap().is_empty(), "{name}: {fixed}");
            assert!(!kinds(&report["findings"]).contains(kind), "{name}: {fixed}");
            let after = world.events();
            let missing: Vec<&String> = all.difference(&after).collect();
            // The damaged rows themselves.
            let lost = if ["undecodable_event", "gap"].contains(kind) { 4 } else { *lost };
            assert!(missing.len() <= lost, "{name}: {} are missing. {fixed}", missing.len());
        }
        Expected::Left => {
            assert!(kinds(&report["findings"]).contains(kind), "{name}: {fixed}");
            assert!(world.events() == all_as_numbered(&all, kind), "{name}");
        }
    }
    if let Some(backup) = report["fixed"]["backup"].as_str() {
        let backup = backup.replace("[folder]", fs::canonicalize(world.path("")).unwrap().to_str().unwrap());
        let found = fs::metadata(&backup).unwrap_or_else(|error| panic!("{name}: {backup}: {error}"));
        assert_eq!(found.mode() & 0o777, 0o600, "{name}");
    }
    // The store can be used, and is still sound.
    let ran = world.run(&["run", "-s", "three", "-a", "offline", "d"]);
    if *kind != "owner" {
        assert_eq!(ran.code, 0, "{name}: {ran}");
        let again = world.doctor();
        assert_eq!(again.code, i32::from(*expected == Expected::Left && !is_note), "{name}: {again}");
    }
}

#[test]
fn a_search_finds_what_a_repair_has_changed_in_an_old_session() {
    let world = World::new();
    for number in 0..20 {
        world.session(&format!("s{number}"), &[user(&format!("token {number}"))]);
    }
    let total = |query: &[&str]| world.run(&[&["search", "--json"], query].concat()).json()["total"].clone();
    assert_eq!(total(&["token"]), 20);
    world.sql("UPDATE events SET data = '{broken' WHERE session_id = 2");
    assert_eq!(world.run(&["doctor", "--fix"]).code, 0);
    assert_eq!((total(&["token"]), total(&["event", "--role", "error", "-s", "S2"])), (19.into(), 1.into()));
}

#[test]
fn a_session_gets_back_the_uuid_of_its_originals() {
    let world = world();
    world.run(&["run", "-s", "four", "-a", "offline", "a"]);
    let transcript = concat!(
        r#"{"type":"user","uuid":"u","sessionId":"11111111-2222-4333-8444-555555555555","cwd":"/x","timestamp":"2026-11-15T07:05:00Z","message":{"role":"user","content":"imported"}}"#,
        "\n",
        r#"{"type":"assistant","uuid":"a","parentUuid":"u","sessionId":"11111111-2222-4333-8444-555555555555","cwd":"/x","timestamp":"2026-11-15T07:05:01Z","message":{"id":"m","role":"assistant","model":"opus","stop_reason":"end_turn","content":[{"type":"text","text":"yes"}]}}"#,
        "\n"
    );
    let path = world.path("11111111-2222-4333-8444-555555555555.jsonl");
    fs::write(&path, transcript).unwrap();
    let imported = world.run(&["import", path.to_str().unwrap()]);
    assert_eq!(imported.code, 0, "{imported}");
    let uuids = || -> Vec<String> {
        let connection = Connection::open(world.store()).unwrap();
        let mut statement = connection.prepare("SELECT ifnull(uuid, '') FROM sessions ORDER BY id").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let outputs = || -> Vec<String> {
        ["S3", "S4", "S5"].map(|id| world.run(&["original", id, "--seq", "1"]).stdout).to_vec()
    };
    let (before, printed) = (uuids(), outputs());
    assert!(printed.iter().all(|output| !output.is_empty()), "{printed:?}");
    for damage in [
        "UPDATE sessions SET uuid = NULL WHERE id IN (3, 5)",
        "UPDATE sessions SET uuid = 'none' WHERE id = 4",
        "DELETE FROM sessions WHERE id IN (3, 4)",
        "UPDATE sessions SET uuid = (SELECT uuid FROM sessions WHERE id = 3) WHERE id = 4",
        "UPDATE sessions SET uuid = (SELECT uuid FROM sessions WHERE id = 4) WHERE id = 3",
    ] {
        world.sql(damage);
        let fixed = world.run(&["doctor", "--fix", "--json"]);
        assert_eq!(fixed.code, 0, "{damage}: {fixed}");
        assert_eq!(fixed.json()["findings"], Value::Array(Vec::new()), "{damage}: {fixed}");
        assert_eq!(uuids(), before, "{damage}");
        assert_eq!(outputs(), printed, "{damage}");
    }
    // A folder whose session is gone is kept, and is no reason to call the store unhealthy.
    world.sql("DELETE FROM events WHERE session_id = 4; DELETE FROM sessions WHERE id = 4");
    world.run(&["search", "one"]);
    let found = world.doctor();
    assert_eq!((found.code, kinds(&found.json()["findings"])), (0, vec!["foreign_original"]), "{found}");
    assert!(world.in_git("originals").join(&before[3]).exists());
}

#[test]
fn a_lost_end_keeps_its_numbers_and_its_output() {
    let world = world();
    let output = || world.run(&["original", "S3", "--seq", "9"]).stdout;
    let printed = output();
    assert!(!printed.is_empty());
    world.sql("DELETE FROM events WHERE session_id = 3 AND seq > 10");
    let found = world.doctor();
    assert!(found.stdout.contains("events 11 to 12 are missing"), "{found}");
    let fixed = world.run(&["doctor", "--fix", "--json"]);
    assert_eq!(fixed.json()["findings"], Value::Array(Vec::new()), "{fixed}");
    assert_eq!(output(), printed, "the output of the turn has its place");
    assert_eq!(world.run(&["show", "--json", "S3"]).stdout.lines().count(), 12);
    // A count that does not agree with the others is no sign of lost events.
    world.sql("UPDATE sessions SET event_count = 20 WHERE id = 3");
    let found = world.doctor();
    assert_eq!(kinds(&found.json()["findings"]), ["counts"], "{found}");
}

fn rustix_euid() -> u32 {
    fs::metadata("/proc/self").map_or(1, |found| found.uid())
}

/// The events of a store whose damage stays: an event with a wrong number keeps it.
fn all_as_numbered(all: &BTreeSet<String>, kind: &str) -> BTreeSet<String> {
    if kind != "gap" {
        return all.clone();
    }
    let number = |line: &String| match line.strip_prefix("S2 {\"seq\":80,") {
        Some(rest) => format!("S2 {{\"seq\":5000000,{rest}"),
        None => line.clone(),
    };
    all.iter().map(number).collect()
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let check = |world: &World, what: &str| {
        let ran = world.doctor();
        assert_eq!(ran.code, 0, "{what}: {ran}");
        assert_eq!(ran.json()["findings"], Value::Array(Vec::new()), "{what}: {ran}");
    };
    let world = World::new();
    check(&world, "no store yet");
    assert!(!world.path("p/.azureal").exists(), "a check creates nothing");
    insta::assert_snapshot!(world.run(&["doctor"]), @r"
    exit code 0
    --- stdout
    nothing is wrong: there is no store yet
    agents: offline (built in)
    ");
    let world = crate::doctor::world();
    world.run(&["fork", "S1", "--at", "7"]);
    world.run(&["rename", "S2", "renamed"]);
    world.run(&["compact", "S1", "--agent", "offline"]);
    world.run(&["rm", "S4", "--yes"]);
    check(&world, "after changes of all kinds");
    // In WAL mode, with a process that has it open.
    let open = Connection::open(world.store()).unwrap();
    open.pragma_update(None, "journal_mode", "wal").unwrap();
    open.execute_batch("UPDATE sessions SET name = 'wal' WHERE id = 1").unwrap();
    check(&world, "with a write-ahead log");
    drop(open);
    // Outside git, and a store of another name.
    let other = world.path("outside");
    fs::create_dir(&other).unwrap();
    let outside =
        |arguments: &[&str]| world.ran(world.command(arguments).current_dir(&other).output().unwrap());
    outside(&["run", "-a", "offline", "hello"]);
    let ran = outside(&["doctor", "--json"]);
    assert_eq!((ran.code, &ran.json()["findings"]), (0, &Value::Array(Vec::new())), "{ran}");
    outside(&["--store", "x.azs", "run", "-a", "offline", "hello"]);
    let ran = outside(&["--store", "x.azs", "doctor", "--json"]);
    assert_eq!((ran.code, &ran.json()["findings"]), (0, &Value::Array(Vec::new())), "{ran}");
    assert_eq!(world.run(&["--store", "memory:", "doctor"]).code, 2);
}

#[test]
fn a_demo_and_a_git_worktree_are_sound() {
    let world = World::new();
    fs::remove_dir_all(world.path("p/.git")).unwrap();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(world.path("p")).env("HOME", world.path("home"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    git(&["init", "-q"]);
    git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"]);
    git(&["worktree", "add", "-q", "../w"]);
    let run = |folder: &str, arguments: &[&str]| {
        let mut command = world.with_programs(arguments);
        world.ran(command.current_dir(world.path(folder)).output().unwrap())
    };
    for folder in ["p", "w"] {
        fs::write(world.path(folder).join("file"), folder).unwrap();
        assert_eq!(run(folder, &["run", "-a", "offline", "hello"]).code, 0);
    }
    for folder in ["p", "w"] {
        let ran = run(folder, &["doctor", "--json"]);
        assert_eq!((ran.code, &ran.json()["findings"]), (0, &Value::Array(Vec::new())), "{ran}");
        assert_eq!(ran.json()["sessions"], 2, "{ran}");
    }
    let snapshots = world.path("p/.git/azureal/snapshots");
    let notes = fs::read_dir(snapshots.join("objects/pack")).unwrap().map(|file| file.unwrap().path());
    let notes = notes.filter(|path| path.to_string_lossy().contains("/notes-")).min().unwrap();
    let text = fs::read_to_string(&notes).unwrap();
    private(&notes, &format!("{text}no note\n1 {} -\n", "1".repeat(40)));
    private(&snapshots.join("worktrees/main/index"), "");
    let ran = run("p", &["doctor", "--json"]);
    let report = ran.json();
    assert_eq!((ran.code, kinds(&report["findings"])), (1, vec!["snapshots"; 3]), "{ran}");
    for finding in report["findings"].as_array().unwrap() {
        assert!(finding["fix"].is_string(), "{finding}");
    }
    let ran = run("p", &["doctor", "--fix", "--json"]);
    assert_eq!((ran.code, &ran.json()["findings"]), (0, &Value::Array(Vec::new())), "{ran}");
    assert_eq!(ran.json()["fixed"]["done"].as_array().unwrap().len(), 3, "{ran}");
    assert_eq!(fs::read_to_string(&notes).unwrap(), text);
    fs::write(world.path("p/file"), "changed").unwrap();
    let ran = run("p", &["run", "-c", "-a", "offline", "hello"]);
    assert!(ran.code == 0 && !ran.stderr.contains("not recorded"), "{ran}");
}

/// An agent that waits until a file is there.
const SLOW: &str = r#"[ "$1" = --version ] && echo 2.1.197 && exit
cat > /dev/null
while [ ! -e ../go ]; do sleep 0.05; done
echo '{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"result":"done"}'"#;

#[test]
fn a_running_turn_is_no_finding_and_nothing_is_repaired_meanwhile() {
    let world = world();
    world.program("claude", SLOW);
    let child = world.with_programs(&["run", "-s", "S1", "-a", "claude", "wait"]).spawn().unwrap();
    let is_running = || world.run(&["ps", "--json"]).stdout.contains("\"S1\"");
    azureal_testkit::until("the turn runs", || is_running().then_some(()));
    let ran = world.doctor();
    let report = ran.json();
    // The turn has git, and may have recorded versions of files by now. This command has none, which it notes then.
    let others: Vec<&str> =
        kinds(&report["findings"]).into_iter().filter(|kind| *kind != "snapshots").collect();
    assert_eq!((ran.code, others), (0, Vec::new()), "{ran}");
    world.sql("UPDATE sessions SET told = told + 1 WHERE id = 2");
    let refused = world.run(&["doctor", "--fix"]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.stderr.contains("a turn of S1 is running"), "{refused}");
    let backup = world.path("backup.azs");
    assert_eq!(world.run(&["backup", backup.to_str().unwrap()]).code, 0);
    let refused = world.run(&["restore", "--yes", backup.to_str().unwrap()]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.stderr.contains("a turn of S1 is running"), "{refused}");
    fs::write(world.path("go"), "").unwrap();
    let mut child = child;
    child.wait().unwrap();
    assert_eq!(world.run(&["doctor", "--fix"]).code, 0);
}

#[test]
fn an_interrupted_turn_is_named_and_stored() {
    let world = world();
    world.program("claude", SLOW);
    let mut child = world.with_programs(&["run", "-s", "S1", "-a", "claude", "wait"]).spawn().unwrap();
    azureal_testkit::until("the turn runs", || {
        world.run(&["ps", "--json"]).stdout.contains("\"S1\"").then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    fs::write(world.path("go"), "").unwrap();
    let is_named = || kinds(&world.doctor().json()["findings"]).contains(&"interrupted_turn");
    azureal_testkit::until("the turn is named", || is_named().then_some(()));
    let fixed = world.run(&["doctor", "--fix"]);
    assert_eq!(fixed.code, 0, "{fixed}");
    assert!(world.run(&["show", "S1"]).stdout.contains("wait"));
}

#[test]
fn configuration_trust_and_agents_are_checked() {
    let world = World::new();
    world.file("p/.azureal/azufig.toml", "agent = \"codex\"\nunknown_key = 1\n");
    let ran = world.doctor();
    assert_eq!(kinds(&ran.json()["findings"]), ["configuration"], "{ran}");
    assert!(ran.stdout.contains("unknown_key"), "{ran}");
    world.file("p/.azureal/azufig.toml", "model = \"x\"\n");
    let ran = world.doctor();
    assert_eq!((ran.code, kinds(&ran.json()["findings"])), (0, vec!["trust"]), "{ran}");
    fs::remove_file(world.path("p/.azureal/azufig.toml")).unwrap();
    let configured =
        world.ran(world.command(&["doctor", "--json"]).env("AZUREAL_AGENT", "codex").output().unwrap());
    assert_eq!((configured.code, kinds(&configured.json()["findings"])), (1, vec!["agent"]), "{configured}");
    world.program("claude", "echo 1.0.0");
    let old = world.ran(world.with_programs(&["doctor", "--json"]).output().unwrap());
    assert_eq!((old.code, kinds(&old.json()["findings"])), (0, vec!["agent"]), "{old}");
    assert_eq!(old.json()["agents"][0]["problem"], "too_old", "{old}");
}

#[test]
fn problems_that_are_summed_up_are_counted_one_by_one() {
    let world = World::new();
    for number in 0..25 {
        world.session(&format!("s{number}"), &[user("one")]);
    }
    world.sql("UPDATE sessions SET told = told + 1");
    let ran = world.run(&["doctor"]);
    assert!(ran.stdout.contains("5 more of this kind"), "{ran}");
    assert!(ran.stderr.contains("25 problems found") && ran.stderr.contains("repairs 25 problems"), "{ran}");
    let counts: Vec<u64> = world.doctor().json()["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["count"].as_u64().unwrap())
        .collect();
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (21, 25));
}

#[test]
fn the_report_for_people_says_what_a_repair_does() {
    let world = World::new();
    world.session("a", &[user("one"), assistant("two"), user("three")]);
    world.sql("UPDATE events SET data = 'x' WHERE seq = 2; UPDATE sessions SET told = 5");
    insta::assert_snapshot!(world.run(&["doctor"]), @r"
    exit code 1
    --- stdout
    ✗ S1: event 2 cannot be decoded: not an event: expected value at line 1 column 1
      --fix sets the row aside, and puts an error in its place
    ! S1: its stored counts are not those of its events: answered, rendered_chars
      --fix counts the events again
    checked [folder]/p/.azureal/sessions.azs: 1 session, 2 events
    agents: offline (built in)
    --- stderr
    error: 2 problems found
    hint: `azureal doctor --fix` repairs 2 problems
    ");
}
