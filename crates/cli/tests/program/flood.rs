//! run with an agent that prints without end: what it costs in memory, and what becomes of what it printed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use azureal_testkit::until;
use serde_json::{Value, json};

use crate::world::{Ran, World};

const GIGABYTE: u64 = 1 << 30;
/// What the program may use at most.
const MEMORY: u64 = 200 << 20;

/// Returns the command of a turn with an agent that prints what a script prints, then ends as it should. More than
/// four gigabytes it cannot print: a test that fails must not fill the disk.
fn flooded(world: &World, flood: &str, arguments: &[&str]) -> Command {
    let init = json!({"type": "system", "subtype": "init", "cwd": "/", "model": "m", "session_id": "u"});
    let end = json!({"type": "result", "subtype": "success", "is_error": false, "result": "Done."});
    let script = format!("ulimit -f 8388608\ncat > /dev/null\necho '{init}'\n{flood}\necho '{end}'");
    world.program("claude", &script);
    // So that it is not stopped to compact the session: this is about what a turn can hold.
    world.file("config/azureal/azufig.toml", "[compaction]\nthreshold_characters = 100000000000\n");
    let mut run = world.with_programs(arguments);
    run.env("XDG_CONFIG_HOME", world.path("config"));
    run.stdout(Stdio::null()).stderr(Stdio::piped());
    run
}

/// Runs a turn with an agent that floods.
///
/// Returns how it went, and the most memory that the program has used meanwhile, in bytes.
fn run_flooded(world: &World, flood: &str) -> (Ran, u64) {
    let (output, peak) = measured(flooded(world, flood, &["run", "Go"]).spawn().unwrap());
    (world.ran(output), peak)
}

/// Waits for a process, and returns the most memory that it has used, in bytes. It must print little.
pub(crate) fn measured(mut child: Child) -> (Output, u64) {
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(peak_memory(child.id()));
        thread::sleep(Duration::from_millis(5));
    }
    (child.wait_with_output().unwrap(), peak)
}

#[test]
fn a_timeout_ends_a_flood_at_once() {
    let world = World::new();
    let line = results(&world, 64 * 1024);
    let flood = format!("while cat '{}'; do :; done; sleep 600", line.display());
    let started = Instant::now();
    let run = flooded(&world, &flood, &["run", "--timeout", "2", "Go"]).output().unwrap();
    let (took, ran) = (started.elapsed(), world.ran(run));
    assert!(ran.stderr.contains("time limit of 2 s"), "{}", ran.stderr);
    let events = world.run(&["show", "S1", "--last", "1", "--json"]).json_lines();
    let end = &events.last().unwrap()["data"];
    assert_eq!(end["outcome"], "timeout");
    let duration = end["duration_ms"].as_u64().unwrap();
    // The limit starts with the turn, the duration with the agent, a little later.
    assert!(took >= Duration::from_secs(2), "it was stopped after {took:?}");
    assert!(duration < 6_000, "the agent was stopped after {duration} ms");
    assert!(took < Duration::from_secs(20), "it took {took:?} until it was stored");
}

#[test]
fn a_timeout_while_a_turn_is_compacted_keeps_what_is_stored_of_it() {
    let world = World::new();
    let line = results(&world, 8 * 1024);
    // First it works until it is stopped to be compacted; then it is asked for a summary, and never answers.
    let script = format!("mkdir first && for i in 1 2 3 4; do cat '{}'; done\nsleep 600", line.display());
    let mut run = flooded(&world, &script, &["run", "--timeout", "3", "Go"]);
    world.file("config/azureal/azufig.toml", "[compaction]\nthreshold_characters = 100000\n");
    let ran = world.ran(run.output().unwrap());
    assert!(ran.stderr.contains("time limit of 3 s"), "{}", ran.stderr);
    let events = world.run(&["show", "S1", "--json"]).json_lines();
    assert_eq!(events[0]["data"]["content"], "Go", "the session is there");
    assert!(events.iter().any(|event| event["kind"] == "ToolResult"));
    assert_eq!(events.last().unwrap()["data"]["outcome"], "timeout");
}

