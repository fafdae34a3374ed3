//! The duration of a run, from the times in its transcript.

use std::time::Duration;

use jiff::Timestamp;

/// The time between the first and the last line of a record.
#[derive(Default)]
pub(crate) struct Span {
    ends: Option<(Timestamp, Timestamp)>,
}

impl Span {
    /// Adds the time of a line. An unreadable time is ignored.
    pub(crate) fn reach(&mut self, timestamp: &str) {
        if let Ok(time) = timestamp.parse() {
            self.add(time);
        }
    }

    /// Adds a time.
    pub(crate) fn add(&mut self, time: Timestamp) {
        let (first, last) = self.ends.unwrap_or((time, time));
        self.ends = Some((first.min(time), last.max(time)));
    }

    pub(crate) fn length(&self) -> Duration {
        let Some((first, last)) = self.ends else { return Duration::ZERO };
        last.duration_since(first).try_into().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_reaches_from_the_first_time_to_the_last_in_any_order() {
        let mut span = Span::default();
        assert_eq!(span.length(), Duration::ZERO);
        for time in
            ["2026-11-15T07:05:15.500Z", "yesterday", "2026-11-15T07:05:17.750Z", "2026-11-15T07:05:15Z", ""]
        {
            span.reach(time);
        }
        assert_eq!(span.length(), Duration::from_millis(2750));
    }
}
