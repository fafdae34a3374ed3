//! Times of records as numbers.

/// Returns the seconds since 1970 of a time as `2026-01-31T09:30:00Z`; 0 if it is none.
pub(crate) fn seconds_of(timestamp: &str) -> i64 {
    let number = |from: usize, to: usize| timestamp.get(from..to)?.parse::<i64>().ok();
    let parts = || {
        Some([
            number(0, 4)?,
            number(5, 7)?,
            number(8, 10)?,
            number(11, 13)?,
            number(14, 16)?,
            number(17, 19)?,
        ])
    };
    let Some([year, month, day, hour, minute, second]) = parts() else { return 0 };
    if !(1..=12).contains(&month) {
        return 0;
    }
    // Years that begin in March, so that a leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = days + (153 * month + 2) / 5 + day - 1 - 719_468;
    ((days * 24 + hour) * 60 + minute) * 60 + second
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2026-01-31T09:30:00Z", 1_769_851_800),
            ("2026-11-16T17:14:45Z", 1_794_849_285),
            ("", 0),
            ("yesterday, at noon!", 0),
        ] {
            assert_eq!(seconds_of(text), seconds, "{text}");
        }
    }
}
