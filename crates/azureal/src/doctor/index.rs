//! The search index: a cache in a file of its own, which is removed if it is wrong. The next search creates it again.

use std::fs;
use std::path::{Path, PathBuf};

use azureal_store::sqlite::health::CheckedSession;
use azureal_store::sqlite::rusqlite::{self, Connection, Row};
use azureal_store::sqlite::{COMPANIONS, StoreFolders, open_foreign, with_suffix};

use super::{Finding, Severity};

/// The file of the index in its folder.
const FILE: &str = "words.sqlite";

/// Returns the file of the index, beside the folder of the originals.
fn file(folders: &StoreFolders) -> Option<PathBuf> {
    let originals = folders.originals.file_name()?.to_str()?;
    let search = originals.strip_suffix("originals")?.to_owned() + "search";
    Some(folders.originals.with_file_name(search).join(FILE))
}

/// Checks the index, if there is one. An index that is behind is no finding: the next search adds what is missing.
pub(super) fn check(folders: &StoreFolders, sessions: &[CheckedSession]) -> Option<Finding> {
    let path = file(folders).filter(|path| fs::symlink_metadata(path).is_ok())?;
    let why = problem(&path, sessions)?;
    let finding = Finding::at("index", Severity::Warning, &path, format!("the search index {why}"));
    Some(finding.fixed_by("removes it; the next search creates it again"))
}

/// Removes the index if it is wrong; returns whether it was.
pub(super) fn fix(folders: &StoreFolders, sessions: &[CheckedSession]) -> std::io::Result<bool> {
    let Some(path) = file(folders).filter(|path| fs::symlink_metadata(path).is_ok()) else {
        return Ok(false);
    };
    if problem(&path, sessions).is_none() {
        return Ok(false);
    }
    remove(folders).map(|()| true)
}

/// Removes the index, if there is one.
pub(super) fn remove(folders: &StoreFolders) -> std::io::Result<()> {
    let Some(path) = file(folders).filter(|path| fs::symlink_metadata(path).is_ok()) else { return Ok(()) };
    for suffix in COMPANIONS {
        drop(fs::remove_file(with_suffix(&path, suffix)));
    }
    fs::remove_file(&path)
}

/// Returns what is wrong with an index.
fn problem(path: &Path, sessions: &[CheckedSession]) -> Option<String> {
    let connection = match open_foreign(path) {
        Ok(connection) => connection,
        Err(error) => return Some(format!("cannot be read: {error}")),
    };
    match look(&connection, sessions) {
        Ok(found) => found,
        Err(error) => Some(format!("cannot be read: {error}")),
    }
}

fn look(connection: &Connection, sessions: &[CheckedSession]) -> rusqlite::Result<Option<String>> {
    let checked: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if checked != "ok" {
        return Ok(Some(format!("is damaged: {checked}")));
    }
    let mut statement = connection.prepare("SELECT id, last FROM sessions")?;
    let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let indexed = statement.query_map([], row)?.collect::<rusqlite::Result<Vec<_>>>()?;
    let is_known = |(id, last): &(i64, i64)| {
        let session = sessions.iter().find(|session| i64::from(session.id.number()) == *id);
        session.is_some_and(|session| u64::try_from(*last).is_ok_and(|last| last <= session.last))
    };
    let stale = indexed.iter().filter(|indexed| !is_known(indexed)).count();
    Ok((stale > 0)
        .then(|| format!("is stale: it has events of {stale} sessions that the store does not have")))
}
