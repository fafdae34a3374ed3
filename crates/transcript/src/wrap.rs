//! Lines of text as rows of a width.
//!
//! The text is escaped, tabs are expanded and graphemes measured before it is wrapped. Each span keeps its place in the source.

use std::borrow::Cow;
use std::ops::Range;

use azureal_core::{acts_on_terminal, visible_line};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::row::{Row, Span, Style, Tone};

/// The columns between tab stops.
const TAB: usize = 4;
/// The most bytes of one grapheme that are shown. More than that has no meaning, only marks.
const LARGEST_GRAPHEME: usize = 64;
/// The most bytes that are shown of a line of prose, and of a line of code or output.
const LONGEST_PROSE: usize = 64 << 10;
const LONGEST_CODE: usize = 4 << 10;
/// The columns that decoration leaves to the text.
const LEAST_TEXT: usize = 8;

/// A part of a line that is to be wrapped.
#[derive(Debug, Clone)]
pub(crate) struct Run<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) style: Style,
    /// Its place in the source.
    pub(crate) source: Range<usize>,
    /// Whether the text is what the source has there.
    pub(crate) is_exact: bool,
}

impl<'a> Run<'a> {
    /// Creates a run of a text that stands for these bytes of the source.
    pub(crate) fn new(text: impl Into<Cow<'a, str>>, style: Style, source: Range<usize>) -> Self {
        Self { text: text.into(), style, source, is_exact: false }
    }

    /// Creates a run of a text that is in the source at this place.
    pub(crate) fn at(text: impl Into<Cow<'a, str>>, style: Style, start: usize) -> Self {
        let text = text.into();
        let source = start..start + text.len();
        Self { text, style, source, is_exact: true }
    }
}

/// Where a line may be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Break {
    /// Between words.
    Words,
    /// Between words, in the output of a tool: a long line is cut earlier.
    Output,
    /// Anywhere: white space has a meaning.
    Cells,
}

/// Returns the width of a text in columns, grapheme by grapheme.
pub(crate) fn cells(text: &str) -> usize {
    if text.is_ascii() {
        return text.bytes().filter(|byte| !byte.is_ascii_control()).count();
    }
    text.graphemes(true).map(UnicodeWidthStr::width).sum()
}

/// Returns a number of bytes as text: `812 bytes`, `1.0 MB`.
pub(crate) fn size_text(bytes: usize) -> String {
    let tenths = |unit: usize| (bytes * 10 / unit / 10, bytes * 10 / unit % 10);
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} KB", bytes / 1_000),
        _ => {
            let (whole, tenth) = tenths(1_000_000);
            format!("{whole}.{tenth} MB")
        }
    }
}

/// A grapheme as it is shown.
#[derive(Debug, Clone)]
struct Atom<'a> {
    text: Cow<'a, str>,
    width: usize,
    style: Style,
    source: Range<usize>,
    is_exact: bool,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Space,
    Word,
    /// An ideograph: a line may be broken beside it.
    Wide,
    /// A mark that does not begin a line.
    Closing,
}

/// Decoration in front of the rows of a line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Margin {
    /// In front of the first row.
    pub(crate) first: Vec<Span>,
    /// In front of the others.
    pub(crate) rest: Vec<Span>,
}

impl Margin {
    /// Creates a margin that is the same for all rows.
    pub(crate) fn same(spans: Vec<Span>) -> Self {
        Self { first: spans.clone(), rest: spans }
    }

    pub(crate) fn spaces(count: usize) -> Self {
        Self::same(spaces(count))
    }

    /// Cuts it down so that it leaves room for text.
    fn fitted(&self, width: usize) -> Self {
        let most = width.saturating_sub(LEAST_TEXT.min(width));
        Self { first: cut_spans(&self.first, most), rest: cut_spans(&self.rest, most) }
    }
}

pub(crate) fn spaces(count: usize) -> Vec<Span> {
    if count == 0 { Vec::new() } else { vec![Span::new(" ".repeat(count), Style::default())] }
}

/// Returns the spans up to a width.
pub(crate) fn cut_spans(spans: &[Span], most: usize) -> Vec<Span> {
    let mut left = most;
    let mut kept: Vec<Span> = Vec::new();
    for span in spans {
        let text = cut(&span.text, left);
        left -= cells(text);
        let before = kept.last_mut().filter(|before| before.style == span.style);
        if let Some(before) = before.filter(|before| before.source.is_empty() && span.source.is_empty()) {
            before.text.push_str(text);
        } else if !text.is_empty() {
            let end = if span.is_exact { span.source.start + text.len() } else { span.source.end };
            let source = span.source.start..end;
            kept.push(Span { text: text.to_owned(), source, ..span.clone() });
        }
        if text.len() < span.text.len() {
            break;
        }
    }
    kept
}

