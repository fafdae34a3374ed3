//! The text of a prompt: characters, and large pasted texts that are one unit each.

use std::ops::Range;
use std::sync::Arc;

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation};

/// The character in the place of a pasted text. The same character in a user's own text has no entry in [`Text::pastes`], and is a character.
const STAND_IN: &str = "\u{FFFC}";

/// A large pasted text. It is counted once, when it is pasted; layout and drawing use the label only.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Paste {
    text: String,
    label: String,
}

impl Paste {
    pub(super) fn new(text: String) -> Self {
        // A line break at the end does not begin a line.
        let lines = text.lines().count();
        let lines = if lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") };
        let label = format!("[pasted {lines}, {}]", size(text.len()));
        Self { text, label }
    }

    /// Returns what the screen shows: `[pasted 312 lines, 14 kB]`.
    pub(super) fn label(&self) -> &str {
        &self.label
    }
}

/// Returns a size for people, rounded.
fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..999_500 => format!("{} kB", (bytes + 500) / 1_000),
        _ => {
            let tenths = (bytes + 50_000) / 100_000;
            format!("{}.{} MB", tenths / 10, tenths % 10)
        }
    }
}

/// A text with pasted texts. Offsets are bytes of [`chars`](Self::chars).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Text {
    chars: String,
    /// The pasted texts by the offset of their stand-in, in order.
    pastes: Vec<(usize, Arc<Paste>)>,
}

/// The smallest part of a text that the cursor moves over.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unit<'t> {
    /// A grapheme: what a reader calls a character.
    Grapheme(&'t str),
    /// A pasted text.
    Paste(&'t Paste),
}

/// The kind of a unit for motions by words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Space,
    Word,
    Sign,
    Paste,
}

impl Unit<'_> {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Paste(_) => Kind::Paste,
            Self::Grapheme(grapheme) => match grapheme.chars().next() {
                Some(c) if c.is_whitespace() => Kind::Space,
                Some(c) if c.is_alphanumeric() || c == '_' => Kind::Word,
                _ => Kind::Sign,
            },
        }
    }
}

impl From<&str> for Text {
    fn from(chars: &str) -> Self {
        Self { chars: chars.to_owned(), pastes: Vec::new() }
    }
}

impl Text {
    /// Returns a text of one pasted text.
    pub(super) fn pasted(text: String) -> Self {
        Self { chars: STAND_IN.to_owned(), pastes: vec![(0, Arc::new(Paste::new(text)))] }
    }

    pub(super) fn len(&self) -> usize {
        self.chars.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chars.is_empty()
    }

    /// Returns whether the text has no visible character.
    pub(super) fn is_blank(&self) -> bool {
        self.pastes.iter().all(|(_, paste)| paste.text.trim().is_empty())
            && self.pieces().all(|(chars, _)| chars.trim().is_empty())
    }

    /// Returns the text with pasted texts in full.
    pub(super) fn expanded(&self) -> String {
        let mut out = String::with_capacity(self.expanded_len());
        for (chars, paste) in self.pieces() {
            out.push_str(chars);
            out.push_str(paste.map_or("", |paste| paste.text.as_str()));
        }
        out
    }

    /// Returns the length of [`expanded`](Self::expanded), without building it.
    pub(super) fn expanded_len(&self) -> usize {
        let pasted: usize = self.pastes.iter().map(|(_, paste)| paste.text.len()).sum();
        self.chars.len() - self.pastes.len() * STAND_IN.len() + pasted
    }

    /// Returns the runs of characters, each with the pasted text after it.
    fn pieces(&self) -> impl Iterator<Item = (&str, Option<&Paste>)> {
        let ends = self.pastes.iter().map(|(at, paste)| (*at, Some(&**paste)));
        let mut start = 0;
        ends.chain([(self.len(), None)]).map(move |(end, paste)| {
            let piece = self.chars.get(start..end).unwrap_or_default();
            start = end + STAND_IN.len();
            (piece, paste)
        })
    }

    /// Returns the characters of a range. A pasted text is its stand-in.
    pub(super) fn chars(&self, range: Range<usize>) -> &str {
        self.chars.get(range).unwrap_or_default()
    }

    /// Returns a part of the text.
    pub(super) fn slice(&self, range: Range<usize>) -> Self {
        let pastes = self.pastes.iter().filter(|(at, _)| range.contains(at));
        Self {
            chars: self.chars(range.clone()).to_owned(),
            pastes: pastes.map(|(at, paste)| (at - range.start, Arc::clone(paste))).collect(),
        }
    }

