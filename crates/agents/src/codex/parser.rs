//! Parses the output of Codex.
//!
//! A tool item is a call when it starts and a result when it is completed; one that never started is both. These
//! lines give no output: `turn.started`, a second `thread.started`, items that come again after a broken connection,
//! items that were completed before, the start of a search without its query, and an unchanged to-do list.
//!
//! The stream is not a full record: failed patches, commands that the sandbox denied and compactions are missing.
//! Neither does it name the model or the directory.

use std::collections::{HashMap, HashSet};

use azureal_core::agent::{AgentOutput, AgentParser, Ending, Exit};
use azureal_core::event::{AssistantText, ErrorEvent, Init, Reasoning, Usage};
use azureal_core::{Event, detail};

use super::item::{self, Answer, Call};
use super::older;
use super::repeats::{Kind, Repeats};
use super::wire::{Item, Line, Todo};
use super::{NAME, wire};
use crate::calls::{Calls, Reported};
use crate::closing::{Closing, StreamEnd};
use crate::unreadable::{UnknownKinds, ignored, shorten, unreadable_line};
use crate::wire::{Fields, read};

/// The number of finished items that are remembered. An agent that prints without end must not fill the memory.
const MOST_FINISHED: usize = 100_000;
/// The number of diffs that are remembered until the results of their calls come.
const MOST_DIFFS: usize = 10_000;

/// The reader of one run.
#[derive(Default)]
pub(super) struct Parser {
    started: bool,
    calls: Calls,
    /// The diffs of calls without a result, by their ids. The output of current versions has none.
    diffs: HashMap<String, Option<String>>,
    /// The items that are over.
    finished: HashSet<String>,
    /// The to-do lists: the number of versions of each, and the last one.
    todos: HashMap<String, (usize, Vec<Todo>)>,
    repeats: Repeats,
    closing: Closing,
    unknown: UnknownKinds,
    /// The warning of the previous line: the end of a failed turn repeats it.
    warning: Option<String>,
    /// Whether this is the output of a version that prints no end of its turns.
    pub(super) older: bool,
}

impl AgentParser for Parser {
    fn line(&mut self, line: &[u8]) -> Vec<AgentOutput> {
        if line.trim_ascii().is_empty() {
            return Vec::new();
        }
        // A broken character costs itself, not its line.
        let text = String::from_utf8_lossy(line);
        let Some(fields) = Fields::of(&text) else {
            return vec![unreadable_line(NAME, line, "is not a JSON object")];
        };
        let Some(parsed) = fields.read::<Line<'_>>() else {
            return vec![unreadable_line(NAME, line, "makes no sense")];
        };
        let mut out = Vec::new();
        if parsed.kind != "turn.failed" {
            out.extend(self.warning.take().map(AgentOutput::Notice));
        }
        let outputs = match parsed.kind.as_str() {
            "thread.started" => Some(self.start(Init { agent_session: parsed.thread_id, ..Init::default() })),
            "turn.started" => {
                self.closing.begun = true;
                Some(Vec::new())
            }
            "turn.completed" => Some(self.completed(parsed.usage.0)),
            "turn.failed" => Some(self.turn_failed(parsed.error.0.map(|error| error.message))),
            "error" => parsed.message.map(|message| self.warned(message)),
            "item.started" | "item.updated" | "item.completed" => {
                let item = parsed.item.and_then(read::<Item<'_>>);
                item.and_then(|item| self.item(&parsed.kind, item))
            }
            "" => older::read(self, &parsed),
            other => Some(self.unknown_kind(other)),
        };
        match outputs {
            Some(outputs) => out.extend(outputs),
            None => out.push(unreadable_line(NAME, line, "makes no sense")),
        }
        out
    }