#[test]
fn a_turn_that_cannot_be_continued_after_a_compaction_keeps_its_session() {
    let world = World::new();
    let line = results(&world, 8 * 1024);
    let spool = world.path("p/.git/azureal/spool");
    // Others may write to the folder then, so that the next spool is refused.
    let script = format!(
        "chmod 777 '{}'\nmkdir first && for i in 1 2 3 4; do cat '{}'; done\nsleep 600",
        spool.display(),
        line.display()
    );
    let mut run = flooded(&world, &script, &["run", "--timeout", "20", "Go"]);
    world.file("config/azureal/azufig.toml", "[compaction]\nthreshold_characters = 100000\n");
    let ran = world.ran(run.output().unwrap());
    assert_eq!(ran.code, 1, "{ran}");
    fs::set_permissions(&spool, fs::Permissions::from_mode(0o700)).unwrap();
    let events = world.run(&["show", "S1", "--json"]).json_lines();
    assert_eq!(events[0]["data"]["content"], "Go", "the session is there: {}", ran.stderr);
    assert!(events.iter().any(|event| event["kind"] == "ToolResult"));
    assert!(ran.stderr.contains("the turn could not be continued"), "{}", ran.stderr);
}

#[test]
fn an_agent_is_stopped_at_the_output_limit_that_is_configured() {
    let world = World::new();
    let line = results(&world, 8 * 1024);
    let flood = format!("while cat '{}'; do :; done; touch not-stopped; sleep 600", line.display());
    let mut run = flooded(&world, &flood, &["run", "Go"]);
    world.file("config/azureal/azufig.toml", "[turn]\noutput_limit_mib = 12\n");
    let ran = world.ran(run.output().unwrap());
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("claude was stopped because of its output: it had printed "),
        "{}",
        ran.stderr
    );
    assert!(!world.path("p/not-stopped").exists(), "it printed all that it could");
}

#[test]
fn an_agent_whose_azureal_died_is_stopped_at_the_limit_by_the_next_that_waits_for_it() {
    let world = World::new();
    let line = results(&world, 64 * 1024);
    let flood = format!("while cat '{}'; do sleep 0.02; done; touch not-stopped; sleep 600", line.display());
    let mut first = flooded(&world, &flood, &["run", "Go"]).spawn().unwrap();
    until("the agent runs", || is_printing(&world).then_some(()));
    first.kill().unwrap();
    first.wait().unwrap();
    let mut next = flooded(&world, &flood, &["run", "-s", "S1", "-a", "offline", "next"]);
    world.file("config/azureal/azufig.toml", "[turn]\noutput_limit_mib = 12\n");
    let ran = world.ran(next.output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("claude has printed more than 12 MiB: it is stopped"), "{}", ran.stderr);
    assert!(!world.path("p/not-stopped").exists(), "it printed all that it could");
}

/// Says whether an agent has printed a megabyte.
fn is_printing(world: &World) -> bool {
    let spools = fs::read_dir(world.path("p/.git/azureal/spool")).into_iter().flatten().flatten();
    spools.filter_map(|spool| spool.metadata().ok()).any(|spool| spool.len() > 1 << 20)
}

