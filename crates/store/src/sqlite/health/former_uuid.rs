//! The UUID that a session had before its row was damaged or lost: the folder of its originals has that name.

use std::path::Path;

use azureal_core::{Uuid, io_error_text};
use rusqlite::{Connection, params};

use super::super::error::Fault;
use super::super::events;
use crate::originals::{OwnedOriginals, Owner, owned_originals};

/// Finds the former UUIDs of sessions. The folders are read when the first one is asked for.
pub(super) struct FormerUuids<'a> {
    folders: &'a [&'a Path],
    originals: Option<Vec<OwnedOriginals>>,
}

impl<'a> FormerUuids<'a> {
    /// The UUIDs in the names of these folders' folders.
    pub(super) fn in_folders(folders: &'a [&'a Path]) -> Self {
        Self { folders, originals: None }
    }

    /// Returns the former UUID of a session; `None` if it is not known for certain, or if a session has it.
    pub(super) fn of(&mut self, connection: &Connection, session: i64) -> Result<Option<Uuid>, Fault> {
        let mut fitting = Vec::new();
        for originals in self.originals() {
            if !is_taken(connection, originals.uuid)? && fits(connection, originals, session)? {
                fitting.push(originals.uuid);
            }
        }
        fitting.dedup();
        Ok(match fitting[..] {
            [uuid] => Some(uuid),
            _ => None,
        })
    }

    fn originals(&mut self) -> &[OwnedOriginals] {
        self.originals.get_or_insert_with(|| {
            let read = |folder: &&Path| {
                owned_originals(folder).unwrap_or_else(|error| {
                    tracing::warn!("{}: the folder of originals {}", folder.display(), io_error_text(&error));
                    Vec::new()
                })
            };
            self.folders.iter().flat_map(read).collect()
        })
    }
}

fn is_taken(connection: &Connection, uuid: Uuid) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM sessions WHERE uuid = ?1)";
    connection.prepare_cached(sql)?.query_row([uuid.to_string()], |row| row.get(0))
}

/// Returns whether originals are those of a session: their headers name it, and its turns end where theirs do.
fn fits(connection: &Connection, originals: &OwnedOriginals, session: i64) -> rusqlite::Result<bool> {
    let is_named = match &originals.owner {
        Owner::Session(number) => i64::try_from(*number) == Ok(session),
        Owner::Import { agent, file } => is_import(connection, agent, file, session)?,
    };
    if !is_named {
        return Ok(false);
    }
    // An event that is missing or damaged can be the end of a turn.
    let sql = "SELECT EXISTS (SELECT 1 FROM events WHERE session_id = ?1 AND seq = ?2
                              AND kind NOT IN ('Complete', 'Hook', 'Error'))";
    let mut is_other = connection.prepare_cached(sql)?;
    for end in &originals.ends {
        if is_other.query_row(params![session, events::integer(*end)], |row| row.get(0))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether a session was imported from a file. The mark of an import has the agent's own id of the session, as does the name of the file.
fn is_import(connection: &Connection, agent: &str, file: &str, session: i64) -> rusqlite::Result<bool> {
    let prefix = format!("mark:native:{agent}:");
    let sql = "SELECT EXISTS (SELECT 1 FROM meta
                 WHERE substr(key, 1, length(?1)) = ?1 AND length(key) > length(?1)
                   AND instr(?2, substr(key, length(?1) + 1)) > 0
                   AND substr(value, 1, length(?3)) = ?3)";
    connection.prepare_cached(sql)?.query_row(params![prefix, file, format!("{session} ")], |row| row.get(0))
}
