//! The header of a spool: a file of JSON lines that only grows. First comes the request of the turn, then its
//! process, then its end. A header that stops early shows how far the turn had come.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use azureal_core::agent::{Ending, Exit};
use azureal_core::event::Outcome;
use azureal_core::{Event, Operation, Seq, SessionId, Uuid};
use azureal_process::ProcessIdentity;
use serde::{Deserialize, Serialize};

use crate::changes::SpooledSnapshot;

/// A turn as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpooledTurn {
    /// Names the run: in the spool, in the environment of its processes, and in the store until it is stored.
    pub run: String,
    /// The number of the session that it belongs to.
    pub session: u32,
    /// The time at which that session was created: in another store, another session has its number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session_made: String,
    /// The number of events that the session had before.
    #[serde(default)]
    pub after: u64,
    /// The [generation](azureal_core::SessionRecord::generation) that the session had before, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The prompt as it was typed.
    pub prompt: String,
    /// Whether azureal wrote the prompt, to continue with an agent that was stopped to compact the session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub goes_on: bool,
    /// The agent that answers.
    pub agent: String,
    /// The model that was asked for.
    pub model: Option<String>,
    /// Whether it differs from the model of the previous turn of the same agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub switches_model: bool,
    /// The place in which the store records the session as the last one used:
    /// [`NewTurn::used_in`](azureal_core::NewTurn::used_in).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_in: Option<String>,
    /// The directory that it runs in. Only for people: a name that is not UTF-8 is stored as it is shown.
    #[serde(serialize_with = "as_shown")]
    pub directory: PathBuf,
    /// When it was asked for.
    pub started_at: String,
}

fn as_shown<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

impl SpooledTurn {
    /// Returns the session that it belongs to.
    pub fn session_id(&self) -> Option<SessionId> {
        SessionId::new(self.session)
    }

    /// Returns the operation that stores the turn, in whichever process: the run; `None` if the state of the session was not noted.
    pub(crate) fn operation(&self) -> Option<Operation> {
        let id = Uuid::parse_str(&self.run).ok()?;
        Some(Operation { id, after: Seq(self.after), generation: self.generation? })
    }

    /// Returns the event that the turn begins with: the prompt, or that it continues after a compaction, which no user has
    /// said.
    pub fn opening(&self) -> Event {
        if self.goes_on { Event::Compacted } else { Event::user(&self.prompt) }
    }
}

/// The process of a turn: its number, and when it began, because numbers are used again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpooledProcess {
    /// Its number.
    pub pid: u32,
    /// Its start time, in the system's own format.
    pub began: String,
    /// The state of the worktree before the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<SpooledSnapshot>,
}

impl SpooledProcess {
    /// Returns the process as the system identifies it.
    pub fn identity(&self) -> ProcessIdentity {
        ProcessIdentity { pid: self.pid, started: self.began.clone() }
    }
}

/// The end of a turn's process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpooledEnding {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    stderr: String,
    duration_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stopped: Option<Outcome>,
}

impl From<&Ending> for SpooledEnding {
    fn from(ending: &Ending) -> Self {
        let (code, signal) = match ending.exit {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        Self {
            code,
            signal,
            stderr: ending.stderr.clone(),
            duration_ms: u64::try_from(ending.duration.as_millis()).unwrap_or(u64::MAX),
            stopped: ending.stopped,
        }
    }
}

impl From<SpooledEnding> for Ending {
    fn from(ending: SpooledEnding) -> Self {
        Self {
            exit: ending.code.map(Exit::Code).or(ending.signal.map(Exit::Signal)),
            stderr: ending.stderr,
            fragment: Vec::new(),
            duration: Duration::from_millis(ending.duration_ms),
            stopped: ending.stopped,
        }
    }
}

/// The place of a stored turn, in the header of its original.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTurn {
    /// The first event of the turn.
    pub first: u64,
    /// The last event of the turn.
    pub last: u64,
    /// The version of the parser that read it: [`Agent::parser_version`](azureal_core::agent::Agent::parser_version).
    pub parser: u32,
    /// The length of the output, with what follows it.
    pub bytes: u64,
    /// The number of the agent's lines, if lines of azureal follow them (`whole_outputs.rs`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
}