    fn end(&mut self, ending: &Ending) -> Vec<AgentOutput> {
        if self.older && self.closing.stream_end == StreamEnd::Missing && ending.exit == Some(Exit::Code(0)) {
            self.closing.stream_end = StreamEnd::Done;
        }
        // It prints on every run that it reads its input, which explains nothing.
        let noise = |line: &&str| !(line.starts_with("Reading ") && line.ends_with("from stdin..."));
        let stderr: Vec<&str> = ending.stderr.lines().filter(noise).collect();
        let mut out: Vec<AgentOutput> = self.warning.take().map(AgentOutput::Notice).into_iter().collect();
        let refused: Vec<String> = stderr.iter().filter_map(|line| refused_tool(line)).collect();
        if !refused.is_empty() {
            out.push(AgentOutput::Refused(refused));
        }
        out.extend(self.closing.close(NAME, &Ending { stderr: stderr.join("\n"), ..ending.clone() }));
        out
    }
}

impl Parser {
    pub(super) fn start(&mut self, init: Init) -> Vec<AgentOutput> {
        if std::mem::replace(&mut self.started, true) {
            return ignored(NAME, "thread.started");
        }
        self.calls.cwd.clone_from(&init.cwd);
        vec![event(Event::Init(Init { agent: Some(NAME.to_owned()), ..init }))]
    }

    /// Sets the directory of a run whose beginning is returned later.
    pub(super) fn runs_in(&mut self, cwd: &str) {
        cwd.clone_into(&mut self.calls.cwd);
    }

    pub(super) fn unknown_kind(&mut self, kind: &str) -> Vec<AgentOutput> {
        self.unknown.notice(NAME, kind)
    }

    pub(super) fn counted(&mut self, usage: Usage) -> AgentOutput {
        self.closing.usage = Some(usage);
        AgentOutput::Usage(usage)
    }

    fn completed(&mut self, usage: Option<wire::Tokens>) -> Vec<AgentOutput> {
        self.closing.stream_end = StreamEnd::Done;
        // The sum of all requests. Only the rollout has the size of the last one.
        usage.map(|usage| self.counted(usage.into())).into_iter().collect()
    }

    pub(super) fn turn_failed(&mut self, message: Option<String>) -> Vec<AgentOutput> {
        self.closing.stream_end = StreamEnd::Failed;
        self.closing.has_error = true;
        self.warning = None;
        let message = message.filter(|message| !message.is_empty()).map(|message| provider_message(&message));
        let message = message.or_else(|| self.closing.reason.take().map(|reason| reason.message));
        let message = message.unwrap_or_else(|| "codex says that the turn failed".to_owned());
        vec![event(Event::error("turn_failed", message))]
    }

    /// Parses an `error`, which is fatal only if the turn does not complete.
    pub(super) fn warned(&mut self, message: String) -> Vec<AgentOutput> {
        if let Some(retry) = message.strip_prefix("Reconnecting") {
            self.repeats.broke();
            return vec![AgentOutput::Retry(retry_text(retry.trim_start_matches(['.', '…', ' '])))];
        }
        self.closing.reason = Some(ErrorEvent { message: message.clone(), kind: "error".to_owned() });
        self.warning = Some(message);
        Vec::new()
    }

    /// Reads an item; `None` if it has no sense.
    pub(super) fn item(&mut self, when: &str, mut item: Item<'_>) -> Option<Vec<AgentOutput>> {
        let completed = when == "item.completed";
        if !item.id.is_empty() && self.finished.contains(&item.id) {
            return Some(ignored(NAME, "item that was completed before"));
        }
        if completed && !item.id.is_empty() {
            self.finish(&item.id);
        }
        Some(match item.kind.as_str() {
            "" => return None,
            "agent_message" | "reasoning" if !completed => Vec::new(),
            "agent_message" => self.agent_message(item.text?),
            "reasoning" => self.reasoning(item.text?),
            "error" => vec![AgentOutput::Notice(item.message)],
            "todo_list" => self.todo_list(&item.id, item.items),
            // What is searched for may be known only at the end.
            "web_search" if !completed && item.query.is_empty() => Vec::new(),
            _ => match item::calls(&item) {
                // A change of files that names none.
                Some(calls) if calls.is_empty() => return None,
                Some(calls) => self.tool_item(&mut item, &calls, completed),
                None => self.unknown_kind(&format!("item {}", item.kind)),
            },
        })
    }

