//! Content blocks: the typed pieces of a message.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::Json;

/// One piece of a message.
///
/// ```
/// use azureal_core::Block;
///
/// let json = serde_json::to_string(&Block::text("hello"))?;
/// assert_eq!(json, r#"{"type":"text","text":"hello"}"#);
/// let block: Block = serde_json::from_str(&json)?;
/// assert_eq!(block, Block::text("hello"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture, a sound or a film.
    Image(Image),
    /// A tool call issued by the model.
    ToolUse {
        /// The id that the result refers to.
        id: String,
        /// The tool's name.
        name: String,
        /// The tool's arguments, an object.
        input: Json,
    },
    /// The result of a tool call.
    ToolResult {
        /// The id of the call that this answers.
        tool_use_id: String,
        /// The output of the tool.
        content: ToolOutput,
        /// Whether the tool failed.
        is_error: bool,
    },
}

/// A picture, a sound or a film: its bytes and what they are.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    /// The format of the bytes.
    pub media_type: MediaType,
    /// The bytes themselves; base64 in JSON.
    pub data: Vec<u8>,
}

/// The formats of pictures, sounds and films that a message may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaType {
    /// `image/jpeg`
    Jpeg,
    /// `image/png`
    Png,
    /// `image/gif`
    Gif,
    /// `image/webp`
    Webp,
    /// `audio/x-aac`
    Aac,
    /// `audio/flac`
    Flac,
    /// `audio/mp3`
    Mp3,
    /// `audio/m4a`
    M4a,
    /// `audio/mpeg`
    MpegAudio,
    /// `audio/mpga`
    Mpga,
    /// `audio/mp4`
    Mp4Audio,
    /// `audio/ogg`
    OggAudio,
    /// `audio/pcm`
    Pcm,
    /// `audio/wav`
    Wav,
    /// `audio/webm`
    WebmAudio,
    /// `video/mp4`
    Mp4,
    /// `video/mpeg`
    Mpeg,
    /// `video/mov`
    Mov,
    /// `video/avi`
    Avi,
    /// `video/x-flv`
    Flv,
    /// `video/mpg`
    Mpg,
    /// `video/webm`
    Webm,
    /// `video/wmv`
    Wmv,
    /// `video/3gpp`
    ThreeGpp,
}

/// The output of a tool: text, or a list of text and pictures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolOutput {
    /// Text alone, by far the commonest.
    Text(String),
    /// Text and pictures, in order.
    Parts(Vec<OutputPart>),
}

/// A part of a tool's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputPart {
    /// Plain text.
    Text(String),
    /// A picture.
    Image(Image),
}

impl Block {
    /// Creates a text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Creates an image block.
    pub fn image(media_type: MediaType, data: impl Into<Vec<u8>>) -> Self {
        Self::Image(Image { media_type, data: data.into() })
    }

    /// Creates a tool call.
    pub fn tool_use(id: impl Into<String>, name: impl Into<String>, input: impl Into<Json>) -> Self {
        Self::ToolUse { id: id.into(), name: name.into(), input: input.into() }
    }

    /// Creates a tool result that is text and no error.
    pub fn tool_result(tool_use_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self::ToolResult {
            tool_use_id: tool_use_id.into(),
            content: ToolOutput::Text(content.into()),
            is_error: false,
        }
    }

    /// Returns the text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Image(_) | Self::ToolUse { .. } | Self::ToolResult { .. } => None,
        }
    }
}

impl Image {
    /// Returns the data in base64, as JSON formats carry it.
    pub fn base64(&self) -> String {
        BASE64.encode(&self.data)
    }

    /// Returns the data as a URL: `data:image/png;base64,…`.
    pub fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.media_type, self.base64())
    }

    /// Returns whether it is a picture, and no sound or film.
    pub fn is_picture(&self) -> bool {
        self.media_type.kind() == "image"
    }

    /// Returns the text that replaces it where only text can be shown.
    pub fn note(&self) -> String {
        format!("[{}: {}, {} bytes]", self.media_type.kind(), self.media_type, self.data.len())
    }
}

impl ToolOutput {
    /// Returns the output as text, with a note for each image.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Parts(parts) => {
                let parts: Vec<Cow<'_, str>> = parts
                    .iter()
                    .map(|part| match part {
                        OutputPart::Text(text) => Cow::Borrowed(text.as_str()),
                        OutputPart::Image(image) => Cow::Owned(image.note()),
                    })
                    .collect();
                Cow::Owned(parts.join("\n"))
            }
        }
    }
}

impl MediaType {
    /// Every format there is.
    pub const ALL: [Self; 24] = [
        Self::Jpeg,
        Self::Png,
        Self::Gif,
        Self::Webp,
        Self::Aac,
        Self::Flac,
        Self::Mp3,
        Self::M4a,
        Self::MpegAudio,
        Self::Mpga,
        Self::Mp4Audio,
        Self::OggAudio,
        Self::Pcm,
        Self::Wav,
        Self::WebmAudio,
        Self::Mp4,
        Self::Mpeg,
        Self::Mov,
        Self::Avi,
        Self::Flv,
        Self::Mpg,
        Self::Webm,
        Self::Wmv,
        Self::ThreeGpp,
    ];

