//! Notifications of changes, instead of polling.

use std::time::Duration;

use async_trait::async_trait;

#[cfg(doc)]
use crate::SessionStore;
use crate::StoreError;

/// Hears of what others do to one session ([`SessionStore::watch`]), or to all of a store ([`SessionStore::watch_all`]), until
/// it is dropped.
#[async_trait]
pub trait Watch: Send {
    /// Waits until there may be a change since the last call, at most `at_most`; returns whether there may be one. A
    /// change of a session: events were appended, or it was cleared or deleted. A change of a store: any session was
    /// created or changed.
    ///
    /// It may report a change without a reason. It does so at the end of each wait in which it could not receive
    /// notifications, because a connection is down. So a caller reads after each report, and also polls now and then.
    /// Dropping the future early loses no change.
    async fn changed(&mut self, at_most: Duration) -> Result<bool, StoreError>;
}
