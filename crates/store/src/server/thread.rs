//! A thread with a tokio runtime.
//!
//! Drivers of servers need tokio; a caller of a store may use any executor, or none. So the store has a thread, does its
//! work there and hands over the answers.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread that works until it is dropped.
#[derive(Debug)]
pub(crate) struct OwnThread {
    runtime: Handle,
    is_closed: AtomicBool,
    /// Dropped with the thread's owner, which ends the thread and all that still runs on it.
    _alive: oneshot::Sender<()>,
}

impl OwnThread {
    /// Starts the thread.
    pub(crate) fn start(name: &str) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (alive, ended) = oneshot::channel::<()>();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || drop(runtime.block_on(ended)))?;
        Ok(Self { runtime: handle, is_closed: AtomicBool::new(false), _alive: alive })
    }

    /// Accepts no more work from now on; returns whether it did until now.
    pub(crate) fn close(&self) -> bool {
        !self.is_closed.swap(true, Ordering::AcqRel)
    }

    #[cfg(feature = "redis")]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Returns the runtime of the thread.
    #[cfg(feature = "postgres")]
    pub(crate) fn runtime(&self) -> Handle {
        self.runtime.clone()
    }

    /// Does work on the thread. Returns `None` if the thread is closed. The work is done also if the caller stops waiting.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        work: impl Future<Output = R> + Send + 'static,
    ) -> Option<R> {
        if self.is_closed.load(Ordering::Acquire) {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        self.runtime.spawn(async move {
            // The caller may have stopped waiting.
            drop(answer.send(work.await));
        });
        answered.await.ok()
    }
}
