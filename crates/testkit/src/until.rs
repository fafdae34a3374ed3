//! Waiting for a fact instead of for a time.

use std::thread;
use std::time::{Duration, Instant};

/// The time for a fact to become true on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);
/// The pause between two polls.
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

/// Like [`until`], with a description that is only built if the fact did not become true.
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
