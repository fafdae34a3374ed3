//! Sessions that are open in the own interface of an agent's program.
//!
//! The session was written into the home of the program, and what is added to it there is taken back when the program has ended. Until
//! then a note says so. Its owner holds a lock on it. A note without a lock is that of a process that died: the next one finishes it, unless
//! the program still runs.
//!
//! Notes name files that are deleted and programs that are run. So they are in a folder of the user, outside of the project: an agent that
//! may write nothing but the project cannot forge one.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use azureal_core::{Holder, SessionId};
use azureal_files::Folder;
use azureal_process::{Marker, ProcessIdentity, find_marked};
use serde::{Deserialize, Serialize};

use crate::header::SpooledProcess;
use crate::launch::RUN_MARKER;
use crate::spool::{READ_AND_APPEND, SpoolError, at};

/// What the names of notes end with.
const NOTE: &str = "open";
/// Reads at most this much of a note.
const LARGEST: u64 = 1 << 20;

/// A session that is open in the interface of an agent's program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedSession {
    /// Names the note, and marks the processes of the program.
    pub run: String,
    /// The process group of azureal and of the program. Commands that the program leaves behind have one of their own.
    #[serde(default)]
    pub group: Option<u32>,
    /// The number of the session.
    pub session: u32,
    /// The time at which the session was created: in another store, another session has its number.
    pub session_made: String,
    /// The number of its events then.
    #[serde(default)]
    pub events: u64,
    /// The program's own id of the session.
    pub id: String,
    /// The file that was written into the home of the program; `None` if the program imported it.
    pub file: Option<PathBuf>,
    /// The program.
    pub program: PathBuf,
    /// The arguments with which it deletes the session, if it imported it.
    pub delete: Vec<String>,
    /// The directory that the program runs in.
    pub directory: PathBuf,
    /// Whether the session stays in the home of the program.
    pub keep: bool,
    /// The place in which the store records the session as the last one used.
    pub used_in: String,
    /// The azureal that opened it, with the agent and the time.
    pub holder: Holder,
}

impl OpenedSession {
    /// Returns the session.
    pub fn session_id(&self) -> Option<SessionId> {
        SessionId::new(self.session)
    }
}

/// A line of a note. A line that was cut by a crash is the last one, and not yet a fact.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NoteLine {
    Opened(Box<OpenedSession>),
    Process(SpooledProcess),
}

/// The folder of the notes of one store.
#[derive(Debug, Clone)]
pub struct OpenedSessions {
    folder: PathBuf,
}

/// A note of this process: no other process finishes it while we hold this.
#[derive(Debug)]
pub struct OpenedNote {
    /// Locked as long as it is open.
    file: File,
    folder: Folder,
    opened: OpenedSession,
    process: Option<ProcessIdentity>,
}

/// A note in the folder.
#[derive(Debug)]
pub enum FoundNote {
    /// Its azureal died, and the program has ended. This process owns it now.
    Ended(Box<OpenedNote>),
    /// The program runs, or another process finishes it.
    Open(Box<OpenedSession>, Option<ProcessIdentity>),
}

impl OpenedSessions {
    /// Uses this folder, which is created with the first note.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Writes the note of a session that is about to be opened, and owns it.
    pub fn begin(&self, opened: OpenedSession) -> Result<OpenedNote, SpoolError> {
        let path = self.folder.join(format!("{}.{NOTE}", opened.run));
        let begin = || -> io::Result<OpenedNote> {
            if let Some(parent) = self.folder.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            }
            let folder = Folder::open_or_create(&self.folder)?;
            let file = loop {
                let file = folder.create_file(name_of(&path), READ_AND_APPEND)?;
                file.lock()?;
                // Another process may have taken it for the note of a process that died, and removed it before it was locked.
                if folder.has(name_of(&path), &file) {
                    break file;
                }
            };
            let mut note = OpenedNote { file, folder, opened, process: None };
            note.add(&NoteLine::Opened(Box::new(note.opened.clone())))?;
            note.folder.sync()?;
            Ok(note)
        };
        begin().map_err(at(&path))
    }

    /// Finds all notes, and takes those whose azureal and program have ended.
    pub fn find(&self) -> Result<Vec<FoundNote>, SpoolError> {
        let folder = match Folder::open(&self.folder) {
            Ok(folder) => folder,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(at(&self.folder)(error)),
        };
        let mut names = folder.names().map_err(at(&self.folder))?;
        names.retain(|name| Path::new(name).extension() == Some(OsStr::new(NOTE)));
        names.sort();
        let mut found = Vec::new();
        for name in &names {
            found.extend(look_at(&folder, name).map_err(at(&folder.join(name)))?);
        }
        Ok(found)
    }

    /// Returns the holder of a session that is open in a program which still runs.
    pub(crate) fn holder_of(&self, session: SessionId) -> Result<Option<Holder>, SpoolError> {
        Ok(self.find()?.into_iter().find_map(|note| match note {
            FoundNote::Open(opened, Some(process)) if opened.session_id() == Some(session) => {
                Some(Holder { pid: process.pid, ..opened.holder })
            }
            _ => None,
        }))
    }
}

