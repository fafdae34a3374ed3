//! Sessions in the agents' own files and databases, read turn by turn.
//!
//! A [`NativeSource`] is the format of one agent. It opens a [`NativeHome`]: the folder of the agent's program, or a file that
//! the user named. A home lists its sessions from names and metadata alone, reads the head of a session from its first
//! bytes, and its turns one after the other, in bounded memory. Every file is opened read-only and without following
//! links; pipes and devices are refused (`lines`).
//!
//! A turn has the events that a turn of `azureal run` has: the prompt as it was typed, the start of the agent, its texts,
//! calls and results, and one [`Event::Complete`]. Results are cut down as the store keeps them.
//!
//! A part that cannot be read is a [`NativeProblem`] of its turn, and reading continues. Only a source that cannot be
//! opened is an error.
//!
//! The same parsers read an agent's record when a turn is recovered ([`OwnRecord`]).
//!
//! [`OwnRecord`]: azureal_core::agent::OwnRecord

pub(crate) mod draft;
pub(crate) mod files;
pub(crate) mod lines;
pub(crate) mod pieces;
pub(crate) mod record_lines;
pub(crate) mod records;
pub(crate) mod tools;
pub(crate) mod turns;
mod write;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use azureal_core::agent::KeptOutputs;
use azureal_core::event::Usage;
use azureal_core::{Event, io_error_text};
use jiff::Timestamp;

pub use lines::open_content;
pub use write::{NativeConversation, NativeWriter, Placement};

use crate::claude::{ClaudeSessions, ClaudeWriter};
use crate::codex::{CodexSessions, CodexWriter};
use crate::copilot::CopilotSessions;
use crate::gemini::{GeminiSessions, GeminiWriter};
use crate::opencode::OpencodeWriter;
use crate::qwen::{QwenSessions, QwenWriter};

/// The sources of all agents.
pub fn sources() -> &'static [&'static dyn NativeSource] {
    // Qwen Code is before Claude Code, whose notes have the same fields and more.
    &[&QwenSessions, &ClaudeSessions, &CodexSessions, &GeminiSessions, &CopilotSessions]
}

/// Returns the source of an agent.
pub fn source(agent: &str) -> Option<&'static dyn NativeSource> {
    sources().iter().copied().find(|source| source.agent() == agent)
}

/// The writers of the formats that sessions can be written in.
pub fn writers() -> &'static [&'static dyn NativeWriter] {
    &[&ClaudeWriter, &CodexWriter, &GeminiWriter, &QwenWriter, &OpencodeWriter]
}

/// Returns the writer of an agent's format; `None` if sessions cannot be written in it.
pub fn writer(agent: &str) -> Option<&'static dyn NativeWriter> {
    writers().iter().copied().find(|writer| writer.agent() == agent)
}

/// Finds the source whose format a file has; `None` if it has none of them.
pub fn recognise(path: &Path) -> Result<Option<&'static dyn NativeSource>, NativeError> {
    let beginning = lines::beginning(path, BEGINNING)?;
    Ok(sources().iter().copied().find(|source| source.recognises(path, &beginning)))
}

/// The native sessions of one agent.
pub trait NativeSource: Send + Sync {
    /// Returns the name of the agent, in events and on the command line: `claude`.
    fn agent(&self) -> &'static str;

    /// Returns the name of the program, for people: `Claude Code`.
    fn program(&self) -> &'static str;

    /// Returns the homes of the program, from the variables of an environment, whether they exist or not. A variable with
    /// an empty value counts as missing.
    fn homes(&self, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf>;

    /// Returns whether a file is in this format. `beginning` has its first bytes, [`BEGINNING`] at most, decompressed.
    fn recognises(&self, path: &Path, beginning: &[u8]) -> bool;

    /// Describes the files in which the program keeps large outputs beside a session; `None` if it keeps none.
    fn kept_outputs(&self) -> Option<KeptOutputs> {
        None
    }

    /// Opens a home, a folder of sessions, or a file of sessions that the user named. A database is copied to a private
    /// folder in `temporary`, if opening it in place would change it.
    fn open(&self, place: &Path, temporary: &Path) -> Result<Box<dyn NativeHome>, NativeError>;
}

/// The number of bytes by which a file is recognised: 64 KiB.
pub const BEGINNING: usize = 64 << 10;

/// A home, a folder or a file with native sessions, open for reading.
pub trait NativeHome: Send {
    /// Lists the sessions, from names and metadata alone: thousands take milliseconds. `project` leaves out sessions whose
    /// name or folder shows that they belong elsewhere; others may belong elsewhere too, which [`head`](Self::head) shows.
    fn sessions<'a>(
        &'a self,
        project: Option<&'a Path>,
    ) -> Box<dyn Iterator<Item = Result<NativeSession, NativeError>> + 'a>;

    /// Reads the head of a session, from a bounded beginning and end of it.
    fn head(&self, session: &NativeSession) -> Result<NativeHead, NativeError>;

