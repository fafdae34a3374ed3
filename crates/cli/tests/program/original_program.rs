//! A store that the original AZUREAL program uses too: its running turns are left alone.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::run::{fake_claude, wait_until};
use crate::terminal::answering;
use crate::world::{Ran, World, assistant, user};

/// Claude Code's name of the run.
const RUN: &str = "11111111-2222-3333-4444-555555555555";
const PROMPT: &str = "Asked in the original";
const ANSWER: &str = "Answered in the original";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A project with a session, and the original program working in it.
struct Original {
    world: World,
    store: Connection,
}

impl Original {
    fn new() -> Self {
        let world = World::new();
        world.session("work", &[user("Hello"), assistant("Hi!")]);
        let store = Connection::open(world.store()).unwrap();
        store.busy_timeout(Duration::from_secs(5)).unwrap();
        Self { world, store }
    }

    fn transcript(&self) -> PathBuf {
        self.world.path(&format!("home/.claude/projects/p/{RUN}.jsonl"))
    }

    /// Notes a run, as the original does while its Claude Code works.
    fn begins(&self) {
        self.store.execute("UPDATE sessions SET last_claude_uuid = ?1 WHERE id = 1", [RUN]).unwrap();
        let prompt = json!({
            "type": "user", "isSidechain": false, "sessionId": RUN, "cwd": "/p",
            "timestamp": "2026-11-15T07:05:15.000Z", "message": {"role": "user", "content": PROMPT},
        });
        self.world.file(&format!("home/.claude/projects/p/{RUN}.jsonl"), &format!("{prompt}\n"));
    }

    /// Writes the answer to Claude Code's transcript.
    fn answers(&self) {
        let answer = json!({
            "type": "assistant", "isSidechain": false, "sessionId": RUN, "timestamp": "2026-11-15T07:05:17.000Z",
            "message": {"id": "m1", "model": "claude-opus-4-8", "role": "assistant", "stop_reason": "end_turn",
                        "usage": {"input_tokens": 100, "output_tokens": 20},
                        "content": [{"type": "text", "text": ANSWER}]},
        });
        let mut transcript = File::options().append(true).open(self.transcript()).unwrap();
        writeln!(transcript, "{answer}").unwrap();
    }

    /// Stores the turn, as the original does when its Claude Code has ended.
    fn stores(&self) {
        let complete = json!({"Complete": {"success": true, "duration_ms": 5, "cost_usd": 0.0}});
        for event in [user(PROMPT), assistant(ANSWER), complete] {
            let kind = event.as_object().unwrap().keys().next().unwrap().clone();
            self.store
                .execute(
                    "INSERT INTO events (session_id, seq, kind, data, char_len)
                     SELECT 1, max(seq) + 1, ?1, CAST(?2 AS BLOB), 3 FROM events WHERE session_id = 1",
                    [kind, event.to_string()],
                )
                .unwrap();
        }
    }

    fn clears_its_note(&self) {
        self.store.execute("UPDATE sessions SET last_claude_uuid = ''", []).unwrap();
    }

    fn note(&self) -> String {
        self.store.query_row("SELECT last_claude_uuid FROM sessions", [], |row| row.get(0)).unwrap()
    }

