//! A kill or an error at every call of a turn that changes files, up to the compressed output.
//!
//! The real program runs under strace, which kills it or fails the call. Commands without faults follow. Then the turn is
//! stored once, and its output is there, or a message says what is not.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Command, Stdio};

use azureal_testkit::thorough;

use crate::world::{Ran, World};

const PROMPT: &str = "the only prompt";
/// What `run --json` says of a turn that is stored and done.
const ACKNOWLEDGED: &str = r#""outcome":"done" "first_seq":1"#;
/// The sets of calls that are hit, each by itself: strace counts the calls of a set in every thread.
const SETS: [&str; 7] = [
    "rename,renameat,renameat2,link,linkat",
    "fsync,fdatasync",
    "unlink,unlinkat",
    "mkdir,mkdirat",
    "write,pwrite64",
    "openat",
    "ftruncate,flock",
];
/// The faults of one set that are tried, unless `AZUREAL_THOROUGH` is set.
const USUAL: usize = 6;

/// A project and what commands have said in it.
struct Case {
    world: World,
    said: String,
}

impl Case {
    fn new() -> Self {
        Self { world: World::new(), said: String::new() }
    }

    /// Runs the program under strace; `inject` is strace's own option.
    fn strace(&mut self, arguments: &[&str], options: &[&str]) -> Ran {
        let command = self.world.command(arguments);
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", "signal=none"]).args(options);
        strace.arg(command.get_program()).args(command.get_args());
        strace.current_dir(command.get_current_dir().unwrap()).env_clear();
        let output =
            strace.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        let ran = self.world.ran(output);
        self.said.push_str(&ran.stderr);
        ran
    }

    fn run(&mut self, arguments: &[&str]) -> Ran {
        let ran = self.world.run(arguments);
        self.said.push_str(&ran.stderr);
        ran
    }

    /// Runs a turn.
    fn turn(&mut self, options: &[&str]) -> Ran {
        self.strace(&["run", "-a", "offline", "--json", PROMPT], options)
    }

    /// Checks what is there once commands have run without faults.
    fn check(&mut self, acknowledged: &str) -> Result<(), String> {
        for _ in 0..2 {
            let listed = self.run(&["list", "--json", "--all"]);
            if listed.code != 0 {
                return Err(format!("the store cannot be read: {listed}"));
            }
        }
        let listed = self.run(&["list", "--json", "--all"]).json();
        let (mut prompts, mut answers) = (0, Vec::new());
        for session in listed.as_array().unwrap() {
            let id = session["id"].as_str().unwrap().to_owned();
            for event in self.run(&["show", "--json", &id]).json_lines() {
                prompts += usize::from(event["data"]["content"] == PROMPT);
                if event["kind"] == "AssistantText" {
                    answers.push((id.clone(), event["seq"].to_string(), event["data"]["text"].clone()));
                }
            }
        }
        if prompts > 1 {
            return Err("the turn is stored twice".to_owned());
        }
        let is_stored = acknowledged.contains("\"first_seq\":");
        let is_done = is_stored && acknowledged.contains("\"outcome\":\"done\"");
        if (is_stored && prompts == 0) || (is_done && answers.len() != 1) {
            return Err(format!(
                "the acknowledged turn is lost: {prompts} prompts, {} answers",
                answers.len()
            ));
        }
        for (id, seq, text) in answers {
            let original = self.run(&["original", &id, "--seq", &seq]);
            let is_there = original.code == 0 && original.stdout.contains(&text.to_string());
            if !is_there && !self.said.contains("output") {
                return Err(format!("the output is not there, and nothing says so: {original}"));
            }
        }
        let left: Vec<_> = [".git/azureal/spool", ".git/azureal/originals/new", ".azureal/spool"]
            .iter()
            .flat_map(|folder| fs::read_dir(self.world.path("p").join(folder)).into_iter().flatten())
            .map(|entry| entry.unwrap().path())
            .collect();
        if left.is_empty() { Ok(()) } else { Err(format!("left behind: {left:?}")) }
    }
}

/// Says loudly if the test cannot run.
fn has_strace() -> bool {
    if Command::new("strace").arg("-V").output().is_ok() {
        return true;
    }
    let required = std::env::var_os("AZUREAL_REQUIRE_TOOLS").is_some();
    assert!(!required, "strace is needed for this test, and AZUREAL_REQUIRE_TOOLS is set");
    eprintln!("\n*** SKIPPED: strace is missing, so this test was not run ***\n");
    false
}