    fn tool_item(&mut self, item: &mut Item<'_>, calls: &[Call], completed: bool) -> Vec<AgentOutput> {
        let mut out = Vec::new();
        for call in calls {
            if !self.calls.contains(&call.id) {
                out.push(self.called(call));
            }
        }
        if completed {
            out.extend(calls.iter().map(|call| self.answered(&call.id, item::answer(item, call))));
            if item.status == "declined" {
                out.push(AgentOutput::Refused(calls.iter().map(|call| call.tool.clone()).collect()));
            }
        }
        out
    }

    pub(super) fn todo_list(&mut self, id: &str, todos: Vec<Todo>) -> Vec<AgentOutput> {
        let before = self.todos.get(id);
        if before.is_some_and(|(_, last)| *last == todos) {
            return Vec::new();
        }
        let count = before.map_or(0, |(count, _)| *count);
        let (call, answer) = item::todo_list(id, count, &todos);
        self.todos.insert(id.to_owned(), (count + 1, todos));
        vec![self.called(&call), self.answered(&call.id, answer)]
    }

    pub(super) fn agent_message(&mut self, text: String) -> Vec<AgentOutput> {
        if text.is_empty() || self.repeats.is_repeat(Kind::Message, &text) {
            return ignored(NAME, "repeated or empty agent_message");
        }
        vec![event(Event::AssistantText(AssistantText { text, ..AssistantText::default() }))]
    }

    pub(super) fn reasoning(&mut self, text: String) -> Vec<AgentOutput> {
        if text.is_empty() || self.repeats.is_repeat(Kind::Thought, &text) {
            return ignored(NAME, "repeated or empty reasoning");
        }
        vec![event(Event::Reasoning(Reasoning { text, subagent: None }))]
    }

    pub(super) fn called(&mut self, call: &Call) -> AgentOutput {
        self.repeats.tool();
        if let Some((status, lines)) = &call.diff {
            let path = call.input.string_field("file_path").unwrap_or_default();
            let diff = detail::of_patch(&path, &self.calls.cwd, *status, lines);
            if self.diffs.len() < MOST_DIFFS {
                self.diffs.insert(call.id.clone(), diff);
            }
        }
        event(self.calls.call(&call.id, &call.tool, call.input.clone(), None))
    }

    pub(super) fn answered(&mut self, id: &str, answer: Answer) -> AgentOutput {
        self.repeats.tool();
        let reported = self.diffs.remove(id).map_or(Reported::Unknown, Reported::Diff);
        event(self.calls.result(id, answer.content, answer.is_error, reported, None))
    }

    pub(super) fn has_called(&self, id: &str) -> bool {
        self.calls.contains(id)
    }

    /// Remembers that an item is over.
    pub(super) fn finish(&mut self, id: &str) {
        if self.finished.len() < MOST_FINISHED {
            self.finished.insert(id.to_owned());
        }
    }

    /// Records that the turn was interrupted.
    pub(super) fn aborted(&mut self, why: &str) -> Vec<AgentOutput> {
        self.closing.stream_end = StreamEnd::Interrupted;
        vec![AgentOutput::Notice(format!("codex was stopped: {}", shorten(why, 100)))]
    }

    /// Returns whether the turn has no end yet.
    pub(super) fn is_open(&self) -> bool {
        self.closing.stream_end == StreamEnd::Missing
    }

