//! The log of a piece of work, for tests of what is logged.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Level;

/// Runs `work` and returns all lines that it logs on this thread, without their times.
pub fn captured_log(work: impl FnOnce()) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(log, work);
    let bytes = std::mem::take(&mut *lines.0.lock().unwrap_or_else(PoisonError::into_inner));
    String::from_utf8(bytes).unwrap()
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
