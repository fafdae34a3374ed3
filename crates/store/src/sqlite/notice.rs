//! Notices of a store's file: for the user, though they are no errors.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Something that happened to the file of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileNotice {
    /// It was deleted, and is back under its first name.
    PutBack {
        /// The file.
        file: PathBuf,
        /// Whether its write-ahead log is gone, and with it the newest changes.
        lacks_log: bool,
    },
    /// It was deleted while it was open, and was written again from there.
    Rewritten {
        /// The file.
        file: PathBuf,
    },
    /// It was deleted in the middle of a change, together with its journal. It was set aside, and a new store begins.
    Damaged {
        /// The first name that the file had.
        file: PathBuf,
        /// Its name now.
        kept: PathBuf,
        /// The damage.
        why: String,
    },
    /// Another file had the second name, and was given a new one.
    OtherFile {
        /// The store.
        file: PathBuf,
        /// The new name of the other file.
        kept: PathBuf,
    },
    /// Another file has the second name, and this one cannot get it.
    NotNamed {
        /// The store.
        file: PathBuf,
        /// The second name.
        other: PathBuf,
        /// The reason.
        why: String,
    },
    /// It was replaced by another file while it was open, and had sessions or turns that the other one does not have.
    Replaced {
        /// The file.
        file: PathBuf,
        /// The number of these sessions, if it is known.
        sessions: Option<usize>,
    },
}

impl fmt::Display for FileNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PutBack { file, lacks_log } => {
                write!(f, "{} was deleted, and is back with all its sessions", file.display())?;
                if *lacks_log {
                    f.write_str(
                        "; its write-ahead log was deleted too, so the newest changes may be missing",
                    )?;
                }
                Ok(())
            }
            Self::Rewritten { file } => {
                write!(f, "{} was deleted while it was open, and was written again", file.display())
            }
            Self::Damaged { file, kept, why } => write!(
                f,
                "{} was deleted in the middle of a change and is damaged ({why}). It is kept as {}; no session of it is in \
                 the new store",
                file.display(),
                kept.display()
            ),
            Self::OtherFile { file, kept } => write!(
                f,
                "the second name of {} led to another file, as after copying a project. That file is kept as {}",
                file.display(),
                kept.display()
            ),
            Self::NotNamed { file, other, why } => write!(
                f,
                "{} is another file than {}, and that cannot be changed: {why}. If the store is deleted, its sessions are not \
                 put back",
                other.display(),
                file.display()
            ),
            Self::Replaced { file, sessions } => {
                let sessions = match sessions {
                    Some(1) => "1 session".to_owned(),
                    Some(count) => format!("{count} sessions"),
                    None => "an unknown number of sessions".to_owned(),
                };
                write!(
                    f,
                    "{} was replaced by another file while it was open: {sessions} of the former file, or their newest turns, \
                     are not in the new one",
                    file.display()
                )
            }
        }
    }
}

/// The notices of a store that nobody has taken yet.
#[derive(Debug, Clone, Default)]
pub struct FileNotices(Arc<Mutex<Vec<FileNotice>>>);

impl FileNotices {
    pub(super) fn add(&self, notice: FileNotice) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(notice);
    }

    /// Returns the notices since the last call.
    pub fn take(&self) -> Vec<FileNotice> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the present time as it stands in the names of files: `20260131T093000Z`.
pub(super) fn now_in_names() -> String {
    // SQLite is the only calendar here. Without it the name is unique all the same.
    let now = |connection: rusqlite::Connection| {
        connection.query_row("SELECT strftime('%Y%m%dT%H%M%SZ', 'now')", [], |row| row.get(0))
    };
    rusqlite::Connection::open_in_memory().and_then(now).unwrap_or_default()
}