    /// Opens a session to read its turns.
    fn turns(&self, session: &NativeSession) -> Result<Box<dyn NativeTurns>, NativeError>;
}

/// A session in a home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeSession {
    /// The file, or the database.
    pub path: PathBuf,
    /// The agent's own id of the session.
    pub id: String,
    /// When it was last changed.
    pub changed: Option<SystemTime>,
    /// Its size in bytes; for a session in a database, any number that changes with it, such as the number of its rows.
    pub size: u64,
}

/// The facts about a session that its beginning and its end show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NativeHead {
    /// The agent's own id of the session.
    pub id: String,
    /// The directory that it ran in.
    pub cwd: Option<PathBuf>,
    /// Its name, if the user or the program gave it one.
    pub title: Option<String>,
    /// When it began.
    pub started: Option<Timestamp>,
    /// The time of its last entry, if its end shows it.
    pub ended: Option<Timestamp>,
    /// The agent's own id of its first entry. A fork that begins with a copy of its origin has the same. `None` if forks begin
    /// otherwise.
    pub first: Option<String>,
    /// The session that it is a copy of, as far as it goes.
    pub copied_from: Option<String>,
    /// Whether it is the work of a subagent, and no conversation of its own.
    pub is_subagent: bool,
    /// Whether the program ran without its interface, for one prompt: azureal itself may have started it.
    pub is_headless: bool,
}

/// Reads the turns of a session, in their order.
pub trait NativeTurns: Send {
    /// Reads the next turn; `None` at the end. After an error there are no more.
    fn next_turn(&mut self) -> Result<Option<NativeTurn>, NativeError>;

    /// Returns the name of the session, if the user gave it one, as far as it is known.
    fn title(&self) -> Option<&str> {
        None
    }

    /// Returns the tokens and the cost of the whole session, if the program does not count them by turn.
    fn total(&self) -> Option<NativeTotal> {
        None
    }
}

/// The tokens and the cost of a whole session.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NativeTotal {
    /// The tokens.
    pub usage: Usage,
    /// The cost; 0 if it is not known.
    pub cost_usd: f64,
}

/// A turn of a native session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NativeTurn {
    /// The agent's own id of the turn or of its prompt, the same in every reading. If the format has none, a name that
    /// says its place, such as `3`.
    pub id: String,
    /// When it began.
    pub started: Option<Timestamp>,
    /// Its events. The last one is [`Event::Complete`]. Empty if only problems are left to report, at the end.
    pub events: Vec<Event>,
    /// About the size of its events, in bytes.
    pub size: usize,
    /// The summaries that the agent wrote when it compacted its context.
    pub summaries: Vec<NativeSummary>,
    /// Whether the source has no end of it: it was interrupted, or still runs.
    pub is_open: bool,
    /// Whether the prompt has a context of azureal in front of it: azureal ran this turn.
    pub is_ours: bool,
    /// The parts that could not be read.
    pub problems: Vec<NativeProblem>,
}

/// The summary of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeSummary {
    /// The number of events of the turn that it covers, with all turns before it.
    pub after: usize,
    /// The summary.
    pub text: String,
}

/// A part of a native session that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeProblem {
    /// Its place.
    pub place: NativePlace,
    /// The reason, for people.
    pub reason: String,
}

impl fmt::Display for NativeProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was left out: {}", self.place, self.reason)
    }
}

/// A place in a native session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NativePlace {
    /// A line of its file, from 1.
    Line(u64),
    /// A row of its database, or another entry with a name.
    Entry(String),
}

impl fmt::Display for NativePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "line {number}"),
            Self::Entry(name) => f.write_str(name),
        }
    }
}

/// The reason why a native session cannot be opened or read on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NativeError {
    /// The system refuses to open or read it.
    #[error("{}: {}", path.display(), io_error_text(source))]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is a link, a pipe, a device or a folder.
    #[error("{} is not a plain file", path.display())]
    NotAPlainFile {
        /// The path.
        path: PathBuf,
    },
    /// It is empty.
    #[error("{} is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It has no message: a program writes such a file whenever it starts.
    #[error("{}: it has no conversation", path.display())]
    NoConversation {
        /// The file.
        path: PathBuf,
    },
    /// It is a link to a folder.
    #[error("{} is a link, which is not followed", path.display())]
    LinkedFolder {
        /// The link.
        path: PathBuf,
    },
    /// It is in another format.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The file or database.
        path: PathBuf,
        /// The reason, for people.
        reason: String,
    },
}

impl NativeError {
    /// Returns the file or folder.
    pub fn path(&self) -> &Path {
        match self {
            Self::File { path, .. }
            | Self::NotAPlainFile { path }
            | Self::Empty { path }
            | Self::NoConversation { path }
            | Self::LinkedFolder { path }
            | Self::Unreadable { path, .. } => path,
        }
    }

    pub(crate) fn file(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        |source| Self::File { path: path.to_owned(), source }
    }
}
