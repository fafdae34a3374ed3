//! Tool calls and the results that belong to them.
//!
//! Results come in any order, and say only the id of their call. What the call was is remembered here, so that a
//! result carries the tool's name, its file and the diff of an edit itself, and can be read without looking back.

use std::collections::HashMap;

use azureal_core::event::{ToolCall, ToolResult};
use azureal_core::{Event, Json, Tool, detail};

/// The calls of a run.
#[derive(Default)]
pub(crate) struct Calls {
    calls: HashMap<String, Call>,
    /// The directory of the run, once it is known: the paths in diffs are relative to it.
    pub(crate) cwd: String,
    /// The size of the remembered inputs, in bytes.
    inputs: usize,
}

/// The number of calls that are remembered. An agent that prints without end must not fill the memory.
const MOST_CALLS: usize = 100_000;

/// The most bytes of inputs that are remembered.
const MOST_INPUTS: usize = 64 << 20;

struct Call {
    tool_name: String,
    file_path: Option<String>,
    /// The input of a call that changes a file, until its result comes: the result carries the diff.
    input: Option<Json>,
}

impl Calls {
    /// Creates the event of a call.
    pub(crate) fn call(&mut self, id: &str, tool_name: &str, input: Json, subagent: Option<String>) -> Event {
        let file_path = file_path(tool_name, &input);
        let size = input.as_str().len();
        let is_edit = Tool::changes_files(tool_name) && self.inputs.saturating_add(size) <= MOST_INPUTS;
        let call = Call {
            tool_name: tool_name.to_owned(),
            file_path: file_path.clone(),
            input: is_edit.then(|| input.clone()),
        };
        if self.calls.len() < MOST_CALLS {
            self.inputs += if is_edit { size } else { 0 };
            self.calls.insert(id.to_owned(), call);
        }
        Event::ToolCall(ToolCall {
            tool_use_id: id.to_owned(),
            tool_name: tool_name.to_owned(),
            file_path,
            input,
            subagent,
            ..ToolCall::default()
        })
    }

    /// Creates the event of a result. The result of an unknown call has no tool name.
    ///
    /// The result of an edit that was made has its diff: the reported one, or else the one that the input of the call has.
    pub(crate) fn result(
        &mut self,
        id: &str,
        content: String,
        is_error: bool,
        reported: Reported,
        subagent: Option<String>,
    ) -> Event {
        let call = self.calls.get_mut(id);
        let input = call.and_then(|call| call.input.take());
        self.inputs = self.inputs.saturating_sub(input.as_ref().map_or(0, |input| input.as_str().len()));
        let call = self.calls.get(id);
        let detail = call.zip(input).filter(|_| !is_error).and_then(|(call, input)| match reported {
            Reported::Diff(diff) => diff,
            Reported::Unknown => detail::of_edit(&call.tool_name, &input, &content, &self.cwd),
        });
        Event::ToolResult(ToolResult {
            tool_use_id: id.to_owned(),
            tool_name: call.map_or_else(String::new, |call| call.tool_name.clone()),
            file_path: call.and_then(|call| call.file_path.clone()),
            content,
            is_error,
            detail,
            subagent,
            ..ToolResult::default()
        })
    }

    /// Returns the file that a call changes, until its result comes; `None` for other calls.
    pub(crate) fn edited_file(&self, id: &str) -> Option<&str> {
        let call = self.calls.get(id).filter(|call| call.input.is_some())?;
        call.file_path.as_deref()
    }

    /// Returns whether there was a call of this id.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.calls.contains_key(id)
    }
}

/// The diff that an agent's program prints with a result.
pub(crate) enum Reported {
    /// It prints none.
    Unknown,
    /// The unified diff; `None` if the file did not change.
    Diff(Option<String>),
}

/// The name of our own for a file that was taken away; other tools have the names that Claude Code gave them.
pub(crate) const DELETE: &str = "Delete";

/// Returns the file that a call is about, for tools that are about one.
fn file_path(tool_name: &str, input: &Json) -> Option<String> {
    let about_a_file = matches!(Tool::named(tool_name), Tool::Read | Tool::Write | Tool::Edit | Tool::File)
        || tool_name == DELETE;
    if !about_a_file {
        return None;
    }
    ["file_path", "notebook_path", "path"].into_iter().find_map(|field| input.string_field(field))
}
