//! Events: the facts of a session, in the order in which they became true.
//!
//! The event log is the single source of truth. Messages, context, counts and listings are views of it.
//! In JSON an event is tagged from outside by its kind, `{"UserMessage":{"content":"…"}}`, and the two
//! kinds without fields are bare strings. This module is that format; `docs/format.md` is its page.

mod file_changes;

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::file_changes::{Changes, DirectoryChanges, FileChange, FileStatus, SkippedPath, Undo};
use crate::{Block, Json, Role};

/// One fact about a session.
///
/// Variants are facts, never screen rows. Adding one is a change of the format. A kind that this build does
/// not know is kept as its text and written back byte for byte:
///
/// ```
/// use azureal_core::Event;
///
/// let text = r#"{"Telemetry": {"cpu": 0.50}}"#;
/// let event = Event::from_json(text)?;
/// assert_eq!(event.kind(), "Telemetry");
/// assert_eq!(event.to_json(), text);
/// # Ok::<(), azureal_core::EventError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Event {
    /// An agent's program started.
    Init(Init),
    /// A hook of the agent's program ran.
    Hook(Hook),
    /// The user's prompt, without injected context.
    UserMessage(UserMessage),
    /// A command of the agent's program that the person gave.
    Command(Command),
    /// A plan that the agent wrote down.
    Plan(Plan),
    /// Text that the agent finished saying. Deltas are folded before they get here.
    AssistantText(AssistantText),
    /// The agent called a tool.
    ToolCall(ToolCall),
    /// A tool answered.
    ToolResult(ToolResult),
    /// A turn ended.
    Complete(Complete),
    /// The model changed.
    ModelSwitch(ModelSwitch),
    /// A compaction began.
    Compacting,
    /// A compaction ended.
    Compacted,
    /// The frame of the session: system prompt and the output of context commands.
    SystemMessage(SystemMessage),
    /// Something went wrong.
    Error(ErrorEvent),
    /// The model's visible reasoning. Never part of a context.
    Reasoning(Reasoning),
    /// A message that no other kind can express exactly.
    Message(MessageEvent),
    /// The files that changed during a turn. Part of no message.
    Changes(Changes),
    /// The user restored files to their state before a turn. Part of no message.
    Undo(Undo),
    /// A kind that this build does not know.
    #[serde(untagged)]
    Unknown(UnknownEvent),
}

/// The fields of [`Event::Init`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Init {
    /// The directory that the agent runs in.
    pub cwd: String,
    /// The model that answers.
    pub model: String,
    /// The agent, by its name in our registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The agent's own id of this run (Claude's session, Codex's thread).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_session: Option<String>,
    /// The model that azureal asked the agent for; `None` for the agent's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_model: Option<String>,
}

/// The fields of [`Event::Hook`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hook {
    /// The hook's name.
    pub name: String,
    /// Its output.
    pub output: String,
}

/// The fields of [`Event::UserMessage`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserMessage {
    /// The prompt.
    pub content: String,
    /// Whether a message starts here; see [`mod@crate::fold`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<bool>,
}

/// The fields of [`Event::Command`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Command {
    /// The command's name.
    pub name: String,
}

/// The fields of [`Event::Plan`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Plan {
    /// The plan's name.
    pub name: String,
    /// The plan.
    pub content: String,
}

/// The fields of [`Event::AssistantText`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AssistantText {
    /// The text.
    pub text: String,
    /// Whether a message starts here; see [`mod@crate::fold`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<bool>,
    /// The tool call of the subagent that wrote this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
}

/// The fields of [`Event::ToolCall`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolCall {
    /// The id that the result refers to.
    pub tool_use_id: String,
    /// The tool, in the vocabulary that all agents share.
    pub tool_name: String,
    /// The file that the call is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_path: Option<String>,
    /// The tool's arguments.
    pub input: Json,
    /// The number of lines that were left out when the event was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u64>,
    /// What the context has below the call: the difference that an edit makes, as a unified diff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Whether a message starts here; see [`mod@crate::fold`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<bool>,
    /// The tool call of the subagent that called this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
}

impl Default for ToolCall {
    fn default() -> Self {
        Self {
            tool_use_id: String::new(),
            tool_name: String::new(),
            file_path: None,
            input: Json::empty_object(),
            omitted: None,
            detail: None,
            starts: None,
            subagent: None,
        }
    }
}

