//! Markdown as rows.
//!
//! A line break in a paragraph stays one: agents use them as such. Code is never re-flowed. Raw HTML is text.

mod inline;
mod table;

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::row::{Row, Span, Style, Tone};
use crate::wrap::{Break, Margin, Run, line, spaces};
use inline::Line;

/// The marks of Markdown that we know.
const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS)
    .union(Options::ENABLE_FOOTNOTES);
/// The deepest nesting whose marks are shown. Deeper ones would leave no room for words.
const DEEPEST: usize = 32;

pub(crate) fn parser(source: &str) -> Parser<'_> {
    Parser::new_ext(source, OPTIONS)
}

/// A text with the place of its beginning in the source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice<'a> {
    pub(crate) text: &'a str,
    pub(crate) start: usize,
}

/// A fenced or indented code block: its place in the source, without fences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) place: Range<usize>,
    pub(crate) language: String,
}

/// The room for a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// The spaces in front of each row.
    pub(crate) indent: usize,
    /// The width of a row, with these spaces.
    pub(crate) width: usize,
}

/// The events of a text, with their places.
pub(crate) type Events<'a> = Vec<(Event<'a>, Range<usize>)>;

/// Lays out the events of a text. If there are blocks in front of it, a blank row keeps it apart from them.
pub(crate) fn lay_out<'a>(
    out: &mut Vec<Row>,
    slice: Slice<'a>,
    events: &[(Event<'a>, Range<usize>)],
    room: Room,
    has_blocks_before: bool,
) {
    let start = if has_blocks_before { None } else { Some(out.len()) };
    let mut writer = Writer {
        out,
        slice,
        width: room.width,
        margins: vec![Margin::spaces(room.indent)],
        containers: vec![Container { kind: Kind::Block, start }],
        gap: None,
        line: Line::default(),
        has_text: false,
    };
    writer.blocks(events, &tight_lists(events));
}

/// Returns the code blocks of a text.
pub(crate) fn code_blocks(source: &str) -> Vec<Code> {
    let mut blocks = Vec::new();
    let mut open: Option<Code> = None;
    for (event, range) in parser(source).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                open = Some(Code { place: range.end..range.start, language: language(&kind) });
            }
            Event::Text(_) => {
                if let Some(code) = &mut open {
                    code.place = code.place.start.min(range.start)..code.place.end.max(range.end);
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                blocks.extend(open.take().filter(|code| code.place.start < code.place.end));
            }
            _ => {}
        }
    }
    blocks
}

/// Returns the language that a fence names: its first word.
fn language(kind: &CodeBlockKind<'_>) -> String {
    match kind {
        CodeBlockKind::Indented => String::new(),
        CodeBlockKind::Fenced(info) => {
            let word = info.split([' ', ',', '\t', '{']).find(|word| !word.is_empty());
            word.unwrap_or_default().to_owned()
        }
    }
}

