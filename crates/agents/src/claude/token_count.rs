//! The tokens of a run of Claude Code, from the several places that report them.

use azureal_core::event::Usage;

/// Tokens by the place that reports them.
#[derive(Default)]
pub(super) struct TokenCount {
    /// The requests that are over, from their streams.
    pub(super) finished: Usage,
    /// The request that is running.
    pub(super) running: Usage,
    /// The turns that are over, from their results: the main conversation only.
    pub(super) turns: Usage,
    /// The whole process, from its results: subagents too.
    process: Usage,
}

impl TokenCount {
    /// Returns the best known count: the program's total of all its requests, if it reports one.
    pub(super) fn total(&self) -> Usage {
        let reported = if size(&self.process) >= size(&self.turns) { self.process } else { self.turns };
        // A result without counts comes after an interruption.
        let total = if size(&reported) > 0 { reported } else { sum(self.finished, self.running) };
        // The request that ran last is the one that the model had everything before it in.
        Usage { context_tokens: Some(size(&self.running)).filter(|tokens| *tokens > 0), ..total }
    }

    /// Takes a count of the whole process so far. Results may come late: the largest is the newest.
    pub(super) fn counted_all(&mut self, all: Usage) {
        if all.input_tokens >= self.process.input_tokens && all.output_tokens >= self.process.output_tokens {
            self.process = all;
        }
    }
}

/// Returns what a request holds in the end: what was sent, and what came of it.
pub(super) fn size(usage: &Usage) -> u64 {
    usage.input_tokens.saturating_add(usage.output_tokens)
}

pub(super) fn sum(a: Usage, b: Usage) -> Usage {
    Usage {
        input_tokens: a.input_tokens.saturating_add(b.input_tokens),
        output_tokens: a.output_tokens.saturating_add(b.output_tokens),
        cache_read_tokens: a.cache_read_tokens.saturating_add(b.cache_read_tokens),
        cache_write_tokens: a.cache_write_tokens.saturating_add(b.cache_write_tokens),
        context_tokens: None,
    }
}

/// Returns the larger of each count.
pub(super) fn largest(a: Usage, b: Usage) -> Usage {
    Usage {
        input_tokens: a.input_tokens.max(b.input_tokens),
        output_tokens: a.output_tokens.max(b.output_tokens),
        cache_read_tokens: a.cache_read_tokens.max(b.cache_read_tokens),
        cache_write_tokens: a.cache_write_tokens.max(b.cache_write_tokens),
        context_tokens: None,
    }
}
