//! The rows of tool calls.

use azureal_core::{Tool, visible_line};

use crate::diff;
use crate::layout::{INDENT, MOST_ROWS, mark, more};
use crate::markdown::Room;
use crate::row::{Change, Fold, Row, Span, Style, Tone};
use crate::wrap::{Break, Margin, Run, cells, cut, line, spaces};
use crate::{Call, CallState};
use unicode_segmentation::UnicodeSegmentation;

/// The lines of the reason of a failed call that is folded.
const REASON_LINES: usize = 3;
/// The lines of a preview of an output, and of a diff that can be unfolded.
const PREVIEW_LINES: usize = 5;
/// The lines of a preview of a diff that cannot be unfolded.
const PREVIEW_DIFF: usize = 20;
/// The width that names of tools are filled up to, in a layout that is wide enough.
const NAME_WIDTH: usize = 6;
/// The width below which a line has no room to spare.
const NARROW: usize = 60;
/// The most bytes of a key that are measured: no line is that wide.
const LONGEST_KEY: usize = 2 << 10;
/// The columns of a key that are worth more than a summary.
const LEAST_KEY: usize = 12;

/// Lays out a call: its line, and as much of its change and output as the fold says.
pub(crate) fn lay_out(rows: &mut Vec<Row>, call: &Call, fold: Fold, has_fold_mark: bool, width: usize) {
    let indent = if call.is_subagents { INDENT } else { 0 };
    rows.push(head(call, has_fold_mark.then_some(fold), indent, width));
    let indent = indent + INDENT;
    match fold {
        Fold::Closed => reason(rows, call, indent, width),
        Fold::Preview | Fold::Open => {
            if fold == Fold::Open {
                whole_key(rows, call, indent, width);
                arguments(rows, call, indent, width);
            }
            let most = match fold {
                Fold::Open => usize::MAX,
                // The rest can be unfolded.
                _ if has_fold_mark => PREVIEW_LINES,
                _ => PREVIEW_DIFF,
            };
            diff_rows(rows, call, most, indent, width);
            match fold {
                Fold::Preview => preview(rows, call, indent, width),
                _ => output(rows, call, indent, width),
            }
        }
    }
}

/// Returns the line of a call: `▸ ✓ Read   src/auth/token.rs        212 lines`. Without a fold it has no mark for it.
fn head(call: &Call, fold: Option<Fold>, indent: usize, width: usize) -> Row {
    let is_narrow = width < NARROW;
    let (state, tone) = mark(call.state);
    let mut spans = spaces(indent);
    if let Some(fold) = fold {
        let fold_mark = if fold == Fold::Closed { "▸ " } else { "▾ " };
        spans.push(Span::new(fold_mark, Style::from(Tone::Quiet)));
    }
    spans.push(Span::new(state, Style::from(tone)));
    spans.push(Span::new(" ", Style::default()));
    let used: usize = spans.iter().map(Span::width).sum();
    let mut room = width.saturating_sub(used);

    let name = visible_line(&call.tool);
    let name = shortened(&name, room, End::Right);
    room -= cells(&name);
    let padding = if is_narrow { 0 } else { NAME_WIDTH.saturating_sub(cells(&name)) };
    spans.push(Span::new(name, Style { bold: true, ..Style::from(Tone::Name) }));

    let gap = (padding + 1).min(room);
    let summary = summary(call, room - gap);
    let summary_width = if summary.is_empty() { 0 } else { cells(&summary) + 2 };
    let key = key_span(call, (room - gap).saturating_sub(summary_width));
    let mut source = 0..0;
    let mut key_width = 0;
    if let Some(key) = key.filter(|key| !key.text.is_empty()) {
        key_width = key.width();
        spans.extend(spaces(gap));
        source = key.source.clone();
        spans.push(key);
        room -= gap;
    }
    if !summary.is_empty() {
        spans.extend(spaces(room - key_width - cells(&summary)));
        let tone = if call.state == CallState::Failed { Tone::Bad } else { Tone::Quiet };
        spans.push(Span::new(summary, Style::from(tone)));
    }
    Row { spans, source, is_soft: false }
}