    /// Returns the MIME type.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Jpeg => "image/jpeg",
            Self::Png => "image/png",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
            Self::Aac => "audio/x-aac",
            Self::Flac => "audio/flac",
            Self::Mp3 => "audio/mp3",
            Self::M4a => "audio/m4a",
            Self::MpegAudio => "audio/mpeg",
            Self::Mpga => "audio/mpga",
            Self::Mp4Audio => "audio/mp4",
            Self::OggAudio => "audio/ogg",
            Self::Pcm => "audio/pcm",
            Self::Wav => "audio/wav",
            Self::WebmAudio => "audio/webm",
            Self::Mp4 => "video/mp4",
            Self::Mpeg => "video/mpeg",
            Self::Mov => "video/mov",
            Self::Avi => "video/avi",
            Self::Flv => "video/x-flv",
            Self::Mpg => "video/mpg",
            Self::Webm => "video/webm",
            Self::Wmv => "video/wmv",
            Self::ThreeGpp => "video/3gpp",
        }
    }

    /// Returns the type of a block of this format: `image`, `audio` or `video`.
    pub fn kind(self) -> &'static str {
        self.as_str().split('/').next().unwrap_or_default()
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for MediaType {
    type Err = UnknownMediaType;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|media_type| media_type.as_str() == text)
            .ok_or_else(|| UnknownMediaType(text.to_owned()))
    }
}

/// A format that is none of [`MediaType::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown media type `{0}`, expected one such as image/png, audio/wav or video/mp4")]
pub struct UnknownMediaType(pub String);

/// Pictures are large: their bytes never appear in debug output.
impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({}, {} bytes)", self.media_type, self.data.len())
    }
}

impl Serialize for Image {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Image", 3)?;
        fields.serialize_field("type", self.media_type.kind())?;
        fields.serialize_field("media_type", self.media_type.as_str())?;
        fields.serialize_field("data", &self.base64())?;
        fields.end()
    }
}

fn serialize_text<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_struct("Text", 2)?;
    fields.serialize_field("type", "text")?;
    fields.serialize_field("text", text)?;
    fields.end()
}

impl Serialize for Block {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text { text } => serialize_text(text, serializer),
            Self::Image(image) => image.serialize(serializer),
            Self::ToolUse { id, name, input } => {
                let mut fields = serializer.serialize_struct("ToolUse", 4)?;
                fields.serialize_field("type", "tool_use")?;
                fields.serialize_field("id", id)?;
                fields.serialize_field("name", name)?;
                fields.serialize_field("input", input)?;
                fields.end()
            }
            Self::ToolResult { tool_use_id, content, is_error } => {
                let mut fields = serializer.serialize_struct("ToolResult", 4)?;
                fields.serialize_field("type", "tool_result")?;
                fields.serialize_field("tool_use_id", tool_use_id)?;
                fields.serialize_field("content", content)?;
                fields.serialize_field("is_error", is_error)?;
                fields.end()
            }
        }
    }
}

impl Serialize for OutputPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serialize_text(text, serializer),
            Self::Image(image) => image.serialize(serializer),
        }
    }
}

impl Serialize for ToolOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Parts(parts) => serializer.collect_seq(parts),
        }
    }
}

/// Every field that a block may have.
///
/// serde's tagged enums buffer the whole value to find the tag, which costs a second pass and forbids
/// raw JSON inside. One flat struct is read in one pass, wherever the tag stands.
#[derive(serde::Deserialize)]
struct Fields<'a> {
    #[serde(rename = "type", borrow)]
    tag: Cow<'a, str>,
    text: Option<String>,
    media_type: Option<String>,
    data: Option<String>,
    id: Option<String>,
    name: Option<String>,
    #[serde(default, deserialize_with = "present")]
    input: Option<Json>,
    tool_use_id: Option<String>,
    content: Option<ToolOutput>,
    is_error: Option<bool>,
}

/// Reads a field that is there, also where it holds `null`: that is an input like any other.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

