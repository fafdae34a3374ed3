//! Codex's items as tool calls, in the vocabulary that all agents share.
//!
//! | item | tool | what it is about |
//! |---|---|---|
//! | `command_execution` | Bash | the command, without the shell around it |
//! | `file_change` | Write (add), Edit (update), Delete; one call per file | the path |
//! | `mcp_tool_call` | `mcp__SERVER__TOOL`, as Claude Code writes it | the arguments |
//! | `web_search` | WebSearch | the query, or the page |
//! | `todo_list` | TodoWrite, once per change of the list | the list |
//! | `collab_tool_call` | Task | what is done, and the prompt |

use azureal_core::Json;
use azureal_core::diff::all_lines;
use azureal_core::event::FileStatus;
use serde_json::{Value, json};

use super::shell;
use super::wire::{AgentState, Change, Item, Todo};
use crate::calls::DELETE;
use crate::unreadable::shorten;
use crate::wire::{kept, output_text};

/// A call of a tool that an item stands for.
pub(super) struct Call {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) input: Json,
    /// The lines of the diff, if the call changes a file and the program says how.
    pub(super) diff: Option<(FileStatus, Vec<String>)>,
}

/// The output of a tool.
pub(super) struct Answer {
    pub(super) content: String,
    pub(super) is_error: bool,
}

/// Returns the calls of an item; `None` if it is none of a tool.
pub(super) fn calls(item: &Item<'_>) -> Option<Vec<Call>> {
    let one = |tool: String, input: Json| Some(vec![Call { id: item.id.clone(), tool, input, diff: None }]);
    match item.kind.as_str() {
        "command_execution" => one("Bash".to_owned(), fields([("command", shell::unwrap(&item.command))])),
        "file_change" => Some(changes(&item.id, &item.changes)),
        "mcp_tool_call" => {
            let arguments = kept(item.arguments.filter(|raw| raw.get() != "null"));
            one(mcp_name(&item.server, &item.tool), arguments)
        }
        "web_search" => {
            let action = item.action.0.as_ref();
            let texts =
                [Some(&item.query), action.map(|action| &action.query), action.map(|action| &action.url)];
            let query = texts.into_iter().flatten().find(|text| !text.is_empty());
            one("WebSearch".to_owned(), fields([("query", query.cloned().unwrap_or_default())]))
        }
        "collab_tool_call" => {
            let prompt = item.prompt.clone().unwrap_or_default();
            let about = match prompt.lines().next() {
                Some(line) => shorten(line, 100).into_owned(),
                None => item.receiver_thread_ids.join(", "),
            };
            let mut input = vec![("subagent_type", item.tool.clone()), ("description", about)];
            if !prompt.is_empty() {
                input.push(("prompt", prompt));
            }
            one("Task".to_owned(), fields(input))
        }
        _ => None,
    }
}

/// Returns what each of the calls of a finished item gave back. Takes the output along: it can be megabytes.
pub(super) fn answer(item: &mut Item<'_>, call: &Call) -> Answer {
    let failed = matches!(item.status.as_str(), "failed" | "declined") || item.error.0.is_some();
    match item.kind.as_str() {
        "command_execution" => {
            let output = std::mem::take(&mut item.aggregated_output);
            command_answer(output, item.exit_code, failed.then_some(item.status.as_str()))
        }
        "file_change" => change_answer(&call.tool, failed),
        "mcp_tool_call" => {
            let result = item.result.0.as_ref();
            let content = result.and_then(|result| result.content).map(output_text).unwrap_or_default();
            let structured = || result.and_then(|result| result.structured_content).map(output_text);
            let message = || item.error.0.as_ref().map(|error| error.message.clone());
            let content = match content.is_empty() {
                true => structured().filter(|text| !text.is_empty()).or_else(message).unwrap_or_default(),
                false => content,
            };
            Answer { content, is_error: failed }
        }
        "collab_tool_call" => {
            let states = item.agents_states.iter().map(|(thread, state)| match &state.0 {
                Some(AgentState { status, message: Some(message) }) => {
                    format!("{thread}: {status}: {message}")
                }
                Some(AgentState { status, message: None }) => format!("{thread}: {status}"),
                None => thread.clone(),
            });
            Answer { content: states.collect::<Vec<_>>().join("\n"), is_error: failed }
        }
        // What was found is not printed.
        _ => Answer { content: String::new(), is_error: failed },
    }
}

