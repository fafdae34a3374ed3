//! The part of an event that is stored.
//!
//! Tool results can be megabytes that no one reads again. Ingestion cuts each down to a few lines, depending on its
//! tool, and of a very long line it stores the two ends. Each call is cut down to its subject. Texts of people and
//! agents stay whole. The result of a failed call gets a [`detail`], from its whole output. Only
//! [`append_events`](crate::append_events) applies this; a message that is appended to a `ContextStore` is stored
//! unchanged.

use serde_json::Value;

use std::borrow::Cow;

use crate::event::{ToolCall, ToolResult};
use crate::{Event, Json, Tool, detail};

/// The longest stored line, in characters. A file without line breaks or a bundled script is one line of megabytes.
const LONGEST_LINE: usize = 2_000;
/// The characters that stay of the beginning and of the end of a longer line.
const LINE_ENDS: (usize, usize) = (900, 900);

/// Cuts a tool call or a tool result down to what is kept of it; any other event stays as it is.
///
/// An event that was cut carries `omitted`, the number of lines that were left out, 0 where only long lines were
/// shortened. One that carries it is left alone: compacting twice is compacting once. A detail stays as it is; the result
/// of a failed call without one gets the part of its output that matters.
///
/// ```
/// use azureal_core::{Event, compact_event, event::ToolResult};
///
/// let result = |content: &str| {
///     Event::ToolResult(ToolResult {
///         tool_name: "Bash".into(),
///         content: content.into(),
///         ..ToolResult::default()
///     })
/// };
/// let Event::ToolResult(kept) = compact_event(result("one\ntwo\nthree\nfour\n")) else { unreachable!() };
/// assert_eq!(kept.content, "[2 lines omitted]\nthree\nfour");
/// assert_eq!(kept.omitted, Some(2));
/// assert_eq!(compact_event(result("one\ntwo\n")), result("one\ntwo\n"));
/// ```
pub fn compact_event(event: Event) -> Event {
    match event {
        Event::ToolCall(call) if call.omitted.is_none() => Event::ToolCall(compact_call(call)),
        Event::ToolResult(result) if result.omitted.is_none() => Event::ToolResult(compact_result(result)),
        other => other,
    }
}

fn compact_call(mut call: ToolCall) -> ToolCall {
    match Tool::named(&call.tool_name) {
        // The transcript shows the difference, which needs the old and the new text.
        Tool::Edit => call,
        Tool::Write => summarise_write(call),
        tool => {
            call.input = tool.key_input(&call.input);
            call
        }
    }
}

/// Reduces a written file to its path, its length and its first line with text.
fn summarise_write(mut call: ToolCall) -> ToolCall {
    let path = Tool::Write.key_input(&call.input);
    let Some(content) = call.input.string_field("content") else {
        call.input = path;
        return call;
    };
    let lines = content.lines().count();
    let first = content.lines().map(str::trim).find(|line| line.chars().any(char::is_alphanumeric));
    let path_fields = path.fields();
    let kept = path_fields
        .iter()
        .filter_map(|(name, raw)| Some((name.as_str(), serde_json::from_str::<Value>(raw.get()).ok()?)))
        .chain([
            ("line_count", Value::from(lines)),
            ("first_line", Value::from(kept_line(first.unwrap_or("")))),
        ]);
    call.input = Json::from_fields(kept);
    call.omitted = Some(lines as u64);
    call
}

fn compact_result(mut result: ToolResult) -> ToolResult {
    let keep = match Tool::named(&result.tool_name) {
        Tool::Read => KeptPart::Ends,
        Tool::Bash => KeptPart::Last(2),
        Tool::Task => KeptPart::First(5),
        // An error is a message, not a list of files.
        Tool::Glob if !result.is_error => {
            let count = count_files(&result.content);
            result.content = if count == 1 { "1 file".to_owned() } else { format!("{count} files") };
            result.omitted = Some(count);
            return result;
        }
        Tool::Glob
        | Tool::Grep
        | Tool::Write
        | Tool::Edit
        | Tool::File
        | Tool::WebFetch
        | Tool::WebSearch
        | Tool::Other => KeptPart::First(3),
    };
    if let Some((content, omitted)) = keep_lines(&result.content, keep) {
        // A few short lines say everything: then there is no detail.
        if omitted > 0 && result.detail.is_none() && detail::is_failure(&result) {
            result.detail = detail::of_failure(&result.content, &content);
        }
        result.content = content;
        result.omitted = Some(omitted);
    }
    result
}

