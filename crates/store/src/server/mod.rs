//! Parts that every store on a server shares: the thread, retries, the address, and the checks before a request.

mod address;
mod bounded;
mod certificates;
mod checks;
mod fold_cases;
mod retry;
mod thread;

use std::time::Duration;

#[cfg(feature = "redis")]
pub(crate) use address::decoded;
#[cfg(feature = "redis")]
pub(crate) use certificates::LARGEST_CERTIFICATES;
#[cfg(feature = "redis")]
pub(crate) use fold_cases::FoldCase;
#[cfg(feature = "postgres")]
pub(crate) use retry::Retry;

use azureal_core::{SessionStore, StoreError, async_trait};

#[cfg(test)]
pub(crate) use address::tests as address_tests;
pub use address::{AddressError, ReadFile, ServerAddress};
pub(crate) use address::{ProjectName, options, project_hint};
pub(crate) use bounded::{Bounded, Framing, Overflow, PER_PART, too_large};
pub(crate) use certificates::roots;
pub(crate) use checks::{check_compactions, check_new, check_turn_size, stored_cost, tally_through};
pub(crate) use fold_cases::{FoldCases, number_of};
pub(crate) use retry::{Transient, retry_with_backoff};
pub(crate) use thread::OwnThread;

/// The time that opening waits for a server that does not answer. The user may have mistyped its name.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(3);
/// The time limit of one attempt to connect.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit of an answer, and the addition for each MiB that is sent. Well below the retry budget of a store,
/// so that a new connection can replace a dead one.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const TIMEOUT_PER_MIB: Duration = Duration::from_secs(1);

/// A store on a server, which holds the sessions of one of the server's projects.
#[async_trait]
pub trait ServerStore: SessionStore {
    /// Returns the name under which the project's sessions are kept.
    fn project(&self) -> &str;

    /// Returns the [former name](ServerAddress::set_former_project) of the project, if it is not settled whose the
    /// sessions under it are.
    fn former_project(&self) -> Option<&str>;

    /// Settles whether the sessions under the former name are this project's, for every user. They stay where they are, and
    /// are found by both names.
    async fn settle_former_project(&mut self, is_ours: bool) -> Result<(), StoreError>;
}

/// Returns what a user can do about the error of any server.
pub(crate) fn hint(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::Unreachable { .. } => {
            Some("see that the server runs and that its address is right, then do it again")
        }
        StoreError::Corrupt { .. } => {
            Some("nothing was changed; see to the server before anything else, and to its last backup")
        }
        _ => None,
    }
}
