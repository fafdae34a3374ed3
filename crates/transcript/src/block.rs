//! The blocks of a session.

use azureal_core::event::Complete;
use azureal_core::{Event, Seq};

/// A part of a session that is shown as one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// The event that it begins with. Events of a running turn have the numbers that they will be stored with.
    pub seq: Seq,
    /// Its number among the blocks that begin with that event.
    pub part: u16,
    /// The last event that belongs to it.
    pub last: Seq,
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

/// A text in Markdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The author.
    pub author: Author,
    /// The agent and its model, if they are known.
    pub agent: Option<String>,
    /// The model.
    pub model: Option<String>,
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
    /// The change of a file, as lines of a unified diff; empty without one.
    pub diff: Vec<String>,
    /// The output.
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

/// Folds events into blocks.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    blocks: Vec<Block>,
}

impl Transcript {
    /// Adds an event.
    pub fn push(&mut self, seq: Seq, event: &Event) {
        let _ = (seq, event);
    }

    /// Adds to the text that the agent is writing. The finished text takes its place.
    pub fn push_delta(&mut self, seq: Seq, text: &str) {
        let _ = (seq, text);
    }

    /// Returns the blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }
}