    /// Makes the transcript look as if it had not changed for so long.
    fn is_idle_for(&self, time: Duration) {
        let file = File::options().append(true).open(self.transcript()).unwrap();
        file.set_modified(SystemTime::now() - time).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.world.command(arguments);
        command.env("HOME", self.world.path("home"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.world.ran(self.command(arguments).output().unwrap())
    }

    /// Sends a prompt on a terminal at which somebody types `answer`; returns what the terminal showed.
    fn run_on_terminal(&self, arguments: &[&str], answer: &str) -> String {
        let (code, shown) = answering(self.command(arguments), answer);
        assert_eq!(code, 0, "{shown}");
        shown
    }

    /// Returns the prompts and the texts of the session, without those of the offline agent.
    fn conversation(&self) -> Vec<String> {
        let events = self.run(&["show", "S1", "--json"]).json_lines();
        let text = |event: &Value| match event["kind"].as_str() {
            Some("UserMessage") => event["data"]["content"].as_str().map(str::to_owned),
            Some("AssistantText") => event["data"]["text"].as_str().map(str::to_owned),
            _ => None,
        };
        events.iter().filter_map(text).filter(|text| !text.starts_with("Ada here")).collect()
    }
}

#[test]
fn a_turn_that_the_original_program_runs_is_left_alone_and_stands_once() {
    let original = Original::new();
    original.begins();
    let before = original.conversation();
    // However long it takes: an agent may wait for days.
    for idle in [Duration::ZERO, 40 * DAY] {
        original.is_idle_for(idle);
        for arguments in [
            &["list"][..],
            &["show", "S1"],
            &["context", "S1"],
            &["tokens", "S1"],
            &["ps"],
            &["agents"],
            &["rename", "S1", "named"],
            &["export", "S1"],
            &["compact", "--list", "S1"],
        ] {
            let ran = original.run(arguments);
            assert!(ran.code == 0 && !ran.stderr.contains("recovered"), "{arguments:?}: {ran}");
            assert_eq!(original.note(), RUN, "{arguments:?}");
        }
        assert_eq!(original.conversation(), before);
    }
    original.answers();
    let ran = original.run(&["run", "-s", "S1", "-a", "offline", "Meanwhile"]);
    assert_eq!((ran.code, original.note().as_str()), (0, RUN), "{ran}");
    assert!(
        ran.stderr.starts_with(
            "S1: the original AZUREAL program may still be running a turn here (its transcript changed 0 s ago). \
             That turn is not part of the history yet\n"
        ),
        "{ran}"
    );
    original.stores();
    original.clears_its_note();
    assert_eq!(original.run(&["list"]).stderr, "");
    assert_eq!(original.conversation(), ["Hello", "Hi!", "Meanwhile", PROMPT, ANSWER]);
}

#[test]
fn a_turn_that_the_original_program_never_stored_is_recovered_when_the_user_agrees() {
    let original = Original::new();
    original.begins();
    original.answers();
    original.is_idle_for(3 * DAY);
    let noted = "S1: the original AZUREAL program noted a run 3 days ago that it never stored.";
    let question = format!("{noted} Recover it from Claude Code's transcript? [y/N] ");
    let next = ["run", "-c", "-a", "offline", "Next"];

    // Nobody can be asked.
    let ran = original.run(&next);
    let hint = "hint: `azureal run -s S1` on a terminal recovers it from Claude Code's transcript\n";
    assert!(ran.stderr.starts_with(&format!("{noted}\n{hint}")), "{ran}");
    assert_eq!((ran.code, original.note().as_str()), (0, RUN));

    let shown = original.run_on_terminal(&next, "n\n");
    assert!(shown.contains(&question) && !shown.contains("recovered"), "{shown}");
    assert_eq!(original.note(), RUN);
    assert_eq!(original.conversation(), ["Hello", "Hi!", "Next", "Next"]);

    let shown = original.run_on_terminal(&["run", "-s", "S1", "-a", "offline", "Last"], "y\n");
    assert!(shown.contains(&question), "{shown}");
    let recovered = "recovered the last turn of S1 (complete) from Claude Code's transcript";
    assert!(shown.contains(recovered), "{shown}");
    assert_eq!(original.note(), "");
    let whole = ["Hello", "Hi!", "Next", "Next", PROMPT, ANSWER, "Last"];
    assert_eq!(original.conversation(), whole);

    // The same again, as after a crash between storing and clearing the note.
    original.store.execute("UPDATE sessions SET last_claude_uuid = ?1", [RUN]).unwrap();
    let shown = original.run_on_terminal(&next, "y\n");
    assert!(shown.contains("the last turn of S1 is in the history already"), "{shown}");
    assert_eq!(original.note(), "");
    assert_eq!(original.conversation(), [&whole[..], &["Next"]].concat());
}

#[test]
fn a_turn_that_the_original_program_stored_is_not_stored_again() {
    let original = Original::new();
    original.begins();
    original.answers();
    // It died before it cleared its note.
    original.stores();
    original.is_idle_for(2 * DAY);
    let shown = original.run_on_terminal(&["run", "-c", "-a", "offline", "Next"], "y\n");
    assert!(shown.contains("the last turn of S1 is in the history already"), "{shown}");
    assert_eq!(original.note(), "");
    assert_eq!(original.conversation(), ["Hello", "Hi!", PROMPT, ANSWER, "Next"]);
}

#[test]
fn a_transcript_that_changed_today_or_is_open_somewhere_is_not_recovered() {
    let original = Original::new();
    original.begins();
    original.answers();
    let next = ["run", "-c", "-a", "offline", "Next"];
    original.is_idle_for(DAY - Duration::from_secs(60));
    let shown = original.run_on_terminal(&next, "y\n");
    assert!(shown.contains("(its transcript changed 23 h ago)") && !shown.contains("[y/N]"), "{shown}");
    if cfg!(target_os = "linux") {
        let _held_by_us = File::open(original.transcript()).unwrap();
        original.is_idle_for(9 * DAY);
        let shown = original.run_on_terminal(&next, "y\n");
        assert!(shown.contains("(its transcript changed 9 days ago)") && !shown.contains("[y/N]"), "{shown}");
    }
    assert_eq!((original.note().as_str(), original.conversation().len()), (RUN, 4));
    // Without a transcript there is nothing to recover, and the note stays for the original program.
    fs::remove_file(original.transcript()).unwrap();
    let shown = original.run_on_terminal(&next, "y\n");
    assert!(!shown.contains("original"), "{shown}");
    assert_eq!(original.note(), RUN);
}

/// The first release of azureal noted its own runs where the original program does.
#[test]
fn a_note_of_our_first_release_is_known_by_its_spool() {
    let output = json!({"type": "system", "subtype": "init", "cwd": "/p", "session_id": RUN, "model": "m"});
    let text =
        json!({"type": "assistant", "message": {"id": "m1", "content": [{"type": "text", "text": ANSWER}]}});
    let header = json!({"turn": {"run": "abc", "session": 1, "prompt": PROMPT, "agent": "claude", "model": null,
                                 "directory": "/x", "started_at": "2026-01-31T09:30:00Z"}});
    for (note, left) in [(RUN, ""), ("another-run", "another-run")] {
        let original = Original::new();
        original.store.execute("UPDATE sessions SET last_claude_uuid = ?1", [note]).unwrap();
        let spool = original.world.path("p/.azureal/spool");
        fs::create_dir_all(&spool).unwrap();
        fs::write(
            spool.join("abc.turn"),
            format!("{header}\n{{\"process\":{{\"pid\":999999,\"began\":\"1\"}}}}\n"),
        )
        .unwrap();
        fs::write(spool.join("abc.jsonl"), format!("{output}\n{text}\n")).unwrap();
        fs::write(spool.join("abc.err"), "").unwrap();
        let private = Command::new("chmod").args(["-R", "go="]).arg(&spool).status().unwrap();
        assert!(private.success());

        assert_eq!(original.run(&["list"]).stderr, "recovered the last turn of S1 (incomplete)\n");
        assert_eq!(original.note(), left);
        assert_eq!(original.conversation(), ["Hello", "Hi!", PROMPT, ANSWER]);
        assert_eq!(original.run(&["list"]).stderr, "");
    }
}

#[test]
fn a_note_of_our_first_release_whose_spool_is_kept_is_not_taken_for_the_originals() {
    let original = Original::new();
    original.begins();
    original.answers();
    original.is_idle_for(3 * DAY);
    let header = json!({"turn": {"run": "abc", "session": 1, "prompt": PROMPT, "agent": "unknown", "model": null,
                                 "directory": "/x", "started_at": "2026-01-31T09:30:00Z"}});
    let spool = original.world.path("p/.azureal/spool");
    fs::create_dir_all(&spool).unwrap();
    fs::write(spool.join("abc.turn"), format!("{header}\n")).unwrap();
    let private = Command::new("chmod").args(["-R", "go="]).arg(&spool).status().unwrap();
    assert!(private.success());
    let shown = original.run_on_terminal(&["run", "-c", "-a", "offline", "Next"], "y\n");
    assert!(shown.contains("is kept: its agent `unknown` is unknown") && !shown.contains("[y/N]"), "{shown}");
    assert_eq!((original.note().as_str(), original.conversation().len()), (RUN, 3));
}

#[test]
fn a_turn_of_ours_is_not_noted_where_the_original_program_looks() {
    let original = Original::new();
    let gate = original.world.path("gate");
    fake_claude(&original.world, &format!("while ! test -e '{}'; do sleep 0.02; done", gate.display()));
    let mut command = original.world.with_programs(&["run", "-s", "S1", "-a", "claude", "Ours"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ours =
        || original.store.query_row("SELECT ifnull(run, '') FROM sessions", [], |row| row.get(0)).unwrap();
    wait_until("the note of the run", || {
        let run: String = ours();
        !run.is_empty()
    });
    assert_eq!(original.note(), "");
    fs::write(gate, "").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!((original.note(), ours()), (String::new(), String::new()));
}

#[test]
fn totals_that_the_original_overwrote_are_added_up_again() {
    let original = Original::new();
    let totals = |world: &World| {
        let session = world.run(&["list", "--json"]).json()[0].clone();
        (session["duration_ms"].as_u64().unwrap(), session["cost_usd"].as_f64().unwrap())
    };
    let complete = json!({"Complete": {"success": true, "duration_ms": 40, "cost_usd": 0.5}});
    original.world.session("paid", &[user("Hello"), assistant("Hi!"), complete.clone()]);
    let insert = "INSERT INTO events (session_id, seq, kind, data, char_len)
                  SELECT 2, max(seq) + 1, 'Complete', CAST(?1 AS BLOB), 0 FROM events WHERE session_id = 2";
    for _ in 0..2 {
        original.store.execute(insert, [complete.to_string()]).unwrap();
        original
            .store
            .execute("UPDATE sessions SET duration_ms = 40, cost_usd = 0.5 WHERE id = 2", [])
            .unwrap();
    }
    assert_eq!(totals(&original.world), (120, 1.5));
    let shown = original.world.run(&["export", "paid"]);
    let exported: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(exported["session"]["cost_usd"], 1.5);
    // The next turn adds to the sum, and stores it.
    let ran = original.world.run(&["run", "-s", "paid", "-a", "offline", "More"]);
    assert_eq!(ran.code, 0, "{ran}");
    let stored: f64 =
        original.store.query_row("SELECT cost_usd FROM sessions WHERE id = 2", [], |row| row.get(0)).unwrap();
    assert_eq!(stored, 1.5);
    assert!(totals(&original.world).0 >= 120);
}

#[test]
fn a_file_of_the_original_is_sound_and_is_continued() {
    let world = World::new();
    fs::create_dir_all(world.store().parent().unwrap()).unwrap();
    let store = Connection::open(world.store()).unwrap();
    store
        .execute_batch(
            "CREATE TABLE sessions (id INTEGER PRIMARY KEY, name TEXT, worktree TEXT, created TEXT, completed INTEGER,
               duration_ms INTEGER, cost_usd REAL, last_claude_uuid TEXT);
             CREATE TABLE events (id INTEGER PRIMARY KEY, session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
               seq INTEGER NOT NULL, kind TEXT NOT NULL, data BLOB NOT NULL, char_len INTEGER NOT NULL, UNIQUE (session_id, seq));
             CREATE TABLE compactions (id INTEGER PRIMARY KEY, session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
               after_seq INTEGER NOT NULL, summary TEXT NOT NULL, created TEXT NOT NULL);
             CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
             INSERT INTO meta VALUES ('schema_version', '3');
             INSERT INTO sessions (id, worktree, created) VALUES (1, 'main', '2026-04-01 10:00:00');",
        )
        .unwrap();
    let wrapped = "<azureal-session-context>\nold\n</azureal-session-context>\n\nthe prompt";
    let instructions = "# AGENTS.md instructions for /p\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>";
    let rows = [
        ("UserMessage", user(instructions), instructions),
        ("UserMessage", user(wrapped), wrapped),
        ("AssistantText", assistant("Hi!"), "Hi!"),
    ];
    for (seq, (kind, event, text)) in (1_i64..).zip(rows) {
        let length = i64::try_from(text.len()).unwrap();
        let sql = "INSERT INTO events (session_id, seq, kind, data, char_len) VALUES (1, ?1, ?2, CAST(?3 AS BLOB), ?4)";
        store.execute(sql, rusqlite::params![seq, kind, event.to_string(), length]).unwrap();
    }
    drop(store);
    let kinds = || -> Vec<String> {
        let report = world.run(&["doctor", "--json"]).json();
        report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| finding["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    // The second name, and modes that the original does not set.
    let found = kinds();
    assert!(found.iter().all(|kind| kind == "second_name" || kind == "mode"), "{found:?}");
    let ran = world.run(&["run", "-s", "S1", "-a", "offline", "Go on"]);
    assert_eq!(ran.code, 0, "{ran}");
    let session = world.run(&["list", "--all", "--json"]).json()[0].clone();
    assert_eq!((&session["preview"], &session["message_count"]), (&json!("the prompt"), &json!(4)));
    assert_eq!(kinds(), Vec::<String>::new());
}
