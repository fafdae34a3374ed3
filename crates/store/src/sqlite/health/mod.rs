//! Checks and repairs of a store's file, and copies of it.
//!
//! [`inspect`] finds what is wrong and changes nothing. [`repair`] repairs it, after a copy of the file is made. Nothing is dropped: rows
//! that cannot stay are written to a file beside the store, and a file that SQLite cannot use is kept, while every row of it that
//! can be read moves to a new one.

mod backup;
mod former_uuid;
mod names;
mod pages;
mod problem;
mod repair;
mod restore;
mod rows;
mod salvage;
mod set_aside;

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use azureal_core::{SessionId, StoreError, Uuid};
use rusqlite::{Connection, ErrorCode};

use super::codec::Codec;
use super::error::Fault;
use super::file::{Identity, StoreFile, publish, sync_folder};
use super::folders::{COMPANIONS, PROJECT_STORE, with_suffix};
use super::schema::{self, SessionColumns};
use super::{connection, error, notice};

pub use crate::originals::{OriginalProblem, inspect_originals, original_of};
pub use backup::{ExistingCopy, back_up};
pub use names::{NameState, damage_of_second, name_again, names};
pub use problem::StoreProblem;
pub use restore::{Restoring, deleted_since, forget_restored, restored, restoring};
pub use rows::CheckedSession;

use salvage::Table;
use set_aside::SetAside;

/// Hears of the progress, in words. The work ends with an error if the answer is `Break`.
pub type Progress<'a> = &'a dyn Fn(&str) -> ControlFlow<()>;

/// Tells the progress, and returns an error if the work is to end.
pub fn step(progress: Progress<'_>, what: &str) -> io::Result<()> {
    match progress(what) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(io::ErrorKind::Interrupted.into()),
    }
}

/// The size of the smallest database, in bytes.
const SMALLEST_DATABASE: u64 = 512;
/// The most findings of SQLite's own check that are reported.
const MOST_FINDINGS: usize = 20;

/// The result of a check.
#[derive(Debug, Default)]
pub struct Inspection {
    /// What is wrong.
    pub problems: Vec<StoreProblem>,
    /// The sessions that can be read.
    pub sessions: Vec<CheckedSession>,
    /// The number of events that can be decoded.
    pub readable_events: u64,
}

impl Inspection {
    /// The result for a file that SQLite cannot use.
    fn of_unusable(file: &StoreFile, why: String) -> Result<Self, StoreError> {
        let look = || -> io::Result<StoreProblem> {
            let damaged = File::open(file.path())?;
            if salvage::has_rows(&damaged, |_| true)? {
                return Ok(StoreProblem::Unusable(why));
            }
            Ok(StoreProblem::WithoutRows { why, is_ours: is_ours(file, &damaged)? })
        };
        let problem = look().map_err(|error| error::from_io(file.path(), error))?;
        Ok(Self { problems: vec![problem], ..Self::default() })
    }

    fn is_structure_damaged(&self) -> bool {
        self.problems.iter().any(StoreProblem::is_of_structure)
    }
}

/// A session that has a new UUID, because another one had the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUuid {
    /// The session.
    pub session: SessionId,
    /// The UUID that it had.
    pub former: Uuid,
    /// The one that it has now.
    pub uuid: Uuid,
}

/// The result of a repair.
#[derive(Debug, Default)]
pub struct Repaired {
    /// The copy of the store before the repair.
    pub backup: PathBuf,
    /// The file with the rows that were set aside, and their number.
    pub set_aside: Option<(PathBuf, u64)>,
    /// The problems that were repaired.
    pub problems: Vec<StoreProblem>,
    /// The sessions that have a new UUID.
    pub new_uuids: Vec<NewUuid>,
    /// The number of rows of a damaged file that cannot be read. They are in the copy.
    pub unreadable: u64,
}

