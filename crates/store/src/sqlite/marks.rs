//! Marks: small facts in `meta`, set with a turn and deleted with its session, or emptied. The last used session of a worktree is
//! one too, under the key `last:<worktree>`.

use azureal_core::{LASTING_MARKS, Mark, NewMark, SessionId};
use rusqlite::{Connection, OptionalExtension};

use super::error::Fault;
use super::{connection, sessions, values};

/// Tells marks from the other rows of `meta`.
const PREFIX: &str = "mark:";

/// Sets a mark. Its value begins with the number of its session, so that it can be found by it.
pub(super) fn set(connection: &Connection, session: SessionId, mark: &NewMark) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?
        .execute((format!("{PREFIX}{}", mark.name), format!("{} {}", session.number(), mark.note)))?;
    Ok(())
}

pub(super) fn get(connection: &Connection, name: &str) -> rusqlite::Result<Option<Mark>> {
    let value = connection
        .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([format!("{PREFIX}{name}")], |row| Ok(values::text(row.get_ref(0)?)))
        .optional()?;
    Ok(value.flatten().and_then(|value| {
        let (number, note) = value.split_once(' ')?;
        let session = SessionId::new(number.parse().ok()?)?;
        Some(Mark { session, note: note.to_owned() })
    }))
}

pub(super) fn remove(connection: &mut Connection, name: &str) -> Result<bool, Fault> {
    let transaction = sessions::begin(connection)?;
    let key = format!("{PREFIX}{name}");
    let removed = transaction.prepare_cached("DELETE FROM meta WHERE key = ?1")?.execute([key])?;
    connection::commit(transaction)?;
    Ok(removed > 0)
}

/// Removes the marks of a session, and of lasting ones the notes.
pub(super) fn remove_of(connection: &Connection, session: i64) -> rusqlite::Result<()> {
    let lasting = format!("{PREFIX}{LASTING_MARKS}*");
    // A cast takes the number at the beginning of a text.
    connection.execute(
        "UPDATE meta SET value = ?1 || ' ' WHERE key GLOB ?2 AND CAST(value AS INTEGER) = ?1",
        (session, &lasting),
    )?;
    connection.execute(
        "DELETE FROM meta WHERE key GLOB 'mark:*' AND key NOT GLOB ?2 AND CAST(value AS INTEGER) = ?1",
        (session, &lasting),
    )?;
    Ok(())
}

/// Tells the last sessions of worktrees from the other rows of `meta`.
const LAST: &str = "last:";

pub(super) fn set_last_used(
    connection: &Connection,
    session: SessionId,
    used_in: &str,
) -> rusqlite::Result<()> {
    // Most turns continue the session of the turn before: that is no change, and writes no page.
    connection
        .prepare_cached(
            "INSERT INTO meta (key, value) VALUES (?1, ?2)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE value <> excluded.value",
        )?
        .execute((format!("{LAST}{used_in}"), session.number().to_string()))?;
    Ok(())
}

pub(super) fn last_used(connection: &Connection, used_in: &str) -> rusqlite::Result<Option<SessionId>> {
    let number: Option<i64> = connection
        .prepare_cached(
            "SELECT sessions.id FROM meta JOIN sessions ON sessions.id = CAST(meta.value AS INTEGER)
             WHERE meta.key = ?1",
        )?
        .query_row([format!("{LAST}{used_in}")], |row| row.get(0))
        .optional()?;
    Ok(number.and_then(|number| u32::try_from(number).ok()).and_then(SessionId::new))
}

/// Forgets that a session was the last one anywhere.
pub(super) fn forget_last_used(connection: &Connection, session: i64) -> rusqlite::Result<()> {
    connection
        .execute("DELETE FROM meta WHERE key GLOB 'last:*' AND CAST(value AS INTEGER) = ?1", [session])?;
    Ok(())
}
