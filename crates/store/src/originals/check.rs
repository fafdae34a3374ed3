//! Checks of originals: a look that changes nothing, and what can be repaired.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use azureal_core::{Seq, SessionId, Uuid};
use azureal_files::Folder;

use super::name::PackedName;
use super::pack::Unpacker;
use super::{DELETED, EXPIRED, NEW, found, open_in};
use crate::sqlite::health::CheckedSession;

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
            Self::Unreadable { .. } => Some("renames the file, so that it is no original any more"),
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
            | Self::Foreign { path } => Some(path),
            Self::Missing { .. } => None,
        }
    }

    /// Repairs it. Nothing is deleted.
    pub fn fix(&self) -> io::Result<()> {
        let rename = |path: &Path, to: &OsStr| {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
            let folder = Folder::open(folder)?;
            folder.rename_new(name, to)?;
            folder.sync()
        };
        match self {
            Self::Unreadable { path, .. } => {
                let mut name = path.file_name().unwrap_or_default().to_owned();
                name.push(SET_ASIDE);
                rename(path, &name)
            }
            Self::OtherEvents { path, .. } => {
                let Some(name) = path.file_name().and_then(PackedName::parse) else { return Ok(()) };
                let name = PackedName { first: Seq::START, last: Seq::START, ..name };
                rename(path, name.file().as_ref())
            }
            Self::OtherSession { .. } | Self::Foreign { .. } | Self::Missing { .. } => Ok(()),
        }
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
    progress: &dyn Fn(&str),
) -> io::Result<Vec<OriginalProblem>> {
    let mut problems = Vec::new();
    let Some(folder) = found(Folder::open(path))? else { return Ok(problems) };
    let mut names = folder.names()?;
    names.sort();
    for (done, name) in names.iter().enumerate() {
        if [NEW, DELETED, EXPIRED].iter().any(|own| *name == **own) {
            continue;
        }
        progress(&format!("output of session {} of {}", done + 1, names.len()));
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
        inspect_session(&inner, &path.join(name), session, &mut problems)?;
    }
    Ok(problems)
}

fn inspect_session(
    folder: &Folder,
    path: &Path,
    session: Option<&CheckedSession>,
    problems: &mut Vec<OriginalProblem>,
) -> io::Result<()> {
    let mut ranges = Vec::new();
    let mut names = folder.names()?;
    names.sort();
    for file in names {
        let Some(name) = PackedName::parse(&file) else {
            if !is_own(&file) {
                problems.push(OriginalProblem::Foreign { path: path.join(&file) });
            }
            continue;
        };
        if let Err(error) = read_whole(folder, &file) {
            // It was deleted meanwhile.
            if error.kind() != ErrorKind::NotFound {
                problems.push(OriginalProblem::Unreadable { path: path.join(&file), why: error.to_string() });
            }
            continue;
        }
        if name.first == Seq::START {
            continue;
        }
        match session {
            Some(session) if name.last.0 > session.last || name.first > name.last => {
                let (path, session) = (path.join(&file), session.id);
                problems.push(OriginalProblem::OtherEvents { path, session });
            }
            _ => ranges.push((name.first.0, name.last.0)),
        }
    }
    let Some(session) = session else {
        problems.push(OriginalProblem::OtherSession { path: path.to_owned() });
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

/// Returns whether a file was left by azureal: one that is being written, or that was set aside.
fn is_own(file: &OsString) -> bool {
    file.to_str().is_some_and(|name| name.ends_with(".tmp") || name.ends_with(SET_ASIDE))
}

/// Reads an original to its end, so that its checksum is compared.
fn read_whole(folder: &Folder, file: &OsStr) -> io::Result<()> {
    let mut content = Unpacker::new(folder.open_shared_file(file)?)?;
    content.header()?;
    io::copy(&mut content.take(MOST_READ), &mut io::sink()).map(drop)
}
