//! The parts of the page: one element for each event.

use azureal_core::event::{
    Changes, Complete, ErrorEvent, FileChange, MessageEvent, Outcome, Plan, Reasoning, SystemMessage,
    ToolCall, Undo,
};
use azureal_core::{
    Block, Compaction, Event, Image, OutputPart, Role, Seq, Tool, ToolOutput, counted, duration_text,
};

use super::prose::prose;
use super::text::{code_block, escaped};
use crate::export::shown::{self, TITLE, indented, is_diff, lines_of_long_prompt};
use crate::export::tree::{Answer, Node, Tree};

/// Writes the elements of events, and remembers who answers.
#[derive(Default)]
pub(super) struct Renderer {
    agent: Option<String>,
}

impl Renderer {
    /// Renders an event; empty for an event that matters only to programs.
    pub(super) fn node(&mut self, tree: &Tree, node: &Node) -> String {
        let Node { seq, event, result, .. } = node;
        let seq = *seq;
        match event {
            Event::UserMessage(message) => article(seq, "prompt", "You", &prompt(&message.content)),
            Event::AssistantText(text) => article(seq, "answer", self.name(), &prose(&text.text)),
            Event::ToolCall(call) => {
                let inner: String = tree.children(node).map(|child| self.node(tree, child)).collect();
                tool(seq, call, result.as_ref(), &inner)
            }
            Event::ToolResult(result) => {
                let call = ToolCall { tool_name: result.tool_name.clone(), ..ToolCall::default() };
                tool(seq, &call, Some(&Answer::of(Seq::START, result.clone())), "")
            }
            Event::Reasoning(Reasoning { text, .. }) => {
                folded(seq, "thinking", &format!("<b>Thinking</b> {}", title(text)), &prose(text))
            }
            Event::SystemMessage(system) => self.system(seq, system),
            Event::Message(MessageEvent { role, content }) => self.message(seq, *role, content),
            Event::Plan(Plan { name, content }) => {
                article(seq, "plan", &format!("Plan {}", escaped(name)), &prose(content))
            }
            Event::Command(command) => note(seq, &format!("Command <code>{}</code>", escaped(&command.name))),
            Event::Error(error) => failure(seq, error),
            Event::Init(init) => {
                self.agent.clone_from(&init.agent);
                String::new()
            }
            Event::ModelSwitch(switch) => {
                self.agent = switch.agent.clone().or(self.agent.take());
                note(seq, &escaped(&switch.to_string()))
            }
            Event::Complete(complete) => ending(seq, complete),
            Event::Changes(changes) => changed(seq, changes),
            Event::Undo(undo) => undone(seq, undo),
            Event::Hook(hook) if hook.output.trim().is_empty() => String::new(),
            Event::Hook(hook) => {
                let summary = format!("<b>Hook</b> <code>{}</code>", escaped(&hook.name));
                folded(seq, "hook", &summary, &code_block(&hook.output, false))
            }
            Event::Unknown(unknown) => {
                note(seq, &format!("Unknown event <code>{}</code>", escaped(unknown.kind())))
            }
            Event::Compacting | Event::Compacted => String::new(),
        }
    }

    fn name(&self) -> &str {
        self.agent.as_deref().unwrap_or("Assistant")
    }

    fn system(&self, seq: Seq, system: &SystemMessage) -> String {
        if system.content.is_empty() {
            return String::new();
        }
        let summary = format!("<b>System message</b> {}", title(&system.content));
        folded(seq, "system", &summary, &code_block(&system.content, false))
    }

    /// Renders a message that is one event, block by block.
    fn message(&self, seq: Seq, role: Role, content: &[Block]) -> String {
        let (class, name) = match role {
            // The user's program answers for a tool.
            Role::User if has_results(content) => ("answer", "Result"),
            Role::User => ("prompt", "You"),
            Role::Assistant => ("answer", self.name()),
            Role::System => ("answer", "System"),
        };
        let blocks: String = content
            .iter()
            .map(|block| match block {
                Block::Text { text } if role == Role::Assistant => prose(text),
                Block::Text { text } => prompt(text),
                Block::Image(image) => media(image),
                Block::ToolResult { content, is_error, .. } => output(Seq::START, content, *is_error),
                // A call is an event of its own in the tree.
                Block::ToolUse { .. } => String::new(),
            })
            .collect();
        article(seq, class, name, &blocks)
    }
}

