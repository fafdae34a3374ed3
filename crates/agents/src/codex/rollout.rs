//! Parses Codex's own transcript of a thread: `sessions/<year>/<month>/<day>/rollout-<time>-<thread>.jsonl`.
//!
//! Its items are the printed ones under other names, so the same parser reads them. A tool call without an item is
//! recorded as the model's request: the tool was still running, failed before it ran, or the version records no items
//! (before 0.80 or so). Such a call is returned when its output comes, or at the end.
//!
//! A turn ends with [`Event::Complete`] where the next one begins, or at the end of the record.
//!
//! These lines give no output: texts of the program in the user's name, the input of the model, settings, and the
//! texts of the model's answers, which come again as items. A record without any event, which another program wrote, has
//! only the input and output of the model: then these are the conversation.

use std::collections::BTreeMap;
use std::path::PathBuf;

use azureal_core::agent::{AgentOutput, AgentParser, Ending};
use azureal_core::event::{Init, Usage};
use azureal_core::{Event, Json};
use jiff::Timestamp;
use jiff::tz::Offset;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::item::{self, Answer, Call};
use super::parser::Parser;
use super::wire::{AgentState, Change, ChangeText, Failure, Item, Todo};
use super::{NAME, older, shell};
use crate::span::Span;
use crate::unreadable::{ignored, unreadable_line};
use crate::wire::{Fields, Loose, kept, lenient, lenient_list, output_text, read};

/// Returns whether a file is the record of a thread: its name ends in the thread's.
pub(super) fn is_of(file_name: &str, thread: &str) -> bool {
    let name = file_name.strip_prefix("rollout-").and_then(|name| name.strip_suffix(".jsonl"));
    name.and_then(|name| name.strip_suffix(thread)).is_some_and(|time| time.ends_with('-'))
}

/// Returns the folders of the days on which a thread can have begun, `2026/11/15`. They are local days, and the name of a
/// thread (UUID version 7) has the time in UTC. Versions that named threads at random have no such folder.
pub(super) fn folders_of(thread: &str) -> Vec<PathBuf> {
    let digits: String = thread.chars().filter(|c| *c != '-').collect();
    let began = || {
        let (milliseconds, rest) = digits.split_at_checked(12)?;
        let milliseconds = i64::from_str_radix(milliseconds, 16).ok().filter(|_| rest.starts_with('7'))?;
        Some(Offset::UTC.to_datetime(Timestamp::from_millisecond(milliseconds).ok()?).date())
    };
    let Some(day) = began() else { return Vec::new() };
    let days = [Some(day), day.yesterday().ok(), day.tomorrow().ok()];
    days.iter().flatten().map(|day| PathBuf::from(day.strftime("%Y/%m/%d").to_string())).collect()
}

/// Reads the last count of tokens from the last part of a record, which may begin in the middle of a line.
pub(super) fn last_usage(end: &[u8]) -> Option<Usage> {
    last_line(end, b"\"token_count\"", |line| older::read_usage(line.payload?))
}

/// Reads the model from a part of a record. Codex does not print it.
pub(super) fn model(part: &[u8]) -> Option<String> {
    last_line(part, b"\"turn_context\"", |line| {
        let payload: Payload = Fields::of(line.payload?.get())?.read()?;
        Some(payload.model).filter(|model| !model.is_empty())
    })
}

