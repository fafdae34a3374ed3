//! The search index: a cache in a file of its own, which is removed if it is wrong. The next search creates it again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use azureal_search::FileIndex;
use azureal_store::sqlite::health::CheckedSession;
use azureal_store::sqlite::rusqlite::{self, Connection, Row};
use azureal_store::sqlite::{StoreFolders, open_cache};

use super::{Finding, Severity};

/// The file of the index in its folder.
const FILE: &str = "words.sqlite";

/// Something that is wrong with the index.
enum Problem {
    /// It cannot be read.
    Damaged(String),
    /// It has events of so many sessions that the store does not have.
    Stale(usize),
}

/// Checks the index, if there is one. An index that is behind is no finding: the next search adds what is missing. One that has too
/// much is a note, because a search compares every event with the store.
pub(super) fn check(folders: &StoreFolders, sessions: &[CheckedSession]) -> Option<Finding> {
    let path = file(folders)?;
    let (severity, message) = match problem(&path, sessions)? {
        Problem::Damaged(why) => (Severity::Warning, format!("the search index is damaged: {why}")),
        Problem::Stale(count) => {
            let message = format!(
                "the search index is stale: the store does not have {count} of its sessions, or not all of their events"
            );
            (Severity::Note, message)
        }
    };
    let finding = Finding::at("index", severity, &path, message);
    Some(finding.fixed_by("removes it; the next search creates it again"))
}

/// Removes the index if it is wrong; returns whether it was.
pub(super) fn fix(folders: &StoreFolders, sessions: &[CheckedSession]) -> io::Result<bool> {
    match file(folders).and_then(|path| problem(&path, sessions)) {
        Some(_) => remove(folders).map(|()| true),
        None => Ok(false),
    }
}

/// Removes the index, if there is one.
pub(super) fn remove(folders: &StoreFolders) -> io::Result<()> {
    FileIndex::delete(&folders.search).map_err(io::Error::other)
}

/// Returns the file of the index, if there is one.
fn file(folders: &StoreFolders) -> Option<PathBuf> {
    Some(folders.search.join(FILE)).filter(|path| fs::symlink_metadata(path).is_ok())
}

/// Returns what is wrong with an index.
fn problem(path: &Path, sessions: &[CheckedSession]) -> Option<Problem> {
    let connection = match open_cache(path) {
        Ok(connection) => connection,
        Err(error) => return Some(Problem::Damaged(error.to_string())),
    };
    look(&connection, sessions).unwrap_or_else(|error| Some(Problem::Damaged(error.to_string())))
}

fn look(connection: &Connection, sessions: &[CheckedSession]) -> rusqlite::Result<Option<Problem>> {
    let checked: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if checked != "ok" {
        return Ok(Some(Problem::Damaged(checked)));
    }
    let mut statement = connection.prepare("SELECT id, through FROM sessions")?;
    let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let indexed = statement.query_map([], row)?.collect::<rusqlite::Result<Vec<_>>>()?;
    let is_known = |(id, through): &(i64, i64)| {
        let session = sessions.iter().find(|session| i64::from(session.id.number()) == *id);
        session.is_some_and(|session| u64::try_from(*through).is_ok_and(|through| through <= session.last))
    };
    let stale = indexed.iter().filter(|indexed| !is_known(indexed)).count();
    Ok((stale > 0).then_some(Problem::Stale(stale)))
}
