//! Parses the output of Claude Code.
//!
//! Sources of the stored events: texts, reasoning and tool calls come from the whole `assistant` events (one block
//! each), results from the `user` events, totals from `result`. The `stream_event`s are only shown, except for
//! unfinished text when the program dies.
//!
//! These lines give no output: `system` lines of the kinds `thinking_tokens`, `status`, `task_started`,
//! `task_progress`, `task_updated` and `hook_started`, a second `init`, texts of the program in the user's name,
//! empty and hidden blocks, the parts of a stream around its texts, and `control_response`, `keep_alive`,
//! `rate_limit_event`, `tool_progress`, `tool_use_summary`, `prompt_suggestion` and `auth_status`.

use std::collections::HashSet;
use std::time::Duration;

use azureal_core::Event;
use azureal_core::agent::{AgentOutput, AgentParser, CacheRefusal, CacheSeen, Ending};
use azureal_core::event::{AssistantText, ErrorEvent, Hook, Init, ModelSwitch, Plan, Reasoning, Usage};

use serde_json::value::RawValue;

use super::token_count::{TokenCount, largest, sum};
use super::wire::{Block, Head, Stream, System, Tokens, WireResult, WireTurn};
use super::{NAME, edited};
use crate::calls::{Calls, Reported};
use crate::closing::{Closing, StreamEnd};
use crate::unreadable::{UnknownKinds, ignored, shorten, unreadable_line};
use crate::wire::{Fields, elements, kept, output_text, push_bounded, read, text_of};

/// The model that Claude Code names for its own texts.
pub(super) const SYNTHETIC: &str = "<synthetic>";

/// The beginning of the id of a model's answer.
pub(super) const API_ID: &str = "msg_";

/// The kind of an error without a kind.
const API_ERROR: &str = "api_error";

/// The reader of one run.
#[derive(Default)]
pub(super) struct Parser {
    /// The model, once the program has started.
    model: Option<String>,
    calls: Calls,
    /// A text of the program itself, until it is known whether it is an answer or a failure.
    held: Option<String>,
    /// The unfinished text.
    open: Open,
    /// Whether there is a text of the agent.
    spoke: bool,
    /// Whether there is a text or a tool call of the model.
    answered: bool,
    /// The kind and the message of the error, if the first request was refused because of its breakpoints. Then no
    /// work was done, and the driver may start the program again. The output of that start comes next.
    refused_start: Option<(String, String)>,
    /// Whether the model refused to answer.
    refused: bool,
    /// The number of `result` lines: one, and one more for each report of background work.
    results: u32,
    /// The calls that were refused: background work leads to several results, and each may list all of them.
    denied: HashSet<String>,
    /// Whether an error was returned since the last `result`.
    has_error: bool,
    tokens: TokenCount,
    closing: Closing,
    unknown: UnknownKinds,
}

/// Text and thinking that are not finished.
#[derive(Default)]
struct Open {
    text: String,
    thinking: String,
}

impl AgentParser for Parser {
    fn line(&mut self, line: &[u8]) -> Vec<AgentOutput> {
        if line.trim_ascii().is_empty() {
            return Vec::new();
        }
        // A broken character costs itself, not its line.
        let text = String::from_utf8_lossy(line);
        // An unreadable line changes no other: what is held stays held.
        let unreadable = |why| vec![unreadable_line(NAME, line, why)];
        let Some(fields) = Fields::of(&text) else {
            return unreadable("is not a JSON object");
        };
        let Some(head) = fields.read::<Head>() else {
            return unreadable("makes no sense");
        };
        if head.kind == "result" {
            return match fields.read() {
                Some(outcome) => self.result(&head.subtype, outcome),
                None => unreadable("makes no sense"),
            };
        }
        let mut out = self.release();
        let read = match head.kind.as_str() {
            "system" => fields.read().map(|system| self.system(&head.subtype, system)),
            "assistant" => fields.read().and_then(|turn| self.assistant(turn)),
            "user" => fields.read().and_then(|turn| self.user(turn)),
            "stream_event" => fields.read().map(|stream| self.stream(stream)),
            "control_request" => Some(vec![AgentOutput::Notice(
                "claude asks a question that azureal does not answer".to_owned(),
            )]),
            "control_response" | "keep_alive" | "rate_limit_event" | "tool_progress" | "tool_use_summary"
            | "prompt_suggestion" | "auth_status" => Some(ignored(NAME, &head.kind)),
            "" => None,
            other => Some(self.unknown.notice(NAME, other)),
        };
        match read {
            Some(outputs) => out.extend(outputs),
            None => out.push(unreadable_line(NAME, line, "makes no sense")),
        }
        out
    }