/// Returns what a command gave back, with its exit code in front where that is not 0, as Claude Code has it.
pub(super) fn command_answer(output: String, exit_code: Option<i64>, failure: Option<&str>) -> Answer {
    let mut content = output;
    match (exit_code, failure) {
        (Some(code), _) if code != 0 => {
            content.insert_str(0, &format!("Exit code {code}\n"));
            Answer { content, is_error: true }
        }
        (_, Some(status)) if content.is_empty() => Answer { content: format!("[{status}]"), is_error: true },
        (_, failure) => Answer { content, is_error: failure.is_some() },
    }
}

/// Returns one call per changed file.
pub(super) fn changes(id: &str, changes: &[Change]) -> Vec<Call> {
    let call = |(index, change): (usize, &Change)| Call {
        id: if index == 0 { id.to_owned() } else { format!("{id}.{index}") },
        tool: match change.kind.as_str() {
            "add" => "Write".to_owned(),
            "delete" => DELETE.to_owned(),
            _ => "Edit".to_owned(),
        },
        input: fields([("file_path", change.path.clone())]),
        diff: change.text.as_deref().map(|text| diff(&change.kind, text)),
    };
    changes.iter().enumerate().map(call).collect()
}

/// Returns the lines of the diff of a changed file.
fn diff(kind: &str, text: &str) -> (FileStatus, Vec<String>) {
    match kind {
        "add" => (FileStatus::Added, all_lines(text, '+')),
        "delete" => (FileStatus::Deleted, all_lines(text, '-')),
        // Some versions have the headers of the file too.
        _ => {
            let hunks = text.lines().skip_while(|line| !line.starts_with("@@"));
            (FileStatus::Modified, hunks.map(str::to_owned).collect())
        }
    }
}

pub(super) fn change_answer(tool: &str, failed: bool) -> Answer {
    let content = match (failed, tool) {
        (true, _) => "the change failed",
        (false, "Write") => "file created",
        (false, DELETE) => "file deleted",
        (false, _) => "file changed",
    };
    Answer { content: content.to_owned(), is_error: failed }
}

pub(super) fn mcp_name(server: &str, tool: &str) -> String {
    format!("mcp__{server}__{tool}")
}

/// Returns a list of things to do as a call and, as it is all there is to see, its result.
pub(super) fn todo_list(id: &str, index: usize, todos: &[Todo]) -> (Call, Answer) {
    let status = |todo: &Todo| match todo.status.as_str() {
        "" if todo.completed => "completed".to_owned(),
        "" => "pending".to_owned(),
        status => status.to_owned(),
    };
    let list: Vec<Value> =
        todos.iter().map(|todo| json!({"content": todo.text, "status": status(todo)})).collect();
    let mark = |todo: &Todo| if status(todo) == "completed" { "x" } else { " " };
    let lines: Vec<String> = todos.iter().map(|todo| format!("[{}] {}", mark(todo), todo.text)).collect();
    let call = Call {
        id: if index == 0 { id.to_owned() } else { format!("{id}.{index}") },
        tool: "TodoWrite".to_owned(),
        input: Json::from_fields([("todos", Value::from(list))]),
        diff: None,
    };
    (call, Answer { content: lines.join("\n"), is_error: false })
}

/// Builds an input of texts.
pub(super) fn fields<'a>(fields: impl IntoIterator<Item = (&'a str, String)>) -> Json {
    Json::from_fields(fields.into_iter().map(|(name, value)| (name, Value::from(value))))
}
