//! opencode: the messages of its sessions, and their parts, as its database has them.
//!
//! The database is read elsewhere; this module parses the JSON in its rows. Every message is followed by its parts. So a prompt is
//! known when the next message comes. Messages of opencode 2 have no parts in other rows (`entries`).

mod entries;

mod write;

use azureal_core::event::Usage;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::native::draft::{Answer, Draft};
use crate::native::tools::{ToolNames, translate};
use crate::native::{NativePlace, NativeTurn};
use crate::wire::{Fields, Loose, kept, lenient, long_text};

pub use write::OpencodeWriter;

/// The name of the agent.
pub const NAME: &str = "opencode";

const PATH: (&str, &str) = ("filePath", "file_path");
/// The name of the path in opencode 2, which also has another name for `bash`.
const NEWER_PATH: (&str, &str) = ("path", "file_path");
const SHELL: &str = "shell";

/// Tools of MCP servers keep their names, because the parts of a name cannot be told apart.
const TOOLS: &[ToolNames] = &[
    ("bash", "Bash", &[]),
    (SHELL, "Bash", &[]),
    ("read", "Read", &[PATH, NEWER_PATH]),
    ("write", "Write", &[PATH, NEWER_PATH]),
    (
        "edit",
        "Edit",
        &[
            PATH,
            NEWER_PATH,
            ("oldString", "old_string"),
            ("newString", "new_string"),
            ("replaceAll", "replace_all"),
        ],
    ),
    ("grep", "Grep", &[]),
    ("glob", "Glob", &[]),
    ("list", "LS", &[]),
    ("webfetch", "WebFetch", &[]),
    ("websearch", "WebSearch", &[]),
    ("task", "Task", &[]),
    ("todowrite", "TodoWrite", &[]),
];

/// Reads the messages of a session, in their order.
pub struct OpencodeReader {
    draft: Draft,
    message: Open,
}

/// The message whose parts are being read.
#[derive(Default)]
enum Open {
    #[default]
    None,
    /// The text of a prompt.
    Prompt {
        id: String,
        time: Option<Timestamp>,
        text: String,
        is_compaction: bool,
    },
    /// The text of a summary.
    Summary(String),
    Answer(Answering),
}

/// An answer, and what its message says of its end.
struct Answering {
    /// The tokens and the cost of the message, unless its steps have them.
    tokens: Option<Tokens>,
    cost: f64,
    is_done: bool,
    error: Option<Failure>,
}

impl Answering {
    /// Returns an answer whose message has this end: `stop`, or `tool-calls` if the model continues.
    fn new(tokens: Option<Tokens>, cost: f64, finish: &str, error: Option<Failure>) -> Self {
        Self { tokens, cost, is_done: !matches!(finish, "" | "tool-calls" | "unknown"), error }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    #[serde(default, deserialize_with = "lenient")]
    role: String,
    #[serde(default)]
    time: Loose<Times>,
    #[serde(rename = "modelID", default, deserialize_with = "lenient")]
    model_id: String,
    #[serde(default)]
    path: Loose<Directory>,
    #[serde(default)]
    tokens: Loose<Tokens>,
    #[serde(default, deserialize_with = "lenient")]
    cost: f64,
    /// The reason why the model ended the message.
    #[serde(default, deserialize_with = "lenient")]
    finish: String,
    #[serde(default)]
    error: Loose<Failure>,
    /// Whether the message is the summary of a compaction.
    #[serde(default, deserialize_with = "lenient")]
    summary: bool,
}

#[derive(Deserialize)]
struct Times {
    #[serde(default, deserialize_with = "lenient")]
    created: i64,
    #[serde(default, deserialize_with = "lenient")]
    completed: Option<i64>,
    #[serde(default, deserialize_with = "lenient")]
    end: Option<i64>,
}

#[derive(Deserialize)]
struct Directory {
    #[serde(default, deserialize_with = "lenient")]
    cwd: String,
}

/// Tokens, each counted in one of the fields only.
#[derive(Deserialize)]
struct Tokens {
    #[serde(default, deserialize_with = "lenient")]
    input: u64,
    #[serde(default, deserialize_with = "lenient")]
    output: u64,
    #[serde(default, deserialize_with = "lenient")]
    reasoning: u64,
    #[serde(default)]
    cache: Loose<Cache>,
}

#[derive(Default, Deserialize)]
struct Cache {
    #[serde(default, deserialize_with = "lenient")]
    read: u64,
    #[serde(default, deserialize_with = "lenient")]
    write: u64,
}

impl Tokens {
    fn usage(self) -> Usage {
        let Cache { read, write } = self.cache.0.unwrap_or_default();
        Usage {
            input_tokens: self.input.saturating_add(read).saturating_add(write),
            output_tokens: self.output.saturating_add(self.reasoning),
            cache_read_tokens: read,
            cache_write_tokens: write,
            context_tokens: None,
        }
    }
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default, deserialize_with = "lenient")]
    name: String,
    /// Its name in opencode 2.
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default)]
    data: Loose<FailureData>,
    /// The message in opencode 2.
    #[serde(default, deserialize_with = "lenient")]
    message: String,
}