/// Reads the last line of a part that has this word and can be read. The part may begin and end in the middle of a line.
fn last_line<T>(part: &[u8], word: &[u8], read: impl Fn(Line<'_>) -> Option<T>) -> Option<T> {
    let has_word = |line: &&[u8]| line.windows(word.len()).any(|found| found == word);
    let lines = part.rsplit(|byte| *byte == b'\n').filter(has_word);
    lines.filter_map(|line| read(Fields::of(str::from_utf8(line).ok()?)?.read()?)).next()
}

/// The reader of one record.
#[derive(Default)]
pub(super) struct Rollout {
    /// The settings of the thread; returned as the beginning of each turn.
    thread: Init,
    turn: Turn,
    /// The prompt that the model was given, until an event shows that it is the user's, or an answer does.
    given: Option<Given>,
    /// Whether items are recorded, so that lines with the same content can be ignored.
    has_items: bool,
    /// Whether there are events at all. Without them, the input and output of the model are the conversation.
    has_events: bool,
    /// The tokens of all turns that ended.
    counted: Usage,
    summary: Option<String>,
    was_open: bool,
}

/// The turn that is being read.
#[derive(Default)]
struct Turn {
    parser: Parser,
    /// The id of the turn, and its time.
    id: String,
    started: Option<Timestamp>,
    has_content: bool,
    has_begun: bool,
    /// Whether its beginning is recorded, and so will its end be.
    has_end: bool,
    /// The prompt that the model was given, until the event of it comes. Another program may write it later.
    given: Option<String>,
    /// The user's last prompt: older versions record it twice.
    prompt: Option<String>,
    /// Calls that the model asked for and that have no result yet, in their order.
    wanted: Vec<Wanted>,
    /// Whether the last event is a text of the model.
    spoke_last: bool,
    span: Span,
}

/// A message in the user's name that the model was given.
struct Given {
    text: String,
    timestamp: String,
}

/// A call that the model asked for.
struct Wanted {
    call: Call,
    /// The result that is printed if the call succeeds, where the rollout has only a confirmation for the model: a plan
    /// is answered with `Plan updated`.
    shown: Option<Answer>,
    /// Whether it is a part of a patch, whose result says whether it succeeded.
    is_patch: bool,
}

/// The beginnings of texts that the program gives the model in the user's name.
const INJECTED: [&str; 8] = [
    "<environment_context>",
    "<user_instructions>",
    "<user_shell_command>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<skill>",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
];

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "lenient")]
    timestamp: String,
    #[serde(default, borrow)]
    payload: Option<&'a RawValue>,
}

/// The content of a line; its fields depend on its type.
#[derive(Deserialize)]
struct Payload<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    // session_meta, turn_context
    #[serde(default, deserialize_with = "lenient")]
    id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    cwd: String,
    #[serde(default, deserialize_with = "lenient")]
    model: String,
    // event_msg
    #[serde(default, borrow)]
    item: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    message: String,
    #[serde(default)]
    error: Loose<Failure>,
    #[serde(default, deserialize_with = "lenient")]
    turn_id: String,
    // response_item
    #[serde(default, deserialize_with = "lenient")]
    role: String,
    #[serde(default, deserialize_with = "lenient_list")]
    content: Vec<Text>,
    #[serde(default, deserialize_with = "lenient_list")]
    summary: Vec<Text>,
    #[serde(default, deserialize_with = "lenient")]
    call_id: String,
    #[serde(default, deserialize_with = "lenient")]
    name: String,
    #[serde(default, deserialize_with = "lenient")]
    arguments: String,
    #[serde(default, deserialize_with = "lenient")]
    input: String,
    #[serde(default, borrow)]
    output: Option<&'a RawValue>,
}

/// The fields of an item that have another name or form than in a printed one.
#[derive(Deserialize)]
struct Recorded<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "lenient_list")]
    content: Vec<Text>,
    #[serde(default, deserialize_with = "lenient")]
    summary_text: Vec<String>,
    #[serde(default, deserialize_with = "lenient")]
    command: Vec<String>,
    #[serde(default, deserialize_with = "lenient")]
    changes: BTreeMap<String, Loose<ChangeText>>,
    /// A word, or a word and a text.
    #[serde(default, borrow, deserialize_with = "lenient")]
    agents_states: BTreeMap<String, &'a RawValue>,
}

#[derive(Deserialize)]
struct Text {
    #[serde(default, deserialize_with = "lenient")]
    text: String,
}

