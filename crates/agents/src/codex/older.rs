//! The output of Codex before version 0.40 or so: `{"id":"0","msg":{"type":…}}`.
//!
//! The first two lines are the settings and the prompt. There is no end of a turn: the exit status shows whether it
//! is done. These lines give no output: the prompt, `task_started`, `agent_reasoning_section_break`, `turn_diff` and
//! the deltas, whose texts come again whole.

use std::collections::BTreeMap;

use azureal_core::agent::AgentOutput;
use azureal_core::event::{Init, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::NAME;
use super::item::{self, Call};
use super::parser::Parser;
use super::shell;
use super::wire::{Change, ChangeText, Line, Todo, Tokens};
use crate::unreadable::ignored;
use crate::wire::{self, Loose, kept, lenient, lenient_list, output_text};

/// Reads a line without a type. `None` if it is none of these versions either.
pub(super) fn read(parser: &mut Parser, line: &Line<'_>) -> Option<Vec<AgentOutput>> {
    if let Some(raw) = line.msg {
        parser.older = true;
        return Some(read_message(parser, wire::read(raw)?));
    }
    if let Some(cwd) = &line.workdir {
        parser.older = true;
        let model = line.model.clone().unwrap_or_default();
        return Some(parser.start(Init { cwd: cwd.clone(), model, ..Init::default() }));
    }
    line.prompt.as_ref().map(|_| Vec::new())
}

/// Reads what a record calls an event, which are the messages of these versions.
pub(super) fn read_event(parser: &mut Parser, raw: &RawValue) -> Option<Vec<AgentOutput>> {
    Some(read_message(parser, wire::read(raw)?))
}

/// Reads the tokens of an event that counts them; `None` if it is another event.
pub(super) fn read_usage(raw: &RawValue) -> Option<Usage> {
    wire::read::<Message<'_>>(raw).filter(|message| message.kind == "token_count")?.usage()
}

/// The content of a line; which fields there are depends on its type.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "lenient")]
    text: String,
    #[serde(default, deserialize_with = "lenient")]
    message: String,
    #[serde(default, deserialize_with = "lenient")]
    reason: String,
    #[serde(default, deserialize_with = "lenient")]
    call_id: String,
    #[serde(default, deserialize_with = "lenient")]
    command: Vec<String>,
    #[serde(default, deserialize_with = "lenient")]
    aggregated_output: String,
    #[serde(default, deserialize_with = "lenient")]
    exit_code: Option<i64>,
    #[serde(default, borrow, deserialize_with = "lenient")]
    changes: BTreeMap<String, BTreeMap<String, &'a RawValue>>,
    #[serde(default, deserialize_with = "lenient")]
    success: bool,
    #[serde(default, deserialize_with = "lenient")]
    stdout: String,
    #[serde(default, deserialize_with = "lenient")]
    stderr: String,
    #[serde(default, deserialize_with = "lenient_list")]
    plan: Vec<Todo>,
    #[serde(default, deserialize_with = "lenient")]
    query: String,
    #[serde(default, borrow)]
    invocation: Loose<Invocation<'a>>,
    #[serde(default, borrow)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    info: Loose<TokenInfo>,
}

impl Message<'_> {
    /// Returns the tokens of the thread so far and the size of its last request.
    fn usage(self) -> Option<Usage> {
        let info = self.info.0?;
        let context_tokens = info.last_token_usage.0.map(|last| last.size());
        Some(Usage { context_tokens, ..info.total_token_usage.0?.into() })
    }
}

#[derive(Deserialize)]
struct Invocation<'a> {
    #[serde(default, deserialize_with = "lenient")]
    server: String,
    #[serde(default, deserialize_with = "lenient")]
    tool: String,
    #[serde(default, borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct TokenInfo {
    #[serde(default)]
    total_token_usage: Loose<Tokens>,
    #[serde(default)]
    last_token_usage: Loose<Tokens>,
}

fn read_message(parser: &mut Parser, message: Message<'_>) -> Vec<AgentOutput> {
    let call_id = &message.call_id;
    let called = |parser: &mut Parser, tool: String, input| {
        vec![parser.called(&Call { id: call_id.clone(), tool, input, diff: None })]
    };
    match message.kind.as_str() {
        "agent_message" => parser.agent_message(message.message),
        "agent_reasoning" => parser.reasoning(message.text),
        "exec_command_begin" => {
            let input = item::fields([("command", shell::join(&message.command))]);
            called(parser, "Bash".to_owned(), input)
        }
        "exec_command_end" => {
            let answer = item::command_answer(message.aggregated_output, message.exit_code, None);
            vec![parser.answered(call_id, answer)]
        }
        "patch_apply_begin" => {
            let calls = item::changes(call_id, &changes(&message.changes));
            calls.iter().map(|call| parser.called(call)).collect()
        }
        "patch_apply_end" => {
            // The number of files is known from the beginning.
            let ids: Vec<String> = std::iter::once(call_id.clone())
                .chain((1..).map(|index| format!("{call_id}.{index}")))
                .take_while(|id| parser.has_called(id))
                .collect();
            let text = format!("{}{}", message.stdout, message.stderr);
            let answer = |_| item::Answer { content: text.clone(), is_error: !message.success };
            let ids = if ids.is_empty() { vec![call_id.clone()] } else { ids };
            ids.iter().map(|id| parser.answered(id, answer(id))).collect()
        }
        "plan_update" => parser.todo_list("plan", message.plan),
        "mcp_tool_call_begin" => match message.invocation.0 {
            Some(Invocation { server, tool, arguments }) => {
                called(parser, item::mcp_name(&server, &tool), kept(arguments))
            }
            None => called(parser, item::mcp_name("", ""), kept(None)),
        },
        "mcp_tool_call_end" => {
            let content = message.result.map(output_text).unwrap_or_default();
            let is_error = content.starts_with("{\"Err\"");
            vec![parser.answered(call_id, item::Answer { content, is_error })]
        }
        "web_search_end" => {
            let mut out = called(parser, "WebSearch".to_owned(), item::fields([("query", message.query)]));
            out.push(parser.answered(call_id, item::Answer { content: String::new(), is_error: false }));
            out
        }
        "token_count" => message.usage().map(|usage| parser.counted(usage)).into_iter().collect(),
        "error" => parser.turn_failed(Some(message.message)),
        "stream_error" | "background_event" | "warning" => parser.warned(message.message),
        "turn_aborted" => parser.aborted(&message.reason),
        "task_complete" => {
            parser.done();
            Vec::new()
        }
        "task_started"
        | "session_configured"
        | "user_message"
        | "agent_reasoning_section_break"
        | "agent_message_delta"
        | "agent_reasoning_delta"
        | "exec_command_output_delta"
        | "web_search_begin"
        | "turn_diff" => ignored(NAME, &message.kind),
        other => parser.unknown_kind(&format!("msg {other}")),
    }
}

fn changes(changed: &BTreeMap<String, BTreeMap<String, &RawValue>>) -> Vec<Change> {
    let change = |(path, kinds): (&String, &BTreeMap<String, &RawValue>)| {
        let (kind, text) = kinds.iter().next().map(|(kind, raw)| (kind.clone(), *raw)).unzip();
        let text = text.and_then(wire::read::<ChangeText>);
        Change {
            path: path.clone(),
            kind: kind.unwrap_or_default(),
            text: text.and_then(|text| text.unified_diff.or(text.content)),
        }
    };
    changed.iter().map(change).collect()
}