    /// Turns the count of the thread into that of the turn, which follows turns of this count. Returns the count of the
    /// thread.
    pub(super) fn count_from(&mut self, before: Usage) -> Usage {
        let Some(total) = self.closing.usage else { return before };
        // If the count of a thread starts again at 0, it is counted from there.
        let is_more =
            total.input_tokens >= before.input_tokens && total.output_tokens >= before.output_tokens;
        if is_more {
            self.closing.usage = Some(Usage {
                input_tokens: total.input_tokens - before.input_tokens,
                output_tokens: total.output_tokens - before.output_tokens,
                cache_read_tokens: total.cache_read_tokens.saturating_sub(before.cache_read_tokens),
                cache_write_tokens: total.cache_write_tokens.saturating_sub(before.cache_write_tokens),
                context_tokens: total.context_tokens,
            });
        }
        total
    }

    pub(super) fn done(&mut self) {
        self.closing.stream_end = StreamEnd::Done;
    }
}

/// Returns why a request is sent again, and how often: from `2/5 (REASON)` or `waiting for network (REASON)`.
fn retry_text(retry: &str) -> String {
    let (count, reason) = match retry.split_once(" (") {
        Some((count, reason)) => (count, reason.strip_suffix(')').unwrap_or(reason)),
        None => (retry, ""),
    };
    let what = match reason.strip_prefix("unexpected status ") {
        Some(status) => format!("codex's server answered with status {status}"),
        None if reason.is_empty() => "codex's request failed".to_owned(),
        None if reason.starts_with("Connection failed") || reason.contains("lookup address") => {
            format!("codex cannot reach its server ({reason})")
        }
        None if reason.starts_with("stream disconnected") => {
            format!("codex lost the connection to its server ({reason})")
        }
        None => format!("codex's request failed ({reason})"),
    };
    match count.split_once('/') {
        Some((attempt, most)) => format!("{what}: retry {attempt} of {most}"),
        None if count.is_empty() => format!("{what}: retry"),
        None => format!("{what}: {count}"),
    }
}

/// Returns the refused tool of a line of standard error, if it names one. The stream does not have it.
fn refused_tool(line: &str) -> Option<String> {
    let (_, error) = line.split_once("codex_core::tools::router: error=")?;
    let is_about = |words: &str| error.contains(words);
    match () {
        () if is_about("patch rejected") => Some("Edit".to_owned()),
        () if is_about("reject command") || is_about("rejected by user approval settings") => {
            Some("Bash".to_owned())
        }
        () => None,
    }
}

/// Returns the message in a provider's response that Codex passes on unchanged, `{"error":{"message":…}}`.
fn provider_message(message: &str) -> String {
    let words = Fields::of(message).and_then(|fields| fields.read::<wire::Refusal>());
    let words = words.and_then(|refusal| refusal.error.0).map(|error| error.message);
    words.filter(|words| !words.is_empty()).unwrap_or_else(|| message.to_owned())
}

fn event(event: Event) -> AgentOutput {
    AgentOutput::Event(event)
}

#[cfg(test)]
mod tests {
    use azureal_core::event::Outcome;

    use super::*;

    #[test]
    fn a_retry_says_why() {
        for (message, expected) in [
            (
                "... 2/5 (Connection failed: x)",
                "codex cannot reach its server (Connection failed: x): retry 2 of 5",
            ),
            (
                "... 1/5 (stream disconnected: x)",
                "codex lost the connection to its server (stream disconnected: x): retry 1 of 5",
            ),
            ("... 1/5 (unexpected status 503 x)", "codex's server answered with status 503 x: retry 1 of 5"),
            ("... 1/5 (overloaded)", "codex's request failed (overloaded): retry 1 of 5"),
            (" 1/5", "codex's request failed: retry 1 of 5"),
            ("...", "codex's request failed: retry"),
        ] {
            let retry = Parser::default().warned(format!("Reconnecting{message}"));
            assert_eq!(retry, [AgentOutput::Retry(expected.to_owned())]);
        }
    }

