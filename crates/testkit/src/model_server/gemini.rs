//! The Gemini API of Google, as Gemini CLI speaks it.

use serde_json::{Value, json};

use super::answer::{Answer, Content};
use super::stream::{Event, Format, Rendered, id};

pub(super) const FORMAT: Format = Format { render, error_body, error_event };

fn render(answer: &Answer, model: &str) -> Rendered {
    let id = id("response-");
    let used = answer.usage;
    let prompt = used.whole_input();
    let usage = json!({
        // Here the tokens from the cache are part of the prompt, and reasoning is no part of the candidates.
        "promptTokenCount": prompt,
        "cachedContentTokenCount": used.cache_read,
        "candidatesTokenCount": used.output - used.reasoning,
        "thoughtsTokenCount": used.reasoning,
        "totalTokenCount": prompt + used.output,
    });
    let response = |parts: &[Value], finish_reason: Option<&str>| {
        let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
        if let Some(reason) = finish_reason {
            candidate["finishReason"] = json!(reason);
        }
        json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": model, "responseId": id})
    };

    let mut events = Vec::new();
    let mut whole = Vec::new();
    for (index, block) in answer.blocks.iter().enumerate() {
        let Parts { pieces, complete } = parts(&block.content);
        let pieces = pieces.into_iter().map(|part| Event::unnamed(&response(&[part], None)).delta());
        let mut of_block = pieces.map(|event| event.of_block(index));
        // A block begins with its first piece here, so this is the one that waits.
        events.extend(of_block.next().map(|first| first.after(&block.wait)));
        events.extend(of_block);
        whole.push(complete);
    }

    let reason = match answer.stop_reason.as_deref() {
        Some("max_tokens") => "MAX_TOKENS",
        Some("end_turn" | "tool_use") | None => "STOP",
        Some(other) => other,
    };
    let last = response(&[json!({"text": ""})], Some(reason));
    events.push(Event::unnamed(&last).after(&answer.next));
    Rendered { events, whole: response(&whole, Some(reason)) }
}

/// A block as the parts of a stream, and as the one part of an answer that is not streamed.
struct Parts {
    pieces: Vec<Value>,
    complete: Value,
}

fn parts(content: &Content) -> Parts {
    let text = |text: &str| json!({"text": text});
    let thought = |text: &str| json!({"text": text, "thought": true});
    match content {
        Content::Text(pieces) => Parts {
            pieces: pieces.iter().map(|piece| text(piece)).collect(),
            complete: text(&pieces.concat()),
        },
        Content::Thinking(pieces) => Parts {
            pieces: pieces.iter().map(|piece| thought(piece)).collect(),
            complete: thought(&pieces.concat()),
        },
        Content::Tool { name, input } => call(name, input),
        Content::CustomTool { name, input } => call(name, &json!({"input": input})),
        Content::Raw(part) => Parts { pieces: vec![part.clone()], complete: part.clone() },
    }
}

/// A call, which this API never parts.
fn call(name: &str, input: &Value) -> Parts {
    let call = json!({"functionCall": {"id": id("call_"), "name": name, "args": input}});
    Parts { pieces: vec![call.clone()], complete: call }
}

fn error_body(status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 | 529 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    json!({"error": {"code": status, "message": message, "status": kind}})
}

fn error_event(kind: &str, message: &str) -> Event {
    Event::unnamed(&json!({"error": {"code": 503, "message": message, "status": kind}}))
}