/// Returns the summary that fits: all of it, its first part, or none.
fn summary(call: &Call, room: usize) -> String {
    let text = match call.state {
        CallState::NoResult => "no result".into(),
        _ => visible_line(&call.summary),
    };
    let key = cells(&visible_line(first_line(&call.key)));
    let (half, room) = (room / 2, room.saturating_sub(key.min(LEAST_KEY) + 2));
    let first = text.split(" · ").next().unwrap_or_default();
    match () {
        // Words of a subagent do not push the key aside.
        () if cells(&text) > half && key > half && half > 2 * LEAST_KEY => shortened(&text, half, End::Right),
        () if cells(&text) <= room => text.into_owned(),
        () if cells(first) <= room => first.to_owned(),
        () => String::new(),
    }
}

/// Returns the first line, or the beginning of a very long one.
fn first_line(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    line.get(..line.floor_char_boundary(LONGEST_KEY)).unwrap_or(line)
}

/// Returns what the call is about, cut to fit: a path at its beginning, a command at its end.
fn key_span(call: &Call, room: usize) -> Option<Span> {
    let first = first_line(&call.key);
    let is_whole = first.len() == call.key.trim_end().len();
    let shown = visible_line(first).replace('\t', " ");
    let end = match Tool::named(&call.tool) {
        Tool::Read | Tool::Write | Tool::Edit | Tool::File => End::Left,
        _ => End::Right,
    };
    let text = match (is_whole, cells(&shown) < room) {
        (false, true) => format!("{shown}…"),
        (true, _) | (false, false) => shortened(&shown, room, end),
    };
    let is_exact = text == first;
    let source = if is_exact { 0..first.len() } else { 0..call.key.len() };
    (room > 0).then(|| Span { text, style: Style::default(), source, is_exact })
}

#[derive(Clone, Copy)]
enum End {
    Left,
    Right,
}

/// Cuts a text to a width, with an ellipsis at one end.
fn shortened(text: &str, room: usize, end: End) -> String {
    if cells(text) <= room {
        return text.to_owned();
    }
    let Some(room) = room.checked_sub(1) else { return String::new() };
    match end {
        End::Right => format!("{}…", cut(text, room)),
        End::Left => {
            let mut left = room;
            let mut start = text.len();
            for (at, grapheme) in text.grapheme_indices(true).rev() {
                let Some(rest) = left.checked_sub(cells(grapheme)) else { break };
                (left, start) = (rest, at);
            }
            let tail = text.get(start..).unwrap_or_default();
            // From the beginning of a name, if there is one.
            let name = tail.find('/').filter(|at| *at + 1 < tail.len()).and_then(|at| tail.get(at..));
            format!("…{}", name.unwrap_or(tail))
        }
    }
}

/// Shows a command of several lines, which the line of the call has only the first of.
fn whole_key(rows: &mut Vec<Row>, call: &Call, indent: usize, width: usize) {
    let is_long = call.key.trim_end().len() > first_line(&call.key).len()
        || cells(&call.key) + indent + NAME_WIDTH + 4 > width;
    if !is_long {
        return;
    }
    let margin = Margin::spaces(indent + INDENT);
    let mut at = 0;
    for piece in call.key.trim_end().split_inclusive('\n') {
        let shown = piece.trim_end_matches(['\n', '\r']);
        line(rows, &[Run::at(shown, Style::from(Tone::Code), at)], Break::Cells, &margin, width);
        at += piece.len();
        if rows.len() > MOST_ROWS {
            return;
        }
    }
}

/// Shows the arguments that the line of the call does not have.
fn arguments(rows: &mut Vec<Row>, call: &Call, indent: usize, width: usize) {
    let style = Style::from(Tone::Quiet);
    for (name, value) in &call.arguments {
        let mut lines = value.trim_end().split('\n');
        let first = if value.trim_end().contains('\n') { "" } else { lines.next().unwrap_or_default() };
        let margin = |indent| Margin { first: spaces(indent), rest: spaces(indent + INDENT) };
        let named = Run::new(format!("{name}: {first}"), style, 0..0);
        line(rows, &[named], Break::Cells, &margin(indent + INDENT), width);
        for text in lines {
            let text = Run::new(text.trim_end_matches('\r'), style, 0..0);
            line(rows, &[text], Break::Cells, &margin(indent + 2 * INDENT), width);
            if rows.len() > MOST_ROWS {
                return;
            }
        }
    }
}

