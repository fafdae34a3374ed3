//! Parses Claude Code's own transcript of a run: `projects/<directory>/<session>.jsonl`.
//!
//! Its lines hold the same messages as the output, so the same parser reads them. A transcript also has the prompt,
//! the time of each line, and the tokens of each request. It has no last line with the outcome: the model ended its
//! turn, or it did not.
//!
//! These lines give no output: those of subagents, texts of the program in the user's name (also its reports of
//! background work), and every type but `user`, `assistant` and `system`.

use std::collections::BTreeMap;

use azureal_core::Event;
use azureal_core::agent::{AgentOutput, AgentParser, Ending};
use azureal_core::event::{Init, Usage};

use super::NAME;
use super::parser::{Parser, SYNTHETIC};
use super::token_count::{size, sum};
use super::wire::{Block, Head, RecordHead, WireTurn};
use crate::closing::StreamEnd;
use crate::span::Span;
use crate::unreadable::{ignored, unreadable_line};
use crate::wire::{Fields, elements, read};

/// Returns whether a file is the record of a run: its name is the run's.
pub(super) fn is_of(file_name: &str, run: &str) -> bool {
    file_name.strip_suffix(".jsonl") == Some(run)
}

/// The reader of one record.
#[derive(Default)]
pub(super) struct Record {
    parser: Parser,
    /// The beginning of the run, once a line has it; returned with the first text of the model, which names the
    /// model.
    begun: Option<Init>,
    has_begun: bool,
    /// The tokens of each request. Every block of an answer repeats them.
    used: BTreeMap<String, Usage>,
    /// The tokens of the last of them.
    last_used: Option<Usage>,
    span: Span,
    stream_end: StreamEnd,
}

impl AgentParser for Record {
    fn line(&mut self, line: &[u8]) -> Vec<AgentOutput> {
        if line.trim_ascii().is_empty() {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(line);
        let outputs = Fields::of(&text).and_then(|fields| {
            let (head, record) = (fields.read::<Head>()?, fields.read::<RecordHead>()?);
            self.span.reach(&record.timestamp);
            if record.is_sidechain {
                return Some(ignored(NAME, "sidechain"));
            }
            match head.kind.as_str() {
                "user" => self.user(&record, fields.read()?),
                "assistant" => self.assistant(&record, fields.read()?),
                "system" if head.subtype == "compact_boundary" => {
                    Some(vec![AgentOutput::Event(Event::Compacted)])
                }
                other => Some(ignored(NAME, other)),
            }
        });
        outputs.unwrap_or_else(|| vec![unreadable_line(NAME, line, "makes no sense")])
    }

    fn end(&mut self, ending: &Ending) -> Vec<AgentOutput> {
        let mut out: Vec<AgentOutput> = self.begin("").into_iter().collect();
        let used = self.used.values().copied().fold(Usage::default(), sum);
        let context_tokens = self.last_used.as_ref().map(size).filter(|tokens| *tokens > 0);
        let usage = (!self.used.is_empty()).then_some(Usage { context_tokens, ..used });
        out.extend(self.parser.end_as(
            self.stream_end,
            usage,
            &Ending { duration: self.span.length(), ..ending.clone() },
        ));
        out
    }
}

impl Record {
    fn user(&mut self, record: &RecordHead, turn: WireTurn<'_>) -> Option<Vec<AgentOutput>> {
        if record.is_meta || record.is_compact_summary {
            return Some(Vec::new());
        }
        self.stream_end = StreamEnd::Missing;
        let Some(prompt) = prompt(&turn) else { return self.parser.user(turn) };
        if !record.is_by_user() {
            // A report of background work: the turn that started the work continues.
            return Some(Vec::new());
        }
        self.begun.get_or_insert_with(|| Init {
            cwd: record.cwd.clone(),
            agent: Some(NAME.to_owned()),
            agent_session: record.session_id.clone(),
            ..Init::default()
        });
        Some(vec![AgentOutput::Event(Event::user(prompt))])
    }

    fn assistant(&mut self, record: &RecordHead, mut turn: WireTurn<'_>) -> Option<Vec<AgentOutput>> {
        let message = turn.message.0.as_mut()?;
        // A text of the program in the model's place names no model.
        let model = if message.model == SYNTHETIC { "" } else { message.model.as_str() };
        let mut out: Vec<AgentOutput> = self.begin(model).into_iter().collect();
        if let Some(usage) = message.usage.0.take() {
            let usage = usage.into();
            self.last_used = Some(usage);
            self.used.insert(message.id.clone(), usage);
        }
        self.stream_end = match message.stop_reason.as_str() {
            _ if record.is_api_error => StreamEnd::Failed,
            // The model waits for a tool, or was cut off.
            "tool_use" | "pause_turn" | "" => StreamEnd::Missing,
            _ => StreamEnd::Done,
        };
        if record.is_api_error {
            // Older versions do not say which.
            turn.error.get_or_insert_with(|| "api_error".to_owned());
        }
        out.extend(self.parser.assistant(turn)?);
        Some(out)
    }

    /// Tells once where the run began.
    fn begin(&mut self, model: &str) -> Option<AgentOutput> {
        if self.has_begun {
            return None;
        }
        let init = self.begun.clone()?;
        self.has_begun = true;
        self.parser.runs_in(&init.cwd);
        Some(AgentOutput::Event(Event::Init(Init { model: model.to_owned(), ..init })))
    }
}

/// Returns the user's prompt, if the message is one: one text, or only texts.
fn prompt(turn: &WireTurn<'_>) -> Option<String> {
    let content = turn.message.0.as_ref()?.content?;
    if let Ok(text) = serde_json::from_str::<String>(content.get()) {
        return Some(text);
    }
    let mut prompt = String::new();
    for raw in elements(content)? {
        let block = read::<Block<'_>>(raw)?;
        match block.kind.as_str() {
            "text" => prompt.push_str(&block.text?),
            "image" | "document" => {}
            _ => return None,
        }
    }
    Some(prompt)
}
