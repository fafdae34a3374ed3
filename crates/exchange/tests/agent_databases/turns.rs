//! The turns of the recorded sessions, and their heads.

use std::fs;
use std::path::{Path, PathBuf};

use azureal_agents::native::{NativeSource, NativeTotal, NativeTurn};
use azureal_core::Event;
use azureal_core::event::{Complete, Usage};
use azureal_exchange::{native_sources, recognise_native};
use azureal_store::sqlite::rusqlite::Connection;
use serde_json::Value;

use crate::database::{AGENTS, Home, fixtures, source};

#[test]
fn the_recorded_sessions_give_their_turns() {
    for agent in AGENTS {
        let text: String = Home::new(agent).turns().iter().map(render).collect();
        insta::with_settings!({
            snapshot_path => fixtures(),
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, {
            insta::assert_snapshot!(agent, text);
        });
    }
}

#[test]
fn a_session_says_what_its_streams_say() {
    for agent in AGENTS {
        let turns = Home::new(agent).turns();
        assert_eq!(turns.len(), 3);
        for (turn, number) in turns.iter().zip(1..) {
            let stream =
                fs::read_to_string(fixtures().join(format!("{agent}-stdout{number}.jsonl"))).unwrap();
            let lines: Vec<Value> = stream.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let mut said = if agent == "goose" { said_by_goose(&lines) } else { said_by_opencode(&lines) };
            let mut stored = stored(turn);
            match (agent, number) {
                // A command was running when the program was stopped. goose stores nothing of the turn then, and
                // opencode prints a call only when it has ended.
                ("goose", 3) => said.clear(),
                ("opencode", 3) => assert!(stored.pop().is_some_and(|last| last.starts_with("call "))),
                _ => {}
            }
            assert_eq!(stored, said, "{agent}, turn {number}");
        }
    }
}

fn stored(turn: &NativeTurn) -> Vec<String> {
    let line = |event: &Event| match event {
        Event::AssistantText(said) => Some(format!("text {}", said.text)),
        Event::ToolCall(call) => Some(format!("call {}", call.tool_use_id)),
        _ => None,
    };
    turn.events.iter().filter_map(line).collect()
}

fn said_by_opencode(lines: &[Value]) -> Vec<String> {
    let line = |line: &Value| match line["type"].as_str()? {
        "text" => Some(format!("text {}", line["part"]["text"].as_str()?)),
        "tool_use" => Some(format!("call {}", line["part"]["callID"].as_str()?)),
        _ => None,
    };
    lines.iter().filter_map(line).collect()
}

fn said_by_goose(lines: &[Value]) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for part in lines.iter().filter_map(|line| line["message"]["content"].as_array()).flatten() {
        match (part["type"].as_str().unwrap(), said.last_mut()) {
            // A text comes in pieces.
            ("text", Some(last)) if last.starts_with("text ") => {
                last.push_str(part["text"].as_str().unwrap());
            }
            ("text", _) => said.push(format!("text {}", part["text"].as_str().unwrap())),
            ("toolRequest", _) => said.push(format!("call {}", part["id"].as_str().unwrap())),
            _ => {}
        }
    }
    said
}

#[test]
fn a_session_of_opencode_2_gives_its_turns() {
    let recorded = Home::of_opencode_2();
    assert_eq!(recorded.problems(), [""; 0]);
    let turns = recorded.turns();
    let text: String = turns.iter().map(render).collect();
    insta::with_settings!({
        snapshot_path => fixtures(),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!("opencode-2", text);
    });
    assert_eq!(turns[0].summaries[0].text, "The gist.");
    let home = recorded.open().unwrap();
    let sessions: Vec<_> = home.sessions(None).map(Result::unwrap).collect();
    assert_eq!(sessions.len(), 1);
    assert_eq!(home.head(&sessions[0]).unwrap().title.as_deref(), Some("A newer title"));
    let other = recorded.folder.path().join("another.db");
    recorded.change("DROP TABLE session; PRAGMA wal_checkpoint(TRUNCATE);");
    fs::copy(recorded.file(), &other).unwrap();
    let found = recognise_native(&other, recorded.folder.path()).unwrap();
    assert_eq!(found.map(NativeSource::agent), Some("opencode"), "by its tables");
}