/// Checks the file of a store. Changes nothing, apart from what every reader does: SQLite rolls a half-written change back.
///
/// # Errors
///
/// The file is of a newer version, has definitions that are not ours, or cannot be opened for another reason than damage.
pub fn inspect(store: &Path, progress: Progress<'_>) -> Result<Inspection, StoreError> {
    let file = StoreFile::new(store.to_owned(), None);
    file.check_plain()?;
    let path = file.real_path()?;
    if fs::metadata(&path).is_ok_and(|found| found.len() == 0) {
        return Inspection::of_unusable(&file, "it is empty".to_owned());
    }
    let (connection, columns) = match open_file(store) {
        Ok(opened) => opened,
        Err(StoreError::Corrupt { why, .. }) => return Inspection::of_unusable(&file, why),
        Err(StoreError::NotAStore { why, .. }) if !is_other_database(&path) => {
            return Inspection::of_unusable(&file, why);
        }
        Err(error) => return Err(error),
    };
    let mut codec = Codec::new().map_err(|error| error::from_io(store, error))?;
    let mut inspection = Inspection::default();
    let found = check_structure(&connection, progress);
    let is_sound = found.is_empty();
    if !is_sound {
        inspection.problems.push(StoreProblem::Structure(found));
    }
    match rows::check(&connection, &columns, &mut codec, progress) {
        Ok(check) => {
            inspection.problems.extend(check.problems);
            inspection.sessions = check.sessions;
            inspection.readable_events = check.readable;
        }
        // The structure is damaged, so the rows cannot be read to their end.
        Err(Fault::Sqlite(_)) if !is_sound => {}
        Err(fault) => match fault.at(store) {
            StoreError::Corrupt { why, .. } => inspection.problems.push(StoreProblem::Structure(vec![why])),
            error => return Err(error),
        },
    }
    drop(connection::close(connection));
    Ok(inspection)
}

/// Opens the file of a store after the checks that every use makes.
fn open_file(store: &Path) -> Result<(Connection, SessionColumns), StoreError> {
    let file = StoreFile::new(store.to_owned(), None);
    if !file.exists() {
        let (place, why) = (store.display().to_string(), "it is not there".to_owned());
        return Err(StoreError::NotAStore { place, why });
    }
    file.check_companions()?;
    let path = file.real_path()?;
    let connection = connection::open(&path)?;
    let columns = schema::prepare(&path, &connection)?;
    Ok((connection, columns))
}

/// Reads the sessions of a store as they are now, or one of them, without a check of their events.
pub fn sessions_now(store: &Path, only: Option<SessionId>) -> Result<Vec<CheckedSession>, StoreError> {
    let (connection, columns) = open_file(store)?;
    let mut codec = Codec::new().map_err(|error| error::from_io(store, error))?;
    let found = rows::read(&connection, &columns, &mut codec, only).map_err(|fault| fault.at(store))?;
    drop(connection::close(connection));
    Ok(found)
}

/// Returns whether a file is an SQLite database of another program. One that is not sound, and has events of ours, is a store whose
/// first page is that of another file.
fn is_other_database(path: &Path) -> bool {
    let look = |connection: Connection| -> rusqlite::Result<(bool, bool)> {
        let has_others: bool = connection.query_row(
            "SELECT count(*) > 0 AND NOT max(name IN ('sessions', 'events', 'compactions', 'meta'))
             FROM sqlite_schema",
            [],
            |row| row.get(0),
        )?;
        // What follows its last page is not checked.
        let length: i64 = connection.query_row(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
            [],
            |row| row.get(0),
        )?;
        let is_whole = fs::metadata(path).is_ok_and(|found| found.len() <= length.cast_unsigned());
        let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        Ok((has_others, is_whole && found == "ok"))
    };
    let has_events = || {
        let found =
            File::open(path).and_then(|file| salvage::has_rows(&file, |table| table == Table::Events));
        found.unwrap_or(false)
    };
    match connection::open_foreign(path).map(look) {
        Ok(Ok((has_others, is_sound))) => has_others && (is_sound || !has_events()),
        Ok(Err(_)) | Err(_) => false,
    }
}

/// Returns whether a file is a store, though none of its rows can be read.
fn is_ours(file: &StoreFile, damaged: &File) -> io::Result<bool> {
    let is_projects = file.lies_in_our_folder() && file.path().ends_with(PROJECT_STORE);
    Ok(is_projects || damaged.metadata()?.len() == 0 || salvage::has_tables(damaged)?)
}

