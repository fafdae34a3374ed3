//! Content blocks as Anthropic's API has them, and Claude Code in its transcripts.

use azureal_core::{Block, Image, Json, OutputPart, ToolOutput};
use serde_json::{Value, json};

/// Returns a block in the form of Anthropic's API. A sound or a film becomes a note.
pub fn api_block(block: &Block) -> Value {
    match block {
        Block::Text { text } => text_block(text),
        Block::Image(image) => image_block(image),
        Block::ToolUse { id, name, input } => call_block(id, name, input),
        Block::ToolResult { tool_use_id, content, is_error } => result_block(tool_use_id, content, *is_error),
    }
}

pub(super) fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub(super) fn image_block(image: &Image) -> Value {
    if !image.is_picture() {
        return text_block(&image.note());
    }
    json!({
        "type": "image",
        "source": {"type": "base64", "media_type": image.media_type.as_str(), "data": image.base64()},
    })
}

pub(super) fn call_block(id: &str, name: &str, input: &Json) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

pub(super) fn result_block(id: &str, content: &ToolOutput, is_error: bool) -> Value {
    let content = match content {
        ToolOutput::Text(text) => json!(text),
        ToolOutput::Parts(parts) => parts
            .iter()
            .filter(|part| !matches!(part, OutputPart::Text(text) if text.is_empty()))
            .map(|part| match part {
                OutputPart::Text(text) => text_block(text),
                // The API refuses anything but text in a failure.
                OutputPart::Image(image) if is_error => text_block(&image.note()),
                OutputPart::Image(image) => image_block(image),
            })
            .collect(),
    };
    json!({"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error})
}

#[cfg(test)]
mod tests {
    use azureal_core::MediaType;

    use super::*;

    #[test]
    fn a_failure_has_nothing_but_text() {
        let image = Image { media_type: MediaType::Png, data: b"\x89PNG".to_vec() };
        let content = ToolOutput::Parts(vec![OutputPart::Text("no".to_owned()), OutputPart::Image(image)]);
        let kinds = |is_error| {
            let block = result_block("t", &content, is_error);
            let parts = block["content"].as_array().unwrap().iter();
            parts.map(|part| part["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(kinds(false), ["text", "image"]);
        assert_eq!(kinds(true), ["text", "text"]);
    }
}
