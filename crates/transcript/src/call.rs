//! Tool calls and their results as they are shown.

use std::borrow::Cow;

use azureal_core::diff::{edit_lines, number, written_lines};
use azureal_core::event::{ToolCall, ToolResult};
use azureal_core::{Json, Tool, counted};

use crate::diff;
use crate::{Call, CallState};

/// The tags that Claude Code puts around the errors of its tools.
const ERROR_TAGS: [&str; 2] = ["<tool_use_error>", "</tool_use_error>"];
/// The beginning of the note that Claude Code adds to the result of a subagent.
const AGENT_NOTE: &str = "\nagentId: ";
/// The beginning of the note that Claude Code adds to the result of some tools.
const REMINDER: &str = "\n<system-reminder>";
/// The arguments that a diff shows.
const DIFF_ARGUMENTS: [&str; 4] = ["old_string", "new_string", "edits", "content"];
/// The longest summary that is a line of the result, in characters.
const LONGEST_SUMMARY: usize = 48;

/// The directories that paths are shown relative to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// The project directory. Paths in it are shown relative to it.
    pub project: Option<String>,
    /// The home directory. It is shown as `~`.
    pub home: Option<String>,
}

impl Places {
    /// Returns a path as it is shown.
    ///
    /// ```
    /// let places = azureal_transcript::Places { project: Some("/p".into()), home: Some("/h/me".into()) };
    /// assert_eq!(places.shown("/p/src/a.rs"), "src/a.rs");
    /// assert_eq!(places.shown("/h/me/notes"), "~/notes");
    /// assert_eq!(places.shown("/etc/hosts"), "/etc/hosts");
    /// ```
    pub fn shown<'a>(&self, path: &'a str) -> Cow<'a, str> {
        let within = |place: &Option<String>| {
            let place = place.as_deref()?.trim_end_matches('/');
            let rest = path.strip_prefix(place).filter(|_| !place.is_empty())?;
            if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
        };
        match (within(&self.project), within(&self.home)) {
            (Some(""), _) => Cow::Borrowed("."),
            (Some(rest), _) => Cow::Borrowed(rest),
            (None, Some("")) => Cow::Borrowed("~"),
            (None, Some(rest)) => Cow::Owned(format!("~/{rest}")),
            (None, None) => Cow::Borrowed(path),
        }
    }
}

impl Call {
    /// Creates a call that has no result yet.
    pub(crate) fn begun(call: &ToolCall, places: &Places) -> Self {
        let mut begun = Self::without_call(&call.tool_use_id, &call.tool_name, call.subagent.is_some());
        begun.describe(&call.input, call.file_path.as_deref(), places);
        begun
    }

    /// Creates a call of which only the result is known.
    pub(crate) fn without_call(id: &str, tool: &str, is_subagents: bool) -> Self {
        Self {
            id: id.to_owned(),
            tool: tool.to_owned(),
            key: String::new(),
            state: CallState::Running,
            summary: String::new(),
            diff: Vec::new(),
            arguments: Vec::new(),
            output: String::new(),
            omitted: 0,
            is_subagents,
        }
    }

    /// Sets what the input says: the key, the diff.
    pub(crate) fn describe(&mut self, input: &Json, file_path: Option<&str>, places: &Places) {
        let tool = Tool::named(&self.tool);
        let key = tool.key_text(input);
        let key = if key.is_empty() { file_path.unwrap_or_default().to_owned() } else { key };
        self.key = match tool {
            Tool::Bash | Tool::Task | Tool::WebFetch | Tool::WebSearch => key,
            _ => places.shown(&key).into_owned(),
        };
        self.diff = match tool {
            Tool::Edit => edit_lines(input),
            Tool::Write => written_lines(input),
            _ => Vec::new(),
        };
        if let Some(list) = todo_list(input) {
            (self.output, self.omitted) = (list, 0);
        }
        self.arguments = self.other_arguments(input, places);
        self.summary = self.summary_of_input(tool, input);
    }

