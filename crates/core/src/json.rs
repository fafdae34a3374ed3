//! JSON that stays what it was.
//!
//! Tool inputs come from other programs. Parsing them into a tree and printing the tree again changes
//! them (a number of twenty digits becomes a float), and costs time on every load. So they are kept as
//! the text they arrived in, checked once, and looked into only by those who need a field.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A JSON value, kept as its text.
///
/// Two values are equal when they mean the same: white space and the order of keys do not count.
///
/// ```
/// use azureal_core::Json;
///
/// let a: Json = r#"{"command": "ls", "timeout": 12345678901234567890123}"#.parse()?;
/// let b: Json = r#"{"timeout":12345678901234567890123,"command":"ls"}"#.parse()?;
/// assert_eq!(a, b);
/// assert_eq!(a.string_field("command").as_deref(), Some("ls"));
/// assert!(a.as_str().contains("12345678901234567890123"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Returns the empty object, `{}`.
    pub fn empty_object() -> Self {
        Self::from_fields::<&RawValue>([])
    }

    /// Builds an object of these fields, in this order.
    pub fn from_fields<'a, V: AsRawJson<'a>>(fields: impl IntoIterator<Item = (&'a str, V)>) -> Self {
        let mut text = String::from("{");
        for (name, value) in fields {
            if text.len() > 1 {
                text.push(',');
            }
            // A string always serialises; `Value` prints as JSON.
            text.push_str(&Value::from(name).to_string());
            text.push(':');
            value.push_json(&mut text);
        }
        text.push('}');
        // What was put together from JSON pieces is JSON; if that ever fails, no input is better than a panic.
        RawValue::from_string(text).map_or_else(|_| Self(RawValue::NULL.to_owned()), Self)
    }

    /// Returns the text of this value: one line, unchanged.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Returns whether this is an object.
    pub fn is_object(&self) -> bool {
        self.as_str().starts_with('{')
    }

    /// Reads the value as `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_str())
    }

    /// Returns the fields of an object with their raw values; empty for any other value.
    ///
    /// A repeated key counts once, with its last value, as in most JSON parsers.
    pub fn fields(&self) -> BTreeMap<String, &RawValue> {
        serde_json::from_str(self.as_str()).unwrap_or_else(|_| BTreeMap::new())
    }

    /// Returns the field `name` if this is an object and the field holds a string.
    pub fn string_field(&self, name: &str) -> Option<String> {
        if !self.is_object() {
            return None;
        }
        serde_json::from_str(self.fields().get(name)?.get()).ok()
    }
}

/// A piece of JSON that [`Json::from_fields`] can take: raw JSON, a string or a count.
pub trait AsRawJson<'a> {
    /// Appends this piece as JSON.
    fn push_json(&self, text: &mut String);
}

impl<'a> AsRawJson<'a> for &'a RawValue {
    fn push_json(&self, text: &mut String) {
        text.push_str(self.get());
    }
}

impl AsRawJson<'_> for Value {
    fn push_json(&self, text: &mut String) {
        text.push_str(&self.to_string());
    }
}

/// Takes line breaks out of a JSON text.
///
/// Strings hold no raw line breaks, so any that are found are white space between tokens. A stored value
/// must be one line, because our own output is one event per line.
fn on_one_line(raw: Box<RawValue>) -> Box<RawValue> {
    if memchr::memchr2(b'\n', b'\r', raw.get().as_bytes()).is_none() {
        return raw;
    }
    let text = raw.get().replace(['\n', '\r'], " ");
    RawValue::from_string(text).unwrap_or(raw)
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        if self.as_str() == other.as_str() {
            return true;
        }
        matches!((self.read::<Value>(), other.read::<Value>()), (Ok(a), Ok(b)) if a == b)
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Json {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        // Printing a tree gives valid JSON; the fallback keeps this free of panics.
        RawValue::from_string(value.to_string()).map_or_else(|_| Self(RawValue::NULL.to_owned()), Self)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Self(on_one_line(raw)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_between_tokens_go_and_those_in_strings_stay() {
        let json: Json = "{\n  \"a\": \"x\\ny\"\r\n}".parse().unwrap();
        assert!(!json.as_str().contains('\n'));
        assert_eq!(json.string_field("a").as_deref(), Some("x\ny"));
    }

    #[test]
    fn equality_is_of_meaning() {
        let json = |text: &str| text.parse::<Json>().unwrap();
        assert_eq!(json(r#"{"a":1,"b":[1, 2]}"#), json(r#"{"b":[1,2],"a":1}"#));
        assert_ne!(json(r#"{"a":1}"#), json(r#"{"a":2}"#));
        assert_ne!(json("[1,2]"), json("[2,1]"));
    }
}
