//! The rows of blocks.

use crate::markdown::{self, Room, Slice};
use crate::row::{Fold, Layout, Row, Span, Style, Tone};
use crate::wrap::{Break, Margin, Run, line, spaces};
use crate::{Author, Block, Call, CallState, Content, Level, Text};
use azureal_core::event::{Complete, Outcome};
use azureal_core::{counted, visible_line};

use crate::{call_rows, ending::ending};

/// The most rows of one block.
pub(crate) const MOST_ROWS: usize = 10_000;
/// The longest text that is laid out, in bytes. Of a longer one the beginning is shown.
pub(crate) const LONGEST_TEXT: usize = 2 << 20;
/// The rows of a preview of a text.
const PREVIEW_ROWS: usize = 5;
/// The columns of a subagent's words in front of others.
pub(crate) const INDENT: usize = 2;

/// Marks and the ASCII characters that take their places. Both have a width of one column.
const ASCII: [(char, char); 12] = [
    ('▸', '>'),
    ('▾', 'v'),
    ('✓', '+'),
    ('✗', 'x'),
    ('●', '*'),
    ('•', '-'),
    ('│', '|'),
    ('─', '-'),
    ('…', '~'),
    ('·', '-'),
    ('−', '-'),
    ('›', '>'),
];

/// Lays a block out.
///
/// No row is wider than the layout, except that a layout of less than 10 columns counts as one of 10. A block has at most 10,000 rows; the last says how
/// many lines are missing.
pub fn rows(block: &Block, layout: &Layout) -> Vec<Row> {
    lay_out(block, layout, true)
}

/// Lays a block out for front ends that print lines: without marks that something is folded, because nothing can be unfolded.
pub fn printed_rows(block: &Block, layout: &Layout) -> Vec<Row> {
    lay_out(block, layout, false)
}

fn lay_out(block: &Block, layout: &Layout, has_fold_marks: bool) -> Vec<Row> {
    let width = width(layout);
    let mut rows = Vec::new();
    match &block.content {
        Content::Text(text) => text_rows(&mut rows, text, layout.fold, width),
        Content::Call(call) => call_rows::lay_out(&mut rows, call, layout.fold, has_fold_marks, width),
        Content::Notice(level, text) => notice(&mut rows, *level, text, layout.fold, width),
        Content::End(complete) => end(&mut rows, complete, width),
    }
    if rows.len() > MOST_ROWS {
        limit(&mut rows, &block.source(), MOST_ROWS, Room { indent: indent(block), width });
    }
    if layout.is_ascii {
        to_ascii(&mut rows);
    }
    rows
}

pub(crate) fn width(layout: &Layout) -> usize {
    usize::from(layout.width.max(10))
}

fn indent(block: &Block) -> usize {
    match &block.content {
        Content::Text(text) => text_room(text, 0).indent,
        Content::Call(Call { is_subagents: true, .. }) => 2 * INDENT,
        _ => INDENT,
    }
}

/// Cuts rows off after `most`, with a row that says how many lines of the source are missing.
fn limit(rows: &mut Vec<Row>, source: &str, most: usize, room: Room) {
    if rows.len() <= most {
        return;
    }
    rows.truncate(most);
    if let Some(last) = rows.last_mut() {
        last.is_soft = false;
    }
    let shown = rows.iter().map(|row| row.source.end).max().unwrap_or(0);
    // The rest of the line that the last row is part of does not count.
    let rest = source.get(shown..).and_then(|rest| rest.split_once('\n')).map_or("", |(_, rest)| rest);
    let left = rest.trim_matches('\n').lines().count();
    rows.push(more(left as u64, room));
}

/// Returns the row that says how many lines are missing.
pub(crate) fn more(lines: u64, room: Room) -> Row {
    let mut spans = spaces(room.indent);
    let text = if lines == 0 { "…".to_owned() } else { format!("… {}", counted(lines, "more line")) };
    spans.push(Span::new(text, Style::from(Tone::Quiet)));
    Row::decoration(crate::wrap::cut_spans(&spans, room.width))
}

pub(crate) fn to_ascii(rows: &mut [Row]) {
    for span in rows.iter_mut().flat_map(|row| &mut row.spans) {
        if !span.is_exact && !span.text.is_ascii() {
            span.text = ascii_marks(&span.text);
        }
    }
}

/// Replaces marks by ASCII characters of the same width. Other characters stay.
pub fn ascii_marks(text: &str) -> String {
    let ascii = |c: char| ASCII.iter().find(|(mark, _)| *mark == c).map_or(c, |(_, ascii)| *ascii);
    text.chars().map(ascii).collect()
}

