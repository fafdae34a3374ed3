//! Changes of sessions that a user asks for: another name or agent, a copy, the end.

use azureal_core::event::ModelSwitch;
use azureal_core::{
    Event, NewSession, NewTurn, Original, Seq, SessionId, SessionRecord, StoreError, TurnTotals,
};
use azureal_engine::SessionLease;

use crate::agents::{Wanted, choose};
use crate::error::Error;
use crate::sessions::{called, check_new_name, keep_name};
use crate::workspace::Workspace;

/// How often an append is tried while others append.
const ATTEMPTS: usize = 5;

/// A copy of a session.
#[derive(Debug)]
pub struct Forked {
    /// The new session.
    pub record: SessionRecord,
    /// Whether the output of its turns could not be copied whole. The original has it.
    pub lacks_originals: bool,
}

impl Workspace {
    /// Gives a session another name.
    ///
    /// # Errors
    ///
    /// It is empty, looks like a number, or another session has it.
    pub async fn rename_session(&self, session: SessionId, name: &str) -> Result<(), Error> {
        check_new_name(&*self.store, name, Some(session)).await?;
        Ok(self.store.rename(session, name).await?)
    }

    /// Copies the events of a session up to one into a new session of this worktree.
    pub async fn fork_session(
        &self,
        original: SessionId,
        at: Seq,
        name: Option<&str>,
    ) -> Result<Forked, Error> {
        if let Some(name) = name {
            check_new_name(&*self.store, name, None).await?;
        }
        let new = NewSession {
            name: name.map(str::to_owned),
            worktree: self.project.worktree(),
            ..NewSession::default()
        };
        let id = self.store.fork(original, at, new).await?;
        if let Some(name) = name {
            keep_name(&*self.store, name, id).await?;
        }
        let record = self.store.get(id).await?;
        let mut lacks_originals = false;
        if let Some(originals) = self.store.originals().filter(|_| self.keeps_originals()) {
            let is_copied = |found: &Original| found.first != Seq::START && found.first <= at;
            // The fork is there, so an error here is no reason to fail: the user is told to look at the original.
            lacks_originals = match (originals.list(original).await, originals.list(id).await) {
                (Ok(wanted), Ok(copied)) => {
                    copied.len() < wanted.iter().filter(|found| is_copied(found)).count()
                }
                _ => true,
            };
        }
        Ok(Forked { record, lacks_originals })
    }

    /// Deletes a session for good, with the output of its turns and of those that could not be stored.
    ///
    /// # Errors
    ///
    /// A turn runs in it.
    pub async fn delete_session(&self, record: &SessionRecord) -> Result<(), Error> {
        // Held until it is gone: a turn may begin at any time.
        let _lease = self.idle(record).await?;
        self.store.delete(record.id).await?;
        self.forget_in_search(record.id).await;
        if let Some(spools) = self.spools() {
            spools.remove_ledger(record.id)?;
        }
        self.remove_snapshots(record)
    }

    /// Makes sure that no turn runs in a session, nor begins as long as what is returned is held.
    async fn idle(&self, record: &SessionRecord) -> Result<Option<SessionLease>, Error> {
        let is_running = || {
            Error::new("busy", format!("a turn of {} is running", called(record)))
                .with_hint(format!("wait for it, or end it with `azureal cancel {}`", record.id))
        };
        let Some(spools) = self.spools() else {
            return if self.engine()?.turn(record.id).is_some() { Err(is_running()) } else { Ok(None) };
        };
        if !self.is_on_server() && !spools.exist() {
            return Ok(None);
        }
        let lease = self.lease(record.id, "rm").await?;
        // One whose azureal has gone holds no lease.
        let turns = spools.found_turns()?;
        let (own, _): (Vec<_>, Vec<_>) = turns.into_iter().partition(|turn| turn.session == record.id);
        if own.iter().any(|turn| turn.is_running) {
            return Err(is_running());
        }
        // What could not be stored is deleted with its session.
        for turn in own {
            if !turn.discard()? {
                // Another command stores it right now.
                return Err(is_running());
            }
        }
        Ok(Some(lease))
    }

    /// Stores the user's choice of the agent and model for the next turn of a session. Without a model it is the agent's own choice.
    ///
    /// # Errors
    ///
    /// The agent is not known or not installed, or a turn runs in the session.
    pub async fn switch_agent(
        &self,
        session: SessionId,
        agent: &str,
        model: Option<&str>,
    ) -> Result<(), Error> {
        let wanted = Wanted {
            agent: Some(agent),
            model: Some(model.unwrap_or(ModelSwitch::DEFAULT)),
            ..Wanted::default()
        };
        let choice = choose(&wanted, self.environment())?;
        let switch = ModelSwitch::chosen(choice.agent.name(), choice.model);
        if self.is_ephemeral() && self.engine()?.turn(session).is_some() {
            return Err(Error::new("busy", format!("a turn of {session} is running"))
                .with_hint("switch the agent when it has ended"));
        }
        // A turn that runs expects to be the next one.
        let _lease = match self.spools() {
            Some(spools) if self.is_on_server() || spools.exist() => {
                Some(self.lease(session, "switch").await?)
            }
            _ => None,
        };
        for _ in 1..ATTEMPTS {
            match self.append_switch(session, &switch).await {
                Err(StoreError::Moved { .. }) => {}
                other => return Ok(other?),
            }
        }
        Ok(self.append_switch(session, &switch).await?)
    }

    async fn append_switch(&self, session: SessionId, switch: &ModelSwitch) -> Result<(), StoreError> {
        let record = self.store.get(session).await?;
        // It says nothing about how the last turn ended.
        let totals = TurnTotals { completed: record.completed, ..TurnTotals::default() };
        let turn = NewTurn {
            after: Some(Seq(record.counts.events)),
            totals: Some(totals),
            ..NewTurn::verbatim([Event::ModelSwitch(switch.clone())])
        };
        self.store.append(session, turn).await.map(drop)
    }
}