    fn other_arguments(&self, input: &Json, places: &Places) -> Vec<(String, String)> {
        let is_in_diff = |name: &str| !self.diff.is_empty() && DIFF_ARGUMENTS.contains(&name);
        let mut arguments = Vec::new();
        for (name, value) in input.fields() {
            let value = serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned());
            if !is_in_diff(&name) && value != self.key && places.shown(&value) != self.key {
                arguments.push((name, value));
            }
        }
        arguments
    }

    fn summary_of_input(&self, tool: Tool, input: &Json) -> String {
        if !self.diff.is_empty() {
            return diff::stat(&self.diff);
        }
        let lines = || input.fields().get("line_count").and_then(|raw| raw.get().parse().ok());
        match tool {
            Tool::Write => lines().map(|lines| counted(lines, "line")).unwrap_or_default(),
            _ => done(&self.output).unwrap_or_default(),
        }
    }

    /// Sets the result.
    pub(crate) fn answer(&mut self, result: &ToolResult, places: &Places) {
        if self.tool.is_empty() {
            self.tool.clone_from(&result.tool_name);
        }
        if self.key.is_empty()
            && let Some(path) = &result.file_path
        {
            self.key = places.shown(path).into_owned();
        }
        let tool = Tool::named(&self.tool);
        let output = cleaned(tool, &result.content);
        let (detail, omitted) = (result.detail.as_deref().unwrap_or_default(), result.omitted.unwrap_or(0));
        if !result.is_error {
            return self.answer_with(output, diff::of_detail(detail), false, omitted);
        }
        match detail {
            "" => self.answer_with(output, Vec::new(), true, omitted),
            // It has more lines than the short output, and the same number is missing in all.
            detail => {
                let all = output.lines().count() as u64 + omitted.saturating_sub(1);
                let omitted = match detail.lines().any(is_mark) {
                    true => (all + 1).saturating_sub(detail.lines().count() as u64),
                    false => 0,
                };
                self.answer_with(cleaned(tool, detail), Vec::new(), true, omitted);
            }
        }
    }

    /// Sets the result: the output, the diff that it has (or an empty one), whether it is an error, and the number of lines
    /// that are missing.
    pub(crate) fn answer_with(&mut self, output: String, diff: Vec<String>, is_error: bool, omitted: u64) {
        let tool = Tool::named(&self.tool);
        // The result knows the places of the lines, and those around them. The call has all of a long change.
        let has_more = diff::is_shortened(&diff) && self.diff.len() > diff.len();
        if !diff.is_empty() && !has_more {
            self.diff = diff;
        }
        self.state = if is_error { CallState::Failed } else { CallState::Done };
        if !is_error && is_list(&self.output) && !is_list(&output) {
            // The list of the call says more than that it was taken.
            return;
        }
        (self.output, self.omitted) = (output, omitted);
        let has_diff = !self.diff.is_empty();
        if has_diff && !is_error {
            // What the tool says besides is that it did it, and where.
            number(&mut self.diff, &self.output);
            self.output.clear();
            self.omitted = diff::omitted(&self.diff);
            self.summary = diff::stat(&self.diff);
            return;
        }
        let is_write = tool == Tool::Write && !is_error && !self.summary.is_empty();
        if !is_write {
            self.summary = self.summary_of_result(tool, is_error);
        }
    }

    fn summary_of_result(&self, tool: Tool, is_error: bool) -> String {
        let lines = self.result_lines();
        match tool {
            Tool::Bash => {
                let code = self.output.strip_prefix("Exit code ").and_then(|rest| rest.lines().next());
                let code = code.filter(|code| !code.is_empty() && code.len() < 12);
                let lines = lines.saturating_sub(u64::from(code.is_some()));
                let what = match (code, is_error) {
                    (Some(code), _) => Some(format!("exit {code}")),
                    (None, true) => Some("failed".to_owned()),
                    (None, false) => None,
                };
                let lines = match lines {
                    0 if what.is_some() => None,
                    0 => Some("no output".to_owned()),
                    lines => Some(counted(lines, "line")),
                };
                what.into_iter().chain(lines).collect::<Vec<_>>().join(" · ")
            }
            _ if is_error => "failed".to_owned(),
            Tool::Read if self.output.starts_with("[image: ") => "image".to_owned(),
            Tool::Read => counted(lines, "line"),
            Tool::Grep => self.matches(lines),
            Tool::Glob if self.omitted > 0 || self.output == "0 files" => {
                self.output.lines().next().unwrap_or_default().to_owned()
            }
            Tool::Glob => match self.output.trim() {
                text if text.eq_ignore_ascii_case("no files found") => "no files".to_owned(),
                _ => counted(lines, "file"),
            },
            Tool::Task => self.short_line().unwrap_or_default(),
            _ if self.omitted == 0 && is_list(&self.output) => done(&self.output).unwrap_or_default(),
            _ if lines == 0 => String::new(),
            _ if lines == 1 => self.short_line().unwrap_or_else(|| counted(lines, "line")),
            _ => counted(lines, "line"),
        }
    }

    /// Returns the number of lines of the whole result, those that are missing included.
    fn result_lines(&self) -> u64 {
        let shown = self.output.lines().count() as u64;
        // A line says how many are missing.
        if self.omitted > 0 { (shown + self.omitted).saturating_sub(1) } else { shown }
    }

    fn matches(&self, lines: u64) -> String {
        let first = self.output.lines().next().unwrap_or_default().trim();
        let found = first.strip_prefix("Found ").map(|rest| rest.split(' '));
        if let Some((Some(count), Some(what))) = found.map(|mut words| (words.next(), words.next()))
            && count.chars().all(|c| c.is_ascii_digit())
        {
            return format!("{count} {}", what.trim_end_matches(','));
        }
        let none = lines == 0
            || ["no matches found", "no files found"].iter().any(|none| first.eq_ignore_ascii_case(none));
        match (none, lines) {
            (true, _) => "no matches".to_owned(),
            (false, 1) => "1 match".to_owned(),
            (false, lines) => format!("{lines} matches"),
        }
    }

    /// Returns the first line with text, if it is short or can be cut.
    fn short_line(&self) -> Option<String> {
        let line = self.output.lines().map(str::trim).find(|line| !line.is_empty())?;
        // Codex names a subagent by a UUID, which says nothing.
        let is_uuid =
            |text: &str| text.len() == 36 && text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit());
        let line = line.split_once(": ").filter(|(name, _)| is_uuid(name)).map_or(line, |(_, rest)| rest);
        let short: String = line.chars().take(LONGEST_SUMMARY).collect();
        Some(if short.len() < line.len() { format!("{}…", short.trim_end()) } else { short })
    }
}

