//! A session as a document for people, as code hosts and editors show it.
//!
//! The document has the headings, and no text of the session can add one of that rank, leave its place or be HTML. Long results are folded.

use std::io::Write;

use azureal_core::event::{FileChange, MessageEvent};
use azureal_core::{
    Block, Event, Json, Role, SessionRecord, Tool, counted, duration_text, visible, visible_line,
};

use super::inert::inert;
use super::masking::Masking;
use super::sequences::without_sequences;
use super::{ExportError, Source, each_event};
use crate::DamagedEvents;

/// The longest result that is shown unfolded, in lines and bytes.
const LONGEST_RESULT: (usize, usize) = (12, 1200);

pub(super) async fn write(
    source: &Source<'_>,
    record: &SessionRecord,
    masking: &mut Masking<'_>,
    out: &mut impl Write,
) -> Result<DamagedEvents, ExportError> {
    let counts = &record.counts;
    writeln!(out, "# {}\n", plain(&record.name))?;
    let facts = [
        ("Session", Some(record.id.to_string())),
        ("Created", Some(record.created_at.clone())),
        ("Worktree", Some(record.worktree.clone())),
        ("Agent", counts.agent.clone()),
        ("Model", counts.model.clone()),
        ("Messages", Some(counts.messages.to_string())),
    ];
    for (name, fact) in facts {
        if let Some(fact) = fact.filter(|fact| !fact.is_empty()) {
            writeln!(out, "- {name}: {}", plain(&fact))?;
        }
    }
    let mut speaker = None;
    each_event(source, record.id, masking, |_, event| {
        if let Some(section) = section(&event) {
            if let Some(heading) = heading(&event, &mut speaker) {
                write!(out, "\n{heading}\n")?;
            }
            write!(out, "\n{}\n", section.trim_end())?;
        }
        Ok(())
    })
    .await
}

/// Returns the heading above an event. What an agent says and does has one, up to the next message of another role; each prompt has its own.
fn heading(event: &Event, speaker: &mut Option<Role>) -> Option<&'static str> {
    let role = match event {
        Event::UserMessage(_) => Role::User,
        Event::SystemMessage(_) => Role::System,
        Event::AssistantText(_) | Event::ToolCall(_) | Event::ToolResult(_) => Role::Assistant,
        // Results of tools are in a message of the user.
        Event::Message(message)
            if message.content.iter().any(|block| matches!(block, Block::ToolResult { .. })) =>
        {
            Role::Assistant
        }
        Event::Message(message) => message.role,
        // These have a heading of their own.
        Event::Plan(_) | Event::Command(_) => {
            *speaker = None;
            return None;
        }
        _ => return None,
    };
    let is_same = speaker.replace(role) == Some(Role::Assistant) && role == Role::Assistant;
    (!is_same).then(|| role.heading())
}

/// Renders an event, without its heading; `None` for an event that matters only to programs.
fn section(event: &Event) -> Option<String> {
    Some(match event {
        Event::UserMessage(message) => said(Role::User, &message.content),
        Event::AssistantText(text) if text.subagent.is_none() => said(Role::Assistant, &text.text),
        Event::AssistantText(text) => quoted("Subagent", &text.text),
        Event::SystemMessage(system) if system.content.is_empty() => return None,
        Event::SystemMessage(system) => said(Role::System, &system.content),
        Event::Plan(plan) => format!("## Plan {}\n\n{}", plain(&plan.name), inert(&plan.content)),
        Event::Command(command) => format!("## Command\n\n{}", code(&command.name)),
        Event::ToolCall(call) => match &call.detail {
            Some(detail) => {
                let detail = fenced_as(diff_language(detail), detail);
                format!("{}\n\n{detail}", called(&call.tool_name, &call.input))
            }
            None => called(&call.tool_name, &call.input),
        },
        Event::ToolResult(result) => match &result.detail {
            Some(detail) if !result.is_error => fenced_as(diff_language(detail), detail),
            detail => answered(detail.as_ref().unwrap_or(&result.content), result.is_error),
        },
        Event::Message(MessageEvent { role, content }) => {
            content.iter().map(|block| of_block(*role, block)).collect::<Vec<_>>().join("\n\n")
        }
        Event::Error(error) => quoted("Error", &error.message),
        Event::Complete(complete) => format!(
            "*{} in {}*",
            if complete.success { "Done" } else { "Failed" },
            duration_text(complete.duration_ms)
        ),
        Event::ModelSwitch(switch) => format!("*Model: {}*", plain(&switch.model)),
        Event::Changes(changes) => {
            let files = changed(&changes.summary(), &changes.files);
            match &changes.detail {
                Some(detail) => format!("{files}\n\n{}", fenced_as("diff", detail)),
                None => files,
            }
        }
        Event::Undo(undo) => changed(&undo.summary(), &undo.files),
        Event::Unknown(unknown) => format!("*Unknown event: {}*", plain(unknown.kind())),
        Event::Init(_) | Event::Hook(_) | Event::Compacting | Event::Compacted | Event::Reasoning(_) => {
            return None;
        }
    })
}

