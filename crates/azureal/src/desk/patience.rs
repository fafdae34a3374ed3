//! Telling the user of a server that does not answer, while something waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::News;
use super::shared::Shared;

/// The time without an answer after which the user is told.
const TOLD_AFTER: Duration = Duration::from_secs(3);

/// A wait for the store. Ends when it is dropped.
pub(super) struct Wait {
    ended: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Wait {
    /// Begins to wait; sets `is_away` when it tells the user.
    pub(super) fn begin(shared: &Arc<Shared>, is_away: &Arc<AtomicBool>) -> Self {
        let (ended, wait) = mpsc::channel();
        let (shared, is_away) = (Arc::clone(shared), Arc::clone(is_away));
        let tell = move || {
            if wait.recv_timeout(TOLD_AFTER) == Err(RecvTimeoutError::Timeout)
                && !is_away.swap(true, Ordering::AcqRel)
            {
                let text = "the server of the store does not answer: azureal keeps trying, and what is shown may be old";
                shared.outbox.send(News::Notice(text.to_owned()));
            }
        };
        let thread = thread::Builder::new().name("azureal-desk-patience".to_owned()).spawn(tell);
        Self { ended: Some(ended), thread: thread.ok() }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing left to do.
            drop(thread.join());
        }
    }
}
