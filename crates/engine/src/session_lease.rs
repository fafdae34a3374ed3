//! One turn per session at a time, across all machines that share a store.
//!
//! First comes the lock of this machine, then the lease of the store, which is renewed while it is held. If this
//! process dies, the lease expires. The next process on this machine need not wait, because holding the lock proves
//! that the holder is dead. If the store is unreachable for so long that another machine gets the lease, the store
//! rejects turns under the old one (`ingest.rs` handles that).

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use azureal_core::{Holder, LeaseId, NewLease, SessionId, SessionStore, StoreError, Taken};
use futures_executor::block_on;
use tracing::warn;

use crate::lease::{Lease, Leased};
use crate::spool::{SpoolError, Spools};
use crate::turn_event::{Busy, BusyPlace};

/// The time after which a lease expires unless it is renewed, for which others wait for a dead machine.
pub(crate) const LASTS: Duration = Duration::from_secs(20);
/// The interval of renewal. A late or retried renewal must not lose the lease.
const RENEWED_EVERY: Duration = Duration::from_secs(5);
/// The time limit of the release; the lease expires by itself.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The right to run a turn in a session, as long as it is held.
#[derive(Debug)]
pub struct SessionLease {
    renewal: Option<Renewal>,
    lock: Lease,
}

impl Drop for SessionLease {
    fn drop(&mut self) {
        // Before the lock is: the next process on this machine need not replace it.
        if self.renewal.take().is_some_and(Renewal::release) {
            self.lock.forget_store_lease();
        }
    }
}

impl SessionLease {
    /// Returns the lease of the store, under which turns are appended; `None` if the store gives out none.
    pub fn id(&self) -> Option<&LeaseId> {
        self.renewal.as_ref().map(|renewal| &renewal.id)
    }
}

/// The result of a request for the turn lease.
#[derive(Debug)]
pub enum SessionLeased {
    /// It is ours.
    Ours(SessionLease),
    /// Another process runs a turn.
    Busy(Busy),
}

/// The reason why the lease could not be requested.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The folder of the spools cannot be used.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The store cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Tries to acquire the session's turn lease. One holder at a time; never blocks.
pub async fn lease_session(
    store: &Arc<dyn SessionStore>,
    spools: &Spools,
    session: SessionId,
    holder: &Holder,
) -> Result<SessionLeased, LeaseError> {
    let busy = |holder, place| Ok(SessionLeased::Busy(Busy { session, holder, place }));
    let leased = spools.lease(session, holder)?;
    // With the lock held: the process that opens a session holds it until the program is noted.
    let open = spools.opened().map(|opened| opened.holder_of(session)).transpose()?.flatten();
    let mut lock = match (leased, open) {
        (_, Some(holder)) => return busy(Some(holder), BusyPlace::Interface),
        (Leased::Theirs(holder), None) => return busy(holder, BusyPlace::Here),
        (Leased::Ours(lock), None) => lock,
    };
    let renewal = match take(&**store, &mut lock, session, holder).await? {
        InStore::Ours(id) => Some(Renewal::start(Arc::clone(store), session, id)),
        InStore::NotNeeded => None,
        InStore::Theirs(holder) => return busy(Some(holder), BusyPlace::Elsewhere),
    };
    Ok(SessionLeased::Ours(SessionLease { renewal, lock }))
}

/// The store's answer to the process that holds the lock of this machine.
pub(crate) enum InStore {
    Ours(LeaseId),
    Theirs(Holder),
    NotNeeded,
}

/// Takes the lease of the store; it is not renewed by that.
pub(crate) async fn take(
    store: &dyn SessionStore,
    lock: &mut Lease,
    session: SessionId,
    holder: &Holder,
) -> Result<InStore, LeaseError> {
    let id = LeaseId::random();
    let new = NewLease {
        id: id.clone(),
        holder: holder.clone(),
        lasts: LASTS,
        instead_of: lock.store_lease().cloned(),
    };
    let Some(leases) = store.leases() else {
        lock.forget_store_lease();
        return Ok(InStore::NotNeeded);
    };
    Ok(match leases.take(session, &new).await? {
        Taken::Ours => {
            lock.note_store_lease(id.clone())?;
            InStore::Ours(id)
        }
        // Whatever lease was noted, it is not the one that counts.
        Taken::Theirs(holder) => {
            lock.forget_store_lease();
            InStore::Theirs(holder)
        }
    })
}

