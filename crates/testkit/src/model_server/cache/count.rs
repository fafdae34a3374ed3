//! Counting the tokens of a prompt, by the rule that the parent module states.

use serde_json::Value;

use super::items;

/// The tokens of an image or a file of any size: about those of a screen at full resolution.
pub const IMAGE_TOKENS: u64 = 1_600;
/// The bytes of one token.
pub(super) const TOKEN_BYTES: usize = 4;

/// A part of a block that is counted by itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    /// An image or a file, with its JSON.
    Image(String),
}

impl Piece {
    pub(super) fn tokens(&self) -> u64 {
        match self {
            Self::Text(text) => text.len().div_ceil(TOKEN_BYTES) as u64,
            Self::Image(_) => IMAGE_TOKENS,
        }
    }
}

/// Returns the tokens of a block of either API.
pub(super) fn tokens(block: &Value) -> u64 {
    pieces(block).iter().map(Piece::tokens).sum()
}

/// Returns the counted parts of a block of either API: a tool, a content block, a message, an item.
pub(super) fn pieces(block: &Value) -> Vec<Piece> {
    let text = |value: &Value| vec![Piece::Text(value.as_str().unwrap_or_default().to_owned())];
    match block {
        Value::Null => Vec::new(),
        Value::String(_) => text(block),
        Value::Array(blocks) => blocks.iter().flat_map(pieces).collect(),
        _ => match block["type"].as_str().unwrap_or_default() {
            "text" | "input_text" | "output_text" | "summary_text" => text(&block["text"]),
            "thinking" => text(&block["thinking"]),
            "redacted_thinking" => text(&block["data"]),
            "document" if block["source"]["type"] == "text" => text(&block["source"]["data"]),
            "image" | "input_image" | "document" | "input_file" => vec![Piece::Image(block.to_string())],
            "tool_use" => {
                let name = block["name"].as_str().unwrap_or_default();
                vec![Piece::Text(format!("{name}{}", block["input"]))]
            }
            "tool_result" | "message" => pieces(&block["content"]),
            kind if kind.ends_with("_output") => pieces(&block["output"]),
            _ => vec![Piece::Text(without_mark(block).to_string())],
        },
    }
}

/// Returns a block without `cache_control`, also in the content of a tool result. The order of keys stays.
pub(super) fn without_mark(block: &Value) -> Value {
    let mut block = block.clone();
    let is_result = block["type"] == "tool_result";
    if let Value::Object(fields) = &mut block {
        fields.retain(|name, _| name != "cache_control");
        if is_result && let Some(content) = fields.get_mut("content") {
            let unmarked: Vec<Value> = items(content).iter().map(without_mark).collect();
            if content.is_array() {
                *content = Value::Array(unmarked);
            }
        }
    }
    block
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn four_bytes_are_a_token_and_each_block_is_rounded_up() {
        for (block, expected) in [
            (json!({"type": "text", "text": ""}), 0),
            (json!({"type": "text", "text": "abcd"}), 1),
            (json!({"type": "text", "text": "abcde"}), 2),
            (json!({"type": "text", "text": "日本"}), 2),
            (json!({"type": "thinking", "thinking": "abcde", "signature": "a long one"}), 2),
            // `Bash{"command":"ls"}` has 20 bytes.
            (json!({"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}), 5),
            (json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": "abcde"}), 2),
            (
                json!({"type": "tool_result", "content": [
                    {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                    {"type": "image", "source": {"type": "base64", "data": "A".repeat(100_000)}},
                    {"type": "text", "text": "b"},
                ]}),
                IMAGE_TOKENS + 2,
            ),
            (json!({"type": "document", "source": {"type": "text", "data": "abcdefgh"}}), 2),
            // `{"name":"a"}` has 12 bytes.
            (json!({"name": "a"}), 3),
            (json!({"name": "a", "cache_control": {"type": "ephemeral"}}), 3),
            (
                json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "abcd"}]}),
                1,
            ),
            (json!({"type": "function_call_output", "call_id": "c", "output": "abcdefgh"}), 2),
            (Value::Null, 0),
        ] {
            assert_eq!(tokens(&block), expected, "{block}");
        }
    }

    #[test]
    fn a_mark_is_removed_without_a_change_of_order() {
        let mark = json!({"type": "ephemeral"});
        let marked = json!({"type": "tool_result", "cache_control": mark, "tool_use_id": "t", "content": [
            {"type": "text", "cache_control": mark, "text": "a", "citations": null}]});
        let plain = json!({"type": "tool_result", "tool_use_id": "t", "content": [
            {"type": "text", "text": "a", "citations": null}]});
        assert_eq!(without_mark(&marked).to_string(), plain.to_string());
        // The input of a call is data, not a place for a mark.
        let call = json!({"type": "tool_use", "input": {"cache_control": 1}});
        assert_eq!(without_mark(&call), call);
    }
}
