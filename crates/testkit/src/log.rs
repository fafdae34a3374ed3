//! The log of a piece of work, for tests of what is logged.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tracing::{Dispatch, Level, Subscriber};

/// A second subscriber for the life of the process. While there is only one, `tracing` asks the subscriber of the thread
/// that reaches a log line first, and disables the line for all threads if that thread has none.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(log_to(Lines::default())));

/// Runs `work` and returns all lines that it logs on this thread, without their times.
pub fn captured_log(work: impl FnOnce()) -> String {
    LazyLock::force(&SECOND);
    let lines = Lines::default();
    tracing::subscriber::with_default(log_to(lines.clone()), work);
    let bytes = std::mem::take(&mut *lines.0.lock().unwrap_or_else(PoisonError::into_inner));
    String::from_utf8(bytes).unwrap()
}

fn log_to(lines: Lines) -> impl Subscriber + Send + Sync {
    tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_ansi(false)
        .without_time()
        .with_writer(move || lines.clone())
        .finish()
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