fn look_at(folder: &Folder, name: &OsStr) -> io::Result<Option<FoundNote>> {
    let file = match folder.open_file(name, READ_AND_APPEND) {
        Ok(file) => file,
        // Its owner has finished it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_ours = match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => return Err(error),
    };
    if is_ours && !folder.has(name, &file) {
        return Ok(None);
    }
    let Content { opened, process, is_cut } = read(&file)?;
    if is_ours && is_cut {
        // Its azureal died before the note was complete, and wrote nothing else.
        folder.remove(name)?;
        return Ok(None);
    }
    let is_its_own = |opened: &OpenedSession| Path::new(name).file_stem() == Some(OsStr::new(&opened.run));
    let Some(opened) = opened.filter(is_its_own) else { return Ok(None) };
    let running = process.as_ref().and_then(|noted| running(&opened, noted));
    Ok(Some(match is_ours && running.is_none() {
        true => FoundNote::Ended(Box::new(OpenedNote { file, folder: folder.clone(), opened, process })),
        false => FoundNote::Open(Box::new(opened), running),
    }))
}

/// Returns the process that runs a session: the noted one, or else another process of the program. The noted one may be a launcher, which was
/// killed alone, or azureal, which was killed before it noted the program.
fn running(opened: &OpenedSession, noted: &ProcessIdentity) -> Option<ProcessIdentity> {
    if noted.is_alive() {
        return Some(noted.clone());
    }
    let group = opened.group?;
    let marker = Marker::new(RUN_MARKER, opened.run.clone()).ok()?;
    find_marked(&marker).into_iter().filter(|process| process.group() == Some(group)).min()
}

/// The content of a note.
#[derive(Default)]
struct Content {
    opened: Option<OpenedSession>,
    process: Option<ProcessIdentity>,
    /// Whether not even its first line is complete.
    is_cut: bool,
}

fn read(mut file: &File) -> io::Result<Content> {
    file.rewind()?;
    let mut content = Content { is_cut: true, ..Content::default() };
    let mut lines = BufReader::new(file.take(LARGEST));
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        content.is_cut &= line.last() != Some(&b'\n');
        match serde_json::from_slice(&line) {
            Ok(NoteLine::Opened(found)) => content.opened = Some(*found),
            Ok(NoteLine::Process(found)) => content.process = Some(found.identity()),
            Err(_) => break,
        }
        line.clear();
    }
    Ok(content)
}

impl OpenedNote {
    /// Returns the session.
    pub fn opened(&self) -> &OpenedSession {
        &self.opened
    }

    /// Returns the process of the program, if it was started.
    pub fn process(&self) -> Option<&ProcessIdentity> {
        self.process.as_ref()
    }

    /// Returns whether the program runs. Its launcher may have ended before it.
    pub fn is_running(&self) -> bool {
        let running = self.process.as_ref().and_then(|noted| running(&self.opened, noted));
        running.is_some_and(|process| process.pid != std::process::id())
    }

    /// Notes the process of the program.
    pub fn note_process(&mut self, process: ProcessIdentity) -> Result<(), SpoolError> {
        let ProcessIdentity { pid, started: began } = process.clone();
        self.process = Some(process);
        self.add(&NoteLine::Process(SpooledProcess { pid, began, before: None })).map_err(at(&self.path()))
    }

