//! The rows of a block.

use std::ops::Range;

use crate::{Block, Content};

/// A row of text on a screen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Its parts. Control characters are replaced already.
    pub spans: Vec<Span>,
    /// The bytes of the block's source that it shows; empty for decoration.
    pub source: Range<usize>,
    /// Whether the line of the source goes on in the next row.
    pub is_soft: bool,
}

/// A part of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The text.
    pub text: String,
    /// Its style.
    pub style: Style,
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
}

/// The meaning of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// One line, and of a failed call the reason.
    Closed,
    /// A few lines.
    Preview,
    /// All of it.
    Open,
}

/// Lays a block out.
pub fn rows(block: &Block, layout: &Layout) -> Vec<Row> {
    let _ = layout;
    match &block.content {
        Content::Text(_) | Content::Call(_) | Content::Notice(..) | Content::End(_) => Vec::new(),
    }
}
