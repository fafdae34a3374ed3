//! The right to run a turn in a session, if several machines share the sessions.
//!
//! On one machine a file lock is enough, and the system releases it with its holder. Between machines a store grants
//! leases, which expire unless they are renewed. A machine that slept does not know that its lease has expired. So a
//! turn names its lease, and the store rejects the turn if another lease was granted since.

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
    /// Creates a new name.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().simple().to_string())
    }

    /// Returns it as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The holder of a lease. All of it is as the holder describes itself, for people to read.
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
    /// Serializes it for a store.
    pub fn to_json(&self) -> String {
        let Self { user, host, pid, agent, since } = self;
        serde_json::json!({"user": user, "host": host, "pid": pid, "agent": agent, "since": since})
            .to_string()
    }

    /// Parses a stored holder; `None` if another program wrote it.
    pub fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

/// A lease that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLease {
    /// Its name. To ask for it again is answered as the first time.
    pub id: LeaseId,
    /// The caller.
    pub holder: Holder,
    /// The time after which it expires, by the clock of the store.
    pub lasts: Duration,
    /// A lease that this one may replace, because the caller knows that its holder no longer exists.
    pub instead_of: Option<LeaseId>,
}

/// The store's answer to a request for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It is given.
    Ours,
    /// Another holder has one.
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

    /// Renews a lease; returns whether the caller still holds it. An expired lease continues, unless another one was
    /// granted.
    async fn renew(&self, id: SessionId, lease: &LeaseId, lasts: Duration) -> Result<bool, StoreError>;

    /// Releases a lease. One that the caller does not hold any more is left alone.
    async fn release(&self, id: SessionId, lease: &LeaseId) -> Result<(), StoreError>;

    /// Returns the sessions that are leased, with the holders, by their number.
    async fn held(&self) -> Result<Vec<(SessionId, Holder)>, StoreError>;
}