/// Returns whether a message has results of tools.
pub(super) fn has_results(content: &[Block]) -> bool {
    content.iter().any(|block| matches!(block, Block::ToolResult { .. }))
}

/// Returns the place of an event as attributes and a link to it; empty for a part of an event.
fn place(seq: Seq) -> (String, String) {
    if seq == Seq::START {
        return (String::new(), String::new());
    }
    (format!(" id=\"e{seq}\""), format!("<a class=\"seq\" href=\"#e{seq}\">#{seq}</a>"))
}

/// `name` is HTML.
fn article(seq: Seq, class: &str, name: &str, content: &str) -> String {
    let (id, link) = place(seq);
    let name = if class == "plan" { name.to_owned() } else { escaped(name) };
    format!("<article{id} class=\"{class}\">{link}<h2>{name}</h2>\n{content}</article>\n")
}

/// `summary` and `content` are HTML.
fn folded(seq: Seq, class: &str, summary: &str, content: &str) -> String {
    let (id, link) = place(seq);
    // The link is no part of what a screen reader says of the summary.
    format!("<details{id} class=\"{class}\"><summary>{summary}</summary>\n{link}{content}\n</details>\n")
}

/// `text` is HTML.
fn note(seq: Seq, text: &str) -> String {
    let (id, link) = place(seq);
    format!("<p{id} class=\"note\">{link}{text}</p>\n")
}

/// Returns the first line of a text, cut, as HTML.
pub(super) fn title(text: &str) -> String {
    escaped(&shown::title(text))
}

/// Returns a prompt as it was typed; a long one is folded.
fn prompt(text: &str) -> String {
    let plain = format!("<div class=\"plain\" dir=\"auto\">{}</div>\n", escaped(text.trim_end()));
    let Some(lines) = lines_of_long_prompt(text) else { return plain };
    let summary = format!("{} <span class=\"size\">{}</span>", title(text), counted(lines, "line"));
    format!("<details class=\"long\"><summary>{summary}</summary>\n{plain}</details>\n")
}

/// Returns a call with its input, the work of its subagent and its result.
fn tool(seq: Seq, call: &ToolCall, result: Option<&Answer>, inner: &str) -> String {
    let about = Tool::named(&call.tool_name).key_text(&call.input);
    let (class, mark, what) = match result {
        Some(result) if result.is_error => ("tool bad", "✗", "failed"),
        Some(_) => ("tool ok", "✓", "done"),
        None => ("tool open", "…", "no result"),
    };
    let size = result.map(|result| result.output.text().lines().count() as u64).filter(|lines| *lines > 1);
    let size = size
        .map_or_else(String::new, |lines| format!(" <span class=\"size\">{}</span>", counted(lines, "line")));
    let name = if call.tool_name.is_empty() { "Tool" } else { &call.tool_name };
    let summary = format!(
        "<span class=\"mark\" title=\"{what}\">{mark}</span> <b>{}</b> <code>{}</code>{size}",
        escaped(name),
        title(&about)
    );
    let mut content = input(call, &about);
    if !inner.is_empty() {
        content.push_str(&format!("<div class=\"inner\">\n{inner}</div>\n"));
    }
    match result {
        Some(result) => content.push_str(&answered(result, call.detail.as_deref())),
        None => content.push_str("<p class=\"note\">No result.</p>\n"),
    }
    folded(seq, class, &summary, &content)
}

/// Returns the input of a call: its diff, its command, or its fields.
fn input(call: &ToolCall, about: &str) -> String {
    if let Some(detail) = &call.detail {
        return code_block(detail, is_diff(detail));
    }
    let fields = call.input.fields();
    let description = call.input.string_field("description").unwrap_or_default();
    let mut out = String::new();
    if about.is_empty() || fields.len() > 1 + usize::from(!description.is_empty()) {
        if !fields.is_empty() {
            out.push_str(&code_block(&indented(&call.input), false));
        }
        return out;
    }
    if !description.is_empty() && description != about {
        out.push_str(&format!("<p class=\"note\">{}</p>\n", escaped(&description)));
    }
    // The title has only the first line of it, and only its beginning.
    if about.contains('\n') || about.chars().count() > TITLE {
        out.push_str(&code_block(about, false));
    }
    out
}

