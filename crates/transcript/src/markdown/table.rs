//! Tables.

use std::ops::Range;

use pulldown_cmark::{Alignment, Event, Tag, TagEnd};

use super::Slice;
use super::inline::Line;
use crate::row::{Row, Span, Style, Tone};
use crate::wrap::{Break, Margin, Run, cells, line, spaces};

/// The columns between two cells.
const BETWEEN: usize = 2;
/// The narrowest cell with more than one word in it.
const NARROWEST: usize = 6;

/// A table: its head and its rows, as lines of cells.
pub(super) struct Table<'a> {
    alignments: Vec<Alignment>,
    head: Vec<Vec<Run<'a>>>,
    rows: Vec<Vec<Vec<Run<'a>>>>,
}

/// Reads a table up to its end.
pub(super) fn gather<'a: 'e, 'e>(
    alignments: &[Alignment],
    events: &mut impl Iterator<Item = &'e (Event<'a>, Range<usize>)>,
    slice: Slice<'a>,
) -> Table<'a> {
    let mut table = Table { alignments: alignments.to_vec(), head: Vec::new(), rows: Vec::new() };
    let mut row = Vec::new();
    let mut cell = Line::default();
    for (event, range) in events {
        match event {
            Event::End(TagEnd::Table) => break,
            Event::End(TagEnd::TableHead) => table.head = std::mem::take(&mut row),
            Event::End(TagEnd::TableRow) => table.rows.push(std::mem::take(&mut row)),
            Event::End(TagEnd::TableCell) => row.push(cell.take().concat()),
            Event::Start(Tag::TableHead | Tag::TableRow | Tag::TableCell) => {}
            Event::Start(tag) => cell.begin(tag, range, slice),
            Event::End(_) => cell.end(range, slice),
            inline => cell.inline(inline, range, slice),
        }
    }
    table
}

