//! A conversation in the pieces that the agents' formats consist of, for writers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

use azureal_core::{Block, Image, Json, Message, OutputPart, Role, ToolOutput, Uuid, to_visible_json};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

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

/// Takes messages apart.
pub(crate) fn pieces(messages: &[Message]) -> impl Iterator<Item = Piece<'_>> {
    messages.iter().flat_map(of_message).flatten()
}

/// Takes a message apart. The results of calls come before what the user says.
fn of_message(message: &Message) -> [Option<Piece<'_>>; 2] {
    match message.role {
        Role::Assistant => [answer(&message.content), None],
        Role::User | Role::System => [results(&message.content), prompt(&message.content)],
    }
}

/// Returns the result of each call, by the id of the call.
pub(crate) fn results_by_call(messages: &[Message]) -> HashMap<&str, CallResult<'_>> {
    let all = messages.iter().flat_map(|message| &message.content).filter_map(result);
    all.map(|result| (result.id, result)).collect()
}

/// Returns the steps of an answer. Texts that follow one another become one, because some programs join them without a space.
fn answer(content: &[Block]) -> Option<Piece<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for step in content.iter().filter_map(step) {
        match (steps.last_mut(), step) {
            (Some(Step::Text(before)), Step::Text(text)) => {
                let before = before.to_mut();
                before.push_str("\n\n");
                before.push_str(&text);
            }
            (_, step) => steps.push(step),
        }
    }
    (!steps.is_empty()).then_some(Piece::Answer(steps))
}

fn results(content: &[Block]) -> Option<Piece<'_>> {
    let results: Vec<CallResult<'_>> = content.iter().filter_map(result).collect();
    (!results.is_empty()).then_some(Piece::Results(results))
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
fn prompt(content: &[Block]) -> Option<Piece<'_>> {
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
    is_said.then(|| Piece::Prompt(Prompt { text: texts.join("\n\n"), pictures }))
}

/// Returns the exit code that a failed command has in front of its output, and the output, which may be empty.
pub(crate) fn exit_code(text: &str) -> Option<(i64, &str)> {
    let rest = text.strip_prefix("Exit code ")?;
    let (code, output) = rest.split_once('\n').unwrap_or((rest, ""));
    Some((code.parse().ok().filter(|code| *code != 0)?, output))
}

/// Returns the pictures in a result.
pub(crate) fn pictures(output: &ToolOutput) -> impl Iterator<Item = &Image> {
    let parts = match output {
        ToolOutput::Text(_) => [].as_slice(),
        ToolOutput::Parts(parts) => parts,
    };
    parts.iter().filter_map(|part| match part {
        OutputPart::Image(image) => Some(image).filter(|image| image.is_picture()),
        OutputPart::Text(_) => None,
    })
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

/// Returns whether a record of a session has an id of these.
pub(crate) fn is_stamped(session: &str, record: &str) -> bool {
    let number = |id: &str| id.parse().map(|id: Uuid| id.as_u128());
    let count =
        number(record).ok().zip(number(session).ok()).map(|(record, session)| record.wrapping_sub(session));
    count.is_some_and(|count| (1..=u32::MAX.into()).contains(&count))
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

/// Adds fields to an object.
pub(crate) fn with_fields<const N: usize>(mut object: Value, fields: [(&str, Value); N]) -> Value {
    if let Value::Object(object) = &mut object {
        object.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    }
    object
}

/// Writes a value as a line of JSON.
pub(crate) fn write_line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    writeln!(out, "{}", to_visible_json(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_has_an_exit_code_also_without_output() {
        for (text, expected) in [
            ("Exit code 2\nno such file", Some((2, "no such file"))),
            ("Exit code 1", Some((1, ""))),
            ("Exit code 0", None),
            ("Exit code of the test", None),
            ("no such file", None),
        ] {
            assert_eq!(exit_code(text), expected, "{text}");
        }
    }
}