    /// Replaces a range by another text, and returns what was there.
    pub(super) fn splice(&mut self, range: Range<usize>, with: &Self) -> Self {
        let start = self.chars.floor_char_boundary(range.start);
        let end = self.chars.floor_char_boundary(range.end.max(start));
        let removed = self.slice(start..end);
        self.chars.replace_range(start..end, &with.chars);
        let first = self.pastes.partition_point(|(at, _)| *at < start);
        let last = self.pastes.partition_point(|(at, _)| *at < end);
        for (at, _) in self.pastes.iter_mut().skip(last) {
            *at = *at - (end - start) + with.len();
        }
        let moved = with.pastes.iter().map(|(at, paste)| (at + start, Arc::clone(paste)));
        self.pastes.splice(first..last, moved);
        removed
    }

    /// Adds a text at the end.
    pub(super) fn append(&mut self, with: &Self) {
        self.splice(self.len()..self.len(), with);
    }

    /// Returns the offset after the last pasted text.
    pub(super) fn inline_start(&self) -> usize {
        self.pastes.last().map_or(0, |(at, _)| at + STAND_IN.len())
    }

    fn paste_at(&self, at: usize) -> Option<&Paste> {
        let index = self.pastes.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        self.pastes.get(index).map(|(_, paste)| &**paste)
    }

    /// Returns the characters around an offset that no pasted text interrupts.
    fn run(&self, at: usize) -> Range<usize> {
        let next = self.pastes.partition_point(|(paste, _)| *paste < at);
        let before = next.checked_sub(1).and_then(|index| self.pastes.get(index));
        let start = before.map_or(0, |(paste, _)| paste + STAND_IN.len());
        let end = self.pastes.get(next).map_or(self.len(), |(paste, _)| *paste);
        start..end
    }

    /// Returns the unit at an offset and the offset after it; `None` at the end.
    pub(super) fn unit(&self, at: usize) -> Option<(Unit<'_>, usize)> {
        #[cfg(test)]
        STEPS.with(|steps| steps.set(steps.get() + 1));
        if let Some(paste) = self.paste_at(at) {
            return Some((Unit::Paste(paste), at + STAND_IN.len()));
        }
        let run = self.chars(at..self.run(at).end);
        // Most text is ASCII, where two characters are one grapheme only if they are CR LF, and CR is not kept.
        let grapheme = match run.as_bytes() {
            [b' '..=b'~' | b'\n' | b'\t', b' '..=b'~' | b'\n' | b'\t', ..] => run.get(..1)?,
            _ => run.graphemes(true).next()?,
        };
        Some((Unit::Grapheme(grapheme), at + grapheme.len()))
    }

    /// Returns the unit that ends at an offset and its start; `None` at the beginning.
    pub(super) fn unit_before(&self, at: usize) -> Option<(Unit<'_>, usize)> {
        if let Some(start) = at.checked_sub(STAND_IN.len())
            && let Some(paste) = self.paste_at(start)
        {
            return Some((Unit::Paste(paste), start));
        }
        let grapheme = self.chars(self.run(at).start..at).graphemes(true).next_back()?;
        Some((Unit::Grapheme(grapheme), at - grapheme.len()))
    }

    /// Returns the nearest offset, at or after the given one, that is not inside a unit.
    pub(super) fn snap(&self, at: usize) -> usize {
        let at = self.chars.ceil_char_boundary(at.min(self.len()));
        let run = self.run(at);
        let mut cursor = GraphemeCursor::new(at.saturating_sub(run.start), run.len(), true);
        let chars = self.chars(run.clone());
        match cursor.is_boundary(chars, 0) {
            Ok(false) => cursor.next_boundary(chars, 0).ok().flatten().map_or(at, |next| run.start + next),
            _ => at,
        }
    }

    /// Returns the offset before the first unit, going left, that is not of the class.
    pub(super) fn skip_left(&self, mut at: usize, belongs: impl Fn(Kind) -> bool) -> usize {
        while let Some((unit, start)) = self.unit_before(at).filter(|(unit, _)| belongs(unit.kind())) {
            at = start;
            if unit.kind() == Kind::Paste {
                break;
            }
        }
        at
    }

    /// Returns the offset after the last unit, going right, that is of the class.
    pub(super) fn skip_right(&self, mut at: usize, belongs: impl Fn(Kind) -> bool) -> usize {
        while let Some((unit, end)) = self.unit(at).filter(|(unit, _)| belongs(unit.kind())) {
            at = end;
            if unit.kind() == Kind::Paste {
                break;
            }
        }
        at
    }

    /// Returns the start of the line of an offset.
    pub(super) fn line_start(&self, at: usize) -> usize {
        self.chars(0..at).rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// Returns the end of the line of an offset, before its line break.
    pub(super) fn line_end(&self, at: usize) -> usize {
        self.chars(at..self.len()).find('\n').map_or(self.len(), |newline| at + newline)
    }
}

#[cfg(test)]
thread_local! {
    /// The units that were looked at, so that tests can count work.
    pub(super) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
