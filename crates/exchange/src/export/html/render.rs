//! The parts of the page: one element for each event.

use azureal_core::event::{
    Changes, Complete, ErrorEvent, FileChange, MessageEvent, Outcome, Plan, Reasoning, SystemMessage,
    ToolCall, ToolResult, Undo,
};
use azureal_core::{
    Block, Compaction, Event, Image, Json, OutputPart, Role, Seq, Tool, ToolOutput, counted, duration_text,
};

use super::prose::prose;
use super::text::{code_block, escaped, is_diff};
use super::tree::{Node, Tree};

/// The longest prompt that is shown whole, in lines and characters.
const LONGEST_PROMPT: (usize, usize) = (60, 6000);
/// The characters of a title.
const TITLE: usize = 90;

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
                tool(seq, &call, Some(result), "")
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
                Block::ToolUse { name, input, .. } => {
                    let call =
                        ToolCall { tool_name: name.clone(), input: input.clone(), ..ToolCall::default() };
                    tool(Seq::START, &call, None, "")
                }
                Block::ToolResult { content, is_error, .. } => output(content, *is_error),
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
    format!("<details{id} class=\"{class}\"><summary>{link}{summary}</summary>\n{content}\n</details>\n")
}

/// `text` is HTML.
fn note(seq: Seq, text: &str) -> String {
    let (id, link) = place(seq);
    format!("<p{id} class=\"note\">{link}{text}</p>\n")
}

/// Returns the first line of a text, cut.
pub(super) fn title(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let start: String = line.chars().take(TITLE).collect();
    let more = if start.len() < line.len() { "…" } else { "" };
    format!("{}{more}", escaped(&start))
}

/// Returns a prompt as it was typed; a long one is folded.
fn prompt(text: &str) -> String {
    let plain = format!("<div class=\"plain\" dir=\"auto\">{}</div>\n", escaped(text.trim_end()));
    let lines = text.lines().count();
    if lines <= LONGEST_PROMPT.0 && text.len() <= LONGEST_PROMPT.1 {
        return plain;
    }
    let summary = format!("{} <span class=\"size\">{}</span>", title(text), counted(lines as u64, "line"));
    format!("<details class=\"long\"><summary>{summary}</summary>\n{plain}</details>\n")
}

/// Returns a call with its input, the work of its subagent and its result.
fn tool(seq: Seq, call: &ToolCall, result: Option<&ToolResult>, inner: &str) -> String {
    let about = Tool::named(&call.tool_name).key_text(&call.input);
    let (class, mark, what) = match result {
        Some(result) if result.is_error => ("tool bad", "✗", "failed"),
        Some(_) => ("tool ok", "✓", "done"),
        None => ("tool open", "…", "no result"),
    };
    let size = result.map(|result| result.content.lines().count() as u64).filter(|lines| *lines > 1);
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

/// Returns JSON over several lines, or as it is where it cannot be read.
fn indented(input: &Json) -> String {
    let value = serde_json::from_str::<serde_json::Value>(input.as_str());
    value
        .ok()
        .and_then(|value| serde_json::to_string_pretty(&value).ok())
        .unwrap_or_else(|| input.as_str().to_owned())
}

fn answered(result: &ToolResult, detail_of_call: Option<&str>) -> String {
    let text = result.detail.as_deref().unwrap_or(&result.content);
    if detail_of_call.is_some_and(|detail| detail == text) {
        return String::new();
    }
    let block = output(&ToolOutput::Text(text.to_owned()), result.is_error);
    let omitted = result.omitted.filter(|omitted| *omitted > 0 && result.detail.is_none());
    let omitted = omitted.map_or_else(String::new, |omitted| {
        format!("<p class=\"note\">{} left out when the turn was stored.</p>\n", counted(omitted, "line"))
    });
    format!("{block}{omitted}")
}

fn output(content: &ToolOutput, is_error: bool) -> String {
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
    format!("<div class=\"{class}\">{parts}</div>\n")
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
pub(super) fn compaction(compaction: &Compaction, summary: &str) -> String {
    let writer =
        compaction.writer.as_deref().map_or_else(String::new, |writer| format!(" by {}", escaped(writer)));
    format!(
        "<details class=\"compaction\"><summary><b>Summary</b> of the events up to {}{writer}</summary>\n{}</details>\n",
        compaction.after_seq,
        prose(summary)
    )
}