/// Runs SQLite's own checks: the quick one first, then the one that also compares the indexes. It passes over a damaged page of an empty
/// index, which no query can use then.
fn check_structure(connection: &Connection, progress: Progress<'_>) -> Vec<String> {
    for (check, what) in [("quick_check", "the file"), ("integrity_check", "the indexes")] {
        if progress(what).is_break() {
            return vec!["the check was cancelled".to_owned()];
        }
        let run = || -> rusqlite::Result<Vec<String>> {
            connection
                .prepare(&format!("PRAGMA {check}({MOST_FINDINGS})"))?
                .query_map([], |row| row.get::<_, String>(0))?
                .collect()
        };
        let found = run().unwrap_or_else(|error| vec![error.to_string()]);
        // Some rows have several lines, and a title above them.
        let lines = found.iter().flat_map(|row| row.lines());
        let found: Vec<String> =
            lines.filter(|line| *line != "ok" && !line.starts_with("***")).map(str::to_owned).collect();
        if !found.is_empty() {
            return found;
        }
    }
    let read = |(name, sql): (&str, String)| {
        let error = connection.query_row(&sql, [], |_| Ok(())).err()?;
        let is_damage = error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt);
        is_damage.then(|| format!("the index {name} cannot be read"))
    };
    schema::whole_indexes().filter_map(read).collect()
}

/// Repairs the file of a store, after a copy of it is made beside it. `second_name` is the second name that the file has or may have;
/// `originals` are the folders of its originals, whose names are the UUIDs of sessions.
///
/// No turn may run meanwhile: the caller makes sure of that.
pub fn repair(
    store: &Path,
    second_name: Option<&Path>,
    originals: &[&Path],
    progress: Progress<'_>,
) -> Result<Repaired, StoreError> {
    let inspection = inspect(store, progress)?;
    let time = notice::now_in_names();
    let mut aside = SetAside::new(unused(store, "damaged", &time, ".jsonl"));
    let file = StoreFile::new(store.to_owned(), second_name.map(Path::to_owned));
    let mut repaired = if inspection.is_structure_damaged() {
        match reindex(store, &time, progress) {
            Some(backup) => repair_rows(store, backup, originals, &mut aside, progress)?,
            None => replace(&file, &time, originals, &mut aside, progress)?,
        }
    } else {
        let backup = unused(store, "backup", &time, "");
        back_up(store, &backup, ExistingCopy::Keep, progress)?;
        repair_rows(store, backup, originals, &mut aside, progress)?
    };
    let of_structure: Vec<StoreProblem> =
        inspection.problems.into_iter().filter(StoreProblem::is_of_structure).collect();
    repaired.problems.splice(0..0, of_structure);
    repaired.set_aside = aside.written().map(|(path, rows)| (path.to_owned(), rows));
    Ok(repaired)
}

/// Returns a free name beside the store.
fn unused(store: &Path, what: &str, time: &str, kind: &str) -> PathBuf {
    let name = |number: usize| match number {
        0 => with_suffix(store, &format!(".{what}-{time}{kind}")),
        number => with_suffix(store, &format!(".{what}-{time}-{number}{kind}")),
    };
    (0..).map(name).find(|path| fs::symlink_metadata(path).is_err()).unwrap_or_else(|| name(0))
}

fn repair_rows(
    store: &Path,
    backup: PathBuf,
    originals: &[&Path],
    aside: &mut SetAside,
    progress: Progress<'_>,
) -> Result<Repaired, StoreError> {
    let at = |fault: Fault| fault.at(store);
    let path = StoreFile::new(store.to_owned(), None).real_path()?;
    let mut codec = Codec::new().map_err(|error| error::from_io(store, error))?;
    let mut connection = connection::open(&path)?;
    let columns = schema::prepare(&path, &connection)?;
    let columns = repair::upgrade(&path, &mut connection, columns, &mut codec).map_err(at)?;
    let done =
        repair::repair(&mut connection, &columns, &mut codec, originals, aside, progress).map_err(at)?;
    connection::close(connection).map_err(|error| error::from_sqlite(store, error))?;
    Ok(Repaired { backup, problems: done.repaired, new_uuids: done.new_uuids, ..Repaired::default() })
}

