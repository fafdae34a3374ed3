//! Tool calls and the results that belong to them.
//!
//! Results come in any order, and say only the id of their call. What the call was is remembered here, so that a
//! result carries the tool's name and file itself and can be read without looking back.

use std::collections::HashMap;

use azureal_core::event::{ToolCall, ToolResult};
use azureal_core::{Event, Json, Tool};

/// The calls of a run.
#[derive(Default)]
pub(crate) struct Calls(HashMap<String, Call>);

/// The number of calls that are remembered. An agent that prints without end must not fill the memory.
const MOST_CALLS: usize = 100_000;

struct Call {
    tool_name: String,
    file_path: Option<String>,
}

impl Calls {
    /// Creates the event of a call.
    pub(crate) fn call(&mut self, id: &str, tool_name: &str, input: Json, subagent: Option<String>) -> Event {
        let file_path = file_path(tool_name, &input);
        let call = Call { tool_name: tool_name.to_owned(), file_path: file_path.clone() };
        if self.0.len() < MOST_CALLS {
            self.0.insert(id.to_owned(), call);
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
    pub(crate) fn result(
        &self,
        id: &str,
        content: String,
        is_error: bool,
        subagent: Option<String>,
    ) -> Event {
        let call = self.0.get(id);
        Event::ToolResult(ToolResult {
            tool_use_id: id.to_owned(),
            tool_name: call.map_or_else(String::new, |call| call.tool_name.clone()),
            file_path: call.and_then(|call| call.file_path.clone()),
            content,
            is_error,
            subagent,
            ..ToolResult::default()
        })
    }

    /// Returns whether there was a call of this id.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }
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
