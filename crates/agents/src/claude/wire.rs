//! The output of Claude Code: one JSON object per line.
//!
//! Only the fields that are used are here. All of them are optional, see [`lenient`].

use std::collections::BTreeMap;

use azureal_core::agent::CacheLifetime;
use azureal_core::event::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::wire::{Loose, lenient, lenient_list, optional_long_text};

/// The fields of every line.
#[derive(Deserialize)]
pub(super) struct Head {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    pub(super) kind: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) subtype: String,
}

/// A line of type `system`; which fields there are depends on the subtype.
#[derive(Deserialize)]
pub(super) struct System {
    // init
    #[serde(default, deserialize_with = "lenient")]
    pub(super) cwd: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) model: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) session_id: Option<String>,
    // status
    #[serde(default, deserialize_with = "lenient")]
    pub(super) status: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) compact_result: Option<String>,
    // api_retry
    #[serde(default, deserialize_with = "lenient")]
    pub(super) attempt: u64,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) max_retries: u64,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) error_status: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) error: String,
    // model_fallback
    #[serde(default, deserialize_with = "lenient")]
    pub(super) fallback_model: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) content: String,
    // task_notification
    #[serde(default, deserialize_with = "lenient")]
    pub(super) summary: String,
    // hook_response
    #[serde(default, deserialize_with = "lenient")]
    pub(super) hook_name: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) output: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) stdout: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) stderr: String,
}

/// A line of type `assistant` or `user`.
#[derive(Deserialize)]
pub(super) struct WireTurn<'a> {
    #[serde(default, borrow)]
    pub(super) message: Loose<Message<'a>>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) parent_tool_use_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) error: Option<String>,
    /// The result of a tool as the program itself has it; a record has another name for it.
    #[serde(default, borrow, alias = "toolUseResult")]
    pub(super) tool_use_result: Option<&'a RawValue>,
}

/// The result of a tool that changes a file.
#[derive(Deserialize)]
pub(super) struct Edited<'a> {
    /// `create` or `update`, of a written file.
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    pub(super) kind: String,
    /// A list of [`Hunk`]s; empty for a new file.
    #[serde(rename = "structuredPatch", default, borrow)]
    pub(super) patch: Option<&'a RawValue>,
    /// Of a notebook's cell.
    #[serde(default, borrow)]
    pub(super) new_source: Option<&'a RawValue>,
}

/// A part of a file that changed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hunk {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) old_start: u64,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) old_lines: u64,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) new_start: u64,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) new_lines: u64,
    /// The lines, each with its sign.
    #[serde(default, deserialize_with = "lenient")]
    pub(super) lines: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) id: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) model: String,
    /// In a record, where it is final.
    #[serde(default, deserialize_with = "lenient")]
    pub(super) stop_reason: String,
    /// In a record, where it is final.
    #[serde(default)]
    pub(super) usage: Loose<Tokens>,
    /// A string or a list of blocks.
    #[serde(default, borrow)]
    pub(super) content: Option<&'a RawValue>,
}

/// One block of a message; which fields there are depends on its type.
#[derive(Deserialize)]
pub(super) struct Block<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    pub(super) kind: String,
    #[serde(default, deserialize_with = "optional_long_text")]
    pub(super) text: Option<String>,
    #[serde(default, deserialize_with = "optional_long_text")]
    pub(super) thinking: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) id: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) name: String,
    #[serde(default, borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) tool_use_id: String,
    #[serde(default, borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) is_error: bool,
}

/// A line of type `stream_event`.
#[derive(Deserialize)]
pub(super) struct Stream {
    #[serde(default)]
    pub(super) event: Loose<StreamEvent>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) parent_tool_use_id: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct StreamEvent {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) delta: Loose<Delta>,
    #[serde(default)]
    pub(super) usage: Loose<Tokens>,
    #[serde(default)]
    pub(super) message: Loose<StartedMessage>,
}

#[derive(Deserialize, Default)]
pub(super) struct Delta {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    pub(super) kind: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) text: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) thinking: String,
}

#[derive(Deserialize)]
pub(super) struct StartedMessage {
    #[serde(default)]
    pub(super) usage: Loose<Tokens>,
}

/// A line of type `result`.
#[derive(Deserialize)]
pub(super) struct WireResult {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) is_error: bool,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) result: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) errors: Vec<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) terminal_reason: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) duration_ms: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) total_cost_usd: f64,
    #[serde(default)]
    pub(super) usage: Loose<Tokens>,
    #[serde(default, rename = "modelUsage", deserialize_with = "lenient")]
    pub(super) model_usage: BTreeMap<String, Loose<ModelTokens>>,
    #[serde(default, deserialize_with = "lenient_list")]
    pub(super) permission_denials: Vec<Denial>,
}

#[derive(Deserialize)]
pub(super) struct Denial {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) tool_name: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) tool_use_id: String,
}

/// Tokens as the provider writes them: those of the cache are not part of the input.
#[derive(Deserialize)]
pub(super) struct Tokens {
    #[serde(default, deserialize_with = "lenient")]
    input_tokens: u64,
    #[serde(default, deserialize_with = "lenient")]
    cache_creation_input_tokens: u64,
    #[serde(default, deserialize_with = "lenient")]
    cache_read_input_tokens: u64,
    #[serde(default, deserialize_with = "lenient")]
    output_tokens: u64,
    #[serde(default)]
    cache_creation: Loose<Written>,
}

