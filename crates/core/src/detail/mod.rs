//! The detail of calls and results: the part of an output or a change that the next agent needs.
//!
//! The short content of an event says *that* a test failed or a file was edited. Its detail says *what*: the lines of
//! the output that matter, or a unified diff. The context has the detail in place of the content. Each is a pure
//! function of the output, has at most [`MOST_CHARS`] characters, and a mark where lines are left out.
//!
//! The **result** carries the diff of an edit, not the call. Only the result says whether the edit was made, and the
//! rendering of a call must not depend on an event after it. So an edit that failed adds no diff to the context, and
//! one that was made adds it once.

mod attach;
mod diff_text;
mod failure;

pub use attach::{attach_diffs, changes_detail};
pub use diff_text::{bounded_diff, is_shortened, of_edit, of_patch};
pub(crate) use failure::of_failure;

use std::borrow::Cow;

use crate::event::ToolResult;
use crate::{Event, Tool};

/// The most characters of a detail.
pub const MOST_CHARS: usize = 4_000;

/// The longest line of a detail, in characters.
const LONGEST_LINE: usize = 400;
/// The characters that stay of the beginning and of the end of a longer line.
const LINE_ENDS: (usize, usize) = (280, 80);

/// Returns whether a call failed, as far as its result says: some agents report a command whose exit status is not 0 as a
/// success.
pub(crate) fn is_failure(result: &ToolResult) -> bool {
    result.is_error || exit_code(result).is_some_and(|code| code != 0)
}

/// Returns the exit status in a result: `Exit code 1` in front of the output of a command, or an element
/// `<exit_code>1</exit_code>` in the report of a command in the background.
fn exit_code(result: &ToolResult) -> Option<i64> {
    let content = result.content.as_str();
    if Tool::named(&result.tool_name) == Tool::Bash
        && let Some(rest) = content.strip_prefix("Exit code ")
    {
        return rest.lines().next()?.trim().parse().ok();
    }
    let is_report =
        ["BashOutput", "TaskOutput"].iter().any(|tool| tool.eq_ignore_ascii_case(&result.tool_name));
    if !is_report {
        return None;
    }
    // The elements stand in front of the output, which may have any text.
    content
        .lines()
        .take(12)
        .take_while(|line| !line.starts_with("<stdout>") && !line.starts_with("<output>"))
        .find_map(|line| {
            line.trim().strip_prefix("<exit_code>")?.strip_suffix("</exit_code>")?.trim().parse().ok()
        })
}

impl Event {
    /// Returns the detail of a call, a result or the changes of a turn.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::ToolCall(call) => call.detail.as_deref(),
            Self::ToolResult(result) => result.detail.as_deref(),
            Self::Changes(changes) => changes.detail.as_deref(),
            _ => None,
        }
    }

    /// Returns the place of the detail; `None` for an event that can have none.
    pub fn detail_mut(&mut self) -> Option<&mut Option<String>> {
        match self {
            Self::ToolCall(call) => Some(&mut call.detail),
            Self::ToolResult(result) => Some(&mut result.detail),
            Self::Changes(changes) => Some(&mut changes.detail),
            _ => None,
        }
    }

    /// Returns whether two events are equal, or differ in their details alone.
    pub fn equals_but_detail(&self, other: &Self) -> bool {
        fn plain(event: &Event) -> Cow<'_, Event> {
            if event.detail().is_none() {
                return Cow::Borrowed(event);
            }
            let mut plain = event.clone();
            if let Some(detail) = plain.detail_mut() {
                *detail = None;
            }
            Cow::Owned(plain)
        }
        self == other || plain(self) == plain(other)
    }
}

/// Returns the line that stands for omitted ones.
fn omitted_lines(count: usize) -> String {
    if count == 1 { "[1 line omitted]".to_owned() } else { format!("[{count} lines omitted]") }
}

/// Returns a line with a mark in place of its middle, if it is long.
fn short_line(line: &str) -> Cow<'_, str> {
    crate::compact_event::shortened(line, LONGEST_LINE, LINE_ENDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_whose_exit_status_is_not_0_failed_whatever_its_agent_reports() {
        let failed = |tool: &str, content: &str| {
            is_failure(&ToolResult {
                tool_name: tool.into(),
                content: content.into(),
                ..ToolResult::default()
            })
        };
        assert!(failed("Bash", "Exit code 1\nx"));
        assert!(failed("bash", "Exit code 127"));
        assert!(!failed("Bash", "Exit code 0\nx"));
        assert!(!failed("Bash", "ok\nExit code 1"), "a line of its output");
        assert!(!failed("Read", "Exit code 1\nx"));
        assert!(failed(
            "BashOutput",
            "<status>completed</status>\n\n<exit_code>2</exit_code>\n\n<stdout>\nx\n</stdout>"
        ));
        assert!(!failed("BashOutput", "<exit_code>0</exit_code>"));
        assert!(!failed("BashOutput", "<stdout>\n<exit_code>2</exit_code>"));
    }

    #[test]
    fn events_are_compared_without_their_details() {
        let plain = Event::from_json(r#"{"ToolResult":{"tool_name":"Edit","content":"ok"}}"#).unwrap();
        let detailed =
            Event::from_json(r#"{"ToolResult":{"tool_name":"Edit","content":"ok","detail":"+x"}}"#).unwrap();
        let other =
            Event::from_json(r#"{"ToolResult":{"tool_name":"Edit","content":"no","detail":"+x"}}"#).unwrap();
        assert!(plain.equals_but_detail(&detailed) && detailed.equals_but_detail(&plain));
        assert!(!plain.equals_but_detail(&other));
        assert_eq!((plain.detail(), detailed.detail()), (None, Some("+x")));
    }
}
