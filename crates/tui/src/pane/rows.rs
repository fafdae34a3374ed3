//! The rows of the blocks near the view, and the folds of all blocks.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use azureal::transcript::{
    Author, Block, CallState, Content, Fold, GrowingText, Layout, Row, Span, Style, Tone, apply_tones,
    ascii_marks, rows,
};
use azureal::visible_line;
use unicode_width::UnicodeWidthStr;

use super::blocks::Key;

/// The rows of blocks, laid out once for a width and a fold.
#[derive(Debug, Default)]
pub(super) struct RowCache {
    laid: HashMap<Key, Laid>,
    tones: HashMap<Key, Vec<CodeTones>>,
    /// The number of layouts so far.
    pub(super) layouts: u64,
}

/// The place of code in the source of a block, and its tones.
type CodeTones = (usize, Vec<(Range<usize>, Tone)>);

#[derive(Debug)]
struct Laid {
    /// Stands for all that the rows depend on.
    print: u64,
    rows: Rows,
}

#[derive(Debug)]
enum Rows {
    Finished(Vec<Row>),
    /// Of a text that is being written: only its end is laid out again.
    Growing(Box<GrowingText>),
}

impl Rows {
    fn get(&self) -> &[Row] {
        match self {
            Self::Finished(rows) => rows,
            Self::Growing(growing) => growing.rows(),
        }
    }
}

impl RowCache {
    /// Lays a block out unless that is done. Returns the number of its rows. A hint is added to the text of
    /// a notice that is ours.
    pub(super) fn lay(&mut self, block: &Block, layout: &Layout, hint: Option<&str>) -> usize {
        let key = (block.seq, block.part);
        let print = print(block, layout, hint);
        if let Some(laid) = self.laid.get(&key)
            && laid.print == print
        {
            return laid.rows.get().len();
        }
        self.layouts += 1;
        let rows = match &block.content {
            Content::Text(text) if !text.is_finished => {
                let before = self.laid.remove(&key).map(|laid| laid.rows);
                let mut growing = match before {
                    Some(Rows::Growing(growing)) if growing.layout() == layout => growing,
                    _ => Box::new(GrowingText::new(*layout)),
                };
                growing.update(text);
                Rows::Growing(growing)
            }
            Content::Notice(_, text) if text.starts_with(BANNER) => {
                Rows::Finished(vec![banner(text, layout)])
            }
            Content::Notice(level, text) if let Some(hint) = hint => {
                let text = format!("{text}{hint}");
                let text = if layout.is_ascii { ascii_marks(&text) } else { text };
                let content = Content::Notice(*level, text);
                Rows::Finished(rows(&Block::new(block.seq, block.part, content), layout))
            }
            _ => Rows::Finished(self.finished(block, layout)),
        };
        let count = rows.get().len();
        self.laid.insert(key, Laid { print, rows });
        count
    }

    fn finished(&self, block: &Block, layout: &Layout) -> Vec<Row> {
        let mut rows = rows(block, layout);
        for (at, tones) in self.tones.get(&(block.seq, block.part)).into_iter().flatten() {
            rows.iter_mut().for_each(|row| apply_tones(row, *at, tones));
        }
        rows
    }

    /// Sets the tones of code in a block that was laid out.
    pub(super) fn set_tones(&mut self, key: Key, at: usize, tones: &[(Range<usize>, Tone)]) {
        let Some(Laid { rows: Rows::Finished(rows), .. }) = self.laid.get_mut(&key) else { return };
        rows.iter_mut().for_each(|row| apply_tones(row, at, tones));
        self.tones.entry(key).or_default().push((at, tones.to_vec()));
    }

    /// Returns the rows of a block that was laid out.
    pub(super) fn rows(&self, key: Key) -> &[Row] {
        self.laid.get(&key).map_or(&[], |laid| laid.rows.get())
    }

    /// Drops the rows of all other blocks.
    pub(super) fn keep(&mut self, keys: &[Key]) {
        self.laid.retain(|key, _| keys.binary_search(key).is_ok());
        self.tones.retain(|key, _| keys.binary_search(key).is_ok());
    }

    /// Drops the rows of a block whose content has changed.
    pub(super) fn forget(&mut self, key: Key) {
        self.laid.remove(&key);
        self.tones.remove(&key);
    }

    pub(super) fn clear(&mut self) {
        self.laid.clear();
        self.tones.clear();
    }

    /// Returns about how many bytes the rows take.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let row = |row: &Row| {
            size_of::<Row>()
                + row.spans.iter().map(|span| size_of_val(span) + span.text.capacity()).sum::<usize>()
        };
        self.laid.values().flat_map(|laid| laid.rows.get()).map(row).sum()
    }
}

