//! How large a context is, and how large it may become.

use azureal_core::{SessionRecord, Threshold, visible_line};
use serde::Serialize;

use crate::config::Config;
use crate::output::warn;
use crate::project::Project;

/// Returns how large a session may become before it is compacted, as it is configured. For commands that only look:
/// they do not fail over a file that cannot be read, nor ask for trust.
pub(crate) fn threshold(project: &Project) -> Threshold {
    match Config::load(project) {
        Ok(config) => config.compaction_threshold(),
        Err(failure) => {
            warn(failure.message());
            Threshold::default()
        }
    }
}

/// What there is to tell of a session since its last compaction, against the threshold at which it is compacted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Meter {
    pub(crate) chars: u64,
    /// What the model has before it, its agent's own instructions included, where that was counted; else an estimate
    /// from the characters.
    pub(crate) tokens: u64,
    pub(crate) tokens_by: String,
    pub(crate) threshold: u64,
    pub(crate) percent: u64,
}

/// Who counts tokens where nobody has.
pub(crate) const ESTIMATE: &str = "estimate";

/// How tokens are estimated.
pub(crate) const ESTIMATED_BY: &str = "characters / 4";

/// Estimates tokens. Models count differently, and a count that is exact for one is wrong for the next.
pub(crate) fn estimated(chars: u64) -> u64 {
    chars.div_ceil(4)
}

impl Meter {
    /// Measures a session as it is stored. That costs no look at its events.
    pub(crate) fn of(record: &SessionRecord, threshold: Threshold) -> Self {
        let mut meter = Self {
            chars: record.told_since_compaction(),
            tokens: 0,
            tokens_by: ESTIMATE.to_owned(),
            threshold: threshold.chars().max(1),
            percent: 0,
        };
        meter.add(0);
        if let Some(tokens) = record.counts.context_tokens {
            meter.count(tokens, record.counts.agent.as_deref().unwrap_or("the agent"));
        }
        meter
    }

    /// Takes so much more to tell.
    pub(crate) fn add(&mut self, chars: u64) {
        self.chars = self.chars.saturating_add(chars);
        self.percent = self.chars.saturating_mul(100) / self.threshold;
        if self.tokens_by == ESTIMATE {
            self.tokens = estimated(self.chars);
        }
    }

    /// Takes what the provider counted, instead of an estimate.
    pub(crate) fn count(&mut self, tokens: u64, by: &str) {
        (self.tokens, self.tokens_by) = (tokens, by.to_owned());
    }

    /// Lets go of a count that is not true any more.
    pub(crate) fn estimate(&mut self) {
        (self.tokens, self.tokens_by) = (estimated(self.chars), ESTIMATE.to_owned());
    }

    /// Says who counted the tokens.
    pub(crate) fn tokens_line(&self) -> String {
        match self.tokens_by.as_str() {
            ESTIMATE => format!("{} (estimate)", self.tokens),
            agent => {
                format!("{} ({} counted, its own instructions included)", self.tokens, visible_line(agent))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::{Counts, SessionId};

    use super::*;

    fn record(told: u64, covered: u64, context_tokens: Option<u64>) -> SessionRecord {
        let agent = Some("claude".to_owned());
        SessionRecord {
            counts: Counts { told, context_tokens, agent, ..Counts::default() },
            covered,
            ..SessionRecord::new(SessionId::new(1).unwrap())
        }
    }

    #[test]
    fn what_came_since_the_last_compaction_is_measured_against_the_threshold() {
        let mut meter = Meter::of(&record(30_001, 20_000, None), Threshold::default());
        let expected = Meter {
            chars: 10_001,
            tokens: 2_501,
            tokens_by: ESTIMATE.to_owned(),
            threshold: 400_000,
            percent: 2,
        };
        assert_eq!(meter, expected);
        meter.add(2_000);
        assert_eq!((meter.chars, meter.tokens, meter.percent), (12_001, 3_001, 3));
    }

    #[test]
    fn what_the_provider_counted_takes_the_place_of_an_estimate() {
        let mut meter = Meter::of(&record(10_000, 0, Some(21_400)), Threshold::Tokens(5_000));
        assert_eq!(meter.tokens_line(), "21400 (claude counted, its own instructions included)");
        assert_eq!((meter.percent, meter.threshold), (50, 20_000), "of what would be compacted");
        meter.add(1);
        assert_eq!(meter.tokens, 21_400);
        meter.estimate();
        assert_eq!(meter.tokens_line(), "2501 (estimate)");
    }
}
