//! Reader for a conversation of cllm.

use std::path::Path;

use azureal_core::event::{CommandRecord, ModelSwitch, SystemMessage};
use azureal_core::{Event, Json, Tokens};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::axio::Conversation;
use super::blocks::Fields;
use super::continued::{Continuation, ExportNote, NOTE};
use super::recognise::parse;
use super::{ImportError, IncomingSession};
use crate::identity::SessionIdentity;

#[derive(Deserialize)]
struct StoredConversation {
    id: String,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    messages: Vec<Json>,
    #[serde(default)]
    created_at: Option<String>,
    #[serde(default)]
    updated_at: Option<String>,
    #[serde(default)]
    metadata: Option<Json>,
}

/// The fields that are read or not needed.
const KNOWN: [&str; 6] = ["id", "model", "messages", "created_at", "updated_at", "metadata"];

pub(super) fn read(path: &Path, text: &str) -> Result<IncomingSession, ImportError> {
    let stored: StoredConversation = parse(path, text)?;
    let mut more: Fields<'_> = parse(path, text)?;
    more.retain(|name, _| !KNOWN.contains(&name.as_str()));
    let mut metadata = stored.metadata.as_ref().map(Json::fields).unwrap_or_default();
    // cllm counts both directions as one.
    let tokens = metadata.remove("total_tokens").and_then(|raw| serde_json::from_str(raw.get()).ok());
    let record = (metadata.remove("context_executed_at"), metadata.remove("context_commands"));
    let note = metadata.remove(NOTE).and_then(|raw| serde_json::from_str::<ExportNote>(raw.get()).ok());
    let note = note.filter(|note| note.is_of(stored.messages.iter().map_while(role_and_text)));
    let mut conversation = Conversation::default();
    let mut exported = None;
    for (index, message) in stored.messages.iter().enumerate() {
        if note.as_ref().is_some_and(|note| note.messages == index) {
            exported = Some(conversation.events.len());
        }
        conversation.add_message(index as u64, message);
    }
    let continuation = note.map(|note| {
        let added = conversation.events.iter().skip(exported.unwrap_or(usize::MAX));
        Continuation { note, added: added.map(Event::to_json).collect() }
    });
    conversation.add_rest(more);
    conversation.add_rest(metadata);
    if record.0.is_some() && !matches!(conversation.events.first(), Some(Event::SystemMessage(_))) {
        // All commands failed and are to be ignored: they have run all the same.
        conversation.events.insert(0, Event::SystemMessage(SystemMessage::default()));
    }
    if let Some(Event::SystemMessage(system)) = conversation.events.first_mut()
        && let Err(why) = restore_record(system, record)
    {
        conversation.without_form(&format!("record of context commands that cannot be read: {why}"));
    }
    // The system message stays the first event.
    let at = usize::from(matches!(conversation.events.first(), Some(Event::SystemMessage(_))));
    if let Some(model) = stored.model.filter(|model| !model.is_empty()) {
        conversation.events.insert(at, Event::ModelSwitch(ModelSwitch::reported(model)));
    }
    let (texts, totals, problems) = conversation.finish();
    Ok(IncomingSession {
        label: path.display().to_string(),
        identity: SessionIdentity {
            continuation,
            ..SessionIdentity::of_origin(format!(
                "cllm:{}@{}",
                stored.id,
                stored.created_at.as_deref().unwrap_or("")
            ))
        },
        last_active: stored.updated_at.or_else(|| stored.created_at.clone()),
        created_at: stored.created_at,
        name: Some(stored.id),
        named_at: None,
        worktree: None,
        texts,
        compactions: Vec::new(),
        totals,
        tokens: Tokens::new(tokens.unwrap_or(0), 0),
        notices: Vec::new(),
        problems,
    })
}

/// Returns the role and the text of a message; `None` if it has another content.
fn role_and_text(message: &Json) -> Option<(String, String)> {
    Some((message.string_field("role")?, message.string_field("content")?))
}

/// Restores the record of context commands, so that they do not run again.
fn restore_record(
    system: &mut SystemMessage,
    (executed_at, commands): (Option<&RawValue>, Option<&RawValue>),
) -> serde_json::Result<()> {
    if let Some(executed_at) = executed_at {
        system.context_executed_at = serde_json::from_str(executed_at.get())?;
    }
    if let Some(commands) = commands {
        let commands: Option<Vec<Ran>> = serde_json::from_str(commands.get())?;
        system.context_commands = commands.map(|commands| commands.into_iter().map(Ran::into).collect());
    }
    Ok(())
}

/// The record of a context command: as azureal writes it, or its text alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Ran {
    Text(String),
    Record(CommandRecord),
}

impl From<Ran> for CommandRecord {
    fn from(ran: Ran) -> Self {
        match ran {
            Ran::Text(command) => Self { name: command.clone(), command, ..Self::default() },
            Ran::Record(record) => record,
        }
    }
}
