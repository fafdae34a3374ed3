//! Conversion of messages of other programs to events.
//!
//! Blocks that azureal has stay as they are. The model's reasoning becomes an event of its own. All other content
//! becomes text and is reported; content that cannot be read becomes text as its JSON.

use std::collections::BTreeMap;

use azureal_core::event::Reasoning;
use azureal_core::{Block, Event, Json, Message, OutputPart, Role, ToolOutput, events_of_message, quoted};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::problem::Reason;

/// The largest string in a note that is not abridged: images and sounds have megabytes that nobody reads.
const LONGEST_STRING: usize = 1000;

/// Fields that are not part of the conversation. They are reported and left out.
const BESIDE_THE_POINT: [&str; 20] = [
    "cache_control",
    "created",
    "created_at",
    "finish_reason",
    "id",
    "index",
    "input_preparation",
    "metadata",
    "model",
    "object",
    "provenance",
    "provider",
    "status",
    "stop_reason",
    "stop_sequence",
    "timestamp",
    "type",
    "updated_at",
    "usage",
    "uuid",
];

/// The fields of an object, as raw JSON.
pub(super) type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// Converts a message to events. Calls `report` with a description of everything that azureal has no form for.
pub(super) fn events_of(
    role: &str,
    content: Option<&Json>,
    mut more: Fields<'_>,
    report: &mut dyn FnMut(&str),
) -> Result<Vec<Event>, Reason> {
    let mut events = Vec::new();
    let mut reader =
        MessageReader { blocks: Vec::new(), reasoning: Vec::new(), has_reasoning: false, report };
    let known = role.parse::<Role>();
    let calls = tool_calls(&mut more);
    if let Some(id) = answered_call(role, &mut more) {
        let content = reader.output(content);
        reader.blocks.push(Block::ToolResult { tool_use_id: id, content, is_error: false });
    } else {
        if known.is_err() {
            (reader.report)(&format!("message of the unknown role {}, kept as the user's", quoted(role)));
            reader.blocks.push(Block::text(format!("[role: {role}]")));
        }
        // A message that only calls tools has an empty text with some programs.
        let says_nothing = !calls.is_empty() && content.is_some_and(|content| is_nothing(content.as_str()));
        reader.content(content.filter(|_| !says_nothing))?;
    }
    for call in &calls {
        reader.call(call);
    }
    reader.more("message", &more);
    let MessageReader { blocks, reasoning, has_reasoning, .. } = reader;
    let is_only_reasoning = blocks.is_empty() && has_reasoning;
    for text in reasoning {
        events.push(Event::Reasoning(Reasoning { text, subagent: None }));
    }
    if !is_only_reasoning {
        let message = Message::new(known.unwrap_or(Role::User), blocks);
        events.append(&mut events_of_message(message));
    }
    Ok(events)
}

/// Removes the tool calls from the fields of a message that has them beside its content.
fn tool_calls(more: &mut Fields<'_>) -> Vec<Json> {
    let calls = more.get("tool_calls").and_then(|raw| serde_json::from_str::<Vec<Json>>(raw.get()).ok());
    if calls.is_some() {
        more.remove("tool_calls");
    }
    calls.unwrap_or_default()
}

/// Returns the call that a message of the role `tool` answers.
fn answered_call(role: &str, more: &mut Fields<'_>) -> Option<String> {
    let id = serde_json::from_str(more.get("tool_call_id")?.get()).ok().filter(|_| role == "tool")?;
    more.remove("tool_call_id");
    // The tool's, which its call says too.
    more.remove("name");
    Some(id)
}

/// Says whether a value is empty: most programs also write the fields that they do not use.
pub(super) fn is_nothing(json: &str) -> bool {
    matches!(json, "null" | "\"\"" | "[]" | "{}" | "false")
}

/// Returns a value as text for people.
pub(super) fn shown(raw: &RawValue) -> String {
    match serde_json::from_str::<Value>(raw.get()) {
        Ok(Value::String(text)) => text,
        Ok(value) => abridged(&value).to_string(),
        Err(_) => raw.get().to_owned(),
    }
}

/// The blocks of a message so far.
struct MessageReader<'a> {
    blocks: Vec<Block>,
    reasoning: Vec<String>,
    /// Whether there is reasoning, perhaps without a text.
    has_reasoning: bool,
    report: &'a mut dyn FnMut(&str),
}

