//! A session as the messages of OpenAI's chat completions.

use std::io::Write;

use azureal_core::{Block, Image, MediaType, Message, Role, SessionRecord, to_visible_json};
use serde_json::{Value, json};

use super::masking::Masking;
use super::provider::{Conversation, conversation};
use super::{ExportError, Source};
use crate::DamagedEvents;

pub(super) async fn write(
    source: &Source<'_>,
    record: &SessionRecord,
    masking: &mut Masking<'_>,
    out: &mut impl Write,
) -> Result<DamagedEvents, ExportError> {
    let (Conversation { system, messages }, damaged) = conversation(source, record, masking).await?;
    let first = (!system.is_empty()).then(|| json!({"role": "system", "content": system}));
    let messages = first.into_iter().chain(messages.iter().flat_map(of_message));
    write!(out, "{{\"messages\":[")?;
    for (index, message) in messages.enumerate() {
        let separator = if index == 0 { "\n" } else { ",\n" };
        write!(out, "{separator}{}", to_visible_json(&message)?)?;
    }
    writeln!(out, "\n]}}")?;
    Ok(damaged)
}

/// Returns a message; results of tools are messages of their own, before what the user says.
fn of_message(message: &Message) -> Vec<Value> {
    let (mut messages, mut parts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for block in &message.content {
        match block {
            Block::Text { text } => parts.push(json!({"type": "text", "text": text})),
            Block::Image(image) => parts.push(media(image)),
            Block::ToolUse { id, name, input } => calls.push(json!({
                "id": id,
                "type": "function",
                "function": {"name": name, "arguments": input.as_str()},
            })),
            Block::ToolResult { tool_use_id, content, is_error } => {
                // There is no field for an error.
                let content = if *is_error {
                    format!("Error: {}", content.text())
                } else {
                    content.text().into_owned()
                };
                messages.push(json!({"role": "tool", "tool_call_id": tool_use_id, "content": content}));
            }
        }
    }
    if parts.is_empty() && calls.is_empty() {
        return messages;
    }
    let content = match parts.as_slice() {
        [] => Value::Null,
        [only] if only["type"] == "text" => only["text"].clone(),
        _ if message.role == Role::Assistant => joined(&parts).into(),
        _ => Value::Array(parts),
    };
    let mut said = json!({"role": message.role, "content": content});
    if !calls.is_empty()
        && let Some(fields) = said.as_object_mut()
    {
        fields.insert("tool_calls".to_owned(), calls.into());
    }
    messages.push(said);
    messages
}

/// An answer has text alone.
fn joined(parts: &[Value]) -> String {
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    texts.join("\n\n")
}

fn media(image: &Image) -> Value {
    let audio =
        |format| json!({"type": "input_audio", "input_audio": {"data": image.base64(), "format": format}});
    match image.media_type {
        MediaType::Wav => audio("wav"),
        MediaType::Mp3 | MediaType::MpegAudio => audio("mp3"),
        _ if image.is_picture() => json!({"type": "image_url", "image_url": {"url": image.data_url()}}),
        _ => json!({"type": "text", "text": image.note()}),
    }
}
