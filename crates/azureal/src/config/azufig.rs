//! TOML, as a tree.

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::node::{ConfigPosition, Entry, Lines, Node, Problem, Value};

/// Reads the text of an `azufig.toml`.
pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    let lines = Lines::of(text);
    let table = DeTable::parse(text).map_err(|error| {
        let place = error.span().map_or(ConfigPosition::START, |span| lines.place(span.start));
        Problem::new(place, format!("this TOML cannot be read: {}", error.message().replace('\n', ", ")))
    })?;
    Ok(Node { value: table_of(&lines, table.into_inner()), place: ConfigPosition::START })
}

fn node(lines: &Lines<'_>, value: Spanned<DeValue<'_>>) -> Node {
    let place = lines.place(value.span().start);
    let value = match value.into_inner() {
        DeValue::String(string) => Value::Text(string.into_owned()),
        DeValue::Boolean(is_on) => Value::Switch(is_on),
        DeValue::Integer(integer) => integer_of(&integer),
        DeValue::Float(float) => match float.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() => Value::Fraction(number),
            _ => Value::Other("a number without end"),
        },
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(array) => Value::List(array.into_iter().map(|value| node(lines, value)).collect()),
        DeValue::Table(table) => table_of(lines, table),
    };
    Node { value, place }
}

fn integer_of(integer: &DeInteger<'_>) -> Value {
    match i64::from_str_radix(integer.as_str(), integer.radix()) {
        Ok(number) => Value::Integer(number),
        Err(_) => Value::Other("a number that is too large"),
    }
}

fn table_of(lines: &Lines<'_>, table: DeTable<'_>) -> Value {
    let mut entries: Vec<Entry> = table
        .into_iter()
        .map(|(key, value)| Entry {
            place: lines.place(key.span().start),
            key: key.into_inner().into_owned(),
            node: node(lines, value),
        })
        .collect();
    // The parser sorts by name; what a person sees should be in the order of the file.
    entries.sort_by_key(|entry| (entry.place.line, entry.place.column));
    Value::Table(entries)
}
