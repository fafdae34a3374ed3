//! What is searched for, and whether a text has it.

use std::collections::VecDeque;
use std::ops::Range;

use azureal_core::{IndexCondition, IndexKind, IndexPhrase};
use memchr::memmem;
use regex::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;

use crate::rank::Counts;
use crate::required::required;
use crate::tokens::{Word, each_placed_word, tokens, words};

/// The longest text of a query, in bytes.
const LONGEST_QUERY: usize = 4096;
/// The most words, phrases and prefixes of a query.
const MOST_CLAUSES: usize = 64;
/// The most memory that a compiled pattern takes, in bytes.
const LARGEST_PATTERN: usize = 4 << 20;

/// The reason why a text cannot be searched for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// It has no word.
    #[error("there is no word to search for")]
    NoWord,
    /// It is empty.
    #[error("there is no text to search for")]
    Empty,
    /// It is too long.
    #[error(
        "the text to search for is longer than {LONGEST_QUERY} bytes, or has more than {MOST_CLAUSES} words"
    )]
    TooLong,
    /// It is not a regular expression.
    #[error("{0}")]
    Pattern(String),
    /// It is a regular expression that takes too much memory.
    #[error("the regular expression is too large: repeat less, or with `+`")]
    LargePattern,
}

/// A query: what an event must have.
#[derive(Debug, Clone)]
pub enum Query {
    /// All of these words, phrases and prefixes.
    Words(Vec<Clause>),
    /// A match of this expression.
    Pattern(Pattern),
}

/// A regular expression, or a text as it is.
#[derive(Debug, Clone)]
pub struct Pattern {
    regex: Regex,
    /// The trigrams that every match has; `None` if there is none.
    required: Option<IndexCondition>,
}

/// Whether capital letters of a [`Pattern`] differ from small ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// They do.
    Sensitive,
    /// They do not.
    Ignored,
}

/// A word, a phrase or a prefix: tokens that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clause {
    /// The tokens; at least one.
    pub tokens: Vec<String>,
    /// Whether the last token is the beginning of one.
    pub is_prefix: bool,
    /// The tokens as [`tokens`] writes them in a text.
    needle: String,
}

impl Clause {
    /// Creates a clause; `None` without tokens.
    fn new(text: &str, is_prefix: bool) -> Option<Self> {
        let tokens = words(text);
        if tokens.is_empty() {
            return None;
        }
        let end = if is_prefix { "" } else { " " };
        let needle = format!(" {}{end}", tokens.join(" "));
        Some(Self { tokens, is_prefix, needle })
    }

    /// Returns its place in a text if it matches the last words.
    fn place(&self, words: &VecDeque<Word>) -> Option<Range<usize>> {
        let first = words.len().checked_sub(self.tokens.len())?;
        let last = self.tokens.len().checked_sub(1)?;
        let mut pairs = words.range(first..).zip(&self.tokens).enumerate();
        let is_here = pairs.all(|(index, (found, wanted))| match self.is_prefix && index == last {
            true => found.token.starts_with(wanted.as_str()),
            false => found.token == *wanted,
        });
        is_here.then_some(words.get(first)?.range.start..words.back()?.range.end)
    }
}