#[test]
fn a_session_that_opencode_2_took_over_is_read_once_from_its_tables() {
    let recorded = Home::new("opencode");
    let before = recorded.turns().len();
    // Earlier versions write these rows too, for a trial.
    recorded.change(
        "INSERT INTO session_message (id, session_id, type, seq, time_created, time_updated, data)
            SELECT 'msg_1', id, 'user', 1, 1794850001000, 1794850001000, '{\"text\":\"Newer\"}' FROM session",
    );
    assert_eq!(recorded.turns().len(), before);
    recorded.change(&fs::read_to_string(fixtures().join("opencode-2.sql")).unwrap());
    recorded.change(
        "PRAGMA foreign_keys = OFF; UPDATE session_v2 SET id = (SELECT id FROM session);
        UPDATE session_message SET session_id = (SELECT id FROM session);",
    );
    assert_eq!(recorded.open().unwrap().sessions(None).count(), 1);
    let turns = recorded.turns();
    assert!(
        matches!(turns[0].events.as_slice(), [Event::UserMessage(prompt), ..] if prompt.content == "Look at it")
    );
    assert_eq!(turns.len(), 2);
    // It has not taken over the messages yet.
    recorded.change("DELETE FROM session_message");
    assert_eq!(recorded.turns().len(), before);
}

#[test]
fn messages_of_opencode_2_that_the_user_went_back_from_are_left_out() {
    let recorded = Home::of_opencode_2();
    recorded.change("UPDATE session_v2 SET revert = '{\"messageID\":\"msg_09\"}'");
    assert_eq!(recorded.turns().len(), 1);
    assert_eq!(recorded.problems(), ["the end (2 messages) was left out: the user went back in the program"]);
}

#[test]
fn goose_counts_tokens_for_the_whole_session() {
    let total = |recorded: &Home| {
        let home = recorded.open().unwrap();
        let session = home.sessions(None).next().unwrap().unwrap();
        home.turns(&session).unwrap().total()
    };
    let recorded = Home::new("goose");
    let usage = Usage { input_tokens: 600, output_tokens: 120, ..Usage::default() };
    assert_eq!(total(&recorded), Some(NativeTotal { usage, cost_usd: 0.0 }));
    recorded.change(
        "ALTER TABLE sessions ADD COLUMN accumulated_cache_read_tokens INTEGER;
        ALTER TABLE sessions ADD COLUMN accumulated_cache_write_tokens INTEGER;
        UPDATE sessions SET accumulated_cache_read_tokens = 5, accumulated_cost = 0.5",
    );
    let usage = Usage { cache_read_tokens: 5, ..usage };
    assert_eq!(total(&recorded), Some(NativeTotal { usage, cost_usd: 0.5 }));
    recorded.change("UPDATE sessions SET accumulated_input_tokens = 'many', accumulated_output_tokens = -3");
    let usage = Usage { cache_read_tokens: 5, ..Usage::default() };
    assert_eq!(total(&recorded), Some(NativeTotal { usage, cost_usd: 0.5 }));
    assert_eq!(total(&Home::new("opencode")), None);
}

