//! Parses Claude Code's own transcript of a session: `projects/<directory>/<session>.jsonl`.
//!
//! Its lines hold the same messages as the output, so the same parser reads them. A transcript also has the prompts,
//! the time of each line, and the tokens of each request. It has no line with the outcome of a turn: the model ended its
//! turn, or it did not. So a turn ends with [`Event::Complete`] where the next prompt comes, or at the end.
//!
//! These lines give no output: those of subagents, texts of the program in the user's name (see [`super::typed`], and its
//! reports of background work), attachments other than a prompt of the user, and every type but `user`, `assistant` and `system`.

use std::collections::BTreeMap;

use azureal_core::Event;
use azureal_core::agent::{AgentOutput, AgentParser, Ending};
use azureal_core::event::{Command, Init, Usage};
use jiff::Timestamp;

use super::NAME;
use super::parser::{Parser, SYNTHETIC};
use super::token_count::{size, sum};
use super::typed::{self, Typed};
use super::wire::{AttachmentLine, CostState, Head, QueuedCommand, RecordHead, SubagentResult, WireTurn};
use crate::closing::StreamEnd;
use crate::span::Span;
use crate::unreadable::{ignored, unreadable_line};
use crate::wire::{Fields, read};

/// Returns whether a file is the record of a run: its name is the run's.
pub(super) fn is_of(file_name: &str, run: &str) -> bool {
    file_name.strip_suffix(".jsonl") == Some(run)
}

/// The reader of one record.
#[derive(Default)]
pub(super) struct Record {
    turn: Turn,
    /// A command of the user whose kind is not known yet: the program answers it itself, or the model does.
    command: Option<Asked>,
    /// The summary of a compaction, until it is taken.
    summary: Option<String>,
    /// The subagent whose result the last line has, until it is taken.
    subagent: Option<String>,
    /// Whether the last turn that ended had no end in the record.
    was_open: bool,
    /// The cost of the turns that ended, as the program counts it.
    cost_usd: f64,
}

/// A prompt, and its line.
struct Asked {
    prompt: String,
    id: String,
    started: Option<Timestamp>,
    begun: Init,
}

/// The turn that is being read.
#[derive(Default)]
struct Turn {
    parser: Parser,
    /// Whether anything belongs to it yet.
    has_content: bool,
    id: String,
    started: Option<Timestamp>,
    /// The beginning of the run, once a line has it; returned with the first text of the model, which names the
    /// model.
    begun: Option<Init>,
    has_begun: bool,
    /// The tokens of each request. Every block of an answer repeats them.
    used: BTreeMap<String, Usage>,
    /// The tokens of the last of them.
    last_used: Option<Usage>,
    cost_usd: f64,
    span: Span,
    stream_end: StreamEnd,
    /// Whether the last line is a text of the model whose end no line has, as older versions write it.
    spoke_last: bool,
}

impl AgentParser for Record {
    fn line(&mut self, line: &[u8]) -> Vec<AgentOutput> {
        if line.trim_ascii().is_empty() {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(line);
        let outputs = Fields::of(&text).and_then(|fields| {
            let (head, record) = (fields.read::<Head>()?, fields.read::<RecordHead>()?);
            if record.is_sidechain {
                return Some(ignored(NAME, "sidechain"));
            }
            match head.kind.as_str() {
                "user" => self.user(&record, fields.read()?),
                "assistant" => self.assistant(&record, fields.read()?),
                "system" if head.subtype == "compact_boundary" => {
                    self.turn.span.reach(&record.timestamp);
                    self.turn.has_content = true;
                    Some(vec![AgentOutput::Event(Event::Compacted)])
                }
                "cost-state" => {
                    let CostState { total } = fields.read()?;
                    self.turn.cost_usd = if total < self.cost_usd { total } else { total - self.cost_usd };
                    Some(Vec::new())
                }
                "attachment" => self.attachment(&record, &fields.read()?),
                other => Some(ignored(NAME, other)),
            }
        });
        outputs.unwrap_or_else(|| vec![unreadable_line(NAME, line, "makes no sense")])
    }

    fn end(&mut self, ending: &Ending) -> Vec<AgentOutput> {
        let mut out = self.release();
        out.extend(self.close(ending));
        out
    }
}

impl Record {
    /// Returns the id of the turn that is being read, which is that of its first line, and its time.
    pub(super) fn turn(&self) -> (&str, Option<Timestamp>) {
        (&self.turn.id, self.turn.started)
    }