/// The fields of [`Event::ToolResult`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolResult {
    /// The id of the call that this answers.
    pub tool_use_id: String,
    /// The tool, in the vocabulary that all agents share; empty when it is not known.
    pub tool_name: String,
    /// The file that the call was about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_path: Option<String>,
    /// The output of the tool.
    pub content: String,
    /// Whether the tool failed.
    pub is_error: bool,
    /// The number of lines that were left out when the event was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u64>,
    /// What the context has in place of `content`: the part of a failed output that matters, or a unified diff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Whether a message starts here; see [`mod@crate::fold`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<bool>,
    /// The tool call of the subagent that got this result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
}

/// The fields of [`Event::Complete`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Complete {
    /// Whether the turn reached its end.
    pub success: bool,
    /// The duration of the turn.
    pub duration_ms: u64,
    /// Its cost; 0.0 if it is unknown.
    #[serde(serialize_with = "finite")]
    pub cost_usd: f64,
    /// The outcome of the turn; `None` if it is missing or unknown to this build.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_outcome")]
    pub outcome: Option<Outcome>,
    /// The provider's token counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Whether azureal stopped the agent to compact the session, and continues the turn after that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// When the turn was asked for, as `2026-01-31T09:30:00Z`; `None` if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
}

impl Complete {
    /// Returns how the turn ended. Where that is not said, it is [`Outcome::Done`] or [`Outcome::Failed`].
    pub fn ending(&self) -> Outcome {
        self.outcome.unwrap_or(if self.success { Outcome::Done } else { Outcome::Failed })
    }
}

/// The outcome of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The agent reported that it is done.
    Done,
    /// The agent or its program failed.
    Failed,
    /// The person stopped it.
    Cancelled,
    /// It took longer than it was allowed to.
    Timeout,
    /// It died, or azureal did.
    Interrupted,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timed out",
            Self::Interrupted => "interrupted",
        })
    }
}

/// Tokens as the provider counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens sent, those read from or written to a cache included.
    pub input_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// The part of the input that was read from the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read_tokens: u64,
    /// The part of the input that was written to the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// The size of the model's context at the end of its last request: the agent's own instructions, the context, the
    /// answers and the results of tools. `None` if only the sum of several requests is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
}

/// The fields of [`Event::ModelSwitch`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelSwitch {
    /// The new model; [`DEFAULT`](Self::DEFAULT) for the agent's own choice.
    pub model: String,
    /// The agent that the user chose for the next turn, with the model; `None` if the agent that runs reports the switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

impl ModelSwitch {
    /// Stands for the agent's own choice of a model.
    pub const DEFAULT: &str = "default";

    /// A switch that the running agent reports.
    pub fn reported(model: impl Into<String>) -> Self {
        Self { model: model.into(), agent: None }
    }

    /// The user's choice for the next turn; without a model it is the agent's own choice.
    pub fn chosen(agent: impl Into<String>, model: Option<String>) -> Self {
        Self { model: model.unwrap_or_else(|| Self::DEFAULT.to_owned()), agent: Some(agent.into()) }
    }
}

/// For people: `model opus`, or `agent codex, model gpt-5` for a choice of the user.
impl fmt::Display for ModelSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, agent } = self;
        match agent {
            None => write!(f, "model {model}"),
            Some(agent) if model == Self::DEFAULT => write!(f, "agent {agent}"),
            Some(agent) => write!(f, "agent {agent}, model {model}"),
        }
    }
}

/// The fields of [`Event::SystemMessage`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SystemMessage {
    /// The system prompt and the output of the context commands, as one text.
    pub content: String,
    /// When the context commands ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_executed_at: Option<String>,
    /// The commands that ran, and their results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_commands: Option<Vec<CommandRecord>>,
}

/// A context command that ran, as the record of it is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandRecord {
    /// The command's name in the configuration.
    pub name: String,
    /// The command.
    pub command: String,
    /// Its exit code; `None` if it was killed or never ran.
    pub exit_code: Option<i32>,
    /// Its duration.
    pub duration_ms: u64,
}

/// The fields of [`Event::Error`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorEvent {
    /// The message, for people.
    pub message: String,
    /// The kind of the error, for programs.
    pub kind: String,
}

/// The fields of [`Event::Reasoning`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reasoning {
    /// The reasoning.
    pub text: String,
    /// The tool call of the subagent that thought it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
}

