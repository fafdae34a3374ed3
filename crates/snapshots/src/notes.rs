//! The notes of snapshots: which session keeps which, in one file per session.
//!
//! A note is a line: the time of the snapshot, its tree and its rules. A line that is cut has no end and counts for nothing. The files are in the
//! folder of the packs, so that one sync of that folder makes the names of both durable.

use std::cmp::Reverse;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use azureal_files::Folder;
use rustix::fs::{FlockOperation, OFlags};

use crate::error::{At, Error};
use crate::worktree::{Home, Worktree, write};

/// The beginning of the name of a file of notes. The name of the session follows.
const PREFIX: &str = "notes-";
/// The bound on a file: the notes of 100,000 turns.
const LIMIT: u64 = 32 * 1024 * 1024;
/// So much is read at once to find the end of the last note.
const PIECE: u64 = 4 * 1024;

/// A snapshot that a session keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pin {
    time: Duration,
    pub(crate) session: String,
    pub(crate) tree: String,
    /// The rules by which it left files out. `None` for the snapshot after an undo, with which no turn begins.
    pub(crate) rules: Option<String>,
}

impl Pin {
    /// Returns the time at which the snapshot was finished.
    pub(crate) fn time(&self) -> Option<Duration> {
        Some(self.time)
    }

    fn parse(line: &str, session: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let time = Duration::from_micros(words.next()?.parse().ok()?);
        let tree = words.next().filter(|tree| crate::is_id(tree))?.to_owned();
        let rules = match words.next()? {
            "-" => None,
            rules => Some(rules.to_owned()).filter(|rules| crate::is_id(rules)).map(Some)?,
        };
        words.next().is_none().then(|| Self { time, session: session.to_owned(), tree, rules })
    }

    fn line(&self) -> String {
        format!("{} {} {}\n", self.time.as_micros(), self.tree, self.rules.as_deref().unwrap_or("-"))
    }
}

/// The notes of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// The newest first.
    pub(crate) pins: Vec<Pin>,
    /// Files that cannot be read.
    pub(crate) unreadable: Vec<PathBuf>,
    /// Files with lines that are no notes.
    pub(crate) damaged: Vec<PathBuf>,
}

impl Notes {
    /// Reads the notes in a folder of packs.
    pub(crate) fn read(packs: &Folder) -> Result<Self, Error> {
        let mut notes = Self::default();
        for name in packs.names().at(&packs.join(""))? {
            let Some(session) = session_of(&name) else { continue };
            match read(packs, &name) {
                Ok(text) => {
                    if !notes.parse(&text, session) {
                        notes.damaged.push(packs.join(&name));
                    }
                }
                // The session was deleted meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(_) => notes.unreadable.push(packs.join(&name)),
            }
        }
        notes.pins.sort_by_key(|pin| Reverse(pin.time));
        Ok(notes)
    }

    /// Adds the notes of a session. Returns whether all whole lines are notes.
    fn parse(&mut self, text: &str, session: &str) -> bool {
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let parsed: Vec<Option<Pin>> = lines.map(|line| Pin::parse(line, session)).collect();
        let is_sound = parsed.iter().all(Option::is_some);
        self.pins.extend(parsed.into_iter().flatten());
        is_sound
    }
}

/// Returns the notes of all sessions, the newest first. Files that cannot be read are left out.
pub(crate) fn pins(home: &Home) -> Result<Vec<Pin>, Error> {
    Ok(Notes::read(&home.packs)?.pins)
}

impl Worktree {
    /// Lists the sessions that keep snapshots in this folder of snapshots, which need not exist. Starts no git.
    pub fn noted_sessions(snapshots: &Path) -> Vec<String> {
        let names = Folder::open(snapshots)
            .and_then(|folder| folder.open_folder(OsStr::new("objects")))
            .and_then(|objects| objects.open_folder(OsStr::new("pack")))
            .and_then(|packs| packs.names());
        let names = names.unwrap_or_default();
        names.iter().filter_map(|name| session_of(name)).map(str::to_owned).collect()
    }

    /// Forgets the snapshots of a session. The next [`prune`](Self::prune) removes them from the disk.
    ///
    /// # Errors
    ///
    /// Our folder in the git directory cannot be used.
    pub fn remove_session(&self, session: &str) -> Result<(), Error> {
        if !self.home.exists() {
            return Ok(());
        }
        let home = self.open_home()?;
        let name = file_name(session)?;
        home.packs.remove(&name).at(&home.packs.join(&name))
    }

    /// Notes that a session keeps a snapshot. [`sync_notes`] makes the note durable.
    pub(crate) fn pin(
        &self,
        home: &Home,
        session: &str,
        time: Duration,
        tree: &str,
        rules: Option<String>,
    ) -> Result<(), Error> {
        let name = file_name(session)?;
        let pin = Pin { time, session: session.to_owned(), tree: tree.to_owned(), rules };
        append(&home.packs, &name, &pin.line()).at(&home.packs.join(&name))
    }
}