fn image<E: de::Error>(kind: &str, media_type: Option<String>, data: Option<String>) -> Result<Image, E> {
    let media_type = media_type.ok_or_else(|| E::missing_field("media_type"))?;
    let media_type: MediaType = media_type.parse().map_err(E::custom)?;
    if media_type.kind() != kind {
        return Err(E::custom(format_args!("`{media_type}` is not a media type of `{kind}`")));
    }
    let data = data.ok_or_else(|| E::missing_field("data"))?;
    let data = BASE64.decode(data).map_err(|error| E::custom(format_args!("{kind} data: {error}")))?;
    Ok(Image { media_type, data })
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn need<T, E: de::Error>(field: Option<T>, name: &'static str) -> Result<T, E> {
            field.ok_or_else(|| E::missing_field(name))
        }
        let fields = Fields::deserialize(deserializer)?;
        match fields.tag.as_ref() {
            "text" => Ok(Self::Text { text: need(fields.text, "text")? }),
            kind @ ("image" | "audio" | "video") => {
                Ok(Self::Image(image(kind, fields.media_type, fields.data)?))
            }
            "tool_use" => Ok(Self::ToolUse {
                id: need(fields.id, "id")?,
                name: need(fields.name, "name")?,
                input: need(fields.input, "input")?,
            }),
            "tool_result" => Ok(Self::ToolResult {
                tool_use_id: need(fields.tool_use_id, "tool_use_id")?,
                content: need(fields.content, "content")?,
                is_error: fields.is_error.unwrap_or(false),
            }),
            unknown => Err(de::Error::custom(format_args!(
                "unknown block type `{unknown}`, expected text, image, audio, video, tool_use or tool_result"
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for OutputPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Fields::deserialize(deserializer)?;
        match fields.tag.as_ref() {
            "text" => fields.text.map(Self::Text).ok_or_else(|| de::Error::missing_field("text")),
            kind @ ("image" | "audio" | "video") => {
                Ok(Self::Image(image(kind, fields.media_type, fields.data)?))
            }
            unknown => Err(de::Error::custom(format_args!(
                "unknown block type `{unknown}` in a tool result, expected text, image, audio or video"
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for ToolOutput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OutputVisitor;

        impl<'de> Visitor<'de> for OutputVisitor {
            type Value = ToolOutput;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of text, image, audio and video blocks")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ToolOutput, E> {
                Ok(ToolOutput::Text(text.to_owned()))
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<ToolOutput, E> {
                Ok(ToolOutput::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ToolOutput, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = list.next_element()? {
                    parts.push(part);
                }
                Ok(ToolOutput::Parts(parts))
            }
        }

        deserializer.deserialize_any(OutputVisitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(block: &Block, text: &str) {
        assert_eq!(serde_json::to_string(block).unwrap(), text);
        assert_eq!(&serde_json::from_str::<Block>(text).unwrap(), block);
    }

    #[test]
    fn blocks_are_written_as_the_contract_says() {
        check(&Block::text("hello"), r#"{"type":"text","text":"hello"}"#);
        check(
            &Block::image(MediaType::Png, [1, 2, 3]),
            r#"{"type":"image","media_type":"image/png","data":"AQID"}"#,
        );
        check(
            &Block::image(MediaType::Wav, [1, 2, 3]),
            r#"{"type":"audio","media_type":"audio/wav","data":"AQID"}"#,
        );
        check(
            &Block::image(MediaType::ThreeGpp, [1, 2, 3]),
            r#"{"type":"video","media_type":"video/3gpp","data":"AQID"}"#,
        );
        check(
            &Block::tool_use("t1", "Bash", json!({"command": "ls"})),
            r#"{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}}"#,
        );
        check(
            &Block::tool_use("t1", "Bash", json!(null)),
            r#"{"type":"tool_use","id":"t1","name":"Bash","input":null}"#,
        );
        check(
            &Block::tool_result("t1", "ok"),
            r#"{"type":"tool_result","tool_use_id":"t1","content":"ok","is_error":false}"#,
        );
        check(
            &Block::ToolResult {
                tool_use_id: "t1".into(),
                content: ToolOutput::Parts(vec![
                    OutputPart::Text("a".into()),
                    OutputPart::Image(Image { media_type: MediaType::Webp, data: vec![0] }),
                ]),
                is_error: true,
            },
            concat!(
                r#"{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a"},"#,
                r#"{"type":"image","media_type":"image/webp","data":"AA=="}],"is_error":true}"#
            ),
        );
    }

    #[test]
    fn what_is_unknown_is_named() {
        let error = |text: &str| serde_json::from_str::<Block>(text).unwrap_err().to_string();
        assert!(error(r#"{"type":"smell"}"#).contains("unknown block type `smell`"));
        assert!(
            error(r#"{"type":"audio","media_type":"video/mp4","data":""}"#)
                .contains("`video/mp4` is not a media type of `audio`")
        );
        assert!(
            error(r#"{"type":"image","media_type":"image/bmp","data":""}"#)
                .contains("unknown media type `image/bmp`")
        );
        assert!(
            error(r#"{"type":"tool_result","tool_use_id":"a","content":[{"type":"tool_use"}]}"#)
                .contains("`tool_use` in a tool result")
        );
        assert!(error(r#"{"type":"text"}"#).contains("missing field `text`"));
        assert!(error(r#"{"type":"image","media_type":"image/png","data":"%%"}"#).contains("image data"));
    }

    #[test]
    fn the_tag_may_stand_last() {
        let block: Block = serde_json::from_str(r#"{"text":"x","type":"text"}"#).unwrap();
        assert_eq!(block, Block::text("x"));
    }
}