/// The beginning of a notice that is a line across the pane.
const BANNER: &str = "── ";

/// Lays out a line across the pane.
fn banner(text: &str, layout: &Layout) -> Row {
    let mut text = visible_line(text).into_owned();
    let rest = usize::from(layout.width).saturating_sub(text.width());
    text.push_str(&"─".repeat(rest));
    if layout.is_ascii {
        text = text.replace(['─', '·'], "-");
    }
    Row::decoration(vec![Span::new(text, Style::from(Tone::Caution))])
}

/// Returns a number that changes with the rows of a block. Texts only grow, so that their lengths stand for them; a text that is replaced
/// by another one is [forgotten](RowCache::forget).
fn print(block: &Block, layout: &Layout, hint: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (layout.width, layout.is_ascii, layout.fold as u8, block.version, hint).hash(&mut hasher);
    match &block.content {
        Content::Text(text) => {
            (text.source.len(), text.is_finished, text.has_heading, text.turn).hash(&mut hasher);
            (&text.agent, &text.model).hash(&mut hasher);
        }
        Content::Call(call) => {
            (call.state as u8, call.diff.len(), call.output.len(), call.omitted).hash(&mut hasher);
            (&call.summary, &call.key, &call.tool).hash(&mut hasher);
        }
        Content::Notice(level, text) => (*level as u8, text).hash(&mut hasher),
        Content::End(complete) => (complete.success, complete.duration_ms).hash(&mut hasher),
    }
    hasher.finish()
}

/// The folds that the user has chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Folds {
    own: HashMap<Key, Fold>,
    /// The folds while all blocks are open.
    all: Option<HashMap<Key, Fold>>,
    /// The last commands of turns: without a choice, some of their output is shown.
    last_commands: HashSet<Key>,
}

impl Folds {
    pub(super) fn of(&self, block: &Block) -> Fold {
        let key = (block.seq, block.part);
        match &self.all {
            Some(all) => all.get(&key).copied().unwrap_or(Fold::Open),
            None => self.own.get(&key).copied().unwrap_or(self.default_of(block)),
        }
    }

    /// Returns the fold of a block that the user has not touched.
    fn default_of(&self, block: &Block) -> Fold {
        match default_fold(block) {
            Fold::Closed if self.last_commands.contains(&(block.seq, block.part)) => Fold::Preview,
            fold => fold,
        }
    }

    /// Sets the last commands of finished turns.
    pub(super) fn set_last_commands(&mut self, last_commands: HashSet<Key>) {
        self.last_commands = last_commands;
    }

    /// Opens a block that is not open. Of an open one, shows as little as is shown without a choice, or less.
    pub(super) fn toggle(&mut self, block: &Block) {
        let fold = match (self.of(block), self.default_of(block)) {
            (Fold::Closed | Fold::Preview, _) => Fold::Open,
            (Fold::Open, Fold::Preview) => Fold::Preview,
            (Fold::Open, _) => Fold::Closed,
        };
        self.set(block, fold);
    }

    pub(super) fn open(&mut self, block: &Block) {
        if self.of(block) != Fold::Open {
            self.set(block, Fold::Open);
        }
    }

    fn set(&mut self, block: &Block, fold: Fold) {
        let key = (block.seq, block.part);
        let usual = self.default_of(block);
        let (folds, default) = match &mut self.all {
            Some(all) => (all, Fold::Open),
            None => (&mut self.own, usual),
        };
        // So that two changes leave nothing behind.
        if fold == default {
            folds.remove(&key);
        } else {
            folds.insert(key, fold);
        }
    }

    /// Opens all blocks; a second time, the folds are as before.
    pub(super) fn toggle_all(&mut self) {
        self.all = if self.all.is_some() { None } else { Some(HashMap::new()) };
    }
}

/// Returns the fold of a block by itself.
fn default_fold(block: &Block) -> Fold {
    match &block.content {
        Content::Text(text) => match text.author {
            Author::User | Author::Agent | Author::Plan => Fold::Open,
            Author::Subagent | Author::Reasoning | Author::System => Fold::Closed,
        },
        // A change of a file is what a reader looks for; of one that failed, the reason.
        Content::Call(call) if !call.diff.is_empty() && call.state != CallState::Failed => Fold::Preview,
        Content::Call(_) => Fold::Closed,
        Content::Notice(..) | Content::End(_) => Fold::Open,
    }
}

/// Returns whether a click on a block folds it: blocks that are read as a whole are only chosen.
pub(super) fn folds_by_click(block: &Block) -> bool {
    match &block.content {
        Content::Text(text) => !matches!(text.author, Author::User | Author::Agent | Author::Plan),
        Content::Call(_) => true,
        Content::Notice(..) | Content::End(_) => false,
    }
}
