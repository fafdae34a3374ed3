//! Runs context commands: all at once, each with its own time limit, and leaves no process.
//!
//! The output of a command is kept in bounded memory: of too much output the middle is dropped, so that the command
//! neither blocks nor fills the memory. A command that exceeds its time limit is killed with its family. One sweep
//! after the last command finds processes that commands left behind, also daemons in their own sessions, by the
//! marker that all of them carry.

use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use azureal_core::event::CommandRecord;
use azureal_core::{ContextCommand, OnFailure, context_block, context_error_block};
use azureal_process::{
    Child, ChildEnvironment, Excerpt, Exit, Marker, Spawn, StopTimeouts, Stream, end_marked,
};

use crate::launch::{LaunchError, without_withheld};

/// The variable that every process of a context command carries. Another than that of the agents: a command that
/// was left behind is not a turn that continues.
pub const CONTEXT_MARKER: &str = "AZUREAL_CONTEXT_ID";

/// The most that is kept of what a command prints, in bytes.
pub const OUTPUT_BYTES: usize = 256 << 10;
/// The bytes of standard error that are kept.
const ERROR_BYTES: usize = 16 << 10;
/// The time for processes that a command left behind to exit after SIGTERM, before they are killed.
const GRACE: Duration = Duration::from_millis(50);
const SHELL: &str = "/bin/sh";

/// A context command that has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRun {
    /// The command.
    pub command: ContextCommand,
    /// Its end.
    pub end: CommandEnd,
    /// Its output.
    pub output: String,
    /// Its standard error.
    pub errors: String,
    /// Its duration.
    pub duration: Duration,
}

/// The end of a context command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandEnd {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// The end is unknown.
    Unknown,
    /// Its time was up.
    TimedOut,
    /// It never ran, and why.
    NotStarted(String),
}

impl CommandRun {
    /// Describes the failure; `None` if it succeeded.
    pub fn failure(&self) -> Option<String> {
        match &self.end {
            CommandEnd::Code(0) => None,
            CommandEnd::Code(code) => Some(format!("Command exited with code {code}")),
            CommandEnd::Signal(signal) => Some(format!("Command was ended by signal {signal}")),
            CommandEnd::Unknown => Some("Command ended with an unknown exit status".to_owned()),
            CommandEnd::TimedOut => {
                let seconds = self.command.timeout.as_secs_f64();
                let unit = if seconds == 1.0 { "second" } else { "seconds" };
                Some(format!("Command timed out after {seconds} {unit}"))
            }
            CommandEnd::NotStarted(why) => Some(format!("Command could not be started: {why}")),
        }
    }

    /// Returns its block; `None` if it failed and is to be ignored then.
    pub fn block(&self) -> Option<String> {
        let name = &self.command.name;
        let Some(why) = self.failure() else {
            // Some programs answer on standard error, such as `java -version`.
            let said = if self.output.trim().is_empty() { &self.errors } else { &self.output };
            return Some(context_block(name, said));
        };
        match self.command.on_failure {
            OnFailure::Ignore => None,
            OnFailure::Warn | OnFailure::Fail => {
                let output = match (self.output.trim_end(), self.errors.as_str()) {
                    ("", errors) => errors.to_owned(),
                    (output, errors) => format!("{output}\n{errors}"),
                };
                Some(context_error_block(name, &why, &output))
            }
        }
    }

    /// Returns the record that is stored of it. It has the command as it was written, without the values of variables.
    pub fn record(&self) -> CommandRecord {
        CommandRecord {
            name: self.command.name.clone(),
            command: self.command.template.as_ref().unwrap_or(&self.command.command).clone(),
            exit_code: match self.end {
                CommandEnd::Code(code) => Some(code),
                _ => None,
            },
            duration_ms: u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// An event while commands run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandProgress {
    /// These run now.
    Began(Vec<String>),
    /// This one has ended by itself, or because its time was up.
    Ended(CommandRun),
    /// So many of their processes could not be ended.
    Survived(usize),
}

/// The reason why there is no output of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandsEnded {
    /// This one failed, and must not.
    ByFailure(Box<CommandRun>),
    /// By [`CommandStop::stop`].
    ByStop,
}

/// Ends running commands from another thread, and prevents further ones from starting.
#[derive(Debug, Clone, Default)]
pub struct CommandStop(Arc<Mutex<UnderWay>>);

#[derive(Debug, Default)]
struct UnderWay {
    is_stopped: bool,
    children: Vec<Child>,
}

impl CommandStop {
    /// Ends them.
    pub fn stop(&self) {
        let mut under_way = self.lock();
        under_way.is_stopped = true;
        for child in under_way.children.drain(..) {
            child.kill();
        }
    }

