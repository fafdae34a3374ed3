//! The turns of a session of Gemini CLI.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::NAME;
use super::index::{Index, Place};
use super::parts::{Counts, FunctionCall, FunctionResponse, Part, parts, typed};
use crate::native::draft::{Answer, Draft};
use crate::native::lines::open_plain;
use crate::native::{NativeError, NativePlace, NativeTurn, NativeTurns};
use crate::wire::{Fields, Loose, elements, lenient, lenient_list, long_text, output_text, read};

/// Reads the messages of a session, one after the other.
pub(super) struct GeminiTurns {
    path: PathBuf,
    file: File,
    /// The messages that are to be read.
    places: std::vec::IntoIter<Place>,
    title: Option<String>,
    draft: Draft,
    has_ended: bool,
}

/// A message.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    #[serde(default, deserialize_with = "lenient")]
    id: String,
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "lenient")]
    timestamp: String,
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
    /// The prompt as it was typed, if the model gets another text.
    #[serde(default, borrow)]
    display_content: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient_list")]
    thoughts: Vec<Thought>,
    #[serde(default, borrow, deserialize_with = "lenient_list")]
    tool_calls: Vec<ToolCall<'a>>,
    #[serde(default)]
    tokens: Loose<Tokens>,
    #[serde(default, deserialize_with = "lenient")]
    model: String,
}

#[derive(Deserialize)]
struct Thought {
    #[serde(default, deserialize_with = "lenient")]
    subject: String,
    #[serde(default, deserialize_with = "long_text")]
    description: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolCall<'a> {
    #[serde(default, deserialize_with = "lenient")]
    id: String,
    #[serde(default, deserialize_with = "lenient")]
    name: String,
    #[serde(default, borrow)]
    args: Option<&'a RawValue>,
    #[serde(default, borrow)]
    result: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    status: String,
    #[serde(default)]
    result_display: Loose<ResultDisplay>,
}

/// What the program shows of a result, if that is more than a text.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResultDisplay {
    #[serde(default, deserialize_with = "lenient")]
    file_diff: Option<String>,
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(default, deserialize_with = "lenient")]
    input: u64,
    #[serde(default, deserialize_with = "lenient")]
    output: u64,
    #[serde(default, deserialize_with = "lenient")]
    cached: u64,
    #[serde(default, deserialize_with = "lenient")]
    thoughts: u64,
    #[serde(default, deserialize_with = "lenient")]
    tool: u64,
    #[serde(default, deserialize_with = "lenient")]
    total: u64,
}

impl GeminiTurns {
    /// Opens a session of this name, which ran in this directory.
    pub(super) fn open(path: &Path, name: &str, cwd: &str) -> Result<Self, NativeError> {
        let index = Index::read(path)?;
        let (file, _) = open_plain(path)?;
        let id = if index.metadata.session_id.is_empty() { name } else { &index.metadata.session_id };
        let mut draft = Draft::new(NAME, id, cwd);
        for problem in index.problems {
            draft.problem(problem.place, problem.reason);
        }
        let (title, places) = (index.metadata.summary, index.messages.into_iter());
        Ok(Self { path: path.to_owned(), file, places, title, draft, has_ended: false })
    }

    fn read_message(&mut self, place: Place) -> Result<(), NativeError> {
        let mut bytes = vec![0; place.length];
        let read =
            self.file.seek(SeekFrom::Start(place.offset)).and_then(|_| self.file.read_exact(&mut bytes));
        read.map_err(NativeError::file(&self.path))?;
        let text = String::from_utf8_lossy(&bytes);
        // The file may have been replaced since the index was read.
        let Some(message) = Fields::of(&text).and_then(|fields| fields.read::<Message<'_>>()) else {
            self.draft.problem(NativePlace::Line(place.line), "it has changed while it was read");
            return Ok(());
        };
        let unreadable = self.message(&message);
        if unreadable > 0 {
            self.draft
                .problem(NativePlace::Line(place.line), format!("{unreadable} of its parts make no sense"));
        }
        if !matches!(message.kind.as_str(), "user" | "gemini" | "info" | "warning" | "error") {
            self.draft.problem(NativePlace::Line(place.line), "it is a message of an unknown kind");
        }
        Ok(())
    }