    /// Removes the note: what was added is in the store, and the session is not in the home of the program any more.
    pub fn remove(self) -> Result<(), SpoolError> {
        // The lock is held until the file is closed, which is after this.
        let path = self.path();
        let removed = self.folder.remove(name_of(&path)).and_then(|()| self.folder.sync());
        removed.map_err(at(&path))
    }

    fn add(&mut self, line: &NoteLine) -> io::Result<()> {
        self.file.write_all((serde_json::to_string(line)? + "\n").as_bytes())?;
        self.file.sync_data()
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.{NOTE}", self.opened.run))
    }
}

fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::this_process;

    fn opened(run: &str, session: u32) -> OpenedSession {
        OpenedSession {
            run: run.to_owned(),
            group: None,
            session,
            session_made: "2026-01-31T09:30:00Z".to_owned(),
            events: 7,
            id: "33333333-3333-4333-8333-333333333333".to_owned(),
            file: Some("/dev-home/.claude/projects/x/3.jsonl".into()),
            program: "/usr/bin/claude".into(),
            delete: Vec::new(),
            directory: "/dev-home/project".into(),
            keep: false,
            used_in: ".".to_owned(),
            holder: this_process("claude"),
        }
    }

    #[test]
    fn a_note_is_found_with_its_owner_and_without() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = OpenedSessions::new(folder.path().join("opened"));
        assert!(sessions.find().unwrap().is_empty());
        let mut note = sessions.begin(opened("a", 3)).unwrap();
        note.note_process(ProcessIdentity::of(std::process::id()).unwrap()).unwrap();
        let s3 = SessionId::new(3).unwrap();
        let is_open = |found: &[FoundNote]| matches!(found, [FoundNote::Open(opened, Some(_))] if opened.id.starts_with('3'));
        assert!(is_open(&sessions.find().unwrap()));
        assert_eq!(sessions.holder_of(s3).unwrap().unwrap().pid, std::process::id());
        // Its azureal died, and the program runs.
        drop(note);
        assert!(is_open(&sessions.find().unwrap()));
        assert!(sessions.holder_of(s3).unwrap().is_some());
        assert!(sessions.holder_of(SessionId::new(4).unwrap()).unwrap().is_none());
    }

    #[test]
    fn a_note_of_an_ended_program_has_a_new_owner_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = OpenedSessions::new(folder.path().join("opened"));
        let mut note = sessions.begin(opened("a", 3)).unwrap();
        let gone = ProcessIdentity { pid: std::process::id(), started: "long ago".to_owned() };
        note.note_process(gone).unwrap();
        assert!(matches!(&sessions.find().unwrap()[..], [FoundNote::Open(_, None)]), "its owner finishes it");
        drop(note);
        let mut found = sessions.find().unwrap();
        let Some(FoundNote::Ended(note)) = found.pop() else { panic!("{found:?}") };
        assert_eq!(note.opened(), &opened_like(&note, "a", 3));
        assert!(sessions.holder_of(SessionId::new(3).unwrap()).unwrap().is_none());
        note.remove().unwrap();
        assert!(sessions.find().unwrap().is_empty());
    }

    /// The same session, with the time at which the note was written.
    fn opened_like(note: &OpenedNote, run: &str, session: u32) -> OpenedSession {
        OpenedSession { holder: note.opened().holder.clone(), ..opened(run, session) }
    }

    #[test]
    fn a_note_that_was_cut_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("opened");
        let sessions = OpenedSessions::new(&path);
        drop(sessions.begin(opened("a", 3)).unwrap());
        let file = path.join("a.open");
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
        assert!(sessions.find().unwrap().is_empty() && !file.exists());
        drop(sessions.begin(opened("a", 3)).unwrap());
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, [&whole[..], b"{\"process\":{\"pid\":1"].concat()).unwrap();
        assert!(matches!(&sessions.find().unwrap()[..], [FoundNote::Ended(_)]), "no process was noted");
        std::fs::rename(&file, path.join("b.open")).unwrap();
        assert!(sessions.find().unwrap().is_empty(), "the note of another run");
    }
}
