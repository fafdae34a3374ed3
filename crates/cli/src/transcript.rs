//! A session as people read it.

use std::borrow::Cow;

use azureal_core::event::{CommandRecord, Complete, MessageEvent, Outcome, SystemMessage};
use azureal_core::{Block, Event, Json, Role, Seq, StoredEvent, Tokens, Tool, visible, visible_line};

use crate::output::{Paint, counted};
use crate::times::Clock;
use crate::token_counts::{received, sent};

pub(crate) use azureal_core::duration_text as duration;

/// Renders events one after the other, as text for a terminal.
pub(crate) struct Transcript {
    paint: Paint,
    text: Text,
    detail: Detail,
    /// Whose words stand above, so that a heading is not repeated.
    speaker: Option<Speaker>,
    begun: bool,
    /// The numbers of the prompt that comes next.
    prompt_place: Option<String>,
}

/// What is done with text from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Text {
    /// What would act on the terminal is shown as what it is.
    Visible,
    /// It is printed as it is.
    Raw,
}

/// What is shown of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// A call in one line, of reasoning its length.
    Short,
    /// All of it.
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaker {
    System,
    User,
    Assistant,
    /// Lines that belong to nobody.
    Margin,
}

impl From<Role> for Speaker {
    fn from(role: Role) -> Self {
        match role {
            Role::User => Self::User,
            Role::Assistant => Self::Assistant,
            Role::System => Self::System,
        }
    }
}

impl Transcript {
    pub(crate) fn new(paint: Paint, text: Text) -> Self {
        Self { paint, text, detail: Detail::Short, speaker: None, begun: false, prompt_place: None }
    }

    /// Says which turn begins with the next prompt, and at which event if it is stored.
    pub(crate) fn begin_turn(&mut self, turn: usize, seq: Option<Seq>) {
        let event = seq.map_or_else(String::new, |seq| format!(", event {seq}"));
        self.prompt_place = Some(format!("turn {turn}{event}"));
    }

    /// Shows events in this detail.
    pub(crate) fn with(self, detail: Detail) -> Self {
        Self { detail, ..self }
    }

    /// Renders what an event adds to the transcript.
    pub(crate) fn event(&mut self, event: &Event) -> String {
        let mut out = String::new();
        match event {
            Event::UserMessage(message) => self.said(&mut out, Speaker::User, &message.content),
            Event::AssistantText(said) if said.subagent.is_none() => {
                self.said(&mut out, Speaker::Assistant, &said.text);
            }
            Event::SystemMessage(system) => {
                self.said(&mut out, Speaker::System, &system.content);
                if let Some(taken) = context_taken(system) {
                    self.note(&mut out, &taken);
                }
            }
            Event::Message(MessageEvent { role, content }) => {
                for block in content {
                    self.block(&mut out, *role, block);
                }
            }
            Event::Plan(plan) => {
                let title = format!("Plan {}", plan.name);
                self.note(&mut out, &title);
                self.said(&mut out, Speaker::Assistant, &plan.content);
            }
            Event::ToolCall(call) => {
                self.called(&mut out, &call.tool_name, &call.input, call.subagent.is_some());
            }
            Event::ToolResult(result) => self.answered(&mut out, &result.content, result.is_error),
            Event::AssistantText(said) => self.note(&mut out, &format!("subagent: {}", said.text)),
            Event::Error(error) => self.alarm(&mut out, &format!("error: {}", error.message)),
            Event::Complete(complete) => self.completed(&mut out, complete),
            Event::Reasoning(reasoning) if self.detail == Detail::Full => {
                self.note(&mut out, "reasoning");
                self.answered(&mut out, &reasoning.text, false);
            }
            Event::Reasoning(reasoning) => {
                let lines = counted(reasoning.text.lines().count() as u64, "line");
                self.note(&mut out, &format!("reasoning, {lines}"));
            }
            Event::Init(init) => {
                let agent = init.agent.as_deref().unwrap_or("agent");
                let model = if init.model.is_empty() { String::new() } else { format!(" {}", init.model) };
                self.note(&mut out, &format!("{agent}{model} in {}", init.cwd));
            }
            Event::Hook(hook) => self.note(&mut out, &format!("hook {}", hook.name)),
            Event::Command(command) => self.note(&mut out, &format!("command {}", command.name)),
            Event::ModelSwitch(switch) => self.note(&mut out, &switch.to_string()),
            Event::Compacting => self.note(&mut out, "compacting"),
            Event::Compacted => self.note(&mut out, "compacted"),
            Event::Unknown(unknown) => self.note(&mut out, &format!("unknown event {}", unknown.kind())),
        }
        out
    }