fn answered(result: &Answer, detail_of_call: Option<&str>) -> String {
    let shown = match &result.detail {
        Some(detail) => &ToolOutput::Text(detail.clone()),
        None => &result.output,
    };
    if matches!(shown, ToolOutput::Text(text) if detail_of_call.is_some_and(|detail| detail == text)) {
        // The call shows it already.
        return output(result.seq, &ToolOutput::Parts(Vec::new()), result.is_error);
    }
    let block = output(result.seq, shown, result.is_error);
    let omitted = result.omitted.filter(|omitted| *omitted > 0 && result.detail.is_none());
    let omitted = omitted.map_or_else(String::new, |omitted| {
        format!("<p class=\"note\">{} left out when the turn was stored.</p>\n", counted(omitted, "line"))
    });
    format!("{block}{omitted}")
}

fn output(seq: Seq, content: &ToolOutput, is_error: bool) -> String {
    let (id, _) = place(seq);
    let class = if is_error { "result bad" } else { "result" };
    let parts: String = match content {
        ToolOutput::Text(text) if text.trim().is_empty() => "<p class=\"note\">No output.</p>".to_owned(),
        ToolOutput::Text(text) => code_block(text, is_diff(text)),
        ToolOutput::Parts(parts) => parts
            .iter()
            .map(|part| match part {
                OutputPart::Text(text) => code_block(text, is_diff(text)),
                OutputPart::Image(image) => media(image),
            })
            .collect(),
    };
    format!("<div{id} class=\"{class}\">{parts}</div>\n")
}

/// Returns a picture, a sound or a film, with its bytes in the page.
fn media(image: &Image) -> String {
    let address = image.data_url();
    match image.media_type.kind() {
        "audio" => format!("<audio controls preload=\"none\" src=\"{address}\"></audio>\n"),
        "video" => format!("<video controls preload=\"none\" src=\"{address}\"></video>\n"),
        _ => format!("<img alt=\"{}\" src=\"{address}\">\n", escaped(&image.note())),
    }
}

fn failure(seq: Seq, error: &ErrorEvent) -> String {
    article(seq, "failure", "Error", &format!("<div class=\"plain\">{}</div>\n", escaped(&error.message)))
}

fn ending(seq: Seq, complete: &Complete) -> String {
    let outcome = complete.ending();
    let mut words = vec![outcome.to_string()];
    if complete.duration_ms > 0 {
        words.push(duration_text(complete.duration_ms));
    }
    if complete.cost_usd > 0.0 {
        words.push(format!("${:.4}", complete.cost_usd));
    }
    if let Some(usage) = &complete.usage {
        words.push(format!(
            "{} tokens in, {} out",
            grouped(usage.input_tokens),
            grouped(usage.output_tokens)
        ));
    }
    let class = if outcome == Outcome::Done { "end" } else { "end bad" };
    let (id, link) = place(seq);
    format!("<p{id} class=\"{class}\">{link}{}</p>\n", escaped(&words.join(" · ")))
}

/// Returns a number with spaces between groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

fn files(files: &[FileChange]) -> String {
    let lines: String =
        files.iter().map(|file| format!("<li><code>{}</code></li>\n", escaped(&file.to_string()))).collect();
    if lines.is_empty() { lines } else { format!("<ul class=\"files\">\n{lines}</ul>\n") }
}

fn changed(seq: Seq, changes: &Changes) -> String {
    let detail = changes.detail.as_ref().map_or_else(String::new, |detail| code_block(detail, true));
    let summary = format!("<b>Files</b> {}", escaped(&changes.summary()));
    folded(seq, "changes", &summary, &format!("{}{detail}", files(&changes.files)))
}

fn undone(seq: Seq, undo: &Undo) -> String {
    let summary = format!("<b>Undo</b> {}", escaped(&undo.summary()));
    folded(seq, "changes", &summary, &files(&undo.files))
}

/// Returns the summary of the events before a place.
pub(super) fn compaction(compaction: &Compaction) -> String {
    let writer =
        compaction.writer.as_deref().map_or_else(String::new, |writer| format!(" by {}", escaped(writer)));
    format!(
        "<details class=\"compaction\"><summary><b>Summary</b> of the events up to {}{writer}</summary>\n{}</details>\n",
        compaction.after_seq,
        prose(&compaction.summary)
    )
}