/// Shows why a call failed, in a few lines.
fn reason(rows: &mut Vec<Row>, call: &Call, indent: usize, width: usize) {
    if call.state != CallState::Failed {
        return;
    }
    let lines = lines(call);
    let is_reason = |line: &&Line<'_>| !line.text.trim().is_empty() && !is_exit_code(call, line);
    let shown: Vec<&Line<'_>> = match Tool::named(&call.tool) {
        // The end of an output has the reason.
        Tool::Bash => {
            let mut last: Vec<_> = lines.iter().rev().filter(is_reason).take(REASON_LINES).collect();
            last.reverse();
            last
        }
        _ => lines.iter().filter(is_reason).take(REASON_LINES).collect(),
    };
    let end = rows.len() + REASON_LINES;
    for line in shown {
        let left = end.saturating_sub(rows.len());
        if left > 0 {
            output_line(rows, line, indent, width, Some(left));
        }
    }
}

fn is_exit_code(call: &Call, line: &Line<'_>) -> bool {
    line.start == call.output_start()
        && line.text.starts_with("Exit code ")
        && Tool::named(&call.tool) == Tool::Bash
}

/// A line of an output and its place in the source.
struct Line<'a> {
    text: &'a str,
    start: usize,
}

/// Returns the lines of the output, at most as many as are shown.
fn lines(call: &Call) -> Vec<Line<'_>> {
    let mut start = call.output_start();
    let pieces = call.output.split_inclusive('\n').map(|piece| {
        let line = Line { text: piece.trim_end_matches(['\n', '\r']), start };
        start += piece.len();
        line
    });
    pieces.collect()
}

fn output_line(rows: &mut Vec<Row>, shown: &Line<'_>, indent: usize, width: usize, most: Option<usize>) {
    let before = rows.len();
    let style = Style::from(Tone::Quiet);
    line(rows, &[Run::at(shown.text, style, shown.start)], Break::Output, &Margin::spaces(indent), width);
    let Some(most) = most else { return };
    if rows.len() > before + most {
        rows.truncate(before + most);
        if let Some(last) = rows.last_mut() {
            let spans = crate::wrap::cut_spans(&last.spans, width - 1);
            last.spans = spans;
            last.spans.push(Span::new("…", style));
            last.is_soft = false;
        }
    }
}

/// Shows a few lines of the output: its beginning and its end.
fn preview(rows: &mut Vec<Row>, call: &Call, indent: usize, width: usize) {
    let lines: Vec<Line<'_>> = lines(call);
    let lines: Vec<&Line<'_>> = lines.iter().filter(|line| !is_exit_code(call, line)).collect();
    // The line of the call has it already.
    if matches!(lines.as_slice(), [one] if one.text.trim() == call.summary) {
        return;
    }
    if lines.len() <= PREVIEW_LINES {
        let is_summary = lines.len() == 1 && call.state == CallState::Done;
        let lines = lines.into_iter().filter(|line| !(is_summary && line.text.trim() == call.summary));
        let lines: Vec<&Line<'_>> = lines.collect();
        for line in &lines {
            let most = if lines.len() == 1 { REASON_LINES } else { 1 };
            output_line(rows, line, indent, width, Some(most));
        }
        return;
    }
    let (head, tail) = match Tool::named(&call.tool) {
        Tool::Bash => (1, PREVIEW_LINES - 2),
        _ => (PREVIEW_LINES - 1, 0),
    };
    for line in lines.iter().take(head) {
        output_line(rows, line, indent, width, Some(1));
    }
    let hidden = lines.len() - head - tail;
    rows.push(more(hidden as u64, Room { indent, width }));
    for line in lines.iter().skip(lines.len() - tail) {
        output_line(rows, line, indent, width, Some(1));
    }
}

