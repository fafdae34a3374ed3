//! What to run, and starting it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};

use crate::child::{Child, Helpers};
use crate::environment::ChildEnvironment;
use crate::error::SpawnError;
use crate::marker::Marker;

/// How much of standard error is kept unless told otherwise: 64 KiB.
pub const STDERR_LIMIT: usize = 64 * 1024;

/// A program to start, with everything that it is given.
///
/// The child gets exactly the environment given here and its [`marker`](Self::marker), nothing of this process's own. It has a process
/// group of its own: Ctrl-C in a terminal does not reach it.
///
/// Signals that this process *ignores*, the child ignores as well, until it says otherwise. A program
/// that was put into the background by a shell script ignores SIGINT, for example; then it takes SIGTERM to stop a
/// simple child.
#[derive(Debug)]
pub struct Spawn {
    /// A name is looked for in the `PATH` of [`environment`](Self::environment); a path is taken from
    /// [`directory`](Self::directory).
    pub program: PathBuf,
    /// Visible to everybody on the machine and of limited length: no place for prompts or keys.
    pub args: Vec<OsString>,
    /// All its variables.
    pub environment: ChildEnvironment,
    /// The folder to run in.
    pub directory: PathBuf,
    /// Written to the child's standard input, which is a pipe and is closed after it.
    pub stdin: Vec<u8>,
    /// Where standard output goes. A file is opened for append, so that several writers do not overwrite each other.
    pub stdout: Stream,
    /// Where standard error goes.
    pub stderr: Stream,
    /// By what the run's processes are found later.
    pub marker: Marker,
}

/// Where something that a child writes goes.
#[derive(Debug)]
pub enum Stream {
    /// Into memory: the beginning and the end, together at most this many bytes. See [`Child::stdout`] and
    /// [`Child::stderr`]. However much is written, the child is never kept waiting.
    ///
    /// The other end of the pipe goes when this process does. A child that outlives it and then
    /// writes gets an error, and not every program survives that.
    Keep(usize),
    /// Into a file that is there after both; [`Excerpt::of_file`](crate::Excerpt::of_file) reads its ends. Nothing
    /// limits how long it grows.
    File(File),
}

impl From<File> for Stream {
    fn from(file: File) -> Self {
        Self::File(file)
    }
}

impl Stream {
    /// Returns what the child is given, and how much of it is kept.
    fn into_stdio(self) -> (Stdio, usize) {
        match self {
            Self::Keep(limit) => (Stdio::piped(), limit),
            Self::File(file) => (file.into(), 0),
        }
    }
}

impl Spawn {
    /// Describes a run without arguments and with nothing to read.
    pub fn new(
        program: impl Into<PathBuf>,
        directory: impl Into<PathBuf>,
        environment: ChildEnvironment,
        stdout: impl Into<Stream>,
        marker: Marker,
    ) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            environment,
            directory: directory.into(),
            stdin: Vec::new(),
            stdout: stdout.into(),
            stderr: Stream::Keep(STDERR_LIMIT),
            marker,
        }
    }

    /// Starts the program and returns at once.
    ///
    /// # Errors
    ///
    /// The program does not run. Then there is no process and no thread left.
    pub fn start(self) -> Result<Child, SpawnError> {
        self.start_with(Stdio::piped())
    }

    /// Starts the program with this as its standard input, such as the end of a pipe that the caller writes to.
    /// [`stdin`](Self::stdin) is not used.
    ///
    /// # Errors
    ///
    /// The program does not run. Then there is no process and no thread left.
    pub fn start_reading(self, stdin: impl Into<OwnedFd>) -> Result<Child, SpawnError> {
        self.start_with(Stdio::from(stdin.into()))
    }

    fn start_with(self, stdin: Stdio) -> Result<Child, SpawnError> {
        self.check_directory()?;
        let program = self.program;
        let mut command = Command::new(&program);
        command.args(self.args).env_clear().envs(self.environment.iter());
        let (stdout, stdout_limit) = self.stdout.into_stdio();
        let (stderr, stderr_limit) = self.stderr.into_stdio();
        command
            .env(self.marker.key(), self.marker.value())
            .current_dir(&self.directory)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0);
        // Before the child, so that there is never one that nobody collects.
        let helpers = Helpers::start(stdout_limit, stderr_limit, self.marker)
            .map_err(|source| SpawnError::Other { program: program.clone(), source })?;
        match command.spawn() {
            Ok(process) => helpers.take(process, self.stdin),
            Err(error) => Err(explain(program, &self.directory, error)),
        }
    }

    /// Looks at the folder first: the error of a program that is not there is the same.
    fn check_directory(&self) -> Result<(), SpawnError> {
        let directory = &self.directory;
        let not_entered = |source| SpawnError::DirectoryNotEntered { directory: directory.clone(), source };
        match fs::metadata(directory) {
            Ok(metadata) if !metadata.is_dir() => {
                Err(not_entered(io::Error::from(rustix::io::Errno::NOTDIR)))
            }
            Ok(_) => access(directory, Access::EXEC_OK).map_err(|error| not_entered(error.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(SpawnError::DirectoryNotFound { directory: directory.clone() })
            }
            Err(error) => Err(not_entered(error)),
        }
    }
}

fn explain(program: PathBuf, directory: &std::path::Path, error: io::Error) -> SpawnError {
    let no_exec = error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error());
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            let is_path = program.as_os_str().as_encoded_bytes().contains(&b'/');
            if is_path && directory.join(&program).is_file() {
                SpawnError::InterpreterNotFound { program }
            } else {
                SpawnError::ProgramNotFound { program }
            }
        }
        ErrorKind::PermissionDenied => SpawnError::NotExecutable { program, source: error },
        _ if no_exec => SpawnError::NotExecutable { program, source: error },
        ErrorKind::ArgumentListTooLong => SpawnError::ArgumentsTooLong { program },
        _ => SpawnError::Other { program, source: error },
    }
}
