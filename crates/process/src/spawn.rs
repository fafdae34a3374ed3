//! A command, and starting it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};

use crate::child::{Child, Helpers};
use crate::environment::ChildEnvironment;
use crate::error::SpawnError;
use crate::input::{self, Feeder};
use crate::marker::Marker;

/// The part of standard error that is kept by default: 64 KiB.
pub const STDERR_LIMIT: usize = 64 * 1024;

/// A program to start, with its arguments, environment and input.
///
/// The child gets exactly the environment given here and its [`marker`](Self::marker), no variable of this process.
/// It has its own session and process group, and no controlling terminal: Ctrl-C in a terminal does not reach it, and it cannot
/// open `/dev/tty`.
///
/// Signals that this process *ignores*, the child ignores as well, until it sets its own handlers. For example, a
/// program that a shell script started in the background ignores SIGINT; then it takes SIGTERM to stop a simple
/// child.
#[derive(Debug)]
pub struct Spawn {
    /// A name is looked for in the `PATH` of [`environment`](Self::environment); a path is taken from
    /// [`directory`](Self::directory).
    pub program: PathBuf,
    /// Visible to every user of the machine and of limited length: not for prompts or keys.
    pub args: Vec<OsString>,
    /// All its variables.
    pub environment: ChildEnvironment,
    /// The folder to run in.
    pub directory: PathBuf,
    /// The child's standard input, a pipe. All of it is there before the child starts, in the pipe and in another process: it does
    /// not depend on this one.
    pub stdin: Vec<u8>,
    /// The target of standard output. A file is opened for append, so that several writers do not overwrite each
    /// other.
    pub stdout: Stream,
    /// The target of standard error.
    pub stderr: Stream,
    /// The marker of the run's processes.
    pub marker: Marker,
}

/// The target of an output stream of a child.
#[derive(Debug)]
pub enum Stream {
    /// Memory: the beginning and the end, together at most this many bytes. See [`Child::stdout`] and
    /// [`Child::stderr`]. The child never blocks, however much it writes.
    ///
    /// The other end of the pipe is closed when this process ends. A child that outlives it and then writes gets an
    /// error, and not every program survives that.
    Keep(usize),
    /// A file that outlives both processes; [`Excerpt::of_file`](crate::Excerpt::of_file) reads its ends. Its size
    /// has no limit.
    File(File),
}

impl From<File> for Stream {
    fn from(file: File) -> Self {
        Self::File(file)
    }
}

impl Stream {
    /// Returns the stream of the child, and the number of bytes that are kept of it.
    fn into_stdio(self) -> (Stdio, usize) {
        match self {
            Self::Keep(limit) => (Stdio::piped(), limit),
            Self::File(file) => (file.into(), 0),
        }
    }
}

impl Spawn {
    /// Describes a run without arguments and without input.
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

    /// Starts the program and returns at once. A file that is neither a program nor names one in its first line is run by
    /// `/bin/sh`, as shells do it.
    ///
    /// # Errors
    ///
    /// The program does not run. Then there is no process and no thread left.
    pub fn start(mut self) -> Result<Child, SpawnError> {
        self.check_directory()?;
        let (stdin, feeder) = input::with(&std::mem::take(&mut self.stdin), &self.environment, &self.marker)
            .map_err(|source| SpawnError::NoInput { source })?;
        self.start_with(stdin.into(), feeder)
    }

    /// Starts the program with this as its standard input, such as the end of a pipe that the caller writes to.
    /// [`stdin`](Self::stdin) is not used.
    ///
    /// # Errors
    ///
    /// The program does not run. Then there is no process and no thread left.
    pub fn start_reading(self, stdin: impl Into<OwnedFd>) -> Result<Child, SpawnError> {
        self.check_directory()?;
        self.start_with(stdin.into(), None)
    }

    fn start_with(self, stdin: OwnedFd, feeder: Option<Feeder>) -> Result<Child, SpawnError> {
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
            .stderr(stderr);
        input::leads_session(&mut command)
            .map_err(|source| SpawnError::Other { program: program.clone(), source })?;
        // Before the child, so that there is never a child without a thread that collects it.
        let helpers = Helpers::start(stdout_limit, stderr_limit, self.marker)
            .map_err(|source| SpawnError::Other { program: program.clone(), source })?;
        match command.spawn() {
            Ok(process) => helpers.take(process, feeder),
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
        ErrorKind::ArgumentListTooLong => SpawnError::ArgumentsTooLong { program },
        _ => SpawnError::Other { program, source: error },
    }
}
