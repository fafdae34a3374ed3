//! A private copy of a SQLite file of another program.
//!
//! Reading a file in WAL mode in place creates files beside it that stay, and a file whose writer died cannot be read
//! without changing it. Also, a copy holds no lock during a long import.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use azureal_core::StoreError;
use azureal_store::sqlite::rusqlite::backup::{Backup, StepResult};
use azureal_store::sqlite::rusqlite::{self, Connection, ErrorCode, OpenFlags};
use azureal_store::sqlite::{COMPANIONS, check_foreign, open_foreign, open_foreign_unused, with_suffix};

use super::ImportError;
use crate::temporary::TemporaryFolder;

/// The number of pages that are copied under one lock.
const PAGES: i32 = 4096;
/// The longest time to wait for a program that writes the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// The offset of the byte of the header that says that the file is in WAL mode.
const WRITE_VERSION: usize = 18;

/// A private copy of a SQLite file. Dropping it removes it.
#[derive(Debug)]
pub(super) struct DatabaseCopy {
    source: PathBuf,
    copy: PathBuf,
    tables: BTreeSet<String>,
    _folder: TemporaryFolder,
}

impl DatabaseCopy {
    /// Copies a database to a private folder in `temporary`. The file and everything beside it stay as they are.
    pub(super) fn of(source: &Path, temporary: &Path) -> Result<Self, ImportError> {
        Self::copy(source, temporary, BUSY_TIMEOUT)
    }

    fn copy(source: &Path, temporary: &Path, timeout: Duration) -> Result<Self, ImportError> {
        let here = |error| file_error(source, error);
        let folder = TemporaryFolder::create_in(temporary).map_err(|error| file_error(temporary, error))?;
        let copy = folder.path().join("copy");
        // Links are the user's own; the function that opens the file refuses them.
        let real = fs::canonicalize(source).map_err(here)?;
        check_companions(&real)?;
        let (needed, room) = (needed(&real).map_err(here)?, room_in(folder.path()).map_err(here)?);
        if needed > room {
            // A file can claim to be larger than any disk.
            let (path, folder) = (source.to_owned(), temporary.to_owned());
            return Err(ImportError::NoRoom { path, needed, folder, room });
        }
        let is_read_in_place = leaves_no_trace(&real).map_err(here)? && {
            private_file(&copy).map_err(here)?;
            match backup(&real, &copy, timeout) {
                Ok(()) => true,
                // Reading changes nothing, so it does not roll back what a dead writer left. A living writer
                // holds the file, and its unfinished transaction is not for us.
                Err(StoreError::ReadOnly { .. } | StoreError::Unreadable { .. }) => false,
                Err(error) => return Err(in_source(source, error)),
            }
        };
        if !is_read_in_place {
            copy_files(&real, &copy).map_err(here)?;
            recover(&copy).map_err(|error| in_source(source, store_error(source, error)))?;
        }
        let tables = tables(&copy).map_err(|error| in_source(source, error))?;
        Ok(Self { source: source.to_owned(), copy, tables, _folder: folder })
    }

    /// Returns the file that was copied.
    pub(super) fn source(&self) -> &Path {
        &self.source
    }

    /// Returns the copy.
    pub(super) fn path(&self) -> &Path {
        &self.copy
    }

    /// Opens the copy for reading.
    pub(super) fn connect(&self) -> Result<Connection, ImportError> {
        let open = || {
            let connection = open_foreign(&self.copy)?;
            check_foreign(&self.copy, &connection)?;
            Ok(connection)
        };
        open().map_err(|error| self.error(error))
    }

    pub(super) fn has_table(&self, name: &str) -> bool {
        self.tables.contains(name)
    }

    pub(super) fn is_azs(&self) -> bool {
        self.has_table("sessions") && self.has_table("events")
    }

    pub(super) fn is_axio(&self) -> bool {
        self.has_table("axio_context_messages") || self.has_table("messages")
    }

    /// Converts an error about the copy to one about the file.
    pub(super) fn error(&self, error: StoreError) -> ImportError {
        in_source(&self.source, error)
    }

    /// Converts an error of SQLite about the copy to one about the file.
    pub(super) fn sqlite_error(&self, error: rusqlite::Error) -> ImportError {
        in_source(&self.source, store_error(&self.source, error))
    }
}

/// Opens a database where it is, for a short look; `None` if only a copy of it can be read.
pub(super) fn look(source: &Path) -> Result<Option<Connection>, ImportError> {
    let here = |error| file_error(source, error);
    let real = fs::canonicalize(source).map_err(here)?;
    check_companions(&real)?;
    let opened = if leaves_no_trace(&real).map_err(here)? {
        open_foreign(&real)
    } else if with_suffix(&real, "-wal").exists() {
        return Ok(None);
    } else {
        open_foreign_unused(&real)
    };
    let checked = opened.and_then(|connection| check_foreign(&real, &connection).map(|()| connection));
    Ok(checked.ok())
}

fn file_error(path: &Path, source: io::Error) -> ImportError {
    ImportError::File { path: path.to_owned(), source }
}

