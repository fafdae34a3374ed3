//! Prints the blocks of a session, each once.

use azureal::transcript::{
    Author, Block, CallState, Content, Fold, Level, Places, Row, Span, Style, Text, Tone, Transcript,
};
use azureal_core::event::Init;
use azureal_core::{Event, Seq, Tool};

use crate::output::Output;
use crate::plain_text::{Escapes, PlainText};
use crate::screen::Screen;
use crate::times::Clock;

/// Folds events into blocks, and prints each when nothing that is expected can change it.
pub(crate) struct BlockPrinter {
    transcript: Transcript,
    form: Form,
    /// The number of the last event. Events of a running turn have no numbers of their own yet.
    seq: Seq,
    /// The numbers of prompts that are not printed yet.
    prompts: Vec<(Seq, String)>,
    /// The running calls that were printed already.
    announced: Vec<Seq>,
    /// The block that was printed last.
    last: Option<Block>,
}

/// What blocks become.
enum Form {
    /// Rows of a terminal.
    Rows(Screen),
    Text(PlainText),
}

/// When blocks are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// When all before them are: a result is under its call.
    InOrder,
    /// At once: a finished call overtakes one that is still running.
    AtOnce,
    /// Now: no event follows.
    Now,
}

impl BlockPrinter {
    /// Prints rows for a terminal.
    pub(crate) fn on_screen(screen: Screen, places: Places) -> Self {
        Self::new(Form::Rows(screen), places)
    }

    /// Prints plain text: all of it, or what is enough to follow.
    pub(crate) fn as_text(escapes: Escapes, fold: Fold, places: Places) -> Self {
        Self::new(Form::Text(PlainText::new(escapes, fold == Fold::Open)), places)
    }

    fn new(form: Form, places: Places) -> Self {
        Self {
            transcript: Transcript::new(places),
            form,
            seq: Seq::START,
            prompts: Vec::new(),
            announced: Vec::new(),
            last: None,
        }
    }

    /// Adds an event. `prompt` are the numbers of the turn that it begins.
    pub(crate) fn push(&mut self, event: &Event, prompt: Option<String>) {
        self.seq = self.seq.next();
        self.prompts.extend(prompt.map(|prompt| (self.seq, prompt)));
        match (event, &self.form) {
            (Event::Init(init), Form::Text(_)) => {
                let named = Event::Init(Init { cwd: String::new(), ..init.clone() });
                self.transcript.push(self.seq, &named);
                let agent = init.agent.as_deref().unwrap_or("agent");
                let model = if init.model.is_empty() { String::new() } else { format!(" {}", init.model) };
                self.transcript.note(Level::Info, format!("{agent}{model} in {}", init.cwd));
            }
            (Event::SystemMessage(system), _) if system.context_executed_at.is_some() => {
                let mut local = system.clone();
                local.context_executed_at = local.context_executed_at.map(|at| Clock::read().local(&at));
                self.transcript.push(self.seq, &Event::SystemMessage(local));
            }
            _ => self.transcript.push(self.seq, event),
        }
    }

    /// Adds a notice in place of an event.
    pub(crate) fn note(&mut self, text: String) {
        self.seq = self.seq.next();
        self.transcript.note(Level::Info, text);
    }

    /// Begins a text that the agent writes, and returns it. The event that finishes it takes its place.
    pub(crate) fn begin_text(&mut self, delta: &str) -> Option<Text> {
        self.transcript.push_delta(self.seq.next(), delta);
        match &self.transcript.blocks().last()?.content {
            Content::Text(text) if !text.is_finished => Some(text.clone()),
            _ => None,
        }
    }

    /// Adds an event that cannot be read.
    pub(crate) fn damaged(&mut self, stored: Seq, kind: &str, why: &str) {
        self.seq = self.seq.next();
        self.transcript.note(Level::Error, format!("event {stored} ({kind}) cannot be read: {why}"));
    }

