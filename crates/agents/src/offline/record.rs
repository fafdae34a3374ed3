//! The record of a session, parsed from its context.
//!
//! This parses the output of `azureal_core::build_context`: sections under known headings. Lines of a text that look
//! like such a heading are escaped there.

use azureal_core::{STOP_NOTES, Tool, strip_context};

/// A session, as far as its context shows it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) system: Option<&'a str>,
    pub(super) summary: Option<&'a str>,
    pub(super) asked: Vec<&'a str>,
    pub(super) answered: Vec<&'a str>,
    /// Tools with what they were about.
    pub(super) done: Vec<(&'a str, &'a str)>,
    /// The tools that failed, with the first line of the error; may be empty.
    pub(super) failed: Vec<(&'a str, &'a str)>,
    /// The current prompt.
    pub(super) prompt: &'a str,
}

impl<'a> Record<'a> {
    /// Reads a frame as one text.
    pub(super) fn read(frame: &'a str) -> Self {
        let prompt = strip_context(frame);
        let context = frame.strip_suffix(prompt).unwrap_or("");
        // Text in a context cannot hold a tag of ours.
        let session = context.split("<azureal-turn-context>").next().unwrap_or("");
        let session = session.split("</azureal-session-context>").next().unwrap_or("");
        let mut record = Self { prompt, ..Self::default() };
        for (heading, body) in sections(session) {
            record.take(heading, body);
        }
        record
    }

    /// Returns the files that were changed, each once, in the order in which they were first.
    pub(super) fn changed(&self) -> Vec<&'a str> {
        let mut files = Vec::new();
        for (tool, about) in &self.done {
            if Tool::changes_files(tool) && !about.is_empty() && !files.contains(about) {
                files.push(*about);
            }
        }
        files
    }

    fn take(&mut self, heading: &'a str, body: &'a str) {
        match heading.split_once(": ").unwrap_or((heading, "")) {
            ("System message", _) => self.system = Some(body),
            ("Summary of what happened before", _) => self.summary = Some(body),
            ("What the user asked in that part, newest first", _) => {
                let body = body.trim_end_matches("[earlier prompts are left out]");
                let prompts = body.split("### Prompt, event ").filter_map(|part| part.split_once('\n'));
                let mut prompts: Vec<&str> = prompts.map(|(_, prompt)| prompt.trim()).collect();
                prompts.reverse();
                self.asked.append(&mut prompts);
            }
            ("User", _) => self.asked.push(body),
            ("Assistant", _) => self.answered.push(body),
            ("Tool call", call) => self.done.push(call.split_once(' ').unwrap_or((call, ""))),
            ("Tool error" | "Error", tool) => {
                let mut lines = body.lines().filter(|line| !line.ends_with(" omitted]"));
                self.failed.push((tool, lines.next().unwrap_or("")));
            }
            _ => {}
        }
    }
}

/// The headings of a context.
const HEADINGS: [&str; 15] = [
    "System message",
    "Summary of what happened before",
    "Files, commands and failures of that part",
    "What the user asked in that part, newest first",
    "Changes during this turn",
    "Undo",
    "User",
    "Assistant",
    "System",
    "Plan: ",
    "Command: ",
    "Tool call: ",
    "Tool result",
    "Tool error",
    "Error",
];

/// Takes a context apart into headings and what stands under them.
fn sections(context: &str) -> Vec<(&str, &str)> {
    let mut sections: Vec<(&str, &str)> = Vec::new();
    let mut open: Option<(&str, usize)> = None;
    let mut at = 0;
    for line in context.split_inclusive('\n') {
        let start = at;
        at += line.len();
        if STOP_NOTES.contains(&line.trim_end_matches('\n')) {
            // It follows the turn, and belongs to no section.
            if let Some((heading, from)) = open.take() {
                sections.push((heading, context.get(from..start).unwrap_or("").trim()));
            }
            continue;
        }
        let Some(heading) = line.strip_prefix("## ").map(|heading| heading.trim_end_matches('\n')) else {
            continue;
        };
        if is_heading(heading) {
            if let Some((heading, from)) = open {
                sections.push((heading, context.get(from..start).unwrap_or("").trim()));
            }
            open = Some((heading, at));
        }
    }
    if let Some((heading, from)) = open {
        sections.push((heading, context.get(from..).unwrap_or("").trim()));
    }
    sections
}