/// Returns whether a line of a detail stands for omitted ones.
fn is_mark(line: &str) -> bool {
    line.starts_with('[') && line.ends_with(" omitted]")
}

/// Removes what a tool adds for the model alone.
fn cleaned(tool: Tool, content: &str) -> String {
    let mut text = Cow::Borrowed(content);
    for tag in ERROR_TAGS {
        if text.contains(tag) {
            text = Cow::Owned(text.replace(tag, ""));
        }
    }
    let end = match tool {
        Tool::Task => text.rfind(AGENT_NOTE),
        Tool::Read => text.rfind(REMINDER).filter(|_| text.trim_end().ends_with("</system-reminder>")),
        _ => None,
    };
    let text = end.and_then(|end| text.get(..end)).unwrap_or(&text).trim_end_matches(['\n', '\r']);
    // Claude Code numbers the line after the last one.
    let is_number = |line: &str| line.strip_suffix('\t').is_some_and(|number| number.parse::<u64>().is_ok());
    let before = text.rsplit_once('\n').filter(|(_, last)| tool == Tool::Read && is_number(last));
    before.map_or(text, |(before, _)| before).to_owned()
}

/// Returns the list of things to do in an input, one a line.
fn todo_list(input: &Json) -> Option<String> {
    let fields = input.fields();
    let todos: Vec<Todo> = serde_json::from_str(fields.get("todos")?.get()).ok()?;
    let line = |todo: &Todo| {
        let mark = if todo.status == "completed" { "x" } else { " " };
        format!("[{mark}] {}", todo.content.replace('\n', " "))
    };
    Some(todos.iter().map(line).collect::<Vec<_>>().join("\n")).filter(|list| !list.is_empty())
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Todo {
    content: String,
    status: String,
}

/// Returns whether a text is a list of things to do.
fn is_list(text: &str) -> bool {
    !text.is_empty() && text.lines().all(|line| line.starts_with("[ ] ") || line.starts_with("[x] "))
}

/// Returns how many things of a list are done: `1 of 2 done`.
fn done(text: &str) -> Option<String> {
    let done = text.lines().filter(|line| line.starts_with("[x] ")).count();
    is_list(text).then(|| format!("{done} of {} done", text.lines().count()))
}
