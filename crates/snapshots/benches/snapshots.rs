//! Measures snapshots of 50,000 files against `git status` in the same run.
//!
//! ```sh
//! cargo bench -p azureal-snapshots --bench snapshots
//! ```
#![expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a bench prints, and finds git in its PATH"
)]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a bench that panics has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use azureal_process::ChildEnvironment;
use azureal_snapshots::{GitProgram, Limits, Taken, Worktree};

const FILES: usize = 50_000;
const FILES_OF_A_FOLDER: usize = 50;
const RUNS: usize = 7;
const CHANGED: usize = 10;
const SESSION: &str = "bench";

fn main() {
    // `cargo test` runs benches too, without this argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    tracked(&folder.path().join("tracked"));
    untracked(&folder.path().join("untracked"));
}

/// Tracked files: a first snapshot, one with ten changed files and one without changes.
fn tracked(root: &Path) {
    create(root, FILES);
    git(root, &["add", "-A"]);
    git(root, &["commit", "-qm", "x"]);
    git(root, &["gc", "-q"]);
    // Older than any index, as in a project that is worked on.
    thread::sleep(Duration::from_millis(1100));
    git(root, &["status"]);
    let [mut status, mut first, mut changed, mut unchanged] = [(); 4].map(|()| Vec::new());
    for run in 0..RUNS {
        fs::remove_dir_all(root.join(".git/azureal")).ok();
        status
            .push(time(|| git(root, &["--no-optional-locks", "-c", "core.untrackedCache=false", "status"])));
        first.push(time(|| assert!(matches!(take(root), Taken::Whole(_)))));
        thread::sleep(Duration::from_millis(1100));
        for file in 0..CHANGED {
            fs::write(path(root, file * 997), format!("changed {run} {file}\n")).unwrap();
        }
        changed.push(time(|| assert!(matches!(take(root), Taken::Whole(_)))));
        unchanged.push(time(|| assert!(matches!(take(root), Taken::Whole(_)))));
        git(root, &["checkout", "-q", "--", "."]);
        thread::sleep(Duration::from_millis(1100));
        git(root, &["status"]);
    }
    let status = median(status);
    println!("{FILES} tracked files, medians of {RUNS}");
    println!("  git status                  {:>7.1} ms", ms(status));
    for (name, times) in [
        ("first snapshot", first),
        ("snapshot, 10 files changed", changed),
        ("snapshot, none changed", unchanged),
    ] {
        let time = median(times);
        println!("  {name:<27} {:>7.1} ms  {:.2}x", ms(time), time.as_secs_f64() / status.as_secs_f64());
    }
}

/// Untracked files: the time that each turn waits, and the time until the background has hashed them all.
fn untracked(root: &Path) {
    create(root, 0);
    git(root, &["commit", "-qm", "x", "--allow-empty"]);
    create(root, FILES);
    println!("{FILES} untracked files");
    let started = Instant::now();
    for turn in 1.. {
        let begun = Instant::now();
        let taken = take(root);
        let (waited, whole) = (begun.elapsed(), matches!(taken, Taken::Whole(_)));
        if turn <= 3 || whole || waited > Duration::from_secs(2) {
            println!(
                "  snapshot {turn:<3} {:>7.1} ms  {}",
                ms(waited),
                if whole { "whole" } else { "given up" }
            );
        }
        if whole || started.elapsed() > Duration::from_secs(300) {
            break;
        }
        thread::sleep(Duration::from_millis(500));
    }
    println!("  whole after {:.1} s", started.elapsed().as_secs_f64());
}

fn take(root: &Path) -> Taken {
    let path = std::env::var_os("PATH").unwrap();
    let environment = ChildEnvironment::from_iter([("PATH", path)]);
    let worktree = Worktree::open(root, &GitProgram { program: "git".into(), environment }).unwrap().unwrap();
    worktree.take(SESSION, &Limits::default(), &|| false).unwrap()
}

fn path(root: &Path, file: usize) -> PathBuf {
    let folder = file / FILES_OF_A_FOLDER;
    root.join(format!("d{}/s{folder}/f{file}.rs", folder % 40))
}

fn create(root: &Path, files: usize) {
    fs::create_dir_all(root).unwrap();
    if files == 0 || !root.join(".git").exists() {
        git(root, &["init", "-q"]);
    }
    for file in 0..files {
        let path = path(root, file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let lines: String = (0..5 + file % 60).map(|line| format!("line {line} of file {file}\n")).collect();
        fs::write(path, lines).unwrap();
    }
}

fn git(root: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command.args([
        "-c",
        "user.name=A",
        "-c",
        "user.email=a@b.example",
        "-c",
        "gc.auto=0",
        "-c",
        "maintenance.auto=false",
    ]);
    command.args(args).current_dir(root);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn time(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_else(|| panic!("no times"))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
