//! The turns that are running, as far as this machine and the store know.

use azureal_core::{Holder, SessionId};
use azureal_engine::{Began, OpenedSession, Recovered, SpooledTurn, clock};
use azureal_process::ProcessIdentity;
use serde::Serialize;

use crate::error::Error;
use crate::workspace::Workspace;

/// A turn that is running. Its shape as JSON: fields may be added, never removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActiveTurn {
    #[serde(skip)]
    id: SessionId,
    session: String,
    /// The agent that answers.
    pub agent: String,
    /// The model that was asked for; `None` if none was, or if it is not known.
    pub model: Option<String>,
    /// The process of the agent, or of azureal on another machine; `None` if the agent is not started yet.
    pub pid: Option<u32>,
    /// When it began, in UTC.
    pub since: String,
    /// Whether the agent continues in the background, because its azureal is no longer running.
    pub orphan: bool,
    /// The user who runs it, on another machine.
    pub user: Option<String>,
    /// That machine.
    pub host: Option<String>,
    /// Whether the session is open in the agent's own interface. There, turns run one after the other.
    pub interface: bool,
    /// The prompt; `None` if it is not known here, or if the turn continues after a compaction.
    pub prompt: Option<String>,
}

impl ActiveTurn {
    /// Creates the description of a turn of which only this is known.
    pub fn new(id: SessionId, agent: impl Into<String>, since: impl Into<String>) -> Self {
        Self {
            id,
            session: id.to_string(),
            agent: agent.into(),
            model: None,
            pid: None,
            since: since.into(),
            orphan: false,
            user: None,
            host: None,
            interface: false,
            prompt: None,
        }
    }

    /// Returns the session.
    pub fn session(&self) -> SessionId {
        self.id
    }

    /// Describes a turn of this machine; `None` if it is not running.
    fn here(found: &Recovered) -> Option<Self> {
        let (turn, pid, orphan) = match found {
            Recovered::Running(turn, process) => (turn, process.as_ref().map(|process| process.pid), false),
            Recovered::Orphan(turn, process) => (turn, Some(process.pid), true),
            _ => return None,
        };
        let SpooledTurn { agent, model, started_at, prompt, goes_on, .. } = turn;
        let id = turn.session_id()?;
        Some(Self {
            id,
            session: id.to_string(),
            agent: agent.clone(),
            model: model.clone(),
            pid,
            since: started_at.clone(),
            orphan,
            user: None,
            host: None,
            interface: false,
            prompt: Some(prompt.clone()).filter(|_| !goes_on),
        })
    }

    /// Describes a turn of this process.
    pub(crate) fn ours(agent: &str, model: Option<String>, began: &Began) -> Self {
        let id = began.record.id;
        Self {
            id,
            session: id.to_string(),
            agent: agent.to_owned(),
            model,
            pid: Some(began.process.pid),
            since: clock::now_text(),
            orphan: false,
            user: None,
            host: None,
            interface: false,
            prompt: Some(began.prompt.clone()).filter(|_| !began.continues),
        }
    }

    /// Describes a turn of another machine by the holder of its lease.
    fn elsewhere(id: SessionId, holder: Holder) -> Self {
        let Holder { user, host, pid, agent, since } = holder;
        Self {
            id,
            session: id.to_string(),
            agent,
            model: None,
            pid: Some(pid),
            since,
            orphan: false,
            user: Some(user),
            host: Some(host),
            interface: false,
            prompt: None,
        }
    }

    /// Describes a session that is open in an agent's own interface.
    fn opened(opened: OpenedSession, process: Option<ProcessIdentity>) -> Option<Self> {
        let id = opened.session_id()?;
        let Holder { agent, since, .. } = opened.holder;
        let pid = process.map(|process| process.pid);
        Some(Self { pid, interface: true, ..Self::new(id, agent, since) })
    }
}

impl Workspace {
    /// Returns the turns that are running: those of this machine, then those that hold a lease elsewhere. `found` is what
    /// [`recover`](Self::recover) returned.
    pub async fn active_turns(&self, found: &[Recovered]) -> Result<Vec<ActiveTurn>, Error> {
        let mut active: Vec<ActiveTurn> = found.iter().filter_map(ActiveTurn::here).collect();
        active.extend(
            self.opened_now().into_iter().filter_map(|(opened, process)| ActiveTurn::opened(opened, process)),
        );
        let here = active.len();
        for (session, holder) in self.store.held_leases().await? {
            if !active.iter().take(here).any(|turn| turn.id == session) {
                active.push(ActiveTurn::elsewhere(session, holder));
            }
        }
        Ok(active)
    }
}
