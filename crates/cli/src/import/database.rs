//! Somebody else's SQLite file.
//!
//! It is copied to a private folder and read there. Read in place, a file in WAL mode gets companions that
//! stay, and one whose writer died cannot be read at all without changing it. A copy holds no lock either
//! while the import takes its time.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use azureal_core::StoreError;
use azureal_store::sqlite::rusqlite::backup::{Backup, StepResult};
use azureal_store::sqlite::rusqlite::{self, Connection, ErrorCode, OpenFlags};
use azureal_store::sqlite::{check_foreign, open_foreign};

use crate::environment::environment;
use crate::failure::{Failure, quoted};
use azureal::TemporaryFolder;
use azureal::error::shown;

/// How many pages are copied under one lock.
const PAGES: i32 = 4096;
/// How long we wait for a program that writes the file, before we say that it is in use.
const PATIENCE: Duration = Duration::from_secs(10);
/// What SQLite puts beside a file.
const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];
/// Where the header of a SQLite file says that it is in WAL mode.
const WRITE_VERSION: usize = 18;

/// A private copy of a SQLite file. It goes when this does.
pub(super) struct Database {
    source: PathBuf,
    copy: PathBuf,
    tables: BTreeSet<String>,
    _folder: TemporaryFolder,
}

impl Database {
    /// Copies a database. The file and everything beside it stay as they are.
    pub(super) fn copy_of(source: &Path) -> Result<Self, Failure> {
        Self::copy_with(source, PATIENCE)
    }

    fn copy_with(source: &Path, patience: Duration) -> Result<Self, Failure> {
        let here = |error| Failure::file(source, &error);
        let folder = TemporaryFolder::create(&environment())?;
        let copy = folder.path().join("copy");
        // Links are the user's own; what opens the file refuses them.
        let real = fs::canonicalize(source).map_err(here)?;
        check_companions(&real)?;
        check_room(source, needed(&real).map_err(here)?, room_in(folder.path()).map_err(here)?)?;
        let is_read_in_place = leaves_no_trace(&real).map_err(here)? && {
            private_file(&copy).map_err(here)?;
            match backup(&real, &copy, patience) {
                Ok(()) => true,
                // Reading changes nothing, so what a dead writer left behind is not rolled back in place. A
                // writer that lives holds the file, and what it is in the middle of is not for us.
                Err(StoreError::ReadOnly { .. } | StoreError::Unreadable { .. }) => false,
                Err(error) => return Err(foreign(source, error)),
            }
        };
        if !is_read_in_place {
            copy_files(&real, &copy).map_err(here)?;
            recover(&copy).map_err(|error| foreign(source, sqlite(source, error)))?;
        }
        let tables = tables(&copy).map_err(|error| foreign(source, error))?;
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
    pub(super) fn connect(&self) -> Result<Connection, Failure> {
        let open = || {
            let connection = open_foreign(&self.copy)?;
            check_foreign(&self.copy, &connection)?;
            Ok(connection)
        };
        open().map_err(|error| self.failure(error))
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

    /// Says of the file what was said of its copy.
    pub(super) fn failure(&self, error: StoreError) -> Failure {
        foreign(&self.source, error)
    }

    /// Says of the file what SQLite said of its copy.
    pub(super) fn sqlite_failure(&self, error: rusqlite::Error) -> Failure {
        foreign(&self.source, sqlite(&self.source, error))
    }
}

fn sqlite(path: &Path, error: rusqlite::Error) -> StoreError {
    let place = path.display().to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            StoreError::Corrupt { place, why: error.to_string() }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Busy { place, seconds: PATIENCE.as_secs() }
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen) => StoreError::ReadOnly { place },
        _ => StoreError::Other { place, source: Box::new(error) },
    }
}

/// Puts the file's own name into an error that names its copy.
fn foreign(path: &Path, mut error: StoreError) -> Failure {
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
    Failure::from(error)
}

