//! Being told that a session goes on, instead of asking again and again.

use std::time::Duration;

use async_trait::async_trait;

#[cfg(doc)]
use crate::SessionStore;
use crate::StoreError;

/// Hears of what others do to one session ([`SessionStore::watch`]), or to all of a store ([`SessionStore::watch_all`]), until
/// it is dropped.
#[async_trait]
pub trait Watch: Send {
    /// Waits until there may be a change since the last time, and not longer than `at_most`; returns whether there may be:
    /// events were added to the session, or it was cleared or deleted; in a store, any session was created or changed.
    ///
    /// It may say so without a reason, and it does at the end of each wait in which it could not have heard (a
    /// connection is down). So whoever watches looks when it says so, and now and then if it does not. A future that
    /// is dropped before it is done loses nothing.
    async fn changed(&mut self, at_most: Duration) -> Result<bool, StoreError>;
}
