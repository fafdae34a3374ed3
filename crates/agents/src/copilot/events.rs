//! The events of a session of GitHub Copilot CLI.
//!
//! They are the lines of its stream without the short-lived ones. A call is named twice: in the message that asks for it, and when it
//! starts. Settings, permissions, hooks and the program's own reports give no event.

use std::collections::HashSet;

use azureal_core::Json;
use azureal_core::event::Usage;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::native::draft::{Answer, Draft};
use crate::native::record_lines::RecordParser;
use crate::native::tools::{ToolNames, translate};
use crate::unreadable::shorten;
use crate::wire::{Fields, Loose, kept, lenient, lenient_list, long_text, optional_long_text, read};

const PATH: (&str, &str) = ("path", "file_path");

const TOOLS: &[ToolNames] = &[
    ("bash", "Bash", &[]),
    ("powershell", "Bash", &[]),
    ("view", "Read", &[PATH]),
    ("create", "Write", &[PATH, ("file_text", "content")]),
    ("edit", "Edit", &[PATH, ("old_str", "old_string"), ("new_str", "new_string")]),
    ("str_replace", "Edit", &[PATH, ("old_str", "old_string"), ("new_str", "new_string")]),
    ("grep", "Grep", &[]),
    ("rg", "Grep", &[]),
    ("glob", "Glob", &[]),
    ("web_fetch", "WebFetch", &[]),
    ("web_search", "WebSearch", &[]),
    ("task", "Task", &[("agent_type", "subagent_type")]),
    ("update_todo", "TodoWrite", &[]),
];

/// The beginnings of the kinds of events that give no event of ours, or are known.
const KNOWN: [&str; 19] = [
    "session.",
    "assistant.",
    "user.",
    "tool.",
    "system.",
    "permission.",
    "permissions.",
    "hook.",
    "skill.",
    "subagent.",
    "user_input.",
    "elicitation.",
    "external_tool.",
    "command",
    "pending_messages.",
    "exit_plan_mode.",
    "mcp",
    "model.",
    "abort",
];
/// The number of unknown kinds that are reported.
const MOST_KINDS: usize = 64;

/// A record.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "lenient")]
    id: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) timestamp: String,
    #[serde(default, borrow)]
    data: Option<&'a RawValue>,
}

impl Record<'_> {
    /// Returns the facts about the session, if this is its first event.
    pub(super) fn beginning(&self) -> Option<Beginning> {
        let is_beginning = matches!(self.kind.as_str(), "session.start" | "session.resume");
        self.data.filter(|_| is_beginning).and_then(read)
    }

    pub(super) fn is_beginning(&self) -> bool {
        self.kind == "session.start" && self.beginning().is_some_and(|data| !data.session_id.is_empty())
    }
}

/// The facts about a session.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Beginning {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) session_id: String,
    #[serde(default, deserialize_with = "lenient")]
    selected_model: String,
    #[serde(default)]
    pub(super) context: Loose<Context>,
}

#[derive(Default, Deserialize)]
pub(super) struct Context {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) cwd: String,
}

/// What an event holds; its fields depend on the kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    // user.message, assistant.message
    #[serde(default, deserialize_with = "long_text")]
    content: String,
    #[serde(default, deserialize_with = "lenient")]
    message_id: String,
    /// Who wrote a message in the user's name.
    #[serde(default, deserialize_with = "lenient")]
    source: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    is_autopilot_continuation: bool,
    #[serde(default, deserialize_with = "optional_long_text")]
    reasoning_text: Option<String>,
    #[serde(default, borrow, deserialize_with = "lenient_list")]
    tool_requests: Vec<Request<'a>>,
    /// The call of the subagent that this belongs to.
    #[serde(default, deserialize_with = "lenient")]
    parent_tool_call_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    model: String,
    // tool.execution_complete
    #[serde(default, deserialize_with = "lenient")]
    tool_call_id: String,
    #[serde(default, deserialize_with = "lenient")]
    success: bool,
    #[serde(default)]
    result: Loose<ToolResult>,
    #[serde(default)]
    error: Loose<Failure>,
    #[serde(default)]
    shell_execution: Loose<Shell>,
    // session.*
    #[serde(default, deserialize_with = "lenient")]
    message: String,
    #[serde(default, deserialize_with = "lenient")]
    error_type: String,
    #[serde(default, deserialize_with = "lenient")]
    new_model: String,
    #[serde(default, deserialize_with = "optional_long_text")]
    summary_content: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    title: Option<String>,
    #[serde(default)]
    usage: Loose<Tokens>,
}

