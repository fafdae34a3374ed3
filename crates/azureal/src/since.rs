//! The times that `--since` takes.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::error::{Error, quoted};

/// Reads a time: `30m`, `12h`, `7d` or `2w` ago, a date such as `2026-01-31` on the user's clock, or a time such as `2026-01-31T09:30:00Z`.
///
/// # Errors
///
/// It is none of them.
pub fn parse_since(text: &str) -> Result<Timestamp, Error> {
    since(text, azureal_engine::clock::now(), &TimeZone::system())
}

fn since(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, Error> {
    let ago = || {
        let unit = text.chars().last()?;
        let seconds = match unit {
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'w' => 7 * 86_400,
            _ => return None,
        };
        let number: u32 = text.strip_suffix(unit)?.parse().ok()?;
        now.checked_sub(SignedDuration::from_secs(i64::from(number) * seconds)).ok()
    };
    let day = || Some(text.parse::<Date>().ok()?.to_zoned(zone.clone()).ok()?.timestamp());
    // A date alone is not a time of any zone, so the order does not matter.
    text.parse::<Timestamp>().ok().or_else(day).or_else(ago).ok_or_else(|| {
        Error::usage(format!("{} is not a time", quoted(text)))
            .with_hint("`30m`, `12h`, `7d`, `2w`, a date such as `2026-01-31`, or `2026-01-31T09:30:00Z`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_of_the_user_or_relative() {
        let now: Timestamp = "2026-01-31T12:30:00Z".parse().unwrap();
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let since = |text: &str| since(text, now, &zone).map(|time| time.to_string()).ok();
        for (text, expected) in [
            ("30m", "2026-01-31T12:00:00Z"),
            ("12h", "2026-01-31T00:30:00Z"),
            ("7d", "2026-01-24T12:30:00Z"),
            ("2w", "2026-01-17T12:30:00Z"),
            ("2026-01-31", "2026-01-30T22:00:00Z"),
            ("2026-01-31T09:30:00Z", "2026-01-31T09:30:00Z"),
            ("0d", "2026-01-31T12:30:00Z"),
        ] {
            assert_eq!(since(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "",
            "d",
            "-1d",
            "7",
            "1.5h",
            "7 d",
            "yesterday",
            "2026-13-01",
            "4294967295w",
            "99999999999999999999d",
            "７d",
            "7é",
        ] {
            assert_eq!(since(text), None, "{text}");
        }
    }
}
