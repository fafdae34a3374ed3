//! The inline marks of Markdown.

use std::ops::Range;

use pulldown_cmark::{Event, Tag};

use super::Slice;
use crate::row::{Style, Tone};
use crate::wrap::Run;

/// A paragraph that is being gathered: its lines, and the marks that are open.
#[derive(Debug, Default)]
pub(super) struct Line<'a> {
    lines: Vec<Vec<Run<'a>>>,
    runs: Vec<Run<'a>>,
    marks: Vec<Mark<'a>>,
}

#[derive(Debug)]
struct Mark<'a> {
    style: Style,
    /// The target of a link or an image, and the number of runs and lines before it.
    target: Option<(&'a str, String, usize)>,
}

impl<'a> Line<'a> {
    fn style(&self) -> Style {
        self.marks.last().map(|mark| mark.style).unwrap_or_default()
    }

    /// Begins a mark.
    pub(super) fn begin(&mut self, tag: &Tag<'a>, range: &Range<usize>, slice: Slice<'a>) {
        let before = self.style();
        let (style, target) = match tag {
            Tag::Heading { .. } => (Style { bold: true, ..Style::from(Tone::Heading) }, None),
            Tag::Emphasis => (Style { italic: true, ..before }, None),
            Tag::Strong => (Style { bold: true, ..before }, None),
            Tag::Strikethrough => (Style { strike: true, ..before }, None),
            Tag::Link { dest_url, .. } => {
                let style = Style { tone: Tone::Link, ..before };
                (style, Some(("", dest_url.to_string(), self.runs.len())))
            }
            Tag::Image { dest_url, .. } => {
                let start = slice.start + range.start;
                self.runs.push(Run::new("[image: ", Style { tone: Tone::Quiet, ..before }, start..start));
                (before, Some(("]", dest_url.to_string(), self.runs.len())))
            }
            _ => (before, None),
        };
        self.marks.push(Mark { style, target });
    }

    /// Ends the last mark. The target of a link is shown if it differs from its text.
    pub(super) fn end(&mut self, range: &Range<usize>, slice: Slice<'a>) {
        let Some(Mark { target: Some((closing, url, before)), .. }) = self.marks.pop() else { return };
        let style = self.style();
        let end = slice.start + range.end;
        let quiet = Style { tone: Tone::Quiet, ..style };
        let text: String = self.runs.iter().skip(before).map(|run| run.text.as_ref()).collect();
        if !closing.is_empty() {
            self.runs.push(Run::new(closing, quiet, end..end));
        }
        let is_same = text == url || url.strip_prefix("mailto:") == Some(&text) || url.is_empty();
        if is_same {
            return;
        }
        // The place of the target, if it is written in the link.
        let written = slice.text.get(range.clone()).unwrap_or_default();
        let place = written.rfind(&url).map(|at| slice.start + range.start + at);
        let style = Style { tone: Tone::Link, ..style };
        self.runs.push(Run::new(" (", quiet, end..end));
        self.runs.push(match place {
            Some(at) => Run::at(url, style, at),
            None => Run::new(url, style, end..end),
        });
        self.runs.push(Run::new(")", quiet, end..end));
    }

    /// Adds a part of the text.
    pub(super) fn inline(&mut self, event: &Event<'a>, range: &Range<usize>, slice: Slice<'a>) {
        let style = self.style();
        let place = slice.start + range.start..slice.start + range.end;
        let written = slice.text.get(range.clone()).unwrap_or_default();
        let run = |text: &str, style: Style| match written.find(text).filter(|_| !text.is_empty()) {
            Some(at) => Run::at(text.to_owned(), style, place.start + at),
            None => Run::new(text.to_owned(), style, place.clone()),
        };
        match event {
            Event::Text(text)
            | Event::InlineHtml(text)
            | Event::Html(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text) => self.runs.push(run(text, style)),
            Event::Code(code) => self.runs.push(run(code, Style { tone: Tone::Code, ..style })),
            Event::FootnoteReference(label) => {
                self.runs.push(Run::new(format!("[{label}]"), Style { tone: Tone::Quiet, ..style }, place));
            }
            Event::TaskListMarker(is_done) => {
                let mark = if *is_done { "[x] " } else { "[ ] " };
                self.runs.push(Run::new(mark, Style { tone: Tone::Quiet, ..style }, place));
            }
            Event::SoftBreak | Event::HardBreak => self.lines.push(std::mem::take(&mut self.runs)),
            Event::Start(_) | Event::End(_) | Event::Rule => {}
        }
    }

    /// Returns the lines, and is empty.
    pub(super) fn take(&mut self) -> Vec<Vec<Run<'a>>> {
        let mut lines = std::mem::take(&mut self.lines);
        let runs = std::mem::take(&mut self.runs);
        if !runs.is_empty() {
            lines.push(runs);
        }
        lines
    }
}