/// Says whether reading the file where it lies adds nothing beside it.
fn leaves_no_trace(path: &Path) -> io::Result<bool> {
    let mut header = Vec::new();
    File::open(path)?.take(100).read_to_end(&mut header)?;
    let is_wal = header.get(WRITE_VERSION) == Some(&2);
    // The index of the log is there while somebody uses the file, and would stay if we made it.
    Ok(!is_wal || beside(path, "-shm").exists())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Refuses a file beside which SQLite would open something that is no file: a pipe would be waited for.
fn check_companions(path: &Path) -> Result<(), Failure> {
    for suffix in COMPANIONS {
        let companion = beside(path, suffix);
        if fs::symlink_metadata(&companion).is_ok_and(|found| !found.is_file()) {
            return Err(Failure::refused(
                "unsafe",
                format!("{} is not a plain file", quoted(shown(&companion))),
            )
            .with_hint("remove it; nothing was read"));
        }
    }
    Ok(())
}

/// Returns how many bytes the copy of a database may take.
fn needed(path: &Path) -> io::Result<u64> {
    let of_companions =
        COMPANIONS.iter().filter_map(|suffix| fs::symlink_metadata(beside(path, suffix)).ok());
    Ok(fs::metadata(path)?.len() + of_companions.map(|found| found.len()).sum::<u64>())
}

/// Returns how many bytes fit into the file system of a folder.
fn room_in(folder: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(folder)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Refuses what would fill the disk: a file can say that it is larger than any disk.
fn check_room(source: &Path, needed: u64, room: u64) -> Result<(), Failure> {
    if needed <= room {
        return Ok(());
    }
    let megabytes = |bytes: u64| bytes >> 20;
    let folder = std::env::temp_dir();
    let message = format!(
        "{} takes {} MiB, and {} has room for {} MiB",
        quoted(shown(source)),
        megabytes(needed),
        quoted(shown(&folder)),
        megabytes(room)
    );
    Err(Failure::new("full", message).with_hint("name a folder with more room: `TMPDIR=DIR azureal …`"))
}

fn backup(from: &Path, to: &Path, patience: Duration) -> Result<(), StoreError> {
    let source = open_foreign(from)?;
    let run = || -> rusqlite::Result<StepResult> {
        source.busy_timeout(patience)?;
        let mut target = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let backup = Backup::new(&source, &mut target)?;
        loop {
            match backup.step(PAGES)? {
                StepResult::More => {}
                // Each step has been waited for.
                end => return Ok(end),
            }
        }
    };
    match run() {
        Ok(StepResult::Done) => Ok(()),
        Ok(_) => Err(StoreError::Busy { place: from.display().to_string(), seconds: patience.as_secs() }),
        Err(error) => Err(sqlite(from, error)),
    }
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    for suffix in ["", "-wal", "-journal"] {
        let mut source = match File::open(beside(from, suffix)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !suffix.is_empty() => continue,
            source => source?,
        };
        io::copy(&mut source, &mut private_file(&beside(to, suffix))?)?;
    }
    Ok(())
}

fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Lets SQLite bring a copy into order that its writer left in the middle of something.
fn recover(copy: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open_with_flags(copy, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // Reading anything does it, and reading the version runs nothing of the file.
    connection.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0))?;
    // One file from here on.
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
    read().map_err(|error| sqlite(copy, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_fit_is_not_copied() {
        assert!(check_room(Path::new("a"), 5 << 20, 5 << 20).is_ok());
        let failure = check_room(Path::new("a"), 10 << 30, 5 << 20).unwrap_err();
        assert_eq!(failure.kind(), "full");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        fs::write(&path, "SQLite format 3\0").unwrap();
        // As many bytes as a file may have.
        OpenOptions::new().write(true).open(&path).unwrap().set_len(8 << 40).unwrap();
        let failure = Database::copy_of(&path).err().unwrap();
        assert!(failure.message().contains("takes 8388608 MiB, and"), "{}", failure.message());
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
        // More than fits into memory: it holds the file, and its journal lies there.
        assert!(beside(&path, "-journal").exists());
        let failure = Database::copy_with(&path, Duration::from_millis(20)).err().unwrap();
        assert_eq!(failure.kind(), "busy", "{}", failure.message());
        writer.execute_batch("COMMIT").unwrap();
        assert!(Database::copy_with(&path, Duration::from_millis(20)).unwrap().is_axio());
    }
}
