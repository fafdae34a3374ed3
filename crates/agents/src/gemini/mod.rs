//! Gemini CLI: the sessions that it records, `tmp/<project>/chats/session-<minute>-<id>.jsonl` in its folder.
//!
//! The directory of a project is in `projects.json`, and in a file beside its sessions. Sessions of subagents are in folders of
//! their own below `chats`; they are left out, as their calls have one result in the session that started them.

mod index;
pub(crate) mod parts;
mod turns;
mod write;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::native::files::{self, ProjectFolders};
use crate::native::lines::{Line, Lines, beginning, last_time};
use crate::native::{NativeError, NativeHead, NativeHome, NativeSession, NativeSource, NativeTurns};
use crate::wire::{Fields, lenient};
use index::{Index, Metadata, Record};
use turns::GeminiTurns;

pub use write::GeminiWriter;

pub(crate) const NAME: &str = "gemini";

/// The folder of projects in Gemini's folder.
const PROJECTS: &str = "tmp";
/// The folder of sessions in the folder of a project.
const CHATS: &str = "chats";
const FOLDERS: ProjectFolders = ProjectFolders { projects: PROJECTS, sessions: CHATS, id_of: session_name };
/// The file that names the directory of a project.
const ROOT: &str = ".project_root";
/// The largest list of projects that is read, and the longest path: 1 MiB.
const LONGEST_LIST: usize = 1 << 20;
/// The number of lines in which the head of a session is searched.
const HEAD_LINES: u64 = 64;

/// The sessions of Gemini CLI.
#[derive(Debug, Clone, Copy)]
pub struct GeminiSessions;

impl NativeSource for GeminiSessions {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn program(&self) -> &'static str {
        "Gemini CLI"
    }

    fn homes(&self, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
        // The variable names a home directory, and not the folder in it.
        let homes = files::homes(variable, "GEMINI_CLI_HOME", &[""]);
        homes.into_iter().map(|home| home.join(".gemini")).collect()
    }

    fn recognises(&self, _: &Path, beginning: &[u8]) -> bool {
        let text = String::from_utf8_lossy(beginning);
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        if let Some(fields) = Fields::of(first) {
            return fields.read::<Metadata>().is_some_and(|metadata| metadata.is_header());
        }
        // A session as one value, of an older version.
        let head = text.get(..4096).unwrap_or(&text);
        head.contains("\"sessionId\"") && head.contains("\"projectHash\"")
    }

    fn open(&self, place: &Path, _: &Path) -> Result<Box<dyn NativeHome>, NativeError> {
        Ok(Box::new(GeminiHome { place: place.to_owned() }))
    }
}

struct GeminiHome {
    place: PathBuf,
}

impl NativeHome for GeminiHome {
    fn sessions<'a>(
        &'a self,
        project: Option<&'a Path>,
    ) -> Box<dyn Iterator<Item = Result<NativeSession, NativeError>> + 'a> {
        let directories = directories(&self.place);
        FOLDERS.list(&self.place, move |folder| {
            let found = root_of(folder).or_else(|| directories.get(folder.file_name()?.to_str()?).cloned());
            project.is_none_or(|project| found.is_none_or(|found| found.starts_with(project)))
        })
    }

    fn head(&self, session: &NativeSession) -> Result<NativeHead, NativeError> {
        let mut metadata = Metadata::default();
        let mut has_messages = false;
        if index::is_one_value(&session.path)? {
            let index = Index::read(&session.path)?;
            has_messages = !index.is_empty();
            metadata = index.metadata;
        } else {
            let mut lines = Lines::open(&session.path)?;
            let failed = NativeError::file(&session.path);
            while let Some(line) = lines.next().map_err(&failed)? {
                let (Line::Whole(line) | Line::Unfinished(line)) = line else { continue };
                match Record::of(&String::from_utf8_lossy(line)) {
                    Some(Record::Metadata(found)) => metadata.add(*found),
                    Some(Record::Message { .. }) => has_messages = true,
                    Some(Record::Messages(messages, found)) => {
                        // The first message has the environment of the program.
                        has_messages |= messages.len() > 1;
                        metadata.add(*found);
                    }
                    _ => {}
                }
                if lines.number() >= HEAD_LINES {
                    has_messages = true;
                    break;
                }
            }
        }
        if !has_messages {
            // Every start writes such a file, also one that continues another session.
            return Err(NativeError::NoConversation { path: session.path.clone() });
        }
        Ok(NativeHead {
            id: Some(metadata.session_id).filter(|id| !id.is_empty()).unwrap_or_else(|| session.id.clone()),
            cwd: directory_of(&session.path),
            title: metadata.summary,
            started: metadata.start_time.parse().ok(),
            ended: last_time(&session.path),
            first: None,
            copied_from: None,
            is_subagent: metadata.kind == "subagent",
            is_headless: false,
        })
    }

    fn turns(&self, session: &NativeSession) -> Result<Box<dyn NativeTurns>, NativeError> {
        let cwd = directory_of(&session.path).unwrap_or_default();
        Ok(Box::new(GeminiTurns::open(&session.path, &session.id, &cwd.to_string_lossy())?))
    }
}

/// Returns the name of a session's file without its ending; `None` for another file. The name has only a part of the id.
fn session_name(name: &str) -> Option<&str> {
    let stem = name.strip_suffix(".jsonl").or_else(|| name.strip_suffix(".json"))?;
    stem.starts_with("session-").then_some(stem)
}

/// Returns the directory of the project that a session belongs to.
fn directory_of(session: &Path) -> Option<PathBuf> {
    let folder = session.parent()?.parent()?;
    root_of(folder).or_else(|| {
        let home = folder.parent()?.parent()?;
        directories(home).remove(folder.file_name()?.to_str()?)
    })
}

/// Reads the file that names the directory of a project.
fn root_of(folder: &Path) -> Option<PathBuf> {
    let text = String::from_utf8(beginning(&folder.join(ROOT), LONGEST_LIST).ok()?).ok()?;
    Some(PathBuf::from(text.trim_end_matches(['\n', '\r']))).filter(|path| path.is_absolute())
}

/// Reads the directories of projects by the names of their folders.
fn directories(home: &Path) -> BTreeMap<String, PathBuf> {
    #[derive(Deserialize)]
    struct List {
        #[serde(default, deserialize_with = "lenient")]
        projects: BTreeMap<String, String>,
    }
    let path = home.join("projects.json");
    let list = || {
        let is_short = fs::symlink_metadata(&path).ok()?.len() <= LONGEST_LIST as u64;
        let text = String::from_utf8(beginning(&path, LONGEST_LIST).ok().filter(|_| is_short)?).ok()?;
        Fields::of(&text)?.read::<List>()
    };
    let projects = list().map(|list| list.projects).unwrap_or_default();
    projects.into_iter().map(|(directory, name)| (name, PathBuf::from(directory))).collect()
}
