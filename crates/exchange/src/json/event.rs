//! An event as JSON: `{"seq":1,"kind":"UserMessage","data":{"content":"…"}}`.
//!
//! `data` is the stored text, byte for byte, so that it also has the fields that this version does not know.

use std::fmt;

use azureal_core::{Damage, StoredEvent};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The shape of one event.
#[derive(Debug, Serialize)]
pub struct EventLine<'a> {
    /// Its number in the session.
    pub seq: u64,
    /// Its kind.
    pub kind: &'a str,
    /// Its data, or the reason why it cannot be read.
    #[serde(flatten)]
    pub content: Content<'a>,
}

/// The content of an event.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Content<'a> {
    /// The data of the event; `None` for the kinds without data.
    Data(Option<&'a RawValue>),
    /// The reason why the event cannot be read.
    Error(String),
}

impl<'a> EventLine<'a> {
    /// Describes an event of a store.
    pub fn of(stored: &'a StoredEvent) -> Self {
        let content = match &stored.json {
            Ok(json) => match inner(json) {
                Ok(data) => Content::Data(data),
                Err(error) => Content::Error(error.to_string()),
            },
            Err(damage) => Content::Error(damage.to_string()),
        };
        Self { seq: stored.seq.0, kind: &stored.kind, content }
    }

    /// Returns the reason why the event cannot be read; `None` if it can be read.
    pub fn damage(&self) -> Option<&str> {
        match &self.content {
            Content::Data(_) => None,
            Content::Error(why) => Some(why),
        }
    }
}

/// Returns the text of an event with this kind and data.
pub fn event_text(kind: &str, data: Option<&RawValue>) -> String {
    let kind = serde_json::Value::from(kind);
    match data {
        Some(data) => format!("{{{kind}:{}}}", data.get()),
        None => kind.to_string(),
    }
}

/// Returns the value of the only key of an event; `None` for a bare kind; the whole object if it has more keys.
fn inner(json: &str) -> Result<Option<&RawValue>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let only = deserializer.deserialize_any(OnlyValue)?;
    deserializer.end()?;
    match only {
        Inner::Nothing => Ok(None),
        Inner::Only(value) => Ok(Some(value)),
        Inner::More => serde_json::from_str(json).map(Some),
    }
}

enum Inner<'a> {
    Nothing,
    Only(&'a RawValue),
    More,
}

struct OnlyValue;

impl<'de> Visitor<'de> for OnlyValue {
    type Value = Inner<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_str<E>(self, _kind: &str) -> Result<Inner<'de>, E> {
        Ok(Inner::Nothing)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Inner<'de>, A::Error> {
        let mut inner = Inner::More;
        if let Some((_, value)) = map.next_entry::<IgnoredAny, &'de RawValue>()? {
            inner = Inner::Only(value);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            inner = Inner::More;
        }
        Ok(inner)
    }
}

/// An event that was parsed from this shape.
#[derive(Debug, Deserialize)]
pub struct ParsedEventLine {
    /// Its number in the session; 0 if it has none.
    #[serde(default)]
    pub seq: u64,
    /// Its kind.
    pub kind: String,
    /// `null` and a missing field are different: the first is a bare kind.
    #[serde(default)]
    pub data: Option<Box<RawValue>>,
    /// The reason why it could not be read. There can be a text all the same.
    #[serde(default)]
    pub error: Option<String>,
    /// The exact text, if kind and data do not reproduce it.
    #[serde(default)]
    pub text: Option<String>,
}

impl ParsedEventLine {
    /// Returns the event's text, or the reason why it could not be exported.
    pub fn into_text(self) -> Result<String, Damage> {
        match (self.text, self.error) {
            (Some(text), _) => Ok(text),
            (None, Some(error)) => Err(Damage(error)),
            (None, None) => Ok(event_text(&self.kind, self.data.as_deref())),
        }
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::Seq;

    use super::*;

    #[track_caller]
    fn check(json: Result<&str, &str>, expected: &str) {
        let json = json.map(str::to_owned).map_err(|error| Damage(error.to_owned()));
        let stored = StoredEvent::new(Seq(7), "K", json);
        assert_eq!(serde_json::to_string(&EventLine::of(&stored)).unwrap(), expected);
    }

    #[test]
    fn what_is_stored_is_shown_untouched() {
        check(
            Ok(r#"{"K":{"b":1.50,"a":12345678901234567890}}"#),
            r#"{"seq":7,"kind":"K","data":{"b":1.50,"a":12345678901234567890}}"#,
        );
        check(Ok(r#""K""#), r#"{"seq":7,"kind":"K","data":null}"#);
        check(Ok(r#"{"K":1,"L":2}"#), r#"{"seq":7,"kind":"K","data":{"K":1,"L":2}}"#);
        check(Ok("{}"), r#"{"seq":7,"kind":"K","data":{}}"#);
        check(Err("bad frame"), r#"{"seq":7,"kind":"K","error":"bad frame"}"#);
    }

    #[test]
    fn kind_and_data_give_the_event_back() {
        for text in [r#"{"K":{"a":1}}"#, r#""Compacted""#, r#"{"\"x":[]}"#] {
            let kind = azureal_core::Event::from_json(text).unwrap().kind().to_owned();
            let stored = StoredEvent::new(Seq(1), kind, Ok(text.to_owned()));
            let Content::Data(data) = EventLine::of(&stored).content else { panic!("{text}") };
            assert_eq!(event_text(&stored.kind, data), text);
        }
    }
}
