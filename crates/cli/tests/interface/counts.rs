//! Costs as counts: frames, bytes and wake-ups. They are the same on every machine.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use azureal_testkit::pty::PtyProgram;
use azureal_testkit::until;

use crate::place::Place;

/// Returns how many times the threads of a process have gone to sleep so far.
fn sleeps(program: &PtyProgram) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", program.pid())).unwrap();
    let of_task = |status: String| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    // A thread may end meanwhile.
    tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok()).map(of_task).sum()
}

/// Waits until a program does nothing any more.
fn wait_for_rest(program: &PtyProgram) {
    until("rest", || {
        let before = sleeps(program);
        thread::sleep(Duration::from_millis(700));
        (sleeps(program) == before).then_some(())
    });
}

#[test]
#[cfg(target_os = "linux")]
fn an_idle_interface_does_not_wake_up() {
    let place = Place::new();
    place.session("work", &["Hello?", "Hello."]);
    let program = place.open(&["-s", "work"]);
    wait_for_rest(&program);
    let (before, frames) = (sleeps(&program), program.frames().len());
    thread::sleep(Duration::from_secs(3));
    assert_eq!((sleeps(&program), program.frames().len()), (before, frames));
}

#[test]
fn a_key_costs_one_small_frame() {
    let place = Place::new();
    place.session("work", &["Tell me a story", &"once upon a time ".repeat(400)]);
    let program = place.open(&["-s", "work"]);
    program.wait_for("once upon");
    program.send("a");
    program.wait_for("› a");
    thread::sleep(Duration::from_millis(300));
    let before = program.frames().len();
    for length in 2..=20 {
        program.send("a");
        program.wait_for(&format!("› {}", "a".repeat(length)));
    }
    let frames = program.frames().split_off(before);
    assert!(frames.len() <= 2 * 19, "{frames:?}");
    assert!(frames.iter().all(|bytes| *bytes <= 200), "{frames:?}");
}

#[test]
fn a_stream_is_drawn_at_most_thirty_times_a_second_in_small_frames() {
    let place = Place::new();
    place.stream(200, 3);
    for (columns, rows) in [(80, 24), (120, 40)] {
        let program = PtyProgram::start(&place.command(&[]), columns, rows);
        program.wait_for("›");
        program.send("Stream\r");
        program.wait_for("streamed line ");
        let (before, began) = (program.frames().len(), Instant::now());
        program.wait_for("The stream is over.");
        let took = began.elapsed();
        let frames = program.frames().split_off(before);
        let most = 35.0 * (took.as_secs_f64() + 0.5);
        assert!((frames.len() as f64) < most, "{} frames in {took:?}", frames.len());
        let largest = frames.iter().max().copied().unwrap_or_default();
        assert!(largest <= 4_096, "{largest} bytes at {columns}x{rows}: {frames:?}");
        program.assert_listed();
    }
}