/// Writes the indexes again, which is enough if only they are damaged. Returns the copy of the file before; `None` if it is not enough.
fn reindex(store: &Path, time: &str, progress: Progress<'_>) -> Option<PathBuf> {
    let (connection, _) = open_file(store).ok()?;
    let found = check_structure(&connection, progress);
    if found.is_empty() || !problem::is_of_indexes(&found) {
        return None;
    }
    let backup = unused(store, "backup", time, "");
    backup::back_up_open(&connection, &backup, ExistingCopy::Keep, |_, _, _| Ok(()), progress).ok()?;
    connection.execute_batch("BEGIN IMMEDIATE; REINDEX;").ok()?;
    if schema::check_versions(&connection).is_err() || !check_structure(&connection, progress).is_empty() {
        connection.execute_batch("ROLLBACK").ok()?;
        drop(fs::remove_file(&backup));
        return None;
    }
    connection.execute_batch("COMMIT").ok()?;
    connection::close(connection).ok()?;
    Some(backup)
}

/// Moves all rows that can be read to a new file, which takes the place of the damaged one.
fn replace(
    file: &StoreFile,
    time: &str,
    originals: &[&Path],
    aside: &mut SetAside,
    progress: Progress<'_>,
) -> Result<Repaired, StoreError> {
    let store = file.path();
    let io = |error| error::from_io(store, error);
    let path = file.real_path()?;
    // What is in a write-ahead log belongs to the file. The check has rolled a half-written change back. As far as SQLite can lock the
    // file, no other process changes it until it is replaced.
    let damaged = File::open(&path).map_err(io)?;
    // SQLite takes a smaller file for an empty one, and would create a database in it.
    let is_database = damaged.metadata().map_err(io)?.len() >= SMALLEST_DATABASE;
    let lock = is_database.then(|| Connection::open(&path).ok()).flatten();
    if let Some(lock) = &lock {
        drop(lock.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
        match lock.execute_batch("BEGIN IMMEDIATE") {
            // Somebody writes to it, so it can be used after all.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                return Err(error::from_sqlite(store, error));
            }
            // Of a damaged file, SQLite refuses some statements, and has the lock or cannot have it.
            Ok(()) | Err(_) => {}
        }
        // Of a damaged file, they may be unreadable.
        if let Err(Fault::Store(error @ StoreError::Newer { .. })) = schema::check_versions(lock) {
            return Err(error);
        }
    }
    file.remove_leftovers();
    let (temporary, new_file) = file.create_unfinished().map_err(io)?;
    let made = (|| {
        let sqlite = |error| error::from_sqlite(store, error);
        let new = Connection::open(&temporary).map_err(sqlite)?;
        new.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;").map_err(sqlite)?;
        schema::create(&new).map_err(sqlite)?;
        let found = salvage::salvage(&damaged, &new, aside, progress).map_err(|fault| fault.at(store))?;
        new.close().map_err(|(_, error)| sqlite(error))?;
        if found.is_empty() && !is_ours(file, &damaged).map_err(io)? {
            let why = "no row of it can be read; it may be another file".to_owned();
            return Err(StoreError::NotAStore { place: store.display().to_string(), why });
        }
        let mut repaired = repair_rows(&temporary, PathBuf::new(), originals, aside, progress)?;
        repaired.unreadable = found.unreadable;
        new_file.sync_all().map_err(io)?;
        aside.sync().map_err(io)?;
        repaired.backup = unused(store, "damaged", time, "");
        swap(file, &temporary, &repaired.backup).map_err(io)?;
        Ok(repaired)
    })();
    for suffix in [""].iter().chain(&COMPANIONS) {
        drop(fs::remove_file(with_suffix(&temporary, suffix)));
    }
    // Closing the file releases the lock, so it stays open until here.
    drop((damaged, lock));
    made
}

/// Gives a new file the name of a damaged one, which gets another name, `kept`.
fn swap(file: &StoreFile, new: &Path, kept: &Path) -> io::Result<()> {
    let store = file.path();
    // A second name, so that there is a file under the first one at every moment.
    let has_both_names = fs::hard_link(store, kept).is_ok();
    // Some file systems have no second names.
    if !has_both_names && !publish(store, kept)? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    for suffix in COMPANIONS {
        match fs::rename(with_suffix(store, suffix), with_suffix(kept, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    let damaged = fs::symlink_metadata(kept)?;
    if has_both_names {
        fs::rename(new, store)?;
    } else if !publish(new, store)? {
        // A store that another process has created meanwhile stays.
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    sync_folder(store.parent().unwrap_or(Path::new(".")))?;
    if let Some(second) = file.second_name()
        && second.is_of(Identity::of(&damaged))
    {
        fs::remove_file(second.path())?;
    }
    Ok(())
}