    /// Returns what can be printed.
    pub(crate) fn print(&mut self, due: Due, out: &Output) -> String {
        let blocks = match due {
            Due::InOrder => self.transcript.take_stable(),
            Due::AtOnce => self.transcript.take_finished(),
            Due::Now => self.transcript.take_all(),
        };
        let mut text = String::new();
        for block in blocks {
            if due == Due::AtOnce && is_subagents(&block) {
                self.announce(&mut text, out, |call| Tool::named(call) == Tool::Task);
            }
            self.block(&mut text, block, out);
        }
        if due == Due::AtOnce && matches!(self.form, Form::Text(_)) {
            self.announce(&mut text, out, |_| true);
        }
        text
    }

    /// Returns the call that runs, if there is one: its tool and what it is about.
    pub(crate) fn running(&self) -> Option<String> {
        self.transcript.blocks().iter().rev().find_map(|block| match &block.content {
            Content::Call(call) if call.state == CallState::Running => {
                Some(format!("{} {}", call.tool, call.key).trim_end().to_owned())
            }
            _ => None,
        })
    }

    /// Returns the blank line in front of a block, where one belongs. The block counts as printed.
    pub(crate) fn gap(&mut self, block: Block) -> &'static str {
        let has_gap = self.last.as_ref().is_some_and(|last| last.has_gap_after(&block));
        self.last = Some(block);
        if has_gap { "\n" } else { "" }
    }

    /// Returns the number of the last event.
    pub(crate) fn last_event(&self) -> Seq {
        self.seq
    }

    /// Takes the finished blocks without printing them.
    pub(crate) fn take_finished(&mut self) -> Vec<Block> {
        self.transcript.take_finished()
    }

    /// Prints a block, after a blank line where one belongs.
    pub(crate) fn block(&mut self, text: &mut String, block: Block, out: &Output) {
        let place = self.prompts.iter().position(|(seq, _)| *seq == block.seq && block.part == 0);
        let place = place.map(|index| self.prompts.remove(index).1);
        self.announced.retain(|seq| *seq != block.seq);
        match &mut self.form {
            Form::Text(plain) => text.push_str(&plain.block(&block, place.as_deref())),
            Form::Rows(screen) => {
                if self.last.as_ref().is_some_and(|last| last.has_gap_after(&block)) {
                    text.push('\n');
                }
                let mut rows = screen.rows(&block, out.width());
                if let (Some(place), Some(heading)) = (place, rows.first_mut()) {
                    add_place(heading, &place, out.width());
                }
                text.push_str(&screen.lines(&rows));
            }
        }
        self.last = Some(block);
    }

    /// Prints the lines of running calls, once.
    fn announce(&mut self, text: &mut String, out: &Output, is_meant: impl Fn(&str) -> bool) {
        for block in self.transcript.blocks() {
            let Content::Call(call) = &block.content else { continue };
            if call.state != CallState::Running
                || !is_meant(&call.tool)
                || self.announced.contains(&block.seq)
            {
                continue;
            }
            self.announced.push(block.seq);
            match &mut self.form {
                Form::Text(plain) => text.push_str(&plain.running(block)),
                Form::Rows(screen) => {
                    if self.last.as_ref().is_some_and(|last| last.has_gap_after(block)) {
                        text.push('\n');
                    }
                    text.push_str(&screen.lines(&screen.rows(block, out.width())));
                    self.last = Some(block.clone());
                }
            }
        }
    }
}

fn is_subagents(block: &Block) -> bool {
    match &block.content {
        Content::Call(call) => call.is_subagents,
        Content::Text(text) => text.author == Author::Subagent,
        Content::Notice(..) | Content::End(_) => false,
    }
}

/// Adds the numbers of a turn to the heading of its prompt, if they fit.
fn add_place(heading: &mut Row, place: &str, width: Option<usize>) {
    let place = Span::new(format!("  {place}"), Style::from(Tone::Quiet));
    if width.is_none_or(|width| heading.width() + place.width() <= width) {
        heading.spans.push(place);
    }
}
