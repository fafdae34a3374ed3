//! A list of messages, as axio writes it.

use std::collections::BTreeMap;
use std::path::Path;

use azureal_core::{Json, Tokens};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::recognise::parse;
use super::{Arrival, blocks};
use crate::failure::Failure;

#[derive(Deserialize)]
struct Wrapped {
    messages: Vec<Json>,
}

/// A message whose content is looked at later.
#[derive(Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Option<Json>,
    #[serde(default)]
    provenance: Option<Box<RawValue>>,
}

pub(super) fn read(path: &Path, text: &str) -> Result<Arrival, Failure> {
    let messages: Vec<Json> = if text.trim_start().starts_with('[') {
        parse(path, text)?
    } else {
        parse::<Wrapped>(path, text)?.messages
    };
    let mut conversation = Conversation::default();
    for (index, message) in messages.iter().enumerate() {
        conversation.add_message(index as u64, message);
    }
    let (events, problems) = conversation.finish();
    // A list has no id. Its first event is what stays the same while it grows; lists that begin alike are
    // told apart when they are compared with what is there.
    let beginning = events.first().map_or("", String::as_str);
    let hash = blake3::hash(beginning.as_bytes()).to_hex();
    Ok(Arrival {
        source: path.display().to_string(),
        origin: format!("axio-list:{hash}"),
        name: path.file_stem().map(|stem| stem.to_string_lossy().into_owned()),
        worktree: None,
        created_at: None,
        events,
        compactions: Vec::new(),
        totals: None,
        home: None,
        tokens: Tokens::default(),
        problems,
    })
}

/// Messages as they become events, and what is to be said of them.
#[derive(Default)]
pub(super) struct Conversation {
    pub(super) events: Vec<azureal_core::Event>,
    problems: Vec<String>,
    /// What azureal has no form for, and how often it occurred.
    without_form: BTreeMap<String, u64>,
}

impl Conversation {
    /// Takes a message as a whole.
    pub(super) fn add_message(&mut self, position: u64, message: &Json) {
        match message.read::<Message>() {
            Ok(message) => {
                if message.provenance.is_some_and(|raw| raw.get() != "null") {
                    self.without_form("provenance of a message, left out");
                }
                self.add(position, &message.role, message.content.as_ref());
            }
            Err(error) => self.left_out(position, &error.to_string()),
        }
    }

    /// Takes a message's role and content.
    pub(super) fn add(&mut self, position: u64, role: &str, content: Option<&Json>) {
        match blocks::events_of(role, content, &mut |what| self.without_form(what)) {
            Ok(mut events) => self.events.append(&mut events),
            Err(why) => self.left_out(position, &why),
        }
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

    /// Returns the texts of the events, and what is to be said of them.
    pub(super) fn finish(mut self) -> (Vec<String>, Vec<String>) {
        for (what, count) in &self.without_form {
            self.problems.push(format!("{what} ({count}×)"));
        }
        let texts = self.events.iter().map(azureal_core::Event::to_json).collect();
        (texts, self.problems)
    }
}
