//! The Responses API of OpenAI, as Codex speaks it.

use serde_json::{Value, json};

use super::answer::{Answer, Content, deltas};
use super::stream::{Event, Format, Rendered, id};

/// Any text will do: only the service itself reads it.
const ENCRYPTED: &str = "ZW5jcnlwdGVk";

pub(super) const FORMAT: Format = Format { render, error_body, error_event };

fn render(answer: &Answer, model: &str) -> Rendered {
    let id = id("resp_");
    let response = |status: &str, output: &[Value], usage: Value| {
        json!({
            "id": id, "object": "response", "status": status, "model": model,
            "output": output, "usage": usage, "error": null, "incomplete_details": null,
        })
    };
    let begun = response("in_progress", &[], Value::Null);
    let mut events = vec![
        Event::new("response.created", json!({"response": begun})),
        Event::new("response.in_progress", json!({"response": begun})),
    ];
    let mut output = Vec::new();
    for (index, block) in answer.blocks.iter().enumerate() {
        let Item { start, growth, whole } = item(&block.content);
        let added = Event::new("response.output_item.added", json!({"output_index": index, "item": start}))
            .after(&block.wait);
        let growth = growth.into_iter().map(|(name, mut data)| {
            data["item_id"] = start["id"].clone();
            data["output_index"] = json!(index);
            Event::new(name, data)
        });
        let done = Event::new("response.output_item.done", json!({"output_index": index, "item": whole}));
        let of_item = std::iter::once(added).chain(growth).chain([done]);
        events.extend(of_item.map(|event| event.of_block(index)));
        output.push(whole);
    }

    let used = answer.usage;
    let usage = json!({
        // Here what came from the cache is part of the input.
        "input_tokens": used.input + used.cache_read,
        "input_tokens_details": {"cached_tokens": used.cache_read},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.input + used.cache_read + used.output,
    });
    let is_short = answer.stop_reason.as_deref() == Some("max_tokens");
    let (status, last) =
        if is_short { ("incomplete", "response.incomplete") } else { ("completed", "response.completed") };
    let mut whole = response(status, &output, usage);
    if is_short {
        whole["incomplete_details"] = json!({"reason": "max_output_tokens"});
    }
    events.push(Event::new(last, json!({"response": whole})).after(&answer.next));
    Rendered { events, whole }
}

/// An output item as it begins, the events in which it grows, and as it is in the end.
struct Item {
    start: Value,
    growth: Vec<(&'static str, Value)>,
    whole: Value,
}

fn item(content: &Content) -> Item {
    match content {
        Content::Text(pieces) => message(pieces),
        Content::Thinking(pieces) => reasoning(pieces),
        Content::Tool { name, input } => {
            let arguments = input.to_string();
            let start = json!({
                "type": "function_call", "id": id("fc_"), "call_id": id("call_"), "name": name,
                "arguments": "", "status": "in_progress",
            });
            call(start, "arguments", &arguments, "response.function_call_arguments.delta")
        }
        Content::CustomTool { name, input } => {
            let start = json!({
                "type": "custom_tool_call", "id": id("ctc_"), "call_id": id("call_"), "name": name,
                "input": "", "status": "in_progress",
            });
            call(start, "input", input, "response.custom_tool_call_input.delta")
        }
        Content::Raw(item) => Item { start: item.clone(), growth: Vec::new(), whole: item.clone() },
    }
}

fn message(pieces: &[String]) -> Item {
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
    let text = pieces.concat();
    let start = json!({
        "type": "message", "id": id("msg_"), "role": "assistant", "status": "in_progress", "content": [],
    });
    let mut whole = start.clone();
    whole["status"] = json!("completed");
    whole["content"] = json!([part(&text)]);
    let mut growth = vec![("response.content_part.added", json!({"content_index": 0, "part": part("")}))];
    growth.extend(
        pieces
            .iter()
            .map(|piece| ("response.output_text.delta", json!({"content_index": 0, "delta": piece}))),
    );
    growth.push(("response.output_text.done", json!({"content_index": 0, "text": text})));
    growth.push(("response.content_part.done", json!({"content_index": 0, "part": part(&text)})));
    Item { start, growth, whole }
}

fn reasoning(pieces: &[String]) -> Item {
    let part = |text: &str| json!({"type": "summary_text", "text": text});
    let text = pieces.concat();
    let start = json!({"type": "reasoning", "id": id("rs_"), "summary": [], "encrypted_content": null});
    let mut whole = start.clone();
    whole["summary"] = json!([part(&text)]);
    whole["encrypted_content"] = json!(ENCRYPTED);
    let mut growth =
        vec![("response.reasoning_summary_part.added", json!({"summary_index": 0, "part": part("")}))];
    growth.extend(
        pieces.iter().map(|piece| {
            ("response.reasoning_summary_text.delta", json!({"summary_index": 0, "delta": piece}))
        }),
    );
    growth.push(("response.reasoning_summary_text.done", json!({"summary_index": 0, "text": text})));
    Item { start, growth, whole }
}

/// A call whose text arrives bit by bit under `field`.
fn call(start: Value, field: &str, text: &str, delta: &'static str) -> Item {
    let growth = deltas(text).into_iter().map(|piece| (delta, json!({"delta": piece}))).collect();
    let mut whole = start.clone();
    whole[field] = json!(text);
    whole["status"] = json!("completed");
    Item { start, growth, whole }
}

pub(super) fn error_body(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        400 => ("invalid_request_error", "invalid_request_error"),
        401 => ("invalid_request_error", "invalid_api_key"),
        403 => ("permission_error", "permission_error"),
        404 => ("not_found_error", "not_found_error"),
        429 => ("rate_limit_exceeded", "rate_limit_exceeded"),
        503 | 529 => ("server_is_overloaded", "server_is_overloaded"),
        _ => ("server_error", "server_error"),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

fn error_event(kind: &str, message: &str) -> Event {
    let error = json!({"code": kind, "message": message});
    let response = json!({"id": id("resp_"), "object": "response", "status": "failed", "output": [],
        "usage": null, "error": error});
    Event::new("response.failed", json!({"response": response}))
}