/// Finds for each list whether it is tight: without blank lines between its items.
fn tight_lists(events: &[(Event<'_>, Range<usize>)]) -> Vec<bool> {
    let (mut lists, mut open): (Vec<bool>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
    for (event, _) in events {
        match event {
            Event::Start(Tag::List(_)) => {
                open.push(Some(lists.len()));
                lists.push(true);
            }
            // A paragraph in something else does not make the list around it loose.
            Event::Start(Tag::BlockQuote(_) | Tag::FootnoteDefinition(_)) => open.push(None),
            Event::End(TagEnd::List(_) | TagEnd::BlockQuote(_) | TagEnd::FootnoteDefinition) => {
                open.pop();
            }
            Event::Start(Tag::Paragraph) => {
                let list = open.last().copied().flatten().and_then(|index| lists.get_mut(index));
                if let Some(is_tight) = list {
                    *is_tight = false;
                }
            }
            _ => {}
        }
    }
    lists
}

#[derive(Debug, Clone, Copy)]
struct Container {
    kind: Kind,
    /// The number of rows at its beginning; `None` if it has rows elsewhere.
    start: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Its parts have blank rows between them.
    Block,
    List {
        number: Option<u64>,
        is_tight: bool,
    },
    Item {
        is_tight: bool,
    },
}

struct Writer<'o, 'a> {
    out: &'o mut Vec<Row>,
    slice: Slice<'a>,
    width: usize,
    /// The decoration of the containers. The first of an item is its mark, which is shown once.
    margins: Vec<Margin>,
    containers: Vec<Container>,
    /// A blank row that goes in front of the next row.
    gap: Option<Row>,
    line: Line<'a>,
    /// Whether text of a tight item is in the line.
    has_text: bool,
}

impl<'a> Writer<'_, 'a> {
    fn blocks(&mut self, events: &[(Event<'a>, Range<usize>)], tight_lists: &[bool]) {
        let mut tight_lists = tight_lists.iter().copied();
        let mut events = events.iter();
        while let Some((event, range)) = events.next() {
            match event {
                Event::Start(Tag::CodeBlock(_)) => {
                    self.begin_block();
                    self.code(&mut events);
                }
                Event::Start(Tag::HtmlBlock) => self.begin_block(),
                Event::Html(html) => self.verbatim(html, range, Style::default()),
                Event::Start(Tag::Table(alignments)) => {
                    self.begin_block();
                    let table = table::gather(alignments, &mut events, self.slice);
                    let (margin, width) = (self.take_margin(), self.width);
                    table.lay_out(self.out, &margin, width);
                }
                Event::Start(tag) => self.start(tag, range, &mut tight_lists),
                Event::End(tag) => self.end(*tag, range),
                Event::Rule => {
                    self.begin_block();
                    self.rule(range);
                }
                inline => {
                    if !self.has_text {
                        self.begin_block();
                        self.has_text = true;
                    }
                    self.line.inline(inline, range, self.slice);
                }
            }
        }
        self.flush();
    }

    fn start(&mut self, tag: &Tag<'a>, range: &Range<usize>, tight_lists: &mut impl Iterator<Item = bool>) {
        match tag {
            Tag::Paragraph => {
                self.begin_block();
                self.has_text = true;
            }
            Tag::Heading { .. } => {
                self.begin_block();
                self.has_text = true;
                self.line.begin(tag, range, self.slice);
            }
            Tag::BlockQuote(_) => {
                self.begin_block();
                let mark = Span::new("│ ", Style::from(Tone::Quiet));
                self.enter(Kind::Block, Margin::same(vec![mark]));
            }
            Tag::List(number) => {
                let is_tight = tight_lists.next().unwrap_or(true);
                self.begin_block();
                let start = Some(self.out.len());
                self.containers.push(Container { kind: Kind::List { number: *number, is_tight }, start });
            }
            Tag::Item => self.item(),
            Tag::FootnoteDefinition(label) => {
                self.begin_block();
                let mark = format!("[{}] ", azureal_core::visible_line(label));
                let rest = spaces(2);
                self.enter(
                    Kind::Block,
                    Margin { first: vec![Span::new(mark, Style::from(Tone::Quiet))], rest },
                );
            }
            inline => {
                if !self.has_text {
                    self.begin_block();
                    self.has_text = true;
                }
                self.line.begin(inline, range, self.slice);
            }
        }
    }

    fn end(&mut self, tag: TagEnd, range: &Range<usize>) {
        match tag {
            TagEnd::Paragraph => self.flush(),
            TagEnd::Heading(_) => {
                self.line.end(range, self.slice);
                self.flush();
            }
            TagEnd::Item => {
                self.flush();
                // An item without content still has its mark.
                if !self.has_block() {
                    self.row(&[]);
                }
                self.leave();
            }
            TagEnd::BlockQuote(_) | TagEnd::FootnoteDefinition => {
                self.flush();
                self.leave();
            }
            TagEnd::List(_) => drop(self.containers.pop()),
            _ => self.line.end(range, self.slice),
        }
    }

    fn item(&mut self) {
        let mut mark = "• ".to_owned();
        let has_block = self.has_block();
        let mut is_tight_list = true;
        if let Some(Container { kind: Kind::List { number, is_tight }, .. }) = self.containers.last_mut() {
            is_tight_list = *is_tight;
            if let Some(number) = number {
                mark = format!("{number}. ");
                *number = number.saturating_add(1);
            }
        }
        if has_block && !is_tight_list {
            self.gap = Some(self.blank());
        }
        let rest = spaces(mark.chars().count());
        let first = vec![Span::new(mark, Style::from(Tone::Quiet))];
        self.enter(Kind::Item { is_tight: is_tight_list }, Margin { first, rest });
    }

    fn enter(&mut self, kind: Kind, margin: Margin) {
        self.containers.push(Container { kind, start: Some(self.out.len()) });
        self.margins.push(margin);
    }

    fn leave(&mut self) {
        self.containers.pop();
        self.margins.pop();
    }

    /// Returns whether the innermost container has rows.
    fn has_block(&self) -> bool {
        let start = self.containers.last().and_then(|container| container.start);
        start.is_none_or(|start| self.out.len() > start)
    }

    /// Ends the text of a tight item. A blank row belongs between two parts of most containers.
    fn begin_block(&mut self) {
        self.flush();
        let kind = self.containers.last().map(|container| container.kind);
        if self.has_block() && !matches!(kind, Some(Kind::Item { is_tight: true })) {
            self.gap = Some(self.blank());
        }
    }

    /// Returns a blank row with the marks of quotes.
    fn blank(&self) -> Row {
        let mut spans: Vec<Span> =
            self.margins.iter().take(DEEPEST).flat_map(|margin| margin.rest.clone()).collect();
        while spans.last().is_some_and(|span| span.text.trim().is_empty()) {
            spans.pop();
        }
        if let Some(last) = spans.last_mut() {
            last.text.truncate(last.text.trim_end().len());
        }
        Row::decoration(crate::wrap::cut_spans(&spans, self.width))
    }

    /// Returns the decoration of the next rows. The marks of items are taken: they are shown once.
    fn take_margin(&mut self) -> Margin {
        self.out.extend(self.gap.take());
        let mut all = Margin::default();
        for margin in self.margins.iter_mut().take(DEEPEST) {
            all.rest.extend(margin.rest.iter().cloned());
            let first = std::mem::replace(&mut margin.first, margin.rest.clone());
            all.first.extend(first);
        }
        all
    }

    fn row(&mut self, runs: &[Run<'_>]) {
        let margin = self.take_margin();
        line(self.out, runs, Break::Words, &margin, self.width);
    }

    /// Lays out the text that was gathered.
    fn flush(&mut self) {
        self.has_text = false;
        for runs in self.line.take() {
            self.row(&runs);
        }
    }

    fn rule(&mut self, range: &Range<usize>) {
        let margin = self.take_margin();
        let used: usize = margin.first.iter().map(Span::width).sum();
        let room = self.width.saturating_sub(used).max(1);
        let mut spans = margin.first;
        spans.push(Span::new("─".repeat(room), Style::from(Tone::Quiet)));
        let start = self.slice.start + range.start;
        let spans = crate::wrap::cut_spans(&spans, self.width);
        self.out.push(Row { spans, source: start..start, is_soft: false });
    }

    fn code<'e>(&mut self, events: &mut impl Iterator<Item = &'e (Event<'a>, Range<usize>)>)
    where
        'a: 'e,
    {
        // A line may come in several pieces: without the indentation of the list that it is in.
        let mut open: Vec<Run<'a>> = Vec::new();
        let start = self.slice.start;
        for (event, range) in events {
            match event {
                Event::Text(text) => {
                    let mut at = start + range.start;
                    let is_exact = self.slice.text.get(range.clone()) == Some(text);
                    for piece in text.split_inclusive('\n') {
                        let is_whole = piece.ends_with('\n');
                        let code = piece.trim_end_matches(['\n', '\r']).to_owned();
                        let style = Style::from(Tone::Code);
                        // An empty line begins with its whole line break.
                        let before = self.slice.text.get(..at - start).unwrap_or_default();
                        let is_second_half = open.is_empty() && code.is_empty() && before.ends_with('\r');
                        let place = at - usize::from(is_second_half);
                        open.push(match is_exact {
                            true => Run::at(code, style, place),
                            false => Run::new(code, style, start + range.start..start + range.end),
                        });
                        at += piece.len();
                        if is_whole {
                            self.code_line(&std::mem::take(&mut open));
                        }
                    }
                }
                Event::End(TagEnd::CodeBlock) => break,
                _ => {}
            }
        }
        if !open.is_empty() {
            self.code_line(&open);
        }
    }

    fn code_line(&mut self, runs: &[Run<'_>]) {
        let mut margin = self.take_margin();
        margin.first.extend(spaces(2));
        margin.rest.extend(spaces(2));
        line(self.out, runs, Break::Cells, &margin, self.width);
    }

    /// Lays out lines as they are.
    fn verbatim(&mut self, text: &str, range: &Range<usize>, style: Style) {
        let mut at = self.slice.start + range.start;
        let place = at..self.slice.start + range.end;
        let is_exact = self.slice.text.get(range.clone()) == Some(text);
        for piece in text.split_inclusive('\n') {
            let shown = piece.trim_end_matches(['\n', '\r']);
            let run = match is_exact {
                true => Run::at(shown, style, at),
                false => Run::new(shown, style, place.clone()),
            };
            let margin = self.take_margin();
            line(self.out, &[run], Break::Words, &margin, self.width);
            at += piece.len();
        }
    }
}
