//! What is counted over the events of a session, kept in its row.
//!
//! The original program appends events without counting them. We notice by two facts:
//!
//! - `last_event` is the id of the last event of its session that was counted. Whoever sets it has counted
//!   every event of the file up to that id, in the same transaction.
//! - `active` is a clock that moves whenever a session is made or appended to; the session that is furthest
//!   on it and has events therefore holds the greatest `last_event` of all.
//!
//! So one look at either end of two indexes says whether everything is counted, however many sessions there
//! are. Clocks on the wall have no part in it.

use azureal_core::fold::Open;
use azureal_core::{Counts, Seq};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::codec::{Codec, Payload};
use super::events;

/// A session whose counts have been brought up to date.
pub(super) struct Recounted {
    pub(super) session: i64,
    pub(super) counts: Counts,
    /// The id of its last event; nothing if it has none.
    pub(super) last_event: Option<i64>,
}

/// Says whether every session is counted to its last event and stands on the clock.
pub(super) fn are_current(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(last_counted(connection)? == last_event(connection)? && !has_unclocked(connection)?)
}

fn last_event(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached("SELECT max(id) FROM events")?.query_row([], |row| row.get(0))
}

fn last_counted(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached(
            "SELECT last_event FROM sessions WHERE last_event IS NOT NULL ORDER BY active DESC LIMIT 1",
        )?
        .query_row([], |row| row.get(0))
        .optional()
}

fn has_unclocked(connection: &Connection) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM sessions WHERE active IS NULL LIMIT 1")?.exists([])
}

/// Returns the next tick of the clock.
pub(super) fn next_tick(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("SELECT ifnull(max(active), 0) + 1 FROM sessions")?
        .query_row([], |row| row.get(0))
}

/// Counts what others have appended, in the order in which they were active.
pub(super) fn recount(connection: &Connection, codec: &mut Codec) -> rusqlite::Result<Vec<Recounted>> {
    // Sessions with events that nobody counted, and those that the original program made.
    let counted = last_counted(connection)?.unwrap_or(0);
    let mut behind = connection.prepare(
        "SELECT session_id, max(id) AS last FROM events WHERE id > ?1 GROUP BY session_id
         UNION ALL
         SELECT id, NULL FROM sessions
           WHERE active IS NULL AND id NOT IN (SELECT session_id FROM events WHERE id > ?1)
         ORDER BY last, session_id",
    )?;
    let behind = behind
        .query_map([counted], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<Vec<(i64, Option<i64>)>>>()?;
    behind
        .into_iter()
        .map(|(session, last_event)| {
            let mut counts = state(connection, session)?.map(|state| state.counts).unwrap_or_default();
            count_rest(connection, codec, session, &mut counts, Seq::END)?;
            Ok(Recounted { session, counts, last_event })
        })
        .collect()
}

/// Counts every session from its beginning, in a file that has no place for counts.
pub(super) fn recount_all(connection: &Connection, codec: &mut Codec) -> rusqlite::Result<Vec<Recounted>> {
    let mut active = connection
        .prepare("SELECT session_id, max(id) AS last FROM events GROUP BY session_id ORDER BY last")?;
    let active = active
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<Vec<(i64, Option<i64>)>>>()?;
    active
        .into_iter()
        .map(|(session, last_event)| {
            let mut counts = Counts::default();
            count_rest(connection, codec, session, &mut counts, Seq::END)?;
            Ok(Recounted { session, counts, last_event })
        })
        .collect()
}

/// Counts what others have appended and stores it. Part of every transaction that appends.
pub(super) fn catch_up(connection: &Connection, codec: &mut Codec) -> rusqlite::Result<()> {
    if are_current(connection)? {
        return Ok(());
    }
    for Recounted { session, counts, last_event } in recount(connection, codec)? {
        let tick = next_tick(connection)?;
        write(connection, session, &counts, last_event, Some(tick))?;
    }
    Ok(())
}

/// Counts the events of a session from where `counts` ends, at most up to `until`.
pub(super) fn count_rest(
    connection: &Connection,
    codec: &mut Codec,
    session: i64,
    counts: &mut Counts,
    until: Seq,
) -> rusqlite::Result<()> {
    let mut rest = connection.prepare_cached(
        "SELECT seq, data FROM events WHERE session_id = ?1 AND seq > ?2 AND seq <= ?3 ORDER BY seq",
    )?;
    let mut rows = rest.query(params![session, events::integer(counts.through), events::integer(until)])?;
    while let Some(row) = rows.next()? {
        let seq = events::seq(row.get(0)?);
        let json = codec.unpack(Payload::from(row.get_ref(1)?));
        let event = json.ok().and_then(|json| azureal_core::Event::from_json(&json).ok());
        counts.add(seq, event.as_ref());
    }
    Ok(())
}

/// What a session's row says of its events.
pub(super) struct State {
    pub(super) counts: Counts,
    /// Where it stands on the clock.
    pub(super) active: Option<i64>,
}

/// Reads what was counted; nothing if there is no such session.
pub(super) fn state(connection: &Connection, session: i64) -> rusqlite::Result<Option<State>> {
    connection
        .prepare_cached(
            "SELECT counted_seq, event_count, message_count, open_message, preview, agent, model, active
             FROM sessions WHERE id = ?1",
        )?
        .query_row([session], |row| Ok(State { counts: from_row(row, 0)?, active: row.get(7)? }))
        .optional()
}

/// Reads counts from a row, in which they begin at column `first`.
pub(super) fn from_row(row: &Row<'_>, first: usize) -> rusqlite::Result<Counts> {
    let number = |column: usize| -> rusqlite::Result<u64> {
        Ok(row.get::<_, Option<i64>>(first + column)?.unwrap_or(0).try_into().unwrap_or(0))
    };
    Ok(Counts {
        through: Seq(number(0)?),
        events: number(1)?,
        messages: number(2)?,
        open: row.get_ref(first + 3)?.as_str_or_null()?.map(Open::named).unwrap_or_default(),
        preview: row.get(first + 4)?,
        agent: row.get(first + 5)?,
        model: row.get(first + 6)?,
    })
}

/// Stores the counts of a session; `tick` moves it to the front of the list.
pub(super) fn write(
    connection: &Connection,
    session: i64,
    counts: &Counts,
    last_event: Option<i64>,
    tick: Option<i64>,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE sessions SET counted_seq = ?2, event_count = ?3, message_count = ?4, open_message = ?5,
                    preview = ?6, agent = ?7, model = ?8, last_event = ifnull(?9, last_event),
                    active = ifnull(?10, active)
             WHERE id = ?1",
        )?
        .execute(params![
            session,
            events::integer(counts.through),
            counts.events.cast_signed(),
            counts.messages.cast_signed(),
            counts.open.as_str(),
            counts.preview,
            counts.agent,
            counts.model,
            last_event,
            tick,
        ])?;
    Ok(())
}