/// Makes the notes of a session durable, but for the name of their file: that needs a sync of the folder.
pub(crate) fn sync_notes(home: &Home, session: &str) -> Result<(), Error> {
    let name = file_name(session)?;
    let path = home.packs.join(&name);
    home.packs.open_file(&name, OFlags::RDONLY).and_then(|file| file.sync_all()).at(&path)
}

/// Replaces the notes of a session. Without one, its file is removed.
pub(crate) fn replace(packs: &Folder, session: &str, pins: &[&Pin]) -> Result<(), Error> {
    let name = file_name(session)?;
    let at = packs.join(&name);
    if pins.is_empty() {
        return packs.remove(&name).at(&at);
    }
    let text: String = pins.iter().map(|pin| pin.line()).collect();
    // What a power loss leaves of the new file is no reason to lose the notes that stay.
    let temporary = format!("tmp_{PREFIX}{session}");
    write(packs, &temporary, text.as_bytes())
        .and_then(|()| packs.open_file(OsStr::new(&temporary), OFlags::RDONLY)?.sync_all())
        .and_then(|()| packs.rename(OsStr::new(&temporary), &name))
        .at(&at)
}

fn append(packs: &Folder, name: &OsStr, line: &str) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::APPEND;
    let mut file = match packs.open_file(name, flags) {
        Err(error) if error.kind() == ErrorKind::NotFound => match packs.create_file(name, flags) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => packs.open_file(name, flags),
            created => created,
        },
        opened => opened,
    }?;
    // Two worktrees may have snapshots of one session. The lock ends with the file.
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    cut_end(&mut file)?;
    let written = file.write_all(line.as_bytes());
    // Not by closing it: for a moment, any process that another thread starts has it open too.
    rustix::fs::flock(&file, FlockOperation::Unlock)?;
    written
}

/// Removes a line without an end, which a power loss left: it may be longer than a note, and of zeros.
fn cut_end(file: &mut File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut kept = length;
    while kept > 0 {
        let start = kept.saturating_sub(PIECE);
        let mut piece = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        Read::by_ref(file).take(kept - start).read_to_end(&mut piece)?;
        if let Some(end) = piece.iter().rposition(|byte| *byte == b'\n') {
            kept = start + end as u64 + 1;
            break;
        }
        kept = start;
    }
    if kept < length {
        tracing::debug!(cut = length - kept, "removes the beginning of a note");
        file.set_len(kept)?;
    }
    Ok(())
}

fn read(packs: &Folder, name: &OsStr) -> io::Result<String> {
    let mut bytes = Vec::new();
    packs.open_file(name, OFlags::RDONLY)?.take(LIMIT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn session_of(name: &OsStr) -> Option<&str> {
    name.to_str()?.strip_prefix(PREFIX).filter(|session| is_session(session))
}

fn is_session(session: &str) -> bool {
    !session.is_empty() && session.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn file_name(session: &str) -> Result<OsString, Error> {
    if !is_session(session) {
        return Err(Error::NoSnapshot(session.to_owned()));
    }
    Ok(OsString::from(format!("{PREFIX}{session}")))
}

/// Returns the path of the notes of a session.
pub(crate) fn path(packs: &Folder, session: &str) -> PathBuf {
    packs.join(format!("{PREFIX}{session}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_a_power_loss_cut_counts_for_nothing_and_the_next_one_is_whole() {
        let temporary = tempfile::tempdir().unwrap();
        let packs = Folder::open_or_create(&temporary.path().join("pack")).unwrap();
        let name = file_name("s").unwrap();
        let pin = |time, digit: &str| Pin {
            time: Duration::from_micros(time),
            session: "s".to_owned(),
            tree: digit.repeat(40),
            rules: Some("f".repeat(40)),
        };
        let (first, second) = (pin(1, "a"), pin(2, "b"));
        append(&packs, &name, &first.line()).unwrap();
        let zeros = "\0".repeat(10_000);
        for cut in [&second.line()[..second.line().len() - 1], &second.line()[..10], "\0\0\0", &zeros] {
            std::fs::OpenOptions::new()
                .append(true)
                .open(packs.join(&name))
                .unwrap()
                .write_all(cut.as_bytes())
                .unwrap();
            let notes = Notes::read(&packs).unwrap();
            assert_eq!((notes.pins, notes.damaged, notes.unreadable), (vec![first.clone()], vec![], vec![]));
            append(&packs, &name, &second.line()).unwrap();
            assert_eq!(Notes::read(&packs).unwrap().pins, [second.clone(), first.clone()]);
            replace(&packs, "s", &[&first]).unwrap();
        }
        std::fs::write(packs.join(&name), format!("{}no note\n{}", first.line(), second.line())).unwrap();
        let notes = Notes::read(&packs).unwrap();
        assert_eq!((notes.pins, notes.damaged), (vec![second, first], vec![packs.join(&name)]));
    }
}
