//! The thread that a store's connection lives on.
//!
//! SQLite blocks, and the seam promises that nobody who waits for it does. One thread per store is also all
//! that a database with one writer can use. It needs no particular runtime: any executor can wait for it.

use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use azureal_core::StoreError;
use futures_channel::oneshot;

type Job<T> = Box<dyn FnOnce(&mut T) + Send>;

/// Runs jobs on a value that lives on a thread of its own, one after the other.
pub(super) struct Worker<T> {
    jobs: Mutex<Option<mpsc::Sender<Job<T>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<T: Send + 'static> Worker<T> {
    /// Moves `value` to a thread, where it is dropped when there are no more jobs.
    pub(super) fn start(mut value: T) -> std::io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<Job<T>>();
        let thread = std::thread::Builder::new().name("azureal-store".to_owned()).spawn(move || {
            for job in jobs {
                job(&mut value);
            }
        })?;
        Ok(Self { jobs: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) })
    }

    /// Runs a job and returns what it gives. The job runs to its end even if nobody waits for it any more.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Result<R, StoreError> {
        let (sender, answer) = oneshot::channel();
        let job: Job<T> = Box::new(move |value| {
            // Whoever asked may have gone. The work is done either way.
            drop(sender.send(job(value)));
        });
        let sent = match &*self.jobs.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(jobs) => jobs.send(job).is_ok(),
            None => false,
        };
        if !sent {
            return Err(StoreError::Closed);
        }
        answer.await.map_err(|_| StoreError::Closed)
    }
}

impl<T> Drop for Worker<T> {
    /// Waits until all jobs are done and the file is closed: whoever drops a store may move its file.
    fn drop(&mut self) {
        drop(self.jobs.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(thread) = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            drop(thread.join());
        }
    }
}
