//! YAML, as a tree.
//!
//! A `Cllmfile.yml` comes with a repository, so its cost is bounded before the user has trusted it: its size when the
//! file is read, its depth and the expansion of its aliases here.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error as Failed, Location, MessageFormatter, Spanned, UserMessageFormatter};

use super::node::{ConfigPosition, Entry, Node, Problem, Value};

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
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
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
    })
}

impl From<Location> for ConfigPosition {
    fn from(location: Location) -> Self {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).max(1);
        Self { line: count(location.line()), column: count(location.column()) }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { value: spanned.value, place: spanned.referenced.into() })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

/// Accepts any value.
struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }

    fn visit_bool<E: Error>(self, is_on: bool) -> Result<Value, E> {
        Ok(Value::Switch(is_on))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Integer(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(i64::try_from(number).map_or(Value::Other("a number that is too large"), Value::Integer))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(if number.is_finite() { Value::Fraction(number) } else { Value::Other("a number without end") })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = items.next_element()? {
            nodes.push(node);
        }
        Ok(Value::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, node)) = items.next_entry::<Spanned<String>, Node>()? {
            entries.push(Entry { place: key.referenced.into(), key: key.value, node });
        }
        Ok(Value::Table(entries))
    }
}
