//! How large a context is, and how large it may become.

use azureal_core::Threshold;
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

/// The size of a context against the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Meter {
    pub(crate) chars: u64,
    /// An estimate: models count differently, and a count that is exact for one is wrong for the next.
    pub(crate) tokens: u64,
    pub(crate) threshold: u64,
    pub(crate) percent: u64,
}

impl Meter {
    pub(crate) fn of(text: &str, threshold: Threshold) -> Self {
        let chars = text.chars().count() as u64;
        let threshold = threshold.chars().max(1);
        Self { chars, tokens: chars.div_ceil(4), threshold, percent: chars.saturating_mul(100) / threshold }
    }
}

/// A number of tokens, and what counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) tokens: u64,
    pub(crate) by: &'static str,
}

/// Counts tokens with the one large vocabulary that is public: that of OpenAI's models. For those of others
/// it is an estimate.
#[cfg(feature = "tokens")]
pub(crate) fn count_tokens(text: &str) -> Counted {
    // Made at the first use, which takes a quarter of a second; nothing else pays for it.
    let tokens = tiktoken_rs::o200k_base_singleton().encode_ordinary(text).len() as u64;
    Counted { tokens, by: "o200k" }
}

/// Estimates tokens from characters: this build has no vocabulary.
#[cfg(not(feature = "tokens"))]
pub(crate) fn count_tokens(text: &str) -> Counted {
    Counted { tokens: Meter::of(text, Threshold::default()).tokens, by: "characters / 4" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_measured_against_the_threshold() {
        let meter = Meter::of(&"ü".repeat(10_001), Threshold::default());
        assert_eq!(meter, Meter { chars: 10_001, tokens: 2_501, threshold: 400_000, percent: 2 });
    }

    #[cfg(feature = "tokens")]
    #[test]
    fn tokens_are_those_of_the_vocabulary() {
        assert_eq!(count_tokens("hello world"), Counted { tokens: 2, by: "o200k" });
        // What looks like a control token of a model is text like any other.
        assert!(count_tokens("<|endoftext|>").tokens > 1);
        assert_eq!(count_tokens("").tokens, 0);
    }
}