    fn end(&mut self, ending: &Ending) -> Vec<AgentOutput> {
        let mut out = self.release();
        if let Some((kind, message)) = self.refused_start.take() {
            out.push(self.failed(&kind, &message));
        }
        let open = std::mem::take(&mut self.open);
        out.extend(self.keep(open));
        out.extend(self.closing.close(NAME, ending));
        out
    }
}

impl Parser {
    /// Ends a run whose outcome, usage and cost come from elsewhere.
    pub(super) fn end_as(
        &mut self,
        stream_end: StreamEnd,
        usage: Option<Usage>,
        cost_usd: f64,
        ending: &Ending,
    ) -> Vec<AgentOutput> {
        self.closing.cost_usd = cost_usd;
        self.closing.stream_end = stream_end;
        self.closing.usage = usage;
        self.end(ending)
    }

    /// Sets the directory of a run that begins without a line that says so.
    pub(super) fn runs_in(&mut self, cwd: &str) {
        cwd.clone_into(&mut self.calls.cwd);
    }

    fn system(&mut self, subtype: &str, system: System) -> Vec<AgentOutput> {
        match subtype {
            "init" => self.init(system),
            "api_retry" => {
                let error = Some(system.error.as_str()).filter(|error| !matches!(*error, "" | "unknown"));
                let error = error.map_or_else(String::new, |error| format!(" ({error})"));
                let reason = system.error_status.map_or_else(
                    || format!("claude cannot reach its server{error}"),
                    |status| format!("claude's server answered with status {status}{error}"),
                );
                vec![AgentOutput::Retry(format!(
                    "{reason}: retry {} of {}",
                    system.attempt, system.max_retries
                ))]
            }
            "status" => match (system.status.as_deref(), system.compact_result.as_deref()) {
                (Some("compacting"), _) => vec![event(Event::Compacting)],
                (_, Some(result)) if result != "success" => {
                    vec![AgentOutput::Notice(format!("claude could not compact: {}", shorten(result, 200)))]
                }
                _ => Vec::new(),
            },
            "compact_boundary" => vec![event(Event::Compacted)],
            "model_refusal_no_fallback" => {
                self.refused = true;
                vec![AgentOutput::Notice("the model refuses to answer".to_owned())]
            }
            // Why depends on the subtype: too many requests, a refusal, a missing consent.
            _ if !system.fallback_model.is_empty() => {
                self.model = Some(system.fallback_model.clone());
                let mut out = vec![event(Event::ModelSwitch(ModelSwitch::reported(system.fallback_model)))];
                if !system.content.is_empty() {
                    out.push(AgentOutput::Notice(system.content));
                }
                out
            }
            "hook_response" => {
                let output = match system.output.is_empty() {
                    true => system.stdout + &system.stderr,
                    false => system.output,
                };
                vec![event(Event::Hook(Hook { name: system.hook_name, output }))]
            }
            "task_notification" => vec![AgentOutput::Notice(format!(
                "task {}: {}",
                system.status.as_deref().unwrap_or("ended"),
                shorten(&system.summary, 200)
            ))],
            "thinking_tokens" | "task_started" | "task_progress" | "task_updated" | "hook_started" => {
                ignored(NAME, subtype)
            }
            other => self.unknown.notice(NAME, &format!("system/{other}")),
        }
    }

    /// Reads a start. There are several when background work gives rise to further turns.
    fn init(&mut self, system: System) -> Vec<AgentOutput> {
        if self.refused_start.is_some() {
            *self = Self::default();
        }
        self.closing.begun = true;
        self.calls.cwd.clone_from(&system.cwd);
        let before = self.model.replace(system.model.clone());
        let start = match before {
            None => Event::Init(Init {
                cwd: system.cwd,
                model: system.model,
                agent: Some(NAME.to_owned()),
                agent_session: system.session_id,
                ..Init::default()
            }),
            Some(before) if before != system.model => Event::ModelSwitch(ModelSwitch::reported(system.model)),
            Some(_) => return ignored(NAME, "init"),
        };
        vec![event(start)]
    }

