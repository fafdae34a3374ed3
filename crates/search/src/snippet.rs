//! The part of a text that is shown of a hit.

use std::collections::VecDeque;

use crate::query::Query;

/// The characters before the first match.
const BEFORE: usize = 40;
/// The most characters of a snippet.
const LONGEST: usize = 200;
/// The most bytes of a text that are looked at for them: white space is squeezed.
const LONGEST_PART: usize = 16 * LONGEST;
/// The most matches that are marked, and the number of matches after which a better part of the text is not looked for.
const MOST_MATCHES: usize = 64;

/// A part of a text on one line, with the matches in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snippet {
    /// The pieces, in their order.
    pub pieces: Vec<SnippetPiece>,
    /// Whether the text has more before it.
    pub is_cut_before: bool,
    /// Whether the text has more after it.
    pub is_cut_after: bool,
}

/// A piece of a snippet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnippetPiece {
    /// The text, without line breaks; other control characters are as they are stored.
    pub text: String,
    /// Whether the query matches here.
    pub is_match: bool,
}

impl Snippet {
    /// Returns the snippet of a text that matches.
    pub fn of(text: &str, query: &Query) -> Self {
        let start = back(text, best_start(text, query), BEFORE);
        let places = query.places(text, start..start.saturating_add(LONGEST_PART));
        let mut snippet = Self {
            is_cut_before: !text.get(..start).unwrap_or_default().trim().is_empty(),
            ..Self::default()
        };
        let mut left = LONGEST;
        let mut at = start;
        for place in places.into_iter().take(MOST_MATCHES) {
            let is_whole = snippet.push(text.get(at..place.start).unwrap_or_default(), false, &mut left)
                && snippet.push(text.get(place.clone()).unwrap_or_default(), true, &mut left);
            at = place.end;
            if !is_whole {
                snippet.is_cut_after = true;
                return snippet;
            }
        }
        let rest = text.get(at..).unwrap_or_default();
        snippet.is_cut_after = !snippet.push(rest.trim_end(), false, &mut left);
        snippet
    }

    /// Returns the text.
    pub fn text(&self) -> String {
        self.pieces.iter().map(|piece| piece.text.as_str()).collect()
    }

    /// Appends a piece with its white space squeezed; returns whether there was room for all of it.
    fn push(&mut self, text: &str, is_match: bool, left: &mut usize) -> bool {
        let mut piece = String::new();
        let mut is_space = self.pieces.last().is_none_or(|last| last.text.ends_with(' '));
        let mut is_whole = true;
        for c in text.chars() {
            if c.is_whitespace() && is_space {
                continue;
            }
            if *left == 0 {
                is_whole = false;
                break;
            }
            is_space = c.is_whitespace();
            piece.push(if is_space { ' ' } else { c });
            *left -= 1;
        }
        if !piece.is_empty() {
            self.pieces.push(SnippetPiece { text: piece, is_match });
        }
        is_whole
    }
}

/// Returns where matches of the most clauses are near each other, and of such places the one with the most matches.
fn best_start(text: &str, query: &Query) -> usize {
    // The clause and the start of each match that is near the last one, and the number of those of each clause.
    let mut near: VecDeque<(usize, usize)> = VecDeque::new();
    let mut counts = vec![0_usize; query.clauses()];
    let (mut best, mut best_start, mut seen) = ((0, 0), 0, 0);
    query.each_place(text, |clause, place| {
        while let Some((clause, _)) = near.pop_front_if(|(_, start)| *start + LONGEST / 2 <= place.start) {
            counts.get_mut(clause).into_iter().for_each(|count| *count -= 1);
        }
        near.push_back((clause, place.start));
        counts.get_mut(clause).into_iter().for_each(|count| *count += 1);
        let clauses = counts.iter().filter(|count| **count > 0).count();
        if (clauses, near.len()) > best {
            best = (clauses, near.len());
            best_start = near.front().map_or(0, |(_, start)| *start);
        }
        seen += 1;
        seen < MOST_MATCHES || best.0 < counts.len()
    });
    best_start
}

/// Returns the place so many characters before another one, or the beginning of its line if that is nearer.
fn back(text: &str, from: usize, characters: usize) -> usize {
    let before = text.get(..from).unwrap_or_default();
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    let mut places = before.char_indices().rev().take(characters);
    let near = places.by_ref().last().map_or(from, |(place, _)| place);
    near.max(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(query: &str, text: &str) -> String {
        let snippet = Snippet::of(text, &Query::words(query).unwrap());
        let mut shown = String::from(if snippet.is_cut_before { "…" } else { "" });
        for piece in &snippet.pieces {
            shown.push_str(&if piece.is_match { format!("[{}]", piece.text) } else { piece.text.clone() });
        }
        shown + if snippet.is_cut_after { "…" } else { "" }
    }

    #[test]
    fn matches_are_marked_on_one_line() {
        assert_eq!(marked("token row", "lock the\n\ttoken   row"), "…[token] [row]");
        assert_eq!(marked("token", "the token\n\n  row "), "the [token] row");
        assert_eq!(marked("map", "HashMap"), "Hash[Map]");
        assert_eq!(marked("\"a b\"", "x a\nb"), "x [a b]");
    }

    #[test]
    fn a_long_text_is_cut_around_the_matches() {
        let text = format!("token {} the token of the row {}", "x ".repeat(300), "y ".repeat(300));
        let shown = marked("token row", &text);
        assert!(shown.starts_with("…x x") && shown.contains("the [token] of the [row] y y"), "{shown}");
        assert!(shown.ends_with('…') && shown.chars().count() < LONGEST + 10, "{shown}");
        // A frequent word does not hide a rare one.
        let text = format!("{} the token of the row {}", "row ".repeat(300), "row ".repeat(300));
        assert!(marked("token row", &text).contains("the [token] of the [row] [row]"));
        let one_line = "é".repeat(500) + " token " + &"é".repeat(500);
        assert!(marked("token", &one_line).contains("[token]"));
    }

    #[test]
    fn a_match_that_is_longer_than_the_snippet_is_cut() {
        let text = "word ".repeat(100);
        let snippet = Snippet::of(&text, &Query::words(&format!("\"{text}\"")).unwrap());
        assert_eq!((snippet.text().chars().count(), snippet.is_cut_after), (LONGEST, true));
    }
}