impl Query {
    /// Reads a query: words, `"phrases"`, and prefixes as `word*`. A word with punctuation inside, such as a path, is a phrase.
    ///
    /// ```
    /// use azureal_search::Query;
    ///
    /// let query = Query::words("token \"lock row\" find_for*").unwrap();
    /// assert!(query.matches("find_for_update: lock row, then the TOKEN"));
    /// assert!(!query.matches("the token locks a row: find_for_update"));
    /// assert!(Query::words("->").is_err());
    /// ```
    pub fn words(text: &str) -> Result<Self, QueryError> {
        if text.len() > LONGEST_QUERY {
            return Err(QueryError::TooLong);
        }
        let mut clauses = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let piece;
            if let Some(quoted) = rest.strip_prefix('"') {
                (piece, rest) = quoted.split_once('"').unwrap_or((quoted, ""));
            } else {
                let end = rest.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(rest.len());
                (piece, rest) = rest.split_at(end);
            }
            let is_prefix = match rest.strip_prefix('*') {
                Some(after) => {
                    rest = after;
                    true
                }
                None => piece.ends_with('*'),
            };
            clauses.extend(Clause::new(piece, is_prefix).filter(|clause| !clauses.contains(clause)));
            rest = rest.trim_start();
        }
        match clauses.len() {
            0 => Err(QueryError::NoWord),
            count if count > MOST_CLAUSES => Err(QueryError::TooLong),
            _ => Ok(Self::Words(clauses)),
        }
    }

    /// Parses a query that is still being typed: the last word is the beginning of one, if it has three characters or more.
    pub fn typed(text: &str) -> Result<Self, QueryError> {
        let query = Self::words(text)?;
        let is_open = text.matches('"').count().is_multiple_of(2)
            && text.chars().last().is_some_and(char::is_alphanumeric);
        match query {
            Self::Words(mut clauses) if is_open => {
                if let Some(last) = clauses.last_mut()
                    && !last.is_prefix
                    && last.tokens.last().is_some_and(|token| token.chars().count() >= 3)
                {
                    last.is_prefix = true;
                    last.needle.pop();
                }
                Ok(Self::Words(clauses))
            }
            query => Ok(query),
        }
    }

    /// Reads a regular expression.
    pub fn pattern(text: &str, case: Case) -> Result<Self, QueryError> {
        if text.len() > LONGEST_QUERY {
            return Err(QueryError::TooLong);
        }
        if text.is_empty() {
            return Err(QueryError::Empty);
        }
        let ignores_case = case == Case::Ignored;
        let parsed = ParserBuilder::new().case_insensitive(ignores_case).build().parse(text);
        let parsed = parsed.map_err(|error| QueryError::Pattern(on_one_line(&error, text)))?;
        let regex =
            RegexBuilder::new(text).case_insensitive(ignores_case).size_limit(LARGEST_PATTERN).build();
        let regex = regex.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => QueryError::LargePattern,
            error => QueryError::Pattern(error.to_string()),
        })?;
        Ok(Self::Pattern(Pattern { regex, required: required(&parsed) }))
    }

    /// Reads a text that is searched for as it is.
    ///
    /// ```
    /// use azureal_search::{Case, Query};
    ///
    /// let query = Query::fixed("Foo(->", Case::Sensitive).unwrap();
    /// assert!(query.matches("aFoo(->b") && !query.matches("foo(->"));
    /// ```
    pub fn fixed(text: &str, case: Case) -> Result<Self, QueryError> {
        if text.len() > LONGEST_QUERY {
            return Err(QueryError::TooLong);
        }
        Self::pattern(&regex::escape(text), case)
    }

    /// Returns the index that narrows this query down, and what it is asked for; `None` if every event must be read.
    pub fn required(&self) -> Option<(IndexKind, IndexCondition)> {
        match self {
            Self::Words(clauses) => {
                let phrase = |Clause { tokens, is_prefix, .. }: &Clause| {
                    IndexCondition::Phrase(IndexPhrase { tokens: tokens.clone(), is_prefix: *is_prefix })
                };
                Some((IndexKind::Words, IndexCondition::All(clauses.iter().map(phrase).collect())))
            }
            Self::Pattern(pattern) => Some((IndexKind::Substrings, pattern.required.clone()?)),
        }
    }

    /// Returns whether a text matches: the definition of every search.
    pub fn matches(&self, text: &str) -> bool {
        match self {
            Self::Words(clauses) => {
                let tokens = tokens(text);
                clauses
                    .iter()
                    .all(|clause| memmem::find(tokens.as_bytes(), clause.needle.as_bytes()).is_some())
            }
            Self::Pattern(pattern) => pattern.regex.is_match(text),
        }
    }

    /// Counts the clauses and the tokens of a text; `None` if all texts that match have the same rank.
    pub(crate) fn counts(&self, text: &str) -> Option<Counts> {
        let Self::Words(clauses) = self else { return None };
        let tokens = tokens(text);
        let count = |clause: &Clause| count_places(tokens.as_bytes(), clause.needle.as_bytes());
        Some(Counts {
            clauses: clauses.iter().map(count).collect(),
            tokens: tokens.split_ascii_whitespace().count() as u64,
        })
    }

    /// Returns the number of its clauses.
    pub(crate) fn clauses(&self) -> usize {
        match self {
            Self::Words(clauses) => clauses.len(),
            Self::Pattern(_) => 1,
        }
    }

    /// Calls a function with each place of a text that matches and the number of its clause, the one that ends first first, until the
    /// function returns false.
    pub(crate) fn each_place(&self, text: &str, mut take: impl FnMut(usize, Range<usize>) -> bool) {
        match self {
            Self::Words(clauses) => each_place_of(clauses, text, take),
            Self::Pattern(pattern) => {
                let mut places = pattern.regex.find_iter(text).map(|found| found.range());
                let _ = places.all(|range| range.is_empty() || take(0, range));
            }
        }
    }

    /// Returns the places of a text that match and begin in a part of it, in order and apart from each other.
    pub fn places(&self, text: &str, part: Range<usize>) -> Vec<Range<usize>> {
        let mut places = Vec::new();
        self.each_place(text, |_, place| {
            let is_before_end = place.start < part.end;
            if part.contains(&place.start) {
                places.push(place);
            }
            is_before_end
        });
        if let Self::Pattern(_) = self {
            return places;
        }
        places.sort_by_key(|range| (range.start, range.end));
        let mut merged: Vec<Range<usize>> = Vec::new();
        for place in places {
            match merged.last_mut() {
                Some(last) if place.start <= last.end => last.end = last.end.max(place.end),
                _ => merged.push(place),
            }
        }
        merged
    }
}