/// The fields of [`Event::Message`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageEvent {
    /// The author.
    pub role: Role,
    /// The content.
    #[serde(default)]
    pub content: Vec<Block>,
}

/// An event of a kind that this build does not know: its text, untouched.
#[derive(Clone, PartialEq, Eq)]
pub struct UnknownEvent {
    kind: String,
    json: String,
}

impl UnknownEvent {
    /// Returns the kind that the event calls itself.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the whole event as it was written.
    pub fn json(&self) -> &str {
        &self.json
    }
}

impl fmt::Debug for UnknownEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json())
    }
}

impl Serialize for UnknownEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Checked when it was read. Inside other JSON the white space around it does not count.
        let raw: &RawValue = serde_json::from_str(&self.json).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Writes what is no number as 0.0, which means "not known": JSON would have `null`, which is not read back.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn finite<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(if number.is_finite() { *number } else { 0.0 })
}

/// Parses an outcome. An unknown word must not make the whole event unreadable.
fn known_outcome<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Outcome>, D::Error> {
    let word = Option::<Json>::deserialize(deserializer)?;
    Ok(word.and_then(|word| word.read().ok()))
}

/// A text that is not an event.
#[derive(Debug, thiserror::Error)]
#[error("not an event: {0}")]
pub struct EventError(#[from] serde_json::Error);

impl Event {
    /// Reads an event from its JSON.
    ///
    /// Missing fields get their defaults, as older files lack some; unknown fields are ignored. An event of an
    /// unknown kind becomes [`Event::Unknown`] with its whole text.
    pub fn from_json(text: &str) -> Result<Self, EventError> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let parsed = deserializer.deserialize_any(EventVisitor)?;
        deserializer.end()?;
        match parsed {
            Parsed::Known(event) => Ok(event),
            Parsed::Unknown(kind) => Ok(Self::Unknown(UnknownEvent { kind, json: text.to_owned() })),
        }
    }

    /// Writes the event as JSON, on one line unless it is an unknown kind that came on several.
    pub fn to_json(&self) -> String {
        if let Self::Unknown(event) = self {
            return event.json.clone();
        }
        // Every part of an event is a string, a number, a bool or raw JSON: writing these to memory cannot
        // fail, and `null` decodes to an error rather than to a wrong event.
        serde_json::to_string(self).unwrap_or_else(|_| "null".to_owned())
    }

    /// Returns the kind, as it stands in the JSON and in the store.
    pub fn kind(&self) -> &str {
        match self {
            Self::Init(_) => "Init",
            Self::Hook(_) => "Hook",
            Self::UserMessage(_) => "UserMessage",
            Self::Command(_) => "Command",
            Self::Plan(_) => "Plan",
            Self::AssistantText(_) => "AssistantText",
            Self::ToolCall(_) => "ToolCall",
            Self::ToolResult(_) => "ToolResult",
            Self::Complete(_) => "Complete",
            Self::ModelSwitch(_) => "ModelSwitch",
            Self::Compacting => "Compacting",
            Self::Compacted => "Compacted",
            Self::SystemMessage(_) => "SystemMessage",
            Self::Error(_) => "Error",
            Self::Reasoning(_) => "Reasoning",
            Self::Message(_) => "Message",
            Self::Changes(_) => "Changes",
            Self::Undo(_) => "Undo",
            Self::Unknown(event) => event.kind(),
        }
    }

    /// Creates a user message.
    pub fn user(content: impl Into<String>) -> Self {
        Self::UserMessage(UserMessage { content: content.into(), starts: None })
    }

    /// Creates a finished text of the agent.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::AssistantText(AssistantText { text: text.into(), ..AssistantText::default() })
    }

    /// Creates an error.
    pub fn error(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Error(ErrorEvent { message: message.into(), kind: kind.into() })
    }
}

enum Parsed {
    Known(Event),
    Unknown(String),
}

struct EventVisitor;

