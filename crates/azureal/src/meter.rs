//! How large a context is, and how large it may become.

use azureal_core::agent::AgentOutput;
use azureal_core::{Event, SessionRecord, Threshold, visible_line};
use azureal_engine::{Accepted, TurnEvent, added_chars};
use serde::Serialize;

/// The context that the next agent receives, measured against the threshold of compaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Meter {
    /// In characters, the tags included.
    pub chars: u64,
    /// The provider's count of the last request, the agent's own instructions included; without one, an estimate from the
    /// characters.
    pub tokens: u64,
    /// Who counted the tokens: an agent, or [`ESTIMATE`].
    pub tokens_by: String,
    /// In characters.
    pub threshold: u64,
    /// The same in tokens, if it is configured so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold_tokens: Option<u64>,
    /// How full the session is: 100 is the threshold.
    pub percent: u64,
}

/// Stands for the counter of tokens that were estimated.
pub const ESTIMATE: &str = "estimate";

/// How tokens are estimated.
pub const ESTIMATED_BY: &str = "characters / 4";

/// Estimates tokens. Models count differently, and a count that is exact for one is wrong for the next.
pub fn estimated(chars: u64) -> u64 {
    chars.div_ceil(4)
}

impl Meter {
    /// Measures a session as it is stored. That costs no look at its events.
    pub fn of(record: &SessionRecord, threshold: Threshold) -> Self {
        Self::of_text(record, record.context_chars(), threshold)
    }

    /// Measures a session whose context was read, and has so many characters.
    pub fn of_text(record: &SessionRecord, chars: u64, threshold: Threshold) -> Self {
        let agent = record.counts.agent.as_deref().unwrap_or("the agent");
        let counted = record.counts.context_tokens.map(|tokens| (tokens, agent));
        Self::of_context(chars, counted, threshold)
    }

    /// Measures a context of so many characters, with its tokens and the agent that counted them, if one did.
    pub fn of_context(chars: u64, counted: Option<(u64, &str)>, threshold: Threshold) -> Self {
        let mut meter = Self {
            chars,
            tokens: 0,
            tokens_by: ESTIMATE.to_owned(),
            threshold: threshold.chars().max(1),
            threshold_tokens: match threshold {
                Threshold::Tokens(tokens) => Some(tokens.max(1)),
                Threshold::Chars(_) => None,
            },
            percent: 0,
        };
        meter.add(0);
        if let Some((tokens, agent)) = counted {
            meter.count(tokens, agent);
        }
        meter
    }

    /// Takes so much more to tell.
    pub fn add(&mut self, chars: u64) {
        self.chars = self.chars.saturating_add(chars);
        if self.tokens_by == ESTIMATE {
            self.tokens = estimated(self.chars);
        }
        self.fill();
    }

    fn fill(&mut self) {
        let (used, limit) = match self.threshold_tokens {
            Some(limit) => (self.tokens, limit),
            None => (self.chars, self.threshold),
        };
        self.percent = used.saturating_mul(100) / limit;
    }

    /// Takes what the provider counted, instead of an estimate.
    pub fn count(&mut self, tokens: u64, by: &str) {
        (self.tokens, self.tokens_by) = (tokens, by.to_owned());
        self.fill();
    }

    /// Lets go of a count that is not true any more.
    pub fn estimate(&mut self) {
        (self.tokens, self.tokens_by) = (estimated(self.chars), ESTIMATE.to_owned());
        self.fill();
    }

    /// Says who counted the tokens.
    pub fn tokens_line(&self) -> String {
        match self.tokens_by.as_str() {
            ESTIMATE => format!("{} (estimate: {ESTIMATED_BY})", grouped(self.tokens)),
            agent => {
                let tokens = grouped(self.tokens);
                format!("{tokens} ({} counted, its own instructions included)", visible_line(agent))
            }
        }
    }
}