/// Renews a lease until the turn is over or the lease is lost, and releases it. Returns whether it is certainly no
/// longer ours.
///
/// `is_over_after` waits for the end of the turn, at most for the given time: tests inject their own time.
fn keep<E: std::fmt::Display>(
    mut is_over_after: impl FnMut(Duration) -> bool,
    mut renew: impl FnMut() -> Result<bool, E>,
    release: impl FnOnce() -> Result<(), E>,
) -> bool {
    while !is_over_after(RENEWED_EVERY) {
        // The append of the turn finds out that a lease is lost. A renewal that failed is retried next time.
        match renew() {
            Ok(true) => {}
            Ok(false) => {
                warn!("the lease of the store is lost");
                return true;
            }
            Err(error) => warn!(error = ?error.to_string(), "the lease of the store is not renewed"),
        }
    }
    // It ends by itself if this fails.
    let released = release();
    if let Err(error) = &released {
        warn!(error = ?error.to_string(), "the lease of the store is not released");
    }
    released.is_ok()
}

/// A thread that renews a lease, and releases it in the end.
#[derive(Debug)]
struct Renewal {
    id: LeaseId,
    /// Dropped to end the renewals.
    stop: Sender<()>,
    /// Receives a message when the lease is no longer ours: released, or held by another process. Disconnects without
    /// a message if it is not known whether it was released.
    ended: Receiver<()>,
}

impl Renewal {
    fn start(store: Arc<dyn SessionStore>, session: SessionId, id: LeaseId) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let (end, ended) = mpsc::channel::<()>();
        let renewed = id.clone();
        thread::spawn(move || {
            let Some(leases) = store.leases() else { return };
            let is_gone = keep(
                |pause| stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout),
                || block_on(leases.renew(session, &renewed, LASTS)),
                || block_on(leases.release(session, &renewed)),
            );
            if is_gone {
                end.send(()).ok();
            }
        });
        Self { id, stop, ended }
    }

    /// Ends the renewals and releases the lease. Returns whether it is certainly not ours any more.
    fn release(self) -> bool {
        drop(self.stop);
        self.ended.recv_timeout(RELEASE_TIMEOUT).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::ops::Range;

    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A store and the time, in which nothing passes but what the code waits for.
    struct Store {
        now: Cell<Duration>,
        /// When the turn is over.
        over: Duration,
        /// When the lease ends; `None` if it was released.
        ends: Cell<Option<Duration>>,
        /// When the store cannot be reached.
        cut: Range<Duration>,
        /// When another machine acquires the lease.
        overtaken: Duration,
        renewals: RefCell<Vec<Duration>>,
    }

    impl Store {
        fn new(over: Duration) -> Self {
            let never = Duration::MAX;
            Self {
                now: Cell::default(),
                over,
                ends: Cell::new(Some(LASTS)),
                cut: never..never,
                overtaken: never,
                renewals: RefCell::default(),
            }
        }

        fn reach<T>(&self, answer: impl FnOnce() -> T) -> Result<T, &'static str> {
            if self.cut.contains(&self.now.get()) { Err("unreachable") } else { Ok(answer()) }
        }

        /// Returns whether the lease is certainly gone.
        #[track_caller]
        fn keep(&self) -> bool {
            let wait = |pause| {
                self.now.set((self.now.get() + pause).min(self.over));
                let ends = self.ends.get().expect("it is not released before the end of the turn");
                assert!(self.now.get() < ends, "the lease ended at {ends:?}");
                self.now.get() == self.over
            };
            let renew = || {
                self.reach(|| {
                    let is_ours = self.now.get() < self.overtaken;
                    self.renewals.borrow_mut().push(self.now.get());
                    self.ends.set(is_ours.then_some(self.now.get() + LASTS));
                    is_ours
                })
            };
            keep(wait, renew, || self.reach(|| self.ends.set(None)))
        }
    }

    #[test]
    fn a_lease_is_renewed_as_long_as_the_turn_runs() {
        let store = Store::new(seconds(36_001));
        assert!(store.keep());
        assert_eq!((store.now.get(), store.ends.get()), (seconds(36_001), None), "released at the end");
        assert_eq!(store.renewals.borrow().len(), 7_200);
    }

    #[test]
    fn a_store_that_is_unreachable_for_ten_seconds_does_not_cost_the_lease() {
        let store = Store { cut: seconds(11)..seconds(21), ..Store::new(seconds(42)) };
        assert!(store.keep());
        assert_eq!(*store.renewals.borrow(), [5, 10, 25, 30, 35, 40].map(seconds));
    }

    #[test]
    fn a_release_that_fails_is_told() {
        let store = Store { cut: seconds(6)..seconds(60), ..Store::new(seconds(7)) };
        assert!(!store.keep());
        assert_eq!(store.ends.get(), Some(seconds(25)));
    }

    #[test]
    fn a_lost_lease_is_not_renewed_again() {
        let store = Store { overtaken: seconds(12), ..Store::new(seconds(100)) };
        assert!(store.keep());
        assert_eq!((store.now.get(), store.renewals.borrow().len()), (seconds(15), 3));
    }
}