    /// Renders a row that cannot be read.
    pub(crate) fn damaged(&mut self, stored: &StoredEvent, why: &str) -> String {
        let mut out = String::new();
        let message = format!("event {} ({}) cannot be read: {why}", stored.seq, stored.kind);
        self.alarm(&mut out, &message);
        out
    }

    fn block(&mut self, out: &mut String, role: Role, block: &Block) {
        match block {
            Block::Text { text } => self.said(out, role.into(), text),
            Block::Image(image) => self.said(out, role.into(), &image.note()),
            Block::ToolUse { name, input, .. } => self.called(out, name, input, false),
            Block::ToolResult { content, is_error, .. } => {
                self.answered(out, &content.text(), *is_error);
            }
        }
    }

    fn said(&mut self, out: &mut String, speaker: Speaker, text: &str) {
        // Two prompts in a row are two messages; an agent's texts are one.
        let repeated = speaker == Speaker::Assistant && self.speaker == Some(Speaker::Assistant);
        self.gap(out);
        if !repeated {
            let role = match speaker {
                Speaker::System => Role::System,
                Speaker::User => Role::User,
                Speaker::Assistant | Speaker::Margin => Role::Assistant,
            };
            let place = self.prompt_place.take_if(|_| speaker == Speaker::User);
            let place = place.map_or_else(String::new, |place| self.paint.quiet(&format!("  {place}")));
            line(out, &format!("{}{place}", self.paint.heading(role.heading())));
        }
        self.speaker = Some(speaker);
        line(out, self.shown(text.trim_end_matches('\n')).as_ref());
    }

    fn called(&mut self, out: &mut String, tool_name: &str, input: &Json, by_subagent: bool) {
        if self.speaker != Some(Speaker::Assistant) {
            self.gap(out);
            line(out, &self.paint.heading(Role::Assistant.heading()));
            self.speaker = Some(Speaker::Assistant);
        }
        let about = Tool::named(tool_name).key_text(input);
        let indent = if by_subagent { "    " } else { "" };
        let tool = self.paint.heading(self.shown_line(tool_name).as_ref());
        let about = self.shown_line(&about);
        line(out, format!("{indent}> {tool} {about}").trim_end());
        if self.detail == Detail::Full {
            self.arguments(out, tool_name, input);
        }
    }

    /// Shows the arguments of a call that its line does not have.
    fn arguments(&self, out: &mut String, tool: &str, input: &Json) {
        let key = Tool::named(tool).key_text(input);
        for (name, value) in input.fields() {
            let value = match serde_json::from_str::<String>(value.get()) {
                Ok(text) if text == key && !text.contains('\n') => continue,
                Ok(text) => text,
                Err(_) => value.get().to_owned(),
            };
            let value = self.shown(value.trim_end_matches('\n')).replace('\n', "\n        ");
            let separator = if value.contains('\n') { "\n        " } else { " " };
            let argument = format!("    {}:{separator}{value}", self.shown_line(&name));
            line(out, &self.paint.quiet(argument.trim_end()));
        }
    }

    fn answered(&mut self, out: &mut String, content: &str, is_error: bool) {
        // A result belongs to its call, whatever message it is part of: no gap, no heading.
        self.begun = true;
        if is_error {
            line(out, &format!("    {}", self.paint.danger("failed:")));
        }
        for result in content.lines() {
            let indented = format!("    {}", self.shown(result));
            line(out, &self.paint.quiet(indented.trim_end()));
        }
    }

