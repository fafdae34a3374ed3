//! The sessions of Codex: `sessions/<year>/<month>/<day>/rollout-<time>-<thread>.jsonl` in its folder, or compressed (`.zst`), and
//! `archived_sessions`.
//!
//! A thread that was resumed continues in its file. A fork of current versions has only its own lines, and names the part of
//! the other thread that comes before them; a fork of older versions begins with a copy of these lines. A thread whose user went back
//! continues in a further file of it, `rollout-<time>-<thread>_<segment>.jsonl`, which names the part before it in the same way, by the
//! id of the thread or of the segment. Lines are counted by ordinals, which continue in a fork and in a segment.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use azureal_core::agent::{AgentOutput, AgentParser, Ending};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::NAME;
use super::rollout::Rollout;
use crate::native::files::{self, FileListing};
use crate::native::lines::{Line, Lines, last_time};
use crate::native::records::{LineParser, LineTurns, Part};
use crate::native::{NativeError, NativeHead, NativeHome, NativeSession, NativeSource, NativeTurns};
use crate::wire::{Fields, Loose, lenient, read};

/// The sessions of Codex.
#[derive(Debug, Clone, Copy)]
pub struct CodexSessions;

/// The folder of sessions in Codex's folder.
pub(super) const SESSIONS: &str = "sessions";
/// The folders of sessions in Codex's folder.
const FOLDERS: [&str; 2] = [SESSIONS, "archived_sessions"];
/// Year, month and day.
const DEPTH: usize = 3;
/// The number of lines in which the head of a session is searched.
const HEAD_LINES: u64 = 8;
/// The number of forks of forks that are followed.
const MOST_ORIGINS: usize = 32;

impl NativeSource for CodexSessions {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn program(&self) -> &'static str {
        "Codex"
    }

    fn homes(&self, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
        files::homes(variable, "CODEX_HOME", &[".codex"])
    }

    fn recognises(&self, _: &Path, beginning: &[u8]) -> bool {
        // The instructions in the first line may be longer than the beginning.
        let line = beginning.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let start = String::from_utf8_lossy(line.get(..512).unwrap_or(line));
        start.contains("\"session_meta\"") && start.contains("\"payload\"")
    }

    fn open(&self, place: &Path, _: &Path) -> Result<Box<dyn NativeHome>, NativeError> {
        Ok(Box::new(CodexHome { place: place.to_owned(), files: OnceCell::new() }))
    }
}

struct CodexHome {
    place: PathBuf,
    /// The files of all threads and segments, by their ids.
    files: OnceCell<HashMap<String, PathBuf>>,
}

impl CodexHome {
    /// Finds the file of a thread or a segment, in this home or in that of the folder or file that the user named.
    fn find(&self, id: &str) -> Option<&PathBuf> {
        let files = self.files.get_or_init(|| {
            let is_home = |place: &&Path| FOLDERS.iter().any(|folder| place.join(folder).is_dir());
            let home = self.place.ancestors().take(DEPTH + 3).find(is_home);
            let found = home.into_iter().flat_map(rollouts).filter_map(Result::ok);
            found.map(|session| (file_id(&session.id).to_owned(), session.path)).collect()
        });
        files.get(id)
    }

    /// Adds the parts of a session, its origins after it.
    fn parts(&self, session: &NativeSession) -> Result<(Vec<Part>, Option<String>), NativeError> {
        let mut parts =
            vec![Part { path: session.path.clone(), lines: Lines::open(&session.path)?, most: u64::MAX }];
        let mut base = first_line(&session.path)?.and_then(|meta| meta.history_base.0);
        while let Some(HistoryBase { thread_id, end_ordinal_exclusive }) = base {
            let origin = self.find(&thread_id).filter(|_| parts.len() <= MOST_ORIGINS);
            let Some(path) = origin.cloned() else { return Ok((parts, Some(thread_id))) };
            let lines = Lines::open(&path)?;
            let meta = first_line(&path)?;
            let first = meta.as_ref().map_or(0, |meta| meta.first_ordinal);
            parts.push(Part { path, lines, most: end_ordinal_exclusive.saturating_sub(first) });
            base = meta.and_then(|meta| meta.history_base.0);
        }
        Ok((parts, None))
    }
}

/// Lists the rollouts of a home, or those in a folder or file that the user named.
fn rollouts(place: &Path) -> Box<dyn Iterator<Item = Result<NativeSession, NativeError>>> {
    let folders = FOLDERS.map(|folder| place.join(folder));
    if folders.iter().any(|folder| folder.is_dir()) {
        let folders = folders.into_iter().filter(|folder| folder.is_dir());
        return Box::new(folders.flat_map(|folder| FileListing::of(&folder, DEPTH, thread_id)));
    }
    Box::new(FileListing::of(place, DEPTH, thread_id))
}