impl MessageReader<'_> {
    /// Reads the content: a text, or a list of blocks.
    fn content(&mut self, content: Option<&Json>) -> Result<(), Reason> {
        let Some(content) = content else {
            return Ok(());
        };
        match content.as_str().bytes().next() {
            Some(b'"') => {
                let text = content.read().unwrap_or_else(|_| self.unreadable("text", content));
                self.blocks.push(Block::text(text));
            }
            Some(b'[') => {
                for part in content.read::<Vec<Json>>()? {
                    self.part(&part);
                }
            }
            Some(b'n') => {}
            _ => return Err("its content is neither text nor a list of blocks".into()),
        }
        Ok(())
    }

    fn part(&mut self, part: &Json) {
        let kind = part.string_field("type").unwrap_or_default();
        let fields = part.fields();
        let block = part.read::<Block>().ok().or_else(|| match kind.as_str() {
            "image" | "audio" | "video" => image(part).map(Block::Image),
            "tool_result" => self.tool_result(part),
            _ => None,
        });
        let known: &[&str] = match (&block, kind.as_str()) {
            (Some(Block::Text { .. }), _) => &["type", "text"],
            (Some(Block::Image(_)), _) => &["type", "media_type", "data", "source"],
            (Some(Block::ToolUse { .. }), _) => &["type", "id", "name", "input"],
            (Some(Block::ToolResult { .. }), _) => &["type", "tool_use_id", "content", "is_error"],
            (None, "reasoning" | "thinking" | "redacted_thinking") => {
                let written =
                    ["text", "thinking"].map(|name| fields.get(name).filter(|raw| !is_nothing(raw.get())));
                let Some(written) = written.into_iter().flatten().next() else {
                    // Only its provider can read it.
                    self.has_reasoning = true;
                    return (self.report)(&format!("{} block without a text, left out", quoted(&kind)));
                };
                let Ok(text) = serde_json::from_str(written.get()) else {
                    return self.keep_as_note(&kind, part);
                };
                (self.report)("reasoning block, kept apart from the messages");
                self.has_reasoning = true;
                self.reasoning.push(text);
                &["type", "id", "text", "thinking", "redacted"]
            }
            (None, _) => return self.keep_as_note(&kind, part),
        };
        self.blocks.extend(block);
        let more = fields.into_iter().filter(|(name, _)| !known.contains(&name.as_str())).collect();
        self.more(&format!("{} block", quoted(&kind)), &more);
    }

    /// Adds the unknown fields of a message or block.
    fn more(&mut self, owner: &str, more: &Fields<'_>) {
        for (name, raw) in more {
            if is_nothing(raw.get()) {
            } else if name == "signature" {
                (self.report)("provider's signature, left out");
            } else if BESIDE_THE_POINT.contains(&name.as_str()) {
                (self.report)(&format!("{} of a {owner}, left out", quoted(name)));
            } else {
                (self.report)(&format!("{} of a {owner}, kept as a note in the text", quoted(name)));
                self.blocks.push(Block::text(format!("[{name}: {}]", shown(raw))));
            }
        }
    }

    /// Reads a tool call from beside the content.
    fn call(&mut self, call: &Json) {
        let read = || {
            let fields = call.fields();
            let function: Json = serde_json::from_str(fields.get("function")?.get()).ok()?;
            let id = call.string_field("id").unwrap_or_default();
            Some(Block::ToolUse { id, name: function.string_field("name")?, input: arguments(&function)? })
        };
        match read() {
            Some(block) => self.blocks.push(block),
            None => self.keep_as_note("tool_call", call),
        }
    }

    /// Reads a tool result that has parts without a form in azureal.
    fn tool_result(&mut self, part: &Json) -> Option<Block> {
        let tool_use_id = part.string_field("tool_use_id")?;
        let fields = part.fields();
        let content = fields.get("content").and_then(|raw| serde_json::from_str::<Json>(raw.get()).ok());
        let is_error = fields.get("is_error").is_some_and(|raw| raw.get() == "true");
        Some(Block::ToolResult { tool_use_id, content: self.output(content.as_ref()), is_error })
    }

    /// Reads the output of a tool.
    fn output(&mut self, content: Option<&Json>) -> ToolOutput {
        let Some(content) = content.filter(|content| content.as_str() != "null") else {
            return ToolOutput::Text(String::new());
        };
        if content.as_str().starts_with('"') {
            return ToolOutput::Text(content.read().unwrap_or_else(|_| self.unreadable("text", content)));
        }
        match content.read::<Vec<Json>>() {
            Ok(parts) if parts.is_empty() => ToolOutput::Text(String::new()),
            Ok(parts) => ToolOutput::Parts(parts.iter().map(|part| self.output_part(part)).collect()),
            Err(_) => ToolOutput::Text(content.as_str().to_owned()),
        }
    }

    fn output_part(&mut self, part: &Json) -> OutputPart {
        if let Ok(known) = part.read() {
            return known;
        }
        if let Some(image) = image(part) {
            return OutputPart::Image(image);
        }
        let kind = part.string_field("type").unwrap_or_default();
        OutputPart::Text(self.note(&kind, part))
    }

    fn keep_as_note(&mut self, kind: &str, part: &Json) {
        let note = self.note(kind, part);
        self.blocks.push(Block::text(note));
    }

    /// Returns the text that replaces a block of an unknown kind.
    fn note(&mut self, kind: &str, part: &Json) -> String {
        let kind = if kind.is_empty() { "unknown" } else { kind };
        match part.read::<Value>() {
            Ok(value) => {
                (self.report)(&format!("{} block, kept as a note in the text", quoted(kind)));
                format!("[{kind} block: {}]", abridged(&value))
            }
            Err(_) => self.unreadable(kind, part),
        }
    }

    /// Returns the text that replaces JSON that cannot be decoded: half of a character, or nested too deeply.
    fn unreadable(&mut self, kind: &str, json: &Json) -> String {
        (self.report)(&format!("{} block that cannot be read, kept as its JSON in the text", quoted(kind)));
        format!("[{kind} block: {}]", json.as_str())
    }
}

