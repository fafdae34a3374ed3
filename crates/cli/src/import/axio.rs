//! A list of messages, as axio writes it.

use std::collections::BTreeMap;
use std::path::Path;

use azureal_core::event::{MessageEvent, SystemMessage};
use azureal_core::{Block, Event, Json, Role, Tokens, TurnTotals};

use super::blocks::{self, Fields};
use super::recognise::{parse, unknown};
use super::texts::Texts;
use super::{Arrival, Identity};
use crate::failure::{Failure, quoted};

pub(super) fn read(path: &Path, text: &str) -> Result<Arrival, Failure> {
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
    // A list has no id. Its first event is what stays the same while it grows; lists that begin alike are
    // told apart when they are compared with what is there.
    let beginning = conversation.events.first().map(Event::to_json).unwrap_or_default();
    let hash = blake3::hash(beginning.as_bytes()).to_hex();
    let (texts, totals, problems) = conversation.finish();
    Ok(Arrival {
        source: path.display().to_string(),
        identity: Identity::of_origin(format!("axio-list:{hash}")),
        name: path.file_stem().map(|stem| stem.to_string_lossy().into_owned()),
        worktree: None,
        created_at: None,
        texts,
        compactions: Vec::new(),
        totals,
        tokens: Tokens::default(),
        notices: Vec::new(),
        problems,
    })
}

/// Messages as they become events, and what is to be said of them.
#[derive(Default)]
pub(super) struct Conversation {
    pub(super) events: Vec<Event>,
    problems: Vec<String>,
    /// What azureal has no form for, and how often it occurred.
    without_form: BTreeMap<String, u64>,
}

impl Conversation {
    /// Takes a message as a whole.
    pub(super) fn add_message(&mut self, position: u64, message: &Json) {
        let mut fields: Fields<'_> = match serde_json::from_str(message.as_str()) {
            Ok(fields) => fields,
            Err(error) => return self.left_out(position, &error.to_string()),
        };
        let Some(role) = fields.remove("role") else {
            return self.left_out(position, "it has no role");
        };
        let content = fields.remove("content").map(|raw| serde_json::from_str::<Json>(raw.get())).transpose();
        match (serde_json::from_str::<String>(role.get()), content) {
            (Ok(role), Ok(content)) => self.add(position, &role, content.as_ref(), fields),
            (Err(error), _) | (_, Err(error)) => self.left_out(position, &error.to_string()),
        }
    }

    /// Takes a message's role and content, and what it has besides.
    pub(super) fn add(&mut self, position: u64, role: &str, content: Option<&Json>, more: Fields<'_>) {
        match blocks::events_of(role, content, more, &mut |what| self.without_form(what)) {
            Ok(mut events) => self.events.append(&mut events),
            Err(why) => self.left_out(position, &why),
        }
    }

    /// Takes what a conversation has besides its messages.
    pub(super) fn add_rest(&mut self, more: Fields<'_>) {
        for (name, raw) in more {
            if blocks::is_nothing(raw.get()) {
                continue;
            }
            match serde_json::from_str::<String>(raw.get()) {
                Ok(text) if matches!(name.as_str(), "system" | "system_prompt") => {
                    self.add_system_prompt(&name, text);
                }
                _ => self.problems.push(format!(
                    "{} of the conversation, left out: {}",
                    quoted(&name),
                    quoted(blocks::shown(raw))
                )),
            }
        }
    }

    /// Takes a system prompt that stands beside the messages: the system message, unless there is one.
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
        let name = quoted(name);
        self.problems.push(format!("{name} of the conversation, kept as a note in its system message"));
    }

    /// Notes that a message could not be read.
    pub(super) fn left_out(&mut self, position: u64, why: &str) {
        self.problems.push(format!(
            "the message at position {position} was left out, because it cannot be read: {why}"
        ));
    }

    /// Notes something that azureal has no form for.
    pub(super) fn without_form(&mut self, what: &str) {
        *self.without_form.entry(what.to_owned()).or_default() += 1;
    }

    /// Returns the texts of the events, what they say of their turns, and what is to be said of them.
    pub(super) fn finish(mut self) -> (Texts, TurnTotals, Vec<String>) {
        for (what, count) in &self.without_form {
            self.problems.push(format!("{what} ({count}×)"));
        }
        let texts = self.events.iter().map(Event::to_json).collect();
        (Texts::at_hand(texts), TurnTotals::of(&self.events), self.problems)
    }
}