    /// Returns whether the turn that is being read has any content.
    pub(super) fn has_content(&self) -> bool {
        self.turn.has_content || self.command.is_some()
    }

    /// Returns whether the last turn that ended had no end in the record.
    pub(super) fn was_open(&self) -> bool {
        self.was_open
    }

    /// Takes the summary of a compaction that the last line had.
    pub(super) fn take_summary(&mut self) -> Option<String> {
        self.summary.take()
    }

    /// Takes the id of the subagent whose result the last line had.
    pub(super) fn take_subagent(&mut self) -> Option<String> {
        self.subagent.take()
    }

    /// Reads a line of a subagent's own record. As in the output, its calls and their results belong to the turn, and its
    /// tokens are counted; its texts are left out, because the result of the call has them.
    pub(super) fn subagent_line(&mut self, call: &str, line: &[u8]) -> Vec<AgentOutput> {
        let text = String::from_utf8_lossy(line);
        let outputs = Fields::of(&text).and_then(|fields| {
            let (head, record) = (fields.read::<Head>()?, fields.read::<RecordHead>()?);
            let mut turn = fields.read::<WireTurn<'_>>()?;
            turn.parent_tool_use_id = Some(call.to_owned());
            match head.kind.as_str() {
                "user" if record.is_meta => None,
                "user" => self.turn.parser.user(turn),
                "assistant" => {
                    self.count(&mut turn);
                    self.turn.parser.assistant(turn)
                }
                _ => None,
            }
        });
        let is_tool = |output: &AgentOutput| {
            matches!(output, AgentOutput::Event(Event::ToolCall(_) | Event::ToolResult(_)))
        };
        outputs.unwrap_or_default().into_iter().filter(is_tool).collect()
    }

    fn user(&mut self, record: &RecordHead, turn: WireTurn<'_>) -> Option<Vec<AgentOutput>> {
        if record.is_compact_summary {
            self.turn.span.reach(&record.timestamp);
            self.summary = typed::text(&turn).map(|text| typed::summary(&text).to_owned());
            return Some(Vec::new());
        }
        if record.is_meta {
            return Some(Vec::new());
        }
        let Some(typed) = typed::of(&turn) else {
            let mut out = self.answered(record);
            self.turn.stream_end = StreamEnd::Missing;
            self.turn.spoke_last = false;
            let own = turn.tool_use_result.and_then(read::<SubagentResult>);
            self.subagent = own.map(|own| own.agent_id).filter(|id| !id.is_empty());
            out.extend(self.turn.parser.user(turn)?);
            return Some(out);
        };
        match typed {
            // A report of background work: the turn that started the work continues.
            Typed::Prompt(_) | Typed::Command(_) if !record.is_by_user() => Some(Vec::new()),
            Typed::Prompt(prompt) => {
                let mut out = self.release();
                out.extend(self.begin_turn(Asked::of(record, prompt)));
                Some(out)
            }
            Typed::Command(command) => {
                let out = self.release();
                self.command = Some(Asked::of(record, command));
                Some(out)
            }
            Typed::CommandOutput => {
                let mut out = self.release();
                out.extend(self.turn.parser.user(turn)?);
                Some(out)
            }
            Typed::Interruption => {
                self.turn.span.reach(&record.timestamp);
                self.turn.stream_end = StreamEnd::Interrupted;
                Some(Vec::new())
            }
            Typed::Injected => Some(Vec::new()),
        }
    }

    /// Reads a prompt that the user typed while the agent worked: a further prompt of the turn.
    fn attachment(&mut self, record: &RecordHead, line: &AttachmentLine<'_>) -> Option<Vec<AgentOutput>> {
        let Some(content) = line.attachment.0.as_ref().and_then(QueuedCommand::typed) else {
            return Some(ignored(NAME, "attachment"));
        };
        let prompt = typed::prompt(content)?;
        let mut out = self.answered(record);
        self.turn.stream_end = StreamEnd::Missing;
        self.turn.spoke_last = false;
        out.push(AgentOutput::Event(Event::user(prompt)));
        Some(out)
    }

