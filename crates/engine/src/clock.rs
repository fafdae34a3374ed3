//! The present.

use std::time::{Duration, SystemTime};

use azureal_core::{TIMESTAMP_FORMAT, elapsed_text};
use jiff::Timestamp;

/// Returns the present. A clock that is set beyond what a timestamp can hold, the year 9999, stands still there.
pub fn now() -> Timestamp {
    timestamp_of(SystemTime::now())
}

/// Returns the present as it is stored: UTC, to the second.
pub fn now_text() -> String {
    now().strftime(TIMESTAMP_FORMAT).to_string()
}

/// Describes a time that was stored as one until now: `for 3 min`; `since …` if it cannot be read.
pub fn until_now(time: &str) -> String {
    match time.parse::<Timestamp>() {
        // Clocks differ: it is never in the future.
        Ok(then) => {
            let elapsed = Duration::try_from(now().duration_since(then)).unwrap_or_default();
            format!("for {}", elapsed_text(elapsed))
        }
        Err(_) => format!("since {time}"),
    }
}

fn timestamp_of(time: SystemTime) -> Timestamp {
    let is_past = time < SystemTime::UNIX_EPOCH;
    Timestamp::try_from(time).unwrap_or(if is_past { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_described_until_now() {
        assert_eq!(until_now(&now_text()), "for 0 s");
        assert_eq!(until_now("9999-01-01T00:00:00Z"), "for 0 s");
        assert!(until_now("2020-01-01T00:00:00Z").ends_with(" days"));
        assert_eq!(until_now("yesterday"), "since yesterday");
    }

    #[test]
    fn a_clock_beyond_the_year_9999_is_no_reason_to_stop() {
        let years = Duration::from_secs(20_000 * 365 * 86_400);
        assert_eq!(timestamp_of(SystemTime::UNIX_EPOCH + years), Timestamp::MAX);
        assert_eq!(timestamp_of(SystemTime::UNIX_EPOCH - years), Timestamp::MIN);
        assert_eq!(timestamp_of(SystemTime::UNIX_EPOCH), Timestamp::UNIX_EPOCH);
        assert_eq!(Timestamp::MAX.strftime(TIMESTAMP_FORMAT).to_string(), "9999-12-30T22:00:00Z");
    }
}
