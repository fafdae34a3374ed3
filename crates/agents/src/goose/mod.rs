//! goose: the messages of its sessions, as its database has them.
//!
//! The database is read elsewhere; this module parses the JSON in its rows. The database counts tokens for a whole session only,
//! so turns have none ([`NativeTotal`]).
//!
//! [`NativeTotal`]: crate::native::NativeTotal
//!
//! A message that only the agent sees is the summary of a compaction, or continues it.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use azureal_core::Json;

use crate::native::draft::{Answer, Draft};
use crate::native::tools::{ToolNames, translate};
use crate::native::{NativePlace, NativeTurn};
use crate::unreadable::shorten;
use crate::wire::{Fields, Loose, elements, kept, lenient, long_text, output_text, read};

/// The name of the agent.
pub const NAME: &str = "goose";

const PATH: (&str, &str) = ("path", "file_path");

/// Newer versions name the tools of `developer` without it. Tools of other extensions keep their names.
const TOOLS: &[ToolNames] = &[
    ("shell", "Bash", &[]),
    ("read", "Read", &[PATH]),
    ("view", "Read", &[PATH]),
    ("write", "Write", &[PATH, ("file_text", "content")]),
    ("edit", "Edit", &[PATH, ("before", "old_string"), ("after", "new_string")]),
    ("str_replace", "Edit", &[PATH, ("old_str", "old_string"), ("new_str", "new_string")]),
    ("tree", "LS", &[]),
];

/// Reads the messages of a session, in their order.
pub struct GooseReader {
    draft: Draft,
    model: String,
    /// Whether the last message was one that only the agent sees.
    was_hidden: bool,
}

/// A row of the table of messages.
#[derive(Debug, Clone, Copy)]
pub struct GooseMessage<'a> {
    /// The id of the message; empty in older versions.
    pub id: &'a str,
    /// The name of the row in problems.
    pub row: &'a str,
    /// `user` or `assistant`.
    pub role: &'a str,
    /// The content, as JSON.
    pub content: &'a str,
    /// The facts about the message, as JSON; empty in older versions.
    pub metadata: &'a str,
    /// The time of its creation, in seconds or milliseconds.
    pub created: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default, deserialize_with = "lenient")]
    user_visible: Option<bool>,
}

/// A part of a message.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "lenient")]
    id: String,
    #[serde(default, deserialize_with = "long_text")]
    text: String,
    #[serde(default, deserialize_with = "long_text")]
    thinking: String,
    #[serde(default, borrow)]
    tool_call: Loose<Outcome<'a>>,
    #[serde(default, borrow)]
    tool_result: Loose<Outcome<'a>>,
}

/// A call or a result that was understood, or the reason why not.
#[derive(Deserialize)]
struct Outcome<'a> {
    #[serde(default, borrow)]
    value: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "long_text")]
    error: String,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(default, deserialize_with = "lenient")]
    name: String,
    #[serde(default, borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    structured_content: Loose<Shell>,
    #[serde(default, deserialize_with = "lenient")]
    is_error: bool,
}

/// The end of a command.
#[derive(Deserialize)]
struct Shell {
    #[serde(default, deserialize_with = "lenient")]
    exit_code: Option<i64>,
}

impl GooseReader {
    /// Reads a session of this id, which ran in this directory with this model.
    pub fn new(session: &str, cwd: &str, model: &str) -> Self {
        Self { draft: Draft::new(NAME, session, cwd), model: model.to_owned(), was_hidden: false }
    }

    /// Reads a message.
    pub fn message(&mut self, message: GooseMessage<'_>) {
        let Some(raw) = serde_json::from_str::<&RawValue>(message.content).ok().and_then(elements) else {
            return self.problem(message.row, "its content is no list");
        };
        let facts = Fields::of(message.metadata).and_then(|fields| fields.read::<Metadata>());
        let is_hidden = facts.is_some_and(|facts| facts.user_visible == Some(false));
        let count = raw.len();
        let parts: Vec<Part<'_>> = raw.into_iter().filter_map(read).collect();
        if parts.len() < count {
            self.problem(message.row, format!("{} of its parts make no sense", count - parts.len()));
        }
        let time = time(message.created);
        match (is_hidden, message.role) {
            (true, _) => self.hidden(&message, time, &parts),
            (false, "user") => self.user(&message, time, parts),
            (false, "assistant") => self.assistant(&message, time, parts),
            (false, _) => self.problem(message.row, "it is a message of an unknown role"),
        }
        self.was_hidden = is_hidden;
    }

