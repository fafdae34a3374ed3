//! Runs git so that it reads no configuration but ours, and executes nothing.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use azureal_process::{Child, ChildEnvironment, Excerpt, Exit, Marker, Spawn, SpawnError, Stream};

use crate::error::Error;

/// The bound on the output of a command.
pub(crate) const OUTPUT: usize = 128 * 1024 * 1024;
/// The time limit of commands that no turn waits for.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);
const MESSAGE: usize = 4 * 1024;
/// The oldest version: it knows `GIT_CONFIG_GLOBAL` and does not follow a `.gitignore` that is a link.
const OLDEST: (u32, u32) = (2, 32);
/// The variables of git that name the user's configuration.
const OF_USER: [&str; 3] = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"];
const POLL: Duration = Duration::from_millis(20);

/// The git program and the variables that it starts with.
#[derive(Debug, Clone)]
pub struct GitProgram {
    /// A name, which is looked for in the `PATH` of `environment`, or a path.
    pub program: PathBuf,
    /// The user's variables. Those of git, such as `GIT_DIR`, are removed.
    pub environment: ChildEnvironment,
}

/// Runs git commands in one directory with one environment.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    program: PathBuf,
    /// The name that the caller has for it.
    name: PathBuf,
    environment: ChildEnvironment,
    directory: PathBuf,
}

/// The limit of a command: an instant, and a question whether the caller still waits.
#[derive(Clone, Copy)]
pub(crate) struct Deadline<'a> {
    pub(crate) started: Instant,
    pub(crate) limit: Duration,
    pub(crate) cancelled: &'a dyn Fn() -> bool,
}

impl Deadline<'static> {
    pub(crate) fn after(limit: Duration) -> Self {
        Self { started: Instant::now(), limit, cancelled: &|| false }
    }
}

impl Deadline<'_> {
    pub(crate) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.started.elapsed())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero() || (self.cancelled)()
    }
}

/// A command that runs. It ends with its handle, unless it was started [apart](Git::start_apart).
pub(crate) struct Running {
    pub(crate) child: Child,
    command: String,
    limit: usize,
    is_apart: bool,
}

impl Git {
    /// Creates a runner with the user's variables, without those of git, in a directory.
    pub(crate) fn new(git: &GitProgram, directory: &Path) -> Self {
        let is_ours = |name: &str| !name.starts_with("GIT_") && name != "HOME" && name != "XDG_CONFIG_HOME";
        let kept = git.environment.iter().filter(|(name, _)| is_ours(&name.to_string_lossy()));
        let mut environment: ChildEnvironment = kept.collect();
        for (name, value) in [
            ("LC_ALL", "C"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_SYSTEM", "/dev/null"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_LITERAL_PATHSPECS", "1"),
            ("GIT_ALLOW_PROTOCOL", ""),
            ("GIT_PAGER", "cat"),
        ] {
            environment.set(name, value);
        }
        let found = absolute(&git.program, &environment);
        // An empty path is no program, and nothing is started for it.
        let program = found.unwrap_or_default();
        Self { program, name: git.program.clone(), environment, directory: directory.to_owned() }
    }

    /// Creates a runner with the user's configuration and that of the repository. For reading settings alone.
    pub(crate) fn of_user(git: &GitProgram, directory: &Path) -> Self {
        let is_kept = |name: &str| !name.starts_with("GIT_") || OF_USER.contains(&name);
        let kept = git.environment.iter().filter(|(name, _)| is_kept(&name.to_string_lossy()));
        let mut environment: ChildEnvironment = kept.collect();
        environment.set("LC_ALL", "C");
        Self { environment, ..Self::new(git, directory) }
    }

    /// Returns a variable of the commands.
    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.environment.get(name)
    }

    pub(crate) fn with(&self, name: &str, value: impl Into<OsString>) -> Self {
        let mut changed = self.clone();
        changed.environment.set(name, value);
        changed
    }

    pub(crate) fn in_directory(&self, directory: &Path) -> Self {
        Self { directory: directory.to_owned(), ..self.clone() }
    }

    fn spawn(&self, args: &[OsString], stdout: Stream, stderr: Stream) -> Spawn {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let run = format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
        #[expect(clippy::expect_used, reason = "both parts are constant words and digits")]
        let marker = Marker::new("AZUREAL_SNAPSHOT", run).expect("a marker");
        let environment = self.environment.clone();
        let mut spawn = Spawn::new(&self.program, &self.directory, environment, stdout, marker);
        spawn.args = FIXED.iter().map(OsString::from).chain(args.iter().cloned()).collect();
        spawn.stderr = stderr;
        spawn
    }

    /// Starts a command, with this input and a bound on its output.
    pub(crate) fn start(&self, args: &[OsString], stdin: Vec<u8>, limit: usize) -> Result<Running, Error> {
        // Of an excerpt, the first half is the beginning.
        let stdout = Stream::Keep(limit.saturating_mul(2));
        let mut running = self.start_into(args, stdin, stdout)?;
        running.limit = limit;
        Ok(running)
    }

    /// Starts a command with this input, whose output goes to a file.
    pub(crate) fn start_into(
        &self,
        args: &[OsString],
        stdin: Vec<u8>,
        stdout: Stream,
    ) -> Result<Running, Error> {
        let mut spawn = self.spawn(args, stdout, Stream::Keep(MESSAGE));
        spawn.stdin = stdin;
        let child = spawn.start().map_err(|error| self.not_started(error))?;
        Ok(Running { child, command: name_of(args), limit: 0, is_apart: false })
    }

    /// Starts a command that can outlive this process: its streams are files.
    pub(crate) fn start_apart(&self, args: &[OsString], stdin: File, stderr: File) -> Result<Running, Error> {
        let spawn = self.spawn(args, Stream::Keep(0), Stream::File(stderr));
        let child = spawn.start_reading(stdin).map_err(|error| self.not_started(error))?;
        Ok(Running { child, command: name_of(args), limit: 0, is_apart: true })
    }

    /// Runs a command that ends soon, and returns its output.
    pub(crate) fn run(
        &self,
        args: &[OsString],
        stdin: Vec<u8>,
        deadline: Deadline<'_>,
    ) -> Result<Vec<u8>, Error> {
        self.start(args, stdin, OUTPUT)?.finish(deadline)
    }

    fn not_started(&self, error: SpawnError) -> Error {
        match error {
            SpawnError::ProgramNotFound { .. } => Error::NoGit { program: self.name.clone() },
            _ if self.program.as_os_str().is_empty() => Error::NoGit { program: self.name.clone() },
            error => Error::Git { command: String::new(), message: error.to_string() },
        }
    }

    /// Starts to ask git for its version.
    pub(crate) fn start_version(&self) -> Result<Running, Error> {
        self.start(&args(["version"]), Vec::new(), MESSAGE)
    }
}