#[test]
fn a_head_says_where_and_when_a_session_began() {
    for (agent, title) in [("opencode", "A title"), ("goose", "s1")] {
        let recorded = Home::new(agent);
        let home = recorded.open().unwrap();
        let session = home.sessions(None).next().unwrap().unwrap();
        let head = home.head(&session).unwrap();
        let cwd = head.cwd.clone().unwrap();
        assert_eq!((head.id.as_str(), head.title.as_deref()), (session.id.as_str(), Some(title)));
        assert!(cwd.ends_with("dev/project") && head.started.is_some() && !head.is_subagent, "{head:?}");
        assert!(session.size > 3 && session.changed.is_some());
        let count = |project: &Path| home.sessions(Some(project)).count();
        assert_eq!([count(&cwd), count(cwd.parent().unwrap()), count(Path::new("/elsewhere"))], [1, 1, 0]);
    }
}

#[test]
fn the_work_of_a_subagent_is_known() {
    for (agent, sql) in [
        ("opencode", "UPDATE session SET parent_id = 'ses_1'"),
        ("goose", "UPDATE sessions SET session_type = 'sub_agent'"),
    ] {
        let recorded = Home::new(agent);
        recorded.change(sql);
        let home = recorded.open().unwrap();
        let session = home.sessions(None).next().unwrap().unwrap();
        assert!(home.head(&session).unwrap().is_subagent, "{agent}");
    }
}

#[test]
fn a_session_that_grows_changes_its_size_or_its_time() {
    for (agent, sql) in [
        ("opencode", "UPDATE message SET time_updated = time_updated + 1000000"),
        (
            "goose",
            "INSERT INTO messages (session_id, role, content_json, created_timestamp)
            SELECT id, 'user', '[]', 1 FROM sessions",
        ),
    ] {
        let recorded = Home::new(agent);
        let session = || recorded.open().unwrap().sessions(None).next().unwrap().unwrap();
        let before = session();
        assert_eq!(session(), before);
        recorded.change(sql);
        assert_ne!(session(), before, "{agent}");
    }
}

#[test]
fn messages_that_the_user_went_back_from_are_left_out() {
    let recorded = Home::new("opencode");
    recorded.change(
        "UPDATE session SET revert = (SELECT json_object('messageID', id) FROM message
            WHERE data LIKE '{\"role\":\"user\"%' ORDER BY time_created LIMIT 1 OFFSET 1)",
    );
    assert_eq!(recorded.turns().len(), 1);
    assert_eq!(recorded.problems(), ["the end (4 messages) was left out: the user went back in the program"]);
}

#[test]
fn a_compaction_and_its_summary_are_known() {
    let goose = Home::new("goose");
    goose.change(
        "INSERT INTO messages (session_id, role, content_json, created_timestamp, metadata_json)
            SELECT id, 'user', '[{\"type\":\"text\",\"text\":\"The gist.\"}]', 1794850200, '{\"userVisible\":false}' FROM sessions;
        INSERT INTO messages (session_id, role, content_json, created_timestamp, metadata_json)
            SELECT id, 'assistant', '[{\"type\":\"text\",\"text\":\"Compacted.\"}]', 1794850201, '{\"userVisible\":false}' FROM sessions;",
    );
    let opencode = Home::new("opencode");
    opencode.change(
        "INSERT INTO message (id, session_id, time_created, time_updated, data)
            SELECT 'msg_z', id, 1794850200000, 0, '{\"role\":\"assistant\",\"summary\":true}' FROM session;
        INSERT INTO part (id, message_id, session_id, time_created, time_updated, data)
            SELECT 'prt_z', 'msg_z', id, 0, 0, '{\"type\":\"text\",\"text\":\"The gist.\"}' FROM session;",
    );
    // A summary does not part a call from its result.
    opencode.change("DELETE FROM part WHERE data LIKE '%\"status\":\"running\"%'");
    for recorded in [goose, opencode] {
        let turn = recorded.turns().pop().unwrap();
        let compacted = turn.events.iter().position(|event| matches!(event, Event::Compacted)).unwrap();
        assert_eq!(turn.summaries.len(), 1, "{turn:?}");
        assert_eq!((turn.summaries[0].text.as_str(), turn.summaries[0].after), ("The gist.", compacted + 1));
    }
}

