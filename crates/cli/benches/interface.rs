//! Measures the interface on a pseudo-terminal: the time of its first frame and of a key, its memory, its wake-ups and its bytes.
//!
//! ```sh
//! cargo bench -p azureal-cli --bench interface
//! ```
#![expect(clippy::disallowed_macros, reason = "a bench prints")]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench that panics has failed")]

#[path = "../tests/interface/place.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod place;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use azureal::{Environment, Options, Workspace};
use azureal_core::event::{Event, ToolCall, ToolResult};
use azureal_core::{Json, append_events};
use azureal_testkit::pty::PtyProgram;
use futures_executor::block_on;

use self::place::Place;

/// Turns of the large session, each of 100 events.
const TURNS: usize = 1_000;
const EVENTS: usize = 100;
/// Bytes of each result of a tool, as the agent prints it.
const RESULT: usize = 6_000;
/// Keys that are timed.
const KEYS: usize = 400;

fn main() {
    let place = Place::new();
    let raw = fill(&place);
    println!("session: {} events, {} MB raw", TURNS * EVENTS, raw / 1_000_000);

    let mut paints: Vec<Duration> = (0..7).map(|_| first_paint(&place)).collect();
    paints.sort();
    report("first frame with the end of the session, median of 7", paints[3], Duration::from_millis(150));

    let mut program = PtyProgram::start(&place.command(&["-s", "large"]), 120, 40);
    program.wait_for("the end of turn 999");
    thread::sleep(Duration::from_secs(5));
    let before = wake_ups(&program);
    thread::sleep(Duration::from_secs(10));
    println!("wake-ups in 10 s of idling: {} (target 0)", wake_ups(&program) - before);
    program.kill("TERM");
    program.wait_for_exit();

    // 200 lines a second, for a minute: longer than the keys take.
    place.stream(200, 60);
    let mut program = PtyProgram::start(&place.command(&["-s", "large"]), 120, 40);
    program.wait_for("the end of turn 999");
    program.send("\x18n");
    program.wait_for("new conversation");
    program.send("Stream\r");
    program.wait_for("streamed line 100 ");
    let before = program.frames().len();
    thread::sleep(Duration::from_secs(5));
    let frames = program.frames().split_off(before);
    let largest = frames.iter().max().copied().unwrap_or_default();
    let mean = frames.iter().sum::<usize>() / frames.len().max(1);
    println!(
        "frames while a stream is shown: {} in 5 s, {mean} bytes on average, {largest} at most (target 4096)",
        frames.len()
    );

    program.send("\x1b1");
    program.wait_for("the end of turn 999");
    let mut keys = time_keys(&program);
    keys.sort();
    report("key to screen while another session streams, p50", keys[KEYS / 2], Duration::from_millis(16));
    report(
        "key to screen while another session streams, p99",
        keys[KEYS * 99 / 100],
        Duration::from_millis(16),
    );
    println!(
        "resident memory: {} MB now, {} MB at most (target 200)",
        memory(&program, "VmRSS"),
        memory(&program, "VmHWM")
    );
    read_far(&program);
    println!(
        "resident memory after 200 screens up: {} MB now, {} MB at most (target 200)",
        memory(&program, "VmRSS"),
        memory(&program, "VmHWM")
    );
    program.kill("TERM");
    program.wait_for_exit();
}

fn report(what: &str, time: Duration, target: Duration) {
    println!("{what}: {:.1} ms (target {} ms)", time.as_secs_f64() * 1_000.0, target.as_millis());
}

/// Creates the large session, and returns the bytes that its agents printed.
fn fill(place: &Place) -> usize {
    let environment = Environment::new([("HOME".into(), place.path("home").into())]);
    let workspace = Workspace::open(&place.path("p"), &environment, &Options::default()).unwrap();
    let session = block_on(workspace.create_session("large")).unwrap();
    let mut raw = 0;
    for turn in 0..TURNS {
        let mut events = vec![Event::user(format!("Prompt {turn}: look at the next part, please"))];
        for step in 0..(EVENTS - 2) / 2 {
            let id = format!("t{turn}-{step}");
            let input = format!(r#"{{"command":"cat part-{turn}-{step}"}}"#);
            let input: Json = serde_json::from_str(&input).unwrap();
            let call =
                ToolCall { tool_use_id: id.clone(), tool_name: "Bash".into(), input, ..ToolCall::default() };
            let line = format!("{turn}/{step}: a line of output with some words in it\n");
            let content = line.repeat(RESULT / line.len());
            events.push(Event::ToolCall(call));
            events.push(Event::ToolResult(ToolResult {
                tool_use_id: id,
                tool_name: "Bash".into(),
                content,
                ..ToolResult::default()
            }));
        }
        events.push(Event::assistant(format!("Some **words** about it.\n\n```rust\nfn part() -> u32 {{ {turn} }}\n```\n\nThis is the end of turn {turn}.")));
        raw += events.iter().map(|event| event.to_json().len()).sum::<usize>();
        block_on(append_events(&*workspace.store, session, events)).unwrap();
    }
    raw
}

/// Returns the time from the start of the program to the frame with the end of the session.
fn first_paint(place: &Place) -> Duration {
    let began = Instant::now();
    let program = PtyProgram::start(&place.command(&["-s", "large"]), 120, 40);
    spin(&program, |screen| screen.contains("the end of turn 999"));
    began.elapsed()
}

/// Types one character after the other, and returns the time until each is shown.
fn time_keys(program: &PtyProgram) -> Vec<Duration> {
    let mut times = Vec::new();
    let mut typed = String::new();
    for index in 0..KEYS {
        // A prompt of one row: what is typed can be found on the screen.
        if index % 40 == 0 {
            program.send("\x15");
            typed.clear();
            spin(program, |screen| !screen.contains("key "));
        }
        let key = char::from(b'a' + u8::try_from(index % 26).unwrap());
        typed.push(key);
        let shown = if index % 40 == 0 { "key ".to_owned() } else { String::new() };
        if !shown.is_empty() {
            program.send(&shown);
            spin(program, |screen| screen.contains("key"));
        }
        let began = Instant::now();
        program.send(&key.to_string());
        let wanted = format!("key {typed}");
        spin(program, |screen| screen.contains(&wanted));
        times.push(began.elapsed());
        // Not in step with the frames of the stream.
        thread::sleep(Duration::from_millis(13 + u64::try_from(index % 7).unwrap()));
    }
    times
}

/// Reads far back: the window of the pane has to stay bounded.
fn read_far(program: &PtyProgram) {
    program.send("\x15");
    for _ in 0..200 {
        program.send("\x1b[5~");
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_secs(1));
}

fn spin(program: &PtyProgram, is_so: impl Fn(&str) -> bool) {
    let began = Instant::now();
    while !is_so(&program.screen()) {
        assert!(began.elapsed() < Duration::from_secs(60), "it is never shown:\n{}", program.screen());
        thread::sleep(Duration::from_micros(200));
    }
}

fn memory(program: &PtyProgram, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1_024
}

fn wake_ups(program: &PtyProgram) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", program.pid())).unwrap();
    let of_task = |status: String| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok()).map(of_task).sum()
}
