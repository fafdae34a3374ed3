//! The present, as every store writes it.

/// Returns the present: UTC, to the second.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns a time that was given; the present where none was.
pub(crate) fn given_or_now(time: &str) -> String {
    if time.is_empty() { now() } else { time.to_owned() }
}
