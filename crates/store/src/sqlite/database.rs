//! The file of a store on its thread: opened when it is needed, checked before every use, and put back if it was deleted.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use azureal_core::{NewHistory, NewSession, SessionId, StoreError, Watch};
use rusqlite::{Connection, Row};

use super::codec::Codec;
use super::error::{self, Fault};
use super::file::{Found, Identity, StoreFile};
use super::notice::{FileNotice, FileNotices};
use super::schema::{self, SessionColumns};
use super::second_name::SecondName;
use super::{SqliteOptions, StoreFolders, connection, events, second_name, sessions};

/// Turns an error of a write into one of a read, if the caller only wanted to read.
pub(super) fn unreadable(error: StoreError) -> StoreError {
    match error {
        StoreError::ReadOnly { place } => StoreError::Unreadable { place },
        other => other,
    }
}

pub(super) fn removed(place: String) -> StoreError {
    StoreError::NotAStore { place, why: "it was removed while it was being opened".to_owned() }
}

/// The number of attempts to open a file that is deleted meanwhile.
const OPEN_ATTEMPTS: usize = 5;

/// The state on the store's thread.
pub(super) struct Database {
    file: StoreFile,
    options: SqliteOptions,
    codec: Codec,
    open: Option<Open>,
    is_closed: bool,
    notices: FileNotices,
}

/// A file that is open.
pub(super) struct Open {
    pub(super) connection: Connection,
    pub(super) columns: SessionColumns,
    identity: Identity,
    /// Whether it has its second name, or cannot have one.
    is_named: bool,
}

impl Open {
    /// Upgrades an older file before it is changed for the first time. Reading leaves it as it is.
    pub(super) fn upgrade(&mut self, codec: &mut Codec) -> Result<(), Fault> {
        if !self.columns.are_complete() {
            let path = self.connection.path().map(PathBuf::from).unwrap_or_default();
            self.columns = schema::upgrade(&path, &mut self.connection, codec)?;
        }
        Ok(())
    }
}

