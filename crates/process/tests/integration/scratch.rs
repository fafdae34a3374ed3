//! What the tests of processes share: a scratch folder to run in, and facts to wait for.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use azureal_process::{
    Child, ChildEnvironment, Follow, FollowError, Line, Marker, ProcessIdentity, Spawn, find_marked,
};
use tempfile::TempDir;

/// How long a fact may take to become true on a machine that does much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the variables of this process.
pub(crate) fn own_environment() -> ChildEnvironment {
    std::env::vars_os().collect()
}

/// A folder to run in, and a marker that no other test has.
///
/// When it goes, so does everything that carries the marker: a test that fails leaves nothing running.
pub(crate) struct Scratch {
    pub(crate) folder: TempDir,
    pub(crate) marker: Marker,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_owned();
        let marker =
            Marker::new("AZUREAL_RUN_ID", format!("{}-{number}-{name}", std::process::id())).unwrap();
        Self { folder, marker }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn spool(&self) -> PathBuf {
        self.path("spool.jsonl")
    }

    pub(crate) fn output(&self) -> File {
        File::options().create(true).append(true).open(self.spool()).unwrap()
    }

    pub(crate) fn spawn(&self, program: &str, args: &[&str]) -> Spawn {
        let mut spawn =
            Spawn::new(program, self.folder.path(), own_environment(), self.output(), self.marker.clone());
        spawn.args = args.iter().map(OsString::from).collect();
        spawn
    }

    pub(crate) fn sh(&self, script: &str) -> Spawn {
        self.spawn("/bin/sh", &["-c", script])
    }

    /// Waits until `count` processes have written their numbers to `pids`, and returns them.
    pub(crate) fn pids(&self, count: usize) -> Vec<ProcessIdentity> {
        let read = || fs::read_to_string(self.path("pids")).unwrap_or_default();
        until(&format!("{count} processes run"), || {
            let text = read();
            text.ends_with('\n') && text.lines().count() >= count
        });
        let pids: Vec<_> = read()
            .lines()
            .map(|line| ProcessIdentity::of(line.trim().parse().unwrap()).expect("runs, as it has said"))
            .collect();
        assert_eq!(pids.len(), count);
        pids
    }

    pub(crate) fn text(&self) -> String {
        fs::read_to_string(self.spool()).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for process in find_marked(&self.marker) {
            let _ = Command::new("kill").args(["-9", &process.pid.to_string()]).status();
        }
    }
}

/// Returns the role and the folder that a worker was given; `None` in the test itself.
pub(crate) fn role() -> Option<(String, PathBuf)> {
    let role = std::env::var("AZUREAL_TEST_ROLE").ok()?;
    Some((role, PathBuf::from(std::env::var_os("AZUREAL_TEST_PATH")?)))
}

/// Runs one test of this program in a process of its own, to its end. The name starts with the module.
pub(crate) fn in_own_process(test: &str, folder: &Path) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    run_in_role(command, folder)
}

/// Runs a command that runs one test of this program, in which [`role`] then returns this folder.
pub(crate) fn run_in_role(mut command: Command, folder: &Path) -> Output {
    command.env("AZUREAL_TEST_ROLE", "alone").env("AZUREAL_TEST_PATH", folder);
    let output = command.stdin(Stdio::null()).output().unwrap();
    // A name that no test has would pass without a test.
    assert!(String::from_utf8_lossy(&output.stdout).contains("running 1 test\n"), "{command:?}");
    output
}

pub(crate) fn assert_success(output: &Output) {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{}\n{}", text[0], text[1]);
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not so after {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits for the end of a child that is bound to end.
#[track_caller]
pub(crate) fn wait(child: &Child) -> azureal_process::Exit {
    child.wait_timeout(PATIENCE).expect("ends")
}

/// Reads a file to its end as long as the writer lives.
pub(crate) fn lines(follow: &mut Follow, child: &Child) -> Result<Vec<Line>, FollowError> {
    let mut lines = Vec::new();
    while let Some(line) = follow.next_line(|pause| child.wait_timeout(pause).is_some())? {
        lines.push(line);
    }
    Ok(lines)
}

pub(crate) fn line(text: impl AsRef<[u8]>) -> Line {
    Line::Bytes(text.as_ref().to_vec())
}

/// Returns a number in KiB from what the system says of this process.
pub(crate) fn own_kib(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    rest.trim_start_matches(':').trim().trim_end_matches(" kB").parse().ok()
}