    fn hidden(&mut self, message: &GooseMessage<'_>, time: Option<Timestamp>, parts: &[Part<'_>]) {
        let text = texts(parts);
        if !self.was_hidden && !text.is_empty() {
            self.draft.reach(message.id, time);
            self.draft.compacted(Some(text));
        }
    }

    fn user(&mut self, message: &GooseMessage<'_>, time: Option<Timestamp>, parts: Vec<Part<'_>>) {
        let text = texts(&parts);
        if !text.is_empty() {
            self.draft.prompt(message.id, time, &text);
            self.draft.model(&self.model);
        }
        for part in parts {
            match part.kind.as_str() {
                "toolResponse" => {
                    self.draft.reach(message.id, time);
                    self.draft.result(&part.id, answer(&part), None);
                }
                "text" | "image" => {}
                kind => self.other(message.row, kind),
            }
        }
    }

    fn assistant(&mut self, message: &GooseMessage<'_>, time: Option<Timestamp>, parts: Vec<Part<'_>>) {
        self.draft.reach(message.id, time);
        self.draft.model(&self.model);
        for part in parts {
            match part.kind.as_str() {
                "text" => self.draft.text(part.text, None),
                "thinking" | "reasoning" => {
                    let thought = if part.thinking.is_empty() { part.text } else { part.thinking };
                    self.draft.reasoning(thought, None);
                }
                "toolRequest" | "frontendToolRequest" => {
                    let Some(asked) = part.tool_call.0 else {
                        self.problem(message.row, "a call in it has no content");
                        continue;
                    };
                    match asked.value.and_then(read::<Call<'_>>) {
                        Some(call) => {
                            let input = kept(call.arguments.filter(|raw| raw.get() != "null"));
                            self.draft.call(&part.id, translated(&call.name, input), None);
                        }
                        // The model asked for a call that goose did not understand; the result says so too.
                        None => self.draft.text(asked.error, None),
                    }
                }
                kind => self.other(message.row, kind),
            }
        }
    }

    /// Leaves a part out, and reports it if its kind is not known.
    fn other(&mut self, row: &str, kind: &str) {
        let is_known = matches!(
            kind,
            "redactedThinking"
                | "systemNotification"
                | "toolConfirmationRequest"
                | "actionRequired"
                | "image"
                | "conversationCompacted"
                | "summarizationRequested"
                | "contextLengthExceeded"
        );
        if !is_known {
            self.problem(row, format!("a part in it is of an unknown kind: {}", shorten(kind, 60)));
        }
    }

    /// Notes a row that cannot be read, by its name.
    pub fn problem(&mut self, row: &str, reason: impl Into<String>) {
        self.draft.problem(NativePlace::Entry(row.to_owned()), reason);
    }

    /// Ends the last turn.
    pub fn finish(&mut self) {
        self.draft.finish();
    }

    /// Takes the next turn that has ended.
    pub fn take(&mut self) -> Option<NativeTurn> {
        self.draft.take()
    }
}

fn texts(parts: &[Part<'_>]) -> String {
    let texts = parts.iter().filter(|part| part.kind == "text").map(|part| part.text.as_str());
    texts.collect::<Vec<_>>().join("\n")
}

fn translated(name: &str, input: Json) -> (String, Json) {
    let short = name.strip_prefix("developer__").unwrap_or(name);
    // Older versions have one editor for several tools.
    match input.string_field("command").filter(|_| short == "text_editor") {
        Some(command) => translate(TOOLS, &command, input),
        None if TOOLS.iter().any(|(theirs, ..)| *theirs == short) => translate(TOOLS, short, input),
        None => (name.to_owned(), input),
    }
}

fn answer(part: &Part<'_>) -> Answer {
    let Some(outcome) = &part.tool_result.0 else { return Answer::default() };
    let Some(result) = outcome.value.and_then(read::<ToolResult<'_>>) else {
        // Older versions have the list of parts itself.
        return match outcome.value.filter(|raw| raw.get() != "null") {
            Some(value) => Answer { content: output_text(value), is_error: false, diff: None },
            None => Answer { content: outcome.error.clone(), is_error: true, diff: None },
        };
    };
    let content = result.content.map(output_text).unwrap_or_default();
    match result.structured_content.0.and_then(|shell| shell.exit_code) {
        Some(code) => {
            let note = format!("Command exited with code {code}");
            let output =
                content.strip_suffix(&note).map_or(content.as_str(), |output| output.trim_end_matches('\n'));
            Answer::of_command(output, Some(code), result.is_error)
        }
        None => Answer { content, is_error: result.is_error, diff: None },
    }
}

/// Returns a time in seconds, or in milliseconds.
fn time(created: i64) -> Option<Timestamp> {
    match created {
        ..=0 => None,
        1..100_000_000_000 => Timestamp::from_second(created).ok(),
        _ => Timestamp::from_millisecond(created).ok(),
    }
}
