//! The records of a session of Qwen Code.
//!
//! A record is a message in the format of the Gemini API, or a note of the program (`system`). Of the notes, those on
//! compressions, models, titles and the ends of turns count; the others give no event.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::chain::Chain;
use crate::gemini::parts::{Counts, Part, parts, typed};
use crate::native::draft::{Answer, Draft};
use crate::native::record_lines::RecordParser;
use crate::wire::{Fields, Loose, lenient, lenient_list};

/// A record.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record<'a> {
    #[serde(default, deserialize_with = "lenient")]
    uuid: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) session_id: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) timestamp: String,
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "lenient")]
    subtype: String,
    #[serde(default, deserialize_with = "lenient")]
    provenance: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) cwd: String,
    #[serde(default, deserialize_with = "lenient")]
    model: String,
    #[serde(default, borrow)]
    message: Loose<Message<'a>>,
    #[serde(default)]
    usage_metadata: Loose<Tokens>,
    #[serde(default)]
    tool_call_result: Loose<ToolCallResult>,
    #[serde(default, borrow)]
    pub(super) system_payload: Loose<Payload<'a>>,
}

impl Record<'_> {
    /// Returns whether this is a record of Qwen Code. Claude Code's have other messages.
    pub(super) fn is_of_qwen(&self) -> bool {
        let has_parts = self.message.0.as_ref().is_some_and(|message| message.parts.is_some());
        let is_note = self.kind == "system" && !self.provenance.is_empty();
        !self.uuid.is_empty() && !self.session_id.is_empty() && (has_parts || is_note)
    }
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(default, borrow)]
    parts: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tokens {
    #[serde(default, deserialize_with = "lenient")]
    prompt_token_count: u64,
    #[serde(default, deserialize_with = "lenient")]
    candidates_token_count: u64,
    #[serde(default, deserialize_with = "lenient")]
    cached_content_token_count: u64,
    #[serde(default, deserialize_with = "lenient")]
    thoughts_token_count: u64,
    #[serde(default, deserialize_with = "lenient")]
    tool_use_prompt_token_count: u64,
    #[serde(default, deserialize_with = "lenient")]
    total_token_count: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolCallResult {
    #[serde(default, deserialize_with = "lenient")]
    status: String,
    #[serde(default)]
    result_display: Loose<ResultDisplay>,
}

/// What the program shows of a result, if that is more than a text.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResultDisplay {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "lenient")]
    file_diff: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    output: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    exit_code: Option<i64>,
    #[serde(default, deserialize_with = "lenient")]
    truncated: bool,
}

/// What a note holds; its fields depend on the subtype.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Payload<'a> {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) custom_title: Option<String>,
    /// The text of a prompt as it was typed.
    #[serde(default, deserialize_with = "lenient")]
    display_text: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    state: String,
    #[serde(default)]
    error: Loose<Failure>,
    #[serde(default, borrow, deserialize_with = "lenient_list")]
    compressed_history: Vec<Message<'a>>,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default, deserialize_with = "lenient")]
    message: String,
}

/// Parses the records of the chain.
pub(super) struct QwenParser {
    chain: Chain,
    title: Option<String>,
}

impl QwenParser {
    pub(super) fn new(chain: Chain) -> Self {
        Self { chain, title: None }
    }

    fn note(&mut self, record: &Record<'_>, time: Option<Timestamp>, draft: &mut Draft) {
        let Some(payload) = &record.system_payload.0 else { return };
        match record.subtype.as_str() {
            "custom_title" => self.title = payload.custom_title.clone().or(self.title.take()),
            "chat_compression" => {
                draft.reach(&record.uuid, time);
                let first = payload.compressed_history.first().and_then(|message| message.parts);
                draft.compacted(first.map(|raw| typed(&parts(raw).0)));
            }
            "turn_result" => match payload.state.as_str() {
                "completed" => draft.done(),
                "cancelled" => draft.cancelled(),
                "error" => {
                    let message = payload.error.0.as_ref().map_or("", |error| error.message.as_str());
                    draft.reach(&record.uuid, time);
                    draft.error("agent_error", message);
                }
                _ => {}
            },
            _ => {}
        }
    }
}

