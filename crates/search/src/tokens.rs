//! The tokens of a text: one tokenisation for texts and queries, in every store. `docs/search.md` is its page.
//!
//! [`tokens`] returns the tokens of a text as one string, with a space before and after each. So a phrase is a
//! substring, and an index that splits at spaces alone has the same tokens. A change of them needs another
//! [`TOKENS_VERSION`](azureal_core::TOKENS_VERSION).

use std::collections::HashSet;
use std::ops::Range;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The most characters of a word that count.
const LONGEST: usize = 64;

/// Stands before the parts of each identifier, so that no phrase goes from one identifier to the next. No word has it.
const BREAK: char = '\u{E002}';

/// Returns the tokens of a text: its words in their order, then the parts of its identifiers in camel case, each identifier once.
///
/// ```
/// use azureal_search::tokens;
///
/// assert_eq!(tokens("Read src/main.rs, v1.2"), " read src main rs v 1 2 ");
/// assert_eq!(tokens("a HashMap"), " a hashmap \u{E002} hash map ");
/// assert_eq!(tokens("検索 ok"), " 検 索 ok ");
/// ```
pub fn tokens(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 4 + 2);
    out.push(' ');
    let mut compounds: Vec<&str> = Vec::new();
    each_word(text, |range| {
        let word = text.get(range).unwrap_or_default();
        push_token(word, &mut out);
        if is_camel_case(word) {
            compounds.push(word);
        }
    });
    let mut seen = HashSet::new();
    for word in compounds {
        if seen.insert(word) {
            out.push(BREAK);
            out.push(' ');
            each_part(word, |range| push_token(word.get(range).unwrap_or_default(), &mut out));
        }
    }
    out
}

/// Returns the words of a text, as tokens, without the parts of identifiers.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    each_word(text, |range| words.push(token(text.get(range).unwrap_or_default())));
    words
}

/// A word of a text, or a part of one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// Its place in the text, in bytes.
    pub(crate) range: Range<usize>,
    /// Its token.
    pub(crate) token: String,
}

/// Calls a function with each word of a text, and the parts of it if it is an identifier in camel case, until the function returns false.
pub(crate) fn each_placed_word(text: &str, mut take: impl FnMut(Word, Vec<Word>) -> bool) {
    let placed =
        |range: Range<usize>| Word { token: token(text.get(range.clone()).unwrap_or_default()), range };
    let mut is_wanted = true;
    each_word(text, |range| {
        if !is_wanted {
            return;
        }
        let word = text.get(range.clone()).unwrap_or_default();
        let mut parts = Vec::new();
        if is_camel_case(word) {
            each_part(word, |part| parts.push(placed(range.start + part.start..range.start + part.end)));
        }
        is_wanted = take(placed(range), parts);
    });
}

/// The sorts of characters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// Part of a word.
    Word,
    /// A word of its own.
    Single,
    /// Belongs to the character before it.
    Mark,
    /// Counts as if it were not there.
    Ignored,
    /// Between words.
    Between,
}

fn sort_of(c: char) -> Sort {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' => Sort::Word,
        '\0'..='\u{7f}' => Sort::Between,
        // Soft hyphen, zero width space and joiners, variation selectors, byte order mark.
        '\u{AD}' | '\u{200B}'..='\u{200D}' | '\u{2060}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' => {
            Sort::Ignored
        }
        // The vowels and finals of Hangul syllables, which are composed with the consonant before them.
        '\u{1160}'..='\u{11FF}' | '\u{D7B0}'..='\u{D7FF}' => Sort::Mark,
        // Composed, these angle brackets are punctuation.
        '\u{2329}' | '\u{232A}' => Sort::Between,
        c if is_combining_mark(c) => Sort::Mark,
        c if is_single(c) => Sort::Single,
        c if c.is_alphanumeric() => Sort::Word,
        _ => Sort::Between,
    }
}

/// Returns whether a character is a word of its own: scripts that are written without spaces, pictures and emoji.
fn is_single(c: char) -> bool {
    matches!(c,
        // Thai, Lao, Myanmar, Khmer.
        '\u{0E00}'..='\u{0EFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{17FF}' if c.is_alphanumeric())
        || matches!(c,
            // Hangul, kana, Bopomofo, and Han with its extensions and its compatibility forms.
            '\u{1100}'..='\u{115F}' | '\u{3005}'..='\u{3007}' | '\u{3040}'..='\u{30FF}' | '\u{3100}'..='\u{31FF}'
            | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7AF}' | '\u{F900}'..='\u{FAFF}'
            | '\u{FF66}'..='\u{FFDC}' | '\u{1B000}'..='\u{1B16F}' | '\u{20000}'..='\u{3FFFF}' if c.is_alphanumeric())
        || matches!(c,
            // Technical symbols, symbols and dingbats, stars, flags and emoji.
            '\u{2300}'..='\u{23FF}' | '\u{2600}'..='\u{27BF}' | '\u{2B00}'..='\u{2BFF}' | '\u{1F000}'..='\u{1FAFF}')
}