impl AgentParser for Rollout {
    fn line(&mut self, line: &[u8]) -> Vec<AgentOutput> {
        if line.trim_ascii().is_empty() {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(line);
        let outputs = Fields::of(&text).and_then(|fields| {
            let line = fields.read::<Line<'_>>()?;
            let raw = line.payload?;
            let payload = read::<Payload<'_>>(raw)?;
            match line.kind.as_str() {
                "session_meta" => {
                    // A fork begins with a copy of the lines of its origin, and with its own line before them.
                    if self.thread.agent_session.is_none() {
                        self.thread.agent_session = payload.id;
                        self.turn.parser.runs_in(&payload.cwd);
                        self.thread.cwd = payload.cwd;
                    }
                    Some(Vec::new())
                }
                "turn_context" => {
                    self.thread.model = payload.model;
                    Some(Vec::new())
                }
                "event_msg" => self.event(raw, payload, &line.timestamp),
                "response_item" => Some(self.response(&payload, &line.timestamp)),
                "compacted" => {
                    self.turn.span.reach(&line.timestamp);
                    // The sentence before it speaks to the model.
                    let summary =
                        match payload.message.strip_prefix("Another language model started to solve") {
                            Some(rest) => rest.split_once('\n').map_or("", |(_, summary)| summary),
                            None => &payload.message,
                        };
                    self.summary = (!summary.trim().is_empty()).then(|| summary.to_owned());
                    Some(vec![AgentOutput::Event(Event::Compacted)])
                }
                other => Some(ignored(NAME, other)),
            }
        });
        match outputs {
            Some(outputs) => self.begin(outputs),
            None => vec![unreadable_line(NAME, line, "makes no sense")],
        }
    }

    fn end(&mut self, ending: &Ending) -> Vec<AgentOutput> {
        let mut out = self.take_given();
        out.extend(self.close(ending));
        out
    }
}

impl Rollout {
    /// Creates the reader of a thread whose record may begin with that of another thread.
    pub(super) fn of_thread(id: String, cwd: String) -> Self {
        let mut rollout = Self::default();
        rollout.turn.parser.runs_in(&cwd);
        rollout.thread = Init { cwd, agent_session: Some(id), ..Init::default() };
        rollout
    }

    /// Returns the id of the turn that is being read, and its time.
    pub(super) fn turn(&self) -> (&str, Option<Timestamp>) {
        (&self.turn.id, self.turn.started)
    }

    /// Returns whether the turn that is being read has any content.
    pub(super) fn has_content(&self) -> bool {
        self.turn.has_content || (self.given.is_some() && !self.has_events)
    }

    /// Returns whether the last turn that ended had no end in the record.
    pub(super) fn was_open(&self) -> bool {
        self.was_open
    }

    /// Takes the summary of a compaction that the last line had.
    pub(super) fn take_summary(&mut self) -> Option<String> {
        self.summary.take()
    }

    /// Tells where the turn began, in front of its first event that is not the prompt.
    fn begin(&mut self, outputs: Vec<AgentOutput>) -> Vec<AgentOutput> {
        let mut out = Vec::new();
        for output in outputs {
            let is_event = matches!(&output, AgentOutput::Event(event)
                if !matches!(event, Event::UserMessage(_) | Event::Complete(_)));
            if is_event {
                self.turn.has_content = true;
                self.turn.prompt = None;
            }
            if is_event && !self.turn.has_begun {
                self.turn.has_begun = true;
                out.extend(self.turn.parser.start(self.thread.clone()));
            }
            out.push(output);
        }
        out
    }

