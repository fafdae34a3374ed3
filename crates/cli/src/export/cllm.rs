//! A session as a conversation that cllm loads.
//!
//! cllm builds its object from exactly these six keys, and fails on any other. It reads files in whatever
//! encoding the machine prefers, so only ASCII is written.

use std::io::Write;

use azureal_core::event::SystemMessage;
use azureal_core::{Block, Event, Fold, Message, SessionRecord, SessionStore};
use serde_json::{Map, Value, json};

use super::each_event;
use crate::failure::Failure;
use crate::output::ascii_json;
use crate::transcript::{image_note, output_text};

pub(super) async fn write(
    store: &dyn SessionStore,
    record: &SessionRecord,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut fold = Fold::default();
    let mut metadata = Map::new();
    let mut is_first = true;
    each_event(store, record.id, |event| {
        if let (true, Event::SystemMessage(system)) = (is_first, &event) {
            keep_record(system, &mut metadata);
        }
        is_first = false;
        fold.push(event);
        Ok(())
    })
    .await?;
    let tokens = record.tokens.input.saturating_add(record.tokens.output);
    if tokens > 0 {
        metadata.insert("total_tokens".to_owned(), tokens.into());
    }
    let messages: Vec<Value> =
        fold.finish().iter().map(|message| json!({"role": message.role, "content": flat(message)})).collect();
    // A store that keeps no times has no better answer.
    let created_at = if record.created_at.is_empty() {
        azureal_engine::clock::now().to_string()
    } else {
        record.created_at.clone()
    };
    let conversation = json!({
        "id": conversation_id(record),
        "model": record.counts.model.as_deref().unwrap_or(""),
        "messages": messages,
        "created_at": created_at,
        "updated_at": created_at,
        "metadata": metadata,
    });
    writeln!(out, "{}", ascii_json(&format!("{conversation:#}")))?;
    Ok(())
}

/// Keeps the record of context commands that ran, by which a later turn knows not to run them again.
fn keep_record(system: &SystemMessage, metadata: &mut Map<String, Value>) {
    if let Some(executed_at) = &system.context_executed_at {
        metadata.insert("context_executed_at".to_owned(), executed_at.as_str().into());
    }
    if let Some(commands) = &system.context_commands {
        metadata.insert("context_commands".to_owned(), json!(commands));
    }
}

/// Returns an id that cllm takes: its name if that is of the right characters, else its number.
fn conversation_id(record: &SessionRecord) -> String {
    let usable = !record.name.is_empty()
        && record.name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    if usable { record.name.clone() } else { record.id.to_string() }
}

/// Returns the blocks of a message as one text: cllm knows nothing else.
fn flat(message: &Message) -> String {
    let parts: Vec<String> = message
        .content
        .iter()
        .map(|block| match block {
            Block::Text { text } => text.clone(),
            Block::Image(image) => image_note(image),
            Block::ToolUse { name, input, .. } => format!("[tool call: {name} {}]", input.as_str()),
            Block::ToolResult { content, is_error, .. } => {
                let heading = if *is_error { "tool error" } else { "tool result" };
                format!("[{heading}]\n{}", output_text(content))
            }
        })
        .collect();
    parts.join("\n\n")
}