/// Finds a program in the absolute folders of `PATH`. A relative one leads into the worktree, whose programs are not run.
fn absolute(program: &Path, environment: &ChildEnvironment) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return Some(program.to_owned());
    }
    // As the system does it for a process without the variable.
    let path = environment.get("PATH").unwrap_or(OsStr::new("/bin:/usr/bin"));
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    let is_program =
        |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file();
    folders.map(|folder| folder.join(program)).find(is_program)
}

/// Checks that git is not too old.
pub(crate) fn check_version(asked: Running) -> Result<(), Error> {
    let output = asked.finish(Deadline::after(PATIENT))?;
    let text = String::from_utf8_lossy(&output);
    let version = text.split_whitespace().nth(2).unwrap_or("?").to_owned();
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < OLDEST { Err(Error::OldGit { version }) } else { Ok(()) }
}

/// Settings that hold whatever a configuration says.
const FIXED: [&str; 6] =
    ["--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks"];

impl Running {
    /// Waits for the end, and kills the command if the time is over.
    pub(crate) fn finish(self, deadline: Deadline<'_>) -> Result<Vec<u8>, Error> {
        self.wait(deadline)?;
        self.output()
    }

    /// As [`finish`](Self::finish), of a command whose exit status 1 says that it found nothing. It may warn all the same.
    pub(crate) fn finish_search(self, deadline: Deadline<'_>) -> Result<Vec<u8>, Error> {
        self.wait(deadline)?;
        if self.child.wait() == Exit::Code(1) { Ok(Vec::new()) } else { self.output() }
    }

    /// As [`finish`](Self::finish); returns the warnings too.
    pub(crate) fn finish_warned(self, deadline: Deadline<'_>) -> Result<(Vec<u8>, Excerpt), Error> {
        self.wait(deadline)?;
        self.child.wait();
        let warnings = self.child.stderr();
        Ok((self.output()?, warnings))
    }

    fn wait(&self, deadline: Deadline<'_>) -> Result<(), Error> {
        if self.ends_within(deadline) {
            return Ok(());
        }
        self.child.kill();
        Err(Error::Slow { command: self.command.clone(), after: deadline.limit })
    }

    /// Waits for the end; returns whether it came in time.
    pub(crate) fn ends_within(&self, deadline: Deadline<'_>) -> bool {
        // A command that has no time does not depend on how fast it is.
        if deadline.left().is_zero() {
            return false;
        }
        loop {
            if self.child.wait_timeout(deadline.left().min(POLL)).is_some() {
                return true;
            }
            if deadline.is_over() {
                return false;
            }
        }
    }

    /// Returns the output of a command that has ended.
    pub(crate) fn output(self) -> Result<Vec<u8>, Error> {
        let exit = self.child.wait();
        if !exit.success() {
            let errors = self.child.stderr().to_string();
            let message =
                if errors.trim().is_empty() { format!("{exit:?}") } else { errors.trim().to_owned() };
            return Err(Error::Git { command: self.command.clone(), message });
        }
        let output = self.child.stdout();
        // Without a gap, all of it is the beginning.
        if output.left_out > 0 || output.beginning.len() > self.limit {
            return Err(Error::TooMuch { command: self.command.clone(), limit: self.limit });
        }
        Ok(output.beginning)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Another command may have failed first. A git that waits for a pipe would stay for ever.
        if !self.is_apart && self.child.try_wait().is_none() {
            self.child.kill();
        }
    }
}

/// Returns arguments from words.
pub(crate) fn args<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn name_of(args: &[OsString]) -> String {
    let is_option = |word: &&OsString| word.as_encoded_bytes().starts_with(b"-");
    args.iter().find(|word| !is_option(word)).map_or_else(String::new, |word| word.display().to_string())
}
