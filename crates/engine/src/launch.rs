//! Starting an agent: the one place for turns and for summaries.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use azureal_core::SessionId;
use azureal_core::agent::{Agent, AgentError, AgentRequest, Exit};
use azureal_core::bridge::{AgentProgram, BridgeLimits, BridgeTask, Exchange};
use azureal_process::{
    Child, ChildEnvironment, InvalidMarker, Marker, ProcessIdentity, Spawn, SpawnError, StopTimeouts, Stream,
    end_marked, stop,
};

use crate::bridge::{BridgeHost, Channel, Control, ControlFolderError, SUBCOMMAND};
use crate::cancel::CancelNoted;
use crate::gather::end_commands;
use crate::header::SpooledTurn;
use crate::spool::{SpoolError, Spools};

/// The variable that every process of a run carries, so that none of them gets lost.
pub const RUN_MARKER: &str = "AZUREAL_RUN_ID";
/// How much of an agent's standard error is kept.
pub(crate) const STDERR_BYTES: usize = 16 << 10;

/// Where the store is, and how to get in, is no business of agents and commands: what they see, a model may be told.
const WITHHELD: [&str; 3] = ["AZUREAL_STORE", "AZUREAL_REDIS_PASSWORD", "AZUREAL_REDIS_PASSWORD_FILE"];

/// Returns the environment without the variables that are not handed on.
pub fn without_withheld(environment: &ChildEnvironment) -> ChildEnvironment {
    let mut environment = environment.clone();
    WITHHELD.iter().for_each(|name| environment.remove(name));
    environment
}

/// An agent, and where it runs: everything that a run needs but the request.
pub(crate) struct Launch<'a> {
    pub(crate) agent: &'a dyn Agent,
    /// The agent's program.
    pub(crate) program: &'a Path,
    pub(crate) directory: &'a Path,
    pub(crate) environment: &'a ChildEnvironment,
    pub(crate) spools: &'a Spools,
    /// The name of the run, which every process of it carries.
    pub(crate) run: &'a str,
    /// The session whose turn it is. A summary belongs to no turn.
    pub(crate) session: Option<SessionId>,
    /// The limits of an agent behind a bridge.
    pub(crate) limits: BridgeLimits,
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
    /// The agent needs a bridge, and nobody has said which program can be one.
    #[error("{agent} needs a bridge, and no program is named that can be one")]
    NoBridge {
        /// The agent.
        agent: &'static str,
    },
    /// The agent and its command do not agree on whether there is a bridge: an error of the agent's adapter.
    #[error("{agent} does not say that it is behind a bridge, and is")]
    NotBridged {
        /// The agent.
        agent: &'static str,
    },
    /// The folder of the control channels cannot be used.
    #[error(transparent)]
    Control(#[from] ControlFolderError),
    /// The task of the bridge cannot be written down, as with a path that is no text.
    #[error("the task of the bridge: {0}")]
    Task(#[from] serde_json::Error),
}

impl LaunchError {
    /// Returns what a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Refused(error) => Some(error.hint()),
            Self::Marker(error) => error.hint(),
            Self::Spawn(error) => error.hint(),
            Self::NoBridge { .. } => Some(
                "call `child_main` first thing in `main`, or name the program `azureal`, and give `Spools` a `BridgeHost`",
            ),
            Self::NotBridged { .. } | Self::Task(_) => None,
            Self::Control(error) => error.hint(),
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
        request: &AgentRequest,
        stdout: File,
        stderr: Stream,
    ) -> Result<AgentRun, LaunchError> {
        let command = self.agent.command(request)?;
        let marker = Marker::new(RUN_MARKER, self.run)?;
        let environment = without_withheld(self.environment);
        let mut spawn = Spawn::new(self.program, self.directory, environment, stdout, marker);
        match command.exchange {
            None => {
                spawn.args = command.args.into_iter().map(Into::into).collect();
                for (name, value) in command.env {
                    spawn.environment.set(name, value);
                }
                spawn.stdin = command.stdin;
            }
            Some(exchange) => {
                let program = matches!(exchange, Exchange::JsonRpc(_)).then(|| AgentProgram {
                    path: self.program.to_owned(),
                    args: command.args,
                    env: command.env,
                });
                let host = self.host()?;
                spawn.program = host.program.clone();
                spawn.args = vec![SUBCOMMAND.into()];
                spawn.stdin = serde_json::to_vec(&self.task(host, program, exchange)?)?;
            }
        }
        if let Some(marker) = self.session.and_then(|session| self.spools.session_marker(session)) {
            spawn.environment.set(marker.key(), marker.value());
        }
        spawn.stderr = stderr;
        let child = spawn.start()?;
        let can_ask = self.agent.is_bridged() && self.session.is_some();
        Ok(AgentRun { child, control: if can_ask { self.spools.control(self.run) } else { None } })
    }

    fn host(&self) -> Result<&BridgeHost, LaunchError> {
        let agent = self.agent.name();
        if !self.agent.is_bridged() {
            return Err(LaunchError::NotBridged { agent });
        }
        self.spools.bridges().ok_or(LaunchError::NoBridge { agent })
    }

    fn task(
        &self,
        host: &BridgeHost,
        program: Option<AgentProgram>,
        exchange: Exchange,
    ) -> Result<BridgeTask, LaunchError> {
        // A summary asks nothing, so nobody answers.
        let control = match self.session {
            Some(_) => {
                Some(host.prepare(self.run, Channel::Control, &[self.directory, self.spools.folder()])?)
            }
            None => None,
        };
        Ok(BridgeTask {
            run: self.run.to_owned(),
            marker: RUN_MARKER.to_owned(),
            program,
            control,
            limits: self.limits,
            exchange,
        })
    }
}

