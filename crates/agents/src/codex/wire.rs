//! The output of Codex: one JSON object per line.
//!
//! Only the fields that are used are here. All of them are optional, see [`lenient`].

use std::collections::BTreeMap;

use azureal_core::event::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::wire::{Loose, lenient, lenient_list, long_text, optional_long_text};

#[derive(Deserialize)]
pub(super) struct Line<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    pub(super) kind: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) thread_id: Option<String>,
    #[serde(default, borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) usage: Loose<Tokens>,
    #[serde(default)]
    pub(super) error: Loose<Failure>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) message: Option<String>,
    /// The whole of a line of versions before 0.40 or so.
    #[serde(default, borrow)]
    pub(super) msg: Option<&'a RawValue>,
    /// In the first line of such versions.
    #[serde(default, deserialize_with = "lenient")]
    pub(super) workdir: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) model: Option<String>,
    /// In their second line.
    #[serde(default, deserialize_with = "lenient")]
    pub(super) prompt: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Failure {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) message: String,
}

/// The provider's error response, in the message of a [`Failure`].
#[derive(Deserialize)]
pub(super) struct Refusal {
    #[serde(default)]
    pub(super) error: Loose<Failure>,
}

/// An item; which fields there are depends on its type.
#[derive(Deserialize)]
pub(super) struct Item<'a> {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) id: String,
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    pub(super) kind: String,
    // agent_message, reasoning
    #[serde(default, deserialize_with = "optional_long_text")]
    pub(super) text: Option<String>,
    // command_execution
    #[serde(default, deserialize_with = "lenient")]
    pub(super) command: String,
    #[serde(default, deserialize_with = "long_text")]
    pub(super) aggregated_output: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) exit_code: Option<i64>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) status: String,
    // file_change
    #[serde(default, deserialize_with = "lenient_list")]
    pub(super) changes: Vec<Change>,
    // mcp_tool_call
    #[serde(default, deserialize_with = "lenient")]
    pub(super) server: String,
    /// Of collab_tool_call too.
    #[serde(default, deserialize_with = "lenient")]
    pub(super) tool: String,
    #[serde(default, borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) result: Loose<McpResult<'a>>,
    #[serde(default)]
    pub(super) error: Loose<Failure>,
    // web_search
    #[serde(default, deserialize_with = "lenient")]
    pub(super) query: String,
    #[serde(default)]
    pub(super) action: Loose<Action>,
    // todo_list
    #[serde(default, deserialize_with = "lenient_list")]
    pub(super) items: Vec<Todo>,
    // collab_tool_call
    #[serde(default, deserialize_with = "lenient")]
    pub(super) prompt: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) receiver_thread_ids: Vec<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) agents_states: BTreeMap<String, Loose<AgentState>>,
    // error
    #[serde(default, deserialize_with = "lenient")]
    pub(super) message: String,
}

#[derive(Deserialize)]
pub(super) struct Change {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) path: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) kind: String,
    /// The content of an added or deleted file, or the hunks of a changed one. Only records and older versions have it.
    #[serde(skip)]
    pub(super) text: Option<String>,
}

/// The form of a change in records and older versions.
#[derive(Deserialize)]
pub(super) struct ChangeText {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    pub(super) kind: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) content: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) unified_diff: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct McpResult<'a> {
    #[serde(default, borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) structured_content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Action {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) query: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) url: String,
}

#[derive(Deserialize, Clone, PartialEq, Eq)]
pub(super) struct Todo {
    #[serde(default, alias = "step", deserialize_with = "lenient")]
    pub(super) text: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) completed: bool,
    /// Instead of `completed`, in older versions.
    #[serde(default, deserialize_with = "lenient")]
    pub(super) status: String,
}

#[derive(Deserialize)]
pub(super) struct AgentState {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) status: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) message: Option<String>,
}

/// Tokens of the whole thread so far. Those of the cache are part of the input.
#[derive(Deserialize)]
pub(super) struct Tokens {
    #[serde(default, deserialize_with = "lenient")]
    input_tokens: u64,
    #[serde(default, deserialize_with = "lenient")]
    cached_input_tokens: u64,
    #[serde(default, deserialize_with = "lenient")]
    cache_write_input_tokens: u64,
    #[serde(default, deserialize_with = "lenient")]
    output_tokens: u64,
}

impl From<Tokens> for Usage {
    fn from(tokens: Tokens) -> Self {
        Self {
            input_tokens: tokens.input_tokens,
            output_tokens: tokens.output_tokens,
            cache_read_tokens: tokens.cached_input_tokens,
            cache_write_tokens: tokens.cache_write_input_tokens,
            context_tokens: None,
        }
    }
}

impl Tokens {
    /// Returns what one request holds in the end, where these are of one.
    pub(super) fn size(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}
