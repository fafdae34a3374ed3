//! What turns took.

use azureal_core::event::{Complete, Usage};
use azureal_core::{SessionRecord, Tokens, TurnTotals};
use serde::{Deserialize, Serialize};

/// Tokens, their cost, and time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Counted {
    /// Input, output, read from and written to the cache.
    tokens: [u64; 4],
    cost_usd: f64,
    duration_ms: u64,
}

impl Counted {
    /// Returns what a turn took.
    pub(crate) fn of(complete: &Complete) -> Self {
        let tokens = complete.usage.unwrap_or_default().into();
        Self::new(tokens, complete.cost_usd, complete.duration_ms)
    }

    /// Returns the totals of a session.
    pub(crate) fn of_record(record: &SessionRecord) -> Self {
        Self::new(record.tokens, record.cost_usd, record.duration_ms)
    }

    pub(crate) fn new(tokens: Tokens, cost_usd: f64, duration_ms: u64) -> Self {
        let Tokens { input, output, cache_read, cache_write } = tokens;
        Self { tokens: [input, output, cache_read, cache_write], cost_usd, duration_ms }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add, self.cost_usd + other.cost_usd)
    }

    /// Returns what is left of each number, at least 0.
    #[must_use]
    pub(crate) fn minus(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub, (self.cost_usd - other.cost_usd).max(0.0))
    }

    fn with(self, other: Self, of: fn(u64, u64) -> u64, cost_usd: f64) -> Self {
        let mut tokens = self.tokens;
        tokens.iter_mut().zip(other.tokens).for_each(|(own, other)| *own = of(*own, other));
        Self { tokens, cost_usd, duration_ms: of(self.duration_ms, other.duration_ms) }
    }

    pub(crate) fn tokens(self) -> Tokens {
        let [input, output, cache_read, cache_write] = self.tokens;
        Tokens { input, output, cache_read, cache_write }
    }

    pub(crate) fn duration_ms(self) -> u64 {
        self.duration_ms
    }

    /// Returns cost and time as the totals of a turn.
    pub(crate) fn totals(self, completed: Option<bool>) -> TurnTotals {
        TurnTotals { completed, duration_ms: self.duration_ms, cost_usd: self.cost_usd }
    }

    /// Puts the tokens and the cost into the end of a turn.
    pub(crate) fn put(self, complete: &mut Complete) {
        let [input_tokens, output_tokens, cache_read_tokens, cache_write_tokens] = self.tokens;
        let context_tokens = complete.usage.and_then(|usage| usage.context_tokens);
        let usage =
            Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, context_tokens };
        complete.usage = Some(usage).filter(|usage| *usage != Usage::default());
        complete.cost_usd = self.cost_usd;
    }
}
