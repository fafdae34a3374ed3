//! Consistent copies of a store, while others write to it.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use azureal_core::StoreError;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::super::file::{StoreFile, publish, sync_folder};
use super::super::folders::{COMPANIONS, with_suffix};
use super::super::{connection, error};
use super::{Progress, check_structure, open_file};

/// The number of pages that are copied under one lock: 16 MiB of pages of the usual size.
const STEP: i32 = 4096;
/// A copy begins again when another process writes. After so many times, the rest is copied under one lock.
const MOST_RESTARTS: usize = 3;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// What happens to a file that has the name of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingCopy {
    /// It stays, and the copy is an error.
    Keep,
    /// It is replaced, when the copy is complete.
    Replace,
}

/// Copies the store in a file to another file, which appears when it is complete, private, synced and checked.
///
/// Other processes can write to the store meanwhile. The copy has all changes up to a moment, and none after it.
pub fn back_up(
    store: &Path,
    to: &Path,
    existing: ExistingCopy,
    progress: Progress<'_>,
) -> Result<(), StoreError> {
    let (source, _) = open_file(store)?;
    back_up_open(&source, to, existing, check_copy, progress)
}

/// Copies an open store like [`back_up`].
pub(super) fn back_up_open(
    source: &Connection,
    to: &Path,
    existing: ExistingCopy,
    check: fn(&StoreFile, &Path, Progress<'_>) -> Result<(), StoreError>,
    progress: Progress<'_>,
) -> Result<(), StoreError> {
    let target = StoreFile::new(to.to_owned(), None);
    if existing == ExistingCopy::Keep && target.exists() {
        return Err(exists(to));
    }
    target.remove_leftovers();
    let (temporary, file) = target.create_unfinished().map_err(|error| error::from_io(to, error))?;
    let written = write_copy(&target, source, &temporary, &file, progress);
    let written = written.and_then(|()| check(&target, &temporary, progress));
    let done = written.and_then(|()| {
        let io = |error| error::from_io(to, error);
        match existing {
            ExistingCopy::Keep if !publish(&temporary, to).map_err(io)? => Err(exists(to)),
            ExistingCopy::Keep => Ok(()),
            ExistingCopy::Replace => fs::rename(&temporary, to)
                .and_then(|()| sync_folder(to.parent().unwrap_or(Path::new("."))))
                .map_err(io),
        }
    });
    for suffix in [""].iter().chain(&COMPANIONS) {
        drop(fs::remove_file(with_suffix(&temporary, suffix)));
    }
    done
}

fn exists(path: &Path) -> StoreError {
    let source = io::Error::from(io::ErrorKind::AlreadyExists);
    StoreError::Other { place: path.display().to_string(), source: source.into() }
}

pub(super) fn write_copy(
    target: &StoreFile,
    source: &Connection,
    temporary: &Path,
    file: &fs::File,
    progress: Progress<'_>,
) -> Result<(), StoreError> {
    let io = |error| error::from_io(target.path(), error);
    let sqlite = |error| error::from_sqlite(target.path(), error);
    let mut copy = Connection::open(temporary).map_err(sqlite)?;
    copy.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;").map_err(sqlite)?;
    copy_pages(source, &mut copy, progress).map_err(sqlite)?;
    // A store that others use with a write-ahead log says so in its header.
    copy.execute_batch("PRAGMA journal_mode = DELETE;").map_err(sqlite)?;
    copy.close().map_err(|(_, error)| sqlite(error))?;
    file.sync_all().map_err(io)
}

pub(super) fn check_copy(
    target: &StoreFile,
    temporary: &Path,
    progress: Progress<'_>,
) -> Result<(), StoreError> {
    let copy = connection::open(temporary)?;
    match check_structure(&copy, progress).join("; ") {
        why if !why.is_empty() => {
            Err(StoreError::Corrupt { place: target.path().display().to_string(), why })
        }
        _ => Ok(()),
    }
}

fn failure(code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
}

/// Copies all pages of a database into another one.
pub(super) fn copy_pages(
    from: &Connection,
    to: &mut Connection,
    progress: Progress<'_>,
) -> rusqlite::Result<()> {
    copy_pages_if(from, to, || Ok(true), progress).map(drop)
}

/// Does so if a condition holds once the lock of the target is held, which it is until all pages are copied. Returns whether it held.
pub(super) fn copy_pages_if(
    from: &Connection,
    to: &mut Connection,
    condition: impl FnOnce() -> rusqlite::Result<bool>,
    progress: Progress<'_>,
) -> rusqlite::Result<bool> {
    let backup = Backup::new(from, to)?;
    let busy_until = Instant::now() + connection::LOCK_TIMEOUT;
    // A step without pages takes the locks.
    while let StepResult::Busy | StepResult::Locked = backup.step(0)? {
        if Instant::now() > busy_until {
            return Err(failure(rusqlite::ffi::SQLITE_BUSY));
        }
        std::thread::sleep(BUSY_PAUSE);
    }
    if !condition()? {
        return Ok(false);
    }
    let (mut restarts, mut busy_since, mut left) = (0, None, i32::MAX);
    loop {
        let pages = if restarts < MOST_RESTARTS { STEP } else { -1 };
        match backup.step(pages)? {
            StepResult::Done => return Ok(true),
            StepResult::Busy | StepResult::Locked => {
                let since: &mut Instant = busy_since.get_or_insert_with(Instant::now);
                if since.elapsed() > connection::LOCK_TIMEOUT {
                    return Err(failure(rusqlite::ffi::SQLITE_BUSY));
                }
                std::thread::sleep(BUSY_PAUSE);
                continue;
            }
            StepResult::More => busy_since = None,
            _ => {}
        }
        let now = backup.progress();
        if now.remaining >= left {
            restarts += 1;
        }
        left = now.remaining;
        if progress(&format!("page {} of {}", now.pagecount - now.remaining, now.pagecount)).is_break() {
            return Err(failure(rusqlite::ffi::SQLITE_INTERRUPT));
        }
    }
}