impl RecordParser for QwenParser {
    fn record(&mut self, number: u64, fields: &Fields<'_>, draft: &mut Draft) -> Result<(), String> {
        if self.chain.is_abandoned(number) {
            return Ok(());
        }
        let record: Record<'_> = fields.read().ok_or("it makes no sense")?;
        let time = record.timestamp.parse().ok();
        draft.runs_in(&record.cwd);
        let raw = record.message.0.as_ref().and_then(|message| message.parts);
        let (parts, unreadable) = raw.map(parts).unwrap_or_default();
        match record.kind.as_str() {
            "user" => user(&record, time, &parts, draft),
            "assistant" => assistant(&record, time, parts, draft),
            "tool_result" => results(&record, time, &parts, draft),
            "system" => {
                self.note(&record, time, draft);
                return Ok(());
            }
            _ => return Err("it is of an unknown kind".to_owned()),
        }
        match (raw, unreadable) {
            (None, _) => Err("it has no message".to_owned()),
            (_, 0) => Ok(()),
            (_, parts) => Err(format!("{parts} of its parts make no sense")),
        }
    }

    fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }
}

fn user(record: &Record<'_>, time: Option<Timestamp>, parts: &[Part<'_>], draft: &mut Draft) {
    // The program writes in the user's name too: reports of background work, and prompts of its own.
    let is_by_user = matches!(record.provenance.as_str(), "real_user" | "");
    if !is_by_user || !matches!(record.subtype.as_str(), "" | "mid_turn_user_message" | "realtime_message") {
        return;
    }
    let shown = record.system_payload.0.as_ref().and_then(|payload| payload.display_text.clone());
    let text = shown.unwrap_or_else(|| typed(parts));
    if record.subtype == "mid_turn_user_message" {
        draft.reach(&record.uuid, time);
        draft.further_prompt(&text);
    } else if !parts.is_empty() {
        draft.prompt(&record.uuid, time, &text);
    }
}

fn assistant(record: &Record<'_>, time: Option<Timestamp>, parts: Vec<Part<'_>>, draft: &mut Draft) {
    draft.reach(&record.uuid, time);
    draft.model(&record.model);
    for part in parts {
        match part.text {
            Some(text) if part.thought => draft.reasoning(text, None),
            Some(text) => draft.text(text, None),
            None => {}
        }
        if let Some(call) = part.function_call.0 {
            draft.call(&call.id, call.translated(), None);
        }
    }
    if let Some(tokens) = &record.usage_metadata.0 {
        let counts = Counts {
            input: tokens.prompt_token_count,
            output: tokens.candidates_token_count,
            cached: tokens.cached_content_token_count,
            thoughts: tokens.thoughts_token_count,
            tool: tokens.tool_use_prompt_token_count,
            total: tokens.total_token_count,
        };
        draft.usage(counts.usage(), true);
    }
}

fn results(record: &Record<'_>, time: Option<Timestamp>, parts: &[Part<'_>], draft: &mut Draft) {
    draft.reach(&record.uuid, time);
    let own = record.tool_call_result.0.as_ref();
    let has_failed = own.is_some_and(|own| matches!(own.status.as_str(), "error" | "cancelled"));
    let shown = own.and_then(|own| own.result_display.0.as_ref());
    for response in parts.iter().filter_map(|part| part.function_response.0.as_ref()) {
        let answer = match shown {
            // The program's own form of the output of a command needs no guess.
            Some(ResultDisplay { kind, output: Some(output), exit_code, truncated: false, .. })
                if kind == "shell_result" =>
            {
                Answer::of_command(output, *exit_code, has_failed)
            }
            _ => Answer {
                diff: shown.and_then(|shown| shown.file_diff.clone()),
                ..response.answer(has_failed)
            },
        };
        draft.result(&response.id, answer, None);
    }
}
