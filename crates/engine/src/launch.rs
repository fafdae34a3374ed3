//! Starting an agent: the one place for turns and for summaries.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use azureal_core::SessionId;
use azureal_core::agent::{Agent, AgentError, Exit, TurnRequest};
use azureal_process::{Child, InvalidMarker, Marker, Spawn, SpawnError, Stream};

use crate::drive::RUN_MARKER;
use crate::spool::Spools;

/// Where the store is, and how to get in, is no business of agents and commands: what they see, a model may be told.
const WITHHELD: [&str; 3] = ["AZUREAL_STORE", "AZUREAL_REDIS_PASSWORD", "AZUREAL_REDIS_PASSWORD_FILE"];

/// Returns the variables that are not handed on.
pub(crate) fn withheld() -> Vec<OsString> {
    WITHHELD.map(OsString::from).into()
}

/// An agent, and where it runs.
pub(crate) struct Launch<'a> {
    pub(crate) agent: &'a dyn Agent,
    /// The agent's program.
    pub(crate) program: &'a Path,
    pub(crate) directory: &'a Path,
    pub(crate) spools: &'a Spools,
    /// The name of the run, which every process of it carries.
    pub(crate) run: &'a str,
    /// The session whose turn it is. A summary belongs to no turn.
    pub(crate) session: Option<SessionId>,
}

/// Why an agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The agent cannot be asked this.
    #[error(transparent)]
    Refused(#[from] AgentError),
    /// The name of the run cannot mark its processes.
    #[error(transparent)]
    Marker(#[from] InvalidMarker),
    /// The program does not start.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

impl LaunchError {
    /// Returns what a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Refused(error) => Some(error.hint()),
            Self::Marker(error) => error.hint(),
            Self::Spawn(error) => error.hint(),
        }
    }

    /// Returns the message together with the hint.
    pub(crate) fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self}; {hint}"),
            None => self.to_string(),
        }
    }
}

impl Launch<'_> {
    /// Starts the process whose standard output is the spool.
    pub(crate) fn start(
        &self,
        request: &TurnRequest,
        stdout: File,
        stderr: Stream,
    ) -> Result<Child, LaunchError> {
        let command = self.agent.command(request)?;
        let marker = Marker::new(RUN_MARKER, self.run)?;
        let mut spawn = Spawn::new(self.program, self.directory, stdout, marker);
        spawn.args = command.args.into_iter().map(Into::into).collect();
        spawn.env_remove = withheld();
        spawn.env = command.env.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        if let Some(marker) = self.session.and_then(|session| self.spools.session_marker(session)) {
            spawn.env.push((marker.key().into(), marker.value().into()));
        }
        spawn.stdin = command.stdin;
        spawn.stderr = stderr;
        Ok(spawn.start()?)
    }
}

/// Waits for a process to end and returns how; `None` if the system does not say.
pub(crate) fn exit_of(child: &Child) -> Option<Exit> {
    match child.wait() {
        azureal_process::Exit::Code(code) => Some(Exit::Code(code)),
        azureal_process::Exit::Signal(signal) => Some(Exit::Signal(signal)),
        azureal_process::Exit::Unknown => None,
    }
}