fn changed(summary: &str, files: &[FileChange]) -> String {
    let files = files.iter().map(|file| format!("\n- {}", code(&file.to_string())));
    format!("*{summary}*\n{}", files.collect::<String>())
}

/// Renders a text of a role. A prompt is quoted, so that it stands out; a system message is shown as it is.
fn said(role: Role, text: &str) -> String {
    match role {
        Role::User => in_quote(text),
        Role::Assistant => {
            let text = inert(text);
            let text = text.trim_start_matches('\n');
            // A text that is indented would continue a list of the text before. A comment ends that.
            let end = if text.starts_with([' ', '\t']) { "<!-- -->\n\n" } else { "" };
            format!("{end}{text}")
        }
        Role::System => folded("System message", text),
    }
}

fn of_block(role: Role, block: &Block) -> String {
    match block {
        Block::Text { text } => said(role, text),
        Block::Image(image) => image.note(),
        Block::ToolUse { name, input, .. } => called(name, input),
        Block::ToolResult { content, is_error, .. } => answered(&content.text(), *is_error),
    }
}

fn called(tool: &str, input: &Json) -> String {
    let about = Tool::named(tool).key_text(input);
    let tool = plain(tool);
    if about.contains('\n') {
        format!("**{tool}**\n\n{}", fenced(&about))
    } else {
        format!("**{tool}** {}", code(&about))
    }
}

fn answered(content: &str, is_error: bool) -> String {
    match (content.trim().is_empty(), is_error) {
        (true, false) => "*No output*".to_owned(),
        (_, false) => folded("Result", content),
        (_, true) => format!("Failed:\n\n{}", folded("Result", content)),
    }
}

/// Returns a text as a code block; a long one is folded.
fn folded(title: &str, text: &str) -> String {
    let lines = text.lines().count();
    if lines <= LONGEST_RESULT.0 && text.len() <= LONGEST_RESULT.1 {
        return fenced(text);
    }
    let size = counted(lines as u64, "line");
    format!("<details>\n<summary>{title}, {size}</summary>\n\n{}\n\n</details>", fenced(text))
}

fn quoted(title: &str, text: &str) -> String {
    format!("> **{title}**\n>\n{}", in_quote(text))
}