    /// Parses a message of the model, or of the program in its place. `None` if it cannot be read.
    pub(super) fn assistant(&mut self, turn: WireTurn<'_>) -> Option<Vec<AgentOutput>> {
        let subagent = turn.parent_tool_use_id;
        let message = turn.message.0?;
        // Our own transcripts name no model either, but their ids are like those of the API.
        let synthetic = message.model == SYNTHETIC && !message.id.starts_with(API_ID);
        let mut out = Vec::new();
        if subagent.is_none() {
            let is_answer = !synthetic && turn.error.is_none();
            // A finished block takes the place of what was open. A failure does not: that is all that came.
            let open = std::mem::take(&mut self.open);
            if !is_answer {
                out.extend(self.keep(open));
            }
            self.answered |= is_answer;
        }
        let content = message.content?;
        let blocks = match text_of(content) {
            Some(text) => {
                out.extend(self.non_empty_text(text, subagent));
                return Some(out);
            }
            None => elements(content)?,
        };
        for raw in blocks {
            let Some(block) = read::<Block<'_>>(raw) else {
                out.push(block_without_sense(raw));
                continue;
            };
            match block.kind.as_str() {
                "text" => match (block.text, &turn.error) {
                    (None, _) => out.push(block_without_sense(raw)),
                    (Some(text), error)
                        if synthetic && subagent.is_none() && refused_breakpoint(&text).is_some() =>
                    {
                        let refusal = refused_breakpoint(&text);
                        out.push(AgentOutput::Cache(CacheSeen { refusal, ..CacheSeen::default() }));
                        let kind = error.as_deref().unwrap_or(API_ERROR);
                        if self.answered {
                            out.push(self.failed(kind, &text));
                        } else {
                            self.refused_start = Some((kind.to_owned(), text));
                        }
                    }
                    (Some(text), Some(error)) if subagent.is_none() => out.push(self.failed(error, &text)),
                    (Some(text), None) if synthetic && subagent.is_none() => {
                        out.extend(self.release());
                        self.held = Some(text);
                    }
                    (Some(text), _) => out.extend(self.non_empty_text(text, subagent.clone())),
                },
                "thinking" => match block.thinking {
                    None => out.push(block_without_sense(raw)),
                    // The provider may hide the reasoning.
                    Some(hidden) if hidden.is_empty() => {}
                    Some(thought) => out.push(reasoning(thought, subagent.clone())),
                },
                "redacted_thinking" => {}
                "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                    let input = kept(block.input);
                    if let Some(plan) = plan(&block.name, &input) {
                        out.push(event(plan));
                    }
                    out.push(event(self.calls.call(&block.id, &block.name, input, subagent.clone())));
                }
                kind if kind.ends_with("tool_result") => {
                    out.push(self.tool_result(&block, None, subagent.clone()));
                }
                other => out.extend(self.unknown.notice(NAME, &format!("block {other}"))),
            }
        }
        Some(out)
    }

    /// Reads what tools gave back. Texts in the user's name are the program's own, as the prompt is not printed.
    pub(super) fn user(&mut self, turn: WireTurn<'_>) -> Option<Vec<AgentOutput>> {
        let content = turn.message.0?.content?;
        if let Some(text) = text_of(content) {
            return Some(command_output(&text).into_iter().collect());
        }
        let mut out = Vec::new();
        for raw in elements(content)? {
            let Some(block) = read::<Block<'_>>(raw) else {
                out.push(block_without_sense(raw));
                continue;
            };
            match block.kind.as_str() {
                "text" => out.extend(block.text.as_deref().and_then(command_output)),
                "image" | "document" => {}
                kind if kind.ends_with("tool_result") => {
                    let own = turn.tool_use_result;
                    out.push(self.tool_result(&block, own, turn.parent_tool_use_id.clone()));
                }
                other => out.extend(self.unknown.notice(NAME, &format!("block {other}"))),
            }
        }
        Some(out)
    }

    /// Reads the result of a tool. `own` is the program's own form of it, if the line has one.
    fn tool_result(
        &mut self,
        block: &Block<'_>,
        own: Option<&RawValue>,
        subagent: Option<String>,
    ) -> AgentOutput {
        let mut content = block.content.map(output_text).unwrap_or_default();
        if block.is_error {
            content = without_error_tags(&content).to_owned();
        }
        let (id, is_error) = (&block.tool_use_id, block.is_error);
        let path = self.calls.edited_file(id).filter(|_| !is_error);
        let reported = path.zip(own).map(|(path, own)| edited::diff(own, path, &self.calls.cwd));
        event(self.calls.result(id, content, is_error, reported.unwrap_or(Reported::Unknown), subagent))
    }

    fn stream(&mut self, stream: Stream) -> Vec<AgentOutput> {
        // Subagents report to the agent that started them.
        if stream.parent_tool_use_id.is_some() {
            return Vec::new();
        }
        let Some(piece) = stream.event.0 else {
            return Vec::new();
        };
        let delta = piece.delta.0.unwrap_or_default();
        match (piece.kind.as_str(), delta.kind.as_str()) {
            ("message_start", _) => {
                self.open = Open::default();
                self.tokens.finished = sum(self.tokens.finished, self.tokens.running);
                let usage = piece.message.0.and_then(|message| message.usage.0);
                let lifetime = usage.as_ref().and_then(Tokens::lifetime);
                self.tokens.running = usage.map_or_else(Usage::default, Usage::from);
                let seen =
                    lifetime.map(|_| AgentOutput::Cache(CacheSeen { lifetime, ..CacheSeen::default() }));
                std::iter::once(self.counted()).chain(seen).collect()
            }
            ("message_delta", _) => match piece.usage.0 {
                Some(usage) => {
                    // Counts only grow. Some providers leave out the counts of the message's start.
                    self.tokens.running = largest(self.tokens.running, usage.into());
                    vec![self.counted()]
                }
                None => Vec::new(),
            },
            ("content_block_delta", "text_delta") if !delta.text.is_empty() => {
                push_bounded(&mut self.open.text, &delta.text);
                vec![AgentOutput::Delta(delta.text)]
            }
            ("content_block_delta", "thinking_delta") => {
                push_bounded(&mut self.open.thinking, &delta.thinking);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn counted(&mut self) -> AgentOutput {
        let total = self.tokens.total();
        self.closing.usage = Some(total);
        AgentOutput::Usage(total)
    }

    /// Reads the end of a turn of work, which need not be the end of the run.
    fn result(&mut self, subtype: &str, result: WireResult) -> Vec<AgentOutput> {
        let failed = result.is_error || subtype.starts_with("error");
        let open = std::mem::take(&mut self.open);
        let mut out = if failed { self.keep(open) } else { Vec::new() };
        match self.held.take() {
            Some(text) if failed => out.push(self.failed(API_ERROR, &text)),
            Some(text) => out.extend(self.non_empty_text(text, None)),
            None => {}
        }
        self.closing.reason = None;
        if result.terminal_reason.starts_with("aborted") {
            self.closing.stream_end = StreamEnd::Interrupted;
        } else if failed {
            self.closing.stream_end = StreamEnd::Failed;
            if !self.has_error && self.refused_start.is_none() {
                let message = match (result.errors.is_empty(), result.result.is_empty()) {
                    (false, _) => result.errors.join("\n"),
                    (true, false) => result.result,
                    (true, true) => format!("claude ended with {subtype}"),
                };
                let kind = if subtype.starts_with("error") { subtype } else { API_ERROR };
                out.push(self.failed(kind, &message));
            }
        } else {
            self.closing.stream_end = StreamEnd::Done;
            // Output of local commands and structured answers may be nowhere else.
            if !self.spoke {
                out.extend(self.non_empty_text(result.result, None));
            }
        }
        self.has_error = false;
        let denials = result.permission_denials.into_iter();
        let new = denials
            .filter(|denial| denial.tool_use_id.is_empty() || self.denied.insert(denial.tool_use_id.clone()));
        let tools: Vec<String> = new.map(|denial| denial.tool_name).collect();
        if !tools.is_empty() {
            out.push(AgentOutput::Refused(tools));
        }
        self.results = self.results.saturating_add(1);
        // Each of several results has its own part, without the waiting between them.
        self.closing.duration = result.duration_ms.filter(|_| self.results == 1).map(Duration::from_millis);
        self.closing.cost_usd = self.closing.cost_usd.max(result.total_cost_usd);
        self.tokens.turns = sum(self.tokens.turns, result.usage.0.map_or_else(Usage::default, Usage::from));
        let whole = result
            .model_usage
            .into_values()
            .filter_map(|tokens| tokens.0)
            .map(Usage::from)
            .fold(Usage::default(), sum);
        self.tokens.counted_all(whole);
        out.push(self.counted());
        out
    }

    /// Returns the unfinished text, because no finished one will replace it.
    fn keep(&mut self, open: Open) -> Vec<AgentOutput> {
        let mut out = Vec::new();
        if !open.thinking.is_empty() {
            out.push(reasoning(open.thinking, None));
        }
        if !open.text.is_empty() {
            out.push(self.text(open.text, None));
        }
        out
    }

    /// Returns the held text of the program: it was no failure.
    fn release(&mut self) -> Vec<AgentOutput> {
        self.held.take().map_or_else(Vec::new, |text| self.non_empty_text(text, None))
    }

    fn non_empty_text(&mut self, text: String, subagent: Option<String>) -> Vec<AgentOutput> {
        if text.is_empty() { Vec::new() } else { vec![self.text(text, subagent)] }
    }

    fn text(&mut self, text: String, subagent: Option<String>) -> AgentOutput {
        self.spoke |= subagent.is_none();
        event(Event::AssistantText(AssistantText { text, starts: None, subagent }))
    }

    fn failed(&mut self, kind: &str, message: &str) -> AgentOutput {
        self.has_error = true;
        self.closing.has_error = true;
        let kind = if self.refused { "refusal" } else { kind };
        // It speaks to a user in its own interface.
        let message = message.replace("run /login", "run `claude /login`");
        event(Event::Error(ErrorEvent { message, kind: kind.to_owned() }))
    }
}

/// Returns why the provider refused a request, if that is because of its breakpoints.
fn refused_breakpoint(error: &str) -> Option<CacheRefusal> {
    let is_refused = error.starts_with("API Error: 400") && error.contains("cache_control");
    is_refused.then(|| match error.contains("A maximum of") {
        true => CacheRefusal::TooMany,
        false => CacheRefusal::Other,
    })
}

/// Returns the text of an error without the tags that are for the model.
fn without_error_tags(content: &str) -> &str {
    let inner =
        content.strip_prefix("<tool_use_error>").and_then(|rest| rest.strip_suffix("</tool_use_error>"));
    inner.unwrap_or(content)
}

fn block_without_sense(raw: &RawValue) -> AgentOutput {
    unreadable_line(NAME, raw.get().as_bytes(), "holds no block that makes sense")
}

fn event(event: Event) -> AgentOutput {
    AgentOutput::Event(event)
}

fn reasoning(text: String, subagent: Option<String>) -> AgentOutput {
    event(Event::Reasoning(Reasoning { text, subagent }))
}

/// Finds the plan that a call hands in. The input of the call is not kept, its plan is.
fn plan(tool: &str, input: &azureal_core::Json) -> Option<Event> {
    if tool != "ExitPlanMode" {
        return None;
    }
    let content = input.string_field("plan")?;
    Some(Event::Plan(Plan { name: "plan".to_owned(), content }))
}

/// Finds what a command of the program printed, in a text that it wrote in the user's name.
fn command_output(text: &str) -> Option<AgentOutput> {
    let inside = text.strip_prefix("<local-command-stdout>")?.strip_suffix("</local-command-stdout>")?.trim();
    (!inside.is_empty()).then(|| AgentOutput::Notice(inside.to_owned()))
}

#[cfg(test)]
mod tests {
    use azureal_core::agent::Exit;
    use azureal_core::event::Outcome;

    use super::*;

    /// Plays lines, and returns the events, and what was shown.
    fn play(lines: &[&str], exit: Exit) -> (Vec<Event>, Vec<String>) {
        let mut parser = Parser::default();
        let mut outputs: Vec<AgentOutput> =
            lines.iter().flat_map(|line| parser.line(line.as_bytes())).collect();
        outputs.extend(parser.end(&Ending { exit: Some(exit), ..Ending::default() }));
        let (mut events, mut shown) = (Vec::new(), Vec::new());
        for output in outputs {
            match output {
                AgentOutput::Event(event) => events.push(event),
                AgentOutput::Delta(text) | AgentOutput::Notice(text) | AgentOutput::Retry(text) => {
                    shown.push(text);
                }
                _ => {}
            }
        }
        (events, shown)
    }

    #[test]
    fn an_unreadable_line_before_the_result_does_not_make_an_answer_of_the_failure() {
        let failure = r#"{"type":"assistant","message":{"model":"<synthetic>","content":[
            {"type":"text","text":"API Error: 400"}]}}"#;
        let result = r#"{"type":"result","subtype":"success","is_error":true,"result":"API Error: 400"}"#;
        let (events, _) = play(&[INIT, failure, "half a li", result], Exit::Code(1));
        assert!(!events.iter().any(|event| matches!(event, Event::AssistantText(_))), "{events:?}");
        let errors = events.iter().filter(|event| matches!(event, Event::Error(_))).count();
        assert_eq!(errors, 2, "the line and the failure: {events:?}");
    }

    fn cache_seen(lines: &[&str]) -> CacheSeen {
        let mut parser = Parser::default();
        let mut seen = CacheSeen::default();
        for output in lines.iter().flat_map(|line| parser.line(line.as_bytes())) {
            if let AgentOutput::Cache(more) = output {
                seen.add(more);
            }
        }
        seen
    }

    const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s1","model":"m","cwd":"/p"}"#;
    const INIT_AGAIN: &str = r#"{"type":"system","subtype":"init","session_id":"s2","model":"m","cwd":"/p"}"#;
    const REFUSED: &str = r#"{"type":"assistant","error":"invalid_request","message":{"model":"<synthetic>","content":[
        {"type":"text","text":"API Error: 400 A maximum of 4 blocks with cache_control may be provided. Found 5."}]}}"#;
    const REFUSED_END: &str = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":400,
        "result":"API Error: 400 A maximum of 4 blocks with cache_control may be provided. Found 5."}"#;
    const SAID: &str =
        r#"{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"Hello."}]}}"#;
    const DONE: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"Hello."}"#;

    #[test]
    fn a_start_that_was_refused_leaves_no_trace_but_its_beginning_if_it_was_repeated() {
        let (events, shown) = play(&[INIT, REFUSED, REFUSED_END, INIT_AGAIN, SAID, DONE], Exit::Code(0));
        assert_eq!(outcome(&events), Outcome::Done);
        let kinds: Vec<&str> = events.iter().map(Event::kind).collect();
        assert_eq!((kinds, shown), (vec!["Init", "Init", "AssistantText", "Complete"], vec![]));
        let Event::Init(last) = &events[1] else { panic!("{events:?}") };
        assert_eq!(last.agent_session.as_deref(), Some("s2"), "the one that has a transcript of the turn");

        let (events, _) = play(&[INIT, REFUSED, REFUSED_END], Exit::Code(1));
        assert_eq!(outcome(&events), Outcome::Failed);
        let kinds: Vec<&str> = events.iter().map(Event::kind).collect();
        assert_eq!(kinds, ["Init", "Error", "Complete"], "not repeated, it is told once");
        assert!(cache_seen(&[INIT, REFUSED, REFUSED_END]).refusal == Some(CacheRefusal::TooMany));
    }

    #[test]
    fn a_refusal_after_work_was_done_is_a_failure() {
        let (events, _) = play(&[INIT, SAID, REFUSED, REFUSED_END], Exit::Code(1));
        let kinds: Vec<&str> = events.iter().map(Event::kind).collect();
        assert_eq!(kinds, ["Init", "AssistantText", "Error", "Complete"]);
        assert!(cache_seen(&[INIT, SAID, REFUSED]).refusal.is_some(), "and remembered");
        let lifetime = REFUSED.replace(
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
            "messages.0.content.4.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' one",
        );
        assert_eq!(cache_seen(&[INIT, &lifetime]).refusal, Some(CacheRefusal::Other));
        // Another error is none of this.
        let other = REFUSED.replace("cache_control", "tool_use");
        assert_eq!(cache_seen(&[INIT, &other]).refusal, None);
        assert_eq!(
            cache_seen(&[INIT, &SAID.replace("Hello.", "API Error: 400 cache_control")]).refusal,
            None
        );
    }

    #[test]
    fn the_lifetime_of_what_was_written_is_seen() {
        use azureal_core::agent::CacheLifetime::{FiveMinutes, OneHour};
        let usage = |usage: &str| {
            format!(
                r#"{{"type":"stream_event","event":{{"type":"message_start","message":{{"usage":{usage}}}}}}}"#
            )
        };
        let hour = r#"{"cache_creation_input_tokens":9,"cache_creation":{"ephemeral_1h_input_tokens":9}}"#;
        let both = r#"{"cache_creation_input_tokens":9,"cache_creation":{"ephemeral_1h_input_tokens":4,"ephemeral_5m_input_tokens":5}}"#;
        for (usages, expected) in [
            (vec![r#"{"input_tokens":3,"cache_read_input_tokens":9}"#], None),
            (vec![hour], Some(OneHour)),
            (vec![r#"{"cache_creation_input_tokens":9}"#], Some(FiveMinutes)),
            (vec![both], Some(FiveMinutes)),
            (vec![both, hour], Some(FiveMinutes)),
            (vec![hour, r#"{"cache_read_input_tokens":9}"#], Some(OneHour)),
        ] {
            let lines: Vec<String> = usages.iter().map(|line| usage(line)).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            assert_eq!(cache_seen(&lines).lifetime, expected, "{usages:?}");
        }
    }

    fn outcome(events: &[Event]) -> Outcome {
        match events.last() {
            Some(Event::Complete(complete)) => complete.outcome.unwrap(),
            other => panic!("no end: {other:?}"),
        }
    }

    #[test]
    fn a_refusal_is_an_error_of_its_own_kind() {
        let (events, _) = play(
            &[
                r#"{"type":"system","subtype":"model_refusal_no_fallback","original_model":"m"}"#,
                r#"{"type":"assistant","message":{"model":"<synthetic>","content":[{"type":"text","text":"I cannot help."}]}}"#,
                r#"{"type":"result","subtype":"success","is_error":true,"result":"I cannot help."}"#,
            ],
            Exit::Code(1),
        );
        assert_eq!(events.first(), Some(&Event::error("refusal", "I cannot help.")));
        assert_eq!((events.len(), outcome(&events)), (2, Outcome::Failed));
    }

    #[test]
    fn what_the_whole_process_used_counts_where_the_turn_counts_nothing() {
        let (events, _) = play(
            &[r#"{"type":"result","subtype":"error_max_budget_usd","is_error":true,"total_cost_usd":0.5,
                  "usage":{"input_tokens":0,"output_tokens":0},"errors":["Reached maximum budget ($0.1)"],
                  "modelUsage":{"a":{"inputTokens":7,"outputTokens":2,"cacheReadInputTokens":3},"b":{"outputTokens":1}}}"#],
            Exit::Code(1),
        );
        let [Event::Error(error), Event::Complete(complete)] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert_eq!(error.kind, "error_max_budget_usd");
        let usage = Usage { input_tokens: 10, output_tokens: 3, cache_read_tokens: 3, ..Usage::default() };
        assert_eq!((complete.usage, complete.cost_usd), (Some(usage), 0.5));
    }

    /// The stream of one request: what it read from the cache, wrote there, and sent besides.
    fn request(read: u64, written: u64, plain: u64, output: u64) -> [String; 2] {
        let start = format!(
            r#"{{"type":"message_start","message":{{"usage":{{"input_tokens":{plain},"cache_creation_input_tokens":{written},"cache_read_input_tokens":{read},"output_tokens":1}}}}}}"#
        );
        // Without the input, as some providers send it.
        let delta =
            format!(r#"{{"type":"message_delta","delta":{{}},"usage":{{"output_tokens":{output}}}}}"#);
        [start, delta].map(|event| format!(r#"{{"type":"stream_event","event":{event}}}"#))
    }

    fn usage_of(lines: &[String]) -> Usage {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let (events, _) = play(&lines, Exit::Code(0));
        match events.last() {
            Some(Event::Complete(complete)) => complete.usage.unwrap(),
            other => panic!("no end: {other:?}"),
        }
    }

    #[test]
    fn the_requests_of_a_turn_are_summed_with_what_each_read_from_the_cache() {
        let mut lines =
            [request(0, 9_000, 100, 50), request(9_000, 600, 10, 70), request(9_600, 200, 5, 30)].concat();
        let expected = Usage {
            input_tokens: 9_100 + 9_610 + 9_805,
            output_tokens: 150,
            cache_read_tokens: 18_600,
            cache_write_tokens: 9_800,
            // The size of the last request alone.
            context_tokens: Some(9_805 + 30),
        };
        assert_eq!(usage_of(&lines), expected, "without a result");
        lines.push(
            r#"{"type":"result","subtype":"success","result":"r",
                "usage":{"input_tokens":115,"cache_creation_input_tokens":9800,"cache_read_input_tokens":18600,"output_tokens":150}}"#
                .to_owned(),
        );
        assert_eq!(usage_of(&lines), expected, "as the result says");
        // A subagent is part of what the process used.
        lines.push(
            r#"{"type":"result","subtype":"success","result":"r","modelUsage":{
                "a":{"inputTokens":115,"cacheCreationInputTokens":9800,"cacheReadInputTokens":18600,"outputTokens":150},
                "b":{"inputTokens":40,"cacheCreationInputTokens":300,"cacheReadInputTokens":700,"outputTokens":9}}}"#
                .to_owned(),
        );
        let expected = Usage {
            input_tokens: expected.input_tokens + 1_040,
            output_tokens: 159,
            cache_read_tokens: 19_300,
            cache_write_tokens: 10_100,
            ..expected
        };
        assert_eq!(usage_of(&lines), expected, "with a subagent");
    }

    #[test]
    fn the_largest_cost_counts_and_the_last_result_decides() {
        let result = |error: bool, cost: f64, tokens: u64| {
            format!(
                r#"{{"type":"result","is_error":{error},"result":"r","total_cost_usd":{cost},"modelUsage":{{"m":{{"inputTokens":{tokens}}}}}}}"#
            )
        };
        let (late, early) = (result(false, 0.5, 50), result(false, 0.2, 20));
        let (events, _) = play(&[&late, &early], Exit::Code(0));
        let Some(Event::Complete(complete)) = events.last() else { panic!("{events:?}") };
        assert_eq!((complete.cost_usd, complete.usage.unwrap().input_tokens), (0.5, 50));
        let (bad, good) = (result(true, 0.1, 1), result(false, 0.2, 2));
        assert_eq!(outcome(&play(&[&bad, &good], Exit::Code(0)).0), Outcome::Done);
        assert_eq!(outcome(&play(&[&good, &bad], Exit::Code(0)).0), Outcome::Failed);
    }

    #[test]
    fn a_refused_call_is_told_once_however_many_results_list_it() {
        let result = |ids: &[&str]| {
            let denials: Vec<String> = ids
                .iter()
                .map(|id| format!(r#"{{"tool_name":"Bash","tool_use_id":"{id}","tool_input":{{}}}}"#))
                .collect();
            format!(r#"{{"type":"result","result":"r","permission_denials":[{}]}}"#, denials.join(","))
        };
        let mut parser = Parser::default();
        let mut refused = Vec::new();
        for line in [result(&["a"]), result(&["a", "b"]), result(&["a", "b"])] {
            for output in parser.line(line.as_bytes()) {
                if let AgentOutput::Refused(tools) = output {
                    refused.push(tools);
                }
            }
        }
        assert_eq!(refused, [["Bash"], ["Bash"]]);
    }

    #[test]
    fn what_the_program_says_itself_waits_for_the_result() {
        let said = r#"{"type":"assistant","message":{"model":"<synthetic>","content":[{"type":"text","text":"Well."}]}}"#;
        let other =
            r#"{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"Then."}]}}"#;
        let (events, _) = play(&[said, other], Exit::Code(0));
        assert_eq!(events[..2], [Event::assistant("Well."), Event::assistant("Then.")]);
        let (events, _) = play(&[said], Exit::Code(0));
        assert_eq!(events[..1], [Event::assistant("Well.")]);
    }

    #[test]
    fn open_thoughts_and_words_are_kept_when_the_program_dies() {
        let delta = |delta: &str| {
            format!(r#"{{"type":"stream_event","event":{{"type":"content_block_delta","delta":{delta}}}}}"#)
        };
        let start = r#"{"type":"stream_event","event":{"type":"message_start","message":{}}}"#.to_owned();
        let thought = delta(r#"{"type":"thinking_delta","thinking":"Hm"}"#);
        let word = delta(r#"{"type":"text_delta","text":"So"}"#);
        let (events, _) = play(&[&start, &thought, &word], Exit::Signal(9));
        let thought_event = Event::Reasoning(Reasoning { text: "Hm".into(), subagent: None });
        assert_eq!(events[..2], [thought_event, Event::assistant("So")]);
        // Another message takes the place of one that was never finished.
        let (events, _) = play(&[&start, &word, &start], Exit::Signal(9));
        assert_eq!(events.len(), 2, "{events:?}");
    }

    #[test]
    fn open_words_are_kept_when_the_connection_is_lost() {
        let word = r#"{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"So"}}}"#;
        let lost = r#"{"type":"assistant","error":"server_error","message":{"model":"<synthetic>","content":[{"type":"text","text":"lost"}]}}"#;
        let failed = r#"{"type":"result","is_error":true,"result":"lost"}"#;
        let answer =
            r#"{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"So be it."}]}}"#;
        for (lines, expected) in [
            (&[word, lost, failed][..], &[Event::assistant("So"), Event::error("server_error", "lost")][..]),
            (&[word, failed], &[Event::assistant("So"), Event::error("api_error", "lost")]),
            (&[word, answer], &[Event::assistant("So be it.")]),
        ] {
            let (events, _) = play(lines, Exit::Code(1));
            assert_eq!(&events[..expected.len()], expected, "{lines:?}");
        }
    }

    #[test]
    fn what_is_new_is_shown_once_and_what_is_broken_is_told() {
        let (events, shown) = play(
            &[
                r#"{"type":"novelty","n":1}"#,
                r#"{"type":"novelty","n":2}"#,
                r#"{"type":"system","subtype":"novelty"}"#,
                r#"{"type":"assistant","message":{"content":[{"type":"hologram"},{"type":"text","text":"a"},7]}}"#,
                r#"{"type":"assistant","message":"gone"}"#,
                "",
                "not json",
            ],
            Exit::Code(0),
        );
        assert_eq!(shown.len(), 3, "{shown:?}");
        let kinds: Vec<&str> = events.iter().map(Event::kind).collect();
        assert_eq!(kinds, ["AssistantText", "Error", "Error", "Error", "Error", "Complete"]);
    }

    #[test]
    fn the_model_is_told_when_it_changes() {
        let init =
            |model: &str| format!(r#"{{"type":"system","subtype":"init","model":"{model}","cwd":"/p"}}"#);
        let (events, _) = play(&[&init("a"), &init("a"), &init("b")], Exit::Code(0));
        let kinds: Vec<&str> = events.iter().map(Event::kind).collect();
        assert_eq!(kinds, ["Init", "ModelSwitch", "Error", "Complete"]);
    }
}