/// Returns the most memory that a process has used so far, in bytes; 0 where that cannot be known.
fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kilobytes =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Asserts that a turn went well though not all of it is stored, that its output is kept, and that the session says why;
/// returns that reason.
#[track_caller]
fn assert_kept(world: &World, ran: &Ran, bytes: u64) -> String {
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.len() < 10_000, "{} bytes on standard error", ran.stderr.len());
    let mut original = world.command(&["original", "S1"]).stdout(Stdio::piped()).spawn().unwrap();
    let kept = std::io::copy(&mut original.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
    assert!(original.wait().unwrap().success() && kept >= bytes, "{kept} bytes are kept: {ran}");
    assert_eq!(world.run(&["list"]).stderr, "", "nothing is left to recover");

    let events = world.run(&["show", "S1", "--json"]).json_lines();
    let of_kind =
        |kind: &str| -> Vec<&Value> { events.iter().filter(|event| event["kind"] == kind).collect() };
    assert_eq!(of_kind("UserMessage")[0]["data"]["content"], "Go");
    assert_eq!(of_kind("Complete")[0]["data"]["outcome"], "done");
    of_kind("Error").last().unwrap()["data"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_gigabyte_in_one_line_is_kept_and_costs_no_memory() {
    let world = World::new();
    let (ran, peak) = run_flooded(&world, &format!("head -c {GIGABYTE} /dev/zero | tr '\\0' x; echo"));
    assert_eq!(
        assert_kept(&world, &ran, GIGABYTE),
        format!("a line of {GIGABYTE} bytes was not read; the output of the turn is kept")
    );
    assert!(peak < MEMORY, "{} MiB", peak >> 20);
}

#[test]
fn a_line_that_is_too_long_to_be_read_can_be_printed() {
    let world = World::new();
    let bytes = 65 << 20;
    let (ran, _) = run_flooded(&world, &format!("head -c {bytes} /dev/zero | tr '\\0' x; echo"));
    assert_eq!(ran.code, 0, "{ran}");
    let events = world.run(&["show", "S1", "--json"]).json_lines();
    let error = events.iter().find(|event| event["kind"] == "Error").unwrap();
    let printed = world.run(&["original", "S1", "--seq", &error["seq"].to_string()]);
    assert!(
        printed.code == 0 && printed.stdout.len() > bytes,
        "{} bytes: {}",
        printed.stdout.len(),
        printed.stderr
    );
}

#[test]
fn a_gigabyte_in_lines_is_kept_and_costs_little_memory() {
    let world = World::new();
    let line = results(&world, 64 * 1024);
    let copies = GIGABYTE / fs::metadata(&line).unwrap().len() + 1;
    let flood = format!("for i in $(seq {copies}); do cat '{}'; done", line.display());
    let (ran, peak) = run_flooded(&world, &flood);
    let why = assert_kept(&world, &ran, GIGABYTE);
    assert!(why.starts_with("the agent printed more than a turn can hold: "), "{why}");
    assert!(peak < MEMORY, "{} MiB", peak >> 20);
}

#[test]
fn long_lines_cost_little_memory() {
    for megabytes in [20, 60] {
        let world = World::new();
        // Ten million lines of text, in one line of JSON: six bytes each, as a line break is written as two.
        let line = [
            r#"printf '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"'"#,
            &format!(r"yes 'word\n' | tr -d '\n' | head -c {}", megabytes * 1_000_000 / 6 * 6),
            r#"printf '"}]}}\n'"#,
        ];
        let (ran, peak) = run_flooded(&world, &format!("for i in 1 2 3 4; do\n{}\ndone", line.join("\n")));
        assert_eq!(ran.code, 0, "{ran}");
        let results = world.run(&["show", "S1", "--json"]).json_lines();
        let results: Vec<&Value> = results.iter().filter(|event| event["kind"] == "ToolResult").collect();
        assert_eq!(results.len(), 4);
        assert_eq!(results[0]["data"]["omitted"], megabytes * 1_000_000 / 6 - 3);
        assert!(peak < MEMORY, "{} MiB with lines of {megabytes} MB", peak >> 20);
    }
}

#[test]
fn an_event_that_is_too_large_for_a_store_does_not_cost_its_turn() {
    let world = World::new();
    // Every broken byte of a line becomes a character of three bytes.
    let line = [
        r#"printf '{"type":"assistant","message":{"content":[{"type":"text","text":"'"#,
        r"head -c 23000000 /dev/zero | tr '\0' '\377'",
        r#"printf '"}]}}\n'"#,
    ];
    let text = json!({"type": "text", "text": "Done."});
    let after = json!({"type": "assistant", "message": {"content": [text]}});
    let (ran, _) = run_flooded(&world, &format!("{}\necho '{after}'", line.join("\n")));
    let why = assert_kept(&world, &ran, 23_000_000);
    assert!(world.run(&["show", "S1"]).stdout.contains("Done."), "what came after it is stored");
    assert!(
        why.starts_with("the agent printed more than a turn can hold: 1 events were not stored;"),
        "{why}"
    );
}

#[test]
fn garbage_is_told_of_and_does_not_flood_the_terminal() {
    let world = World::new();
    let (ran, _) = run_flooded(&world, "yes 'this is no event at all' | head -n 100020");
    assert_eq!(ran.stderr.matches("is not a JSON object").count(), 20, "{ran}");
    let why = "100000 further lines could not be read; the output of the turn is kept";
    assert!(ran.stderr.contains(why), "{ran}");
    assert_eq!(assert_kept(&world, &ran, 2 << 20), why);
}

/// Writes a megabyte of results of tools, each of so many bytes, and returns the file.
fn results(world: &World, bytes: usize) -> PathBuf {
    let block = json!({"type": "tool_result", "tool_use_id": "t", "content": "x".repeat(bytes)});
    let line = json!({"type": "user", "message": {"role": "user", "content": [block]}}).to_string();
    world.file("bin/lines", &format!("{line}\n").repeat((1 << 20) / bytes))
}