/// Returns a number with its digits in groups: `12 300`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digits.len().saturating_sub(index) % 3 == 0 {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Measures the context of a session while a turn runs in it.
#[derive(Debug, Clone)]
pub struct TurnMeter {
    threshold: Threshold,
    agent: &'static str,
    meter: Option<Meter>,
}

impl TurnMeter {
    /// Creates the meter of a turn, which measures from [`accepted`](Self::accepted) on.
    pub fn new(threshold: Threshold) -> Self {
        Self { threshold, agent: "", meter: None }
    }

    /// Returns the context usage so far.
    pub fn meter(&self) -> Option<&Meter> {
        self.meter.as_ref()
    }

    /// Begins with the session as it is stored, and the prompt.
    pub fn accepted(&mut self, accepted: &Accepted, prompt: &str) {
        self.agent = accepted.agent;
        self.begin(&accepted.record, Some(prompt));
    }

    /// Measures an event of the turn.
    pub fn take(&mut self, event: &TurnEvent) {
        match event {
            // It may have been compacted.
            TurnEvent::Began(began) => {
                self.begin(&began.record, Some(began.prompt.as_str()).filter(|_| !began.continues));
            }
            TurnEvent::Output(output) => match (&**output, &mut self.meter) {
                (AgentOutput::Event(event), Some(meter)) => meter.add(added_chars(event)),
                (AgentOutput::Usage(usage), Some(meter)) => {
                    if let Some(tokens) = usage.context_tokens {
                        meter.count(tokens, self.agent);
                    }
                }
                _ => {}
            },
            TurnEvent::Stored(finished) => {
                let counted = finished.context_tokens.map(|tokens| (tokens, self.agent));
                self.meter = Some(Meter::of_context(finished.context_chars, counted, self.threshold));
            }
            _ => {}
        }
    }

    fn begin(&mut self, record: &SessionRecord, prompt: Option<&str>) {
        let mut meter = Meter::of(record, self.threshold);
        // An earlier turn's count is not of the context of this turn's model.
        meter.estimate();
        meter.add(prompt.map_or(0, |prompt| added_chars(&Event::user(prompt))));
        self.meter = Some(meter);
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::{Counts, SessionId};

    use super::*;

    fn record(rendered_chars: u64, opening: u64, context_tokens: Option<u64>) -> SessionRecord {
        let agent = Some("claude".to_owned());
        SessionRecord {
            counts: Counts { rendered_chars, context_tokens, agent, ..Counts::default() },
            opening,
            ..SessionRecord::new(SessionId::new(1).unwrap())
        }
    }

    #[test]
    fn what_would_be_sent_is_measured_against_the_threshold() {
        let record = record(10_001, 20_000, None);
        let chars = record.context_chars();
        assert!(chars > 30_001, "the tags are sent too");
        let mut meter = Meter::of(&record, Threshold::default());
        let expected = Meter {
            chars,
            tokens: chars.div_ceil(4),
            tokens_by: ESTIMATE.to_owned(),
            threshold: 400_000,
            threshold_tokens: None,
            percent: 7,
        };
        assert_eq!(meter, expected);
        meter.add(2_000);
        assert_eq!((meter.chars, meter.percent), (chars + 2_000, 8));
    }

    #[test]
    fn what_the_provider_counted_takes_the_place_of_an_estimate() {
        let mut meter = Meter::of(&record(10_000, 0, Some(21_400)), Threshold::Tokens(5_000));
        assert_eq!(meter.tokens_line(), "21 400 (claude counted, its own instructions included)");
        assert_eq!((meter.percent, meter.threshold), (428, 20_000), "of the provider's tokens");
        meter.add(1);
        assert_eq!(meter.tokens, 21_400);
        meter.estimate();
        assert_eq!(meter.tokens, meter.chars.div_ceil(4));
        assert!(meter.tokens_line().ends_with(" (estimate: characters / 4)"), "{}", meter.tokens_line());
    }
}
