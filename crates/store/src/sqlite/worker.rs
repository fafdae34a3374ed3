//! The thread of a store.
//!
//! SQLite blocks, and must not block a program with a runtime. So by default the connection is on its own thread; one
//! per store is all that a database with one writer can use, and any executor can wait for it. A sequential program
//! gains nothing from that, and pays for two context switches with every call: it may do the work on the calling
//! thread.

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

    /// Runs a job and returns its result. A job that has begun runs to its end even if the caller stops waiting.
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
            // The caller may have stopped waiting. The work is done either way.
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
    /// Waits until all jobs are done and the file is closed: the caller may move the file afterwards.
    fn drop(&mut self) {
        drop(self.jobs.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(handle) = self.handle.take() {
            // A panic of the thread was reported by itself, and its jobs were answered with `Closed`.
            drop(handle.join());
        }
    }
}