/// Shows the output.
fn output(rows: &mut Vec<Row>, call: &Call, indent: usize, width: usize) {
    let mut start = call.output_start();
    let mut pieces = call.output.split_inclusive('\n');
    while let Some(piece) = pieces.next() {
        let line = Line { text: piece.trim_end_matches(['\n', '\r']), start };
        start += piece.len();
        output_line(rows, &line, indent, width, None);
        if rows.len() >= MOST_ROWS {
            let left = pieces.count();
            rows.truncate(MOST_ROWS - 1);
            rows.push(more(left as u64 + 1, Room { indent, width }));
            return;
        }
    }
}

/// Shows the change of a file, with line numbers if they are known.
fn diff_rows(rows: &mut Vec<Row>, call: &Call, most: usize, indent: usize, width: usize) {
    let largest = call.diff.iter().filter_map(|line| diff::header(line)).map(|(old, new)| old.max(new)).max();
    let digits = largest.map(|number| (number + call.diff.len() as u64).to_string().len());
    let mut numbers = None;
    let mut start = call.diff_start();
    let mut shown = 0;
    for (index, text) in call.diff.iter().enumerate() {
        let at = start;
        start += text.len() + 1;
        if text.starts_with("@@") {
            numbers = diff::header(text);
            if index > 0 {
                let mut spans = spaces(indent);
                spans.push(Span::new("…", Style::from(Tone::Quiet)));
                rows.push(Row { spans, source: at..at, is_soft: false });
            }
            continue;
        }
        if shown >= most || rows.len() >= MOST_ROWS || diff::is_mark(text) {
            let is_line = |line: &&String| !line.starts_with("@@") && !diff::is_mark(line);
            let left = call.diff.iter().skip(index).filter(is_line).count() as u64;
            rows.push(more(left + diff::omitted(&call.diff), Room { indent, width }));
            return;
        }
        shown += 1;
        let (change, number) = match (text.chars().next(), &mut numbers) {
            (Some('+'), numbers) => (Change::Added, numbers.as_mut().map(|(_, new)| step(new))),
            (Some('-'), numbers) => (Change::Removed, numbers.as_mut().map(|(old, _)| step(old))),
            (_, numbers) => (
                Change::Unchanged,
                numbers.as_mut().map(|(old, new)| {
                    step(old);
                    step(new)
                }),
            ),
        };
        diff_line(rows, &DiffLine { text, at, change, number, digits: digits.unwrap_or(0) }, indent, width);
    }
}

/// A line of a diff.
struct DiffLine<'a> {
    text: &'a str,
    /// Its place in the source.
    at: usize,
    change: Change,
    number: Option<u64>,
    /// The digits of the largest number; 0 if no line has one.
    digits: usize,
}

fn step(number: &mut u64) -> u64 {
    *number = number.saturating_add(1);
    *number - 1
}

fn diff_line(rows: &mut Vec<Row>, shown: &DiffLine<'_>, indent: usize, width: usize) {
    let mark_len = shown.text.chars().next().map_or(0, char::len_utf8);
    let (sign, code) = shown.text.split_at_checked(mark_len).unwrap_or((shown.text, ""));
    let tone = match shown.change {
        Change::Added => Tone::Added,
        Change::Removed => Tone::Removed,
        Change::Unchanged => Tone::Plain,
    };
    let style = Style { change: Some(shown.change), ..Style::from(tone) };
    let digits = shown.digits;
    let gutter = match shown.number {
        Some(number) => format!("{number:>digits$} "),
        None if digits > 0 => " ".repeat(digits + 1),
        None => String::new(),
    };
    let blank = |count: usize| Span::new(" ".repeat(count), Style::default());
    let rest = vec![blank(indent + gutter.len()), Span::new("  ", style)];
    let first = vec![
        blank(indent),
        Span::new(gutter, Style::from(Tone::Quiet)),
        Span::new(format!("{sign} "), style),
    ];
    let run = Run::at(code, style, shown.at + mark_len);
    line(rows, &[run], Break::Cells, &Margin { first, rest }, width);
}
