//! The layout of a text that is being written.

use pulldown_cmark::{Event, Tag};

use crate::layout::{heading, text_room, to_ascii, width};
use crate::markdown::{self, Events, Room, Slice};
use crate::row::{Layout, Row, Style, Tone};
use crate::wrap::{Break, Margin, Run, line};
use crate::{Block, Content, Fold, Text, rows};

/// The rows of a text that grows: the same as [`rows`] returns, without its bound.
///
/// A growing text changes at its end only. Markdown blocks that are followed by another one are laid out once, as are the lines of a code block that is still
/// open. The last block is laid out again with each update; so a table is complete only when it is finished. A definition of a link or a footnote can change any block:
/// from the first one on, the whole text is laid out with each update.
#[derive(Debug, Clone)]
pub struct GrowingText {
    layout: Layout,
    /// The text that is laid out, without its source.
    head: Option<Text>,
    source: String,
    rows: Vec<Row>,
    /// The number of rows that no update changes.
    stable: usize,
    /// The rows of the heading.
    heading: usize,
    /// The place of the first block that is not stable; in an open code block, of its first line that is not.
    start: usize,
    fence: Option<Fence>,
    /// Whether the whole text is laid out with each update.
    is_whole: bool,
}

/// The opening line of a code block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fence {
    mark: char,
    length: usize,
    /// Whether a line of the block is laid out.
    has_lines: bool,
}

impl GrowingText {
    /// Creates an empty one.
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            head: None,
            source: String::new(),
            rows: Vec::new(),
            stable: 0,
            heading: 0,
            start: 0,
            fence: None,
            is_whole: false,
        }
    }

    /// Returns the layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the number of rows, from the first, that further text does not change. Only a definition of a link or a footnote does, for which printed rows
    /// stay as they are.
    pub fn stable_rows(&self) -> usize {
        self.stable
    }

    /// Lays out what was added to the text. Any other change, such as that of a text that became too long, lays out all of it.
    pub fn update(&mut self, text: &Text) {
        if !text.is_markdown() || self.layout.fold != Fold::Open {
            let block = Block::new(azureal_core::Seq::START, 0, Content::Text(text.clone()));
            *self = Self { rows: rows(&block, &self.layout), ..Self::new(self.layout) };
            return;
        }
        let head = Text { source: String::new(), ..text.clone() };
        let same = Text { is_finished: true, ..head.clone() };
        let is_same_head = self.head.as_ref() == Some(&same);
        let mut before = self.source.len();
        match text.source.strip_prefix(self.source.as_str()) {
            Some("") if is_same_head => return,
            Some(added) if is_same_head => self.source.push_str(added),
            _ => {
                before = 0;
                *self = Self { source: text.source.clone(), ..Self::new(self.layout) };
                self.rows.extend(heading(text, width(&self.layout)));
                self.heading = self.rows.len();
                self.stable = self.heading;
                self.head = Some(same);
            }
        }
        // A carriage return alone ends a line too; a text that has one is not worth a path of its own.
        self.is_whole |= has_lone_return(self.source.get(before.saturating_sub(1)..).unwrap_or(&self.source));
        let room = text_room(text, width(&self.layout));
        self.rows.truncate(self.stable);
        if !self.is_whole {
            self.lay_out_added(room);
        }
        if self.is_whole {
            self.lay_out_all(room);
        }
        if self.layout.is_ascii {
            to_ascii(&mut self.rows);
        }
    }

    /// Lays out the whole text. Rows that were stable are still reported as such: they may have been printed.
    fn lay_out_all(&mut self, room: Room) {
        self.rows.truncate(self.heading);
        let events: Events<'_> = markdown::parser(&self.source).into_offset_iter().collect();
        let slice = Slice { text: &self.source, start: 0 };
        markdown::lay_out(&mut self.rows, slice, &events, room, false);
        self.stable = self.stable.min(self.rows.len());
    }

    fn lay_out_added(&mut self, room: Room) {
        loop {
            if let Some(fence) = self.fence {
                if self.code_lines(fence, room) {
                    return;
                }
            } else if !self.finish_blocks(room) {
                break;
            }
        }
        let source = std::mem::take(&mut self.source);
        let slice = Slice { text: source.get(self.start..).unwrap_or_default(), start: self.start };
        let events: Events<'_> = markdown::parser(slice.text).into_offset_iter().collect();
        self.is_whole = has_definitions(slice.text, &events);
        let has_blocks = self.has_blocks();
        markdown::lay_out(&mut self.rows, slice, &events, room, has_blocks);
        self.source = source;
    }

    fn has_blocks(&self) -> bool {
        self.stable > self.heading
    }

    /// Lays out the blocks that are followed by another one in the lines that are complete. Returns whether there is a code block to continue.
    fn finish_blocks(&mut self, room: Room) -> bool {
        let source = std::mem::take(&mut self.source);
        let tail = source.get(self.start..).unwrap_or_default();
        // The last line may turn out to be part of the block before it.
        let tail = tail.get(..tail.rfind('\n').map_or(0, |end| end + 1)).unwrap_or_default();
        let events: Events<'_> = markdown::parser(tail).into_offset_iter().collect();
        let mut has_code = false;
        if !has_definitions(tail, &events)
            && let Some(last) = last_block(&events)
        {
            let at = events.get(last).map_or(0, |(_, range)| range.start);
            // With its indentation, which counts.
            let at = tail.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
            let before = events.get(..last).unwrap_or_default();
            let slice = Slice { text: tail, start: self.start };
            let has_blocks = self.has_blocks();
            markdown::lay_out(&mut self.rows, slice, before, room, has_blocks);
            self.stable = self.rows.len();
            self.start += at;
            self.fence = tail.get(at..).and_then(|block| block.lines().next()).and_then(opening);
            if self.fence.is_some() {
                let opening = tail.get(at..).and_then(|block| block.find('\n'));
                self.start += opening.map_or(0, |end| end + 1);
                has_code = true;
            }
        }
        self.source = source;
        has_code
    }

    /// Lays out lines of an open code block. Returns whether it is still open.
    fn code_lines(&mut self, mut fence: Fence, room: Room) -> bool {
        let source = std::mem::take(&mut self.source);
        let margin = Margin::spaces(room.indent + 2);
        let mut is_open = true;
        while let Some(text) = source.get(self.start..).filter(|text| !text.is_empty()) {
            let end = text.find('\n');
            let code = end.map_or(text, |end| text.get(..end).unwrap_or_default());
            let is_closing = closes(code, fence);
            // The parser takes a few spaces behind the last line break for the beginning of a closing line.
            let is_blank_end = end.is_none() && code.len() < 4 && code.trim_matches(' ').is_empty();
            if !is_closing && !is_blank_end {
                if !fence.has_lines && self.has_blocks() {
                    self.rows.push(Row::default());
                }
                let run = Run::at(code.trim_end_matches('\r'), Style::from(Tone::Code), self.start);
                line(&mut self.rows, &[run], Break::Cells, &margin, room.width);
            }
            let Some(end) = end else { break };
            self.start += end + 1;
            self.stable = self.rows.len();
            fence.has_lines |= !is_closing;
            if is_closing {
                is_open = false;
                break;
            }
        }
        self.fence = is_open.then_some(fence);
        self.source = source;
        is_open
    }
}