/// Returns the beginning of a text that fits into a width.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let mut width = 0;
    for (at, grapheme) in text.grapheme_indices(true) {
        width += grapheme.width();
        if width > most {
            return text.get(..at).unwrap_or_default();
        }
    }
    text
}

/// Lays out one line of the source. Without text it is one row.
pub(crate) fn line(out: &mut Vec<Row>, runs: &[Run<'_>], breaks: Break, margin: &Margin, width: usize) {
    let margin = margin.fitted(width);
    let used = |spans: &[Span]| spans.iter().map(Span::width).sum::<usize>();
    let (first, rest) = (width - used(&margin.first).min(width), width - used(&margin.rest).min(width));
    let start = runs.first().map_or(0, |run| run.source.start);
    let atoms = atoms(runs, breaks, first.min(rest));
    let mut wrapped = Vec::new();
    match breaks {
        Break::Cells => wrap_cells(atoms, first, rest, &mut wrapped),
        Break::Words | Break::Output => wrap_words(atoms, first, rest, &mut wrapped),
    }
    if wrapped.is_empty() {
        wrapped.push(Vec::new());
    }
    let last = wrapped.len() - 1;
    for (index, atoms) in wrapped.into_iter().enumerate() {
        let mut spans = if index == 0 { margin.first.clone() } else { margin.rest.clone() };
        let places = atoms.iter().map(|atom| &atom.source).filter(|source| !source.is_empty());
        let source = places.fold(None, |all: Option<Range<usize>>, place| {
            Some(all.map_or(place.clone(), |all| all.start.min(place.start)..all.end.max(place.end)))
        });
        let from = spans.len();
        for atom in atoms {
            push_atom(&mut spans, from, atom);
        }
        out.push(Row { spans, source: source.unwrap_or(start..start), is_soft: index < last });
    }
}

/// Adds an atom to the spans, joined with the last one where that is possible.
fn push_atom(spans: &mut Vec<Span>, from: usize, atom: Atom<'_>) {
    let can_join = spans.len() > from;
    if let Some(last) = spans.last_mut().filter(|_| can_join)
        && last.style == atom.style
        && ((atom.is_exact && last.is_exact && last.source.end == atom.source.start)
            || (atom.source.is_empty() && last.source.is_empty()))
    {
        last.text.push_str(&atom.text);
        if atom.is_exact {
            last.source.end = atom.source.end;
        }
        return;
    }
    let Atom { style, source, is_exact, .. } = atom;
    spans.push(Span { text: atom.text.into_owned(), style, source, is_exact });
}

/// Splits a line into what is shown of it. Graphemes without a width are left out: no terminal has a cell for them.
fn atoms<'a>(runs: &'a [Run<'a>], breaks: Break, narrowest: usize) -> Vec<Atom<'a>> {
    let most = if breaks == Break::Words { LONGEST_PROSE } else { LONGEST_CODE };
    let size: usize = runs.iter().map(|run| run.text.len()).sum();
    let mut atoms = Vec::new();
    let (mut taken, mut column) = (0, 0);
    'runs: for run in runs {
        for (at, grapheme) in run.text.grapheme_indices(true) {
            taken += grapheme.len();
            if taken > most && size > most {
                let style = Style::from(Tone::Quiet);
                atoms.extend(plain_atoms(&format!(" … {}", size_text(size)), style));
                break 'runs;
            }
            let source = match run.is_exact {
                true => run.source.start + at..run.source.start + at + grapheme.len(),
                false => run.source.clone(),
            };
            let atom = |text: Cow<'a, str>, width, kind| {
                let is_exact = run.is_exact && text == grapheme;
                Atom { text, width, style: run.style, source: source.clone(), is_exact, kind }
            };
            if grapheme == "\t" {
                let width = TAB - column % TAB;
                column += width;
                atoms.push(atom(
                    Cow::Owned(" ".repeat(width.min(narrowest.max(1)))),
                    width.min(narrowest.max(1)),
                    Kind::Space,
                ));
                continue;
            }
            if grapheme.contains(acts_on_terminal) {
                for c in visible_line(grapheme).graphemes(true) {
                    let width = c.width();
                    column += width;
                    if width > 0 {
                        atoms.push(atom(Cow::Owned(c.to_owned()), width, Kind::Word));
                    }
                }
                continue;
            }
            let shown = match grapheme.len() {
                0..=LARGEST_GRAPHEME => grapheme,
                _ => grapheme.get(..grapheme.floor_char_boundary(LARGEST_GRAPHEME)).unwrap_or_default(),
            };
            let width = shown.width();
            if width == 0 {
                continue;
            }
            column += width;
            match width <= narrowest {
                true => atoms.push(atom(Cow::Borrowed(shown), width, kind(shown, width))),
                // A grapheme that is wider than a row.
                false => atoms.push(atom(Cow::Borrowed("?"), 1, Kind::Word)),
            }
        }
    }
    atoms
}