impl<'de> Visitor<'de> for EventVisitor {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event: an object with its kind as the only key, or a bare kind")
    }

    fn visit_str<E: de::Error>(self, kind: &str) -> Result<Parsed, E> {
        Ok(match kind {
            "Compacting" => Parsed::Known(Event::Compacting),
            "Compacted" => Parsed::Known(Event::Compacted),
            unknown => Parsed::Unknown(unknown.to_owned()),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
        let kind: Cow<'de, str> = map
            .next_key::<Key<'de>>()?
            .map(|key| key.0)
            .ok_or_else(|| de::Error::custom("an event without a kind"))?;
        let parsed = match kind.as_ref() {
            "Init" => Parsed::Known(Event::Init(map.next_value()?)),
            "Hook" => Parsed::Known(Event::Hook(map.next_value()?)),
            "UserMessage" => Parsed::Known(Event::UserMessage(map.next_value()?)),
            "Command" => Parsed::Known(Event::Command(map.next_value()?)),
            "Plan" => Parsed::Known(Event::Plan(map.next_value()?)),
            "AssistantText" => Parsed::Known(Event::AssistantText(map.next_value()?)),
            "ToolCall" => Parsed::Known(Event::ToolCall(map.next_value()?)),
            "ToolResult" => Parsed::Known(Event::ToolResult(map.next_value()?)),
            "Complete" => Parsed::Known(Event::Complete(map.next_value()?)),
            "ModelSwitch" => Parsed::Known(Event::ModelSwitch(map.next_value()?)),
            "SystemMessage" => Parsed::Known(Event::SystemMessage(map.next_value()?)),
            "Error" => Parsed::Known(Event::Error(map.next_value()?)),
            "Reasoning" => Parsed::Known(Event::Reasoning(map.next_value()?)),
            "Message" => Parsed::Known(Event::Message(map.next_value()?)),
            "Changes" => Parsed::Known(Event::Changes(map.next_value()?)),
            "Undo" => Parsed::Known(Event::Undo(map.next_value()?)),
            unknown => {
                map.next_value::<IgnoredAny>()?;
                Parsed::Unknown(unknown.to_owned())
            }
        };
        // More keys: the format of another program. Stored whole, under its first name.
        let mut alone = true;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            alone = false;
        }
        Ok(if alone { parsed } else { Parsed::Unknown(kind.into_owned()) })
    }
}

