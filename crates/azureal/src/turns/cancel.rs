//! Cancelling a turn of this machine, whichever process runs it.

use azureal_core::SessionId;
use azureal_engine::{CancelResult, Recovered, SpooledRun, cancel_running};

use super::describe_holder;
use super::error::quit_there;
use crate::error::Error;
use crate::sessions::called;
use crate::workspace::Workspace;

/// A turn that was cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelledTurn {
    /// Its agent.
    pub agent: String,
    /// The process of the agent; `None` if it was not started yet.
    pub pid: Option<u32>,
    /// Whether its azureal is no longer running, so that [`recover`](Workspace::recover) has to store it.
    pub is_orphan: bool,
}

impl Workspace {
    /// Cancels the running turn of a session: asks the agent to stop, then kills it and every process that it started. Its output so far
    /// is stored, as cancelled, by the process that runs it. Blocks until the agent has ended. `found` is what
    /// [`recover`](Self::recover) returned.
    ///
    /// # Errors
    ///
    /// No turn of the session runs on this machine, or the last one ended before it could be cancelled.
    pub async fn cancel_turn(&self, session: SessionId, found: &[Recovered]) -> Result<CancelledTurn, Error> {
        let known = found.iter().find_map(|found| running_in(found, session));
        let is_open = || self.opened_now().iter().any(|(opened, _)| opened.session_id() == Some(session));
        let Some(spools) = self.spools().filter(|_| known.is_some() || !is_open()) else {
            return Err(self.not_running(session).await?);
        };
        match cancel_running(&spools, session, known)? {
            CancelResult::Cancelled(run) => {
                let pid = run.process.map(|process| process.pid);
                Ok(CancelledTurn { agent: run.turn.agent, pid, is_orphan: run.is_orphan })
            }
            CancelResult::NotRunning => Err(self.not_running(session).await?),
            CancelResult::Storing => {
                let name = called(&self.store.get(session).await?);
                Err(Error::new("busy", format!("the turn of {name} has ended, and is being stored"))
                    .with_hint("`azureal ps` shows whether another turn of it runs then"))
            }
        }
    }

    /// Returns why no turn of a session can be cancelled here.
    async fn not_running(&self, session: SessionId) -> Result<Error, Error> {
        let name = called(&self.store.get(session).await?);
        let open = self.opened_now().into_iter().find(|(opened, _)| opened.session_id() == Some(session));
        if let Some((opened, process)) = open {
            let message = format!("{name} is open in the interface of {}", opened.holder.agent);
            let pid = process.map(|process| process.pid);
            return Ok(Error::new("elsewhere", message).with_hint(quit_there(pid)));
        }
        let leases = self.store.held_leases().await?;
        if let Some((_, holder)) = leases.iter().find(|(leased, _)| *leased == session) {
            let who = describe_holder(holder);
            return Ok(Error::new("elsewhere", format!("the turn of {name} runs elsewhere: {who}"))
                .with_hint("cancel it on the machine where it runs"));
        }
        Ok(Error::new("not_running", format!("no turn of {name} is running"))
            .with_hint("`azureal ps` shows which are"))
    }
}

fn running_in(found: &Recovered, session: SessionId) -> Option<SpooledRun> {
    let run = match found {
        Recovered::Running(turn, process) => {
            let process = process.as_ref().map(azureal_engine::SpooledProcess::identity);
            SpooledRun { turn: turn.clone(), process, is_orphan: false }
        }
        Recovered::Orphan(turn, process) => {
            SpooledRun { turn: turn.clone(), process: Some(process.clone()), is_orphan: true }
        }
        _ => return None,
    };
    (run.turn.session_id() == Some(session)).then_some(run)
}