#[derive(Deserialize)]
struct FailureData {
    #[serde(default, deserialize_with = "lenient")]
    message: String,
}

impl Failure {
    fn name(&self) -> &str {
        [self.name.as_str(), &self.kind].into_iter().find(|name| !name.is_empty()).unwrap_or("agent_error")
    }

    /// Returns whether the user stopped the turn.
    fn is_abort(&self) -> bool {
        self.name().to_ascii_lowercase().contains("abort")
    }

    fn text(self) -> String {
        self.data.0.map(|data| data.message).filter(|message| !message.is_empty()).unwrap_or(self.message)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "long_text")]
    text: String,
    /// Whether the program wrote the text, and not the user.
    #[serde(default, deserialize_with = "lenient")]
    synthetic: bool,
    #[serde(default, deserialize_with = "lenient")]
    tool: String,
    #[serde(rename = "callID", default, deserialize_with = "lenient")]
    call_id: String,
    #[serde(default, borrow)]
    state: Loose<State<'a>>,
    #[serde(default)]
    tokens: Loose<Tokens>,
    #[serde(default, deserialize_with = "lenient")]
    cost: f64,
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
    #[serde(default, deserialize_with = "long_text")]
    output: String,
    #[serde(default, deserialize_with = "long_text")]
    error: String,
    #[serde(default)]
    metadata: Loose<Metadata>,
    #[serde(default)]
    time: Loose<Times>,
}

/// The program's own form of a result.
#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default, deserialize_with = "lenient")]
    exit: Option<i64>,
    #[serde(default, deserialize_with = "lenient")]
    diff: Option<String>,
    #[serde(default)]
    display: Loose<Display>,
}

#[derive(Deserialize)]
struct Display {
    #[serde(default, deserialize_with = "lenient")]
    text: Option<String>,
}

impl OpencodeReader {
    /// Reads a session of this id, which ran in this directory.
    pub fn new(session: &str, cwd: &str) -> Self {
        Self { draft: Draft::new(NAME, session, cwd), message: Open::None }
    }

    /// Reads a message. Its parts come next.
    pub fn message(&mut self, id: &str, data: &str) {
        self.end_message();
        let Some(message) = Fields::of(data).and_then(|fields| fields.read::<Message>()) else {
            return self.problem(id, "it is no JSON object");
        };
        let times = message.time.0;
        let created = times.as_ref().and_then(|times| time(times.created));
        match message.role.as_str() {
            "user" => {
                let text = String::new();
                self.message = Open::Prompt { id: id.to_owned(), time: created, text, is_compaction: false };
            }
            "assistant" => {
                self.draft.reach(id, created);
                if let Some(end) = times.and_then(|times| times.completed).and_then(time) {
                    self.draft.reach(id, Some(end));
                }
                self.draft.runs_in(&message.path.0.map(|path| path.cwd).unwrap_or_default());
                self.draft.model(&message.model_id);
                self.message = match message.summary {
                    true => Open::Summary(String::new()),
                    false => Open::Answer(Answering::new(
                        message.tokens.0,
                        message.cost,
                        &message.finish,
                        message.error.0,
                    )),
                };
            }
            _ => self.problem(id, "it is a message of an unknown role"),
        }
    }

    /// Reads a part of the last message.
    pub fn part(&mut self, id: &str, data: &str) {
        let Some(part) = Fields::of(data).and_then(|fields| fields.read::<Part<'_>>()) else {
            return self.problem(id, "it is no JSON object");
        };
        match (&mut self.message, part.kind.as_str()) {
            (Open::Prompt { text, .. }, "text") if !part.synthetic => text.push_str(&part.text),
            (Open::Prompt { is_compaction, .. }, "compaction") => *is_compaction = true,
            (Open::Summary(summary), "text") => summary.push_str(&part.text),
            (Open::Answer(_), _) => self.answer(id, part),
            (_, "text" | "reasoning" | "file" | "agent" | "subtask" | "tool") => {}
            (_, kind) if is_note(kind) => {}
            (_, kind) => {
                let reason =
                    format!("it is a part of an unknown kind: {}", crate::unreadable::shorten(kind, 60));
                self.problem(id, reason);
            }
        }
    }