    fn completed(&mut self, out: &mut String, complete: &Complete) {
        let text = ending(complete);
        self.gap(out);
        self.speaker = Some(Speaker::Margin);
        let text = if complete.success {
            self.paint.success(&format!("✓ {text}"))
        } else {
            self.paint.danger(&format!("✗ {text}"))
        };
        line(out, &[vec![text], used(complete)].concat().join(" · "));
    }

    /// A line in the margin.
    fn note(&mut self, out: &mut String, text: &str) {
        let text = format!("[{}]", self.shown_line(text.trim_end()));
        self.margin(out);
        line(out, &self.paint.quiet(&text));
    }

    fn alarm(&mut self, out: &mut String, text: &str) {
        let text = self.shown(text).into_owned();
        self.margin(out);
        line(out, &self.paint.danger(&text));
    }

    fn margin(&mut self, out: &mut String) {
        if self.speaker != Some(Speaker::Margin) {
            self.gap(out);
        }
        self.begun = true;
        self.speaker = Some(Speaker::Margin);
    }

    fn gap(&mut self, out: &mut String) {
        if self.begun {
            out.push('\n');
        }
        self.begun = true;
    }

    fn shown<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.text {
            Text::Visible => visible(text),
            Text::Raw => Cow::Borrowed(text),
        }
    }

    fn shown_line<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.text {
            Text::Visible => visible_line(text),
            Text::Raw => Cow::Borrowed(text),
        }
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

/// Says when the context in a system message was taken, and by which commands; nothing if it has none.
fn context_taken(system: &SystemMessage) -> Option<String> {
    let commands = system.context_commands.as_deref().unwrap_or_default();
    if system.context_executed_at.is_none() && commands.is_empty() {
        return None;
    }
    let mut text = "context taken".to_owned();
    if let Some(at) = &system.context_executed_at {
        text.push_str(&format!(" {}", Clock::read().local(at)));
    }
    let commands: Vec<String> = commands
        .iter()
        .map(|CommandRecord { name, command, exit_code, duration_ms }| {
            let name = if name == command { String::new() } else { format!("{name}: ") };
            let code = exit_code.filter(|code| *code != 0).map(|code| format!(", exit code {code}"));
            format!("{name}`{command}` ({}{})", duration(*duration_ms), code.unwrap_or_default())
        })
        .collect();
    if !commands.is_empty() {
        text.push_str(&format!(" by {}", commands.join("; ")));
    }
    Some(text)
}

/// Says how a turn ended and how long it took.
pub(crate) fn ending(complete: &Complete) -> String {
    let (outcome, took) = (complete.ending(), duration(complete.duration_ms));
    match outcome {
        // A timeout is set in seconds.
        Outcome::Timeout => format!("{outcome} after {}", took.replace(".0 s", " s")),
        _ => format!("{outcome} in {took}"),
    }
}

/// Returns what a turn used, in parts: tokens sent, tokens received, cost. Those that are not known are left out.
pub(crate) fn used(complete: &Complete) -> Vec<String> {
    let tokens = complete.usage.map(Tokens::from).unwrap_or_default();
    let mut parts = Vec::new();
    if tokens.input > 0 || tokens.output > 0 {
        parts.extend([sent(tokens), received(tokens)]);
    }
    // Cents do not tell small costs apart.
    match complete.cost_usd {
        cost if cost >= 0.01 => parts.push(format!("${cost:.2}")),
        cost if cost > 0.0 => parts.push(format!("${cost:.4}")),
        _ => {}
    }
    parts
}

#[cfg(test)]
mod tests {
    use azureal_core::event::{Reasoning, ToolCall, ToolResult, Usage};

    use super::*;

    fn transcript(events: &[Event]) -> String {
        let mut transcript = Transcript::new(Paint::PLAIN, Text::Visible);
        events.iter().map(|event| transcript.event(event)).collect()
    }

