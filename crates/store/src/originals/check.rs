//! Checks of originals: a look that changes nothing, and what can be repaired.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use azureal_core::{Seq, SessionId, Uuid};
use azureal_files::Folder;

use super::name::{NewName, PackedName};
use super::owner::turn_in;
use super::pack::Unpacker;
use super::{DELETED, EXPIRED, NEW, found, new_files, open_in};
use crate::sqlite::health::{CheckedSession, Progress, step};

/// The most bytes of an original that are read: far more than an output can have.
const MOST_READ: u64 = 8 << 30;
/// The ending of a file that is set aside.
const SET_ASIDE: &str = ".damaged";

/// Something that is wrong with the originals of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OriginalProblem {
    /// A file cannot be read to its end.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A folder is named after a session that is not in the store.
    OtherSession {
        /// The folder.
        path: PathBuf,
    },
    /// An original is of events that its session does not have.
    OtherEvents {
        /// The file.
        path: PathBuf,
        /// The session.
        session: SessionId,
    },
    /// The header of an original names another turn than the name of the file, or another session than that of its folder.
    OtherTurn {
        /// The file.
        path: PathBuf,
    },
    /// A file or folder is none of ours.
    Foreign {
        /// The file or folder.
        path: PathBuf,
    },
    /// The turns before and after this one have an original, and this one has none.
    Missing {
        /// The session.
        session: SessionId,
        /// The last event of the turn.
        seq: Seq,
    },
}

impl OriginalProblem {
    /// Returns what a repair does about it; `None` if nothing.
    pub fn repair(&self) -> Option<&'static str> {
        match self {
            Self::Unreadable { .. } | Self::OtherTurn { .. } => {
                Some("renames the file, so that it is no original any more")
            }
            Self::OtherEvents { .. } => Some("renames the file: its place in the session is not known"),
            Self::OtherSession { .. } | Self::Foreign { .. } | Self::Missing { .. } => None,
        }
    }

    /// Returns the file or folder.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Unreadable { path, .. }
            | Self::OtherSession { path }
            | Self::OtherEvents { path, .. }
            | Self::OtherTurn { path }
            | Self::Foreign { path } => Some(path),
            Self::Missing { .. } => None,
        }
    }

    /// Returns the session whose turns decide whether it is a problem.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::OtherEvents { session, .. } => Some(*session),
            _ => None,
        }
    }

    /// Returns whether it is still a problem with [its session](Self::session) as it is now: its events are stored before their original is.
    pub fn is_one_with(&self, now: &CheckedSession) -> bool {
        let name = self.path().and_then(Path::file_name).and_then(PackedName::parse);
        name.is_none_or(|name| is_of_other_events(&name, now))
    }

    /// Repairs it. Nothing is deleted.
    pub fn fix(&self) -> io::Result<()> {
        let Some((folder, name)) = self.path().and_then(|path| path.parent().zip(path.file_name())) else {
            return Ok(());
        };
        let folder = Folder::open(folder)?;
        match self {
            Self::Unreadable { .. } | Self::OtherTurn { .. } => folder.set_aside(name, SET_ASIDE)?,
            Self::OtherEvents { .. } => {
                let Some(original) = PackedName::parse(name) else { return Ok(()) };
                let original = PackedName { first: Seq::START, last: Seq::START, ..original };
                match folder.rename_new(name, original.file().as_ref()) {
                    // The output of the same run, so this one is not needed.
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                        folder.set_aside(name, SET_ASIDE)?;
                    }
                    renamed => renamed?,
                }
            }
            Self::OtherSession { .. } | Self::Foreign { .. } | Self::Missing { .. } => return Ok(()),
        }
        folder.sync()
    }
}

impl fmt::Display for OriginalProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { why, .. } => write!(f, "the output of a turn cannot be read: {why}"),
            Self::OtherSession { .. } => {
                f.write_str("the output of turns of a session that is not in this store")
            }
            Self::OtherEvents { session, .. } => {
                write!(f, "the output of a turn whose events {session} does not have")
            }
            Self::OtherTurn { .. } => f.write_str("the output of another turn"),
            Self::Foreign { .. } => f.write_str("a file that is not azureal's among the output of turns"),
            Self::Missing { session, seq } => write!(
                f,
                "{session}: the output of the turn that ends with event {seq} is missing; that of earlier and later turns is there"
            ),
        }
    }
}