/// Returns a decoration as atoms.
fn plain_atoms(text: &str, style: Style) -> Vec<Atom<'static>> {
    let atom = |grapheme: &str| Atom {
        text: Cow::Owned(grapheme.to_owned()),
        width: grapheme.width(),
        style,
        source: 0..0,
        is_exact: false,
        kind: kind(grapheme, grapheme.width()),
    };
    text.graphemes(true).map(atom).collect()
}

fn kind(grapheme: &str, width: usize) -> Kind {
    // A no-break space is part of a word.
    if grapheme == " " || grapheme == "\u{3000}" {
        return Kind::Space;
    }
    if width < 2 {
        return Kind::Word;
    }
    match grapheme.chars().next() {
        Some(
            '、' | '。' | '，' | '．' | '：' | '；' | '？' | '！' | '」' | '』' | '）' | '】' | '》' | '〉'
            | '〕' | '］' | '｝' | 'ー' | '々',
        ) => Kind::Closing,
        _ => Kind::Wide,
    }
}

fn wrap_cells<'a>(atoms: Vec<Atom<'a>>, first: usize, rest: usize, rows: &mut Vec<Vec<Atom<'a>>>) {
    let (mut row, mut width, mut room) = (Vec::new(), 0, first);
    for atom in atoms {
        if width + atom.width > room && !row.is_empty() {
            rows.push(std::mem::take(&mut row));
            (width, room) = (0, rest);
        }
        width += atom.width;
        row.push(atom);
    }
    if !row.is_empty() {
        rows.push(row);
    }
}

fn wrap_words<'a>(atoms: Vec<Atom<'a>>, first: usize, rest: usize, rows: &mut Vec<Vec<Atom<'a>>>) {
    let (mut row, mut width, mut room): (Vec<Atom<'a>>, usize, usize) = (Vec::new(), 0, first);
    // The number of atoms of the row that a break may come after.
    let mut last_break = 0;
    let mut is_broken = false;
    for atom in atoms {
        if atom.kind == Kind::Space {
            // White space at a break is not shown.
            if row.is_empty() && is_broken {
                continue;
            }
            if width + atom.width > room {
                rows.push(trimmed(std::mem::take(&mut row)));
                (width, room, last_break, is_broken) = (0, rest, 0, true);
                continue;
            }
            width += atom.width;
            row.push(atom);
            last_break = row.len();
            continue;
        }
        let is_beside_wide =
            atom.kind == Kind::Wide || row.last().is_some_and(|last| last.kind != Kind::Word);
        if is_beside_wide && atom.kind != Kind::Closing {
            last_break = row.len();
        }
        while width + atom.width > room && !row.is_empty() {
            if last_break > 0 && is_blank(&row, last_break) {
                // The word may fit without the white space in front of it.
                row.drain(..last_break.min(row.len()));
                width = row.iter().map(|atom| atom.width).sum();
                last_break = 0;
                continue;
            }
            let at = if last_break == 0 { row.len() } else { last_break };
            let tail = row.split_off(at.min(row.len()));
            let head = trimmed(std::mem::replace(&mut row, tail));
            rows.push(head);
            width = row.iter().map(|atom| atom.width).sum();
            (room, last_break, is_broken) = (rest, 0, true);
        }
        width += atom.width;
        row.push(atom);
    }
    if !row.is_empty() {
        rows.push(trimmed(row));
    }
}

/// Returns whether the row has only white space before a place: a break there would leave an empty row.
fn is_blank(row: &[Atom<'_>], end: usize) -> bool {
    row.iter().take(end).all(|atom| atom.kind == Kind::Space)
}

fn trimmed(mut row: Vec<Atom<'_>>) -> Vec<Atom<'_>> {
    while row.last().is_some_and(|atom| atom.kind == Kind::Space) {
        row.pop();
    }
    row
}
