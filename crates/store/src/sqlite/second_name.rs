//! The second name of a store's file: a hard link in the git directory of its project.
//!
//! `git clean -fdx` deletes the folder `.azureal` with the store in it. The second name keeps the file, and the next use puts
//! the first name back. Git deletes a journal too, which leaves a half-written file if its writer was killed. So the file is
//! checked before it has its first name again.
//!
//! SQLite finds a journal by the name of the file, so two processes that open one file by two names do not see each other's
//! journals. The database is therefore never opened by its second name. The check uses a temporary name beside the first one,
//! at a time when the file has no first name.
//!
//! Changes of the names are made under a lock on the folder in the git directory.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use azureal_core::StoreError;
use azureal_files::Folder;
use rusqlite::Connection;
use tracing::{debug, info, warn};

use super::connection;
use super::file::{Identity, StoreFile};
use super::folders::{COMPANIONS, with_suffix};
use super::notice::FileNotice;

const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The most names that are tried for a file that is set aside.
const MOST_NAMES: usize = 1_000;
/// The companions of a database that hold changes which are not in it yet.
const CHANGES: [&str; 2] = ["-journal", "-wal"];

/// The second name of a store's file, which may not have it yet.
#[derive(Debug, Clone)]
pub(super) struct SecondName {
    /// Azureal's folder in the git directory.
    folder: PathBuf,
    path: PathBuf,
}