/// The source of an imported session, in the header of its original: the output is the record of an agent's program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedRecord {
    /// The agent.
    pub agent: String,
    /// The file. Only for people: a name that is not UTF-8 is stored as it is shown.
    #[serde(serialize_with = "as_shown")]
    pub file: PathBuf,
    /// The length of the output, without what follows it.
    pub bytes: u64,
    /// The number of the agent's lines, if lines of azureal follow them (`whole_outputs.rs`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
}

/// The output of an original whose secrets were masked on the way to a server, in its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MaskedOutput {
    /// The length of the output before it was masked.
    pub(crate) bytes: u64,
}

impl ImportedRecord {
    /// Returns the header of an original with this source.
    pub fn header(self) -> io::Result<String> {
        Ok(serde_json::to_string(&HeaderLine::Imported(self))? + "\n")
    }
}

/// A line of a header.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HeaderLine {
    Turn(SpooledTurn),
    Process(SpooledProcess),
    Ended(SpooledEnding),
    /// The turn is in the store.
    Stored(StoredTurn),
    /// The turn is cancelled, perhaps by another process. Means nothing after its end: see [`crate::cancel`].
    Cancel,
    /// The output is that of another program.
    Imported(ImportedRecord),
    /// The output was masked. A store writes this line.
    Masked(MaskedOutput),
}

/// The content of a header.
#[derive(Default)]
pub(crate) struct Header {
    pub(crate) turn: Option<SpooledTurn>,
    pub(crate) process: Option<SpooledProcess>,
    pub(crate) ended: Option<SpooledEnding>,
    pub(crate) stored: Option<StoredTurn>,
    /// How often the turn was cancelled before it ended.
    pub(crate) cancels: u32,
    pub(crate) imported: Option<ImportedRecord>,
    pub(crate) masked: Option<MaskedOutput>,
}

/// Reads at most this much of a header: a prompt of 10 MiB with each byte escaped, and the rest.
pub(crate) const LARGEST_HEADER: u64 = 72 << 20;

impl Header {
    /// Reads the lines that are ours. One that was cut is not a fact, and does not hide those after it: after a crash it is the last
    /// one, and after a moment with a full disk others follow.
    pub(crate) fn read(header: impl Read) -> io::Result<Self> {
        let mut lines = BufReader::new(header.take(LARGEST_HEADER));
        let (mut header, mut line) = (Self::default(), Vec::new());
        // The zeros that a loss of power or a sparse file leaves are not read to their end.
        while matches!(lines.fill_buf()?.first(), Some(b'{' | b'"' | b'\n')) {
            line.clear();
            lines.read_until(b'\n', &mut line)?;
            match serde_json::from_slice(&line) {
                Ok(HeaderLine::Turn(turn)) => header.turn = Some(turn),
                Ok(HeaderLine::Process(process)) => header.process = Some(process),
                Ok(HeaderLine::Ended(ended)) => header.ended = Some(ended),
                Ok(HeaderLine::Stored(stored)) => header.stored = Some(stored),
                Ok(HeaderLine::Cancel) if header.ended.is_none() => {
                    header.cancels = header.cancels.saturating_add(1);
                }
                // Too late.
                Ok(HeaderLine::Cancel) => {}
                Ok(HeaderLine::Imported(record)) => header.imported = Some(record),
                // Masking again masks no more.
                Ok(HeaderLine::Masked(masked)) => drop(header.masked.get_or_insert(masked)),
                Err(_) if line.ends_with(b"\n") => {}
                Err(_) => break,
            }
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_does_not_hide_those_after_it() {
        let cancelled = |header: &str| Header::read(header.as_bytes()).unwrap().cancels;
        for cut in ["", "\n", "{\"process\":{\"pid\":7,", "{\"process\":{\"pid\":7,\n"] {
            // The line that stands right behind the cut is lost with it, the next one is not.
            let expected = if cut.is_empty() || cut.ends_with('\n') { 2 } else { 1 };
            assert_eq!(cancelled(&format!("{cut}\"cancel\"\n\"cancel\"\n")), expected, "{cut:?}");
        }
        assert_eq!(cancelled("\"cancel\"\n{\"proc"), 1);
    }
}
