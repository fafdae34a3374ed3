//! A session as a conversation that cllm loads.
//!
//! cllm builds its object from exactly these six keys, and fails on any other. It reads files in the preferred
//! encoding of the machine, so the export is ASCII.

use std::io::Write;
use std::time::SystemTime;

use azureal_core::event::SystemMessage;
use azureal_core::{Block, Event, Fold, Message, SessionRecord, ascii_json};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::masking::Masking;
use super::{ExportError, Source, each_event};
use crate::DamagedEvents;

pub(super) async fn write(
    source: &Source<'_>,
    record: &SessionRecord,
    masking: &mut Masking<'_>,
    out: &mut impl Write,
) -> Result<DamagedEvents, ExportError> {
    let mut fold = Fold::default();
    let mut metadata = Map::new();
    let mut is_first = true;
    let damaged = each_event(source, record.id, masking, |event| {
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
    let created_at = if record.created_at.is_empty() { now() } else { record.created_at.clone() };
    let conversation = json!({
        "id": conversation_id(record),
        "model": record.counts.model.as_deref().unwrap_or(""),
        "messages": messages,
        "created_at": created_at,
        "updated_at": created_at,
        "metadata": metadata,
    });
    writeln!(out, "{}", ascii_json(&format!("{conversation:#}")))?;
    Ok(damaged)
}

/// Returns the present. A clock that is set beyond the year 9999, which a timestamp cannot hold, counts as that year.
fn now() -> String {
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::MAX).to_string()
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

/// Returns an id that cllm accepts: the name of the session if its characters are allowed, else its number.
fn conversation_id(record: &SessionRecord) -> String {
    let usable = !record.name.is_empty()
        && record.name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    if usable { record.name.clone() } else { record.id.to_string() }
}

/// Returns the blocks of a message as one text: cllm has no other content.
fn flat(message: &Message) -> String {
    let parts: Vec<String> = message
        .content
        .iter()
        .map(|block| match block {
            Block::Text { text } => text.clone(),
            Block::Image(image) => image.note(),
            Block::ToolUse { name, input, .. } => format!("[tool call: {name} {}]", input.as_str()),
            Block::ToolResult { content, is_error, .. } => {
                let heading = if *is_error { "tool error" } else { "tool result" };
                format!("[{heading}]\n{}", content.text())
            }
        })
        .collect();
    parts.join("\n\n")
}
