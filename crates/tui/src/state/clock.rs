//! Times for people.

use jiff::Timestamp;

/// Parses a time of a record; `None` if it is empty or unreadable.
pub(crate) fn parse_ms(time: &str) -> Option<u64> {
    let time: Timestamp = time.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

/// Returns a running time: `0:42`, `12:05`, `1:02:05`.
pub(crate) fn running(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// Returns how long ago a time is, in its largest unit: `now`, `3m`, `5h`, `2d`.
pub(crate) fn ago(then_ms: u64, now_ms: u64) -> String {
    match now_ms.saturating_sub(then_ms) / 1_000 {
        0..60 => "now".to_owned(),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds @ 3_600..86_400 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_and_relative() {
        assert_eq!(parse_ms("2026-01-31T09:30:00Z"), Some(1_769_851_800_000));
        assert_eq!(parse_ms("yesterday"), None);
        assert_eq!([running(42_900), running(725_000), running(3_725_000)], ["0:42", "12:05", "1:02:05"]);
        let now = 1_000_000_000;
        for (before, expected) in
            [(0, "now"), (59_000, "now"), (61_000, "1m"), (3 * 3_600_000, "3h"), (90_000_000, "1d")]
        {
            assert_eq!(ago(now - before, now), expected);
        }
        assert_eq!(ago(now + 5, now), "now", "clocks differ");
    }
}
