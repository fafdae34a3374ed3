//! Turns in a workspace.
//!
//! [`Workspace::submit`] runs one: it chooses the agent and its model, loads nothing and asks nobody. What is configured must be
//! [trusted](crate::config) before.

mod active;
mod cancel;
mod context;
mod error;
mod plan;

use std::sync::Arc;

use azureal_agents::registry;
use azureal_core::{SessionId, SessionRecord};
use azureal_engine::{
    Engine, EngineOptions, Recovered, SessionLease, SessionLeased, SessionTarget, SpooledRun, Spools,
    TurnHandle, TurnRequest, lease_session,
};
use azureal_exchange::TemporaryFolder;

pub use active::ActiveTurn;
pub use cancel::CancelledTurn;
pub use context::ContextSettings;
pub use error::{describe_busy, describe_holder};
pub use plan::TurnSettings;

use self::plan::Planner;
use crate::config::Config;
use crate::error::Error;
use crate::sessions::last_session;
use crate::workspace::Workspace;

/// A prompt, and the session that it goes to.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// The text.
    pub text: String,
    /// The session.
    pub session: SessionTarget,
    /// Whether to wait while another process runs a turn in the session. Otherwise that is an error.
    pub waits: bool,
}

impl Prompt {
    /// Creates a prompt that does not wait for another process.
    pub fn new(session: impl Into<SessionTarget>, text: impl Into<String>) -> Self {
        Self { text: text.into(), session: session.into(), waits: false }
    }
}

impl Workspace {
    /// Runs a turn. Returns at once; what is wrong with it is the result of the handle.
    ///
    /// Call [`recover`](Self::recover) before the first one.
    pub fn submit(
        &self,
        config: &Arc<Config>,
        prompt: Prompt,
        settings: TurnSettings,
    ) -> Result<TurnHandle, Error> {
        if settings.is_ephemeral && !self.is_ephemeral() {
            return self.ephemeral().submit(config, prompt, settings);
        }
        self.prepare_spools()?;
        let used_in = Some(self.used_in()).filter(|_| !settings.is_ephemeral);
        let planner = Planner {
            store: Arc::clone(&self.store),
            environment: self.environment().clone(),
            directory: self.project.directory().to_owned(),
            config: Arc::clone(config),
            settings,
            recall: self.recall(),
        };
        Ok(self.engine()?.submit(TurnRequest {
            session: prompt.session,
            prompt: prompt.text,
            used_in,
            waits: prompt.waits,
            plan: Arc::new(move |start| Ok(planner.options(start)?)),
        }))
    }

    /// Returns the engine that runs the turns of this workspace: always the same one.
    pub fn engine(&self) -> Result<Engine, Error> {
        if let Some(engine) = self.engine.get() {
            return Ok(engine.clone());
        }
        let spools = match self.spools() {
            Some(spools) => spools,
            // A store in memory has no folder of its own, and nothing of it is kept.
            None => {
                let parent = self.environment().temporary();
                let folder = TemporaryFolder::create_in(&parent);
                let folder = folder.map_err(|error| Error::file(&parent, &error))?;
                Spools::new(folder.path().join("spool"))
                    .without_prompts()
                    .with_bridges(self.environment().bridges())
                    .in_temporary(Arc::new(folder))
            }
        };
        let engine = Engine::new(EngineOptions {
            agents: registry::all(),
            in_git: self.project.is_in_git(),
            environment: self.environment().for_children().clone(),
            changes: self.change_recorder(),
            user: self.user(),
            machine: self.is_on_server().then(|| self.machine()),
            ..EngineOptions::new(Arc::clone(&self.store), spools, self.project.directory())
        });
        Ok(self.engine.get_or_init(|| engine).clone())
    }

    /// Acquires the lease of a session, so that no turn runs in it as long as it is held. Does not wait.
    pub async fn lease(&self, session: SessionId, purpose: &str) -> Result<SessionLease, Error> {
        self.prepare_spools()?;
        let Some(spools) = self.spools() else {
            return Err(Error::new("memory", "a store in memory gives out no lease"));
        };
        let busy = match lease_session(&self.store, &spools, session, &self.holder(purpose)).await? {
            SessionLeased::Ours(lease) => return Ok(lease),
            SessionLeased::Busy(busy) => busy,
        };
        Err(error::busy_error(&busy))
    }

    /// Refuses if a turn of a session, whose lease is held, is not stored yet: an agent works on it in the background, or another
    /// command stores it.
    pub(crate) fn check_stored(&self, session: SessionId) -> Result<(), Error> {
        let Some(spools) = self.spools() else { return Ok(()) };
        match spools.running_turn(session)? {
            None => Ok(()),
            Some(SpooledRun { turn, .. }) => {
                Err(Error::new("busy", format!("a turn of {session} is not stored yet: {}", turn.agent))
                    .with_hint(format!("wait for it, or end it with `azureal cancel {session}`")))
            }
        }
    }

    /// Returns the session that a turn continues without being told: the one that runs in this worktree, else the one that was
    /// last used there. `found` is what [`recover`](Self::recover) returned.
    pub async fn session_to_continue(&self, found: &[Recovered]) -> Result<Option<SessionId>, Error> {
        if let Some(running) = self.running_here(found) {
            return Ok(Some(running));
        }
        if let Some(session) = self.store.last_used(&self.used_in()).await? {
            return Ok(Some(session));
        }
        Ok(last_session(self).await?.map(|record: SessionRecord| record.id))
    }

    /// Returns the session of the turn that was started last of those that still run in this worktree: the store does not
    /// know of it yet. A session that is open in an agent's own interface counts. `found` is what [`recover`](Self::recover) returned.
    pub fn running_here(&self, found: &[Recovered]) -> Option<SessionId> {
        let used_in = self.used_in();
        let running = found.iter().filter_map(|found| match found {
            Recovered::Running(turn, _) | Recovered::Orphan(turn, _) => Some(turn),
            _ => None,
        });
        let running = running
            .filter(|turn| turn.used_in.as_deref() == Some(&used_in))
            .filter_map(|turn| Some((turn.started_at.clone(), turn.session_id()?)));
        let open = self.opened_now().into_iter().map(|(opened, _)| opened);
        let open = open
            .filter(|opened| opened.used_in == used_in)
            .filter_map(|opened| Some((opened.session_id()?, opened.holder.since)));
        let all = running.chain(open.map(|(session, since)| (since, session)));
        all.max_by(|(one, _), (other, _)| one.cmp(other)).map(|(_, session)| session)
    }
}
