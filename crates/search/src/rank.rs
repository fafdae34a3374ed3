//! The order of hits: how well an event matches, and how new its session is.

/// A session that was active so many seconds before another one counts half of what the other gets for being new.
const HALF_LIFE: f64 = 14.0 * 24.0 * 3600.0;

/// Returns the rank of a hit, larger is better: the score, doubled for a session that is active now.
pub(crate) fn rank(score: f64, active: i64, now: i64) -> f64 {
    let age = (now - active).max(0) as f64;
    score * (1.0 + (-age / HALF_LIFE).exp2())
}

/// What BM25 needs of a text.
#[derive(Debug)]
pub(crate) struct Counts {
    /// How often it has each clause of the query.
    pub(crate) clauses: Vec<u32>,
    /// The number of its tokens.
    pub(crate) tokens: u64,
}

impl Counts {
    /// Returns whether the text has all clauses.
    pub(crate) fn has_all(&self) -> bool {
        self.clauses.iter().all(|count| *count > 0)
    }
}

/// Collects what BM25 needs of all texts.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    /// The number of texts.
    texts: u64,
    /// The number of their tokens.
    tokens: u64,
    /// The number of texts that have each clause.
    with_clause: Vec<u64>,
}

impl Statistics {
    pub(crate) fn add(&mut self, text: &Counts) {
        self.texts += 1;
        self.tokens += text.tokens;
        self.with_clause.resize(text.clauses.len(), 0);
        for (texts, count) in self.with_clause.iter_mut().zip(&text.clauses) {
            *texts += u64::from(*count > 0);
        }
    }

    /// Returns BM25 of a text, as FTS5 computes it.
    pub(crate) fn score(&self, text: &Counts) -> f64 {
        let texts = self.texts as f64;
        let average = self.tokens as f64 / texts;
        let length = 1.2 * (0.25 + 0.75 * text.tokens as f64 / average);
        let clauses = text.clauses.iter().zip(&self.with_clause);
        clauses
            .map(|(count, with)| {
                let (count, with) = (f64::from(*count), *with as f64);
                let rarity = ((texts - with + 0.5) / (with + 0.5)).ln().max(1e-6);
                rarity * count * 2.2 / (count + length)
            })
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
        let text = |clauses: &[u32], tokens| Counts { clauses: clauses.to_vec(), tokens };
        let mut statistics = Statistics::default();
        for (clauses, tokens) in [([2, 0], 50), ([1, 1], 20), ([1, 0], 200)] {
            statistics.add(&text(&clauses, tokens));
        }
        (0..100).for_each(|_| statistics.add(&text(&[0, 0], 50)));
        let score = |clauses: &[u32], tokens| statistics.score(&text(clauses, tokens));
        assert!(score(&[2, 0], 50) > score(&[1, 0], 50));
        assert!(score(&[1, 0], 20) > score(&[1, 0], 200));
        assert!(score(&[1, 2], 50) > score(&[2, 1], 50), "the second clause is rarer");
        assert!(score(&[1, 0], 0) > 0.0);
    }
}
