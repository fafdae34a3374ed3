//! A turn as plain text, while it runs: texts as they are written, a line for every tool call once its outcome is known.

use azureal_core::event::{ToolCall, ToolResult};
use azureal_core::{Event, Tool, visible, visible_line};

/// The most that is shown of what a tool call is about, in characters.
const ABOUT_CHARS: usize = 100;
/// The most that is remembered of a text that is being written, in bytes, and the most calls without a result. An agent may
/// print without end.
const MOST_OPEN: usize = 16 << 20;
const MOST_CALLS: usize = 1_000;

/// What a turn shows in a pipe or a file.
#[derive(Debug, Default)]
pub(crate) struct LiveText {
    /// What was shown of a text that is not finished.
    open: String,
    /// Whether the last line is not ended.
    in_line: bool,
    /// The calls that have no result yet: their ids and their lines.
    calls: Vec<(String, String)>,
}

impl LiveText {
    /// Returns what is added to the text that the agent is writing.
    pub(crate) fn delta(&mut self, delta: &str) -> String {
        if self.open.len() < MOST_OPEN {
            self.open.push_str(delta);
        }
        let mut out = String::new();
        self.write(&mut out, &visible(delta));
        out
    }

    /// Returns the text of an event.
    pub(crate) fn event(&mut self, event: &Event) -> String {
        let mut out = String::new();
        match event {
            Event::AssistantText(said) if said.subagent.is_none() => self.finished(&mut out, &said.text),
            Event::Plan(plan) => self.finished(&mut out, &plan.content),
            Event::ToolCall(call) => self.called(&mut out, call),
            Event::ToolResult(result) => self.answered(&mut out, result),
            _ => {}
        }
        out
    }

    /// Ends what is left open when the agent's program has ended.
    pub(crate) fn end_run(&mut self) -> String {
        let mut out = String::new();
        self.end_line(&mut out);
        for (_, line) in std::mem::take(&mut self.calls) {
            self.write(&mut out, &format!("? {line}: no result\n"));
        }
        out
    }

    /// Ends a line that is not ended.
    pub(crate) fn end_line(&mut self, out: &mut String) {
        self.open.clear();
        if self.in_line {
            self.write(out, "\n");
        }
    }

    /// Returns whether the last line is not ended.
    pub(crate) fn is_in_line(&self) -> bool {
        self.in_line
    }

    /// Returns the call that runs, if there is one.
    pub(crate) fn running(&self) -> Option<String> {
        self.calls.last().map(|(_, line)| line.trim_start().to_owned())
    }

    /// The finished text takes the place of what was shown of it: only what is missing is written.
    fn finished(&mut self, out: &mut String, text: &str) {
        let shown = std::mem::take(&mut self.open);
        match text.strip_prefix(&shown) {
            Some(rest) => self.write(out, &visible(rest)),
            None => {
                self.end_line(out);
                self.write(out, &visible(text));
            }
        }
        self.end_line(out);
    }

    fn called(&mut self, out: &mut String, call: &ToolCall) {
        self.end_line(out);
        let about = shortened(&Tool::named(&call.tool_name).key_text(&call.input), ABOUT_CHARS);
        let indent = if call.subagent.is_some() { "  " } else { "" };
        let line = format!("{indent}{} {about}", call.tool_name);
        let line = visible_line(line.trim_end()).into_owned();
        if self.calls.len() >= MOST_CALLS {
            self.calls.remove(0);
        }
        self.calls.push((call.tool_use_id.clone(), line));
    }

    fn answered(&mut self, out: &mut String, result: &ToolResult) {
        let found = self.calls.iter().position(|(id, _)| *id == result.tool_use_id);
        let line = match found {
            Some(index) => self.calls.remove(index).1,
            None => visible_line(&result.tool_name).into_owned(),
        };
        self.end_line(out);
        if result.is_error {
            let why = result.content.lines().find(|line| !line.trim().is_empty()).unwrap_or("failed");
            let why = shortened(why.trim(), ABOUT_CHARS);
            self.write(out, &format!("✗ {line}: {}\n", visible_line(&why)));
        } else {
            self.write(out, &format!("✓ {line}\n"));
        }
    }

    fn write(&mut self, out: &mut String, text: &str) {
        if !text.is_empty() {
            out.push_str(text);
            self.in_line = !text.ends_with('\n');
        }
    }
}

/// Cuts a text to a number of characters.
pub(crate) fn shortened(text: &str, chars: usize) -> String {
    let mut short: String = text.chars().take(chars).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