/// Looks at the originals in a folder of a store with these sessions. Changes nothing.
pub fn inspect_originals(
    path: &Path,
    sessions: &[CheckedSession],
    progress: Progress<'_>,
) -> io::Result<Vec<OriginalProblem>> {
    let mut problems = Vec::new();
    let Some(folder) = found(Folder::open(path))? else { return Ok(problems) };
    let mut names = folder.names()?;
    names.sort();
    for (done, name) in names.iter().enumerate() {
        if [NEW, DELETED, EXPIRED].iter().any(|own| *name == **own) {
            continue;
        }
        step(progress, &format!("output of session {} of {}", done + 1, names.len()))?;
        let uuid = name.to_str().and_then(|name| name.parse::<Uuid>().ok());
        let inner = match uuid.map(|_| open_in(&folder, name)) {
            Some(Ok(Some(inner))) => inner,
            Some(Ok(None)) => continue,
            Some(Err(error)) => {
                problems.push(OriginalProblem::Unreadable { path: path.join(name), why: error.to_string() });
                continue;
            }
            None => {
                problems.push(OriginalProblem::Foreign { path: path.join(name) });
                continue;
            }
        };
        let session = sessions.iter().find(|session| session.uuid.is_some() && session.uuid == uuid);
        // Before the others: what is compressed meanwhile is found in its second form.
        let new = uuid.map_or_else(|| Ok(Vec::new()), |uuid| new_ranges(&folder, uuid))?;
        let in_folder = SessionFolder { folder: &inner, path: &path.join(name), session, sessions };
        in_folder.inspect(new, &mut problems)?;
    }
    Ok(problems)
}

/// Returns the events that the originals of a session are of that are not compressed yet.
fn new_ranges(folder: &Folder, uuid: Uuid) -> io::Result<Vec<(u64, u64)>> {
    let Some(new) = open_in(folder, NEW)? else { return Ok(Vec::new()) };
    let names = new_files(&new, uuid)?.into_iter().filter_map(|file| NewName::parse(&file));
    Ok(names.map(|name| (name.packed.first.0, name.packed.last.0)).collect())
}

/// The folder with the originals of a session.
struct SessionFolder<'a> {
    folder: &'a Folder,
    path: &'a Path,
    /// The session; `None` if it is not in the store.
    session: Option<&'a CheckedSession>,
    /// All sessions.
    sessions: &'a [CheckedSession],
}

impl SessionFolder<'_> {
    fn inspect(&self, mut ranges: Vec<(u64, u64)>, problems: &mut Vec<OriginalProblem>) -> io::Result<()> {
        let mut names = self.folder.names()?;
        names.sort();
        for file in names {
            let path = self.path.join(&file);
            let Some(name) = PackedName::parse(&file) else {
                if !is_own(&file) {
                    problems.push(OriginalProblem::Foreign { path });
                }
                continue;
            };
            let header = match read_whole(self.folder, &file) {
                Ok(header) => header,
                // It was deleted meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    problems.push(OriginalProblem::Unreadable { path, why: error.to_string() });
                    continue;
                }
            };
            match self.session {
                _ if self.is_of_other_turn(&name, &header) => {
                    problems.push(OriginalProblem::OtherTurn { path });
                }
                _ if name.first == Seq::START => {}
                Some(session) if is_of_other_events(&name, session) => {
                    problems.push(OriginalProblem::OtherEvents { path, session: session.id });
                }
                _ => ranges.push((name.first.0, name.last.0)),
            }
        }
        let Some(session) = self.session else {
            problems.push(OriginalProblem::OtherSession { path: self.path.to_owned() });
            return Ok(());
        };
        for end in &session.turn_ends {
            let is_covered = ranges.iter().any(|(first, last)| first <= end && end <= last);
            let has_earlier = ranges.iter().any(|(_, last)| last < end);
            let has_later = ranges.iter().any(|(first, _)| first > end);
            if !is_covered && has_earlier && has_later {
                problems.push(OriginalProblem::Missing { session: session.id, seq: Seq(*end) });
            }
        }
        Ok(())
    }

    /// Returns whether a header names another run than the file, or another session that is there.
    ///
    /// Those of a fork name its origin. Those of a session that came from another store have its number there and its own time, and a
    /// session of that number may be here too, even one of the same second.
    fn is_of_other_turn(&self, name: &PackedName, header: &str) -> bool {
        let (Some(own), Some(turn)) = (self.session, turn_in(header)) else { return false };
        let is_named = |session: &CheckedSession| {
            turn.session == Some(session.id.number().into())
                && turn.session_made.as_ref() == Some(&session.created_at)
        };
        turn.run.is_some_and(|run| run != name.run)
            || !own.is_fork
                && turn.session_made.as_ref() != Some(&own.created_at)
                && self.sessions.iter().any(is_named)
    }
}

/// Returns whether an original is of events that a session does not have.
fn is_of_other_events(name: &PackedName, session: &CheckedSession) -> bool {
    name.last.0 > session.last || name.first > name.last
}

/// Returns whether a file was left by azureal: one that is being written, or that was set aside.
fn is_own(file: &OsString) -> bool {
    file.to_str().is_some_and(|name| name.ends_with(".tmp") || name.ends_with(SET_ASIDE))
}

/// Reads an original to its end, so that its checksum is compared, and returns its header.
fn read_whole(folder: &Folder, file: &OsStr) -> io::Result<String> {
    let mut content = Unpacker::new(folder.open_shared_file(file)?)?;
    let header = content.header()?;
    io::copy(&mut content.take(MOST_READ), &mut io::sink())?;
    Ok(header)
}