/// Returns the heading of a text: its author.
pub(crate) fn heading(text: &Text, width: usize) -> Option<Row> {
    if !text.has_heading {
        return None;
    }
    let name = match text.author {
        Author::User => "you",
        Author::Agent => text.agent.as_deref().unwrap_or("agent"),
        Author::Subagent => "subagent",
        Author::Reasoning => "reasoning",
        Author::Plan => "plan",
        Author::System => "system",
    };
    let tone = if text.author == Author::User { Tone::User } else { Tone::Name };
    let more = text.model.as_deref().or(text.title.as_deref());
    let indent = if text.author == Author::Subagent { INDENT } else { 0 };
    let mut spans = spaces(indent);
    spans.push(Span::new(visible_line(name), Style { bold: true, ..Style::from(tone) }));
    let turn = text.turn.map(|turn| format!("turn {turn}"));
    for word in more.into_iter().chain(turn.as_deref()) {
        spans.push(Span::new(format!(" {}", visible_line(word)), Style::from(Tone::Quiet)));
    }
    Some(Row::decoration(crate::wrap::cut_spans(&spans, width)))
}

/// Returns the room for the words of a text.
pub(crate) fn text_room(text: &Text, width: usize) -> Room {
    let indent = if text.author == Author::Subagent { 2 * INDENT } else { INDENT };
    Room { indent, width }
}

fn text_rows(rows: &mut Vec<Row>, text: &Text, fold: Fold, width: usize) {
    rows.extend(heading(text, width));
    let before = rows.len();
    let end = match text.source.len() {
        0..=LONGEST_TEXT => text.source.len(),
        _ => text.source.floor_char_boundary(LONGEST_TEXT),
    };
    let shown = text.source.get(..end).unwrap_or_default();
    let room = text_room(text, width);
    match text.is_markdown() {
        true => {
            let events: markdown::Events<'_> = markdown::parser(shown).into_offset_iter().collect();
            markdown::lay_out(rows, Slice { text: shown, start: 0 }, &events, room, false);
        }
        false => verbatim(rows, text.author, shown, room, fold),
    }
    let most = match fold {
        Fold::Closed => 1,
        Fold::Preview => PREVIEW_ROWS,
        Fold::Open if end < text.source.len() => rows.len() - 1,
        Fold::Open => return,
    };
    limit(rows, &text.source, before + most, room);
}

/// Lays out a text as it was written.
fn verbatim(rows: &mut Vec<Row>, author: Author, text: &str, room: Room, fold: Fold) {
    let style = if author == Author::User { Style::from(Tone::User) } else { Style::default() };
    let margin = Margin::spaces(room.indent);
    let mut at = 0;
    let text = text.trim_end();
    for piece in text.split_inclusive('\n') {
        let shown = piece.trim_end_matches(['\n', '\r']);
        line(rows, &[Run::at(shown, style, at)], Break::Words, &margin, room.width);
        at += piece.len();
        if rows.len() > MOST_ROWS || (fold != Fold::Open && rows.len() > 2 * PREVIEW_ROWS) {
            return;
        }
    }
}

fn notice(rows: &mut Vec<Row>, level: Level, text: &str, fold: Fold, width: usize) {
    let (mark, tone) = match level {
        Level::Info => ("· ", Tone::Quiet),
        Level::Warning => ("! ", Tone::Caution),
        Level::Error => ("✗ ", Tone::Bad),
    };
    let style = Style::from(tone);
    let mut margin = Margin { first: vec![Span::new(mark, style)], rest: spaces(2) };
    let mut at = 0;
    for piece in text.trim_end().split_inclusive('\n') {
        let shown = piece.trim_end_matches(['\n', '\r']);
        line(rows, &[Run::at(shown, style, at)], Break::Words, &margin, width);
        margin.first.clone_from(&margin.rest);
        at += piece.len();
        if rows.len() > MOST_ROWS {
            break;
        }
    }
    let most = match (fold, level) {
        (Fold::Open, _) => return,
        (Fold::Closed, Level::Info) => 1,
        _ => PREVIEW_ROWS,
    };
    limit(rows, text, most, Room { indent: 2, width });
}

fn end(rows: &mut Vec<Row>, complete: &Complete, width: usize) {
    let (mark, tone) = match complete.ending() {
        Outcome::Done => ("✓ ", Tone::Good),
        Outcome::Cancelled => ("! ", Tone::Caution),
        Outcome::Failed | Outcome::Timeout | Outcome::Interrupted => ("✗ ", Tone::Bad),
    };
    let parts = ending(complete);
    let text = parts.join(" · ");
    let first = parts.first().map_or(0, String::len);
    let margin = Margin { first: vec![Span::new(mark, Style::from(tone))], rest: spaces(2) };
    let (outcome, rest) = text.split_at_checked(first).unwrap_or((&text, ""));
    let runs = [
        Run::at(outcome, Style::from(tone), 0),
        Run::new(rest, Style::from(Tone::Quiet), first..first + rest.len()),
    ];
    line(rows, &runs, Break::Words, &margin, width);
}

/// Returns the mark of a call.
pub(crate) fn mark(state: CallState) -> (&'static str, Tone) {
    match state {
        CallState::Running => ("●", Tone::Caution),
        CallState::Done => ("✓", Tone::Good),
        CallState::Failed => ("✗", Tone::Bad),
        CallState::NoResult => ("?", Tone::Caution),
    }
}
