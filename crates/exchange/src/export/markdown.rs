//! A session as a document for people, as code hosts and editors show it.
//!
//! The document has the headings, and no text of the session can add one of that rank, leave its place or be HTML. Long results are folded.

use std::io::Write;

use azureal_core::event::{FileChange, MessageEvent, ToolCall};
use azureal_core::{
    Block, Compaction, Event, Json, Role, Seq, SessionRecord, Tool, ToolOutput, counted, duration_text,
    visible, visible_line,
};

use super::html::escaped;
use super::inert::{LineBreaks, inert};
use super::masking::Masking;
use super::sequences::without_sequences;
use super::shown::{indented, is_diff, lines_of_long_prompt, title};
use super::tree::{Answer, Node, Part, Tree};
use super::{ExportError, Source};
use crate::DamagedEvents;

/// The longest result that is shown unfolded, in lines and bytes.
const LONGEST_RESULT: (usize, usize) = (12, 1200);

pub(super) async fn write(
    source: &Source<'_>,
    record: &SessionRecord,
    on_event: Option<&(dyn Fn(Seq) + Sync)>,
    masking: &mut Masking<'_>,
    out: &mut impl Write,
) -> Result<DamagedEvents, ExportError> {
    let (tree, damaged) = Tree::read(source, record, masking).await?;
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
    for part in tree.parts() {
        let node = match part {
            Part::Node(node) => node,
            Part::Summary(summary) => {
                write!(out, "\n{}\n", summarised(summary))?;
                continue;
            }
        };
        if let Some(on_event) = on_event.filter(|_| node.seq != Seq::START) {
            on_event(node.seq);
        }
        if let Some(section) = section(&tree, node) {
            if let Some(heading) = heading(&node.event, &mut speaker) {
                write!(out, "\n{heading}\n")?;
            }
            write!(out, "\n{}\n", section.trim_end())?;
        }
    }
    Ok(damaged)
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

/// Renders an event with what belongs to it, without its heading; `None` for an event that matters only to programs.
fn section(tree: &Tree, node: &Node) -> Option<String> {
    Some(match &node.event {
        Event::UserMessage(message) => said(Role::User, &message.content),
        Event::AssistantText(text) if text.subagent.is_some() && !node.is_inner() => {
            quoted("Subagent", &text.text)
        }
        Event::AssistantText(text) => said(Role::Assistant, &text.text),
        Event::SystemMessage(system) if system.content.is_empty() => return None,
        Event::SystemMessage(system) => said(Role::System, &system.content),
        Event::Plan(plan) => {
            format!("## Plan {}\n\n{}", plain(&plan.name), inert(&plan.content, LineBreaks::Flow))
        }
        Event::Command(command) => format!("## Command\n\n{}", code(&command.name)),
        Event::ToolCall(call) => tool(tree, node, call),
        Event::ToolResult(result) => answered(&Answer::of(node.seq, result.clone())),
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

/// Renders a call with its input, the work of its subagent and its result.
fn tool(tree: &Tree, node: &Node, call: &ToolCall) -> String {
    let mut parts = vec![called(&call.tool_name, &call.input)];
    parts.extend(call.detail.as_ref().map(|detail| fenced_as(language(detail), detail)));
    let inner: Vec<String> = tree.children(node).filter_map(|child| section(tree, child)).collect();
    if !inner.is_empty() {
        parts.push(details("Subagent", &inner.join("\n\n")));
    }
    match &node.result {
        // The call shows it already.
        Some(result) if call.detail.is_some() && call.detail == result.detail => {}
        Some(result) => parts.push(answered(result)),
        None => parts.push("*No result*".to_owned()),
    }
    parts.join("\n\n")
}

fn summarised(summary: &Compaction) -> String {
    let writer = summary.writer.as_deref().map_or_else(String::new, |writer| format!(" by {writer}"));
    let title = format!("Summary of the events up to {}{writer}", summary.after_seq);
    details(&title, &said(Role::Assistant, &summary.summary))
}

fn changed(summary: &str, files: &[FileChange]) -> String {
    let files = files.iter().map(|file| format!("\n- {}", code(&file.to_string())));
    format!("*{summary}*\n{}", files.collect::<String>())
}

/// Renders a text of a role. A prompt is quoted, so that it stands out; a system message is shown as it is.
fn said(role: Role, text: &str) -> String {
    match role {
        Role::User => match lines_of_long_prompt(text) {
            Some(lines) => details(&format!("{}, {}", title(text), counted(lines, "line")), &in_quote(text)),
            None => in_quote(text),
        },
        Role::Assistant => {
            let text = inert(text, LineBreaks::Flow);
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
        Block::ToolResult { content, is_error, .. } => output(content, *is_error),
        // A call is an event of its own in the tree.
        Block::ToolUse { .. } => String::new(),
    }
}

fn called(tool: &str, input: &Json) -> String {
    let about = Tool::named(tool).key_text(input);
    let tool = plain(tool);
    if about.is_empty() && !input.fields().is_empty() {
        format!("**{tool}**\n\n{}", fenced_as("json", &indented(input)))
    } else if about.contains('\n') {
        format!("**{tool}**\n\n{}", fenced(&about))
    } else {
        format!("**{tool}** {}", code(&about))
    }
}

fn answered(result: &Answer) -> String {
    match &result.detail {
        Some(detail) if !result.is_error => fenced_as(language(detail), detail),
        Some(detail) => output(&ToolOutput::Text(detail.clone()), true),
        None => output(&result.output, result.is_error),
    }
}

fn output(content: &ToolOutput, is_error: bool) -> String {
    let content = content.text();
    match (content.trim().is_empty(), is_error) {
        (true, false) => "*No output*".to_owned(),
        (_, false) => folded("Result", &content),
        (_, true) => format!("Failed:\n\n{}", folded("Result", &content)),
    }
}

/// Returns a text as a code block; a long one is folded.
fn folded(title: &str, text: &str) -> String {
    let lines = text.lines().count();
    if lines <= LONGEST_RESULT.0 && text.len() <= LONGEST_RESULT.1 {
        return fenced(text);
    }
    details(&format!("{title}, {}", counted(lines as u64, "line")), &fenced(text))
}

/// Returns a part of the document that is folded. The title is one line of text.
fn details(title: &str, content: &str) -> String {
    let title = escaped(&visible_line(title));
    format!("<details>\n<summary>{title}</summary>\n\n{content}\n\n</details>")
}

fn quoted(title: &str, text: &str) -> String {
    format!("> **{title}**\n>\n{}", in_quote(text))
}

/// Returns a text as a quote, which it cannot leave.
fn in_quote(text: &str) -> String {
    // A tab behind the mark of the quote would be narrower, and code no code any more.
    let lines: Vec<String> = text.lines().map(without_tabs).collect();
    let inert = inert(&lines.join("\n"), LineBreaks::Stay);
    // Only spaces: a line with another white space is no empty line, and what is below it another block without it.
    let quoted =
        |line: &str| if line.trim_matches(' ').is_empty() { ">".to_owned() } else { format!("> {line}") };
    inert.lines().map(quoted).collect::<Vec<_>>().join("\n")
}

/// Returns a line with spaces for its tabs.
fn without_tabs(line: &str) -> String {
    let (mut out, mut width) = (String::with_capacity(line.len()), 0);
    for c in line.chars() {
        let columns = if c == '\t' { 4 - width % 4 } else { 1 };
        width += columns;
        match c {
            '\t' => out.extend(std::iter::repeat_n(' ', columns)),
            c => out.push(c),
        }
    }
    out
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
fn language(detail: &str) -> &'static str {
    if is_diff(detail) { "diff" } else { "" }
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
    use azureal_core::Seq;

    use super::*;

    fn tree_of(events: &[&str]) -> Tree {
        let mut tree = Tree::default();
        for (number, json) in (1..).zip(events) {
            tree.add(Seq(number), Event::from_json(json).unwrap());
        }
        tree
    }

    /// Returns the sections of some events.
    fn shown(events: &[&str]) -> String {
        let tree = tree_of(events);
        tree.top().filter_map(|node| section(&tree, node)).collect::<Vec<_>>().join("\n\n")
    }

    #[test]
    fn a_text_cannot_leave_its_block() {
        assert_eq!(fenced("a\n```\nb"), "````\na\n```\nb\n````");
        assert_eq!(fenced("plain\n"), "```\nplain\n```");
        assert_eq!(code("a``b"), "```a``b```");
        assert_eq!(code("`a`"), "`` `a` ``");
    }

    #[test]
    fn a_long_result_is_folded_and_a_prompt_is_quoted() {
        let long = "line\n".repeat(20);
        let result = shown(&[&format!(r#"{{"ToolResult":{{"content":{long:?}}}}}"#)]);
        assert!(
            result.starts_with("<details>\n<summary>Result, 20 lines</summary>\n\n```\nline\n"),
            "{result}"
        );
        assert!(result.ends_with("\n```\n\n</details>"), "{result}");
        assert_eq!(
            said(Role::User, "# Do it\n\n<b>now</b>\nhere"),
            "> ### Do it\n>\n> &lt;b>now&lt;/b>  \n> here"
        );
        let prompt = said(Role::User, &format!("See </summary>\n{}", "line\n".repeat(60)));
        assert!(
            prompt.starts_with(
                "<details>\n<summary>See &lt;/summary&gt;, 61 lines</summary>\n\n> See &lt;/summary>  \n> line  \n"
            ),
            "{prompt}"
        );
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
        let tree = tree_of(&[
            r#"{"UserMessage":{"content":"a"}}"#,
            r#"{"Init":{"cwd":"/","model":"m"}}"#,
            r#"{"ToolCall":{"tool_use_id":"1","tool_name":"Bash","input":{"command":"ls"}}}"#,
            r#"{"ToolResult":{"tool_use_id":"1","tool_name":"Bash","content":"x"}}"#,
            r#"{"AssistantText":{"text":"b"}}"#,
            r#"{"Complete":{"success":true,"duration_ms":1,"cost_usd":0}}"#,
            r#"{"UserMessage":{"content":"c"}}"#,
            r#"{"UserMessage":{"content":"d"}}"#,
            r#"{"Plan":{"name":"p","content":"e"}}"#,
            r#"{"AssistantText":{"text":"f"}}"#,
            r#"{"Message":{"role":"user","content":[{"type":"text","text":"g"},{"type":"text","text":"h"}]}}"#,
            r#"{"Message":{"role":"assistant","content":[{"type":"tool_use","id":"2","name":"Read","input":{}}]}}"#,
            r#"{"Message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"2","content":"i","is_error":false}]}}"#,
        ]);
        let mut speaker = None;
        let headings: Vec<&str> =
            tree.top().map(|node| heading(&node.event, &mut speaker).unwrap_or("")).collect();
        let (user, assistant) = ("## User", "## Assistant");
        assert_eq!(headings, [user, "", assistant, "", "", user, user, "", assistant, user, assistant]);
    }

    #[test]
    fn a_result_is_shown_with_its_detail() {
        assert_eq!(
            shown(&[
                r#"{"ToolResult":{"tool_name":"Edit","content":"updated","detail":"--- a/x\n+++ b/x\n@@\n+```"}}"#
            ]),
            "````diff\n--- a/x\n+++ b/x\n@@\n+```\n````"
        );
        assert_eq!(
            shown(&[r#"{"ToolResult":{"tool_name":"Bash","content":"y","detail":"x\ny","is_error":true}}"#]),
            "Failed:\n\n```\nx\ny\n```"
        );
        let changes =
            shown(&[r#"{"Changes":{"files":[{"path":"a","added":1}],"detail":"--- a/a\n+++ b/a\n@@\n+x"}}"#]);
        assert!(changes.ends_with("\n\n```diff\n--- a/a\n+++ b/a\n@@\n+x\n```"), "{changes}");
    }

    #[test]
    fn a_result_is_below_its_call() {
        let calls = [
            r#"{"ToolCall":{"tool_use_id":"a","tool_name":"Read","input":{"file_path":"a.rs"}}}"#,
            r#"{"ToolCall":{"tool_use_id":"b","tool_name":"mcp__db__query","input":{"sql":"SELECT `1`"}}}"#,
            r#"{"ToolCall":{"tool_use_id":"c","tool_name":"Task","input":{"description":"Look"}}}"#,
            r#"{"ToolCall":{"tool_use_id":"d","tool_name":"Bash","input":{"command":"ls"},"subagent":"c"}}"#,
            r##"{"AssistantText":{"text":"# Found","subagent":"c"}}"##,
            r#"{"ToolResult":{"tool_use_id":"b","content":"B"}}"#,
            r#"{"Message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"image","media_type":"image/png","data":"AQID"}]}]}}"#,
            r#"{"ToolResult":{"tool_use_id":"d","content":"D"}}"#,
            r#"{"ToolResult":{"tool_use_id":"c","content":"C","is_error":true}}"#,
        ];
        let expected = [
            "**Read** `a.rs`",
            "```\n[image: image/png, 3 bytes]\n```",
            "**mcp\\_\\_db\\_\\_query**",
            "```json\n{\n  \"sql\": \"SELECT `1`\"\n}\n```",
            "```\nB\n```",
            "**Task** `Look`",
            "<details>\n<summary>Subagent</summary>",
            "**Bash** `ls`",
            "```\nD\n```",
            "### Found",
            "</details>",
            "Failed:",
            "```\nC\n```",
        ];
        assert_eq!(shown(&calls), expected.join("\n\n"));
        assert_eq!(shown(&calls[..1]), "**Read** `a.rs`\n\n*No result*");
    }
}
