//! The search indexes: each is a cache in a file of its own, which is removed if it is wrong. The next search that needs it creates it again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use azureal_core::IndexKind;
use azureal_search::FileIndex;
use azureal_store::sqlite::health::{CheckedSession, sessions_now};
use azureal_store::sqlite::rusqlite::{self, Connection, Row};
use azureal_store::sqlite::{StoreFolders, open_cache};

use super::{Finding, Severity};
use crate::git_folder::StoreLayout;

/// Something that is wrong with an index.
enum Problem {
    /// It cannot be read.
    Damaged(String),
    /// It has events of so many sessions that the store does not have.
    Stale(usize),
}

/// Checks the indexes that there are. An index that is behind is no finding: the next search adds what is missing. One that has too
/// much is a note, because a search compares every event with the store.
pub(super) fn check(layout: &StoreLayout, sessions: &[CheckedSession]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, path) in files(&layout.folders) {
        let (severity, message) = match problem(&path, &layout.file, sessions) {
            Some(Problem::Damaged(why)) => (Severity::Warning, format!("the search index is damaged: {why}")),
            Some(Problem::Stale(count)) => {
                let message = format!(
                    "the search index is stale: the store does not have {count} of its sessions, or not all of their events"
                );
                (Severity::Note, message)
            }
            None => continue,
        };
        let finding = Finding::at("index", severity, &path, message);
        findings.push(finding.fixed_by("removes it; the next search creates it again"));
    }
    findings
}

/// Removes the indexes that are wrong, and returns their files.
pub(super) fn fix(layout: &StoreLayout, sessions: &[CheckedSession]) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for (kind, path) in files(&layout.folders) {
        if problem(&path, &layout.file, sessions).is_some() {
            delete(&layout.folders, kind)?;
            removed.push(path);
        }
    }
    Ok(removed)
}

/// Removes the indexes that there are.
pub(super) fn remove(folders: &StoreFolders) -> io::Result<()> {
    FileIndex::KINDS.into_iter().try_for_each(|kind| delete(folders, kind))
}

fn delete(folders: &StoreFolders, kind: IndexKind) -> io::Result<()> {
    FileIndex::delete(&folders.search, kind).map_err(io::Error::other)
}

/// Returns the files of the indexes that there are.
fn files(folders: &StoreFolders) -> Vec<(IndexKind, PathBuf)> {
    let file = |kind| (kind, FileIndex::path(&folders.search, kind));
    let files = FileIndex::KINDS.into_iter().map(file);
    files.filter(|(_, path)| fs::symlink_metadata(path).is_ok()).collect()
}

/// Returns what is wrong with an index.
fn problem(path: &Path, store: &Path, sessions: &[CheckedSession]) -> Option<Problem> {
    let connection = match open_cache(path) {
        Ok(connection) => connection,
        Err(error) => return Some(Problem::Damaged(error.to_string())),
    };
    look(&connection, store, sessions).unwrap_or_else(|error| Some(Problem::Damaged(error.to_string())))
}

fn look(
    connection: &Connection,
    store: &Path,
    sessions: &[CheckedSession],
) -> rusqlite::Result<Option<Problem>> {
    let checked: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if checked != "ok" {
        return Ok(Some(Problem::Damaged(checked)));
    }
    if !FileIndex::is_consistent(connection)? {
        return Ok(Some(Problem::Damaged("it does not have all events that it had".to_owned())));
    }
    let mut statement = connection.prepare("SELECT id, through FROM sessions")?;
    let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let indexed = statement.query_map([], row)?.collect::<rusqlite::Result<Vec<_>>>()?;
    let stale = |sessions: &[CheckedSession]| {
        let is_known = |(id, through): &(i64, i64)| {
            let session = sessions.iter().find(|session| i64::from(session.id.number()) == *id);
            session
                .is_some_and(|session| u64::try_from(*through).is_ok_and(|through| through <= session.last))
        };
        indexed.iter().filter(|indexed| !is_known(indexed)).count()
    };
    let count = match stale(sessions) {
        0 => 0,
        // Turns can have ended, and been searched, since the sessions were read.
        count => sessions_now(store, None).map_or(count, |now| stale(&now)),
    };
    Ok((count > 0).then_some(Problem::Stale(count)))
}