/// A run of an agent: a child process whose standard output is the spool. The outputs are read there.
#[derive(Debug, Clone)]
pub(crate) struct AgentRun {
    child: Child,
    control: Option<Control>,
}

impl AgentRun {
    pub(crate) fn process(&self) -> &ProcessIdentity {
        self.child.identity()
    }

    /// Returns the control channel, which answers the questions of the agent; `None` if it asks none.
    pub(crate) fn control(&self) -> Option<&Control> {
        self.control.as_ref()
    }

    /// Cancels the run: ends the agent and everything that belongs to it. Returns whether all of it has ended.
    pub(crate) fn cancel(&self, timeouts: &StopTimeouts) -> bool {
        self.child.stop(timeouts).survivors.is_empty()
    }

    /// Kills the process group at once.
    pub(crate) fn kill(&self) {
        self.child.kill();
    }

    /// Waits for the end of the process and returns how it ended; `None` if the system does not say.
    pub(crate) fn exit(&self) -> Option<Exit> {
        match self.child.wait() {
            azureal_process::Exit::Code(code) => Some(Exit::Code(code)),
            azureal_process::Exit::Signal(signal) => Some(Exit::Signal(signal)),
            azureal_process::Exit::Unknown => None,
        }
    }

    /// Waits for the end of the process, at most so long. Returns whether it has ended.
    pub(crate) fn has_ended_within(&self, pause: Duration) -> bool {
        self.child.wait_timeout(pause).is_some()
    }

    /// Returns the end of its standard error, if that is kept in memory.
    pub(crate) fn stderr(&self) -> String {
        self.child.stderr().to_string()
    }
}

/// Why a turn of another process is not stopped.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The name of its run is not one of ours.
    #[error(transparent)]
    Marker(#[from] InvalidMarker),
    /// The spool cannot be written.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// A process does not end.
    #[error("process {pid} could not be ended")]
    Survived {
        /// The process.
        pid: u32,
    },
}

/// Cancels a turn: stops its agent, as far as it is known already, and everything that the turn started. Then the process that
/// runs the turn stores it as cancelled, or the next recovery does. Returns whether it was in time: not so if the turn is
/// being stored, or is stored.
pub(crate) fn stop_turn(
    spools: &Spools,
    turn: &SpooledTurn,
    process: Option<&ProcessIdentity>,
) -> Result<bool, StopError> {
    let marker = Marker::new(RUN_MARKER, turn.run.clone())?;
    // The agent may have been started since its process was looked for.
    let CancelNoted::InTime(noted) = spools.cancel(turn)? else { return Ok(false) };
    end_commands(turn);
    let noted = noted.map(|noted| noted.identity());
    let stopped = match process.or(noted.as_ref()) {
        Some(process) => stop(process, &marker, &StopTimeouts::default()),
        // One that starts now finds the cancel in the header.
        None => end_marked(&marker, &StopTimeouts::default()),
    };
    match stopped.survivors.first() {
        None => Ok(true),
        Some(survivor) => Err(StopError::Survived { pid: survivor.pid }),
    }
}
