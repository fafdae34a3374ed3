//! The parts of a text without which a regular expression does not match.

use azureal_core::{IndexCondition, IndexPhrase};
use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind};

use crate::trigrams::{folded, trigrams};

/// The most trigrams of a condition. An expression that needs more is searched by some of them.
const MOST: usize = 96;
/// The most trigrams of one literal. More take longer to look up than the events take to read that they rule out.
const MOST_OF_LITERAL: usize = 12;
/// The most alternations within each other.
const DEEPEST: usize = 8;

/// Returns what the trigrams of every text that matches an expression have; `None` if that is nothing.
pub(crate) fn required(expression: &Hir) -> Option<IndexCondition> {
    required_within(expression, DEEPEST, &mut MOST.clone())
}

fn required_within(expression: &Hir, depth: usize, left: &mut usize) -> Option<IndexCondition> {
    let mut parts = Parts { literal: String::new(), conditions: Vec::new(), depth, left };
    parts.add(expression);
    parts.end_literal();
    match parts.conditions.len() {
        0 => None,
        1 => parts.conditions.pop(),
        _ => Some(IndexCondition::All(parts.conditions)),
    }
}

struct Parts<'a> {
    /// The characters that come directly before the next part.
    literal: String,
    conditions: Vec<IndexCondition>,
    depth: usize,
    left: &'a mut usize,
}

impl Parts<'_> {
    fn add(&mut self, part: &Hir) {
        match part.kind() {
            HirKind::Empty | HirKind::Look(_) => {}
            HirKind::Literal(literal) => match std::str::from_utf8(&literal.0) {
                Ok(text) => self.literal.push_str(text),
                Err(_) => self.end_literal(),
            },
            HirKind::Class(Class::Unicode(class)) => match one_character(class) {
                Some(c) => self.literal.push(c),
                None => self.end_literal(),
            },
            HirKind::Class(Class::Bytes(_)) => self.end_literal(),
            HirKind::Capture(capture) => self.add(&capture.sub),
            HirKind::Concat(parts) => parts.iter().for_each(|part| self.add(part)),
            HirKind::Repetition(repetition) => {
                self.end_literal();
                if repetition.min > 0 {
                    self.add(&repetition.sub);
                    self.end_literal();
                }
            }
            HirKind::Alternation(branches) => {
                self.end_literal();
                self.add_one_of(branches);
            }
        }
    }

    fn add_one_of(&mut self, branches: &[Hir]) {
        let Some(depth) = self.depth.checked_sub(1) else { return };
        let mut left = *self.left;
        let conditions: Option<Vec<IndexCondition>> =
            branches.iter().map(|branch| required_within(branch, depth, &mut left)).collect();
        // A branch without a condition, or without room for one, takes any text.
        if let Some(conditions) = conditions {
            *self.left = left;
            self.conditions.push(IndexCondition::Any(conditions));
        }
    }

    fn end_literal(&mut self) {
        let trigrams = trigrams(&std::mem::take(&mut self.literal));
        let step = trigrams.len().div_ceil(MOST_OF_LITERAL).max(1);
        for trigram in trigrams.into_iter().step_by(step) {
            let phrase = IndexPhrase { tokens: vec![trigram], is_prefix: false };
            let condition = IndexCondition::Phrase(phrase);
            if *self.left == 0 || self.conditions.contains(&condition) {
                continue;
            }
            *self.left -= 1;
            self.conditions.push(condition);
        }
    }
}

/// Returns the character that an index has for each one of a class, if it is the same: `(?i)a` is the class of `a` and `A`.
fn one_character(class: &ClassUnicode) -> Option<char> {
    let mut all = class.iter().flat_map(|range| range.start()..=range.end());
    let first = all.next()?;
    // An index folds what it has folded to the same, so any of them will do.
    all.all(|c| folded(c) == folded(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(expression: &str) -> String {
        match required(&regex_syntax::parse(expression).unwrap()) {
            Some(condition) => condition.write(" & ", " | ", &|phrase| phrase.tokens.join(" ")),
            None => "-".to_owned(),
        }
    }

    #[test]
    fn an_expression_needs_its_literals() {
        for (expression, expected) in [
            ("token", "(tok & oke & ken)"),
            ("tok", "tok"),
            ("aaaaaaa", "aaa"),
            // Every second one of a long literal.
            ("abcdefghijklmnop", "(abc & cde & efg & ghi & ijk & klm & mno)"),
            ("to", "-"),
            (".*", "-"),
            ("abc.*def", "(abc & def)"),
            ("ab.cd", "-"),
            ("(?i)ToK", "tok"),
            ("(?i)straße", "(str & tra & raß & aße)"),
            ("[tT][oO]k", "tok"),
            ("t[oa]k", "-"),
            ("a(b)c", "abc"),
            (r"ab\bc", "abc"),
            ("^abc$", "abc"),
            ("abc|def", "(abc | def)"),
            ("abc|de", "-"),
            ("x(abc|def)y", "(abc | def)"),
            ("xyz(abc|def|g?)", "xyz"),
            ("xyz(abc|def)", "(xyz & (abc | def))"),
            ("(abc)+", "abc"),
            ("(abc)*xyz", "xyz"),
            ("(abc){2,}", "abc"),
            ("(abc){0,2}", "-"),
            ("a+bc", "-"),
            (r"\d+abc\w", "abc"),
            ("", "-"),
        ] {
            assert_eq!(shown(expression), expected, "{expression}");
        }
    }

    #[test]
    fn a_condition_is_bounded() {
        let long: String = ('\u{4E00}'..'\u{6E00}').collect();
        let deep = format!("{}abc{}", "(xyz|".repeat(100), ")".repeat(100));
        let wide = (0..1000).map(|number| format!("{number:05}")).collect::<Vec<_>>().join("|");
        let nested = "(?:abc|(?:def|ghi)x|(?:jkl|mno)y)z".repeat(100);
        for expression in [long, deep, wide, nested] {
            assert!(shown(&expression).len() < 2_000, "{}", shown(&expression));
        }
    }
}
