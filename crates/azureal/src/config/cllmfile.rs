//! YAML, as a tree.
//!
//! A `Cllmfile.yml` comes with a repository, so its cost is bounded before the user has trusted it: its size when the
//! file is read, its depth and the expansion of its aliases here.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error as Failed, Location, MessageFormatter, Spanned, UserMessageFormatter};

use super::node::{ConfigPosition, Entry, Node, Problem, Value};
use super::plain_scalar;

/// The deepest nesting of a file.
const DEPTH: usize = 32;
/// The largest number of values in a file, with aliases expanded.
const NODES: usize = 20_000;

/// Reads the text of a `Cllmfile.yml`.
pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH,
            max_nodes: NODES,
            max_events: 4 * NODES,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 4 * NODES },
        with_snippet: false,
    };
    let parsed: Parsed = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place = error.location().map_or(ConfigPosition::START, ConfigPosition::from);
        let mut cause = &error;
        while let Failed::AliasError { error, .. } | Failed::WithSnippet { error, .. } = cause {
            cause = error;
        }
        let message = match cause {
            Failed::Budget { .. }
            | Failed::AliasReplayLimitExceeded { .. }
            | Failed::AliasExpansionLimitExceeded { .. }
            | Failed::AliasReplayStackDepthExceeded { .. } => {
                format!("there is too much; allowed are {NODES} values, aliases unfolded, {DEPTH} deep")
            }
            other => UserMessageFormatter.format_message(other).replace('\n', ", "),
        };
        Problem::new(place, format!("this YAML cannot be read: {message}"))
    })?;
    Ok(parsed.node(&Source::of(text)))
}

/// The text of a file.
struct Source<'a> {
    text: &'a str,
    /// The end of its last value, if nothing follows that, not even a newline.
    open_end: Option<usize>,
}

impl<'a> Source<'a> {
    fn of(text: &'a str) -> Self {
        Self { text, open_end: (!text.ends_with(['\n', ' ', '\t'])).then(|| text.trim_end().len()) }
    }
}

impl From<Location> for ConfigPosition {
    fn from(location: Location) -> Self {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).max(1);
        Self { line: count(location.line()), column: count(location.column()) }
    }
}

/// A value and its places.
struct Parsed(Spanned<ParsedValue>);

enum ParsedValue {
    /// As the parser understands it.
    Scalar(Value),
    List(Vec<Parsed>),
    Table(Vec<(Spanned<String>, Parsed)>),
}

impl Parsed {
    /// Returns the value as cllm understands it.
    fn node(self, source: &Source<'_>) -> Node {
        let Spanned { value, referenced, defined, .. } = self.0;
        let value = match value {
            ParsedValue::Scalar(scalar) => scalar_value(scalar, defined, source),
            ParsedValue::List(items) => {
                Value::List(items.into_iter().map(|item| item.node(source)).collect())
            }
            ParsedValue::Table(entries) => Value::Table(
                entries
                    .into_iter()
                    .map(|(key, value)| Entry {
                        place: key.referenced.into(),
                        key: key.value,
                        node: value.node(source),
                    })
                    .collect(),
            ),
        };
        Node { value, place: referenced.into() }
    }
}

/// Reads a scalar by the rules of cllm's parser, which are those of YAML 1.1: `0644` is 420, and `y` is a text.
fn scalar_value(scalar: Value, place: Location, source: &Source<'_>) -> Value {
    let span = place.span();
    let (Some(start), Some(length)) = (span.byte_offset(), span.byte_len()) else {
        return scalar;
    };
    let (start, length) =
        (usize::try_from(start).unwrap_or(usize::MAX), usize::try_from(length).unwrap_or(0));
    let end = start.saturating_add(length);
    let (Some(before), Some(written)) = (source.text.get(..start), source.text.get(start..end)) else {
        return scalar;
    };
    // The text of a block may begin with a quote.
    let is_block = follows_block_header(before);
    match scalar {
        scalar if !is_block && written.starts_with(['"', '\'']) => scalar,
        // A block. That parser adds no newline that is not in the file.
        Value::Text(mut text) if text.ends_with('\n') => {
            if source.open_end.is_some_and(|open_end| open_end <= end) {
                text.pop();
            }
            Value::Text(text)
        }
        scalar if is_block || written.contains('\n') || written.starts_with(['|', '>']) => scalar,
        scalar if has_tag(before) => scalar,
        _ => plain_scalar::resolve(written.trim()),
    }
}

/// Returns whether a scalar begins in the line after a `|` or `>`.
fn follows_block_header(before: &str) -> bool {
    let header = before.trim_end_matches([' ', '\t']).strip_suffix('\n').unwrap_or_default();
    let header = header.lines().next_back().map_or("", without_comment);
    header.split_whitespace().next_back().is_some_and(|word| word.starts_with(['|', '>']))
}

/// The distance to a tag. A file may have one line of a megabyte before thousands of scalars.
const TAG_WITHIN: usize = 512;

