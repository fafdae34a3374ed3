//! The blocks of a session.

use std::borrow::Cow;

use azureal_core::Seq;
use azureal_core::event::Complete;

use crate::ending::ending;

/// A part of a session that is shown as one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// The event that it begins with. Events of a running turn have the numbers that they will be stored with.
    pub seq: Seq,
    /// Its number among the blocks that begin with that event.
    pub part: u16,
    /// The last event that belongs to it.
    pub last: Seq,
    /// The number of its changes. Rows that were laid out for an earlier version are stale.
    pub version: u32,
    /// What it shows.
    pub content: Content,
}

/// What a block shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A text: a prompt, an answer.
    Text(Text),
    /// A tool call with its result.
    Call(Call),
    /// A line in the margin.
    Notice(Level, String),
    /// The end of a turn.
    End(Complete),
}

/// A text. The texts of agents are Markdown, those of users and of the system are shown as they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The author.
    pub author: Author,
    /// The agent, if it is known.
    pub agent: Option<String>,
    /// The model, if it is known.
    pub model: Option<String>,
    /// The name of a plan.
    pub title: Option<String>,
    /// Whether a heading names the author: the text before is another author's.
    pub has_heading: bool,
    /// The number of the turn that begins with this prompt, if it is known.
    pub turn: Option<u64>,
    /// The text as it was written.
    pub source: String,
    /// Whether it is finished.
    pub is_finished: bool,
}

/// The author of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// The user.
    User,
    /// The agent.
    Agent,
    /// A subagent.
    Subagent,
    /// The agent's reasoning.
    Reasoning,
    /// The agent's plan.
    Plan,
    /// The frame of the session.
    System,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The id that its result refers to.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// What the call is about: a path relative to the project, a command.
    pub key: String,
    /// How far it is.
    pub state: CallState,
    /// The result in a few words: `212 lines`, `+4 −1`, `exit 101 · 38 lines`; empty without one.
    pub summary: String,
    /// The change of a file, as lines of a unified diff; empty without one. Only if line numbers are known, a line
    /// `@@ -118,2 +118,2 @@` says so; between two changes without them is a line `@@`.
    pub diff: Vec<String>,
    /// The arguments that neither the key nor the diff shows, by name.
    pub arguments: Vec<(String, String)>,
    /// The output. Empty if the diff says it all.
    pub output: String,
    /// The number of lines that are missing in the output.
    pub omitted: u64,
    /// Whether a subagent called it.
    pub is_subagents: bool,
}

/// How far a tool call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// It has no result yet.
    Running,
    /// It succeeded.
    Done,
    /// It failed.
    Failed,
    /// Its turn ended without a result.
    NoResult,
}

/// The weight of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Good to know.
    Info,
    /// Something to look at.
    Warning,
    /// Something went wrong.
    Error,
}

impl Block {
    /// Creates a block of one event.
    pub fn new(seq: Seq, part: u16, content: Content) -> Self {
        Self { seq, part, last: seq, version: 0, content }
    }

    /// Creates the block of a prompt.
    pub fn prompt(seq: Seq, text: impl Into<String>) -> Self {
        let text = Text { has_heading: true, ..Text::new(Author::User, text) };
        Self::new(seq, 0, Content::Text(text))
    }

    /// Returns whether no event that is expected can change it.
    pub fn is_stable(&self) -> bool {
        match &self.content {
            Content::Text(text) => text.is_finished,
            Content::Call(call) => call.state != CallState::Running,
            Content::Notice(..) | Content::End(_) => true,
        }
    }

    /// Returns the text that is copied: without line breaks of a layout and without decoration. The places of
    /// [`Row::source`](crate::Row::source) are in it.
    pub fn source(&self) -> Cow<'_, str> {
        match &self.content {
            Content::Text(text) => Cow::Borrowed(&text.source),
            Content::Call(call) => Cow::Owned(call.source()),
            Content::Notice(_, text) => Cow::Borrowed(text),
            Content::End(complete) => Cow::Owned(ending(complete).join(" · ")),
        }
    }

    /// Returns whether a blank row belongs between two blocks. Calls and notices that follow each other stay together.
    pub fn has_gap_after(&self, next: &Self) -> bool {
        let is_line = |block: &Self| matches!(block.content, Content::Call(_) | Content::Notice(..));
        !(is_line(self) && is_line(next))
    }
}

impl Text {
    /// Creates a finished text without a heading.
    pub fn new(author: Author, source: impl Into<String>) -> Self {
        Self {
            author,
            agent: None,
            model: None,
            title: None,
            has_heading: false,
            turn: None,
            source: source.into(),
            is_finished: true,
        }
    }

    /// Returns whether it is laid out as Markdown.
    pub fn is_markdown(&self) -> bool {
        !matches!(self.author, Author::User | Author::System)
    }
}

impl Call {
    /// Returns the key, the diff and the output, one after the other.
    fn source(&self) -> String {
        let mut text = self.key.clone();
        for line in self.diff.iter().chain((!self.output.is_empty()).then_some(&self.output)) {
            text.push('\n');
            text.push_str(line);
        }
        text
    }

    /// Returns the place of the diff in the source.
    pub(crate) fn diff_start(&self) -> usize {
        self.key.len() + 1
    }

    /// Returns the place of the output in the source.
    pub(crate) fn output_start(&self) -> usize {
        self.diff_start() + self.diff.iter().map(|line| line.len() + 1).sum::<usize>()
    }
}
