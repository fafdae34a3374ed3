//! The end of a turn in a few words.

use azureal_core::event::{Complete, Outcome};
use azureal_core::{Tokens, duration_text};

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
        let mut sent = format!("{} in", short_count(tokens.input));
        let has_cache = tokens.cache_read > 0 || tokens.cache_write > 0;
        if let Some(percent) = percent(tokens.cache_read, tokens.input).filter(|_| has_cache) {
            sent.push_str(&format!(", {percent} % cached"));
        }
        parts.extend([sent, format!("{} out", short_count(tokens.output))]);
    }
    // Cents do not tell small costs apart.
    match complete.cost_usd {
        cost if cost >= 0.01 => parts.push(format!("${cost:.2}")),
        cost if cost > 0.0 => parts.push(format!("${cost:.4}")),
        _ => {}
    }
    parts
}

/// Returns a share in percent, rounded down: 100 % is all of it.
fn percent(part: u64, whole: u64) -> Option<u128> {
    (u128::from(part.min(whole)) * 100).checked_div(whole.into())
}

/// Returns a count in three digits or so: 999, 1.2k, 34k, 5.6M.
///
/// ```
/// assert_eq!(azureal_transcript::short_count(1_250), "1.2k");
/// ```
pub fn short_count(number: u64) -> String {
    let scaled = |unit: u64, letter: char| {
        let tenths = number / (unit / 10);
        if tenths < 100 {
            format!("{}.{}{letter}", tenths / 10, tenths % 10)
        } else {
            format!("{}{letter}", tenths / 10)
        }
    };
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => scaled(1_000, 'k'),
        1_000_000..1_000_000_000 => scaled(1_000_000, 'M'),
        _ => scaled(1_000_000_000, 'G'),
    }
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

    #[test]
    fn counts_are_short() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1.0k"), (34_999, "34k"), (5_600_000, "5.6M")]
        {
            assert_eq!(short_count(number), text);
        }
    }
}
