//! Qwen Code: the sessions that it records, `projects/<directory>/chats/<session>.jsonl` in its folder.

mod chain;
mod records;
mod write;

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use azureal_core::counted;

use crate::native::draft::Draft;
use crate::native::files::{self, ProjectFolders};
use crate::native::lines::{Lines, any_object, first_objects, last_time};
use crate::native::record_lines::RecordLines;
use crate::native::{NativeError, NativeHead, NativeHome, NativeSession, NativeSource, NativeTurns};
use chain::Chain;
use records::{QwenParser, Record};

pub use write::QwenWriter;

pub(crate) const NAME: &str = "qwen";

/// The folder of projects in Qwen's folder.
const PROJECTS: &str = "projects";
/// The folder of sessions in the folder of a project.
const CHATS: &str = "chats";
const FOLDERS: ProjectFolders = ProjectFolders { projects: PROJECTS, sessions: CHATS, id_of: session_id };
/// The number of lines in which the head of a session is searched.
const HEAD_LINES: u64 = 64;

/// The sessions of Qwen Code.
#[derive(Debug, Clone, Copy)]
pub struct QwenSessions;

impl NativeSource for QwenSessions {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn program(&self) -> &'static str {
        "Qwen Code"
    }

    fn homes(&self, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
        files::homes(variable, "QWEN_HOME", &[".qwen"])
    }

    fn recognises(&self, _: &Path, beginning: &[u8]) -> bool {
        any_object(beginning, |fields| fields.read::<Record<'_>>().is_some_and(|record| record.is_of_qwen()))
    }

    fn open(&self, place: &Path, _: &Path) -> Result<Box<dyn NativeHome>, NativeError> {
        Ok(Box::new(QwenHome { place: place.to_owned() }))
    }
}

struct QwenHome {
    place: PathBuf,
}

impl NativeHome for QwenHome {
    fn sessions<'a>(
        &'a self,
        project: Option<&'a Path>,
    ) -> Box<dyn Iterator<Item = Result<NativeSession, NativeError>> + 'a> {
        let name = project.map(folder_name);
        FOLDERS.list(&self.place, move |folder| {
            let found = folder.file_name().unwrap_or_default().to_string_lossy();
            name.as_ref().is_none_or(|name| {
                found.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            })
        })
    }

    fn head(&self, session: &NativeSession) -> Result<NativeHead, NativeError> {
        let ended = last_time(&session.path);
        let mut head = NativeHead { id: session.id.clone(), ended, ..NativeHead::default() };
        let mut is_known = false;
        first_objects(&session.path, HEAD_LINES, |fields| {
            let Some(record) = fields.read::<Record<'_>>().filter(Record::is_of_qwen) else {
                return ControlFlow::Continue(());
            };
            if !is_known {
                is_known = true;
                head.id.clone_from(&record.session_id);
            }
            if head.cwd.is_none() && !record.cwd.is_empty() {
                head.cwd = Some(PathBuf::from(&record.cwd));
            }
            head.started = head.started.or_else(|| record.timestamp.parse().ok());
            if let Some(payload) = &record.system_payload.0 {
                head.title = payload.custom_title.clone().or(head.title.take());
            }
            ControlFlow::Continue(())
        })?;
        Ok(head)
    }

    fn turns(&self, session: &NativeSession) -> Result<Box<dyn NativeTurns>, NativeError> {
        let chain =
            Chain::read(&mut Lines::open(&session.path)?).map_err(NativeError::file(&session.path))?;
        let abandoned = chain.abandoned;
        let (draft, parser) = (Draft::new(NAME, &session.id, ""), QwenParser::new(chain));
        let mut turns = RecordLines::open(&session.path, draft, parser)?;
        if abandoned > 0 {
            turns.problem(
                &format!("an older branch ({})", counted(abandoned, "record")),
                "the user went back in the program",
            );
        }
        Ok(Box::new(turns))
    }
}

/// Returns the id of a session from the name of its file; `None` for another file.
fn session_id(name: &str) -> Option<&str> {
    name.strip_suffix(".jsonl")
}

/// Returns the name of the folder of a directory's sessions: every character but letters and digits of ASCII is a `-`.
fn folder_name(directory: &Path) -> String {
    files::with_dashes(directory)
}