/// Calls a function with the place of each word.
fn each_word(text: &str, mut take: impl FnMut(Range<usize>)) {
    let mut open: Option<(usize, Sort)> = None;
    let mut end = 0;
    let mut finish = |open: &mut Option<(usize, Sort)>, end: usize| {
        let Some((start, sort)) = open.take() else { return };
        let start = match version_mark(text, start, end) {
            Some(digits) if sort == Sort::Word => {
                take(start..digits);
                digits
            }
            _ => start,
        };
        take(start..end);
    };
    for (place, c) in text.char_indices() {
        let after = place + c.len_utf8();
        match (sort_of(c), open) {
            (Sort::Ignored, _) => continue,
            (Sort::Mark, Some(_)) | (Sort::Word, Some((_, Sort::Word))) => {}
            (Sort::Mark | Sort::Between, _) => finish(&mut open, end),
            (sort, _) => {
                finish(&mut open, end);
                open = Some((place, sort));
            }
        }
        end = after;
    }
    finish(&mut open, end);
}

/// Returns where the digits of `v1` begin, so that `1.2` finds `v1.2`.
fn version_mark(text: &str, start: usize, end: usize) -> Option<usize> {
    let mut bytes = text.get(start..end)?.bytes();
    let is_version = matches!(bytes.next()?, b'v' | b'V') && bytes.next()?.is_ascii_digit();
    is_version.then_some(start + 1)
}

/// Returns whether a word has several parts in camel case.
fn is_camel_case(word: &str) -> bool {
    let mut parts = 0;
    // Most words have no capital letter after the first.
    if word.is_ascii() && !word.bytes().skip(1).any(|byte| byte.is_ascii_uppercase()) {
        return false;
    }
    // No identifier is that long, but an encoded file is.
    if word.len() > LONGEST {
        return false;
    }
    each_part(word, |_| parts += 1);
    parts > 1
}

/// Calls a function with the place of each part of an identifier in camel case: `parseHTTPHeader` has `parse`, `HTTP` and `Header`.
fn each_part(word: &str, mut take: impl FnMut(Range<usize>)) {
    let mut start = 0;
    let mut before = None;
    let mut chars = word.char_indices().peekable();
    while let Some((place, c)) = chars.next() {
        let next_is_lower = chars.peek().is_some_and(|(_, next)| next.is_lowercase());
        let begins = c.is_uppercase()
            && before.is_some_and(|before: char| {
                before.is_lowercase() || ((before.is_numeric() || before.is_uppercase()) && next_is_lower)
            });
        if begins {
            take(start..place);
            start = place;
        }
        if !matches!(sort_of(c), Sort::Mark | Sort::Ignored) {
            before = Some(c);
        }
    }
    take(start..word.len());
}

fn token(word: &str) -> String {
    let mut token = String::with_capacity(word.len());
    push_text(word, &mut token);
    token
}

/// Appends the token of a word, and a space.
fn push_token(word: &str, out: &mut String) {
    push_text(word, out);
    out.push(' ');
}