    fn assistant(&mut self, record: &RecordHead, mut turn: WireTurn<'_>) -> Option<Vec<AgentOutput>> {
        let mut out = self.answered(record);
        self.count(&mut turn);
        let message = turn.message.0.as_mut()?;
        // A text of the program in the model's place names no model.
        let model = if message.model == SYNTHETIC { "" } else { message.model.as_str() };
        out.extend(self.turn.begin(model));
        self.turn.spoke_last = false;
        self.turn.stream_end = match message.stop_reason.as_str() {
            _ if record.is_api_error => StreamEnd::Failed,
            // The model waits for a tool, or was cut off.
            "tool_use" | "pause_turn" => StreamEnd::Missing,
            "" => {
                self.turn.spoke_last = true;
                StreamEnd::Missing
            }
            _ => StreamEnd::Done,
        };
        if record.is_api_error {
            // Older versions do not say which.
            turn.error.get_or_insert_with(|| "api_error".to_owned());
        }
        let said = self.turn.parser.assistant(turn)?;
        self.turn.spoke_last &= matches!(said.last(), Some(AgentOutput::Event(Event::AssistantText(_))));
        out.extend(said);
        Some(out)
    }

    /// Counts the tokens of a request once.
    fn count(&mut self, turn: &mut WireTurn<'_>) {
        let Some(message) = turn.message.0.as_mut() else { return };
        if let Some(usage) = message.usage.0.take() {
            let usage = usage.into();
            if turn.parent_tool_use_id.is_none() {
                self.turn.last_used = Some(usage);
            }
            self.turn.used.insert(message.id.clone(), usage);
        }
    }

    /// Notes that a line of the agent belongs to the turn. If a command waits, the model answers it: it is a prompt.
    fn answered(&mut self, record: &RecordHead) -> Vec<AgentOutput> {
        let mut out = Vec::new();
        if let Some(command) = self.command.take() {
            out.extend(self.begin_turn(command));
        }
        let turn = &mut self.turn;
        turn.span.reach(&record.timestamp);
        if !turn.has_content {
            turn.has_content = true;
            turn.id.clone_from(&record.uuid);
            turn.started = record.timestamp.parse().ok();
        }
        turn.begun.get_or_insert_with(|| init(record));
        out
    }

    /// Returns the command that waits, as one that the program answered itself.
    fn release(&mut self) -> Vec<AgentOutput> {
        let command = self.command.take();
        self.turn.has_content |= command.is_some();
        let event = |asked: Asked| AgentOutput::Event(Event::Command(Command { name: asked.prompt }));
        command.map(event).into_iter().collect()
    }

    /// Ends the turn before, and begins one.
    fn begin_turn(&mut self, asked: Asked) -> Vec<AgentOutput> {
        let mut out = if self.turn.has_content {
            // The user went on: what the model said last is the end of what it had to say.
            if self.turn.spoke_last && self.turn.stream_end == StreamEnd::Missing {
                self.turn.stream_end = StreamEnd::Done;
            }
            self.close(&Ending::default())
        } else {
            Vec::new()
        };
        let Asked { prompt, id, started, begun } = asked;
        let turn = Turn { has_content: true, id, started, begun: Some(begun), ..Turn::default() };
        self.turn = turn;
        if let Some(started) = started {
            self.turn.span.add(started);
        }
        out.push(AgentOutput::Event(Event::user(prompt)));
        out
    }

    fn close(&mut self, ending: &Ending) -> Vec<AgentOutput> {
        let turn = &mut self.turn;
        let mut out: Vec<AgentOutput> = turn.begin("").into_iter().collect();
        let used = turn.used.values().copied().fold(Usage::default(), sum);
        let context_tokens = turn.last_used.as_ref().map(size).filter(|tokens| *tokens > 0);
        let usage = (!turn.used.is_empty()).then_some(Usage { context_tokens, ..used });
        self.cost_usd += turn.cost_usd;
        self.was_open = turn.stream_end == StreamEnd::Missing;
        out.extend(turn.parser.end_as(
            turn.stream_end,
            usage,
            turn.cost_usd,
            &Ending { duration: turn.span.length(), ..ending.clone() },
        ));
        self.turn = Turn::default();
        out
    }
}

impl Asked {
    fn of(record: &RecordHead, prompt: String) -> Self {
        Self { prompt, id: record.uuid.clone(), started: record.timestamp.parse().ok(), begun: init(record) }
    }
}

impl Turn {
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

fn init(record: &RecordHead) -> Init {
    Init {
        cwd: record.cwd.clone(),
        agent: Some(NAME.to_owned()),
        agent_session: record.session_id.clone(),
        ..Init::default()
    }
}
