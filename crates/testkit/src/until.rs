//! Waiting for a fact instead of for a time.

use std::thread;
use std::time::{Duration, Instant};

/// How long a fact may take to become true on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(60);
/// How long to wait between two looks.
const PACE: Duration = Duration::from_millis(5);

/// Looks until there is something, and returns it.
///
/// # Panics
///
/// If it takes longer than a minute: then the test has failed, `what` did not happen.
#[track_caller]
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_or(look, || what.to_owned())
}

/// The same, with a description that is only read when it did not happen.
#[track_caller]
pub(crate) fn until_or<T>(mut look: impl FnMut() -> Option<T>, what: impl FnOnce() -> String) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "did not happen within {LIMIT:?}: {}", what());
        thread::sleep(PACE);
    }
}