fn count_files(listing: &str) -> u64 {
    // What Claude Code prints instead of an empty list.
    if listing.trim().eq_ignore_ascii_case("no files found") {
        return 0;
    }
    listing.lines().filter(|line| !line.trim().is_empty()).count() as u64
}

#[derive(Clone, Copy)]
enum KeptPart {
    First(usize),
    Last(usize),
    /// The first line and the last.
    Ends,
}

/// Returns the stored lines with a marker for the omitted ones, and the number of omitted lines; `None` if all of the
/// text stays.
fn keep_lines(text: &str, keep: KeptPart) -> Option<(String, u64)> {
    let (head, tail) = match keep {
        KeptPart::First(count) => (count, 0),
        KeptPart::Last(count) => (0, count),
        KeptPart::Ends => (1, 1),
    };
    let count = text.lines().count();
    let omitted = count.saturating_sub(head + tail);
    if omitted == 0 {
        let is_long = text.lines().any(|line| matches!(kept_line(line), Cow::Owned(_)));
        return is_long.then(|| (joined(text.lines()), 0));
    }
    let marker =
        if omitted == 1 { "[1 line omitted]".to_owned() } else { format!("[{omitted} lines omitted]") };
    let kept = text.lines().take(head).chain([marker.as_str()]).chain(text.lines().skip(head + omitted));
    Some((joined(kept), omitted as u64))
}

fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.map(kept_line).collect::<Vec<_>>().join("\n")
}

fn kept_line(line: &str) -> Cow<'_, str> {
    shortened(line, LONGEST_LINE, LINE_ENDS)
}