/// Reads the arguments of a call. Most programs write them as JSON in a string.
fn arguments(function: &Json) -> Option<Json> {
    let fields = function.fields();
    let Some(raw) = fields.get("arguments") else {
        return Some(Json::empty_object());
    };
    let value: Json = match serde_json::from_str::<String>(raw.get()) {
        Ok(text) => text.parse().unwrap_or_else(|_| Value::from(text).into()),
        Err(_) => serde_json::from_str(raw.get()).ok()?,
    };
    if value.is_object() {
        return Some(value);
    }
    let raw: Box<RawValue> = serde_json::from_str(value.as_str()).ok()?;
    Some(if is_nothing(raw.get()) { Json::empty_object() } else { Json::from_fields([("arguments", &*raw)]) })
}

/// Reads an image, a sound or a film in a field `source`, where some providers write it.
fn image(part: &Json) -> Option<azureal_core::Image> {
    let source: Json = serde_json::from_str(part.fields().get("source")?.get()).ok()?;
    let flat = json!({
        "type": part.string_field("type")?,
        "media_type": source.string_field("media_type")?,
        "data": source.string_field("data")?,
    });
    match serde_json::from_value::<Block>(flat).ok()? {
        Block::Image(image) => Some(image),
        _ => None,
    }
}

fn abridged(value: &Value) -> Value {
    match value {
        Value::String(text) if text.len() > LONGEST_STRING => {
            let start: String = text.chars().take(LONGEST_STRING / 10).collect();
            Value::String(format!("{start}… ({} characters)", text.chars().count()))
        }
        Value::Array(values) => values.iter().map(abridged).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), abridged(value))).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::{MediaType, fold};

    use super::*;

    fn read_message(role: &str, content: &str) -> (Vec<Event>, Vec<String>) {
        let mut reports = Vec::new();
        let content: Json = content.parse().unwrap();
        let events =
            events_of(role, Some(&content), Fields::new(), &mut |what| reports.push(what.to_owned()))
                .unwrap();
        (events, reports)
    }

    #[test]
    fn what_azureal_knows_is_taken_as_it_is() {
        let content = r#"[{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"Bash","input":{"n":12345678901234567890123}}]"#;
        let (events, reports) = read_message("assistant", content);
        assert_eq!(reports, [""; 0]);
        let Block::ToolUse { input, .. } = &fold(events)[0].content[1] else { panic!() };
        assert_eq!(input.as_str(), r#"{"n":12345678901234567890123}"#);
        let (events, _) = read_message("user", r#""plain""#);
        assert_eq!(events, [Event::user("plain")]);
    }

    #[test]
    fn pictures_of_both_shapes_are_read() {
        let expected = [Message::new(Role::User, [Block::image(MediaType::Png, [1, 2, 3])])];
        for content in [
            r#"[{"type":"image","media_type":"image/png","data":"AQID"}]"#,
            r#"[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AQID"}}]"#,
        ] {
            let (events, reports) = read_message("user", content);
            assert_eq!((fold(events), reports), (expected.to_vec(), vec![]));
        }
    }

    #[test]
    fn sounds_and_films_are_read() {
        let sound = Block::image(MediaType::Wav, [1, 2, 3]);
        let film = OutputPart::Image(azureal_core::Image { media_type: MediaType::Mp4, data: vec![0] });
        for content in [
            r#"[{"type":"audio","media_type":"audio/wav","data":"AQID"}]"#,
            r#"[{"type":"audio","source":{"type":"base64","media_type":"audio/wav","data":"AQID"}}]"#,
        ] {
            let (events, reports) = read_message("user", content);
            assert_eq!((fold(events), reports), (vec![Message::new(Role::User, [sound.clone()])], vec![]));
        }
        let (events, reports) = read_message(
            "user",
            r#"[{"type":"tool_result","tool_use_id":"t","content":[{"type":"video","media_type":"video/mp4","data":"AA=="}]}]"#,
        );
        let Block::ToolResult { content: ToolOutput::Parts(parts), .. } = &fold(events)[0].content[0] else {
            panic!()
        };
        assert_eq!((parts, reports), (&vec![film], vec![]));
    }

    #[test]
    fn nothing_is_dropped_in_silence() {
        let long = "A".repeat(5000);
        let (events, reports) = read_message(
            "assistant",
            &format!(
                r#"[{{"type":"reasoning","text":"hm"}},{{"type":"smell","media_type":"smell/rose","data":"{long}"}},{{"type":"text","text":"x","signature":"s","provider":"google"}}]"#
            ),
        );
        assert_eq!(
            reports,
            [
                "reasoning block, kept apart from the messages",
                "`smell` block, kept as a note in the text",
                "`provider` of a `text` block, left out",
                "provider's signature, left out",
            ]
        );
        assert_eq!(events[0].kind(), "Reasoning");
        let messages = fold(events);
        assert_eq!(messages[0].content.len(), 2, "what is left out is in no text");
        let text = messages[0].first_text().unwrap();
        assert!(text.starts_with("[smell block: ") && text.contains("(5000 characters)"), "{text}");
        assert!(text.len() < 300);

        let (events, reports) = read_message("tool", r#""out""#);
        assert_eq!(reports.len(), 1);
        assert_eq!(fold(events)[0].content, [Block::text("[role: tool]"), Block::text("out")]);
    }

    #[test]
    fn reasoning_that_only_its_provider_can_read_is_in_no_text() {
        for kind in ["reasoning", "thinking", "redacted_thinking"] {
            let redacted = format!(
                r#"{{"type":"{kind}","text":"","data":"ENC","redacted":true,"signature":"ENC","provider":"a"}}"#
            );
            let (events, reports) =
                read_message("assistant", &format!(r#"[{redacted},{{"type":"text","text":"x"}}]"#));
            assert_eq!(reports, [format!("`{kind}` block without a text, left out")]);
            assert_eq!(fold(events), [Message::new(Role::Assistant, [Block::text("x")])]);
            assert_eq!(read_message("assistant", &format!("[{redacted}]")).0, []);
        }
    }

    #[test]
    fn results_may_lack_what_others_do_not_write() {
        let (events, _) =
            read_message("user", r#"[{"type":"tool_result","tool_use_id":"t","content":null}]"#);
        assert_eq!(fold(events)[0].content, [Block::tool_result("t", "")]);
        let (events, reports) = read_message(
            "user",
            r#"[{"type":"tool_result","tool_use_id":"t","content":[{"type":"video"}]}]"#,
        );
        assert_eq!(reports.len(), 1);
        let Block::ToolResult { content: ToolOutput::Parts(parts), .. } = &fold(events)[0].content[0] else {
            panic!()
        };
        assert_eq!(parts, &[OutputPart::Text(r#"[video block: {"type":"video"}]"#.into())]);
    }

    fn read_whole(json: &str) -> (Vec<Message>, Vec<String>) {
        let mut reports = Vec::new();
        let message: Json = json.parse().unwrap();
        let mut fields = message.fields();
        let role: String = serde_json::from_str(fields.remove("role").unwrap().get()).unwrap();
        let content: Option<Json> =
            fields.remove("content").map(|raw| serde_json::from_str(raw.get()).unwrap());
        let events =
            events_of(&role, content.as_ref(), fields, &mut |what| reports.push(what.to_owned())).unwrap();
        // The events can be stored and read.
        let events: Vec<Event> =
            events.iter().map(|event| Event::from_json(&event.to_json()).unwrap()).collect();
        (fold(events), reports)
    }

    #[test]
    fn what_cannot_be_read_is_kept_as_it_is() {
        let half = r#""lost \ud83d half""#;
        let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        for (json, kept) in [
            (format!(r#"{{"role":"user","content":{half}}}"#), half),
            (format!(r#"{{"role":"user","content":[{{"type":"text","text":{half}}}]}}"#), half),
            (format!(r#"{{"role":"user","content":[{{"type":"odd","x":{deep}}}]}}"#), &deep),
            (format!(r#"{{"role":"user","content":[{{"type":"thinking","thinking":{half}}}]}}"#), half),
        ] {
            let (messages, reports) = read_whole(&json);
            let text = messages[0].first_text().unwrap();
            assert!(text.contains(kept), "{json}: {text}");
            assert_eq!(reports.len(), 1, "{json}: {reports:?}");
            assert!(reports[0].contains("kept as its JSON"), "{reports:?}");
        }
        for content in [half, &format!(r#"[{{"type":"text","text":{half}}}]"#)] {
            let (messages, reports) = read_whole(&format!(
                r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":{content}}}]}}"#
            ));
            let Block::ToolResult { tool_use_id, content, .. } = &messages[0].content[0] else { panic!() };
            assert_eq!((tool_use_id.as_str(), reports.len()), ("t", 1));
            assert!(serde_json::to_string(content).unwrap().contains(r"lost \\ud83d half"));
        }
    }

    #[test]
    fn tool_calls_beside_the_content_are_tool_calls() {
        let (messages, reports) = read_whole(
            r#"{"role":"assistant","content":"","refusal":null,"tool_calls":[
                {"id":"c1","type":"function","function":{"name":"get","arguments":"{\"n\":12345678901234567890123}"}},
                {"id":"c2","type":"function","function":{"name":"odd","arguments":"not json"}},
                {"id":"c3","type":"function","function":{"name":"none","arguments":""}},
                {"id":"c4","type":"function","function":{"name":"plain","arguments":{"a":1}}},
                {"what":"else"}]}"#,
        );
        let input = |index: usize| match &messages[0].content[index] {
            Block::ToolUse { id, name, input } => format!("{id} {name} {}", input.as_str()),
            other => panic!("{other:?}"),
        };
        assert_eq!(input(0), r#"c1 get {"n":12345678901234567890123}"#);
        assert_eq!(input(1), r#"c2 odd {"arguments":"not json"}"#);
        assert_eq!(input(2), "c3 none {}");
        assert_eq!(input(3), r#"c4 plain {"a":1}"#);
        assert_eq!(messages[0].content[4], Block::text(r#"[tool_call block: {"what":"else"}]"#));
        assert_eq!(reports, ["`tool_call` block, kept as a note in the text"]);
        let (messages, reports) =
            read_whole(r#"{"role":"tool","tool_call_id":"c1","name":"get","content":"42"}"#);
        assert_eq!(messages, [Message::new(Role::User, [Block::tool_result("c1", "42")])]);
        assert_eq!(reports, [""; 0]);
    }

    #[test]
    fn fields_without_a_place_are_reported() {
        let (messages, reports) = read_whole(
            r#"{"role":"user","name":"alice","id":"m1","audio":null,"content":[{"type":"text","text":"hi","citations":[1]}]}"#,
        );
        assert_eq!(
            reports,
            [
                "`citations` of a `text` block, kept as a note in the text",
                "`id` of a message, left out",
                "`name` of a message, kept as a note in the text",
            ]
        );
        let texts: Vec<&str> = messages[0].content.iter().filter_map(Block::as_text).collect();
        assert_eq!(texts, ["hi", "[citations: [1]]", "[name: alice]"]);
    }
}