    /// Returns whether they were to be ended.
    pub fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }

    fn note(&self, child: &Child) {
        let mut under_way = self.lock();
        if under_way.is_stopped {
            child.kill();
        } else {
            under_way.children.push(child.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs commands at the same time, in `directory` with these variables, and returns the end of each, in their order.
///
/// When this returns, no process that carries `marker` is running.
///
/// # Errors
///
/// They were stopped, or one failed that must not, and all were ended at once.
pub fn run_commands(
    commands: &[ContextCommand],
    directory: &Path,
    environment: &ChildEnvironment,
    marker: &Marker,
    stop: &CommandStop,
    progress: &mut dyn FnMut(CommandProgress),
) -> Result<Vec<CommandRun>, CommandsEnded> {
    if commands.is_empty() {
        return Ok(Vec::new());
    }
    progress(CommandProgress::Began(commands.iter().map(|command| command.name.clone()).collect()));
    let environment = &without_withheld(environment);
    let mut runs: Vec<Option<CommandRun>> = commands.iter().map(|_| None).collect();
    let mut failed = None;
    thread::scope(|scope| {
        let (sender, ended) = mpsc::channel();
        for (index, command) in commands.iter().enumerate() {
            let sender = sender.clone();
            scope.spawn(move || {
                // The receiver is there until the last of us has sent.
                drop(sender.send((index, run_one(command, directory, environment, marker, stop))));
            });
        }
        drop(sender);
        for (index, run) in ended {
            // The end of a stopped command has no meaning.
            if stop.is_stopped() {
                continue;
            }
            progress(CommandProgress::Ended(run.clone()));
            if run.command.on_failure == OnFailure::Fail && run.failure().is_some() {
                stop.stop();
                failed = Some(run);
            } else if let Some(place) = runs.get_mut(index) {
                *place = Some(run);
            }
        }
    });
    let swept = end_marked(marker, &StopTimeouts { strays: GRACE, ..StopTimeouts::default() });
    if !swept.survivors.is_empty() {
        progress(CommandProgress::Survived(swept.survivors.len()));
    }
    match failed {
        Some(run) => Err(CommandsEnded::ByFailure(Box::new(run))),
        None if stop.is_stopped() => Err(CommandsEnded::ByStop),
        None => Ok(runs.into_iter().flatten().collect()),
    }
}

fn run_one(
    command: &ContextCommand,
    directory: &Path,
    environment: &ChildEnvironment,
    marker: &Marker,
    stop: &CommandStop,
) -> CommandRun {
    let started = Instant::now();
    let mut spawn =
        Spawn::new(SHELL, directory, environment.clone(), Stream::Keep(OUTPUT_BYTES), marker.clone());
    spawn.stderr = Stream::Keep(ERROR_BYTES);
    spawn.args = vec!["-c".into(), command.command.clone().into()];
    let (end, output, errors) = match spawn.start() {
        Ok(child) => {
            stop.note(&child);
            let end = match child.wait_timeout(command.timeout.saturating_sub(started.elapsed())) {
                Some(exit) => exit.into(),
                None => {
                    child.kill();
                    child.wait();
                    CommandEnd::TimedOut
                }
            };
            (end, child.stdout(), child.stderr())
        }
        Err(error) => (
            CommandEnd::NotStarted(LaunchError::from(error).with_hint()),
            Excerpt::default(),
            Excerpt::default(),
        ),
    };
    CommandRun {
        command: command.clone(),
        end,
        output: output.to_string(),
        errors: errors.to_string(),
        duration: started.elapsed(),
    }
}

impl From<Exit> for CommandEnd {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Code(code) => Self::Code(code),
            Exit::Signal(signal) => Self::Signal(signal),
            Exit::Unknown => Self::Unknown,
        }
    }
}
