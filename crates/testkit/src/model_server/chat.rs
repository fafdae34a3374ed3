//! The Chat completions API of OpenAI, as Qwen Code and opencode speak it.

use serde_json::{Value, json};

use super::answer::{Answer, Content, deltas};
use super::stream::{Event, Format, Rendered, id};

use super::responses::error_body;

pub(super) const FORMAT: Format = Format { render, error_body, error_event };

fn render(answer: &Answer, model: &str) -> Rendered {
    let id = id("chatcmpl-");
    let object = |kind: &str, choices: Value| json!({"id": id, "object": kind, "created": 0, "model": model, "choices": choices});
    let chunk = |delta: Value, finish_reason: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
        Event::unnamed(&object("chat.completion.chunk", json!([choice])))
    };

    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    let mut message = Message::default();
    for (index, block) in answer.blocks.iter().enumerate() {
        let deltas = message.add(&block.content).into_iter().map(|delta| chunk(delta, None).delta());
        let mut of_block = deltas.map(|event| event.of_block(index));
        // A block begins with its first delta here, so this is the one that waits.
        events.extend(of_block.next().map(|first| first.after(&block.wait)));
        events.extend(of_block);
    }

    let finish_reason = match answer.stop_reason.as_deref() {
        Some("max_tokens") => "length",
        Some("end_turn") => "stop",
        Some("tool_use") => "tool_calls",
        Some(other) => other,
        None if message.calls.is_empty() => "stop",
        None => "tool_calls",
    };
    let used = answer.usage;
    let prompt = used.whole_input();
    let usage = json!({
        // Here the tokens from the cache are part of the prompt.
        "prompt_tokens": prompt,
        "prompt_tokens_details": {"cached_tokens": used.cache_read},
        "completion_tokens": used.output,
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": prompt + used.output,
    });
    events.push(chunk(json!({}), Some(finish_reason)).after(&answer.next));
    let mut last = object("chat.completion.chunk", json!([]));
    last["usage"] = usage.clone();
    events.push(Event::unnamed(&last));
    events.push(Event::text("[DONE]"));

    let choice = json!({"index": 0, "message": message.whole(), "finish_reason": finish_reason});
    let mut whole = object("chat.completion", json!([choice]));
    whole["usage"] = usage;
    Rendered { events, whole }
}

/// The message of the model, which grows block by block: this API has one text and a list of calls.
#[derive(Default)]
struct Message {
    text: String,
    reasoning: String,
    calls: Vec<Value>,
}

impl Message {
    /// Adds a block and returns its deltas.
    fn add(&mut self, content: &Content) -> Vec<Value> {
        match content {
            Content::Text(pieces) => {
                self.text.extend(pieces.iter().map(String::as_str));
                pieces.iter().map(|piece| json!({"content": piece})).collect()
            }
            Content::Thinking(pieces) => {
                self.reasoning.extend(pieces.iter().map(String::as_str));
                pieces.iter().map(|piece| json!({"reasoning_content": piece})).collect()
            }
            Content::Tool { name, input } => self.call(name, input),
            Content::CustomTool { name, input } => self.call(name, &json!({"input": input})),
            Content::Raw(delta) => vec![delta.clone()],
        }
    }

    fn call(&mut self, name: &str, input: &Value) -> Vec<Value> {
        let index = self.calls.len();
        let id = id("call_");
        let arguments = input.to_string();
        let start = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
        let grows = |piece: String| json!({"index": index, "function": {"arguments": piece}});
        let growth = deltas(&arguments).into_iter().map(grows);
        let deltas = std::iter::once(start).chain(growth).map(|call| json!({"tool_calls": [call]})).collect();
        self.calls
            .push(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}));
        deltas
    }

    fn whole(self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.text});
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = json!(self.reasoning);
        }
        if !self.calls.is_empty() {
            message["tool_calls"] = json!(self.calls);
        }
        message
    }
}

fn error_event(kind: &str, message: &str) -> Event {
    Event::unnamed(&json!({"error": {"message": message, "type": kind, "param": null, "code": kind}}))
}