/// Returns what is wrong with an expression, and at which of its characters.
fn on_one_line(error: &regex_syntax::Error, text: &str) -> String {
    let (what, place) = match error {
        regex_syntax::Error::Parse(error) => (error.kind().to_string(), error.span().start.offset),
        regex_syntax::Error::Translate(error) => (error.kind().to_string(), error.span().start.offset),
        error => return error.to_string(),
    };
    let before = text.get(..place).unwrap_or_default().chars().count();
    format!("{what} (character {})", before + 1)
}

/// Counts the places of a needle. They overlap: the space behind a word is that before the next.
fn count_places(text: &[u8], needle: &[u8]) -> u32 {
    let finder = memmem::Finder::new(needle);
    let mut rest = text;
    let mut count = 0u32;
    while let Some(place) = finder.find(rest) {
        count = count.saturating_add(1);
        rest = rest.get(place + 1..).unwrap_or_default();
    }
    count
}

/// Only the last words are kept: a text may have millions.
fn each_place_of(clauses: &[Clause], text: &str, mut take: impl FnMut(usize, Range<usize>) -> bool) {
    let longest = clauses.iter().map(|clause| clause.tokens.len()).max().unwrap_or(0);
    let mut take_ends = |words: &mut VecDeque<Word>, word: Word| {
        if words.len() == longest {
            words.pop_front();
        }
        words.push_back(word);
        let mut places =
            clauses.iter().enumerate().filter_map(|(number, clause)| Some((number, clause.place(words)?)));
        places.all(|(number, place)| take(number, place))
    };
    let mut words = VecDeque::with_capacity(longest);
    each_placed_word(text, |word, parts| {
        let mut parts_before = VecDeque::new();
        take_ends(&mut words, word) && parts.into_iter().all(|part| take_ends(&mut parts_before, part))
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(query: &str, text: &str) -> bool {
        Query::words(query).unwrap().matches(text)
    }

    #[test]
    fn words_phrases_and_prefixes() {
        let text = "Two refreshes race on the token row in src/auth/token.rs: see find_for_update() and HashMap::new, 検索エンジン ✅ v1.2.3";
        for query in [
            "token",
            "RACE row",
            "row race",
            "\"token row\"",
            "refresh*",
            "\"the tok\"*",
            "\"the tok*\"",
            "find_for_update",
            "find_for*",
            "update",
            "src/auth/token.rs",
            "auth/token",
            "token.rs",
            "HashMap",
            "hashmap",
            "hash",
            "\"hash map\"",
            "hash_map",
            "HashMap::new",
            "検索",
            "索エ",
            "エンジン",
            "✅",
            "1.2",
            "v1.2",
            "\"token row",
            "two \"race on\" find*",
        ] {
            assert!(found(query, text), "{query}");
        }
        for query in [
            "tok",
            "\"row token\"",
            "race lock",
            "hashma",
            "new_hash",
            "索検",
            "🎉",
            "2.1",
            "mapnew",
            "\"map new\"",
        ] {
            assert!(!found(query, text), "{query}");
        }
    }

    #[test]
    fn a_query_needs_a_word() {
        for text in ["", "  ", "->", "\"\"", "* \"*\" ()"] {
            assert_eq!(Query::words(text).unwrap_err(), QueryError::NoWord, "{text}");
        }
        assert_eq!(Query::words(&"x ".repeat(3000)).unwrap_err(), QueryError::TooLong);
        let many: Vec<String> = (0..65).map(|number| format!("w{number}")).collect();
        assert_eq!(Query::words(&many.join(" ")).unwrap_err(), QueryError::TooLong);
        assert!(Query::words(&"x ".repeat(1000)).is_ok(), "the same word counts once");
    }

    #[test]
    fn the_last_word_of_somebody_who_types_may_be_unfinished() {
        let found = |query: &str| Query::typed(query).unwrap().matches("the token bucket");
        assert!(["tok", "the buck", "token bu*", "the token"].into_iter().all(found));
        assert!(!["to", "tok ", "\"tok\"", "\"token buc", "toc"].into_iter().any(found));
    }

    #[test]
    fn a_pattern_is_searched_as_it_is() {
        let pattern = |text: &str| Query::pattern(text, Case::Sensitive);
        let query = pattern(r"tok\w+ (row|bucket)").unwrap();
        assert!(query.matches("the token row") && !query.matches("the TOKEN row"));
        assert!(pattern(r"(?i)ROW\b").unwrap().matches("a row"));
        assert!(Query::pattern(r"ROW\b", Case::Ignored).unwrap().matches("a row"));
        assert!(matches!(pattern("("), Err(QueryError::Pattern(_))));
        assert_eq!(pattern(r"\w{1000}{1000}").unwrap_err(), QueryError::LargePattern);
        assert_eq!(pattern("").unwrap_err(), QueryError::Empty);
        let places = pattern("a*").unwrap().places("baab", 0..9);
        assert_eq!(places.as_slice(), std::slice::from_ref(&(1..3)));
    }

    #[test]
    fn a_text_is_found_as_it_is() {
        let found = |text: &str, case| Query::fixed(text, case).unwrap().matches("fn Foo(a) -> É[0-9]\n  x");
        for text in ["->", "oo(a", "[0-9]", "É", "]\n ", " "] {
            assert!(found(text, Case::Sensitive), "{text}");
        }
        for text in ["foo(", "É0", ".", "a)->", "E\u{301}"] {
            assert!(!found(text, Case::Sensitive), "{text}");
        }
        assert!(found("foo(A", Case::Ignored) && found("é", Case::Ignored));
        assert_eq!(Query::fixed("", Case::Ignored).unwrap_err(), QueryError::Empty);
        assert_eq!(Query::fixed(&"x".repeat(5000), Case::Ignored).unwrap_err(), QueryError::TooLong);
    }

    #[test]
    fn matches_have_places() {
        let text = "a HashMap of maps: hash_map, Map";
        let places = |query: &str| {
            let places = Query::words(query).unwrap().places(text, 0..99);
            places.into_iter().map(|range| text[range].to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(places("map"), ["Map", "map", "Map"]);
        assert_eq!(places("hash_map"), ["HashMap", "hash_map"]);
        assert_eq!(places("map*"), ["Map", "maps", "map", "Map"]);
        assert_eq!(places("hash map"), ["HashMap", "hash", "map", "Map"]);
        assert_eq!(places("of_maps a"), ["a", "of maps"]);
        let in_part = Query::words("map").unwrap().places(text, 3..20);
        assert_eq!(in_part.as_slice(), std::slice::from_ref(&(6..9)));
    }

    #[test]
    fn whole_words_are_counted() {
        let counts = |query: &str| {
            let counts = Query::words(query).unwrap().counts("tok tok token: TOK, a tok a a a").unwrap();
            (counts.clauses, counts.tokens)
        };
        for (query, expected) in
            [("tok", 4), ("tok*", 5), ("\"tok a\"", 2), ("\"tok tok\"", 1), ("\"a a\"", 2), ("b", 0)]
        {
            assert_eq!(counts(query), (vec![expected], 9), "{query}");
        }
        assert_eq!(counts("a tok*").0, [4, 5]);
    }

    proptest! {
        #[test]
        fn a_text_is_found_by_each_of_its_words_and_by_all_of_it(text in "[a-zA-Z0-9_ äÄ検索✅./:-]{0,50}") {
            prop_assume!(Query::words(&text).is_ok());
            let phrase = format!("\"{text}\"");
            prop_assert!(found(&phrase, &text));
            prop_assert!(found(&text, &text));
            for word in words(&text) {
                prop_assert!(found(&word, &text), "{word}");
                let first: String = word.chars().take(1).collect();
                let prefix = format!("{first}*");
                prop_assert!(found(&prefix, &text), "{prefix}");
            }
        }

        #[test]
        fn a_match_has_a_place_and_a_place_means_a_match(
            query in "[abAB_ *\"検]{1,8}",
            text in "[abAB_ 検]{0,30}",
        ) {
            if let Ok(query) = Query::words(&query) {
                let is_match = query.matches(&text);
                prop_assert_eq!(query.counts(&text).unwrap().has_all(), is_match);
                let places = query.places(&text, 0..999);
                prop_assert!(!is_match || !places.is_empty());
                if let Query::Words(clauses) = &query && clauses.len() == 1 {
                    prop_assert_eq!(is_match, !places.is_empty(), "{:?}", places);
                }
            }
        }

        #[test]
        fn any_query_and_any_text_are_taken(query in "\\PC{0,30}", text in "\\PC{0,60}") {
            if let Ok(query) = Query::words(&query) {
                let _ = (query.matches(&text), query.places(&text, 0..999), query.counts(&text));
            }
            let _ = Query::typed(&query);
        }
    }
}