/// A map key, borrowed where it holds no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
        Borrowed::deserialize(deserializer).map(|key| Self(key.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each kind, with the JSON that the contract gives.
    fn samples() -> Vec<(Event, &'static str)> {
        vec![
            (
                Event::Init(Init { cwd: "/p".into(), model: "opus".into(), ..Init::default() }),
                r#"{"Init":{"cwd":"/p","model":"opus"}}"#,
            ),
            (
                Event::Hook(Hook { name: "h".into(), output: "o".into() }),
                r#"{"Hook":{"name":"h","output":"o"}}"#,
            ),
            (Event::user("hi"), r#"{"UserMessage":{"content":"hi"}}"#),
            (Event::Command(Command { name: "/clear".into() }), r#"{"Command":{"name":"/clear"}}"#),
            (
                Event::Plan(Plan { name: "p".into(), content: "1. do".into() }),
                r#"{"Plan":{"name":"p","content":"1. do"}}"#,
            ),
            (Event::assistant("ok"), r#"{"AssistantText":{"text":"ok"}}"#),
            (
                Event::ToolCall(ToolCall {
                    tool_use_id: "t".into(),
                    tool_name: "Read".into(),
                    file_path: Some("/a".into()),
                    input: r#"{"file_path":"/a"}"#.parse().unwrap(),
                    ..ToolCall::default()
                }),
                r#"{"ToolCall":{"tool_use_id":"t","tool_name":"Read","file_path":"/a","input":{"file_path":"/a"}}}"#,
            ),
            (
                Event::ToolResult(ToolResult {
                    tool_use_id: "t".into(),
                    tool_name: "Read".into(),
                    content: "x".into(),
                    ..ToolResult::default()
                }),
                r#"{"ToolResult":{"tool_use_id":"t","tool_name":"Read","content":"x","is_error":false}}"#,
            ),
            (
                Event::Complete(Complete {
                    success: true,
                    duration_ms: 5,
                    cost_usd: 0.25,
                    outcome: Some(Outcome::Done),
                    usage: Some(Usage { input_tokens: 3, output_tokens: 4, ..Usage::default() }),
                    continues: false,
                    started_at: Some("2026-01-31T09:30:00Z".into()),
                }),
                r#"{"Complete":{"success":true,"duration_ms":5,"cost_usd":0.25,"outcome":"done","usage":{"input_tokens":3,"output_tokens":4},"started_at":"2026-01-31T09:30:00Z"}}"#,
            ),
            (
                Event::Complete(Complete {
                    outcome: Some(Outcome::Interrupted),
                    continues: true,
                    ..Complete::default()
                }),
                r#"{"Complete":{"success":false,"duration_ms":0,"cost_usd":0.0,"outcome":"interrupted","continues":true}}"#,
            ),
            (Event::ModelSwitch(ModelSwitch::reported("m")), r#"{"ModelSwitch":{"model":"m"}}"#),
            (
                Event::ModelSwitch(ModelSwitch::chosen("a", Some("m".into()))),
                r#"{"ModelSwitch":{"model":"m","agent":"a"}}"#,
            ),
            (Event::Compacting, r#""Compacting""#),
            (Event::Compacted, r#""Compacted""#),
            (
                Event::SystemMessage(SystemMessage {
                    content: "be kind".into(),
                    context_executed_at: Some("2026-01-31T09:30:00Z".into()),
                    context_commands: Some(vec![CommandRecord {
                        name: "git".into(),
                        command: "git status".into(),
                        exit_code: Some(0),
                        duration_ms: 7,
                    }]),
                }),
                r#"{"SystemMessage":{"content":"be kind","context_executed_at":"2026-01-31T09:30:00Z","context_commands":[{"name":"git","command":"git status","exit_code":0,"duration_ms":7}]}}"#,
            ),
            (Event::error("agent", "it broke"), r#"{"Error":{"message":"it broke","kind":"agent"}}"#),
            (
                Event::Reasoning(Reasoning { text: "hm".into(), subagent: None }),
                r#"{"Reasoning":{"text":"hm"}}"#,
            ),
            (
                Event::Message(MessageEvent { role: Role::User, content: vec![] }),
                r#"{"Message":{"role":"user","content":[]}}"#,
            ),
        ]
    }

    #[test]
    fn every_kind_is_written_as_the_contract_says_and_read_back() {
        for (event, json) in samples() {
            assert_eq!(event.to_json(), json);
            assert_eq!(Event::from_json(json).unwrap(), event);
            assert!(json.contains(event.kind()));
        }
    }

    #[test]
    fn a_cost_that_is_no_number_is_not_known() {
        for cost_usd in [f64::NAN, f64::INFINITY] {
            let event = Event::Complete(Complete { cost_usd, ..Complete::default() });
            assert_eq!(Event::from_json(&event.to_json()).unwrap(), Event::Complete(Complete::default()));
        }
    }

    #[test]
    fn unknown_kinds_come_back_byte_for_byte() {
        for text in [
            r#"{"Future":{"b":1,"a":[ 2 ,3.10]}}"#,
            r#"  {"Future" : null }  "#,
            r#""Bare""#,
            "{\n\"Future\": {\"n\": 123456789012345678901234567890}\n}",
            r#"{"UserMessage":{"content":"x"},"and":"more"}"#,
        ] {
            let event = Event::from_json(text).unwrap();
            assert!(matches!(event, Event::Unknown(_)), "{text}");
            assert_eq!(event.to_json(), text);
        }
    }

    #[test]
    fn what_is_no_event_is_an_error() {
        for text in
            ["", "{}", "1", "[]", "{\"UserMessage\":", r#"{"UserMessage":{"content":1}}"#, "nul", "{} {}"]
        {
            assert!(Event::from_json(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_outcome_that_is_not_known_leaves_the_rest_readable() {
        for outcome in [r#""paused""#, "7", "null"] {
            let json = format!(
                r#"{{"Complete":{{"success":true,"duration_ms":5,"cost_usd":0.5,"outcome":{outcome}}}}}"#
            );
            let Event::Complete(complete) = Event::from_json(&json).unwrap() else { panic!("{json}") };
            assert_eq!((complete.success, complete.duration_ms, complete.outcome), (true, 5, None));
        }
    }

    #[test]
    fn missing_and_unknown_fields_are_survived() {
        let event = Event::from_json(r#"{"ToolCall":{"tool_name":"Bash","colour":"red"}}"#).unwrap();
        let Event::ToolCall(call) = event else { panic!("{event:?}") };
        assert_eq!((call.tool_name.as_str(), call.input.as_str()), ("Bash", "{}"));
    }
}