/// The tokens that were written to the cache, by lifetime.
#[derive(Deserialize)]
struct Written {
    #[serde(default, rename = "ephemeral_5m_input_tokens", deserialize_with = "lenient")]
    five_minutes: u64,
    #[serde(default, rename = "ephemeral_1h_input_tokens", deserialize_with = "lenient")]
    one_hour: u64,
}

impl Tokens {
    /// Returns the lifetime of the text that was written to the provider's cache, if any was.
    pub(super) fn lifetime(&self) -> Option<CacheLifetime> {
        match &self.cache_creation.0 {
            _ if self.cache_creation_input_tokens == 0 => None,
            // The default is five minutes.
            Some(Written { five_minutes: 0, one_hour: 1.. }) => Some(CacheLifetime::OneHour),
            Some(_) | None => Some(CacheLifetime::FiveMinutes),
        }
    }
}

/// Token counts of Claude Code itself, under other names.
#[derive(Deserialize)]
pub(super) struct ModelTokens {
    #[serde(default, rename = "inputTokens", deserialize_with = "lenient")]
    input: u64,
    #[serde(default, rename = "outputTokens", deserialize_with = "lenient")]
    output: u64,
    #[serde(default, rename = "cacheReadInputTokens", deserialize_with = "lenient")]
    cache_read: u64,
    #[serde(default, rename = "cacheCreationInputTokens", deserialize_with = "lenient")]
    cache_write: u64,
}

impl From<Tokens> for Usage {
    fn from(tokens: Tokens) -> Self {
        ModelTokens {
            input: tokens.input_tokens,
            output: tokens.output_tokens,
            cache_read: tokens.cache_read_input_tokens,
            cache_write: tokens.cache_creation_input_tokens,
        }
        .into()
    }
}

impl From<ModelTokens> for Usage {
    fn from(tokens: ModelTokens) -> Self {
        Self {
            input_tokens: tokens.input.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write),
            output_tokens: tokens.output,
            cache_read_tokens: tokens.cache_read,
            cache_write_tokens: tokens.cache_write,
            context_tokens: None,
        }
    }
}

/// The additional fields of a line in a transcript.
#[derive(Deserialize)]
pub(super) struct RecordHead {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) cwd: String,
    #[serde(default, rename = "sessionId", deserialize_with = "lenient")]
    pub(super) session_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) timestamp: String,
    /// Of a subagent.
    #[serde(default, rename = "isSidechain", deserialize_with = "lenient")]
    pub(super) is_sidechain: bool,
    /// Written by the program in the user's name.
    #[serde(default, rename = "isMeta", deserialize_with = "lenient")]
    pub(super) is_meta: bool,
    #[serde(default, rename = "isCompactSummary", deserialize_with = "lenient")]
    pub(super) is_compact_summary: bool,
    /// The author of a `user` line. Absent from a plain prompt.
    #[serde(default)]
    origin: Loose<Origin>,
    #[serde(default, rename = "isApiErrorMessage", deserialize_with = "lenient")]
    pub(super) is_api_error: bool,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) uuid: String,
}

/// The `attachment` of a line in a transcript, if it is a message that waited until the model could read it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueuedCommand<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "lenient")]
    command_mode: String,
    #[serde(default)]
    origin: Loose<Origin>,
    /// A text, or a list of blocks.
    #[serde(default, borrow)]
    prompt: Option<&'a RawValue>,
}

impl<'a> QueuedCommand<'a> {
    /// Returns the content of a prompt that the user typed while the agent worked; `None` for any other attachment, such as a
    /// report of background work.
    pub(super) fn typed(&self) -> Option<&'a RawValue> {
        let is_prompt = self.kind == "queued_command" && self.command_mode == "prompt";
        self.prompt.filter(|_| is_prompt && is_by_user(&self.origin))
    }
}

/// A line with an attachment.
#[derive(Deserialize)]
pub(super) struct AttachmentLine<'a> {
    #[serde(default, borrow)]
    pub(super) attachment: Loose<QueuedCommand<'a>>,
}

/// The cost of a session so far. Newer versions write it at the end of a run.
#[derive(Deserialize)]
pub(super) struct CostState {
    #[serde(default, rename = "totalCostUSD", deserialize_with = "lenient")]
    pub(super) total: f64,
}

/// The result of a call of a subagent, as the program itself has it.
#[derive(Deserialize)]
pub(super) struct SubagentResult {
    #[serde(default, rename = "agentId", deserialize_with = "lenient")]
    pub(super) agent_id: String,
}

/// The author of a message in the user's name: `human`, or a source inside the program such as `task-notification`.
#[derive(Deserialize)]
pub(super) struct Origin {
    #[serde(default, deserialize_with = "lenient")]
    kind: String,
}

impl RecordHead {
    /// Returns whether the user wrote this line, and not a source inside the program.
    pub(super) fn is_by_user(&self) -> bool {
        is_by_user(&self.origin)
    }
}

fn is_by_user(origin: &Loose<Origin>) -> bool {
    origin.0.as_ref().is_none_or(|origin| matches!(origin.kind.as_str(), "" | "human"))
}
