//! Made-up texts of exact lengths, always the same.

/// Words of the lengths that words in a conversation about code have.
const WORDS: [&str; 24] = [
    "the", "parser", "of", "a", "request", "returns", "error", "and", "list", "in", "session", "is", "token",
    "cache", "to", "worker", "with", "an", "index", "that", "reads", "buffer", "for", "state",
];
const LINE: usize = 90;

/// Returns a text of exactly this many characters, of lines that differ from those of every other seed.
pub(crate) fn text(seed: u64, characters: usize) -> String {
    let mut state = seed;
    let mut text = String::with_capacity(characters + LINE);
    let mut line_start = 0;
    while text.len() < characters {
        // SplitMix64: small, and good enough that no two texts have a beginning in common.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let chosen = (mixed % WORDS.len() as u64) as usize;
        text.extend(WORDS.get(chosen).copied());
        if text.len() - line_start > LINE {
            text.push('\n');
            line_start = text.len();
        } else {
            text.push(' ');
        }
    }
    text.truncate(characters);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_length_that_was_asked_for_and_is_always_the_same() {
        for characters in [0, 1, 90, 91, 20_000] {
            assert_eq!(text(1, characters).len(), characters);
        }
        assert_eq!(text(7, 500), text(7, 500));
        assert_ne!(text(7, 20), text(8, 20));
        assert!(text(7, 20_000).lines().all(|line| line.len() < 110));
    }
}
