//! The rows of a block.

use std::ops::Range;

use crate::wrap::cells;

/// A row of text on a screen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Its parts. Control characters are replaced already.
    pub spans: Vec<Span>,
    /// The bytes of the block's source that it shows; empty for decoration.
    pub source: Range<usize>,
    /// Whether the line of the source continues in the next row.
    pub is_soft: bool,
}

/// A part of a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    /// The text.
    pub text: String,
    /// Its style.
    pub style: Style,
    /// The bytes of the block's source that it shows; empty for decoration.
    pub source: Range<usize>,
    /// Whether the text is these bytes. If not, it stands for all of them: an expanded tab, an escaped character.
    pub is_exact: bool,
}

/// A style, without a colour: front ends choose those.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// The meaning.
    pub tone: Tone,
    /// Bold.
    pub bold: bool,
    /// Italic.
    pub italic: bool,
    /// Underlined.
    pub underline: bool,
    /// Struck through.
    pub strike: bool,
    /// The change that the text is part of, in a diff.
    pub change: Option<Change>,
}

/// A change in a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// An added line.
    Added,
    /// A removed line.
    Removed,
    /// A line beside the change.
    Unchanged,
}

/// The meaning of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Tone {
    /// Words of the agent.
    #[default]
    Plain,
    /// Words of the user.
    User,
    /// A name: of an author, of a tool.
    Name,
    /// Less important than the words around it.
    Quiet,
    /// A heading of Markdown.
    Heading,
    /// The target of a link.
    Link,
    /// Code.
    Code,
    /// A keyword in code.
    Keyword,
    /// A string or another literal in code.
    Literal,
    /// A comment in code.
    Comment,
    /// A name of a type or function in code.
    Definition,
    /// A success.
    Good,
    /// A failure.
    Bad,
    /// Something to look at.
    Caution,
    /// An added line.
    Added,
    /// A removed line.
    Removed,
}

/// How a block is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The width in columns.
    pub width: u16,
    /// How much is shown.
    pub fold: Fold,
    /// Whether only ASCII is used for marks.
    pub is_ascii: bool,
}

/// How much of a block is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fold {
    /// One line, and of a failed call the reason.
    Closed,
    /// A few lines.
    Preview,
    /// All of it.
    Open,
}

impl Row {
    /// Returns the text without styles.
    pub fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// Returns the width in columns.
    pub fn width(&self) -> usize {
        self.spans.iter().map(Span::width).sum()
    }

    /// Creates a row of decoration.
    pub fn decoration(spans: Vec<Span>) -> Self {
        Self { spans, ..Self::default() }
    }
}

impl Span {
    /// Creates a span of decoration.
    pub fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style, source: 0..0, is_exact: false }
    }

    /// Returns the width in columns.
    pub fn width(&self) -> usize {
        cells(&self.text)
    }
}

impl From<Tone> for Style {
    fn from(tone: Tone) -> Self {
        Self { tone, ..Self::default() }
    }
}
