//! The way of news to the interface.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{News, PaneId, TurnNews};
use crate::error::Error;

/// Sends news, one at a time: none of a pane that was closed, and none at all after the desk was left.
pub(super) struct Outbox {
    send: Box<dyn Fn(News) + Send + Sync>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    is_left: bool,
    /// The panes, each with the number of its opening: one that was closed and opened again is another.
    panes: HashMap<PaneId, u64>,
    openings: u64,
}

/// A pane as long as it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenPane {
    pub(super) id: PaneId,
    opening: u64,
}

impl Outbox {
    pub(super) fn new(send: impl Fn(News) + Send + Sync + 'static) -> Self {
        Self { send: Box::new(send), open: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a pane.
    pub(super) fn open(&self, id: PaneId) -> OpenPane {
        let mut open = self.lock();
        open.openings += 1;
        let opening = open.openings;
        open.panes.insert(id, opening);
        OpenPane { id, opening }
    }

    /// Returns a pane that is open.
    pub(super) fn opened(&self, id: PaneId) -> Option<OpenPane> {
        let opening = *self.lock().panes.get(&id)?;
        Some(OpenPane { id, opening })
    }

    /// Returns whether a pane is still open.
    pub(super) fn is_open(&self, pane: OpenPane) -> bool {
        let open = self.lock();
        !open.is_left && open.panes.get(&pane.id) == Some(&pane.opening)
    }

    /// Closes a pane: none of its news is sent after this returns.
    pub(super) fn close(&self, id: PaneId) {
        self.lock().panes.remove(&id);
    }

    /// Sends nothing after this returns.
    pub(super) fn leave(&self) {
        self.lock().is_left = true;
    }

    /// Returns whether the desk was left.
    pub(super) fn is_left(&self) -> bool {
        self.lock().is_left
    }

    /// Sends news that belong to no pane.
    pub(super) fn send(&self, news: News) {
        let open = self.lock();
        if !open.is_left {
            (self.send)(news);
        }
    }

    /// Sends news of a pane. Returns whether it is still open.
    pub(super) fn send_to(&self, pane: OpenPane, news: News) -> bool {
        let open = self.lock();
        let is_open = !open.is_left && open.panes.get(&pane.id) == Some(&pane.opening);
        if is_open {
            (self.send)(news);
        }
        is_open
    }

    /// Sends news of a pane's turn.
    pub(super) fn turn(&self, pane: OpenPane, news: TurnNews) -> bool {
        self.send_to(pane, News::Turn { pane: pane.id, news: Box::new(news) })
    }

    /// Reports that a request for a pane was not performed.
    pub(super) fn failed(&self, pane: OpenPane, error: Error) {
        self.send_to(pane, News::Failed { pane: Some(pane.id), error, unsent: None });
    }

    /// Reports that a request was not performed.
    pub(super) fn failed_without_pane(&self, error: Error) {
        self.send(News::Failed { pane: None, error, unsent: None });
    }
}
