//! A session as a conversation that cllm loads.
//!
//! cllm builds its object from exactly these six keys, and fails on any other. It reads files in the preferred
//! encoding of the machine, so the export is ASCII.

use std::io::Write;
use std::time::SystemTime;

use azureal_core::agent::OFFLINE_AGENT;
use azureal_core::event::{ModelSwitch, SystemMessage};
use azureal_core::{Block, Event, Fold, Message, SessionRecord, ascii_json};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::masking::Masking;
use super::{ExportError, Source, each_event, is_empty_frame};
use crate::DamagedEvents;
use crate::import::{ExportNote, NOTE};

pub(super) async fn write(
    source: &Source<'_>,
    record: &SessionRecord,
    id: Option<&str>,
    masking: &mut Masking<'_>,
    out: &mut impl Write,
) -> Result<DamagedEvents, ExportError> {
    let mut fold = Fold::default();
    let mut metadata = Map::new();
    let mut model = None;
    let mut events = 0;
    let damaged = each_event(source, record.id, masking, |_, event| {
        if let (0, Event::SystemMessage(system)) = (events, &event) {
            keep_record(system, &mut metadata);
        }
        note_model(&event, &mut model);
        events += 1;
        fold.push(event);
        Ok(())
    })
    .await?;
    let tokens = record.tokens.input.saturating_add(record.tokens.output);
    if tokens > 0 {
        metadata.insert("total_tokens".to_owned(), tokens.into());
    }
    let messages: Vec<(String, String)> = fold
        .finish()
        .iter()
        .filter(|message| !is_empty_frame(message))
        .map(|message| (message.role.to_string(), flat(message)))
        .collect();
    if let Some(uuid) = record.uuid {
        metadata.insert(NOTE.to_owned(), json!(ExportNote::new(uuid, events, &messages)));
    }
    let messages: Vec<Value> =
        messages.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    // A store that keeps no times has no better answer.
    let created_at = if record.created_at.is_empty() { now() } else { record.created_at.clone() };
    let updated_at = if record.last_active.is_empty() { &created_at } else { &record.last_active };
    let conversation = json!({
        "id": id.map_or_else(|| conversation_id(record), str::to_owned),
        // Without a model, cllm uses the one of its configuration.
        "model": model.unwrap_or_default(),
        "messages": messages,
        "created_at": created_at,
        "updated_at": updated_at,
        "metadata": metadata,
    });
    writeln!(out, "{}", ascii_json(&format!("{conversation:#}")))?;
    Ok(damaged)
}

/// Notes the model that answers from here on. The built-in agent has none.
fn note_model(event: &Event, model: &mut Option<String>) {
    let (name, agent) = match event {
        Event::Init(init) => (&init.model, &init.agent),
        Event::ModelSwitch(switch) => (&switch.model, &switch.agent),
        _ => return,
    };
    let is_model = !name.is_empty() && name != ModelSwitch::DEFAULT;
    if is_model && agent.as_deref() != Some(OFFLINE_AGENT) {
        *model = Some(name.clone());
    }
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
