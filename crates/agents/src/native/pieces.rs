//! A conversation in the pieces that the agents' formats consist of, for writers.

use std::borrow::Cow;
use std::io::{self, Write};

use azureal_core::{Block, Image, Json, Message, Role, ToolOutput, Uuid, to_visible_json};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::NativeConversation;

/// A piece of a conversation.
pub(crate) enum Piece<'a> {
    Prompt(Prompt<'a>),
    /// The texts and calls of one answer, in their order.
    Answer(Vec<Step<'a>>),
    /// The results of the calls of the answer before it.
    Results(Vec<CallResult<'a>>),
}

/// What the user says.
pub(crate) struct Prompt<'a> {
    pub(crate) text: String,
    pub(crate) pictures: Vec<&'a Image>,
}

/// A part of an answer.
pub(crate) enum Step<'a> {
    Text(Cow<'a, str>),
    Call { id: &'a str, name: &'a str, input: &'a Json },
}

/// The result of a call.
#[derive(Clone, Copy)]
pub(crate) struct CallResult<'a> {
    /// The id of the call.
    pub(crate) id: &'a str,
    pub(crate) content: &'a ToolOutput,
    pub(crate) is_error: bool,
}

/// Takes messages apart. The results of calls come before what the user says in the same message.
pub(crate) fn pieces(messages: &[Message]) -> impl Iterator<Item = Piece<'_>> {
    messages
        .iter()
        .flat_map(|message| match message.role {
            Role::Assistant => {
                let steps: Vec<Step<'_>> = message.content.iter().filter_map(step).collect();
                [(!steps.is_empty()).then_some(Piece::Answer(steps)), None]
            }
            Role::User | Role::System => {
                let results: Vec<CallResult<'_>> = message.content.iter().filter_map(result).collect();
                [
                    (!results.is_empty()).then_some(Piece::Results(results)),
                    prompt(&message.content).map(Piece::Prompt),
                ]
            }
        })
        .flatten()
}

fn step(block: &Block) -> Option<Step<'_>> {
    match block {
        Block::Text { text } => Some(Step::Text(Cow::Borrowed(text))),
        // No program has media in an answer.
        Block::Image(image) => Some(Step::Text(Cow::Owned(image.note()))),
        Block::ToolUse { id, name, input } => Some(Step::Call { id, name, input }),
        Block::ToolResult { .. } => None,
    }
}

fn result(block: &Block) -> Option<CallResult<'_>> {
    match block {
        Block::ToolResult { tool_use_id, content, is_error } => {
            Some(CallResult { id: tool_use_id, content, is_error: *is_error })
        }
        Block::Text { .. } | Block::Image(_) | Block::ToolUse { .. } => None,
    }
}

/// Returns what the user says in a message; `None` if it has only results. Texts are joined, and a sound or a film becomes a note.
fn prompt(content: &[Block]) -> Option<Prompt<'_>> {
    let mut texts: Vec<Cow<'_, str>> = Vec::new();
    let mut pictures = Vec::new();
    for block in content {
        match block {
            Block::Text { text } => texts.push(Cow::Borrowed(text)),
            Block::Image(image) if image.is_picture() => pictures.push(image),
            Block::Image(image) => texts.push(Cow::Owned(image.note())),
            Block::ToolUse { .. } | Block::ToolResult { .. } => {}
        }
    }
    let is_said = !texts.is_empty() || !pictures.is_empty();
    is_said.then(|| Prompt { text: texts.join("\n\n"), pictures })
}

/// Ids and times for the records of a session. They depend on the session and on the order of the records alone, so a session
/// that is written twice gives the same bytes.
pub(crate) struct Stamps {
    session: Uuid,
    started: Timestamp,
    count: u32,
}

/// The id and the time of a record.
pub(crate) struct Stamp {
    pub(crate) id: Uuid,
    pub(crate) time: Timestamp,
}

impl Stamps {
    pub(crate) fn of(session: &NativeConversation<'_>) -> Self {
        Self { session: session.id.parse().unwrap_or_default(), started: session.started, count: 0 }
    }

    pub(crate) fn next(&mut self) -> Stamp {
        let step = SignedDuration::from_millis(self.count.into());
        self.count = self.count.saturating_add(1);
        Stamp {
            id: Uuid::from_u128(self.session.as_u128().wrapping_add(self.count.into())),
            time: self.started.saturating_add(step).unwrap_or(self.started),
        }
    }
}

impl Stamp {
    /// Returns the time as JavaScript writes it: `2026-01-31T09:30:00.000Z`.
    pub(crate) fn iso(&self) -> String {
        iso(self.time)
    }
}

/// Returns a time as JavaScript writes it: `2026-01-31T09:30:00.000Z`.
pub(crate) fn iso(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// Writes a value as a line of JSON.
pub(crate) fn write_line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    writeln!(out, "{}", to_visible_json(value)?)
}