/// Appends the token of a word: in lower case, composed, and cut.
fn push_text(word: &str, out: &mut String) {
    if word.is_ascii() {
        out.extend(word.chars().take(LONGEST).map(|c| c.to_ascii_lowercase()));
        return;
    }
    let kept = word.chars().filter(|c| sort_of(*c) != Sort::Ignored);
    // The small sigma has another form at the end of a word.
    let lower = kept.flat_map(char::to_lowercase).map(|c| if c == 'ς' { 'σ' } else { c });
    out.extend(lower.nfc().take(LONGEST));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_text_has_these_tokens() {
        for (text, expected) in [
            ("", " "),
            ("Fix the LOGIN test!", " fix the login test "),
            // Punctuation joins nothing: a path or an identifier in the query is a phrase.
            ("find_for_update std::fs::read", " find for update std fs read "),
            ("src/auth/token.rs:118", " src auth token rs 118 "),
            ("C:\\Temp\\x.log --dry-run", " c temp x log dry run "),
            ("user@host.example don't", " user host example don t "),
            // Camel case: the whole in its place, the parts behind, each identifier once.
            ("HashMap", " hashmap \u{E002} hash map "),
            (
                "parseHTTPHeader x parseHTTPHeader",
                " parsehttpheader x parsehttpheader \u{E002} parse http header ",
            ),
            ("fooBar BazQux", " foobar bazqux \u{E002} foo bar \u{E002} baz qux "),
            ("my_HashMap PostgreSQL", " my hashmap postgresql \u{E002} hash map \u{E002} postgre sql "),
            (
                "HTTP Http hTTP base64Encoder",
                " http http http base64encoder \u{E002} h ttp \u{E002} base64 encoder ",
            ),
            // Numbers and versions.
            ("v1.2.3 = 1.2.3, 0x1F, 10_000", " v 1 2 3 1 2 3 0x1f 10 000 "),
            ("sha256 utf8 x86_64 V8", " sha256 utf8 x86 64 v 8 "),
            // Scripts without spaces: a token per character, so that every substring is a phrase.
            ("検索する", " 検 索 す る "),
            ("全文search検索", " 全 文 search 検 索 "),
            ("안녕하세요", " 안 녕 하 세 요 "),
            ("\u{1112}\u{1161}\u{11AB}\u{1100}\u{116E}\u{11A8}어", " 한 국 어 "),
            ("ภาษา", " ภ า ษ า "),
            // Emoji; what only changes their look is ignored.
            ("done ✅🎉", " done ✅ 🎉 "),
            ("❤\u{FE0F} 👨\u{200D}👩", " ❤ 👨 👩 "),
            ("🇩🇪", " 🇩 🇪 "),
            // Accents, composed or not; capital letters of every script.
            ("Café", " café "),
            ("Cafe\u{301}", " café "),
            ("ÄPFEL ΟΔΟΣ Ёлка", " äpfel οδοσ ёлка "),
            ("soft\u{AD}hyphen", " softhyphen "),
            // A table's lines and arrows are no words.
            ("│ a ─ b │ -> {}", " a b "),
        ] {
            assert_eq!(tokens(text), expected, "{text}");
        }
    }

    #[test]
    fn of_a_long_word_the_beginning_counts() {
        let long = "a".repeat(1000);
        assert_eq!(tokens(&long), format!(" {} ", "a".repeat(LONGEST)));
        let long = "é".repeat(1000);
        assert_eq!(tokens(&long), format!(" {} ", "é".repeat(LONGEST)));
    }

    /// Returns the first words of a text, and their parts.
    fn placed_words(text: &str, at_most: usize) -> (Vec<Word>, Vec<Word>) {
        let (mut words, mut all_parts) = (Vec::new(), Vec::new());
        each_placed_word(text, |word, parts| {
            words.push(word);
            all_parts.extend(parts);
            words.len() < at_most
        });
        (words, all_parts)
    }

    #[test]
    fn words_have_their_places() {
        let text = "An éclair: parseHeader v2";
        let (words, parts) = placed_words(text, 9);
        let shown = |words: Vec<Word>| words.into_iter().map(|word| &text[word.range]).collect::<Vec<_>>();
        assert_eq!(shown(words), ["An", "éclair", "parseHeader", "v", "2"]);
        assert_eq!(shown(parts), ["parse", "Header"]);
        assert_eq!(shown(placed_words(text, 2).0), ["An", "éclair"]);
    }

    #[test]
    fn the_token_of_a_character_has_the_same_token() {
        for c in '\0'..='\u{3FFFF}' {
            let token = words(&format!("a{c}")).join(" ");
            assert_eq!(words(&token).join(" "), token, "{c:?}");
        }
    }

    proptest! {
        #[test]
        fn tokens_are_what_an_index_can_split(text in "\\PC{0,60}") {
            let tokens = tokens(&text);
            prop_assert!(tokens.starts_with(' ') && tokens.ends_with(' '));
            for token in tokens.trim_matches(' ').split(' ').filter(|token| *token != "\u{E002}") {
                prop_assert!(token.chars().all(|c| !c.is_ascii() || c.is_ascii_lowercase() || c.is_ascii_digit()), "{token:?}");
                let is_private = token.contains(['\u{E000}', '\u{E001}', '\u{E002}']);
                prop_assert!(!is_private);
                prop_assert!(token.chars().count() <= LONGEST);
            }
            prop_assert!(text.trim().is_empty() || !tokens.contains("  "), "{tokens:?}");
        }

        #[test]
        fn composition_does_not_matter(text in "([a-zäöé가-힣ｶﾞがเ検Åêँ] ?){0,30}") {
            let decomposed: String = text.nfd().collect();
            prop_assert_eq!(words(&decomposed), words(&text));
        }

        #[test]
        fn the_tokens_of_tokens_are_the_same(text in "\\PC{0,60}") {
            let words = words(&text).join(" ");
            // A version loses its letter the first time.
            prop_assume!(!words.contains('v'));
            prop_assert_eq!(super::words(&words).join(" "), words);
        }

        #[test]
        fn case_does_not_matter(text in "[a-zäöüβдЖ ]{0,40}") {
            prop_assert_eq!(words(&text.to_uppercase()), words(&text));
        }

        #[test]
        fn places_are_those_of_the_tokens(text in "[a-zA-Z0-9_ äÄ検✅.v]{0,60}") {
            let (placed, parts) = placed_words(&text, usize::MAX);
            let flat: Vec<&str> = placed.iter().map(|word| word.token.as_str()).collect();
            prop_assert_eq!(flat, words(&text));
            for word in placed.iter().chain(&parts) {
                prop_assert_eq!(&token(&text[word.range.clone()]), &word.token);
            }
        }
    }
}
