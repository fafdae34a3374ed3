//! A turn on a terminal, while it runs: texts as they are written, each tool call once its outcome is known.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use azureal::transcript::{Block, Content, Fold, Places, Text};
use azureal_core::event::{Complete, ToolResult};
use azureal_core::{Event, Seq, Tool};

use crate::block_printer::{BlockPrinter, Due};
use crate::output::Output;
use crate::screen::Screen;
use crate::spinner::Draft;
use crate::written::Written;

/// The largest file whose lines are numbered in a diff, in bytes.
const LARGEST_EDITED: u64 = 1 << 20;
/// The most edits without a result that are remembered.
const MOST_EDITS: usize = 100;

/// What a turn shows on a terminal.
pub(crate) struct LiveRows {
    screen: Screen,
    printer: BlockPrinter,
    /// The text that the agent is writing.
    written: Option<Written>,
    /// The edits that have no result yet: their ids and files.
    edits: Vec<(String, PathBuf)>,
}

impl LiveRows {
    pub(crate) fn new(out: &Output, places: Places) -> Self {
        let screen = Screen::new(out, Fold::Preview);
        Self { screen, printer: BlockPrinter::on_screen(screen, places), written: None, edits: Vec::new() }
    }

    /// Adds to the text that the agent is writing. Returns the lines that can be printed, and the draft that follows them; `None` if there
    /// is nothing new to be seen.
    pub(crate) fn delta(&mut self, delta: &str, out: &Output) -> Option<(String, Draft)> {
        let mut gap = "";
        if self.written.is_none() {
            // White space alone begins no text.
            if delta.trim().is_empty() {
                return None;
            }
            let head = self.printer.begin_text(delta)?;
            gap = self.printer.gap(text_block(&head));
            self.written = Some(Written::new(self.screen, head, out.width()));
        }
        let written = self.written.as_mut()?;
        written.add(delta);
        let printed = written.print(out.width());
        match printed {
            Some((lines, draft)) => Some((format!("{gap}{lines}"), draft)),
            None if gap.is_empty() => None,
            None => Some((gap.to_owned(), Draft::default())),
        }
    }

    /// Adds an event. Returns the lines that can be printed.
    pub(crate) fn event(&mut self, event: &Event, out: &Output) -> String {
        let mut lines = String::new();
        let finished = match event {
            Event::AssistantText(said) if said.subagent.is_none() => Some(&said.text),
            Event::Plan(plan) => Some(&plan.content),
            Event::ToolCall(call) if call.subagent.is_none() => None,
            // An unfinished text continues.
            Event::ToolCall(_) | Event::ToolResult(_) | Event::AssistantText(_) => {
                let event = self.with_line_numbers(event);
                self.printer.push(&event, None);
                return if self.written.is_none() { self.printer.print(Due::AtOnce, out) } else { lines };
            }
            Event::Init(_) | Event::Reasoning(_) => None,
            _ => return lines,
        };
        if let Event::ToolCall(call) = event
            && Tool::named(&call.tool_name) == Tool::Edit
            && let Some(path) = &call.file_path
            && self.edits.len() < MOST_EDITS
        {
            self.edits.push((call.tool_use_id.clone(), PathBuf::from(path)));
        }
        self.printer.push(event, None);
        let mut is_printed = false;
        if let Some(mut written) = self.written.take() {
            let rest = finished.and_then(|text| written.finish(text, out.width()));
            is_printed = rest.is_some();
            lines.push_str(&rest.unwrap_or_else(|| written.rest(out.width())));
        }
        for block in self.printer.take_finished() {
            let is_this =
                block.last == self.printer.last_event() && matches!(block.content, Content::Text(_));
            let is_notice = matches!(block.content, Content::Notice(..));
            let is_left_out = is_notice || (is_this && is_printed);
            if !is_left_out {
                self.printer.block(&mut lines, block, out);
            }
        }
        lines
    }

    /// Adds the lines of the edited file to the result of an edit, with their numbers, so that the diff has them: the agent does not tell them.
    fn with_line_numbers<'e>(&mut self, event: &'e Event) -> Cow<'e, Event> {
        let Event::ToolResult(result) = event else { return Cow::Borrowed(event) };
        let edit = self.edits.iter().position(|(id, _)| *id == result.tool_use_id);
        let path = edit.map(|index| self.edits.swap_remove(index).1).filter(|_| !result.is_error);
        let Some(text) = path.as_deref().and_then(read_edited) else { return Cow::Borrowed(event) };
        let numbered = text.lines().zip(1..).map(|(line, number): (&str, u64)| format!("{number}\t{line}\n"));
        Cow::Owned(Event::ToolResult(ToolResult { content: numbered.collect(), ..result.clone() }))
    }

    /// Ends the run of an agent: its texts are finished, its calls have no result.
    pub(crate) fn end_run(&mut self, out: &Output) -> String {
        let mut lines = self.written.take().map_or_else(String::new, |mut written| written.rest(out.width()));
        self.printer.push(&Event::Complete(Complete::default()), None);
        for block in self.printer.take_finished() {
            if !matches!(block.content, Content::End(_) | Content::Notice(..)) {
                self.printer.block(&mut lines, block, out);
            }
        }
        lines
    }

    /// Returns the call that runs, if there is one.
    pub(crate) fn running(&self) -> Option<String> {
        self.printer.running()
    }
}

/// Reads a file that was edited, if it is a text of a usual size.
fn read_edited(path: &Path) -> Option<String> {
    let is_usual = fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= LARGEST_EDITED);
    if is_usual { fs::read_to_string(path).ok() } else { None }
}

fn text_block(head: &Text) -> Block {
    Block::new(Seq::START, 0, Content::Text(Text { source: String::new(), ..head.clone() }))
}
