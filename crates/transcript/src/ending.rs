//! The end of a turn in a few words.

use azureal_core::event::{Complete, Outcome};
use azureal_core::{Tokens, duration_text};

use crate::token_counts::{received, sent};

/// Returns how a turn ended and what it used, in parts: `done in 12 s`, `74k in, 93 % cached`, `1.2k out`, `$0.04`.
/// Parts that are not known are left out.
pub fn ending(complete: &Complete) -> Vec<String> {
    let (outcome, took) = (complete.ending(), duration_text(complete.duration_ms));
    let mut parts = vec![match outcome {
        // A timeout is set in seconds.
        Outcome::Timeout => format!("{outcome} after {}", took.replace(".0 s", " s")),
        _ => format!("{outcome} in {took}"),
    }];
    let tokens = complete.usage.map(Tokens::from).unwrap_or_default();
    if tokens.input > 0 || tokens.output > 0 {
        parts.extend([sent(tokens), received(tokens)]);
    }
    // Cents do not tell small costs apart.
    match complete.cost_usd {
        cost if cost >= 0.01 => parts.push(format!("${cost:.2}")),
        cost if cost > 0.0 => parts.push(format!("${cost:.4}")),
        _ => {}
    }
    parts
}

#[cfg(test)]
mod tests {
    use azureal_core::event::Usage;

    use super::*;

    #[test]
    fn parts_that_are_not_known_are_left_out() {
        let usage = Usage {
            input_tokens: 74_000,
            output_tokens: 1_200,
            cache_read_tokens: 69_000,
            ..Usage::default()
        };
        let complete = Complete { success: true, duration_ms: 12_000, cost_usd: 0.04, ..Complete::default() };
        assert_eq!(ending(&complete), ["done in 12 s", "$0.04"]);
        let complete = Complete { usage: Some(usage), cost_usd: 0.002, ..complete };
        assert_eq!(ending(&complete), ["done in 12 s", "74k in, 93 % cached", "1.2k out", "$0.0020"]);
        let late = Complete { outcome: Some(Outcome::Timeout), duration_ms: 3_000, ..Complete::default() };
        assert_eq!(ending(&late), ["timed out after 3 s"]);
    }
}
