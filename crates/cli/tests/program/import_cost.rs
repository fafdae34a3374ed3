//! The cost of importing sessions of agents' programs: memory, and transactions of the store.

use std::fs::{self, File};
use std::io::Read;
use std::process::Stdio;

use serde_json::json;

use crate::flood::measured;
use crate::import_native::{FIRST, claude_line, project, run, transcript, write};
use crate::world::World;

/// The most memory that an import may use.
const MEMORY: u64 = 150 << 20;

/// Imports the sessions of Claude Code, and returns the most memory that the import used.
#[track_caller]
fn import(world: &World) -> u64 {
    let mut command = world.command(&["import", "--from", "claude"]);
    command.env("HOME", world.path("person")).stdout(Stdio::null()).stderr(Stdio::piped());
    let (output, peak) = measured(command.spawn().unwrap());
    assert!(output.status.success(), "{}", world.ran(output));
    peak
}

/// Returns the number of write transactions of the store so far, from the change counter in the header of the file.
fn transactions(world: &World) -> u32 {
    let mut header = [0; 28];
    File::open(world.store()).unwrap().read_exact(&mut header).unwrap();
    u32::from_be_bytes(header[24..].try_into().unwrap())
}

#[test]
fn many_sessions_are_stored_in_few_transactions_and_none_that_adds_nothing() {
    const SESSIONS: u32 = 300;
    let world = World::new();
    let here = project(&world);
    for number in 0..SESSIONS {
        let prompts = [&format!("Prompt {number}"), &*"words and words ".repeat(2_000)];
        transcript(&world, &here, &format!("{number:08}-2222-4333-8444-555555555555"), &prompts);
    }
    let peak = import(&world);
    assert!(peak < MEMORY, "{} MiB", peak >> 20);
    let listed = run(&world, &["list", "-n", "1000", "--json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), SESSIONS as usize);
    let first = transactions(&world);
    assert!(first < SESSIONS / 10, "{first} transactions");
    let peak = import(&world);
    assert!(peak < MEMORY, "{} MiB", peak >> 20);
    assert_eq!(transactions(&world), first, "nothing is new");
}

#[test]
fn a_large_session_is_imported_in_bounded_memory() {
    let world = World::new();
    let here = project(&world);
    // 100 MB: a line of 40 MB, which is left out, and many turns.
    let mut lines = vec![
        claude_line(&here, FIRST, 0, "user", &json!({"role": "user", "content": "x".repeat(40 << 20)}))
            .to_string(),
    ];
    let text = "words and words ".repeat(2_000);
    for turn in 0..1_000 {
        let (question, answer) = (turn * 2, turn * 2 + 1);
        let prompt = json!({"role": "user", "content": format!("{turn} {text}")});
        let said = json!({"id": format!("m{turn}"), "role": "assistant", "model": "opus", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": text}]});
        lines.push(claude_line(&here, FIRST, question, "user", &prompt).to_string());
        lines.push(claude_line(&here, FIRST, answer, "assistant", &said).to_string());
    }
    let path = write(&world, &format!("person/.claude/projects/-p/{FIRST}.jsonl"), &lines);
    assert!(fs::metadata(&path).unwrap().len() > 100 << 20);
    drop(lines);
    let peak = import(&world);
    assert!(peak < MEMORY, "{} MiB", peak >> 20);
    let events = run(&world, &["show", "S1", "--json"]).json_lines();
    assert_eq!(events.iter().filter(|event| event["kind"] == "Complete").count(), 1_000);
}

#[test]
fn the_summaries_of_one_turn_take_bounded_memory() {
    let world = World::new();
    let here = project(&world);
    let mut lines =
        vec![claude_line(&here, FIRST, 0, "user", &json!({"role": "user", "content": "Go"})).to_string()];
    for place in 1..=300 {
        let (kind, text) =
            if place % 2 == 0 { ("assistant", "x".to_owned()) } else { ("user", "s".repeat(2 << 20)) };
        let message =
            json!({"id": format!("m{place}"), "role": kind, "content": [{"type": "text", "text": text}]});
        let mut line = claude_line(&here, FIRST, place, kind, &message);
        line["isCompactSummary"] = json!(kind == "user");
        lines.push(line.to_string());
    }
    write(&world, &format!("person/.claude/projects/-p/{FIRST}.jsonl"), &lines);
    drop(lines);
    let peak = import(&world);
    assert!(peak < MEMORY, "{} MiB", peak >> 20);
    let events = run(&world, &["show", "S1", "--json"]).json_lines();
    let texts = events.iter().filter(|event| event["kind"] == "AssistantText").count();
    assert_eq!(texts, 150);
}