    fn play(lines: &[&str], exit: Exit) -> Vec<AgentOutput> {
        let mut parser = Parser::default();
        let mut outputs: Vec<AgentOutput> =
            lines.iter().flat_map(|line| parser.line(line.as_bytes())).collect();
        outputs.extend(parser.end(&Ending { exit: Some(exit), ..Ending::default() }));
        outputs
    }

    fn kinds(outputs: &[AgentOutput]) -> String {
        let kind = |output: &AgentOutput| match output {
            AgentOutput::Event(event) => event.kind().to_owned(),
            AgentOutput::Delta(_) => "delta".to_owned(),
            AgentOutput::Usage(_) => "usage".to_owned(),
            AgentOutput::Notice(_) => "notice".to_owned(),
            AgentOutput::Retry(_) => "retry".to_owned(),
            AgentOutput::Cache(_) => "cache".to_owned(),
            AgentOutput::Refused(tools) => format!("refused {}", tools.join(",")),
            AgentOutput::Question(_) | AgentOutput::Answered(_) => "question".to_owned(),
        };
        outputs.iter().map(kind).collect::<Vec<_>>().join(" ")
    }

    fn outcome(outputs: &[AgentOutput]) -> Option<Outcome> {
        match outputs.last() {
            Some(AgentOutput::Event(Event::Complete(complete))) => complete.outcome,
            _ => None,
        }
    }