fn is_heading(line: &str) -> bool {
    HEADINGS.iter().any(|known| match line.strip_prefix(known) {
        Some(rest) => known.ends_with(' ') || rest.is_empty() || rest.starts_with(": "),
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use azureal_core::{Carried, ContextBuilder, ContextFrame, Event, build_context};

    use super::*;

    #[test]
    fn what_a_context_tells_is_read_back() {
        let log = [
            r#"{"SystemMessage":{"content":"Be kind."}}"#,
            r#"{"UserMessage":{"content":"Fix it\n\n## Steps\nall of them"}}"#,
            r#"{"ToolCall":{"tool_use_id":"1","tool_name":"Bash","input":{"command":"cargo test"}}}"#,
            r#"{"ToolResult":{"tool_use_id":"1","tool_name":"Bash","content":"Exit code 1\nno","is_error":true}}"#,
            r#"{"ToolCall":{"tool_use_id":"2","tool_name":"Edit","input":{"file_path":"src/a.rs"}}}"#,
            r#"{"ToolResult":{"tool_use_id":"2","tool_name":"Edit","content":"ok"}}"#,
            r#"{"ToolCall":{"tool_use_id":"3","tool_name":"Edit","input":{"file_path":"src/a.rs"}}}"#,
            r#"{"ToolCall":{"tool_use_id":"4","tool_name":"Delete","input":{"file_path":"old.rs"}}}"#,
            r#"{"AssistantText":{"text":"Fixed."}}"#,
            r#"{"Complete":{"outcome":"cancelled"}}"#,
            r#"{"Error":{"message":"the network is gone","kind":"x"}}"#,
        ]
        .map(|json| Event::from_json(json).unwrap());
        let context = build_context(None, None, &log);
        let frame = ContextFrame::new(context, "## User\nnot this", "And now?").into_text();
        let record = Record::read(&frame);
        assert_eq!(
            record,
            Record {
                system: Some(record.system.unwrap()),
                summary: None,
                asked: vec!["Fix it\n\n## Steps\nall of them"],
                answered: vec!["Fixed."],
                done: vec![
                    ("Bash", "cargo test"),
                    ("Edit", "src/a.rs"),
                    ("Edit", "src/a.rs"),
                    ("Delete", "old.rs")
                ],
                failed: vec![("Bash", "Exit code 1"), ("", "the network is gone")],
                prompt: "And now?",
            }
        );
        assert!(record.system.unwrap().starts_with("Be kind."));
        assert_eq!(record.changed(), ["src/a.rs", "old.rs"]);
    }

    #[test]
    fn what_was_asked_in_the_summarised_part_is_read_back_in_its_order() {
        let mut context = ContextBuilder::new(None, Some("They met."));
        let earlier = "### Prompt, event 7\nlater\nin two lines\n\n### Prompt, event 1\nfirst\n\n[earlier prompts are left out]";
        context.carry(&Carried { earlier: earlier.into(), current: Some("now".into()) });
        let frame = ContextFrame::new(context.as_str(), "", "And?").into_text();
        let record = Record::read(&frame);
        assert_eq!(record.summary, Some("They met."));
        assert_eq!(record.asked, ["first", "later\nin two lines", "now"]);
    }

    #[test]
    fn a_first_prompt_has_no_record() {
        assert_eq!(Record::read("Hello"), Record { prompt: "Hello", ..Record::default() });
        assert_eq!(Record::read(""), Record::default());
    }
}