fn store_error(path: &Path, error: rusqlite::Error) -> StoreError {
    let place = path.display().to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            StoreError::Corrupt { place, why: error.to_string() }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Busy { place, seconds: BUSY_TIMEOUT.as_secs() }
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen) => StoreError::ReadOnly { place },
        _ => StoreError::Other { place, source: Box::new(error) },
    }
}

/// Replaces the path of the copy in an error by the path of the file.
fn in_source(path: &Path, mut error: StoreError) -> ImportError {
    let name = path.display().to_string();
    match &mut error {
        StoreError::Newer { place, .. }
        | StoreError::NotAStore { place, .. }
        | StoreError::Unsafe { place, .. }
        | StoreError::UnknownDefinition { place, .. }
        | StoreError::Busy { place, .. }
        | StoreError::Full { place }
        | StoreError::ReadOnly { place }
        | StoreError::Unreadable { place }
        | StoreError::Corrupt { place, .. }
        | StoreError::Other { place, .. } => *place = name,
        _ => {}
    }
    error.into()
}

/// Says whether reading the file in place creates no file beside it.
fn leaves_no_trace(path: &Path) -> io::Result<bool> {
    let mut header = Vec::new();
    File::open(path)?.take(100).read_to_end(&mut header)?;
    let is_wal = header.get(WRITE_VERSION) == Some(&2);
    // The index of the log exists while a program uses the file, and would stay if we created it.
    Ok(!is_wal || with_suffix(path, "-shm").exists())
}

/// Returns an error if SQLite would open a path beside the file that is no plain file: reading a pipe would block.
fn check_companions(path: &Path) -> Result<(), ImportError> {
    for suffix in COMPANIONS {
        let companion = with_suffix(path, suffix);
        if fs::symlink_metadata(&companion).is_ok_and(|found| !found.is_file()) {
            return Err(ImportError::UnsafeCompanion { path: companion });
        }
    }
    Ok(())
}

/// Returns the size of a copy of the database in bytes, at most.
fn needed(path: &Path) -> io::Result<u64> {
    let of_companions =
        COMPANIONS.iter().filter_map(|suffix| fs::symlink_metadata(with_suffix(path, suffix)).ok());
    Ok(fs::metadata(path)?.len() + of_companions.map(|found| found.len()).sum::<u64>())
}

/// Returns the free bytes of the file system of a folder.
fn room_in(folder: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(folder)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

fn backup(from: &Path, to: &Path, timeout: Duration) -> Result<(), StoreError> {
    let source = open_foreign(from)?;
    let run = || -> rusqlite::Result<StepResult> {
        source.busy_timeout(timeout)?;
        let mut target = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let backup = Backup::new(&source, &mut target)?;
        loop {
            match backup.step(PAGES)? {
                StepResult::More => {}
                // Each step has waited for the lock.
                end => return Ok(end),
            }
        }
    };
    match run() {
        Ok(StepResult::Done) => Ok(()),
        Ok(_) => Err(StoreError::Busy { place: from.display().to_string(), seconds: timeout.as_secs() }),
        Err(error) => Err(store_error(from, error)),
    }
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    for suffix in ["", "-wal", "-journal"] {
        let mut source = match File::open(with_suffix(from, suffix)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !suffix.is_empty() => continue,
            source => source?,
        };
        io::copy(&mut source, &mut private_file(&with_suffix(to, suffix))?)?;
    }
    Ok(())
}

fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Lets SQLite recover a copy of a file whose writer died.
fn recover(copy: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open_with_flags(copy, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // Any read does it, and reading the version executes nothing of the file.
    connection.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0))?;
    // From now on it is one file.
    connection.pragma_update(None, "journal_mode", "delete")?;
    Ok(())
}

fn tables(copy: &Path) -> Result<BTreeSet<String>, StoreError> {
    let connection = open_foreign(copy)?;
    let read = || -> rusqlite::Result<BTreeSet<String>> {
        let mut statement = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
        let names = statement.query_map([], |row| row.get(0))?;
        names.collect()
    };
    read().map_err(|error| store_error(copy, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_fit_is_not_copied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        fs::write(&path, "SQLite format 3\0").unwrap();
        // As many bytes as a file may have.
        OpenOptions::new().write(true).open(&path).unwrap().set_len(8 << 40).unwrap();
        let error = DatabaseCopy::of(&path, folder.path()).unwrap_err();
        assert!(matches!(error, ImportError::NoRoom { .. }), "{error}");
        assert!(error.to_string().contains("takes 8388608 MiB, and"), "{error}");
    }

    #[test]
    fn a_file_that_is_being_written_is_busy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch("CREATE TABLE messages (x); PRAGMA cache_size = 2; BEGIN;").unwrap();
        for _ in 0..50 {
            writer.execute("INSERT INTO messages VALUES (zeroblob(2000))", []).unwrap();
        }
        // More than fits into memory: the writer holds the file and its journal.
        assert!(with_suffix(&path, "-journal").exists());
        let copy = || DatabaseCopy::copy(&path, folder.path(), Duration::from_millis(20));
        let error = copy().unwrap_err();
        assert!(matches!(error, ImportError::Store(StoreError::Busy { .. })), "{error}");
        writer.execute_batch("COMMIT").unwrap();
        assert!(copy().unwrap().is_axio());
    }
}