/// A call, in the message that asks for it and in the event of its start.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    #[serde(default, deserialize_with = "lenient")]
    tool_call_id: String,
    #[serde(default, alias = "toolName", deserialize_with = "lenient")]
    name: String,
    #[serde(default, borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    mcp_server_name: String,
    #[serde(default, deserialize_with = "lenient")]
    mcp_tool_name: String,
    #[serde(default, deserialize_with = "lenient")]
    parent_tool_call_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult {
    #[serde(default, deserialize_with = "long_text")]
    content: String,
    /// For people: the diff of an edit.
    #[serde(default, deserialize_with = "optional_long_text")]
    detailed_content: Option<String>,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default, deserialize_with = "lenient")]
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shell {
    #[serde(default, deserialize_with = "lenient")]
    exit_code: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tokens {
    #[serde(default, deserialize_with = "lenient")]
    input_tokens: u64,
    #[serde(default, deserialize_with = "lenient")]
    output_tokens: u64,
    #[serde(default, deserialize_with = "lenient")]
    cache_read_tokens: u64,
    #[serde(default, deserialize_with = "lenient")]
    cache_write_tokens: u64,
    #[serde(default, deserialize_with = "lenient")]
    interaction_type: String,
}

/// Parses the events.
#[derive(Default)]
pub(super) struct CopilotParser {
    title: Option<String>,
    /// The model of the session.
    model: String,
    unknown: HashSet<String>,
}

impl RecordParser for CopilotParser {
    fn record(&mut self, _: u64, fields: &Fields<'_>, draft: &mut Draft) -> Result<(), String> {
        let record: Record<'_> = fields.read().ok_or("it makes no sense")?;
        if let Some(data) = record.beginning() {
            draft.runs_in(&data.context.0.unwrap_or_default().cwd);
            self.model = data.selected_model;
            return Ok(());
        }
        let time: Option<Timestamp> = record.timestamp.parse().ok();
        let data: Data<'_> = record.data.and_then(read).ok_or("it has no data")?;
        match record.kind.as_str() {
            "user.message" => self.user(&record.id, time, &data, draft),
            "assistant.message" => {
                draft.reach(&record.id, time);
                assistant(data, draft);
            }
            "tool.execution_start" => {
                draft.reach(&record.id, time);
                if let Some(request) = record.data.and_then(read::<Request<'_>>) {
                    call(request, None, draft);
                }
            }
            "tool.execution_complete" => {
                draft.reach(&record.id, time);
                let (id, subagent) = (data.tool_call_id.clone(), data.parent_tool_call_id.clone());
                draft.result(&id, answer(data), subagent);
            }
            "session.usage_record" => {
                if let Some(tokens) = data.usage.0 {
                    draft.usage(
                        usage(&tokens),
                        matches!(tokens.interaction_type.as_str(), "" | "conversation-agent"),
                    );
                }
            }
            "session.error" => {
                draft.reach(&record.id, time);
                let kind = if data.error_type.is_empty() { "agent_error" } else { &data.error_type };
                draft.error(kind, data.message);
            }
            "abort" => {
                draft.reach(&record.id, time);
                draft.cancelled();
            }
            "session.model_change" => {
                self.model = data.new_model;
                draft.model(&self.model);
            }
            "session.compaction_complete" if data.success => {
                draft.reach(&record.id, time);
                draft.compacted(data.summary_content);
            }
            "session.task_complete" => draft.done(),
            "session.title_changed" => self.title = data.title.or(self.title.take()),
            kind if KNOWN.iter().any(|known| kind.starts_with(known)) => {}
            kind => return self.unknown(kind),
        }
        Ok(())
    }

    fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }
}