    #[test]
    fn cached_tokens_are_a_part_of_the_input() {
        let counts = r#"{"input_tokens":74000,"cached_input_tokens":68820,"output_tokens":1200}"#;
        let completed = format!(r#"{{"type":"turn.completed","usage":{counts}}}"#);
        // How versions before 0.40 or so told it.
        let counted = format!(
            r#"{{"id":"0","msg":{{"type":"token_count","info":{{"total_token_usage":{counts},"last_token_usage":{{"input_tokens":30000,"cached_input_tokens":29000,"output_tokens":200}}}}}}}}"#
        );
        for (line, context_tokens) in [(completed, None), (counted, Some(30_200))] {
            let outputs = play(&[&line], Exit::Code(0));
            let Some(AgentOutput::Event(Event::Complete(complete))) = outputs.last() else {
                panic!("{outputs:?}")
            };
            let expected = Usage {
                input_tokens: 74_000,
                output_tokens: 1_200,
                cache_read_tokens: 68_820,
                cache_write_tokens: 0,
                context_tokens,
            };
            assert_eq!(complete.usage, Some(expected));
        }
    }

    #[test]
    fn a_warning_is_an_error_only_if_nothing_better_follows() {
        let warning = r#"{"type":"error","message":"odd"}"#;
        let done = r#"{"type":"turn.completed","usage":{}}"#;
        let failed = r#"{"type":"turn.failed","error":{"message":"odd"}}"#;
        for (lines, code, expected) in [
            (&[warning, done][..], 0, "notice usage Complete"),
            (&[warning, failed], 1, "Error Complete"),
            (&[warning], 1, "notice Error Complete"),
            (&[failed], 0, "Error Complete"),
        ] {
            assert_eq!(kinds(&play(lines, Exit::Code(code))), expected, "{lines:?}");
        }
    }

    #[test]
    fn what_the_provider_answered_is_told_in_its_words() {
        for (message, expected) in [
            (r#"{\"error\":{\"message\":\"no such model\",\"code\":null}}"#, "no such model"),
            (r#"{\"error\":\"no\"}"#, r#"{"error":"no"}"#),
            ("{odd}", "{odd}"),
        ] {
            let failed = format!(r#"{{"type":"turn.failed","error":{{"message":"{message}"}}}}"#);
            let outputs = play(&[&failed], Exit::Code(1));
            assert_eq!(outputs[0], event(Event::error("turn_failed", expected)));
        }
    }

    #[test]
    fn an_item_is_told_once_however_it_comes() {
        let started =
            r#"{"type":"item.started","item":{"id":"a","type":"command_execution","command":"ls"}}"#;
        let completed = r#"{"type":"item.completed","item":{"id":"a","type":"command_execution","command":"ls","exit_code":0}}"#;
        for (lines, expected) in [
            (&[started, completed][..], "ToolCall ToolResult"),
            (&[completed], "ToolCall ToolResult"),
            (&[started, started, completed, completed, started], "ToolCall ToolResult"),
            (&[started], "ToolCall"),
        ] {
            let outputs = play(lines, Exit::Code(0));
            assert_eq!(kinds(&outputs), format!("{expected} Error Complete"), "{lines:?}");
        }
    }

    #[test]
    fn a_declined_command_is_told_as_refused() {
        let declined = r#"{"type":"item.completed","item":{"id":"a","type":"command_execution","command":"rm x","exit_code":-1,"status":"declined"}}"#;
        let done = r#"{"type":"turn.completed"}"#;
        let outputs = play(&[declined, done], Exit::Code(0));
        assert_eq!(kinds(&outputs), "ToolCall ToolResult refused Bash Complete");
    }

    #[test]
    fn what_only_standard_error_says_of_refusals_is_told() {
        for (error, tool) in [
            (
                "patch rejected: writing is blocked by read-only sandbox; rejected by user approval settings",
                Some("Edit"),
            ),
            (
                "approval policy is Never; reject command — you cannot ask for escalated permissions",
                Some("Bash"),
            ),
            ("exec_command failed: rejected by user approval settings", Some("Bash")),
            ("apply_patch verification failed: Failed to find expected lines", None),
        ] {
            let line = format!("2026-11-15T07:13:10Z ERROR codex_core::tools::router: error={error}");
            assert_eq!(refused_tool(&line).as_deref(), tool, "{error}");
        }
        assert_eq!(refused_tool("patch rejected"), None, "only what the program says itself counts");
    }

    #[test]
    fn a_turn_that_ends_without_a_word_has_died() {
        let begun = r#"{"type":"turn.started"}"#;
        assert_eq!(outcome(&play(&[begun], Exit::Code(1))), Some(Outcome::Interrupted));
        assert_eq!(outcome(&play(&[], Exit::Code(1))), Some(Outcome::Failed));
        assert_eq!(outcome(&play(&[], Exit::Code(101))), Some(Outcome::Failed));
    }

    #[test]
    fn a_search_that_says_late_what_for_is_told_late() {
        let search = |when: &str, query: &str| {
            format!(r#"{{"type":"item.{when}","item":{{"id":"w","type":"web_search","query":"{query}"}}}}"#)
        };
        let outputs = play(&[&search("started", ""), &search("completed", "rust")], Exit::Code(0));
        let AgentOutput::Event(Event::ToolCall(call)) = &outputs[0] else { panic!("{outputs:?}") };
        assert_eq!((call.tool_name.as_str(), call.input.as_str()), ("WebSearch", r#"{"query":"rust"}"#));
    }

    #[test]
    fn what_is_new_is_shown_once_and_what_is_broken_is_told() {
        let outputs = play(
            &[
                r#"{"type":"item.completed","item":{"id":"1","type":"hologram"}}"#,
                r#"{"type":"item.completed","item":{"id":"2","type":"hologram"}}"#,
                r#"{"type":"thread.renamed"}"#,
                r#"{"type":"item.completed","item":{"id":"3","type":"agent_message"}}"#,
                r#"{"type":"item.completed"}"#,
                r#"{"type":"item.completed","item":{"id":"4","type":"file_change","changes":[7]}}"#,
                r#"{"unrelated":1}"#,
                " ",
                "plain text",
            ],
            Exit::Code(0),
        );
        assert_eq!(kinds(&outputs), "notice notice Error Error Error Error Error Error Complete");
    }
}
