//! Numbers, durations and errors of the system as text for people.

use std::time::Duration;

/// Returns a duration as text: `1.2 s`, `59 s`, `1 min 1 s`, `2 h 1 min`.
///
/// ```
/// assert_eq!(azureal_core::duration_text(61_000), "1 min 1 s");
/// ```
pub fn duration_text(milliseconds: u64) -> String {
    match milliseconds {
        0..10_000 => format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100),
        10_000..60_000 => format!("{} s", milliseconds / 1000),
        60_000..3_600_000 => format!("{} min {} s", milliseconds / 60_000, milliseconds % 60_000 / 1000),
        _ => format!("{} h {} min", milliseconds / 3_600_000, milliseconds % 3_600_000 / 60_000),
    }
}

/// Returns a length of time in its largest unit: `12 s`, `3 min`, `5 h`, `2 days`.
///
/// ```
/// assert_eq!(azureal_core::elapsed_text(std::time::Duration::from_secs(200)), "3 min");
/// ```
pub fn elapsed_text(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min", seconds / 60),
        seconds @ 3_600..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Returns a number of things: `1 event`, `2 events`.
///
/// ```
/// assert_eq!(azureal_core::counted(2, "event"), "2 events");
/// ```
pub fn counted(count: u64, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        count => format!("{count} {thing}s"),
    }
}

/// Returns an error of the system as it continues a sentence: in lower case, without the number that Rust adds.
///
/// ```
/// let error = std::io::Error::from_raw_os_error(2);
/// assert_eq!(azureal_core::io_error_text(&error), "no such file or directory");
/// ```
pub fn io_error_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    let Some(end) = text.rfind(" (os error ") else {
        return text;
    };
    let mut chars = text.get(..end).unwrap_or(&text).chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (milliseconds, text) in [
            (0, "0.0 s"),
            (1_250, "1.2 s"),
            (59_999, "59 s"),
            (61_000, "1 min 1 s"),
            (7_260_000, "2 h 1 min"),
        ] {
            assert_eq!(duration_text(milliseconds), text);
        }
    }
}