impl CopilotParser {
    fn user(&mut self, id: &str, time: Option<Timestamp>, data: &Data<'_>, draft: &mut Draft) {
        // The program writes in the user's name too: texts of skills, and "continue" of the autopilot.
        let is_by_user = data.source.as_deref().is_none_or(|source| matches!(source, "" | "user"));
        if is_by_user && !data.is_autopilot_continuation && data.parent_tool_call_id.is_none() {
            draft.prompt(if data.message_id.is_empty() { id } else { &data.message_id }, time, &data.content);
            draft.model(&self.model);
        }
    }

    /// Reports a kind, once.
    fn unknown(&mut self, kind: &str) -> Result<(), String> {
        let kind = shorten(kind, 60).into_owned();
        if self.unknown.len() >= MOST_KINDS || !self.unknown.insert(kind.clone()) {
            return Ok(());
        }
        Err(format!("it is of the unknown kind `{kind}`"))
    }
}

fn assistant(data: Data<'_>, draft: &mut Draft) {
    let subagent = data.parent_tool_call_id;
    if subagent.is_none() {
        draft.model(&data.model);
    }
    draft.reasoning(data.reasoning_text.unwrap_or_default(), subagent.clone());
    draft.text(data.content, subagent.clone());
    for request in data.tool_requests {
        call(request, subagent.clone(), draft);
    }
}

fn call(request: Request<'_>, subagent: Option<String>, draft: &mut Draft) {
    let input = kept(request.arguments.filter(|raw| raw.get() != "null"));
    let translated = match request.mcp_server_name.is_empty() || request.mcp_tool_name.is_empty() {
        true => editor_call(&request.name, &input).unwrap_or_else(|| translate(TOOLS, &request.name, input)),
        false => (format!("mcp__{}__{}", request.mcp_server_name, request.mcp_tool_name), input),
    };
    draft.call(&request.tool_call_id, translated, request.parent_tool_call_id.or(subagent));
}

/// Translates a call of the one editor that older versions have for several tools.
fn editor_call(name: &str, input: &Json) -> Option<(String, Json)> {
    let command = input.string_field("command").filter(|_| name == "str_replace_editor")?;
    Some(translate(TOOLS, &command, input.clone()))
}

fn answer(data: Data<'_>) -> Answer {
    let result = data.result.0;
    let diff = result.as_ref().and_then(|result| result.detailed_content.clone());
    let content = result.map(|result| result.content).filter(|content| !content.is_empty());
    let content = content.or(data.error.0.map(|error| error.message)).unwrap_or_default();
    match data.shell_execution.0.and_then(|shell| shell.exit_code) {
        Some(code) => Answer::of_command(without_mark(&content), Some(code), !data.success),
        None => Answer { content, is_error: !data.success, diff },
    }
}

/// Returns the output of a command without the line that tells the model how it ended.
fn without_mark(output: &str) -> &str {
    let (before, last) = output.trim_end().rsplit_once('\n').unwrap_or(("", output.trim_end()));
    let is_mark = last.starts_with('<') && last.ends_with('>') && last.contains(" with exit code ");
    if is_mark { before } else { output }
}

/// Returns the counts in our words. The input includes what was read from the cache.
fn usage(tokens: &Tokens) -> Usage {
    Usage {
        input_tokens: tokens.input_tokens,
        output_tokens: tokens.output_tokens,
        cache_read_tokens: tokens.cache_read_tokens.min(tokens.input_tokens),
        cache_write_tokens: tokens.cache_write_tokens,
        context_tokens: None,
    }
}
