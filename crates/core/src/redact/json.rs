//! Masking in the JSON text of an event.

use std::borrow::Cow;

use memchr::memchr2;
use serde::de::IgnoredAny;

use super::Redactor;
use super::named::{self, Class};
use crate::without_control_sequences;

/// The depth of the keys of our own format: the kind of an event, and its fields.
const OWN_KEYS: usize = 2;

pub(super) fn redact<'t>(redactor: &Redactor, text: &'t str) -> Cow<'t, str> {
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return redactor.redact(text);
    }
    let mut masked = String::new();
    let (mut done, mut at, mut depth) = (0, 0, 0_usize);
    // What the key says of the strings that belong to it, also in a list.
    let mut class: Option<Class> = None;
    // As in `{"name": "DB_PASSWORD", "value": "…"}`: whether the key is `name`, and what the name says of the value beside it.
    let (mut is_name, mut class_of_pair) = (false, None);
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'{' => {
                depth += 1;
                (class, class_of_pair) = (None, None);
            }
            b'}' => {
                depth = depth.saturating_sub(1);
                (class, class_of_pair) = (None, None);
            }
            b'"' => {
                let Some(mut literal) = Literal::at(text, at) else { break };
                let decoded = literal.decode();
                let replacement = if literal.is_key {
                    let replacement =
                        if depth > OWN_KEYS { changed(redactor.redact(&decoded)) } else { None };
                    class = named::class_of(&without_control_sequences(&decoded));
                    is_name = matches!(&*decoded, "name" | "key");
                    if decoded == "value" {
                        class = class_of_pair;
                    }
                    replacement
                } else {
                    if is_name {
                        class_of_pair = named::class_of(&decoded);
                    }
                    match class.and_then(|class| named::label_of_field(class, &decoded)) {
                        Some(label) => Some(format!("{}{label}]", super::OPEN)),
                        None => changed(redactor.redact(&decoded)),
                    }
                };
                if let Some(replacement) = replacement {
                    masked.push_str(text.get(done..at).unwrap_or_default());
                    if literal.is_decodable {
                        masked.push_str(&serde_json::Value::from(replacement).to_string());
                    } else {
                        masked.extend(["\"", &replacement, "\""]);
                    }
                    done = literal.end;
                }
                at = literal.end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    masked.push_str(text.get(done..).unwrap_or_default());
    Cow::Owned(masked)
}

fn changed(text: Cow<'_, str>) -> Option<String> {
    match text {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => Some(text),
    }
}

/// A string in a JSON text.
struct Literal<'t> {
    /// With its quotation marks.
    text: &'t str,
    end: usize,
    has_escapes: bool,
    is_key: bool,
    is_decodable: bool,
}

impl<'t> Literal<'t> {
    /// Returns the string that begins here.
    fn at(text: &'t str, start: usize) -> Option<Self> {
        let bytes = text.as_bytes();
        let mut at = start + 1;
        let mut has_escapes = false;
        loop {
            at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
            if bytes.get(at) == Some(&b'"') {
                break;
            }
            has_escapes = true;
            at += 2;
        }
        let end = at + 1;
        let after = bytes.get(end..)?.iter().find(|byte| !byte.is_ascii_whitespace());
        Some(Self {
            text: text.get(start..end)?,
            end,
            has_escapes,
            is_key: after == Some(&b':'),
            is_decodable: true,
        })
    }

    fn decode(&mut self) -> Cow<'t, str> {
        let inner = self.text.get(1..self.text.len() - 1).unwrap_or_default();
        if !self.has_escapes {
            return Cow::Borrowed(inner);
        }
        match serde_json::from_str(self.text) {
            Ok(decoded) => Cow::Owned(decoded),
            // Half of a surrogate pair is no text. So the escapes are looked at as they are.
            Err(_) => {
                self.is_decodable = false;
                Cow::Borrowed(inner)
            }
        }
    }
}
