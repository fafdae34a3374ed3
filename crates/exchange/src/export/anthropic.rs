//! A session as the messages of Anthropic's API.

use std::io::Write;

use azureal_core::{Block, Image, Message, OutputPart, SessionRecord, ToolOutput, to_visible_json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
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
    write!(out, "{{")?;
    if !system.is_empty() {
        writeln!(out, "\"system\":{},", to_visible_json(&system)?)?;
    }
    write!(out, "\"messages\":[")?;
    for (index, Message { role, content }) in messages.iter().enumerate() {
        let separator = if index == 0 { "\n" } else { ",\n" };
        let content: Vec<Value> = content.iter().map(of_block).collect();
        write!(out, "{separator}{}", to_visible_json(&json!({"role": role, "content": content}))?)?;
    }
    writeln!(out, "\n]}}")?;
    Ok(damaged)
}

fn of_block(block: &Block) -> Value {
    match block {
        Block::Text { text } => json!({"type": "text", "text": text}),
        Block::Image(image) => media(image),
        Block::ToolUse { id, name, input } => {
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
        Block::ToolResult { tool_use_id, content, is_error } => {
            let content = match content {
                ToolOutput::Text(text) => json!(text),
                ToolOutput::Parts(parts) => parts
                    .iter()
                    .filter(|part| !matches!(part, OutputPart::Text(text) if text.is_empty()))
                    .map(|part| match part {
                        OutputPart::Text(text) => json!({"type": "text", "text": text}),
                        OutputPart::Image(image) => media(image),
                    })
                    .collect(),
            };
            json!({"type": "tool_result", "tool_use_id": tool_use_id, "content": content, "is_error": is_error})
        }
    }
}

fn media(image: &Image) -> Value {
    if image.media_type.kind() != "image" {
        return json!({"type": "text", "text": image.note()});
    }
    json!({
        "type": "image",
        "source": {
            "type": "base64",
            "media_type": image.media_type.as_str(),
            "data": BASE64.encode(&image.data),
        },
    })
}
