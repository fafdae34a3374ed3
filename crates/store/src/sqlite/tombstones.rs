//! Tombstones: rows of `meta` under the key `deleted:<UUID>`. The value has the time of the deletion, the number of events, and if a
//! session with this UUID was created since, the time of that.

use azureal_core::{Tombstone, Uuid};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::values;
use crate::timestamp::later_than;

/// Tells tombstones from the other rows of `meta`.
const PREFIX: &str = "deleted:";
/// The least text that is greater than all their keys.
const END: &str = "deleted;";

/// Writes the tombstone of a session that is being deleted, unless another session has its UUID.
pub(super) fn bury(connection: &Connection, session: i64) -> rusqlite::Result<()> {
    let found: Option<(Option<Uuid>, i64)> = connection
        .query_row(
            "SELECT uuid, (SELECT count(*) FROM events WHERE session_id = sessions.id) FROM sessions
             WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM sessions AS others WHERE uuid = sessions.uuid AND id <> ?1)",
            [session],
            |row| Ok((values::text(row.get_ref(0)?).and_then(|uuid| uuid.parse().ok()), row.get(1)?)),
        )
        .optional()?;
    let Some((Some(uuid), events)) = found else { return Ok(()) };
    let earlier = get(connection, uuid)?;
    let seen = earlier.map(|earlier| earlier.revived_at.unwrap_or(earlier.deleted_at));
    let deleted_at = later_than(&seen.unwrap_or_default());
    set(connection, &Tombstone { uuid, deleted_at, events: values::unsigned(Some(events)), revived_at: None })
}

/// Notes that a session with this UUID is created, if one was deleted.
pub(super) fn revive(connection: &Connection, uuid: Uuid) -> rusqlite::Result<()> {
    let Some(tombstone) = get(connection, uuid)? else { return Ok(()) };
    let seen = tombstone.revived_at.as_deref().unwrap_or(&tombstone.deleted_at);
    set(connection, &Tombstone { revived_at: Some(later_than(seen)), ..tombstone })
}

/// Takes over a tombstone of the former content of a restored store, unless a later one is known. A session that the new content has
/// comes back by that.
pub(super) fn keep(connection: &Connection, former: &Tombstone) -> rusqlite::Result<()> {
    let time = |tombstone: &Tombstone| {
        tombstone.revived_at.clone().unwrap_or_default().max(tombstone.deleted_at.clone())
    };
    if get(connection, former.uuid)?.is_none_or(|known| time(&known) <= time(former)) {
        set(connection, former)?;
    }
    let is_there = connection
        .prepare_cached("SELECT 1 FROM sessions WHERE uuid = ?1")?
        .exists([former.uuid.to_string()])?;
    let is_deleted = get(connection, former.uuid)?.is_some_and(|now| now.revived_at.is_none());
    if is_there && is_deleted { revive(connection, former.uuid) } else { Ok(()) }
}

/// Reads a page, in the order of the UUIDs.
pub(super) fn list(
    connection: &Connection,
    after: Option<Uuid>,
    limit: usize,
) -> rusqlite::Result<Vec<Tombstone>> {
    let after = after.map_or_else(|| PREFIX.to_owned(), key);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut page = connection.prepare_cached(
        "SELECT substr(key, 1, 100), substr(value, 1, 100) FROM meta WHERE key > ?1 AND key < ?2 ORDER BY key LIMIT ?3",
    )?;
    page.query_map(params![after, END, limit], |row| {
        let [key, value] = [values::text(row.get_ref(0)?), values::text(row.get_ref(1)?)];
        Ok(parsed(&key.unwrap_or_default(), &value.unwrap_or_default()))
    })?
    .filter_map(Result::transpose)
    .collect()
}

fn key(uuid: Uuid) -> String {
    format!("{PREFIX}{uuid}")
}

pub(super) fn get(connection: &Connection, uuid: Uuid) -> rusqlite::Result<Option<Tombstone>> {
    let key = key(uuid);
    let value = connection
        .prepare_cached("SELECT substr(value, 1, 100) FROM meta WHERE key = ?1")?
        .query_row([&key], |row| Ok(values::text(row.get_ref(0)?)))
        .optional()?;
    Ok(value.and_then(|value| parsed(&key, &value.unwrap_or_default())))
}

fn set(connection: &Connection, tombstone: &Tombstone) -> rusqlite::Result<()> {
    let Tombstone { uuid, deleted_at, events, revived_at } = tombstone;
    let revived_at = revived_at.as_deref().map(|time| format!(" {time}")).unwrap_or_default();
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?
        .execute((key(*uuid), format!("{deleted_at} {events}{revived_at}")))
        .map(drop)
}

/// Reads a row. A value that is not ours is a deletion all the same, of unknown time: the session must not come back by that.
fn parsed(key: &str, value: &str) -> Option<Tombstone> {
    let uuid = key.strip_prefix(PREFIX)?.parse().ok()?;
    let mut words = value.split(' ');
    let time = |word: &str| word.parse::<Timestamp>().map_or_else(|_| String::new(), |_| word.to_owned());
    Some(Tombstone {
        uuid,
        deleted_at: time(words.next().unwrap_or_default()),
        events: words.next().and_then(|events| events.parse().ok()).unwrap_or(0),
        revived_at: words.next().map(time),
    })
}