impl NativeHome for CodexHome {
    fn sessions<'a>(
        &'a self,
        _: Option<&'a Path>,
    ) -> Box<dyn Iterator<Item = Result<NativeSession, NativeError>> + 'a> {
        rollouts(&self.place)
    }

    fn head(&self, session: &NativeSession) -> Result<NativeHead, NativeError> {
        let mut head = NativeHead { id: session.id.clone(), ..NativeHead::default() };
        if let Some(meta) = first_line(&session.path)? {
            if !meta.id.is_empty() {
                head.id = meta.id;
            }
            head.cwd = Some(PathBuf::from(meta.cwd)).filter(|cwd| !cwd.as_os_str().is_empty());
            head.started = meta.timestamp.parse().ok();
            head.ended = last_time(&session.path);
            head.is_subagent = meta.parent_thread_id.is_some() || meta.thread_source == "subagent";
            head.is_subagent |= meta.source.get("subagent").is_some();
            head.is_headless = meta.source == "exec";
        }
        Ok(head)
    }

    fn turns(&self, session: &NativeSession) -> Result<Box<dyn NativeTurns>, NativeError> {
        let (parts, missing) = self.parts(session)?;
        let head = self.head(session)?;
        let cwd = head.cwd.map(|cwd| cwd.to_string_lossy().into_owned());
        let mut turns =
            LineTurns::of_parts(parts, CodexParser(Rollout::of_thread(head.id, cwd.unwrap_or_default())));
        if let Some(thread) = missing {
            turns.problem("the beginning", format!("it is in the thread {thread}, which is not here"));
        }
        Ok(Box::new(turns))
    }
}

/// The beginning of a thread.
#[derive(Deserialize)]
struct Meta {
    #[serde(default, deserialize_with = "lenient")]
    id: String,
    #[serde(default, deserialize_with = "lenient")]
    timestamp: String,
    #[serde(default, deserialize_with = "lenient")]
    cwd: String,
    /// `exec`, `cli`, or an object for a subagent.
    #[serde(default, deserialize_with = "lenient")]
    source: Value,
    #[serde(default, deserialize_with = "lenient")]
    thread_source: String,
    #[serde(default, deserialize_with = "lenient")]
    parent_thread_id: Option<String>,
    #[serde(default)]
    history_base: Loose<HistoryBase>,
    /// The ordinal of the first line of the file: not 0 if another file comes before it.
    #[serde(skip)]
    first_ordinal: u64,
}

/// The part of another thread, or of another segment of the same one, that comes before this one.
#[derive(Deserialize)]
struct HistoryBase {
    /// The id of the thread or of the segment.
    #[serde(default, deserialize_with = "lenient")]
    thread_id: String,
    /// The ordinal of its first line that does not.
    #[serde(default, deserialize_with = "lenient")]
    end_ordinal_exclusive: u64,
}

/// Reads the beginning of a thread: its first line, unless that is damaged.
fn first_line(path: &Path) -> Result<Option<Meta>, NativeError> {
    let mut lines = Lines::open(path)?;
    while lines.number() < HEAD_LINES {
        let Some(line) = lines.next().map_err(NativeError::file(path))? else { break };
        let (Line::Whole(line) | Line::Unfinished(line)) = line else { continue };
        let text = String::from_utf8_lossy(line);
        let found = Fields::of(&text).and_then(|fields| fields.read::<MetaLine<'_>>());
        let Some(found) = found.filter(|line| line.kind == "session_meta") else { continue };
        if let Some(meta) = found.payload.and_then(read::<Meta>) {
            let first_ordinal = found.ordinal.saturating_sub(lines.number().saturating_sub(1));
            return Ok(Some(Meta { first_ordinal, ..meta }));
        }
    }
    Ok(None)
}

#[derive(Deserialize)]
struct MetaLine<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "lenient")]
    ordinal: u64,
    #[serde(default, borrow)]
    payload: Option<&'a RawValue>,
}

/// Returns the id of a thread from the name of its file: `rollout-2026-11-15T07-13-23-<id>.jsonl`.
fn thread_id(name: &str) -> Option<&str> {
    let name = name.strip_suffix(".zst").unwrap_or(name).strip_prefix("rollout-")?.strip_suffix(".jsonl")?;
    const TIME: usize = "2026-11-15T07-13-23-".len();
    name.get(TIME..).filter(|id| !id.is_empty())
}

/// Returns the part of a session's id that only its file has: the segment, or the thread in its first file.
fn file_id(id: &str) -> &str {
    id.split_once('_').map_or(id, |(_, segment)| segment)
}

struct CodexParser(Rollout);

impl LineParser for CodexParser {
    fn line(&mut self, _: u64, line: &[u8]) -> Vec<AgentOutput> {
        self.0.line(line)
    }

    fn end(&mut self) -> Vec<AgentOutput> {
        self.0.end(&Ending::default())
    }

    fn has_content(&self) -> bool {
        self.0.has_content()
    }

    fn turn(&self) -> (&str, Option<Timestamp>) {
        self.0.turn()
    }

    fn was_open(&self) -> bool {
        self.0.was_open()
    }

    fn take_summary(&mut self) -> Option<String> {
        self.0.take_summary()
    }
}
