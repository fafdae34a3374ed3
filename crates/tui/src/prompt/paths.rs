//! Completion of `@path`: a list of paths above the box.

use azureal::visible_line;
use ratatui::buffer::{Buffer, CellWidth};
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use azureal::transcript::Tone;

use super::layout::cut;
use super::text::{Kind, Text};
use crate::theme::Theme;

/// The most paths that are kept of an answer, and the rows of the list.
const MOST_PATHS: usize = 200;
const MOST_ROWS: u16 = 8;
/// The longest prefix that is asked for, in bytes.
const LONGEST: usize = 4_096;

/// The list of paths.
#[derive(Debug, Clone, Default)]
pub(super) struct PathList {
    /// The offset of the `@` whose path is completed.
    mark: Option<usize>,
    /// The offset of an `@` whose list was closed.
    closed: Option<usize>,
    prefix: String,
    paths: Vec<String>,
    chosen: usize,
}

/// An `@path` that ends at the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathMark {
    /// The offset of the `@`.
    pub(super) start: usize,
    /// The path so far, without quotes.
    pub(super) prefix: String,
}

impl PathMark {
    /// Finds the path that ends at the cursor: an `@` at the beginning of a word, and characters up to the cursor. After `@"`, spaces belong to
    /// the path.
    pub(super) fn find(text: &Text, cursor: usize) -> Option<Self> {
        let line = text.line_start(cursor).max(cursor.saturating_sub(LONGEST));
        let start = text.skip_left(cursor, |kind| matches!(kind, Kind::Word | Kind::Sign)).max(line);
        let word = text.chars(start..cursor);
        if let Some(prefix) = word.strip_prefix('@')
            && !prefix.starts_with('"')
        {
            return Some(Self { start, prefix: prefix.to_owned() });
        }
        let before = text.chars(line..cursor);
        let (at, _) = before.match_indices("@\"").last()?;
        let is_word_start = before.get(..at)?.chars().next_back().is_none_or(char::is_whitespace);
        let start = line + at;
        let prefix = text.chars(start + 2..cursor);
        (is_word_start && !prefix.contains('"')).then(|| Self { start, prefix: prefix.to_owned() })
    }
}

impl PathList {
    /// Follows the text and the cursor. Returns the prefix to ask for, if there is a new one.
    pub(super) fn follow(&mut self, mark: Option<PathMark>, opens: bool) -> Option<String> {
        let Some(mark) = mark else {
            *self = Self::default();
            return None;
        };
        if self.closed == Some(mark.start) || (self.mark != Some(mark.start) && !opens) {
            self.mark = None;
            return None;
        }
        if self.mark == Some(mark.start) && self.prefix == mark.prefix {
            return None;
        }
        // Until the answer is there, those of the paths that still fit are shown.
        let lower = mark.prefix.to_lowercase();
        self.paths.retain(|path| path.to_lowercase().starts_with(&lower));
        (self.mark, self.closed, self.chosen) = (Some(mark.start), None, 0);
        self.prefix.clone_from(&mark.prefix);
        Some(mark.prefix)
    }

    /// Opens the list again after it was closed.
    pub(super) fn reopen(&mut self) {
        *self = Self::default();
    }

    /// Takes an answer. An answer for another prefix is late, and dropped.
    pub(super) fn answer(&mut self, prefix: &str, mut paths: Vec<String>) {
        if self.mark.is_some() && self.prefix == prefix {
            paths.truncate(MOST_PATHS);
            self.paths = paths;
            self.chosen = 0;
        }
    }

    /// Returns the offset of the `@` and the chosen path, if the list is shown.
    pub(super) fn chosen(&self) -> Option<(usize, &str)> {
        let path = self.paths.get(self.chosen).filter(|_| self.is_open())?;
        Some((self.mark?, path))
    }

    /// Returns whether the list is shown. For the one path that is typed in full already, it is not.
    pub(super) fn is_open(&self) -> bool {
        self.mark.is_some() && self.paths.iter().any(|path| *path != self.prefix)
    }

    /// Returns whether the chosen path is typed in full.
    pub(super) fn is_exact(&self) -> bool {
        self.chosen().is_some_and(|(_, path)| path == self.prefix)
    }

    /// Moves the choice, around the ends.
    pub(super) fn step(&mut self, down: bool) {
        let last = self.paths.len().saturating_sub(1);
        self.chosen = match (down, self.chosen) {
            (true, chosen) if chosen >= last => 0,
            (true, chosen) => chosen + 1,
            (false, 0) => last,
            (false, chosen) => chosen - 1,
        };
    }

    /// Closes the list. It stays closed for this `@`.
    pub(super) fn close(&mut self) {
        *self = Self { closed: self.mark, ..Self::default() };
    }

    /// Returns the rows of the list.
    pub(super) fn height(&self) -> u16 {
        let count = if self.is_open() { self.paths.len() } else { 0 };
        u16::try_from(count).unwrap_or(MOST_ROWS).min(MOST_ROWS)
    }

    /// Draws the list in the lowest rows of an area.
    pub(super) fn draw(&self, area: Rect, buf: &mut Buffer, theme: &Theme) {
        let area = area.intersection(buf.area);
        let height = self.height().min(area.height);
        if height == 0 || area.width < 4 {
            return;
        }
        let first = (self.chosen + 1).saturating_sub(height.into());
        let shown: Vec<_> =
            self.paths.iter().map(|path| visible_line(path)).skip(first).take(height.into()).collect();
        let widest = shown.iter().map(|path| path.cell_width()).max().unwrap_or(0);
        let width = widest.saturating_add(3).min(area.width);
        for (row, path) in (area.bottom() - height..area.bottom()).zip(&shown) {
            let is_chosen = usize::from(row - (area.bottom() - height)) + first == self.chosen;
            let mark = match (is_chosen, theme.is_ascii) {
                (false, _) => " ",
                (true, false) => "▸",
                (true, true) => ">",
            };
            let style = theme.tone(if is_chosen { Tone::Name } else { Tone::Plain });
            let style = if is_chosen { style.add_modifier(Modifier::REVERSED) } else { style };
            let path =
                if path.cell_width() > width - 3 { cut(path, width - 3, theme).into() } else { path.clone() };
            let line = format!("{mark} {path}");
            let rest = width.saturating_sub(line.cell_width());
            buf.set_stringn(
                area.x,
                row,
                format!("{line}{}", " ".repeat(rest.into())),
                width.into(),
                ratatui::style::Style::reset().patch(style),
            );
        }
    }
}

/// Writes a path so that agents read all of it: `@path`, or `@"path"` if it has spaces or quotes. A folder stays open for its files.
pub(super) fn written(path: &str) -> String {
    let is_folder = path.ends_with('/');
    if path.contains(|c: char| c.is_whitespace() || c == '"') {
        format!("@\"{path}{}", if is_folder { "" } else { "\"" })
    } else {
        format!("@{path}")
    }
}