#[test]
fn the_end_of_an_answer_decides_the_outcome() {
    for (error, outcome) in [
        ("'{\"name\":\"MessageAbortedError\",\"data\":{\"message\":\"stopped\"}}'", "cancelled"),
        ("'{\"name\":\"APIError\",\"data\":{\"message\":\"no credit\"}}'", "failed"),
    ] {
        let recorded = Home::new("opencode");
        recorded.change(&format!(
            "UPDATE message SET data = json_set(data, '$.error', json({error})) WHERE data LIKE '%\"finish\":\"stop\"%'"
        ));
        let turn = recorded.turns().remove(1);
        let Some(Event::Complete(complete)) = turn.events.last() else { unreachable!("{turn:?}") };
        assert_eq!(complete.ending().to_string(), outcome);
        let has_error = turn
            .events
            .iter()
            .any(|event| matches!(event, Event::Error(error) if error.message == "no credit"));
        assert_eq!(has_error, outcome == "failed");
    }
}

#[test]
fn a_file_that_the_user_names_is_recognised() {
    for agent in AGENTS {
        let recorded = Home::new(agent);
        let name =
            |path: &Path| recognise_native(path, recorded.folder.path()).unwrap().map(NativeSource::agent);
        assert_eq!(name(&recorded.file()), Some(agent));
        let other = recorded.folder.path().join("another.db");
        fs::copy(recorded.file(), &other).unwrap();
        assert_eq!(name(&other), Some(agent), "by its tables");
        let opened = source(agent).open(&other, recorded.folder.path()).unwrap();
        assert_eq!(opened.sessions(None).count(), 1);
        // The databases of other programs have tables of the same names.
        fs::remove_file(&other).unwrap();
        let tables = "CREATE TABLE session (id); CREATE TABLE sessions (id); CREATE TABLE messages (id);";
        Connection::open(&other).unwrap().execute_batch(tables).unwrap();
        assert_eq!(name(&other), None);
    }
    assert_eq!(native_sources().len(), 7);
}

#[test]
fn homes_are_found_by_the_variables_of_the_programs() {
    let homes = |agent: &str, variables: &[(&str, &str)]| -> Vec<PathBuf> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        source(agent).homes(&variable)
    };
    for (agent, file) in [("opencode", "opencode/opencode.db"), ("goose", "goose/sessions/sessions.db")] {
        assert_eq!(homes(agent, &[("HOME", "/u")]), [Path::new("/u/.local/share").join(file)]);
        assert_eq!(homes(agent, &[("HOME", "/u"), ("XDG_DATA_HOME", "/d")]), [Path::new("/d").join(file)]);
        assert!(homes(agent, &[]).is_empty());
    }
    let own = homes("goose", &[("HOME", "/u"), ("GOOSE_PATH_ROOT", "/g")]);
    assert_eq!(own, [PathBuf::from("/g/data/sessions/sessions.db")]);
}

/// Renders a turn, one line per event.
fn render(turn: &NativeTurn) -> String {
    let is_open = if turn.is_open { ", open" } else { "" };
    let mut text = format!("turn {}{is_open}\n", turn.id);
    for event in &turn.events {
        text += &match event {
            Event::ToolResult(result) => {
                let detail = result.detail.as_deref().unwrap_or_default();
                let detail: String = detail.lines().map(|line| format!("\n      | {line}")).collect();
                let failed = if result.is_error { " FAILED" } else { "" };
                format!(
                    "  result {} {}{failed} {:?}{detail}\n",
                    result.tool_use_id, result.tool_name, result.content
                )
            }
            Event::Complete(Complete { duration_ms, outcome, usage, .. }) => {
                format!("  complete {outcome:?} {duration_ms} ms {usage:?}\n")
            }
            other => format!("  {}\n", other.to_json()),
        };
    }
    for problem in &turn.problems {
        text += &format!("  problem: {problem}\n");
    }
    text
}