impl SecondName {
    pub(super) fn new(path: PathBuf) -> Option<Self> {
        Some(Self { folder: path.parent()?.to_owned(), path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn look(&self) -> Option<Metadata> {
        fs::symlink_metadata(&self.path).ok()
    }

    /// Returns whether something has the second name.
    pub(super) fn exists(&self) -> bool {
        self.look().is_some()
    }

    /// Returns whether it leads to this file.
    pub(super) fn is_of(&self, identity: Identity) -> bool {
        self.look().is_some_and(|found| Identity::of(&found) == identity)
    }

    /// Returns an error of the folder, with its path.
    fn in_folder(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{} {error}", self.folder.display()))
    }

    /// Gives the file its second name, if it does not have it. Another file of that name gets a new name, and is never
    /// removed.
    ///
    /// # Errors
    ///
    /// The file cannot have a second name: it is on another file system, in a git directory of another user, or one that
    /// cannot be written.
    pub(super) fn renew(&self, file: &Path, identity: Identity) -> io::Result<Option<FileNotice>> {
        if self.is_of(identity) {
            return Ok(None);
        }
        // With `sudo`: a folder of root in the user's git directory would lock the user out.
        let git = self.folder.parent().unwrap_or(Path::new("/"));
        let owners = [fs::metadata(git)?.uid(), fs::symlink_metadata(file)?.uid()];
        if owners.iter().any(|owner| *owner != rustix::process::geteuid().as_raw()) {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "the project belongs to another user"));
        }
        let folder = Folder::open_or_create(&self.folder).map_err(|error| self.in_folder(&error))?;
        let _lock = folder.lock(connection::LOCK_TIMEOUT)?;
        let mut notice = None;
        if let Some(found) = self.look() {
            if Identity::of(&found) == identity {
                return Ok(None);
            }
            let kept = set_aside(&folder, &self.path, "sessions")?;
            warn!(?kept, "another file had the second name of the store");
            notice = Some(FileNotice::OtherFile { file: file.to_owned(), kept });
        }
        // By its path: if the file was replaced meanwhile, the next process finds two files and keeps both.
        fs::hard_link(file, &self.path)?;
        folder.sync()?;
        debug!(path = ?self.path, "gave the store its second name");
        Ok(notice)
    }

    /// Puts the first name back, if the file that has the second name is sound. Otherwise sets that file aside.
    /// `is_log_saved` says that the file has all that was in its write-ahead log.
    pub(super) fn put_back(
        &self,
        store: &StoreFile,
        is_log_saved: bool,
    ) -> Result<Option<FileNotice>, StoreError> {
        let not_done = |error: io::Error| StoreError::Other {
            place: store.path().display().to_string(),
            source: format!("it is missing, and cannot be put back from {}: {error}", self.path.display())
                .into(),
        };
        let folder = Folder::open(&self.folder).map_err(|error| not_done(self.in_folder(&error)))?;
        let _lock = folder.lock(connection::LOCK_TIMEOUT).map_err(not_done)?;
        if fs::symlink_metadata(store.path()).is_ok() {
            // Another process was faster.
            return Ok(None);
        }
        store.make_folder().map_err(|error| not_done(io::Error::other(error.to_string())))?;
        store.remove_leftovers();
        if let Some(found) = self.look() {
            store.remove_temporary_names(Identity::of(&found));
        }
        store.check_companions()?;
        let Some(found) = self.look() else { return Ok(None) };
        check_owner(&found).map_err(not_done)?;
        if found.nlink() > 1 {
            return Err(store.linked(&self.path, &found));
        }
        let temporary = store.unfinished(&found);
        fs::hard_link(&self.path, &temporary).map_err(not_done)?;
        let put_back = self.check_and_publish(store, &folder, &temporary, is_log_saved);
        // What is left of it, which is nothing if it has become the first name.
        for suffix in [""].iter().chain(&COMPANIONS) {
            drop(fs::remove_file(with_suffix(&temporary, suffix)));
        }
        put_back
    }

    fn check_and_publish(
        &self,
        store: &StoreFile,
        folder: &Folder,
        temporary: &Path,
        is_log_saved: bool,
    ) -> Result<Option<FileNotice>, StoreError> {
        let not_done = |error| super::error::from_io(store.path(), error);
        for suffix in CHANGES {
            // Git may have been stopped in between. The changes in such a file belong to the store.
            match fs::hard_link(with_suffix(store.path(), suffix), with_suffix(temporary, suffix)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(not_done(error)),
                Ok(()) | Err(_) => {}
            }
        }
        let has_log = fs::symlink_metadata(with_suffix(temporary, "-wal")).is_ok();
        let checked = check(temporary)?;
        match checked {
            Soundness::Sound { uses_log } => {
                if !super::file::publish(temporary, store.path()).map_err(not_done)? {
                    return Ok(None);
                }
                info!("put the first name of the store back");
                Ok(Some(FileNotice::PutBack {
                    file: store.path().to_owned(),
                    lacks_log: uses_log && !has_log && !is_log_saved,
                }))
            }
            Soundness::Damaged(why) => {
                let kept = set_aside(folder, &self.path, "sessions-damaged").map_err(not_done)?;
                folder.sync().map_err(not_done)?;
                warn!(?kept, "the file of the store is damaged, and was set aside");
                Ok(Some(FileNotice::Damaged { file: store.path().to_owned(), kept, why }))
            }
        }
    }
}

/// Refuses a file that this user has not created.
fn check_owner(found: &Metadata) -> io::Result<()> {
    let is_ours = found.uid() == rustix::process::geteuid().as_raw();
    let why = match found.is_file() {
        true if is_ours => return Ok(()),
        true => "it belongs to another user",
        false => "it is no plain file",
    };
    Err(io::Error::new(ErrorKind::PermissionDenied, why))
}

/// Renames a file in the folder so that its name says when that was. Nothing is replaced.
fn set_aside(folder: &Folder, path: &Path, prefix: &str) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default();
    let time = super::notice::now_in_names();
    for number in 1..=MOST_NAMES {
        let end = if number == 1 { String::new() } else { format!("-{number}") };
        let kept: OsString = format!("{prefix}-{time}{end}.azs").into();
        match folder.rename_new(name, &kept) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            renamed => return renamed.map(|()| folder.join(kept)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Soundness {
    /// Its structure is sound. `uses_log` says that it was left in WAL mode.
    Sound { uses_log: bool },
    /// The reason why it is not.
    Damaged(String),
}

/// Checks a file that may have lost its journal in the middle of a change.
///
/// SQLite's own check finds pages and indexes that do not match. A change also writes counts to the row of its session, which
/// shows events that are missing as a whole.
pub(super) fn check(path: &Path) -> Result<Soundness, StoreError> {
    let connection = match connection::open(path) {
        Ok(connection) => connection,
        Err(StoreError::Corrupt { why, .. } | StoreError::NotAStore { why, .. }) => {
            return Ok(Soundness::Damaged(why));
        }
        // It is as it was written. The opening by its first name refuses it.
        Err(StoreError::UnknownDefinition { .. }) => return Ok(Soundness::Sound { uses_log: false }),
        Err(error) => return Err(error),
    };
    let checked = check_content(&connection);
    // A journal that could not be removed is removed with the temporary name.
    drop(connection::close(connection));
    match checked {
        Ok(soundness) => Ok(soundness),
        Err(error) => match super::error::from_sqlite(path, error) {
            StoreError::Corrupt { why, .. } | StoreError::NotAStore { why, .. } => {
                Ok(Soundness::Damaged(why))
            }
            error => Err(error),
        },
    }
}

/// Sessions whose counts say that they have other events than there are.
const MISCOUNTED: &str = "
SELECT id FROM sessions
WHERE typeof(counted_seq) = 'integer' AND typeof(event_count) = 'integer'
  AND event_count <> (SELECT count(*) FROM events WHERE session_id = sessions.id AND seq <= counted_seq)
LIMIT 1";

/// Checks the content of an open file.
pub(super) fn check_content(connection: &Connection) -> rusqlite::Result<Soundness> {
    let damaged = |why: String| Ok(Soundness::Damaged(why));
    // A process that has the file open may be in the middle of a change whose journal is deleted: it ends first. Its next one
    // has a journal beside the first name.
    if !connection.is_readonly("main")? {
        connection.execute_batch("BEGIN IMMEDIATE")?;
    }
    let journal: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return damaged(found);
    }
    if connection.prepare("PRAGMA foreign_key_check")?.exists([])? {
        return damaged("it has events without their session".to_owned());
    }
    // A file of the original program has no counts.
    if let Ok(mut miscounted) = connection.prepare(MISCOUNTED)
        && let Some(row) = miscounted.query([])?.next()?
    {
        let session: i64 = row.get(0)?;
        return damaged(format!("session S{session} does not have the events that it counts"));
    }
    Ok(Soundness::Sound { uses_log: journal.eq_ignore_ascii_case("wal") })
}

/// Writes the content of an open database, whose file was deleted, to a new file of the first name. `None` if another
/// process was faster.
pub(super) fn rewrite(store: &StoreFile, lost: &Connection) -> Result<Option<FileNotice>, StoreError> {
    let sqlite = |error| super::error::from_sqlite(store.path(), error);
    let io = |error| super::error::from_io(store.path(), error);
    store.make_folder()?;
    store.remove_leftovers();
    let (temporary, file) = store.create_unfinished().map_err(io)?;
    let write = || {
        let mut copy = Connection::open(&temporary).map_err(sqlite)?;
        copy.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;").map_err(sqlite)?;
        let backup = rusqlite::backup::Backup::new(lost, &mut copy).map_err(sqlite)?;
        backup.run_to_completion(i32::MAX, POLL_INTERVAL, None).map_err(sqlite)?;
        drop(backup);
        copy.close().map_err(|(_, error)| sqlite(error))?;
        file.sync_all().map_err(io)?;
        match check(&temporary)? {
            Soundness::Sound { .. } => super::file::publish(&temporary, store.path()).map_err(io),
            Soundness::Damaged(why) => {
                Err(StoreError::Corrupt { place: store.path().display().to_string(), why })
            }
        }
    };
    let copied = write();
    for suffix in [""].iter().chain(&COMPANIONS) {
        drop(fs::remove_file(with_suffix(&temporary, suffix)));
    }
    Ok(copied?.then(|| FileNotice::Rewritten { file: store.path().to_owned() }))
}