    /// Reads a part of an answer.
    fn answer(&mut self, id: &str, part: Part<'_>) {
        let end = part.time.0.and_then(|times| times.end).and_then(time);
        self.draft.reach(id, end);
        match part.kind.as_str() {
            "text" => self.draft.text(part.text, None),
            "reasoning" => self.draft.reasoning(part.text, None),
            "tool" => {
                let Some(state) = part.state.0 else {
                    return self.problem(id, "the call has no state");
                };
                let input = kept(state.input.filter(|raw| raw.get() != "null"));
                self.draft.call(&part.call_id, translate(TOOLS, &part.tool, input), None);
                self.draft.reach(id, state.time.0.as_ref().and_then(|times| times.end).and_then(time));
                if let Some(answer) = result(&part.tool, state) {
                    self.draft.result(&part.call_id, answer, None);
                }
            }
            "step-finish" => {
                if let Open::Answer(answer) = &mut self.message {
                    (answer.tokens, answer.cost) = (None, 0.0);
                }
                if let Some(tokens) = part.tokens.0 {
                    self.draft.usage(tokens.usage(), true);
                }
                self.draft.cost(part.cost);
            }
            "file" | "agent" | "subtask" => {}
            kind if is_note(kind) => {}
            kind => {
                let reason =
                    format!("it is a part of an unknown kind: {}", crate::unreadable::shorten(kind, 60));
                self.problem(id, reason);
            }
        }
    }

    /// Notes a row that cannot be read, by its id.
    pub fn problem(&mut self, id: &str, reason: impl Into<String>) {
        self.draft.problem(NativePlace::Entry(id.to_owned()), reason);
    }

    /// Ends the last message and its turn.
    pub fn finish(&mut self) {
        self.end_message();
        self.draft.finish();
    }

    /// Takes the next turn that has ended.
    pub fn take(&mut self) -> Option<NativeTurn> {
        self.draft.take()
    }

    fn end_message(&mut self) {
        match std::mem::take(&mut self.message) {
            // The program asks for a summary in the user's name.
            Open::None | Open::Prompt { is_compaction: true, .. } => {}
            // A prompt of the program alone, or one whose parts are lost.
            Open::Prompt { text, .. } if text.is_empty() => {}
            Open::Prompt { id, time, text, .. } => self.draft.prompt(&id, time, &text),
            Open::Summary(text) => self.draft.compacted(Some(text)),
            Open::Answer(Answering { tokens, cost, is_done, error }) => {
                if let Some(usage) = tokens.map(Tokens::usage).filter(|usage| *usage != Usage::default()) {
                    self.draft.usage(usage, true);
                }
                self.draft.cost(cost);
                match error {
                    Some(error) if error.is_abort() => self.draft.cancelled(),
                    Some(error) => {
                        let name = error.name().to_owned();
                        self.draft.error(&name, error.text());
                    }
                    None if is_done => self.draft.done(),
                    None => {}
                }
            }
        }
    }
}

/// Returns whether a part of this kind is a note of the program.
fn is_note(kind: &str) -> bool {
    matches!(kind, "step-start" | "step-finish" | "snapshot" | "patch" | "retry" | "compaction")
}

/// Returns the result of a call; `None` if it has none.
fn result(tool: &str, state: State<'_>) -> Option<Answer> {
    let own = state.metadata.0.unwrap_or_default();
    match state.status.as_str() {
        "completed" if tool == "bash" => Some(Answer::of_command(&state.output, own.exit, false)),
        "completed" => {
            // The output of a reading has tags and numbers for the model.
            let shown = own.display.0.and_then(|shown| shown.text).filter(|_| tool == "read");
            Some(Answer { content: shown.unwrap_or(state.output), is_error: false, diff: own.diff })
        }
        "error" => Some(Answer { content: state.error, is_error: true, diff: None }),
        _ => None,
    }
}

fn time(milliseconds: i64) -> Option<Timestamp> {
    Timestamp::from_millisecond(milliseconds).ok().filter(|_| milliseconds > 0)
}
