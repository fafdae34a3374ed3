//! The order of hits: how well an event matches, and how new its session is.

/// A session that was active so many seconds before another one counts half of what the other gets for being new.
const HALF_LIFE: f64 = 14.0 * 24.0 * 3600.0;

/// Returns the rank of a hit, larger is better: the score, doubled for a session that is active now.
pub(crate) fn rank(score: f64, active: i64, now: i64) -> f64 {
    let age = (now - active).max(0) as f64;
    score * (1.0 + (-age / HALF_LIFE).exp2())
}

/// Collects what BM25 needs of scanned events.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    /// The number of events.
    pub(crate) events: u64,
    /// The number of their tokens.
    pub(crate) tokens: u64,
    /// The number of events that match.
    pub(crate) matching: u64,
}

impl Statistics {
    /// Returns BM25 of an event, with the constants of FTS5. Every event that is scored has all words of the query, so they weigh the same.
    pub(crate) fn score(&self, counts: &[u32], tokens: usize) -> f64 {
        let (events, matching) = (self.events as f64, self.matching as f64);
        let rarity = ((events - matching + 0.5) / (matching + 0.5)).ln().max(1e-6);
        let average = (self.tokens as f64 / events.max(1.0)).max(1.0);
        let length = 1.2 * (0.25 + 0.75 * tokens as f64 / average);
        counts
            .iter()
            .map(|count| f64::from(*count))
            .map(|count| rarity * count * 2.2 / (count + length))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_sessions_and_short_events_with_many_matches_come_first() {
        let day = 24 * 3600;
        assert!(rank(1.0, 100 * day, 100 * day) > rank(1.0, 50 * day, 100 * day));
        assert!(rank(3.0, 0, 100 * day) > rank(1.0, 100 * day, 100 * day));
        let statistics = Statistics { events: 100, tokens: 5_000, matching: 3 };
        assert!(statistics.score(&[2], 50) > statistics.score(&[1], 50));
        assert!(statistics.score(&[1], 20) > statistics.score(&[1], 200));
        assert!(Statistics::default().score(&[1], 1) > 0.0);
    }
}
