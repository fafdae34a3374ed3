//! A session as JSON, without its events.

use azureal_core::SessionRecord;
use serde::Serialize;

/// The shape of one session. Fields may be added, never removed.
///
/// `Usage` is the shape of the context usage, which depends on the configuration of a project. `Turn` is the shape of a
/// running turn.
#[derive(Debug, Serialize)]
pub struct SessionLine<'a, Usage = (), Turn = ()> {
    id: String,
    uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forked_from: Option<String>,
    name: &'a str,
    worktree: &'a str,
    created: &'a str,
    /// Left out where it is unknown.
    #[serde(skip_serializing_if = "str::is_empty")]
    last_active: &'a str,
    completed: Option<bool>,
    /// Left out where it would be out of date when it is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<bool>,
    duration_ms: u64,
    cost_usd: f64,
    event_count: u64,
    message_count: u64,
    preview: &'a str,
    last_prompt: Option<&'a str>,
    input_tokens: u64,
    output_tokens: u64,
    /// The parts of the input that were read from the provider's cache and written to it.
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    agent: Option<&'a str>,
    model: Option<&'a str>,
    /// The size of the output of its turns. Left out where it would be out of date when it is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    original_bytes: Option<u64>,
    /// Stored values that cannot be read.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    damaged: &'a [String],
    /// The turn that is running. Left out where none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<Turn>,
    /// The context usage. Left out where it would be out of date when it is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Usage>,
}

impl<'a, Usage, Turn> SessionLine<'a, Usage, Turn> {
    /// Describes the present state of a session, and its running turn if there is one.
    pub fn live(record: &'a SessionRecord, turn: Option<Turn>, context: Usage) -> Self {
        let exported = Self::exported(record);
        // The turn that runs has not ended yet, however the one before it ended.
        let completed = exported.completed.filter(|_| turn.is_none());
        Self { running: Some(turn.is_some()), turn, context: Some(context), completed, ..exported }
    }

    /// Adds the size of the output of its turns, if it is known.
    #[must_use]
    pub fn with_originals(self, bytes: Option<u64>) -> Self {
        Self { original_bytes: bytes, ..self }
    }

    /// Describes a session for an export.
    pub fn exported(record: &'a SessionRecord) -> Self {
        Self {
            id: record.id.to_string(),
            uuid: record.uuid.map(|uuid| uuid.to_string()),
            forked_from: record.forked_from.map(|uuid| uuid.to_string()),
            name: &record.name,
            worktree: &record.worktree,
            created: &record.created_at,
            last_active: &record.last_active,
            completed: record.completed,
            running: None,
            duration_ms: record.duration_ms,
            cost_usd: record.cost_usd,
            event_count: record.counts.events,
            message_count: record.counts.messages,
            preview: record.counts.preview_text(),
            last_prompt: record.counts.last_prompt.as_deref(),
            input_tokens: record.tokens.input,
            output_tokens: record.tokens.output,
            cache_read_tokens: record.tokens.cache_read,
            cache_write_tokens: record.tokens.cache_write,
            agent: record.counts.agent.as_deref(),
            model: record.counts.model.as_deref(),
            original_bytes: None,
            damaged: &record.damaged,
            turn: None,
            context: None,
        }
    }
}
