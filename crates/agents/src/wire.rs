//! Lenient parsing of other programs' JSON.
//!
//! The programs change weekly. A field that is missing, null or of an unexpected type counts as absent, and the rest
//! of its line is still read.

use std::collections::BTreeMap;

use azureal_core::Json;
use serde::de::value::MapDeserializer;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The fields of a JSON object, from which any of our types can be read.
///
/// A repeated key counts once, with its last value: Codex writes the `id` of a search twice, and serde would refuse
/// the whole object.
pub(crate) struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    /// Finds the fields; `None` if this is no object.
    pub(crate) fn of(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok().map(Self)
    }

    /// Reads the object as a `T`.
    pub(crate) fn read<T: Deserialize<'a>>(&self) -> Option<T> {
        let fields = self.0.iter().map(|(name, value)| (name.as_str(), *value));
        T::deserialize(MapDeserializer::<_, serde_json::Error>::new(fields)).ok()
    }
}

/// Reads an object; `None` if it is none.
pub(crate) fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    Fields::of(raw.get())?.read()
}

/// Reads a field; the default if it has another type.
///
/// For texts, numbers and the like; objects are [`Loose`], lists [`lenient_list`].
pub(crate) fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_else(|_| T::default()))
}

/// Reads a list of objects, without the elements that cannot be read.
pub(crate) fn lenient_list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(elements(raw).unwrap_or_default().into_iter().filter_map(read).collect())
}

/// An object in a field; `None` if the field holds something else.
pub(crate) struct Loose<T>(pub(crate) Option<T>);

impl<T> Default for Loose<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Loose<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(read(<&RawValue>::deserialize(deserializer)?)))
    }
}

/// Returns a piece of JSON for keeping; the empty object where there is none.
pub(crate) fn kept(raw: Option<&RawValue>) -> Json {
    raw.and_then(|raw| raw.get().parse().ok()).unwrap_or_else(Json::empty_object)
}

/// Returns the elements of a list; `None` if it is no list.
pub(crate) fn elements(raw: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(raw.get()).ok()
}

/// Returns a JSON string as text; `None` if it is none, or has half a surrogate pair.
///
/// The output of a tool may have 60 MB. serde_json would hold it twice, in addition to its line.
pub(crate) fn text_of(raw: &RawValue) -> Option<String> {
    let mut rest = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    // Escapes only become shorter.
    let mut text = String::with_capacity(rest.len());
    while let Some((plain, escaped)) = rest.split_once('\\') {
        text.push_str(plain);
        let (c, after) = unescaped(escaped)?;
        text.push(c);
        rest = after;
    }
    text.push_str(rest);
    Some(text)
}

/// The longest unfinished text that is remembered, in bytes. An agent may write without end.
const MOST_OPEN: usize = 16 << 20;

/// Adds to a text that is being written.
pub(crate) fn push_bounded(open: &mut String, text: &str) {
    if open.len() + text.len() <= MOST_OPEN {
        open.push_str(text);
    }
}

/// Reads the escape sequence behind a backslash, and returns its character with the rest.
fn unescaped(escaped: &str) -> Option<(char, &str)> {
    let mut rest = escaped.chars();
    let c = match rest.next()? {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => {
            let hex = |digits: &str| u32::from_str_radix(digits, 16).ok();
            let first = hex(escaped.get(1..5)?)?;
            let after = escaped.get(5..)?;
            if let Some(c) = char::from_u32(first) {
                return Some((c, after));
            }
            let second = hex(after.strip_prefix("\\u")?.get(..4)?)?;
            let mut pair = char::decode_utf16([u16::try_from(first).ok()?, u16::try_from(second).ok()?]);
            return Some((pair.next()?.ok()?, after.get(6..)?));
        }
        other => other,
    };
    Some((c, rest.as_str()))
}

/// Reads a text that may be very long; empty if the field holds something else.
pub(crate) fn long_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(text_of(<&RawValue>::deserialize(deserializer)?).unwrap_or_default())
}

/// Reads a text that may be very long; `None` if the field holds something else.
pub(crate) fn optional_long_text<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Ok(text_of(<&RawValue>::deserialize(deserializer)?))
}

/// Returns the output of a tool as text: a string, or a list of texts and images.
///
/// Images become a note, as a tool's result is stored as text.
pub(crate) fn output_text(raw: &RawValue) -> String {
    if let Some(text) = text_of(raw) {
        return text;
    }
    let Some(parts) = elements(raw) else {
        return if raw.get() == "null" { String::new() } else { raw.get().to_owned() };
    };
    let mut texts = parts.into_iter().map(part_text);
    let mut output = texts.next().unwrap_or_default();
    for text in texts {
        output.push('\n');
        output.push_str(&text);
    }
    output
}

fn part_text(raw: &RawValue) -> String {
    let Some(part) = read::<Part<'_>>(raw) else {
        return serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned());
    };
    match part.kind.as_str() {
        "text" | "input_text" => part.text,
        "image" => match part.source.0 {
            Some(source) => image_note(&source.media_type, &source.data),
            None => image_note(&part.mime_type, &part.data),
        },
        "input_image" => {
            let url = part.image_url.strip_prefix("data:").and_then(|url| url.split_once(";base64,"));
            let (media_type, data) = url.unwrap_or_default();
            image_note(media_type, data)
        }
        _ => part.raw.map_or_else(|| raw.get().to_owned(), |raw| raw.get().to_owned()),
    }
}