/// Returns whether the text before a scalar ends with a tag, such as `!!str`, which says what the scalar is.
fn has_tag(before: &str) -> bool {
    let near = before.get(before.ceil_char_boundary(before.len().saturating_sub(TAG_WITHIN))..);
    let mut lines = near.unwrap_or_default().rsplit('\n');
    // No comment is before a scalar in its own line.
    let same = lines.next().unwrap_or_default();
    let words = std::iter::once(same).chain(lines.map(without_comment));
    let mut words = words.flat_map(|line| line.split_whitespace().rev());
    let word = words.next().unwrap_or_default();
    let word = if word.starts_with('&') { words.next().unwrap_or_default() } else { word };
    word.starts_with('!')
}

fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with('#') {
        return "";
    }
    line.split_once(" #").map_or(line, |(line, _)| line)
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for ParsedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

/// Accepts any value.
struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = ParsedValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<ParsedValue, E> {
        Ok(ParsedValue::Scalar(Value::Nothing))
    }

    fn visit_bool<E: Error>(self, is_on: bool) -> Result<ParsedValue, E> {
        Ok(ParsedValue::Scalar(Value::Switch(is_on)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<ParsedValue, E> {
        Ok(ParsedValue::Scalar(Value::Integer(number)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<ParsedValue, E> {
        Ok(ParsedValue::Scalar(
            i64::try_from(number).map_or_else(|_| Value::Text(number.to_string()), Value::Integer),
        ))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<ParsedValue, E> {
        Ok(ParsedValue::Scalar(plain_scalar::fraction(number)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ParsedValue, E> {
        Ok(ParsedValue::Scalar(Value::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ParsedValue, A::Error> {
        let mut parsed = Vec::new();
        while let Some(item) = items.next_element()? {
            parsed.push(item);
        }
        Ok(ParsedValue::List(parsed))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<ParsedValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = items.next_entry()? {
            entries.push(entry);
        }
        Ok(ParsedValue::Table(entries))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn value_of(text: &str) -> Value {
        let Value::Table(entries) = parse(text).unwrap().value else { panic!("{text}") };
        entries.into_iter().next().unwrap().node.value
    }

    #[test]
    fn a_scalar_is_what_it_is_in_cllm() {
        let text = |text: &str| Value::Text(text.to_owned());
        for (written, expected) in [
            ("0644", Value::Integer(420)),
            ("007", Value::Integer(7)),
            ("08", text("08")),
            ("-010", Value::Integer(-8)),
            ("y", text("y")),
            ("No", Value::Switch(false)),
            ("1e3", text("1e3")),
            ("0o17", text("0o17")),
            ("100000000000000000000", text("100000000000000000000")),
            ("12:30", Value::Integer(750)),
            ("\"0644\"", text("0644")),
            ("'y'", text("y")),
            ("!!str 0644", text("0644")),
            ("&a 0644", Value::Integer(420)),
            ("&a !!str 0644", text("0644")),
            ("0644 # octal", Value::Integer(420)),
            ("# octal !yes\n  0644", Value::Integer(420)),
            ("!!str # not octal\n  0644", text("0644")),
            ("two\n  lines", text("two lines")),
            ("~", Value::Nothing),
            ("", Value::Nothing),
        ] {
            assert_eq!(value_of(&format!("A: {written}\n")), expected, "{written}");
        }
        let aliased = parse("A: &mode 0644\nB: *mode\nC: [*mode, y]\n").unwrap();
        let Value::Table(entries) = aliased.value else { panic!() };
        assert_eq!(entries[1].node.value, Value::Integer(420));
        let Value::List(items) = &entries[2].node.value else { panic!() };
        assert_eq!((&items[0].value, &items[1].value), (&Value::Integer(420), &text("y")));
        assert_eq!(items[1].place, ConfigPosition { line: 3, column: 12 });
    }

    #[test]
    fn a_block_at_the_end_of_a_file_gets_no_newline() {
        assert_eq!(value_of("A: |-\n  0644\n"), Value::Text("0644".to_owned()));
        assert_eq!(value_of("A: >-\n  y\nB: 1"), Value::Text("y".to_owned()));
        for (written, expected) in [
            ("A: |\n  x\n  y", "x\ny"),
            ("A: >\n  x\n  y", "x y"),
            ("A: |+\n  x", "x"),
            ("A: |-\n  x", "x"),
            ("A: |-\n  0644", "0644"),
            ("A: >2- # mode\n  0644", "0644"),
            ("A: |\n  \"x\" and", "\"x\" and"),
            ("A: |\n  'x'", "'x'"),
            ("A: |\n  'x'\n", "'x'\n"),
            ("A: |\n  x\n", "x\n"),
            ("A: |\n  x\n  ", "x\n"),
            ("A: |\n  x\nB: 1", "x\n"),
        ] {
            assert_eq!(value_of(written), Value::Text(expected.to_owned()), "{written:?}");
        }
    }

    #[test]
    fn the_time_of_a_file_grows_with_its_size_and_not_with_its_values_too() {
        let values = format!("A: [{}]\n", ["1"; 19_000].join(", "));
        let time = |text: &str| {
            let start = Instant::now();
            parse(text).unwrap();
            start.elapsed()
        };
        let alone = (0..3).map(|_| time(&values)).max().unwrap();
        let long = "x".repeat(900_000);
        for text in [format!("{values}{}", "\n".repeat(900_000)), format!("A: [{long}, {}", &values[4..])] {
            // 80 times of it when each value looked at the rest of the file.
            assert!(time(&text) < 12 * alone, "{alone:?}, {:?}", time(&text));
        }
    }
}