    /// Reads a message, and returns the number of its parts that cannot be read.
    fn message(&mut self, message: &Message<'_>) -> usize {
        let time: Option<Timestamp> = message.timestamp.parse().ok();
        let (parts, unreadable) = message.content.map(parts).unwrap_or_default();
        match message.kind.as_str() {
            "user" => self.user(message, time, &parts),
            "gemini" => {
                self.draft.reach(&message.id, time);
                self.draft.model(&message.model);
                self.agent(message, parts);
            }
            "error" => {
                self.draft.reach(&message.id, time);
                self.draft.error("agent_error", typed(&parts));
            }
            _ => {}
        }
        unreadable
    }

    fn user(&mut self, message: &Message<'_>, time: Option<Timestamp>, parts: &[Part<'_>]) {
        let responses = parts.iter().filter_map(|part| part.function_response.0.as_ref());
        let mut is_prompt = true;
        for response in responses {
            is_prompt = false;
            // The call usually has it already, with more.
            if self.draft.awaits(&response.id) {
                self.draft.reach(&message.id, time);
                self.draft.result(&response.id, response.answer(false), None);
            }
        }
        if !is_prompt {
            return;
        }
        let shown = message.display_content.map(super::parts::parts).unwrap_or_default().0;
        let text = typed(if shown.is_empty() { parts } else { &shown });
        let begins = text.trim_start();
        if begins.starts_with("<state_snapshot>") {
            self.draft.reach(&message.id, time);
            self.draft.compacted(Some(text));
        } else if !["<session_context>", "<hook_context>"].iter().any(|tag| begins.starts_with(tag)) {
            self.draft.prompt(&message.id, time, &text);
        }
    }

    fn agent(&mut self, message: &Message<'_>, parts: Vec<Part<'_>>) {
        for thought in &message.thoughts {
            let text = match thought.subject.is_empty() {
                true => thought.description.clone(),
                false => format!("**{}** {}", thought.subject, thought.description).trim_end().to_owned(),
            };
            self.draft.reasoning(text, None);
        }
        let (mut said, mut asked) = (String::new(), Vec::new());
        for part in parts {
            // A thought in the text is there again as a thought of the message.
            said.push_str(part.text.as_deref().filter(|_| !part.thought).unwrap_or_default());
            asked.extend(part.function_call.0);
        }
        self.draft.text(said, None);
        for call in &message.tool_calls {
            let call = FunctionCall { id: call.id.clone(), name: call.name.clone(), args: call.args };
            self.draft.call(&call.id, call.translated(), None);
        }
        for call in asked {
            self.draft.call(&call.id, call.translated(), None);
        }
        for call in &message.tool_calls {
            if let Some(answer) = answer(call).filter(|_| self.draft.awaits(&call.id)) {
                self.draft.result(&call.id, answer, None);
            }
        }
        if let Some(tokens) = &message.tokens.0 {
            let Tokens { input, output, cached, thoughts, tool, total } = *tokens;
            self.draft.usage(Counts { input, output, cached, thoughts, tool, total }.usage(), true);
        }
    }
}

/// Returns the result of a call; `None` if it has none.
fn answer(call: &ToolCall<'_>) -> Option<Answer> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wrapped<'a> {
        #[serde(default, borrow)]
        function_response: Loose<FunctionResponse<'a>>,
    }
    let has_failed = matches!(call.status.as_str(), "error" | "cancelled");
    let diff = call.result_display.0.as_ref().and_then(|shown| shown.file_diff.clone());
    let result = call.result.filter(|result| result.get() != "null");
    let Some(result) = result else {
        let content = format!("[{}]", call.status);
        return has_failed.then_some(Answer { content, is_error: true, diff: None });
    };
    let mut found = elements(result).unwrap_or_else(|| vec![result]).into_iter();
    let response = found.find_map(|raw| {
        let response = read::<Wrapped<'_>>(raw)?.function_response.0?;
        // Several calls can share one list of results.
        (response.id.is_empty() || response.id == call.id).then_some(response)
    });
    Some(match response {
        Some(mut response) => {
            if response.name.is_empty() {
                response.name.clone_from(&call.name);
            }
            Answer { diff, ..response.answer(has_failed) }
        }
        None => Answer { content: output_text(result), is_error: has_failed, diff },
    })
}

impl NativeTurns for GeminiTurns {
    fn next_turn(&mut self) -> Result<Option<NativeTurn>, NativeError> {
        loop {
            if let Some(turn) = self.draft.take() {
                return Ok(Some(turn));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.places.next() {
                Some(place) => self.read_message(place)?,
                None => {
                    self.has_ended = true;
                    self.draft.finish();
                }
            }
        }
    }

    fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }
}