    fn event(&mut self, raw: &RawValue, payload: Payload<'_>, timestamp: &str) -> Option<Vec<AgentOutput>> {
        self.has_events = true;
        // Settings may be changed long after a turn.
        if matches!(
            payload.kind.as_str(),
            "agent_message"
                | "agent_reasoning"
                | "exec_command_end"
                | "patch_apply_end"
                | "error"
                | "mcp_tool_call_end"
                | "web_search_end"
                | "token_count"
                | "task_complete"
                | "turn_aborted"
        ) {
            self.turn.span.reach(timestamp);
        }
        match payload.kind.as_str() {
            "item_completed" => self.item(payload.item?, timestamp),
            "user_message" => Some(self.prompt(payload.message, timestamp)),
            "agent_message" | "agent_reasoning" | "exec_command_end" | "patch_apply_end"
            | "mcp_tool_call_end" | "web_search_end"
                if self.has_items =>
            {
                Some(Vec::new())
            }
            "task_started" => {
                let is_next = self.turn.has_content;
                let out = if is_next { self.close(&Ending::default()) } else { Vec::new() };
                self.turn.has_end = true;
                self.turn.id = payload.turn_id;
                self.turn.started = timestamp.parse().ok();
                self.turn.span.reach(timestamp);
                Some(out)
            }
            "task_complete" if payload.error.0.is_some() => {
                Some(self.turn.parser.turn_failed(payload.error.0.map(|error| error.message)))
            }
            "context_compacted" | "thread_settings_applied" | "thread_rolled_back" => {
                Some(ignored(NAME, &payload.kind))
            }
            kind => {
                self.turn.spoke_last |= kind == "agent_message";
                older::read_event(&mut self.turn.parser, raw)
            }
        }
    }

    /// Ends the turn, and prepares the next one.
    fn close(&mut self, ending: &Ending) -> Vec<AgentOutput> {
        let wanted = std::mem::take(&mut self.turn.wanted);
        let outputs = wanted.iter().map(|wanted| self.turn.parser.called(&wanted.call)).collect::<Vec<_>>();
        if !self.turn.has_end && self.turn.spoke_last && outputs.is_empty() {
            self.turn.parser.done();
        }
        let mut out = self.begin(outputs);
        if self.turn.prompt.is_some() && !self.turn.has_begun {
            out.extend(self.turn.parser.start(self.thread.clone()));
        }
        self.was_open = self.turn.parser.is_open();
        self.counted = self.turn.parser.count_from(self.counted);
        let duration = self.turn.span.length();
        out.extend(self.turn.parser.end(&Ending { duration, ..ending.clone() }));
        self.turn = Turn::default();
        self.turn.parser.runs_in(&self.thread.cwd);
        out
    }

    /// Reads an item as the printed one that it is. `None` if it has no sense.
    fn item(&mut self, raw: &RawValue, timestamp: &str) -> Option<Vec<AgentOutput>> {
        self.has_items = true;
        let (mut item, recorded) = (read::<Item<'_>>(raw)?, read::<Recorded<'_>>(raw)?);
        let texts = || recorded.content.iter().map(|part| part.text.as_str()).collect::<String>();
        item.kind = match recorded.kind.as_str() {
            "UserMessage" => return Some(self.prompt(texts(), timestamp)),
            "AgentMessage" => {
                item.text = Some(texts());
                "agent_message"
            }
            "Reasoning" => {
                item.text = Some(recorded.summary_text.join("\n\n"));
                "reasoning"
            }
            "CommandExecution" => {
                item.command = shell::join(&recorded.command);
                "command_execution"
            }
            "FileChange" => {
                let change = |(path, changed): (String, Loose<ChangeText>)| match changed.0 {
                    Some(ChangeText { kind, content, unified_diff }) => {
                        Change { path, kind, text: unified_diff.or(content) }
                    }
                    None => Change { path, kind: String::new(), text: None },
                };
                item.changes = recorded.changes.into_iter().map(change).collect();
                "file_change"
            }
            "McpToolCall" => "mcp_tool_call",
            "WebSearch" => "web_search",
            "CollabAgentToolCall" => {
                let state = |(thread, raw): (String, &RawValue)| (thread, Loose(agent_state(raw)));
                item.agents_states = recorded.agents_states.into_iter().map(state).collect();
                "collab_tool_call"
            }
            "ContextCompaction" => return Some(Vec::new()),
            _ => return Some(self.turn.parser.unknown_kind(&format!("item {}", recorded.kind))),
        }
        .to_owned();
        // A command that was left running may end long after the turn.
        if self.turn.parser.is_open() {
            self.turn.span.reach(timestamp);
        }
        self.turn.wanted.retain(|wanted| !is_part_of(&wanted.call.id, &item.id));
        self.turn.parser.item("item.completed", item)
    }

