//! Messages of other programs as events.
//!
//! Blocks that azureal has are taken as they are. The model's reasoning has an event of its own. Whatever
//! else there is stays readable as text, and is reported.

use azureal_core::event::Reasoning;
use azureal_core::{Block, Event, Json, Message, OutputPart, Role, ToolOutput, events_of_message};
use serde_json::{Value, json};

/// How much of a long string is kept in a note: pictures and sounds are megabytes that nobody reads.
const LONGEST_STRING: usize = 1000;

/// Makes events of a message. Tells `report` of everything that has no form of its own here.
pub(super) fn events_of(
    role: &str,
    content: Option<&Json>,
    report: &mut dyn FnMut(&str),
) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    let mut blocks = Vec::new();
    let known = role.parse::<Role>();
    if known.is_err() {
        report(&format!("message of the unknown role `{role}`, kept as the user's"));
        blocks.push(Block::text(format!("[role: {role}]")));
    }
    let mut is_only_reasoning = false;
    for part in parts(content)? {
        match read(&part, report) {
            Part::Block(block) => blocks.push(block),
            Part::Reasoning(text) => {
                is_only_reasoning = true;
                events.push(Event::Reasoning(Reasoning { text, subagent: None }));
            }
        }
    }
    if !(blocks.is_empty() && is_only_reasoning) {
        let message = Message::new(known.unwrap_or(Role::User), blocks);
        events.append(&mut events_of_message(message));
    }
    Ok(events)
}

/// Returns the blocks of a content, which may be a plain text.
fn parts(content: Option<&Json>) -> Result<Vec<Json>, String> {
    let Some(content) = content else {
        return Ok(Vec::new());
    };
    match content.as_str().bytes().next() {
        Some(b'"') => Ok(vec![
            json!({"type": "text", "text": content.read::<Value>().map_err(|error| error.to_string())?})
                .into(),
        ]),
        Some(b'[') => content.read().map_err(|error| error.to_string()),
        Some(b'n') => Ok(Vec::new()),
        _ => Err("its content is neither text nor a list of blocks".to_owned()),
    }
}

enum Part {
    Block(Block),
    Reasoning(String),
}

fn read(part: &Json, report: &mut dyn FnMut(&str)) -> Part {
    if let Ok(block) = part.read::<Block>() {
        let signed =
            part.fields().get("signature").is_some_and(|raw| raw.get() != "\"\"" && raw.get() != "null");
        if signed {
            report("provider's signature, left out");
        }
        return Part::Block(block);
    }
    let value = part.read::<Value>().unwrap_or(Value::Null);
    let kind = value.get("type").and_then(Value::as_str).unwrap_or("");
    let block = match kind {
        "reasoning" | "thinking" => {
            let text = value.get("text").or_else(|| value.get("thinking")).and_then(Value::as_str);
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                report("reasoning block, kept apart from the messages");
                return Part::Reasoning(text.to_owned());
            }
            None
        }
        "image" => image(&value).map(Block::Image),
        "tool_result" => tool_result(&value, report),
        _ => None,
    };
    Part::Block(block.unwrap_or_else(|| Block::text(note(kind, &value, report))))
}

/// Reads a picture that stands in a `source`, as some providers put it.
fn image(value: &Value) -> Option<azureal_core::Image> {
    let source = value.get("source")?;
    let flat = json!({
        "type": "image",
        "media_type": source.get("media_type")?,
        "data": source.get("data")?,
    });
    match serde_json::from_value::<Block>(flat).ok()? {
        Block::Image(image) => Some(image),
        _ => None,
    }
}

/// Reads a tool's result of which azureal has no form for some part.
fn tool_result(value: &Value, report: &mut dyn FnMut(&str)) -> Option<Block> {
    let parts = match value.get("content") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(parts)) => parts.iter().map(|part| output_part(part, report)).collect(),
        Some(other) => vec![OutputPart::Text(other.to_string())],
    };
    Some(Block::ToolResult {
        tool_use_id: value.get("tool_use_id")?.as_str()?.to_owned(),
        content: if parts.is_empty() { ToolOutput::Text(String::new()) } else { ToolOutput::Parts(parts) },
        is_error: value.get("is_error").and_then(Value::as_bool).unwrap_or(false),
    })
}

fn output_part(part: &Value, report: &mut dyn FnMut(&str)) -> OutputPart {
    if let Ok(known) = serde_json::from_value(part.clone()) {
        return known;
    }
    if let Some(image) = image(part) {
        return OutputPart::Image(image);
    }
    let kind = part.get("type").and_then(Value::as_str).unwrap_or("");
    OutputPart::Text(note(kind, part, report))
}

/// Returns the text that stands for a block of another kind.
fn note(kind: &str, value: &Value, report: &mut dyn FnMut(&str)) -> String {
    let kind = if kind.is_empty() { "unknown" } else { kind };
    report(&format!("`{kind}` block, kept as a note in the text"));
    format!("[{kind} block: {}]", abridged(value))
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
        let events = events_of(role, Some(&content), &mut |what| reports.push(what.to_owned())).unwrap();
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
    fn nothing_is_dropped_in_silence() {
        let long = "A".repeat(5000);
        let (events, reports) = read_message(
            "assistant",
            &format!(
                r#"[{{"type":"reasoning","text":"hm"}},{{"type":"audio","media_type":"audio/wav","data":"{long}"}},{{"type":"text","text":"x","signature":"s"}}]"#
            ),
        );
        assert_eq!(
            reports,
            [
                "reasoning block, kept apart from the messages",
                "`audio` block, kept as a note in the text",
                "provider's signature, left out",
            ]
        );
        assert_eq!(events[0].kind(), "Reasoning");
        let messages = fold(events);
        let text = messages[0].first_text().unwrap();
        assert!(text.starts_with("[audio block: ") && text.contains("(5000 characters)"), "{text}");
        assert!(text.len() < 300);

        let (events, reports) = read_message("tool", r#""out""#);
        assert_eq!(reports.len(), 1);
        assert_eq!(fold(events)[0].content, [Block::text("[role: tool]"), Block::text("out")]);
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
}