/// Returns the number of calls of a set in the thread that makes the most of them.
fn most_calls(log: &Path, set: &str) -> usize {
    let text = fs::read_to_string(log).unwrap();
    let is_in_set = |call: &&str| set.split(',').any(|name| call.starts_with(&format!("{name}(")));
    let mut counts = std::collections::HashMap::<&str, usize>::new();
    for (thread, call) in text.lines().filter_map(|line| line.split_once(' ')) {
        if is_in_set(&call.trim_start()) {
            *counts.entry(thread).or_default() += 1;
        }
    }
    counts.into_values().max().unwrap_or(0)
}

/// Returns the numbers up to `most` that are tried, evenly spread.
fn tried(most: usize) -> impl Iterator<Item = usize> {
    let count = thorough(USUAL, most).max(1);
    (1..=most).step_by(most.div_ceil(count).max(1))
}

/// Runs `faulty` with each fault, in a new case that `prepare` made, and checks what is left.
fn sweep(fault: &str, prepare: fn(&mut Case), faulty: fn(&mut Case, &[&str]) -> Ran) {
    if !has_strace() {
        return;
    }
    let (mut tries, mut failures) = (0, Vec::new());
    for set in SETS {
        let mut case = Case::new();
        prepare(&mut case);
        let log = case.world.path("strace.log");
        let trace = format!("trace={set}");
        faulty(&mut case, &["-e", &trace, "-o", log.to_str().unwrap()]);
        case.check(ACKNOWLEDGED).unwrap();
        for number in tried(most_calls(&log, set)) {
            let mut case = Case::new();
            prepare(&mut case);
            let inject = format!("inject={set}:{fault}:when={number}");
            let ran = faulty(&mut case, &["-o", "/dev/null", "-e", &trace, "-e", &inject]);
            tries += 1;
            if let Err(why) = case.check(&ran.stdout) {
                failures.push(format!("{inject}: {why}\n{}", case.said));
            }
        }
    }
    eprintln!("{tries} faults, {} failures", failures.len());
    assert!(tries > 10, "only {tries} faults: the calls are not traced");
    assert!(failures.is_empty(), "{} of {tries} faults, the first: {}", failures.len(), failures[0]);
}

fn nothing(_: &mut Case) {}

fn whole_turn(case: &mut Case, options: &[&str]) -> Ran {
    case.turn(options)
}

#[test]
fn a_kill_at_any_call_of_a_turn_stores_it_once_and_keeps_its_output() {
    sweep("signal=SIGKILL", nothing, whole_turn);
}

#[test]
fn an_error_of_any_call_of_a_turn_stores_it_once_and_keeps_its_output() {
    sweep("error=EIO", nothing, whole_turn);
}

#[test]
fn a_full_disk_at_any_call_of_a_turn_stores_it_once_and_keeps_its_output() {
    sweep("error=ENOSPC", nothing, whole_turn);
}

/// A turn that was stored, and whose output is not compressed yet.
fn stored_turn(case: &mut Case) {
    for folder in ["azureal", "azureal/originals", "azureal/originals/new"] {
        DirBuilder::new().mode(0o700).create(case.world.path("p/.git").join(folder)).unwrap();
    }
    let new = File::open(case.world.path("p/.git/azureal/originals/new")).unwrap();
    // As if another process compressed.
    new.lock().unwrap();
    let ran = case.run(&["run", "-a", "offline", "--json", PROMPT]);
    assert_eq!(ran.code, 0, "{ran}");
    drop(new);
    let new = fs::read_dir(case.world.path("p/.git/azureal/originals/new")).unwrap().count();
    assert_eq!(new, 2, "the output is not compressed yet");
    case.said.clear();
}

fn next_command(case: &mut Case, options: &[&str]) -> Ran {
    let ran = case.strace(&["list", "--json"], options);
    // The turn was acknowledged when it ran.
    Ran { stdout: ACKNOWLEDGED.to_owned(), ..ran }
}

#[test]
fn a_kill_at_any_call_of_the_compression_keeps_the_output() {
    sweep("signal=SIGKILL", stored_turn, next_command);
}

#[test]
fn an_error_of_any_call_of_the_compression_keeps_the_output() {
    sweep("error=EIO", stored_turn, next_command);
}
