//! The messages of opencode 2: one row each, with all that belongs to it.

use serde::Deserialize;
use serde_json::value::RawValue;

use azureal_core::Json;

use super::{Answering, Failure, Open, OpencodeReader, SHELL, TOOLS, Times, Tokens, time};
use crate::native::draft::Answer;
use crate::native::tools::translate;
use crate::unreadable::shorten;
use crate::wire::{Fields, Loose, elements, kept, lenient, long_text, output_text, read};

/// The kinds of entries that are notes of the program, also in the user's name.
const NOTES: [&str; 7] =
    ["synthetic", "system", "skill", "idle", "agent-switched", "model-switched", "location-switched"];

/// The fields of all kinds of entries.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(default)]
    time: Loose<Times>,
    #[serde(default, deserialize_with = "long_text")]
    text: String,
    #[serde(default)]
    model: Loose<Model>,
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    finish: String,
    #[serde(default)]
    tokens: Loose<Tokens>,
    #[serde(default, deserialize_with = "lenient")]
    cost: f64,
    #[serde(default)]
    error: Loose<Failure>,
    /// The summary of a compaction.
    #[serde(default, deserialize_with = "long_text")]
    summary: String,
    /// A command that the user ran, and its output.
    #[serde(rename = "callID", default, deserialize_with = "lenient")]
    call_id: String,
    #[serde(default, deserialize_with = "long_text")]
    command: String,
    #[serde(default, borrow)]
    output: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(default, deserialize_with = "lenient")]
    id: String,
}

/// A part of an answer.
#[derive(Deserialize)]
struct Content<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "lenient")]
    id: String,
    #[serde(default, deserialize_with = "long_text")]
    text: String,
    #[serde(default, deserialize_with = "lenient")]
    name: String,
    #[serde(default, borrow)]
    state: Loose<State<'a>>,
    #[serde(default)]
    time: Loose<Times>,
}

/// The state of a call.
#[derive(Deserialize)]
struct State<'a> {
    #[serde(default, deserialize_with = "lenient")]
    status: String,
    #[serde(default, borrow)]
    input: Option<&'a RawValue>,
    /// The parts of the result.
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    structured: Loose<Structured>,
    #[serde(default)]
    error: Loose<Failure>,
}

/// The program's own form of a result.
#[derive(Default, Deserialize)]
struct Structured {
    #[serde(default, deserialize_with = "lenient")]
    exit: Option<i64>,
    #[serde(default, deserialize_with = "lenient")]
    diff: Option<String>,
}

/// The output of a command, which is a text in the first versions.
#[derive(Deserialize)]
struct ShellOutput {
    #[serde(default, deserialize_with = "long_text")]
    output: String,
}

impl OpencodeReader {
    /// Reads a message of opencode 2. Its kind is in another column.
    pub fn entry(&mut self, id: &str, kind: &str, data: &str) {
        let Some(entry) = Fields::of(data).and_then(|fields| fields.read::<Entry<'_>>()) else {
            return self.problem(id, "it is no JSON object");
        };
        let created = entry.time.0.as_ref().and_then(|times| time(times.created));
        let completed = entry.time.0.as_ref().and_then(|times| times.completed).and_then(time);
        match kind {
            "user" if entry.text.is_empty() => {}
            "user" => self.draft.prompt(id, created, &entry.text),
            "assistant" => {
                self.draft.reach(id, created);
                self.draft.reach(id, completed);
                self.draft.model(&entry.model.0.map(|model| model.id).unwrap_or_default());
                self.contents(id, entry.content);
                self.message =
                    Open::Answer(Answering::new(entry.tokens.0, entry.cost, &entry.finish, entry.error.0));
                self.end_message();
            }
            "compaction" if entry.summary.is_empty() => {}
            "compaction" => {
                self.draft.reach(id, created);
                self.draft.compacted(Some(entry.summary));
            }
            "shell" => {
                self.draft.reach(id, created);
                self.draft.reach(id, completed);
                let call = if entry.call_id.is_empty() { id } else { &entry.call_id };
                let input = Json::from(serde_json::json!({ "command": entry.command }));
                self.draft.call(call, translate(TOOLS, SHELL, input), None);
                if let Some(output) = entry.output {
                    let text = read::<ShellOutput>(output).map(|shell| shell.output);
                    let text = text.unwrap_or_else(|| output_text(output));
                    self.draft.result(call, Answer::of_command(&text, None, false), None);
                    // The user ran it: the agent does not continue after it.
                    self.draft.done();
                }
            }
            kind if NOTES.contains(&kind) => {}
            kind => {
                let reason = format!("it is a message of an unknown kind: {}", shorten(kind, 60));
                self.problem(id, reason);
            }
        }
    }

    fn contents(&mut self, id: &str, raw: Option<&RawValue>) {
        let Some(raw) = raw.and_then(elements) else {
            return self.problem(id, "its content is no list");
        };
        for raw in raw {
            let Some(content) = read::<Content<'_>>(raw) else {
                self.problem(id, "a part in it is no JSON object");
                continue;
            };
            match content.kind.as_str() {
                "text" => self.draft.text(content.text, None),
                "reasoning" => self.draft.reasoning(content.text, None),
                "tool" => {
                    let Some(state) = content.state.0 else {
                        self.problem(id, "a call in it has no state");
                        continue;
                    };
                    self.draft.reach(id, content.time.0.and_then(|times| times.completed).and_then(time));
                    // The input of a call that the model is still writing is a text.
                    let input = kept(state.input.filter(|raw| raw.get().starts_with('{')));
                    self.draft.call(&content.id, translate(TOOLS, &content.name, input), None);
                    if let Some(answer) = result(&content.name, state) {
                        self.draft.result(&content.id, answer, None);
                    }
                }
                kind => {
                    let reason = format!("a part in it is of an unknown kind: {}", shorten(kind, 60));
                    self.problem(id, reason);
                }
            }
        }
    }
}

/// Returns the result of a call; `None` if it has none.
fn result(tool: &str, state: State<'_>) -> Option<Answer> {
    let own = state.structured.0.unwrap_or_default();
    let output = || state.content.map(output_text).unwrap_or_default();
    match state.status.as_str() {
        "completed" if matches!(tool, "bash" | SHELL) => Some(Answer::of_command(&output(), own.exit, false)),
        "completed" => Some(Answer { content: output(), is_error: false, diff: own.diff }),
        "error" => {
            let reason = state.error.0.map(Failure::text).filter(|reason| !reason.is_empty());
            Some(Answer { content: reason.unwrap_or_else(output), is_error: true, diff: None })
        }
        _ => None,
    }
}
