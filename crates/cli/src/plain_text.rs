//! Blocks of a session as plain text, for pipes and files: texts as they were written.

use std::borrow::Cow;

use azureal::transcript::{Author, Block, Call, CallState, Content, Level, Text, ending};
use azureal_core::event::Complete;
use azureal_core::{Role, visible, visible_line};

use crate::output::counted;

/// What is done with text from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escapes {
    /// What would act on the terminal is shown as what it is.
    Visible,
    /// It is printed as it is.
    Raw,
}

/// Renders blocks one after the other.
pub(crate) struct PlainText {
    escapes: Escapes,
    /// Whether everything is shown: arguments, reasoning.
    is_full: bool,
    /// The author of the text above, so that a heading is not repeated.
    speaker: Option<Speaker>,
    has_begun: bool,
    /// The call whose line is the last one, by its event: its result follows without its name.
    last_call: Option<azureal_core::Seq>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaker {
    Of(Role),
    /// Lines that belong to nobody.
    Margin,
}

impl PlainText {
    pub(crate) fn new(escapes: Escapes, is_full: bool) -> Self {
        Self { escapes, is_full, speaker: None, has_begun: false, last_call: None }
    }

    /// Renders a block. `place` are the numbers of a prompt.
    pub(crate) fn block(&mut self, block: &Block, place: Option<&str>) -> String {
        let mut out = String::new();
        match &block.content {
            Content::Text(text) => self.text(&mut out, text, place),
            Content::Call(call) => {
                if self.last_call != Some(block.seq) {
                    self.call_line(&mut out, call);
                }
                self.result(&mut out, call);
            }
            Content::Notice(Level::Error, text) => {
                self.margin(&mut out);
                line(&mut out, &format!("error: {}", self.shown(text)));
            }
            Content::Notice(_, text) => self.note(&mut out, text),
            Content::End(complete) => self.end(&mut out, complete),
        }
        self.last_call = None;
        out
    }

    /// Renders the line of a call that has no result yet.
    pub(crate) fn running(&mut self, block: &Block) -> String {
        let mut out = String::new();
        if let Content::Call(call) = &block.content {
            self.call_line(&mut out, call);
            self.last_call = Some(block.seq);
        }
        out
    }

    fn text(&mut self, out: &mut String, text: &Text, place: Option<&str>) {
        match text.author {
            Author::User => self.said(out, Role::User, &text.source, place),
            Author::System => self.said(out, Role::System, &text.source, None),
            Author::Agent => self.said(out, Role::Assistant, &text.source, None),
            Author::Plan => {
                self.note(out, format!("plan {}", text.title.as_deref().unwrap_or_default()).trim_end());
                self.said(out, Role::Assistant, &text.source, None);
            }
            Author::Subagent => self.note(out, &format!("subagent: {}", text.source)),
            Author::Reasoning if self.is_full => {
                self.note(out, "reasoning");
                self.indented(out, &text.source);
            }
            Author::Reasoning => {
                let lines = counted(text.source.lines().count() as u64, "line");
                self.note(out, &format!("reasoning, {lines}"));
            }
        }
    }

    fn said(&mut self, out: &mut String, role: Role, text: &str, place: Option<&str>) {
        // Two prompts in a row are two messages; an agent's texts are one.
        let is_repeated = role == Role::Assistant && self.speaker == Some(Speaker::Of(role));
        self.gap(out);
        if !is_repeated {
            self.heading(out, role, place);
        }
        self.speaker = Some(Speaker::Of(role));
        line(out, &self.shown(text.trim_end_matches('\n')));
    }

    fn heading(&self, out: &mut String, role: Role, place: Option<&str>) {
        let place = place.map(|place| format!("  {place}"));
        line(out, &format!("{}{}", role.heading(), place.unwrap_or_default()));
    }

    fn call_line(&mut self, out: &mut String, call: &Call) {
        if self.speaker != Some(Speaker::Of(Role::Assistant)) {
            self.gap(out);
            self.heading(out, Role::Assistant, None);
            self.speaker = Some(Speaker::Of(Role::Assistant));
        }
        let indent = if call.is_subagents { "    " } else { "" };
        let text = format!("{indent}> {} {}", self.shown_line(&call.tool), self.shown_line(&call.key));
        line(out, text.trim_end());
        if self.is_full {
            if call.key.contains('\n') {
                self.indented(out, &call.key);
            }
            for (name, value) in &call.arguments {
                let value = self.shown(value.trim_end_matches('\n')).replace('\n', "\n        ");
                let separator = if value.contains('\n') { "\n        " } else { " " };
                line(out, format!("    {}:{separator}{value}", self.shown_line(name)).trim_end());
            }
        }
        for changed in &call.diff {
            self.indented(out, changed);
        }
    }

    fn result(&mut self, out: &mut String, call: &Call) {
        self.has_begun = true;
        match call.state {
            CallState::Failed => line(out, "    failed:"),
            CallState::NoResult => line(out, "    no result"),
            CallState::Running | CallState::Done => {}
        }
        self.indented(out, &call.output);
    }

    fn indented(&self, out: &mut String, text: &str) {
        for one in text.lines() {
            line(out, format!("    {}", self.shown(one)).trim_end());
        }
    }

    fn end(&mut self, out: &mut String, complete: &Complete) {
        self.gap(out);
        self.speaker = Some(Speaker::Margin);
        let mark = if complete.success { '✓' } else { '✗' };
        line(out, &format!("{mark} {}", ending(complete).join(" · ")));
    }

    fn note(&mut self, out: &mut String, text: &str) {
        self.margin(out);
        let text = self.shown_line(text.trim_end());
        let is_note = text.starts_with('[') && text.ends_with(']');
        line(out, &if is_note { text.into_owned() } else { format!("[{text}]") });
    }

    fn margin(&mut self, out: &mut String) {
        if self.speaker != Some(Speaker::Margin) {
            self.gap(out);
        }
        self.has_begun = true;
        self.speaker = Some(Speaker::Margin);
    }

    fn gap(&mut self, out: &mut String) {
        if self.has_begun {
            out.push('\n');
        }
        self.has_begun = true;
    }

    fn shown<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.escapes {
            Escapes::Visible => visible(text),
            Escapes::Raw => Cow::Borrowed(text),
        }
    }

    fn shown_line<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.escapes {
            Escapes::Visible => visible_line(text),
            Escapes::Raw => Cow::Borrowed(text),
        }
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}
