//! Times for people: on their own clock, and how long ago.

use std::time::Duration;

use azureal_core::{elapsed_text, visible_line};
use jiff::Timestamp;
use jiff::tz::TimeZone;

const DAY: u64 = 86_400;
/// From how many days on a time is shown as its date.
const DATED: u64 = 30 * DAY;

/// The time zone of the user (`TZ`, else that of the system) and the time now.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    zone: TimeZone,
    now: Timestamp,
}

impl Clock {
    pub(crate) fn read() -> Self {
        Self { zone: TimeZone::system(), now: azureal_engine::clock::now() }
    }

    #[cfg(test)]
    pub(crate) fn at(now: &str, hours_east: i8) -> Self {
        Self { zone: TimeZone::fixed(jiff::tz::offset(hours_east)), now: now.parse().unwrap() }
    }

    pub(crate) fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Returns how long ago a time was: `just now`, `3 min ago`, `2 days ago`; the date of a time that is 30 days old. Empty for
    /// a time that cannot be read.
    pub(crate) fn ago(&self, time: &str) -> String {
        let Ok(then) = time.parse::<Timestamp>() else { return String::new() };
        match self.elapsed(then) {
            elapsed if elapsed.as_secs() < 60 => "just now".to_owned(),
            elapsed if elapsed.as_secs() < DATED => format!("{} ago", elapsed_text(elapsed)),
            _ => then.to_zoned(self.zone.clone()).strftime("%Y-%m-%d").to_string(),
        }
    }

    /// Returns a time on the user's clock, to the minute: `2026-01-31 14:02`. A time that cannot be read stays as it is.
    pub(crate) fn local(&self, time: &str) -> String {
        match time.parse::<Timestamp>() {
            Ok(then) => then.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M").to_string(),
            Err(_) => visible_line(time).into_owned(),
        }
    }

    /// Returns a time on the user's clock and how long ago that was: `14:02 (12 s)`. An older time has its date. A time that
    /// cannot be read stays as it is.
    pub(crate) fn since(&self, time: &str) -> String {
        let Ok(began) = time.parse::<Timestamp>() else { return time.to_owned() };
        let elapsed = self.elapsed(began);
        let format = if elapsed.as_secs() < DAY { "%H:%M" } else { "%Y-%m-%d %H:%M" };
        format!("{} ({})", began.to_zoned(self.zone.clone()).strftime(format), elapsed_text(elapsed))
    }

    /// Returns the time since then. Clocks differ, so it is never negative.
    fn elapsed(&self, then: Timestamp) -> Duration {
        Duration::try_from(self.now.duration_since(then)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_local_and_relative() {
        let clock = Clock::at("2026-01-31T12:30:00Z", 2);
        for (time, since, ago, local) in [
            ("2026-01-31T12:29:48Z", "14:29 (12 s)", "just now", "2026-01-31 14:29"),
            ("2026-01-31T12:27:00Z", "14:27 (3 min)", "3 min ago", "2026-01-31 14:27"),
            ("2026-01-31T09:02:00Z", "11:02 (3 h)", "3 h ago", "2026-01-31 11:02"),
            ("2026-01-28T23:30:00Z", "2026-01-29 01:30 (2 days)", "2 days ago", "2026-01-29 01:30"),
            ("2025-12-31T23:30:00Z", "2026-01-01 01:30 (30 days)", "2026-01-01", "2026-01-01 01:30"),
            // Clocks differ; a time is never in the future.
            ("2026-01-31T12:31:00Z", "14:31 (0 s)", "just now", "2026-01-31 14:31"),
            ("yesterday\u{7}", "yesterday\u{7}", "", "yesterday␇"),
            ("", "", "", ""),
        ] {
            assert_eq!(
                (clock.since(time), clock.ago(time), clock.local(time)),
                (since.into(), ago.into(), local.into())
            );
        }
    }
}
