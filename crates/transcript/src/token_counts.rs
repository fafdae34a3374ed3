//! Tokens as people read them: `74k in, 93 % cached · 1.2k out`.

use azureal_core::Tokens;

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

/// Returns a cost in dollars; empty if there is none.
///
/// ```
/// assert_eq!(azureal_transcript::cost_text(0.001), "<$0.01");
/// ```
pub fn cost_text(dollars: f64) -> String {
    match dollars {
        dollars if dollars <= 0.0 => String::new(),
        dollars if dollars < 0.005 => "<$0.01".to_owned(),
        dollars if dollars < 1e9 => format!("${dollars:.2}"),
        dollars => format!("${dollars:.1e}"),
    }
}

/// Returns the tokens sent, with the share that was read from the provider's cache if the agents reported of one.
pub(crate) fn sent(tokens: Tokens) -> String {
    let mut text = format!("{} in", short_count(tokens.input));
    let has_cache = tokens.cache_read > 0 || tokens.cache_write > 0;
    if let Some(percent) = percent(tokens.cache_read, tokens.input).filter(|_| has_cache) {
        text.push_str(&format!(", {percent} % cached"));
    }
    text
}

/// Returns the tokens received.
pub(crate) fn received(tokens: Tokens) -> String {
    format!("{} out", short_count(tokens.output))
}

/// Returns all of it, with the share that was written to the cache.
pub fn tokens_in_detail(tokens: Tokens) -> String {
    let written = percent(tokens.cache_write, tokens.input).filter(|_| tokens.cache_write > 0);
    let written = written.map_or_else(String::new, |percent| format!(", {percent} % written"));
    format!("{}{written} · {}", sent(tokens), received(tokens))
}

/// Returns a share in percent, rounded down: 100 % is all of it. `None` of nothing.
fn percent(part: u64, whole: u64) -> Option<u128> {
    (u128::from(part.min(whole)) * 100).checked_div(whole.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_short() {
        for (number, text) in [
            (0, "0"),
            (950, "950"),
            (999, "999"),
            (1_000, "1.0k"),
            (1_250, "1.2k"),
            (7_400, "7.4k"),
            (34_999, "34k"),
            (999_999, "999k"),
            (1_250_000, "1.2M"),
            (5_600_000, "5.6M"),
            (u64::MAX, "18446744073G"),
        ] {
            assert_eq!(short_count(number), text);
        }
    }

    #[test]
    fn the_share_of_the_cache_is_rounded_down() {
        let used = |input, cache_read, cache_write| {
            tokens_in_detail(Tokens { cache_read, cache_write, ..Tokens::new(input, 1_200) })
        };
        for (tokens, expected) in [
            ((74_000, 69_500, 2_500), "74k in, 93 % cached, 3 % written · 1.2k out"),
            ((74_000, 73_999, 0), "74k in, 99 % cached · 1.2k out"),
            ((74_000, 74_000, 0), "74k in, 100 % cached · 1.2k out"),
            ((74_000, 0, 74_000), "74k in, 0 % cached, 100 % written · 1.2k out"),
            // No agent reported of a cache.
            ((74_000, 0, 0), "74k in · 1.2k out"),
            ((0, 0, 0), "0 in · 1.2k out"),
            // What no agent should report.
            ((0, 5, 5), "0 in · 1.2k out"),
            ((10, 20, 30), "10 in, 100 % cached, 100 % written · 1.2k out"),
            ((u64::MAX, u64::MAX - 1, 1), "18446744073G in, 99 % cached, 0 % written · 1.2k out"),
        ] {
            assert_eq!(used(tokens.0, tokens.1, tokens.2), expected);
        }
    }
}