impl Database {
    pub(super) fn new(path: PathBuf, options: SqliteOptions) -> Result<Self, StoreError> {
        let codec = Codec::new().map_err(|error| error::from_io(&path, error))?;
        let second_name = StoreFolders::of(&path, options.in_git.as_deref()).second_name;
        let file = StoreFile::new(path, second_name);
        Ok(Self { file, options, codec, open: None, is_closed: false, notices: FileNotices::default() })
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(super) fn notices(&self) -> FileNotices {
        self.notices.clone()
    }

    /// Opens the file if it is there and not open yet; returns whether it is open.
    pub(super) fn opened(&mut self) -> Result<bool, StoreError> {
        if self.is_closed {
            return Err(StoreError::Closed);
        }
        if let Some(open) = &self.open
            && self.file.is_still(open.identity)
        {
            return Ok(true);
        }
        // It was removed or replaced. What is written from now on must not go into the void.
        let mut lost = self.open.take();
        let mut attempts = 1..OPEN_ATTEMPTS;
        loop {
            match self.open_file(&mut lost) {
                Ok(open) => {
                    self.note_replaced(lost.as_ref(), open.as_ref());
                    self.open = open;
                    // The second name is no copy of this store then.
                    if self.file.second_name().is_some_and(SecondName::exists) {
                        self.name_twice();
                    }
                    return Ok(self.open.is_some());
                }
                Err(error) if matches!(error, StoreError::Busy { .. }) || self.file.exists() => {
                    return Err(error);
                }
                // It was deleted meanwhile, or again: it must not pass for a store that was never there.
                Err(_) if attempts.next().is_some() => {}
                Err(error) => {
                    // For the next call, which has nothing else to put the file back from.
                    self.open = lost;
                    return Err(error);
                }
            }
        }
    }

    /// Opens the file; `None` if there is none. `lost` is the connection to a file that is deleted.
    fn open_file(&self, lost: &mut Option<Open>) -> Result<Option<Open>, StoreError> {
        let found = match self.file.look().map_err(unreadable)? {
            Some(found) => Some(found),
            None => self.put_back(lost)?,
        };
        let Some(Found { path, identity, has_second_name }) = found else { return Ok(None) };
        let open = || {
            let connection = connection::open(&path)?;
            let columns = schema::prepare(&path, &connection)?;
            Ok((connection, columns))
        };
        let (connection, columns) = open().map_err(unreadable)?;
        // It is ours, and of a version that we may write.
        self.file.make_private();
        connection::use_journal(&path, &connection, self.options.journal)?;
        let is_named = has_second_name || self.file.second_name().is_none();
        Ok(Some(Open { connection, columns, identity, is_named }))
    }

    /// Puts a deleted file back: by its second name, or else from the connection that has it open. `None` if there was none, or
    /// if it was damaged.
    fn put_back(&self, lost: &mut Option<Open>) -> Result<Option<Found>, StoreError> {
        let second = self.file.second_name().filter(|second| second.exists());
        let notice = match (second, &*lost) {
            (Some(second), _) => {
                let of_second = lost.take_if(|open| second.is_of(open.identity));
                let is_log_saved = of_second.is_some_and(|open| connection::save_log(&open.connection));
                second.put_back(&self.file, is_log_saved)?
            }
            (None, Some(lost)) => second_name::rewrite(&self.file, &lost.connection)?,
            (None, None) => return Ok(None),
        };
        let is_set_aside = matches!(notice, Some(FileNotice::Damaged { .. }));
        notice.into_iter().for_each(|notice| self.notices.add(notice));
        match self.file.look().map_err(unreadable)? {
            None if !is_set_aside => Err(removed(self.path().display().to_string())),
            found => Ok(found),
        }
    }

    /// Notes that sessions are gone with a file that was open and is replaced. The second name may have that file, which gets a
    /// name of its own then.
    fn note_replaced(&self, lost: Option<&Open>, open: Option<&Open>) {
        let (Some(lost), Some(open)) = (lost, open) else { return };
        if self.file.second_name().is_some_and(|second| second.is_of(lost.identity)) {
            return;
        }
        match count_missing(&lost.connection, &open.connection) {
            Ok(0) => {}
            counted => {
                let sessions = counted.ok();
                self.notices.add(FileNotice::Replaced { file: self.path().to_owned(), sessions });
            }
        }
    }

    /// Gives the open file its second name, once for each opened file.
    fn name_twice(&mut self) {
        let Some(open) = self.open.as_mut().filter(|open| !open.is_named) else { return };
        open.is_named = true;
        let Some(second) = self.file.second_name() else { return };
        match second.renew(self.file.path(), open.identity) {
            Ok(notice) => notice.into_iter().for_each(|notice| self.notices.add(notice)),
            // The next use would put back another store.
            Err(error) if second.exists() && !second.is_of(open.identity) => {
                let (file, other) = (self.file.path().to_owned(), second.path().to_owned());
                self.notices.add(FileNotice::NotNamed { file, other, why: error.to_string() });
            }
            // `azureal config` says so. A turn is stored all the same.
            Err(error) => {
                tracing::info!(error = ?error.to_string(), "the store has no second name");
            }
        }
    }

    /// Runs a job that only reads.
    pub(super) fn run<R>(
        &mut self,
        job: impl FnMut(&mut Open, &mut Codec) -> Result<R, Fault>,
        absent: impl FnOnce() -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.opened()?;
        self.run_opened(job, absent)
    }

    /// Runs a job that changes the file, which is of the newest version and has its second name then.
    pub(super) fn change<R>(
        &mut self,
        mut job: impl FnMut(&mut Open, &mut Codec) -> Result<R, Fault>,
        absent: impl FnOnce() -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.opened()?;
        self.name_twice();
        let job = move |open: &mut Open, codec: &mut Codec| {
            open.upgrade(codec)?;
            job(open, codec)
        };
        self.run_opened(job, absent)
    }

    /// Runs a job on the file if it is open. A job that fails because the file was deleted meanwhile is retried once, with the
    /// file put back: SQLite writes nothing then.
    fn run_opened<R>(
        &mut self,
        mut job: impl FnMut(&mut Open, &mut Codec) -> Result<R, Fault>,
        absent: impl FnOnce() -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let Some(open) = &mut self.open else { return absent() };
        let mut done = job(open, &mut self.codec);
        if matches!(done, Err(Fault::Sqlite(_))) && !self.file.is_still(open.identity) {
            self.opened()?;
            let Some(open) = &mut self.open else { return absent() };
            done = job(open, &mut self.codec);
        }
        if connection::take_journal_loss() && done.is_ok() {
            // The change is in the file, whose names may be gone.
            self.opened()?;
        }
        done.map_err(|fault| fault.at(self.file.path()))
    }

    /// Watches the file, if there is one.
    #[cfg(target_os = "linux")]
    pub(super) fn watch(&mut self, is_closed: Arc<AtomicBool>) -> Result<Option<Box<dyn Watch>>, StoreError> {
        if !self.opened()? {
            return Ok(None);
        }
        let path = self.file.real_path()?;
        let spools = self.options.spools.clone();
        let spools = spools.unwrap_or_else(|| StoreFolders::of(&path, self.options.in_git.as_deref()).spools);
        let watch = super::watch::FileWatch::start(&path, spools, is_closed);
        if watch.is_none() {
            tracing::info!("the system has no watch left: callers poll the store");
        }
        Ok(watch.map(|watch| Box::new(watch) as Box<dyn Watch>))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn watch(&mut self, _: Arc<AtomicBool>) -> Result<Option<Box<dyn Watch>>, StoreError> {
        self.opened().map(|_| None)
    }

    /// Creates sessions with their histories, and the file if there is none.
    pub(super) fn create_histories(
        &mut self,
        histories: &[NewHistory],
    ) -> Result<Vec<SessionId>, StoreError> {
        if !self.opened()? {
            let path = self.path().to_owned();
            let codec = &mut self.codec;
            let created = self.file.create(|connection| {
                events::create_all(connection, codec, histories).map_err(|fault| fault.at(&path))
            })?;
            if let Some(created) = created {
                self.open_new();
                return Ok(created);
            }
        }
        let place = self.path().display().to_string();
        self.change(
            |open, codec| events::create_all(&mut open.connection, codec, histories),
            || Err(removed(place)),
        )
    }

    /// Creates the file with this session in it; `None` if the file exists.
    pub(super) fn create_with(&mut self, new: &NewSession) -> Result<Option<SessionId>, StoreError> {
        if self.opened()? {
            return Ok(None);
        }
        let path = self.path().to_owned();
        let created = self
            .file
            .create(|connection| sessions::insert(connection, new).map_err(|fault| fault.at(&path)))?;
        if created.is_some() {
            self.open_new();
        }
        Ok(created)
    }

    /// Opens a new file and gives it its second name: from now on it can be put back. Whatever is wrong is found by the next
    /// use.
    fn open_new(&mut self) {
        if self.opened().is_ok() {
            self.name_twice();
        }
    }

    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        if std::mem::replace(&mut self.is_closed, true) {
            return Err(StoreError::Closed);
        }
        match self.open.take() {
            Some(open) => connection::close(open.connection)
                .map_err(|error| error::from_sqlite(self.file.path(), error)),
            None => Ok(()),
        }
    }
}

/// Returns the number of sessions of a file that are not in another one with all their events.
fn count_missing(lost: &Connection, open: &Connection) -> rusqlite::Result<usize> {
    let sessions = |connection: &Connection| {
        // A file of the original program has no UUIDs.
        let of = |identity: &str| {
            let newest = "(SELECT max(seq) FROM events WHERE session_id = sessions.id)";
            connection.prepare(&format!("SELECT id, {identity}, {newest} FROM sessions"))
        };
        let mut rows = of("uuid").or_else(|_| of("created"))?;
        let row = |row: &Row<'_>| Ok(((row.get(0)?, row.get(1)?), row.get(2)?));
        rows.query_map([], row)?.collect::<rusqlite::Result<HashMap<(i64, Option<String>), Option<i64>>>>()
    };
    let now = sessions(open)?;
    let is_missing = |(session, newest): &(_, Option<i64>)| now.get(session).is_none_or(|now| now < newest);
    Ok(sessions(lost)?.into_iter().filter(is_missing).count())
}

impl Drop for Database {
    fn drop(&mut self) {
        // For the error, call `close`. No data is lost: committed turns are in the file or its log.
        drop(self.close());
    }
}
