//! The tokens of an index of substrings: all three characters of a text that follow each other.
//!
//! They are folded more than any query ignores, so that an index finds every event that may match. A change of them needs another
//! [`TOKENS_VERSION`](azureal_core::TOKENS_VERSION).

/// The characters of a trigram.
const LENGTH: usize = 3;
/// Trigrams of a long text are sorted and deduplicated when there are so many.
const AT_ONCE: usize = 1 << 16;
/// Stands for the ASCII characters that an index would split at: the code of each follows it.
const SIGNS: u32 = 0xE100;

/// Returns the distinct trigrams of a text, with a space before and after each.
pub(crate) fn trigram_tokens(text: &str) -> String {
    let (mut found, mut full) = (Vec::new(), AT_ONCE);
    for trigram in each_trigram(text) {
        found.push(trigram);
        if found.len() >= full {
            found.sort_unstable();
            found.dedup();
            full = found.len() * 2 + AT_ONCE;
        }
    }
    found.sort_unstable();
    found.dedup();
    let mut tokens = String::with_capacity(found.len() * 6 + 1);
    tokens.push(' ');
    for trigram in found {
        tokens.extend(trigram);
        tokens.push(' ');
    }
    tokens
}

/// Returns the trigrams of a text, in their order.
pub(crate) fn trigrams(text: &str) -> Vec<String> {
    each_trigram(text).map(String::from_iter).collect()
}

fn each_trigram(text: &str) -> impl Iterator<Item = [char; LENGTH]> {
    let mut next = ['\0'; LENGTH];
    let all = text.chars().map(move |c| {
        next = [next[1], next[2], folded(c)];
        next
    });
    all.skip(LENGTH - 1)
}

/// Returns one character for all that differ in case alone, and one that is part of a token for those that are not.
pub(crate) fn folded(c: char) -> char {
    match c {
        'a'..='z' | '0'..='9' => c,
        'A'..='Z' => c.to_ascii_lowercase(),
        '\0'..='\u{7f}' => char::from_u32(SIGNS + u32::from(c)).unwrap_or(c),
        // Pairs that case mappings of one character do not join: iota and upsilon with dialytika and tonos or oxia, and the ligature st.
        '\u{1FD3}' => '\u{0390}',
        '\u{1FE3}' => '\u{03B0}',
        '\u{FB05}' => '\u{FB06}',
        c => single(single(c, char::to_uppercase), char::to_lowercase),
    }
}

/// Applies a mapping, if the result is one character.
fn single<I: Iterator<Item = char>>(c: char, map: impl Fn(char) -> I) -> char {
    let mut mapped = map(c);
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

    use super::*;

    #[test]
    fn every_three_characters_are_a_token() {
        assert_eq!(trigram_tokens("banana"), " ana ban nan ");
        assert_eq!(trigram_tokens("FOO foo"), " foo oo\u{E120} o\u{E120}f \u{E120}fo ");
        assert_eq!(trigram_tokens("検索エン"), " 検索エ 索エン ");
        assert_eq!(trigram_tokens("ab"), " ");
        assert_eq!(trigrams("a->b"), ["a\u{E12D}\u{E13E}", "\u{E12D}\u{E13E}b"]);
        let long: String = (0..500_000_u32).map(|number| if number % 7 == 0 { 'x' } else { 'y' }).collect();
        assert_eq!(trigram_tokens(&long).len(), 1 + 4 * 4);
    }

    /// The tables of the expressions say which characters differ in case alone.
    #[test]
    fn whatever_an_expression_takes_for_equal_is_folded_to_the_same() {
        for c in '\0'..='\u{1FFFF}' {
            let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
            class.case_fold_simple();
            for other in class.iter().flat_map(|range| range.start()..=range.end()) {
                assert_eq!(folded(c), folded(other), "{c:?} {other:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn the_trigrams_of_a_part_are_trigrams_of_the_whole(text in "\\PC{0,40}", start in 0..40_usize, count in 0..40_usize) {
            let part: String = text.chars().skip(start).take(count).collect();
            let all = trigrams(&text);
            prop_assert!(trigrams(&part).iter().all(|trigram| all.contains(trigram)));
        }

        #[test]
        fn trigrams_are_what_an_index_can_split(text in "(?s).{0,40}") {
            let tokens = trigram_tokens(&text);
            for token in tokens.split(' ').filter(|token| !token.is_empty()) {
                prop_assert!(token.chars().all(|c| !c.is_ascii() || c.is_ascii_lowercase() || c.is_ascii_digit()), "{token:?}");
                prop_assert_eq!(token.chars().count(), LENGTH);
            }
        }
    }
}
