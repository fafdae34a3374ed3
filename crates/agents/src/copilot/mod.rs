//! GitHub Copilot CLI: the sessions that it records, `session-state/<session>/events.jsonl` in its folder.
//!
//! Older versions have `session-state/<session>.jsonl`.

mod events;

use std::ffi::OsString;
use std::fs;
use std::iter;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::native::draft::Draft;
use crate::native::files::{self, FileListing};
use crate::native::lines::{any_object, beginning, first_objects, last_time};
use crate::native::record_lines::RecordLines;
use crate::native::{NativeError, NativeHead, NativeHome, NativeSession, NativeSource, NativeTurns};
use events::{CopilotParser, Record};

pub(crate) const NAME: &str = "copilot";

/// The folder of sessions in Copilot's folder.
const SESSIONS: &str = "session-state";
/// The file of a session in its folder.
const EVENTS: &str = "events.jsonl";
/// The facts about a session, beside its events.
const FACTS: &str = "workspace.yaml";
/// The number of bytes of these facts that are read.
const LONGEST_FACTS: usize = 64 << 10;
/// The number of lines in which the head of a session is searched.
const HEAD_LINES: u64 = 16;

/// The sessions of GitHub Copilot CLI.
#[derive(Debug, Clone, Copy)]
pub struct CopilotSessions;

impl NativeSource for CopilotSessions {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn program(&self) -> &'static str {
        "GitHub Copilot CLI"
    }

    fn homes(&self, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
        files::homes(variable, "COPILOT_HOME", &[".copilot"])
    }

    fn recognises(&self, _: &Path, beginning: &[u8]) -> bool {
        any_object(beginning, |fields| {
            fields.read::<Record<'_>>().is_some_and(|record| record.is_beginning())
        })
    }

    fn open(&self, place: &Path, _: &Path) -> Result<Box<dyn NativeHome>, NativeError> {
        Ok(Box::new(CopilotHome { place: place.to_owned() }))
    }
}

struct CopilotHome {
    place: PathBuf,
}

impl NativeHome for CopilotHome {
    fn sessions<'a>(
        &'a self,
        _: Option<&'a Path>,
    ) -> Box<dyn Iterator<Item = Result<NativeSession, NativeError>> + 'a> {
        let place = [self.place.join(SESSIONS)].into_iter().find(|sessions| sessions.is_dir());
        let place = place.unwrap_or_else(|| self.place.clone());
        if place.join(EVENTS).is_file() || place.is_file() {
            let file = if place.is_file() { place } else { place.join(EVENTS) };
            return Box::new(FileListing::of(&file, 0, |_| None).map(named));
        }
        let in_folders =
            files::folders(&place).into_iter().flat_map(|folder| -> Box<dyn Iterator<Item = _>> {
                match folder.map(|folder| folder.join(EVENTS)) {
                    Ok(file) if fs::symlink_metadata(&file).is_ok() => {
                        Box::new(FileListing::of(&file, 0, |_| None).map(named))
                    }
                    Ok(_) => Box::new(iter::empty()),
                    Err(link) => Box::new(iter::once(Err(link))),
                }
            });
        Box::new(in_folders.chain(FileListing::of(&place, 0, |name| name.strip_suffix(".jsonl"))))
    }

    fn head(&self, session: &NativeSession) -> Result<NativeHead, NativeError> {
        let ended = last_time(&session.path);
        let mut head = NativeHead { id: session.id.clone(), ended, ..NativeHead::default() };
        first_objects(&session.path, HEAD_LINES, |fields| {
            let Some(record) = fields.read::<Record<'_>>() else { return ControlFlow::Continue(()) };
            head.started = head.started.or_else(|| record.timestamp.parse().ok());
            if let Some(data) = record.beginning() {
                if !data.session_id.is_empty() {
                    head.id = data.session_id;
                }
                head.cwd = Some(data.context.0.unwrap_or_default().cwd)
                    .filter(|cwd| !cwd.is_empty())
                    .map(PathBuf::from);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        let facts = facts(&session.path);
        let fact = |name: &str| facts.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        head.cwd = head.cwd.or_else(|| fact("cwd").map(PathBuf::from));
        // A name that the program chose is the beginning of the first prompt.
        head.title = fact("name").filter(|_| fact("user_named").as_deref() == Some("true"));
        Ok(head)
    }

    fn turns(&self, session: &NativeSession) -> Result<Box<dyn NativeTurns>, NativeError> {
        let draft = Draft::new(NAME, &session.id, "");
        Ok(Box::new(RecordLines::open(&session.path, draft, CopilotParser::default())?))
    }
}

/// Names a session after its folder, as all files have the same name.
fn named(found: Result<NativeSession, NativeError>) -> Result<NativeSession, NativeError> {
    let mut session = found?;
    if session.path.file_name().is_some_and(|name| name == EVENTS) {
        let folder = session.path.parent().and_then(Path::file_name);
        if let Some(id) = folder.and_then(|name| name.to_str()) {
            session.id = id.to_owned();
        }
    }
    Ok(session)
}

/// Reads the facts beside a session that are texts on one line.
fn facts(session: &Path) -> Vec<(String, String)> {
    let is_in_folder = session.file_name().is_some_and(|name| name == EVENTS);
    let bytes = beginning(&session.with_file_name(FACTS), LONGEST_FACTS).ok().filter(|_| is_in_folder);
    let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
    let fact = |line: &str| {
        let (key, value) = line.split_once(": ")?;
        let is_plain = !value.starts_with(['|', '>', '"', '\'', '[', '{', '&', '*', '!']);
        (is_plain && !key.starts_with(' ')).then(|| (key.to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(fact).collect()
}
