//! Where the work of a store is done.
//!
//! SQLite blocks. A program with a runtime must not be blocked by it, so by default the connection lives on a
//! thread of its own; one per store is all that a database with one writer can use, and any executor can
//! wait for it. A program that does one thing after the other has nothing to gain from that, and pays for two
//! changes of threads with every call: it may have the work done where it calls.

use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use azureal_core::StoreError;
use futures_channel::oneshot;

use super::Work;

type Job<T> = Box<dyn FnOnce(&mut T) + Send>;

/// Runs jobs on a value, one after the other.
pub(super) enum Worker<T> {
    OnOwnThread(Thread<T>),
    WhereCalled(Mutex<T>),
}

impl<T: Send + 'static> Worker<T> {
    pub(super) fn start(value: T, work: Work) -> std::io::Result<Self> {
        Ok(match work {
            Work::OnOwnThread => Self::OnOwnThread(Thread::start(value)?),
            Work::WhereCalled => Self::WhereCalled(Mutex::new(value)),
        })
    }

    /// Runs a job and returns what it gives. A job that has begun runs to its end even if nobody waits for it
    /// any more.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Result<R, StoreError> {
        match self {
            Self::OnOwnThread(thread) => thread.run(job).await,
            // A job that panicked has left a transaction that SQLite rolls back: the value is sound.
            Self::WhereCalled(value) => Ok(job(&mut value.lock().unwrap_or_else(PoisonError::into_inner))),
        }
    }
}

/// A thread and the value that lives on it.
pub(super) struct Thread<T> {
    jobs: Mutex<Option<mpsc::Sender<Job<T>>>>,
    handle: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Thread<T> {
    /// Moves `value` to a thread, where it is dropped when there are no more jobs.
    fn start(mut value: T) -> std::io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<Job<T>>();
        let handle = std::thread::Builder::new().name("azureal-store".to_owned()).spawn(move || {
            for job in jobs {
                job(&mut value);
            }
        })?;
        Ok(Self { jobs: Mutex::new(Some(sender)), handle: Some(handle) })
    }

    async fn run<R: Send + 'static>(
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

impl<T> Drop for Thread<T> {
    /// Waits until all jobs are done and the file is closed: whoever drops a store may move its file.
    fn drop(&mut self) {
        drop(self.jobs.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(handle) = self.handle.take() {
            // A thread that panicked has said so itself, and its jobs were answered with `Closed`.
            drop(handle.join());
        }
    }
}
