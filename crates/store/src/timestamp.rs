//! The present, as every store writes it.

use std::time::SystemTime;

use jiff::Timestamp;

/// Returns the present: UTC, to the second. A clock that is set beyond the year 9999 stands still there.
pub(crate) fn now() -> String {
    let now = Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::MAX);
    now.strftime(azureal_core::TIMESTAMP_FORMAT).to_string()
}

/// Returns a time that was given; the present where none was.
pub(crate) fn given_or_now(time: &str) -> String {
    if time.is_empty() { now() } else { time.to_owned() }
}
