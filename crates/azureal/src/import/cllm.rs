//! A conversation of cllm.

use std::path::Path;

use azureal_core::event::{ModelSwitch, SystemMessage};
use azureal_core::{Event, Json, Tokens};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Arrival;
use super::axio::Conversation;
use super::recognise::parse;
use crate::failure::Failure;

#[derive(Deserialize)]
struct Stored {
    id: String,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    messages: Vec<Json>,
    #[serde(default)]
    created_at: Option<String>,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

pub(super) fn read(path: &Path, text: &str) -> Result<Arrival, Failure> {
    let stored: Stored = parse(path, text)?;
    let metadata = stored.metadata.unwrap_or_default();
    let mut conversation = Conversation::default();
    for (index, message) in stored.messages.iter().enumerate() {
        conversation.add_message(index as u64, message);
    }
    if let Some(Event::SystemMessage(system)) = conversation.events.first_mut()
        && let Err(why) = restore_record(system, &metadata)
    {
        conversation.without_form(&format!("record of context commands that cannot be read: {why}"));
    }
    // The system message stays the first event.
    let at = usize::from(matches!(conversation.events.first(), Some(Event::SystemMessage(_))));
    if let Some(model) = stored.model.filter(|model| !model.is_empty()) {
        conversation.events.insert(at, Event::ModelSwitch(ModelSwitch { model }));
    }
    let (events, problems) = conversation.finish();
    Ok(Arrival {
        source: path.display().to_string(),
        origin: format!("cllm:{}@{}", stored.id, stored.created_at.as_deref().unwrap_or("")),
        created_at: stored.created_at,
        name: Some(stored.id),
        worktree: None,
        events,
        compactions: Vec::new(),
        totals: None,
        home: None,
        tokens: Tokens {
            // cllm counts both directions as one.
            input: metadata.get("total_tokens").and_then(Value::as_u64).unwrap_or(0),
            output: 0,
        },
        problems,
    })
}

/// Takes over which context commands ran, so that they are not run again.
fn restore_record(system: &mut SystemMessage, metadata: &Map<String, Value>) -> serde_json::Result<()> {
    if let Some(executed_at) = metadata.get("context_executed_at") {
        system.context_executed_at = Option::deserialize(executed_at)?;
    }
    if let Some(commands) = metadata.get("context_commands") {
        system.context_commands = Option::deserialize(commands)?;
    }
    Ok(())
}