    #[test]
    fn a_session_reads_like_a_conversation() {
        let call = Event::ToolCall(ToolCall {
            tool_use_id: "t".into(),
            tool_name: "Bash".into(),
            file_path: None,
            input: r#"{"command":"ls\n-la"}"#.parse().unwrap(),
            omitted: None,
            starts: None,
            subagent: None,
        });
        let result = Event::ToolResult(ToolResult {
            tool_name: "Bash".into(),
            content: "a\nb\x1b[2J".into(),
            is_error: true,
            ..ToolResult::default()
        });
        let complete = Event::Complete(Complete {
            success: true,
            duration_ms: 1234,
            cost_usd: 0.5,
            usage: Some(Usage {
                input_tokens: 74_000,
                output_tokens: 1_200,
                cache_read_tokens: 69_000,
                ..Usage::default()
            }),
            ..Complete::default()
        });
        let reasoning =
            Event::Reasoning(Reasoning { text: "secret\nthoughts".into(), ..Reasoning::default() });
        let unknown = Event::from_json(r#"{"New\u001bKind":{}}"#).unwrap();
        insta::assert_snapshot!(
            transcript(&[
                Event::user("Hello"),
                reasoning,
                Event::assistant("Looking."),
                call,
                result,
                Event::assistant("Two files.\n"),
                complete,
                unknown,
                Event::error("x", "no network"),
                Event::user("More"),
            ]),
            @r"
        ## User
        Hello

        [reasoning, 2 lines]

        ## Assistant
        Looking.
        > Bash ls␊-la
            failed:
            a
            b␛[2J

        Two files.

        ✓ done in 1.2 s · 74k in, 93 % cached · 1.2k out · $0.50
        [unknown event New␛Kind]
        error: no network

        ## User
        More
        "
        );
    }

    #[test]
    fn a_system_message_says_when_its_context_was_taken() {
        let record = |name: &str, command: &str, exit_code, duration_ms| CommandRecord {
            name: name.into(),
            command: command.into(),
            exit_code,
            duration_ms,
        };
        let system = Event::SystemMessage(SystemMessage {
            content: "Be brief.".into(),
            context_executed_at: Some("2026-01-31T09:30:00Z".into()),
            context_commands: Some(vec![
                record("Git", "git status\n--short", Some(0), 120),
                record("exit 1", "exit 1", Some(1), 3),
            ]),
        });
        let plain =
            Event::SystemMessage(SystemMessage { content: "Later.".into(), ..SystemMessage::default() });
        let local = Clock::read().local("2026-01-31T09:30:00Z");
        let shown = transcript(&[system, Event::user("Hi"), plain]).replace(&local, "[local time]");
        insta::assert_snapshot!(shown, @r"
        ## System
        Be brief.

        [context taken [local time] by Git: `git status␊--short` (0.1 s); `exit 1` (0.0 s, exit code 1)]

        ## User
        Hi

        ## System
        Later.
        ");
    }

    #[test]
    fn a_turn_that_timed_out_says_after_how_many_seconds() {
        let text = |duration_ms| {
            ending(&Complete { outcome: Some(Outcome::Timeout), duration_ms, ..Complete::default() })
        };
        assert_eq!(text(3_020), "timed out after 3 s");
        assert_eq!(text(1_500), "timed out after 1.5 s");
        assert_eq!(text(600_000), "timed out after 10 min 0 s");
    }

    #[test]
    fn the_end_of_a_turn_leaves_out_what_is_not_known() {
        let line = |success, cost_usd, usage| {
            transcript(&[Event::Complete(Complete { success, cost_usd, usage, ..Complete::default() })])
        };
        assert_eq!(line(true, 0.0, None), "✓ done in 0.0 s\n");
        assert_eq!(line(false, 0.0, Some(Usage::default())), "✗ failed in 0.0 s\n");
        let usage = Usage { input_tokens: 200, output_tokens: 40, ..Usage::default() };
        assert_eq!(line(true, 0.002, Some(usage)), "✓ done in 0.0 s · 200 in · 40 out · $0.0020\n");
    }
}
