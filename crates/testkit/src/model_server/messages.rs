//! The Messages API of Anthropic, as Claude Code speaks it.

use serde_json::{Value, json};

use super::answer::{Answer, Content, deltas};
use super::stream::{Event, Format, Rendered, id};

/// Any text will do: only the service itself reads it.
const SIGNATURE: &str = "c2lnbmF0dXJl";

pub(super) const FORMAT: Format = Format { render, error_body, error_event };

fn render(answer: &Answer, model: &str) -> Rendered {
    let usage = answer.usage;
    let usage_with = |output: u64| {
        json!({
            "input_tokens": usage.input,
            "cache_creation_input_tokens": usage.cache_write,
            "cache_read_input_tokens": usage.cache_read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": usage.cache_write - usage.cache_write_1h,
                "ephemeral_1h_input_tokens": usage.cache_write_1h,
            },
            "output_tokens": output,
        })
    };
    let message = |content: Vec<Value>, stop_reason: Option<&str>, usage: Value| {
        json!({
            "type": "message", "role": "assistant", "model": model, "content": content,
            "stop_reason": stop_reason, "stop_sequence": null, "usage": usage,
        })
    };
    let id = id("msg_");
    let with_id = |mut message: Value| {
        message["id"] = json!(id);
        message
    };

    let begun = with_id(message(Vec::new(), None, usage_with(1)));
    let mut events =
        vec![Event::new("message_start", json!({"message": begun})), Event::new("ping", json!({}))];
    let mut content = Vec::new();
    for (index, block) in answer.blocks.iter().enumerate() {
        let parts = block_parts(&block.content);
        let start = Event::new("content_block_start", json!({"index": index, "content_block": parts.start}))
            .after(&block.wait);
        let deltas = parts
            .deltas
            .into_iter()
            .map(|delta| Event::new("content_block_delta", json!({"index": index, "delta": delta})));
        let stop = Event::new("content_block_stop", json!({"index": index}));
        let of_block = std::iter::once(start).chain(deltas).chain([stop]);
        events.extend(of_block.map(|event| event.of_block(index)));
        content.push(parts.whole);
    }

    let calls = content.iter().any(|block| block["type"] == "tool_use");
    let stop_reason = answer.stop_reason.as_deref().unwrap_or(if calls { "tool_use" } else { "end_turn" });
    let delta = json!({"stop_reason": stop_reason, "stop_sequence": null});
    let used = usage_with(usage.output);
    let delta = Event::new("message_delta", json!({"delta": delta, "usage": used}));
    events.push(delta.after(&answer.next));
    events.push(Event::new("message_stop", json!({})));
    Rendered { events, whole: with_id(message(content, Some(stop_reason), used)) }
}

/// A content block as it begins, as it grows and as it is in the end.
struct Parts {
    start: Value,
    deltas: Vec<Value>,
    whole: Value,
}

fn block_parts(content: &Content) -> Parts {
    match content {
        Content::Text(pieces) => Parts {
            start: json!({"type": "text", "text": ""}),
            deltas: pieces.iter().map(|piece| json!({"type": "text_delta", "text": piece})).collect(),
            whole: json!({"type": "text", "text": pieces.concat()}),
        },
        Content::Thinking(pieces) => {
            let thinking = pieces.iter().map(|piece| json!({"type": "thinking_delta", "thinking": piece}));
            let signature = json!({"type": "signature_delta", "signature": SIGNATURE});
            Parts {
                start: json!({"type": "thinking", "thinking": "", "signature": ""}),
                deltas: thinking.chain([signature]).collect(),
                whole: json!({"type": "thinking", "thinking": pieces.concat(), "signature": SIGNATURE}),
            }
        }
        Content::Tool { name, input } => tool_use(name, input),
        Content::CustomTool { name, input } => tool_use(name, &json!({"input": input})),
        Content::Raw(block) => Parts { start: block.clone(), deltas: Vec::new(), whole: block.clone() },
    }
}

fn tool_use(name: &str, input: &Value) -> Parts {
    let with = |input: &Value, id: &str| json!({"type": "tool_use", "id": id, "name": name, "input": input});
    let id = id("toolu_");
    let pieces = deltas(&input.to_string());
    let partial = |piece: &str| json!({"type": "input_json_delta", "partial_json": piece});
    Parts {
        start: with(&json!({}), &id),
        deltas: std::iter::once("").chain(pieces.iter().map(String::as_str)).map(partial).collect(),
        whole: with(input, &id),
    }
}

fn error_body(status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

fn error_event(kind: &str, message: &str) -> Event {
    Event::new("error", json!({"error": {"type": kind, "message": message}}))
}