/// Returns whether a text has a carriage return without a line feed. One at its end may get it yet.
fn has_lone_return(text: &str) -> bool {
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        if byte == b'\r' && bytes.peek().is_some_and(|next| *next != b'\n') {
            return true;
        }
    }
    false
}

/// Returns whether a text defines links or footnotes.
fn has_definitions(text: &str, events: &Events<'_>) -> bool {
    let is_footnote = |event: &Event<'_>| matches!(event, Event::Start(Tag::FootnoteDefinition(_)));
    events.iter().any(|(event, _)| is_footnote(event))
        || (text.contains("]:") && markdown::parser(text).reference_definitions().iter().next().is_some())
}

/// Returns the event that the last block of several begins with, or the first if that is an open code block.
fn last_block(events: &Events<'_>) -> Option<usize> {
    let mut depth = 0_usize;
    let mut last = None;
    let mut count = 0;
    for (index, (event, _)) in events.iter().enumerate() {
        if depth == 0 {
            last = Some(index);
            count += 1;
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    let is_code = |index: &usize| matches!(events.get(*index), Some((Event::Start(Tag::CodeBlock(_)), _)));
    last.filter(|index| count > 1 || is_code(index))
}

/// Parses the opening line of a code block that is not indented.
fn opening(line: &str) -> Option<Fence> {
    let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let info = line.trim_start_matches(mark);
    let length = line.len() - info.len();
    (length >= 3 && !(mark == '`' && info.contains('`'))).then_some(Fence { mark, length, has_lines: false })
}

/// Returns whether a line closes a code block.
fn closes(line: &str, fence: Fence) -> bool {
    let marks = line.trim_start_matches(' ');
    let rest = marks.trim_start_matches(fence.mark);
    line.len() - marks.len() < 4
        && marks.len() - rest.len() >= fence.length
        && rest.trim_matches([' ', '\r']).is_empty()
}