impl Table<'_> {
    /// Lays it out: columns that fit, with wrapped cells, or a line for each cell if there is no room for columns.
    pub(super) fn lay_out(&self, out: &mut Vec<Row>, margin: &Margin, width: usize) {
        let used: usize = margin.rest.iter().chain(&margin.first).map(Span::width).max().unwrap_or(0);
        let used = margin.first.iter().map(Span::width).sum::<usize>().max(used);
        match self.widths(width.saturating_sub(used)) {
            Some(widths) => self.columns(out, margin, width, &widths),
            None => self.records(out, margin, width),
        }
    }

    fn lines(&self) -> impl Iterator<Item = &Vec<Vec<Run<'_>>>> {
        std::iter::once(&self.head).chain(&self.rows)
    }

    /// Returns the widths of the columns; `None` if they do not fit.
    fn widths(&self, room: usize) -> Option<Vec<usize>> {
        let count = self.alignments.len().max(1);
        let room = room.checked_sub(BETWEEN * (count - 1))?;
        let text = |cell: &[Run<'_>]| cell.iter().map(|run| run.text.as_ref()).collect::<String>();
        let column = |measure: &dyn Fn(&str) -> usize| -> Vec<usize> {
            let cell = |index: usize| {
                let cells = self.lines().filter_map(|row| row.get(index));
                cells.map(|cell| measure(&text(cell))).max().unwrap_or(0).max(1)
            };
            (0..count).map(cell).collect()
        };
        // A tab or an escaped character is wider than it looks here: such cells are wrapped.
        let mut widths = column(&|text| cells(text));
        if widths.iter().sum::<usize>() <= room {
            return Some(widths);
        }
        let words = |text: &str| text.split(' ').map(cells).max().unwrap_or(0);
        let least: Vec<usize> = column(&|text| words(text).max(cells(text).min(NARROWEST)));
        if least.iter().sum::<usize>() > room {
            return None;
        }
        // The widest column gives way first.
        while widths.iter().sum::<usize>() > room {
            let over = widths.iter().sum::<usize>() - room;
            let free =
                |index: usize, width: usize| width.saturating_sub(least.get(index).copied().unwrap_or(0));
            let widest = widths.iter().enumerate().filter(|(index, width)| free(*index, **width) > 0);
            let (index, width) =
                widest.max_by_key(|(_, width)| **width).map(|(index, width)| (index, *width))?;
            let second =
                widths.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, width)| *width).max();
            let step = width.saturating_sub(second.unwrap_or(0)).max(1).min(over).min(free(index, width));
            let narrowed = widths.get_mut(index)?;
            *narrowed -= step;
        }
        Some(widths)
    }

    fn columns(&self, out: &mut Vec<Row>, margin: &Margin, width: usize, widths: &[usize]) {
        let mut margin = margin.clone();
        for (index, row) in self.lines().enumerate() {
            let cells: Vec<Vec<Row>> = widths
                .iter()
                .enumerate()
                .map(|(column, width)| {
                    let mut rows = Vec::new();
                    let runs = row.get(column).map(Vec::as_slice).unwrap_or_default();
                    let runs: Vec<Run<'_>> =
                        if index == 0 { runs.iter().map(bold).collect() } else { runs.to_vec() };
                    line(&mut rows, &runs, Break::Words, &Margin::default(), *width);
                    rows
                })
                .collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(0);
            for at in 0..height {
                let mut shown = Row { spans: margin.first.clone(), ..Row::default() };
                margin.first.clone_from(&margin.rest);
                shown.is_soft = at + 1 < height;
                for (column, width) in widths.iter().enumerate() {
                    let part = cells.get(column).and_then(|rows| rows.get(at)).cloned().unwrap_or_default();
                    let is_last = column + 1 == widths.len();
                    self.add_cell(&mut shown, part, column, *width, is_last);
                }
                shown.spans = crate::wrap::cut_spans(&shown.spans, width);
                out.push(shown);
            }
            if index == 0 {
                let rule = |width: &usize| "─".repeat(*width);
                let rule = widths.iter().map(rule).collect::<Vec<_>>().join(&" ".repeat(BETWEEN));
                let mut spans = margin.rest.clone();
                spans.push(Span::new(rule, Style::from(Tone::Quiet)));
                out.push(Row::decoration(crate::wrap::cut_spans(&spans, width)));
            }
        }
    }

    fn add_cell(&self, shown: &mut Row, part: Row, column: usize, width: usize, is_last: bool) {
        let free = width.saturating_sub(part.width());
        let left = match self.alignments.get(column) {
            Some(Alignment::Right) => free,
            Some(Alignment::Center) => free / 2,
            _ => 0,
        };
        if !part.source.is_empty() {
            shown.source = match shown.source.is_empty() {
                true => part.source,
                false => shown.source.start.min(part.source.start)..shown.source.end.max(part.source.end),
            };
        }
        shown.spans.extend(spaces(left));
        shown.spans.extend(part.spans);
        if !is_last {
            shown.spans.extend(spaces(free - left + BETWEEN));
        }
    }

    /// Lays out each cell as a line `head: value`.
    fn records(&self, out: &mut Vec<Row>, margin: &Margin, width: usize) {
        let mut margin = margin.clone();
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                out.push(Row::decoration(Vec::new()));
            }
            for (column, cell) in row.iter().enumerate() {
                let mut runs: Vec<Run<'_>> = self
                    .head
                    .get(column)
                    .map(|head| {
                        head.iter().map(|run| Run { source: 0..0, is_exact: false, ..bold(run) }).collect()
                    })
                    .unwrap_or_default();
                if !runs.is_empty() {
                    runs.push(Run::new(": ", Style::default(), 0..0));
                }
                runs.extend(cell.iter().cloned());
                let hanging = Margin {
                    first: margin.first.clone(),
                    rest: margin.rest.iter().cloned().chain(spaces(2)).collect(),
                };
                line(out, &runs, Break::Words, &hanging, width);
                margin.first.clone_from(&margin.rest);
            }
        }
        if self.rows.is_empty() {
            let runs: Vec<Run<'_>> = self.head.iter().flatten().map(bold).collect();
            line(out, &runs, Break::Words, &margin, width);
        }
    }
}

fn bold<'a>(run: &Run<'a>) -> Run<'a> {
    Run { style: Style { bold: true, ..run.style }, ..run.clone() }
}
