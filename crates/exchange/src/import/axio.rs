//! Reader for a list of messages, as axio writes it.

use std::collections::BTreeMap;
use std::path::Path;

use azureal_core::event::{MessageEvent, SystemMessage};
use azureal_core::{Block, Event, Json, Role, Tokens, TurnTotals};

use super::IncomingSession;
use super::blocks::{self, Fields};
use super::event_texts::EventTexts;
use super::problem::{ImportProblem, Reason};
use super::recognise::{parse, unknown};
use crate::identity::SessionIdentity;

pub(super) fn read(path: &Path, text: &str) -> Result<IncomingSession, super::ImportError> {
    let mut more = Fields::new();
    let messages: Vec<Json> = if text.trim_start().starts_with('[') {
        parse(path, text)?
    } else {
        more = parse(path, text)?;
        let messages = more.remove("messages").ok_or_else(|| unknown(path))?;
        parse(path, messages.get())?
    };
    let mut conversation = Conversation::default();
    for (index, message) in messages.iter().enumerate() {
        conversation.add_message(index as u64, message);
    }
    conversation.add_rest(more);
    // A list has no id. Its first event stays the same while it grows. The comparison with the store distinguishes
    // lists with the same first event.
    let beginning = conversation.events.first().map(Event::to_json).unwrap_or_default();
    let hash = blake3::hash(beginning.as_bytes()).to_hex();
    let (texts, totals, problems) = conversation.finish();
    Ok(IncomingSession {
        label: path.display().to_string(),
        identity: SessionIdentity::of_origin(format!("axio-list:{hash}")),
        name: path.file_stem().map(|stem| stem.to_string_lossy().into_owned()),
        named_at: None,
        worktree: None,
        created_at: None,
        last_active: None,
        texts,
        compactions: Vec::new(),
        totals,
        tokens: Tokens::default(),
        notices: Vec::new(),
        problems,
    })
}

/// Events that messages of another program are converted to, with the problems of the conversion.
#[derive(Default)]
pub(super) struct Conversation {
    pub(super) events: Vec<Event>,
    problems: Vec<ImportProblem>,
    /// Descriptions of things that azureal has no form for, and the number of their occurrences.
    without_form: BTreeMap<String, u64>,
}

impl Conversation {
    /// Adds a message.
    pub(super) fn add_message(&mut self, position: u64, message: &Json) {
        let mut fields: Fields<'_> = match serde_json::from_str(message.as_str()) {
            Ok(fields) => fields,
            Err(error) => return self.left_out(position, error),
        };
        let Some(role) = fields.remove("role") else {
            return self.left_out(position, "it has no role");
        };
        let content = fields.remove("content").map(|raw| serde_json::from_str::<Json>(raw.get())).transpose();
        match (serde_json::from_str::<String>(role.get()), content) {
            (Ok(role), Ok(content)) => self.add(position, &role, content.as_ref(), fields),
            (Err(error), _) | (_, Err(error)) => self.left_out(position, error),
        }
    }

    /// Adds a message by its role, its content and its other fields.
    pub(super) fn add(&mut self, position: u64, role: &str, content: Option<&Json>, more: Fields<'_>) {
        match blocks::events_of(role, content, more, &mut |what| self.without_form(what)) {
            Ok(mut events) => self.events.append(&mut events),
            Err(reason) => self.left_out(position, reason),
        }
    }

    /// Adds the fields of a conversation besides its messages.
    pub(super) fn add_rest(&mut self, more: Fields<'_>) {
        for (name, raw) in more {
            if blocks::is_nothing(raw.get()) {
                continue;
            }
            match serde_json::from_str::<String>(raw.get()) {
                Ok(text) if matches!(name.as_str(), "system" | "system_prompt") => {
                    self.add_system_prompt(&name, text);
                }
                _ => self.problems.push(ImportProblem::FieldLeftOut { name, value: blocks::shown(raw) }),
            }
        }
    }

    /// Adds a system prompt from beside the messages: as the system message, or to the system message as a note.
    fn add_system_prompt(&mut self, name: &str, text: String) {
        let note = format!("[{name}: {text}]");
        match self.events.first_mut() {
            Some(Event::SystemMessage(system)) if system.content == text => return,
            Some(Event::SystemMessage(system)) => system.content.push_str(&format!("\n\n{note}")),
            Some(Event::Message(MessageEvent { role: Role::System, content })) => {
                content.push(Block::text(note));
            }
            _ => {
                let system = SystemMessage { content: text, ..SystemMessage::default() };
                return self.events.insert(0, Event::SystemMessage(system));
            }
        }
        self.problems.push(ImportProblem::SystemPromptKeptAsNote { name: name.to_owned() });
    }

    /// Reports a message that cannot be read.
    pub(super) fn left_out(&mut self, position: u64, reason: impl Into<Reason>) {
        self.problems.push(ImportProblem::MessageLeftOut { position, source: reason.into() });
    }

    /// Reports something that azureal has no form for.
    pub(super) fn without_form(&mut self, description: &str) {
        *self.without_form.entry(description.to_owned()).or_default() += 1;
    }

    /// Returns the texts of the events, the totals of their turns, and the problems.
    pub(super) fn finish(mut self) -> (EventTexts, TurnTotals, Vec<ImportProblem>) {
        for (description, count) in self.without_form {
            self.problems.push(ImportProblem::Converted { description, count });
        }
        let texts = self.events.iter().map(Event::to_json).collect();
        (EventTexts::in_memory(texts), TurnTotals::of(&self.events), self.problems)
    }
}
