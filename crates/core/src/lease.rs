//! The right to run a turn in a session, where sessions are shared between machines.
//!
//! On one machine a lock on a file is enough, and dies with its holder. Between machines a store gives out leases: they
//! end by themselves unless they are renewed, so nobody waits for a ghost. And because a machine that slept does not
//! know that its lease has ended, a turn says under which lease it was made: once another has been given out, the
//! store refuses it.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

#[cfg(doc)]
use crate::{NewTurn, SessionStore};
use crate::{SessionId, StoreError};

/// The name of a lease. No other lease has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseId(String);

impl LeaseId {
    /// Makes a new name.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().simple().to_string())
    }

    /// Returns it as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Who runs a turn in a session. All of it is what they say of themselves: it is there to be read by people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The person.
    #[serde(default)]
    pub user: String,
    /// The machine.
    #[serde(default)]
    pub host: String,
    /// The process of azureal that runs it.
    pub pid: u32,
    /// The agent that answers.
    pub agent: String,
    /// Since when.
    pub since: String,
}

impl Holder {
    /// Returns it as a store keeps it.
    pub fn to_json(&self) -> String {
        let Self { user, host, pid, agent, since } = self;
        serde_json::json!({"user": user, "host": host, "pid": pid, "agent": agent, "since": since})
            .to_string()
    }

    /// Reads what a store has kept; nothing if somebody else wrote that.
    pub fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

/// A lease that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLease {
    /// Its name. To ask for it again is answered as the first time.
    pub id: LeaseId,
    /// Who asks.
    pub holder: Holder,
    /// After how long it ends by itself, by the clock of the store.
    pub lasts: Duration,
    /// A lease that this one may replace, because whoever asks knows that its holder is no more.
    pub instead_of: Option<LeaseId>,
}

/// What came of asking a store for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It is given.
    Ours,
    /// Somebody else has one.
    Theirs(Holder),
}

/// Leases of sessions: a capability of a [`SessionStore`] that several machines share.
///
/// A lease lasts until it is released or expires. A holder whose lease has expired finds out when it appends a turn:
/// [`NewTurn::lease`].
#[async_trait]
pub trait Leases: Send + Sync {
    /// Tries to acquire the lease of a session. One holder at a time; never blocks.
    async fn take(&self, id: SessionId, new: &NewLease) -> Result<Taken, StoreError>;

    /// Makes a lease last so long from now; returns whether the caller still holds it. One that has expired continues, as
    /// long as no other was given out.
    async fn renew(&self, id: SessionId, lease: &LeaseId, lasts: Duration) -> Result<bool, StoreError>;

    /// Releases a lease. One that the caller does not hold any more is left alone.
    async fn release(&self, id: SessionId, lease: &LeaseId) -> Result<(), StoreError>;

    /// Returns the sessions that are leased, with the holders, by their number.
    async fn held(&self) -> Result<Vec<(SessionId, Holder)>, StoreError>;
}