/// Returns a text as a quote, which it cannot leave.
fn in_quote(text: &str) -> String {
    // A tab behind the mark of the quote would be narrower, and code no code any more.
    let lines: Vec<String> = text.lines().map(without_tabs).collect();
    let lines: Vec<String> =
        inert(&lines.join("\n")).lines().map(|line| format!("> {line}").trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Returns a line with spaces for the tabs of its indentation.
fn without_tabs(line: &str) -> String {
    let text = line.trim_start_matches([' ', '\t']);
    let indent = line.strip_suffix(text).unwrap_or_default();
    let width = indent.chars().fold(0, |width, c| if c == '\t' { width / 4 * 4 + 4 } else { width + 1 });
    format!("{}{text}", " ".repeat(width))
}

/// Returns a text of one line without any meaning in Markdown.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible_line(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '|' | '~' | '!' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// Returns the language of a detail for its code block: a diff, or the output of a command.
fn diff_language(detail: &str) -> &'static str {
    if detail.starts_with("--- ") { "diff" } else { "" }
}

pub(super) fn fenced(text: &str) -> String {
    fenced_as("", text)
}

/// Returns a text as a code block, with a fence that is longer than all fences in the text.
fn fenced_as(language: &str, text: &str) -> String {
    let text = without_sequences(text);
    let text = visible(text.trim_end_matches('\n'));
    let fence = "`".repeat(longest_run(&text).max(2) + 1);
    format!("{fence}{language}\n{text}\n{fence}")
}

/// Returns a text as inline code.
fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let fence = "`".repeat(longest_run(text) + 1);
    let touches = text.starts_with('`') || text.ends_with('`');
    let space = if touches { " " } else { "" };
    format!("{fence}{space}{}{space}{fence}", visible_line(text))
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_leave_its_block() {
        assert_eq!(fenced("a\n```\nb"), "````\na\n```\nb\n````");
        assert_eq!(fenced("plain\n"), "```\nplain\n```");
        assert_eq!(code("a``b"), "```a``b```");
        assert_eq!(code("`a`"), "`` `a` ``");
    }

    #[test]
    fn a_long_result_is_folded_and_a_prompt_is_quoted() {
        let shown = |event: &Event| section(event).unwrap();
        let long = "line\n".repeat(20);
        let result =
            shown(&Event::from_json(&format!(r#"{{"ToolResult":{{"content":{long:?}}}}}"#)).unwrap());
        assert!(
            result.starts_with("<details>\n<summary>Result, 20 lines</summary>\n\n```\nline\n"),
            "{result}"
        );
        assert!(result.ends_with("\n```\n\n</details>"), "{result}");
        assert_eq!(shown(&Event::user("# Do it\n\n<b>now</b>")), "> ### Do it\n>\n> &lt;b>now&lt;/b>");
        assert_eq!(plain("a_b <i> [x](y) `z`"), "a\\_b &lt;i> \\[x\\](y) \\`z\\`");
    }

    #[test]
    fn a_text_does_not_continue_the_list_of_another() {
        let shown = |text: &str| said(Role::Assistant, text);
        assert_eq!(shown("- a"), "- a");
        assert_eq!(shown("\n\n    # b"), "<!-- -->\n\n    # b");
        assert_eq!(shown("  ```\n  b\n```"), "<!-- -->\n\n  ```\n  b\n```");
    }

    #[test]
    fn what_an_agent_does_is_below_its_heading() {
        let of = |json: &str| Event::from_json(json).unwrap();
        let events = [
            of(r#"{"UserMessage":{"content":"a"}}"#),
            of(r#"{"Init":{"cwd":"/","model":"m"}}"#),
            of(r#"{"ToolCall":{"tool_use_id":"1","tool_name":"Bash","input":{"command":"ls"}}}"#),
            of(r#"{"ToolResult":{"tool_use_id":"1","tool_name":"Bash","content":"x"}}"#),
            of(r#"{"AssistantText":{"text":"b"}}"#),
            of(r#"{"Complete":{"success":true,"duration_ms":1,"cost_usd":0}}"#),
            of(r#"{"UserMessage":{"content":"c"}}"#),
            of(r#"{"UserMessage":{"content":"d"}}"#),
            of(r#"{"Plan":{"name":"p","content":"e"}}"#),
            of(r#"{"AssistantText":{"text":"f"}}"#),
            of(
                r#"{"Message":{"role":"user","content":[{"type":"text","text":"g"},{"type":"text","text":"h"}]}}"#,
            ),
            of(
                r#"{"Message":{"role":"assistant","content":[{"type":"tool_use","id":"2","name":"Read","input":{}}]}}"#,
            ),
            of(
                r#"{"Message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"2","content":"i","is_error":false}]}}"#,
            ),
        ];
        let mut speaker = None;
        let headings: Vec<&str> =
            events.iter().map(|event| heading(event, &mut speaker).unwrap_or("")).collect();
        let (user, assistant) = ("## User", "## Assistant");
        assert_eq!(
            headings,
            [user, "", assistant, "", "", "", user, user, "", assistant, user, assistant, ""]
        );
    }

    #[test]
    fn a_result_is_shown_with_its_detail() {
        let shown = |json: &str| section(&Event::from_json(json).unwrap()).unwrap();
        assert_eq!(
            shown(
                r#"{"ToolResult":{"tool_name":"Edit","content":"updated","detail":"--- a/x\n+++ b/x\n@@\n+```"}}"#
            ),
            "````diff\n--- a/x\n+++ b/x\n@@\n+```\n````"
        );
        assert_eq!(
            shown(r#"{"ToolResult":{"tool_name":"Bash","content":"y","detail":"x\ny","is_error":true}}"#),
            "Failed:\n\n```\nx\ny\n```"
        );
        let changes =
            shown(r#"{"Changes":{"files":[{"path":"a","added":1}],"detail":"--- a/a\n+++ b/a\n@@\n+x"}}"#);
        assert!(changes.ends_with("\n\n```diff\n--- a/a\n+++ b/a\n@@\n+x\n```"), "{changes}");
    }
}
