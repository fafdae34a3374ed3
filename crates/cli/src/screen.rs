//! Blocks of a session as lines of a terminal.

use std::path::Path;

use azureal::transcript::ansi::{self, Features};
use azureal::transcript::{
    Author, Block, Content, Fold, Highlighter, Layout, Places, Row, Tone, apply_tones, code_parts,
    printed_rows,
};

use azureal::Workspace;

use crate::marks::is_ascii;
use crate::output::{Output, Paint};

/// The width of a terminal that does not say how wide it is.
const USUAL_COLUMNS: usize = 80;

/// The grammars are loaded with the first code that is printed in colour.
static HIGHLIGHTER: Highlighter = Highlighter::new();

/// How blocks are laid out on a terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    paint: Paint,
    is_ascii: bool,
    /// How much of a tool call is shown, of reasoning and the like.
    fold: Fold,
}

impl Screen {
    pub(crate) fn new(out: &Output, fold: Fold) -> Self {
        Self { paint: out.paint(), is_ascii: is_ascii(), fold }
    }

    /// Returns the layout of a block on a terminal of this width. What people came to read is never folded.
    pub(crate) fn layout(&self, block: &Block, width: Option<usize>) -> Layout {
        let fold = match &block.content {
            Content::Text(text) if matches!(text.author, Author::User | Author::Agent | Author::Plan) => {
                Fold::Open
            }
            Content::End(_) => Fold::Open,
            Content::Text(_) | Content::Call(_) | Content::Notice(..) => self.fold,
        };
        let width = u16::try_from(width.unwrap_or(USUAL_COLUMNS)).unwrap_or(u16::MAX);
        Layout { width, fold, is_ascii: self.is_ascii }
    }

    /// Lays a block out.
    pub(crate) fn rows(&self, block: &Block, width: Option<usize>) -> Vec<Row> {
        let mut rows = printed_rows(block, &self.layout(block, width));
        self.colour(block, &mut rows);
        rows
    }

    /// Gives code in rows of a block its colours.
    pub(crate) fn colour(&self, block: &Block, rows: &mut [Row]) {
        let is_code = |row: &Row| row.spans.iter().any(|span| span.style.tone == Tone::Code);
        // The lines of a diff have the colours of the change.
        let is_text = matches!(block.content, Content::Text(_));
        if !self.paint.is_on() || !is_text || !rows.iter().any(is_code) {
            return;
        }
        let start = rows.iter().filter(|row| is_code(row)).map(|row| row.source.start).min().unwrap_or(0);
        let end = rows.iter().map(|row| row.source.end).max().unwrap_or(0);
        for part in code_parts(block) {
            if part.at < end && part.at + part.code.len() > start {
                let tones = HIGHLIGHTER.tones(&part.language, &part.code);
                rows.iter_mut().for_each(|row| apply_tones(row, part.at, &tones));
            }
        }
    }

    /// Returns a row as a line, without its end.
    pub(crate) fn line(&self, row: &Row) -> String {
        ansi::line(row, Features { has_styles: self.paint.is_on(), has_links: false })
    }

    /// Returns rows as lines.
    pub(crate) fn lines(&self, rows: &[Row]) -> String {
        rows.iter().map(|row| format!("{}\n", self.line(row))).collect()
    }
}

/// Returns the directories that paths are shown relative to.
pub(crate) fn places(workspace: &Workspace) -> Places {
    let text = |path: &Path| Some(path.to_string_lossy().into_owned());
    Places {
        project: text(workspace.project.directory()),
        home: workspace.environment().home().as_deref().and_then(text),
    }
}