    /// Reads the user's prompt. It begins a turn, unless the turn before it still runs: then the user steered it.
    fn prompt(&mut self, text: String, timestamp: &str) -> Vec<AgentOutput> {
        self.given = None;
        if self.turn.prompt.as_ref() == Some(&text) || self.turn.given.take().as_ref() == Some(&text) {
            return Vec::new();
        }
        let has_ended = !self.turn.has_end || !self.turn.parser.is_open();
        let mut out = match self.turn.has_content && has_ended {
            true => self.close(&Ending::default()),
            false => Vec::new(),
        };
        let turn = &mut self.turn;
        turn.span.reach(timestamp);
        turn.spoke_last = false;
        turn.has_content = true;
        if turn.id.is_empty() {
            timestamp.clone_into(&mut turn.id);
            turn.started = timestamp.parse().ok();
        }
        turn.prompt = Some(text.clone());
        out.push(AgentOutput::Event(Event::user(text)));
        out
    }

    /// Returns the message that the model was given as the prompt, if there are no events to say what the user typed.
    fn take_given(&mut self) -> Vec<AgentOutput> {
        match self.given.take().filter(|_| !self.has_events) {
            Some(Given { text, timestamp }) => {
                let out = self.prompt(text.clone(), &timestamp);
                self.turn.given = Some(text);
                out
            }
            None => Vec::new(),
        }
    }