/// Returns a line with a marker in place of its middle, if it is longer than `longest` characters. `ends` are the
/// characters that stay of its beginning and of its end.
pub(crate) fn shortened(line: &str, longest: usize, ends: (usize, usize)) -> Cow<'_, str> {
    // A line of so few bytes has no more characters; most lines are not counted.
    if line.len() <= longest {
        return Cow::Borrowed(line);
    }
    let count = line.chars().count();
    if count <= longest {
        return Cow::Borrowed(line);
    }
    let (first, last) = ends;
    let head = line.char_indices().nth(first).and_then(|(end, _)| line.get(..end));
    let tail = line.char_indices().nth_back(last.saturating_sub(1)).and_then(|(start, _)| line.get(start..));
    let (head, tail) = (head.unwrap_or_default(), tail.unwrap_or_default());
    Cow::Owned(format!("{head}[{} characters omitted]{tail}", count.saturating_sub(first + last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(tool: &str, content: &str) -> Event {
        Event::ToolResult(ToolResult {
            tool_name: tool.into(),
            content: content.into(),
            ..ToolResult::default()
        })
    }

    fn call(tool: &str, input: &str) -> Event {
        Event::ToolCall(ToolCall {
            tool_use_id: "t".into(),
            tool_name: tool.into(),
            input: input.parse().unwrap(),
            ..ToolCall::default()
        })
    }

    #[track_caller]
    fn check_result(tool: &str, content: &str, expected: &str, omitted: Option<u64>) {
        let Event::ToolResult(kept) = compact_event(result(tool, content)) else { unreachable!() };
        assert_eq!((kept.content.as_str(), kept.omitted), (expected, omitted), "{tool}: {content:?}");
        assert_eq!(compact_event(Event::ToolResult(kept.clone())), Event::ToolResult(kept));
    }

    #[test]
    fn results_are_cut_by_the_rule_of_their_tool() {
        check_result("Read", "a\nb\nc\nd", "a\n[2 lines omitted]\nd", Some(2));
        check_result("read", "a\r\nb\r\nc\r\n", "a\n[1 line omitted]\nc", Some(1));
        check_result("Read", "a\nb\n", "a\nb\n", None);
        check_result("BASH", "a\nb\nc", "[1 line omitted]\nb\nc", Some(1));
        check_result("Grep", "a\nb\nc\nd\ne", "a\nb\nc\n[2 lines omitted]", Some(2));
        check_result("Glob", "a\nb\n\nc\n", "3 files", Some(3));
        check_result("Glob", "No files found", "0 files", Some(0));
        check_result("Glob", "a", "1 file", Some(1));
        check_result("Task", "1\n2\n3\n4\n5\n6", "1\n2\n3\n4\n5\n[1 line omitted]", Some(1));
        check_result("Agent", "1\n2\n3\n4\n5\n6", "1\n2\n3\n4\n5\n[1 line omitted]", Some(1));
        check_result("TaskCreate", "1\n2\n3\n4", "1\n2\n3\n[1 line omitted]", Some(1));
        check_result("mcp__x__y", "1\n2\n3\n4", "1\n2\n3\n[1 line omitted]", Some(1));
        for tool in ["Read", "Bash", "Grep", "Task", "x"] {
            check_result(tool, "", "", None);
        }
    }

    #[test]
    fn a_line_that_is_very_long_keeps_its_two_ends() {
        let line = |c: &str, chars: usize| c.repeat(chars);
        let cut = |c: &str, omitted: usize| {
            format!("{}[{omitted} characters omitted]{}", line(c, 900), line(c, 900))
        };
        for tool in ["Read", "Bash", "Grep", "Task", "x"] {
            check_result(tool, &line("ü", 2_000), &line("ü", 2_000), None);
            check_result(tool, &line("ü", 2_001), &cut("ü", 201), Some(0));
            check_result(tool, &line("x", 1_000_000), &cut("x", 998_200), Some(0));
        }
        check_result(
            "Bash",
            &format!("a\n{}\nc\n", line("x", 5_000)),
            &format!("[1 line omitted]\n{}\nc", cut("x", 3_200)),
            Some(1),
        );
        check_result(
            "Read",
            &format!("{}\nz", line("x", 5_000)),
            &format!("{}\nz", cut("x", 3_200)),
            Some(0),
        );
        check_result("Grep", &format!("{}\n", line("x", 2_000)), &format!("{}\n", line("x", 2_000)), None);
        let written = format!(r#"{{"file_path":"/a","content":"{}"}}"#, line("x", 5_000));
        let kept = format!(r#"{{"file_path":"/a","line_count":1,"first_line":"{}"}}"#, cut("x", 3_200));
        check_call("Write", &written, &kept);
    }

    #[test]
    fn a_text_that_looks_like_a_marker_is_a_text() {
        check_result("Grep", "[5 lines omitted]\nb\nc", "[5 lines omitted]\nb\nc", None);
    }

    #[track_caller]
    fn check_call(tool: &str, input: &str, expected: &str) {
        let Event::ToolCall(kept) = compact_event(call(tool, input)) else { unreachable!() };
        assert_eq!(kept.input.as_str(), expected, "{tool}: {input}");
        assert_eq!(compact_event(Event::ToolCall(kept.clone())), Event::ToolCall(kept));
    }

    #[test]
    fn inputs_are_reduced_to_their_key_field() {
        check_call("Read", r#"{"file_path":"/a","offset":3}"#, r#"{"file_path":"/a"}"#);
        check_call("NotebookEdit", r#"{"new_source":"x","notebook_path":"/n"}"#, r#"{"notebook_path":"/n"}"#);
        check_call("bash", r#"{"command":"ls","timeout":5}"#, r#"{"command":"ls"}"#);
        check_call("Grep", r#"{"path":"src","pattern":"fn"}"#, r#"{"pattern":"fn"}"#);
        check_call("Glob", r#"{"pattern":"*.rs"}"#, r#"{"pattern":"*.rs"}"#);
        check_call("WebFetch", r#"{"url":"u","prompt":"p"}"#, r#"{"url":"u"}"#);
        check_call("WebSearch", r#"{"query":"q"}"#, r#"{"query":"q"}"#);
        check_call(
            "Task",
            r#"{"prompt":"long","description":"d","subagent_type":"s"}"#,
            r#"{"subagent_type":"s","description":"d"}"#,
        );
        check_call("mcp", r#"{"url":"u","command":"c","x":1}"#, r#"{"command":"c"}"#);
        check_call("mcp", r#"{"x":1}"#, "{}");
        check_call("mcp", "[1]", "{}");
        check_call(
            "Edit",
            r#"{"file_path":"/a","old_string":"x"}"#,
            r#"{"file_path":"/a","old_string":"x"}"#,
        );
        check_call(
            "Write",
            r#"{"file_path":"/a","content":"\n{\nfn main() {}\n"}"#,
            r#"{"file_path":"/a","line_count":3,"first_line":"fn main() {}"}"#,
        );
        check_call("Write", r#"{"file_path":"/a"}"#, r#"{"file_path":"/a"}"#);
    }
}
