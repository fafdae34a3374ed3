//! The present.

use std::time::SystemTime;

use azureal_core::TIMESTAMP_FORMAT;
use jiff::Timestamp;

/// Returns the present. A clock that is set beyond what a timestamp can hold, the year 9999, stands still there.
pub fn now() -> Timestamp {
    timestamp_of(SystemTime::now())
}

/// Returns the present as it is stored: UTC, to the second.
pub fn now_text() -> String {
    now().strftime(TIMESTAMP_FORMAT).to_string()
}

fn timestamp_of(time: SystemTime) -> Timestamp {
    let is_past = time < SystemTime::UNIX_EPOCH;
    Timestamp::try_from(time).unwrap_or(if is_past { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_beyond_the_year_9999_is_no_reason_to_stop() {
        let years = Duration::from_secs(20_000 * 365 * 86_400);
        assert_eq!(timestamp_of(SystemTime::UNIX_EPOCH + years), Timestamp::MAX);
        assert_eq!(timestamp_of(SystemTime::UNIX_EPOCH - years), Timestamp::MIN);
        assert_eq!(timestamp_of(SystemTime::UNIX_EPOCH), Timestamp::UNIX_EPOCH);
        assert_eq!(Timestamp::MAX.strftime(TIMESTAMP_FORMAT).to_string(), "9999-12-30T22:00:00Z");
    }
}