    /// Reads what the model wants, or what it was given for it.
    fn response(&mut self, payload: &Payload<'_>, timestamp: &str) -> Vec<AgentOutput> {
        let texts = |parts: &[Text]| parts.iter().map(|part| part.text.as_str()).collect::<String>();
        match payload.kind.as_str() {
            "message" if payload.role == "user" => {
                let out = self.take_given();
                let own =
                    payload.content.iter().map(|part| part.text.as_str()).filter(|text| !is_injected(text));
                let text: String = own.collect();
                self.given = (!text.is_empty()).then(|| Given { text, timestamp: timestamp.to_owned() });
                out
            }
            "message" if payload.role == "assistant" && !self.has_events => {
                let mut out = self.take_given();
                self.turn.span.reach(timestamp);
                self.turn.spoke_last = true;
                out.extend(self.turn.parser.agent_message(texts(&payload.content)));
                out
            }
            "reasoning" if !self.has_events => {
                let mut out = self.take_given();
                self.turn.span.reach(timestamp);
                out.extend(self.turn.parser.reasoning(texts(&payload.summary)));
                out
            }
            "function_call" | "custom_tool_call" => {
                let out = self.take_given();
                self.turn.span.reach(timestamp);
                self.turn.spoke_last = false;
                self.turn.wanted.extend(calls(payload));
                out
            }
            "function_call_output" | "custom_tool_call_output" => {
                self.turn.span.reach(timestamp);
                let text = payload.output.map(output_text).unwrap_or_default();
                let Turn { parser, wanted, .. } = &mut self.turn;
                // If the item still comes, its events were returned already.
                parser.finish(&payload.call_id);
                let is_answered = |wanted: &mut Wanted| is_part_of(&wanted.call.id, &payload.call_id);
                let answered: Vec<Wanted> = wanted.extract_if(.., is_answered).collect();
                let events_of = |mut wanted: Wanted| {
                    let answer = answer(&mut wanted, &text);
                    let Wanted { call, .. } = wanted;
                    [parser.called(&call), parser.answered(&call.id, answer)]
                };
                answered.into_iter().flat_map(events_of).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn is_injected(text: &str) -> bool {
    let text = text.trim_start();
    INJECTED.iter().any(|tag| text.starts_with(tag))
}

fn agent_state(raw: &RawValue) -> Option<AgentState> {
    if let Ok(status) = serde_json::from_str(raw.get()) {
        return Some(AgentState { status, message: None });
    }
    let states: BTreeMap<String, Option<String>> = serde_json::from_str(raw.get()).ok()?;
    states.into_iter().next().map(|(status, message)| AgentState { status, message })
}

/// Returns whether a call is the one of this id, or one of several that it was taken apart into.
fn is_part_of(id: &str, whole: &str) -> bool {
    id.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns the calls that the model asked for; none where it only looks after one that runs.
fn calls(payload: &Payload<'_>) -> Vec<Wanted> {
    #[derive(Deserialize)]
    struct Shell {
        /// A list, or in some versions a text.
        #[serde(default, deserialize_with = "lenient")]
        command: Vec<String>,
        #[serde(default, deserialize_with = "lenient")]
        cmd: String,
    }
    #[derive(Deserialize)]
    struct Plan {
        #[serde(default, deserialize_with = "lenient_list")]
        plan: Vec<Todo>,
    }
    let id = &payload.call_id;
    let arguments = serde_json::from_str::<&RawValue>(&payload.arguments).ok();
    let wanted = |call: Call| Wanted { call, shown: None, is_patch: false };
    let patched_file = |call: Call| Wanted { is_patch: true, ..wanted(call) };
    let one = |tool: &str, input: Json| {
        vec![wanted(Call { id: id.clone(), tool: tool.to_owned(), input, diff: None })]
    };
    match payload.name.as_str() {
        // The first two look after what runs; the third runs programs whose doings stand there as items.
        "write_stdin" | "wait_agent" | "exec" => Vec::new(),
        "shell" | "shell_command" | "exec_command" => {
            let command = match arguments.and_then(read::<Shell>) {
                Some(shell) if !shell.command.is_empty() => shell::join(&shell.command),
                Some(shell) if !shell.cmd.is_empty() => shell.cmd,
                _ => kept(arguments).string_field("command").unwrap_or_default(),
            };
            one("Bash", item::fields([("command", command)]))
        }
        "apply_patch" => item::changes(id, &patched(&payload.input)).into_iter().map(patched_file).collect(),
        "update_plan" => {
            let todos = arguments.and_then(read::<Plan>).map(|plan| plan.plan).unwrap_or_default();
            let (call, answer) = item::todo_list(id, 0, &todos);
            vec![Wanted { shown: Some(answer), ..wanted(call) }]
        }
        other => one(other, kept(arguments)),
    }
}

/// Returns the files that a patch is about, each with its lines.
fn patched(patch: &str) -> Vec<Change> {
    let starts =
        [("*** Add File: ", "add"), ("*** Update File: ", "update"), ("*** Delete File: ", "delete")];
    let begun = |line: &str| {
        starts.iter().find_map(|(start, kind)| {
            let path = line.strip_prefix(start)?.to_owned();
            Some(Change { path, kind: (*kind).to_owned(), text: None })
        })
    };
    let mut changes: Vec<Change> = Vec::new();
    for line in patch.lines() {
        if let Some(change) = begun(line) {
            changes.push(change);
        } else if let Some(change) = changes.last_mut().filter(|_| !line.starts_with("*** ")) {
            // The lines of a new file have a sign here, and the places of changes have no numbers.
            let line = if change.kind == "add" { line.strip_prefix('+').unwrap_or(line) } else { line };
            let text = change.text.get_or_insert_default();
            if change.kind == "update" && text.is_empty() && !line.starts_with("@@") {
                text.push_str("@@\n");
            }
            text.push_str(line);
            text.push('\n');
        }
    }
    changes
}

/// Returns the result of a call, from the text that the model received.
fn answer(wanted: &mut Wanted, text: &str) -> Answer {
    // It takes the place of a mere confirmation.
    if let Some(shown) = wanted.shown.take_if(|_| text == "Plan updated") {
        return shown;
    }
    if let Some((exit_code, output)) = exit_code(text) {
        return item::command_answer(output, Some(exit_code), None);
    }
    let is_error = match wanted.call.tool.as_str() {
        // A finished command has an exit code, and a running one says so. Any other text is the reason why it did not
        // run.
        "Bash" => !text.lines().any(|line| line.starts_with("Process running with session ID ")),
        _ if wanted.is_patch => !text.starts_with("Success"),
        // The confirmation was read above.
        "TodoWrite" => wanted.shown.is_some(),
        _ => false,
    };
    Answer { content: text.to_owned(), is_error }
}

/// Returns the exit code and the output of a command or a patch; `None` if there is no exit code.
///
/// Older versions write JSON, `{"output":…,"metadata":{"exit_code":2}}`; newer ones a few lines and then the output:
/// `Exit code: 2` (or `Process exited with code 2`), `Wall time: 0 seconds`, `Output:`.
fn exit_code(text: &str) -> Option<(i64, String)> {
    #[derive(Deserialize)]
    struct Older {
        output: String,
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        exit_code: i64,
    }
    if let Ok(older) = serde_json::from_str::<Older>(text) {
        return Some((older.metadata.exit_code, older.output));
    }
    let (head, output) = text.split_once("Output:\n")?;
    let code = |line: &str| {
        let code =
            line.strip_prefix("Exit code: ").or_else(|| line.strip_prefix("Process exited with code "));
        code?.trim().parse().ok()
    };
    // An identifier and the time may stand before it.
    Some((head.lines().take(3).find_map(code)?, output.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_thread_tells_the_days_of_its_record() {
        let days = |thread: &str| -> Vec<String> {
            folders_of(thread).iter().map(|folder| folder.display().to_string()).collect()
        };
        // 2026-11-15T07:09:41Z.
        let thread = "01a1de0a-5596-7d22-bdc3-814fdd26c168";
        assert_eq!(days(thread), ["2026/11/15", "2026/11/14", "2026/11/16"]);
        for other in
            ["f9366627-86e9-4e1d-b2ca-3e1559ebcecf", "", "../../etc", "ü1a1de0a55967", "ffffffffffff7"]
        {
            assert!(days(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn the_last_count_is_read_wherever_the_end_begins() {
        let count = |input: u64, last: u64| {
            format!(
                r#"{{"type":"event_msg","payload":{{"type":"token_count","info":{{"total_token_usage":{{"input_tokens":{input},"output_tokens":7}},"last_token_usage":{{"input_tokens":{last},"output_tokens":5}}}}}}}}"#
            )
        };
        let unknown = r#"{"type":"event_msg","payload":{"type":"token_count","info":null}}"#;
        let quoting =
            r#"{"type":"event_msg","payload":{"type":"agent_message","message":"\"token_count\""}}"#;
        let record = [&count(100, 100), &count(300, 200), unknown, quoting, "", "{"].join("\n");
        let usage = last_usage(record.as_bytes()).unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.context_tokens), (300, 7, Some(205)));
        let second = count(100, 100).len() + 1;
        for start in 0..=record.len() {
            let context = last_usage(&record.as_bytes()[start..]).and_then(|usage| usage.context_tokens);
            assert_eq!(context, (start <= second).then_some(205), "{start}");
        }
    }

    #[test]
    fn the_model_is_in_the_last_settings_of_a_record() {
        let settings =
            |model: &str| format!(r#"{{"type":"turn_context","payload":{{"cwd":"/","model":"{model}"}}}}"#);
        let quoting =
            r#"{"type":"event_msg","payload":{"type":"agent_message","message":"\"turn_context\""}}"#;
        let record = [&settings("a"), &settings("b"), quoting, "", "{"].join("\n");
        assert_eq!(model(record.as_bytes()).as_deref(), Some("b"));
        assert_eq!(model(settings("").as_bytes()), None);
        assert_eq!(model(b"{\"type\":\"turn_context\""), None, "a line that is cut");
    }
}