/// Returns the text that replaces an image, whose data is in base64.
fn image_note(media_type: &str, data: &str) -> String {
    let padding = data.bytes().rev().take_while(|byte| *byte == b'=').count();
    let bytes = (data.len() / 4 * 3).saturating_sub(padding);
    let media_type = if media_type.is_empty() { "unknown type" } else { media_type };
    format!("[image: {media_type}, {bytes} bytes]")
}

/// One part of a tool's output, as Claude Code, Codex and MCP servers write it.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "long_text")]
    text: String,
    /// Claude Code's images.
    #[serde(default)]
    source: Loose<Source>,
    /// MCP's images.
    #[serde(default, rename = "mimeType", deserialize_with = "lenient")]
    mime_type: String,
    #[serde(default, deserialize_with = "lenient")]
    data: String,
    /// Codex's images, as a URL with their data.
    #[serde(default, deserialize_with = "lenient")]
    image_url: String,
    /// MCP's embedded resources.
    #[serde(default, borrow, rename = "resource")]
    raw: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Source {
    #[serde(default, deserialize_with = "lenient")]
    media_type: String,
    #[serde(default, deserialize_with = "lenient")]
    data: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let raw: &RawValue = serde_json::from_str(json).unwrap();
        assert_eq!(output_text(raw), expected, "{json}");
    }

    #[test]
    fn output_becomes_text() {
        check(r#""plain""#, "plain");
        check("null", "");
        check("[]", "");
        check(r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#, "a\nb");
        check(
            r#"[{"type":"image","source":{"media_type":"image/png","data":"aGk="}}]"#,
            "[image: image/png, 2 bytes]",
        );
        check(r#"[{"type":"image","mimeType":"image/gif","data":"aGlo"}]"#, "[image: image/gif, 3 bytes]");
        check(r#"[{"type":"image"}]"#, "[image: unknown type, 0 bytes]");
        check(r#"[{"type":"resource","resource":{"uri":"x"}}]"#, r#"{"uri":"x"}"#);
        check(r#"[{"type":"later","x":1},"s",3]"#, "{\"type\":\"later\",\"x\":1}\ns\n3");
        check(r#"{"a":1}"#, r#"{"a":1}"#);
    }

    #[test]
    fn a_string_is_the_text_that_serde_reads() {
        for json in [
            r#""""#,
            r#""plain ü ✓""#,
            r#""a\nb\r\t\b\f\/\\\" end""#,
            r#""\\n""#,
            r#""\u0041\u00fc\u2713\uD83E\uDD80\u0000""#,
            r#""\ud83e""#,
            r#""\ud83ex""#,
            r#""\ud83e\n""#,
            r#""\ud83e\ud83e""#,
            r#""\udd80\ud83e""#,
            r#""ends with \\""#,
            "3",
            "null",
            "[]",
            r#"{"a":"b"}"#,
        ] {
            let raw: &RawValue = serde_json::from_str(json).unwrap();
            assert_eq!(text_of(raw), serde_json::from_str(json).ok(), "{json}");
        }
    }

    #[test]
    fn a_field_of_another_type_costs_only_itself() {
        #[derive(Deserialize)]
        struct Both {
            #[serde(default)]
            inner: Loose<Inner>,
            #[serde(default, deserialize_with = "lenient_list")]
            list: Vec<Inner>,
            #[serde(default, deserialize_with = "lenient")]
            count: u64,
            #[serde(default, deserialize_with = "lenient")]
            name: String,
        }
        #[derive(Deserialize)]
        struct Inner {
            #[serde(default, deserialize_with = "lenient")]
            n: u64,
        }
        let json = r#"{"inner":{"n":1,"n":2},"list":[{"n":1},3,{"n":1,"n":5},{}],"inner":{"n":7,"n":8}}"#;
        let both: Both = Fields::of(json).unwrap().read().unwrap();
        assert_eq!(both.inner.0.unwrap().n, 8);
        assert_eq!(both.list.iter().map(|inner| inner.n).collect::<Vec<_>>(), [1, 5, 0]);
        for (json, count, name) in [
            (r#"{"count":1,"name":"x","count":2}"#, 2, "x"),
            (r#"{"inner":4,"list":{},"name":"x"}"#, 0, "x"),
            (r#"{"count":3,"name":"x"}"#, 3, "x"),
            (r#"{"count":"many","name":"x"}"#, 0, "x"),
            (r#"{"count":3,"name":null}"#, 3, ""),
            (r#"{"count":1e400,"name":["x"]}"#, 0, ""),
            (r#"{"count":-1}"#, 0, ""),
        ] {
            let both: Both = Fields::of(json).unwrap().read().unwrap();
            assert_eq!((both.count, both.name.as_str()), (count, name), "{json}");
        }
    }
}
