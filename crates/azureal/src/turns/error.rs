//! The errors of turns, for people.

use azureal_core::event::Outcome;
use azureal_core::{Holder, visible_line};
use azureal_engine::clock::until_now;
use azureal_engine::{Busy, BusyPlace, CompactionError, LeaseError, SpoolError, StopError, TurnError};

use crate::error::{Error, quoted};

impl From<TurnError> for Error {
    fn from(error: TurnError) -> Self {
        let described = match error {
            TurnError::Store(error) => return error.into(),
            TurnError::Spool(error) => return error.into(),
            TurnError::Plan(error) => {
                return match error.downcast::<Self>() {
                    Ok(error) => *error,
                    Err(error) => Self::new("failed", error.to_string()).with_source(error),
                };
            }
            TurnError::NoBridge { .. } => Self::new("not_started", error.to_string())
                .with_hint("call `azureal::child_main` first thing in `main`, or name the program `azureal`"),
            TurnError::Refused(ref refused) => {
                Self::new("not_started", refused.to_string()).with_hint(refused.hint())
            }
            TurnError::NameTaken { ref name, session } => {
                Self::new("name_taken", format!("{session} is already called {}", quoted(name))).with_hint(
                    format!("choose another name, or continue it with `azureal run -s {session}`"),
                )
            }
            TurnError::Busy(ref busy) => busy_error(busy),
            TurnError::GaveUpWaiting(ref busy) => {
                Self::cancelled(format!("gave up waiting: {}", describe_busy(busy)))
                    .with_hint("your prompt was not sent")
            }
            TurnError::Stopped { session } => Self::cancelled(format!(
                "the turn of {session} was cancelled, and your prompt was not sent"
            ))
            .with_hint(format!("`azureal show {session}` shows its output so far")),
            TurnError::Unstored { ref spool, .. } => {
                Self::new("not_begun", format!("the turn could not be begun: {error}")).with_hint(format!(
                    "your prompt was not sent; see to the rights and names of {}, or move it elsewhere, and try again",
                    quoted(spool.to_string_lossy())
                ))
            }
            TurnError::NotGathered { outcome, ref source } => match outcome {
                Some(Outcome::Cancelled) => Self::cancelled("cancelled while the context commands ran"),
                Some(Outcome::Timeout) => Self::new("timeout", "the context commands took too long"),
                _ => Self::new("context", source.to_string()),
            }
            .with_hint("the agent was not asked, and nothing was stored"),
            TurnError::NotBegun(ref source) => {
                Self::new("not_begun", format!("the turn could not be begun: {source}")).with_hint(
                    "your prompt was not sent and is not kept; free some room, or see to the file's rights",
                )
            }
            TurnError::NotContinued { session, ref source } => {
                Self::new("not_continued", format!("the turn could not be continued: {source}")).with_hint(format!(
                    "the output so far is stored: `azureal show {session}` shows it, and `azureal run -s {session}` continues"
                ))
            }
            TurnError::NotStored(ref cause) => {
                Self::new("not_stored", format!("the turn could not be stored: {cause}"))
                    .with_hint("the agent's output is kept, and the next azureal command retries")
            }
            TurnError::OutputLost(ref cause) => Self::new(
                "not_stored",
                format!("the turn could not be stored, and the file with its output was deleted: {cause}"),
            )
            .with_hint("the next azureal command looks for the turn in the agent's own transcript"),
            // [`TurnError::Lost`], and what may come.
            _ => Self::new("failed", error.to_string()),
        };
        described.with_source(error)
    }
}

impl From<SpoolError> for Error {
    fn from(error: SpoolError) -> Self {
        Self::file(&error.path, &error.source).with_source(error)
    }
}

impl From<LeaseError> for Error {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::Spool(error) => error.into(),
            LeaseError::Store(error) => error.into(),
        }
    }
}

impl From<StopError> for Error {
    fn from(error: StopError) -> Self {
        match error {
            StopError::Spool(error) => error.into(),
            StopError::Marker(error) => Self::new("unreadable", error.to_string()).with_source(error),
            StopError::Survived { .. } => Self::new("not_stopped", error.to_string())
                .with_hint("it may belong to another user, or hang in the system")
                .with_source(error),
        }
    }
}

impl From<CompactionError> for Error {
    fn from(error: CompactionError) -> Self {
        match error {
            CompactionError::Store(error) => error.into(),
            CompactionError::Spool(error) => error.into(),
            CompactionError::Busy { .. } => Self::new("busy", error.to_string())
                .with_hint("wait for it; nothing was changed")
                .with_source(error),
            CompactionError::Cancelled => {
                Self::cancelled(error.to_string()).with_hint("nothing was changed").with_source(error)
            }
        }
    }
}

/// Returns the error of a session in which another process runs a turn.
pub(super) fn busy_error(busy: &Busy) -> Error {
    let session = busy.session;
    let end = match busy.place {
        BusyPlace::Here => {
            format!("wait for it (`run` does with `--wait`), end it with `azureal cancel {session}`")
        }
        BusyPlace::Elsewhere => {
            format!(
                "wait for it (`run` does with `--wait`), end it with `azureal cancel {session}` where it runs"
            )
        }
        BusyPlace::Interface => quit_there(busy.holder.as_ref().map(|holder| holder.pid)),
    };
    Error::new("busy", describe_busy(busy))
        .with_hint(format!("{end}, or continue in a copy with `azureal fork {session}`"))
}

/// Returns how the interface of an agent is quit. If its azureal was killed, it may have no terminal any more.
pub(super) fn quit_there(pid: Option<u32>) -> String {
    let kill = pid.map(|pid| format!(", or `kill {pid}` if its terminal is gone")).unwrap_or_default();
    format!("quit it there{kill}; what was added becomes part of the session")
}

/// Describes a turn of another process: which session, which agent, since when, and where.
pub fn describe_busy(busy: &Busy) -> String {
    let Busy { session, holder, place } = busy;
    let Some(holder) = holder else { return format!("a turn of {session} is running") };
    let Holder { pid, agent, since, .. } = holder;
    let (agent, time) = (visible_line(agent), until_now(since));
    let time = visible_line(&time);
    match place {
        BusyPlace::Here => format!("a turn of {session} is running: {agent} {time}, run by process {pid}"),
        BusyPlace::Interface => {
            format!("{session} is open in the interface of {agent} {time}, process {pid}")
        }
        BusyPlace::Elsewhere => format!("a turn of {session} is running: {}", describe_holder(holder)),
    }
}

/// Describes the holder of a lease on another machine.
pub fn describe_holder(holder: &Holder) -> String {
    let Holder { user, host, pid, agent, since } = holder;
    let time = until_now(since);
    let line = format!("{agent} {time}, run by {user} on {host}, process {pid}");
    visible_line(&line).into_owned()
}
