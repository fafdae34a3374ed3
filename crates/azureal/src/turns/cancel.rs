//! Cancelling a turn of this machine, whichever process runs it.

use azureal_core::SessionId;
use azureal_engine::{Recovered, SpooledTurn, end_commands, stop_turn};
use azureal_process::ProcessIdentity;

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
    /// is stored by the process that runs it. Blocks until the agent has ended. `found` is what [`recover`](Self::recover)
    /// returned.
    ///
    /// # Errors
    ///
    /// No turn of the session runs on this machine.
    pub async fn cancel_turn(&self, session: SessionId, found: &[Recovered]) -> Result<CancelledTurn, Error> {
        let of_session = |turn: &SpooledTurn| turn.session_id() == Some(session);
        let running = found.iter().find_map(|found| match found {
            Recovered::Running(turn, process) if of_session(turn) => {
                let identity = process.as_ref().map(azureal_engine::SpooledProcess::identity);
                Some((turn, identity, false))
            }
            Recovered::Orphan(turn, process) if of_session(turn) => Some((turn, Some(process.clone()), true)),
            _ => None,
        });
        let Some((turn, process, is_orphan)) = running else {
            let name = called(&self.store.get(session).await?);
            let open = self.opened_now().into_iter().find(|(opened, _)| opened.session_id() == Some(session));
            if let Some((opened, process)) = open {
                let message = format!("{name} is open in the interface of {}", opened.holder.agent);
                let pid = process.map(|process| process.pid);
                return Err(Error::new("elsewhere", message).with_hint(quit_there(pid)));
            }
            let leases = self.store.held_leases().await?;
            if let Some((_, holder)) = leases.iter().find(|(leased, _)| *leased == session) {
                let who = describe_holder(holder);
                return Err(Error::new("elsewhere", format!("the turn of {name} runs elsewhere: {who}"))
                    .with_hint("cancel it on the machine where it runs"));
            }
            return Err(Error::new("not_running", format!("no turn of {name} is running"))
                .with_hint("`azureal ps` shows which are"));
        };
        if let Some(spools) = self.spools() {
            match &process {
                Some(process) => stop_turn(&spools, turn, process)?,
                // Its context is being gathered, and its agent not asked yet.
                None => {
                    spools.note_cancel(turn)?;
                    end_commands(turn);
                }
            }
        }
        let pid = process.map(|ProcessIdentity { pid, .. }| pid);
        Ok(CancelledTurn { agent: turn.agent.clone(), pid, is_orphan })
    }
}
