//! Code in blocks, and its colours.
//!
//! Colours are a second pass: they change the tones of spans that are laid out, never their text, so no height changes.

use std::ops::Range;

use crate::row::{Row, Span, Tone};
use crate::{Block, Content, markdown};

/// Code in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodePart {
    /// Its place in the source of the block, in bytes.
    pub at: usize,
    /// Its language as the author named it, or the name of its file.
    pub language: String,
    /// The code. Each byte is at its place in the source, so the lines of a list or a quote still have their indentation; the signs of a diff are spaces.
    pub code: String,
}

/// Returns the code of a block whose language is known.
pub fn code_parts(block: &Block) -> Vec<CodePart> {
    match &block.content {
        Content::Text(text) if text.is_markdown() => {
            let parts = markdown::code_blocks(&text.source).into_iter();
            parts
                .filter(|code| !code.language.is_empty())
                .filter_map(|markdown::Code { place, language }| {
                    let code = text.source.get(place.clone())?.to_owned();
                    Some(CodePart { at: place.start, language, code })
                })
                .collect()
        }
        Content::Call(call) if !call.diff.is_empty() => {
            let name = call.key.rsplit('/').next().unwrap_or_default();
            if name.is_empty() {
                return Vec::new();
            }
            let lines: Vec<String> = call.diff.iter().map(|line| without_sign(line)).collect();
            vec![CodePart { at: call.diff_start(), language: name.to_owned(), code: lines.join("\n") }]
        }
        _ => Vec::new(),
    }
}

/// Replaces the sign of a line of a diff by a space, and all of a line that is no code.
fn without_sign(line: &str) -> String {
    if line.starts_with("@@") || crate::diff::is_mark(line) {
        return " ".repeat(line.len());
    }
    let mut chars = line.chars();
    let sign = chars.next().map_or(0, char::len_utf8);
    format!("{}{}", " ".repeat(sign), chars.as_str())
}

/// Gives the code in a row its tones. `at` is the place of the code in the source of the block; the tones are sorted, by places in the code.
pub fn apply_tones(row: &mut Row, at: usize, tones: &[(Range<usize>, Tone)]) {
    let is_code =
        |span: &Span| span.is_exact && (span.style.tone == Tone::Code || span.style.change.is_some());
    let end = at.saturating_add(tones.last().map_or(0, |(range, _)| range.end));
    if !row.spans.iter().any(|span| is_code(span) && span.source.start < end && span.source.end > at) {
        return;
    }
    let mut spans = Vec::with_capacity(row.spans.len() + 4);
    for span in std::mem::take(&mut row.spans) {
        match is_code(&span) && span.source.end > at {
            true => split(&mut spans, &span, at, tones),
            false => spans.push(span),
        }
    }
    row.spans = spans;
}

/// Splits a span where its tone changes.
fn split(spans: &mut Vec<Span>, span: &Span, at: usize, tones: &[(Range<usize>, Tone)]) {
    let mut push = |place: Range<usize>, tone: Option<Tone>| {
        let text = span.text.get(place.start - span.source.start..place.end - span.source.start);
        let Some(text) = text.filter(|text| !text.is_empty()) else { return };
        let mut style = span.style;
        style.tone = tone.unwrap_or(style.tone);
        spans.push(Span { text: text.to_owned(), style, source: place, is_exact: true });
    };
    let first = tones.partition_point(|(range, _)| at.saturating_add(range.end) <= span.source.start);
    let mut done = span.source.start;
    for (range, tone) in tones.iter().skip(first) {
        let (start, end) =
            (at.saturating_add(range.start).max(done), at.saturating_add(range.end).min(span.source.end));
        if start >= span.source.end {
            break;
        }
        // A place inside a character is no place.
        let is_place = |place: usize| span.text.is_char_boundary(place - span.source.start);
        if start >= end || !is_place(start) || !is_place(end) {
            continue;
        }
        push(done..start, None);
        push(start..end, Some(*tone));
        done = end;
    }
    push(done..span.source.end, None);
}
