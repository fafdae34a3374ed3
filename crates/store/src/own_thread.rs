//! A thread with a runtime of its own.
//!
//! Drivers of servers live on tokio; whoever calls a store may live on anything. So such a store has a thread, does
//! its work there and hands over the answers.

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

    /// Takes no more work from now on; says whether it did until now.
    pub(crate) fn close(&self) -> bool {
        !self.is_closed.swap(true, Ordering::AcqRel)
    }

    /// Does work on the thread; nothing if it takes none any more. The work is done also if nobody waits for it.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        work: impl Future<Output = R> + Send + 'static,
    ) -> Option<R> {
        if self.is_closed.load(Ordering::Acquire) {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        self.runtime.spawn(async move {
            // Whoever asked may have gone.
            drop(answer.send(work.await));
        });
        answered.await.ok()
    }
}
