//! Waits for the turns of other processes: one thread for each session that a prompt waits in.
//!
//! On this machine the system wakes the thread when the lease is released or its holder dies. A lease of a server, and an agent's own interface,
//! are polled.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use azureal_core::SessionId;
use futures_executor::block_on;
use tracing::debug;

use super::News;
use super::outbox::OpenPane;
use super::shared::Shared;

/// The time between two looks: each is a question to a server that others work with.
const POLL_PACE: Duration = Duration::from_millis(500);

/// The sessions that are waited for, with the panes that wait.
#[derive(Default)]
pub(super) struct LeaseWaits(Mutex<HashMap<SessionId, Vec<OpenPane>>>);

impl LeaseWaits {
    /// Reports to a pane when no process runs a turn in its session.
    pub(super) fn wait(shared: &Arc<Shared>, session: SessionId, pane: OpenPane) {
        let mut waits = shared.lease_waits.lock();
        if let Some(panes) = waits.get_mut(&session) {
            if !panes.contains(&pane) {
                panes.push(pane);
            }
            return;
        }
        waits.insert(session, vec![pane]);
        drop(waits);
        let of_thread = Arc::clone(shared);
        let wait = move || {
            while of_thread.is_awaited(session) && !of_thread.is_free(session) {}
            of_thread.report_free(session);
        };
        if thread::Builder::new().name("azureal-desk-lease".to_owned()).spawn(wait).is_err() {
            shared.report_free(session);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Vec<OpenPane>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Returns whether a pane that is open still waits for a session.
    fn is_awaited(&self, session: SessionId) -> bool {
        let waits = self.lease_waits.lock();
        waits.get(&session).is_some_and(|panes| panes.iter().any(|pane| self.outbox.is_open(*pane)))
    }

    /// Waits a while for the lease of a session; returns whether a turn is to be tried. The lease is acquired for a moment: what would refuse
    /// the turn is asked. An error is the turn's to report.
    fn is_free(&self, session: SessionId) -> bool {
        let Some(spools) = self.workspace.spools() else { return true };
        if let Err(error) = spools.wait_for_lease(session) {
            debug!(%session, error = ?error.to_string(), "the lease cannot be waited for");
            return true;
        }
        match block_on(self.workspace.lease(session, "azureal")) {
            Err(error) if error.kind() == "busy" => {
                thread::sleep(POLL_PACE);
                false
            }
            _ => true,
        }
    }

    fn report_free(&self, session: SessionId) {
        let panes = self.lease_waits.lock().remove(&session).unwrap_or_default();
        for pane in panes {
            self.outbox.send_to(pane, News::LeaseFree { pane: pane.id });
        }
    }
}
