//! Checks of the rows of a store.

use std::collections::BTreeMap;

use azureal_core::{
    LogCheck, SessionId, SessionProblem, SessionRecord, StoreError, StoredEvent, Uuid, shared_uuids,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use super::super::codec::Codec;
use super::super::error::Fault;
use super::super::schema::{self, IS_USABLE, SessionColumns};
use super::super::values::{self, LARGEST_VALUE};
use super::super::{events, original_prompts, sessions};
use super::{Progress, StoreProblem, step};

/// A session of a store, for the checks of what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedSession {
    /// Its number.
    pub id: SessionId,
    /// Its UUID.
    pub uuid: Option<Uuid>,
    /// When it was created.
    pub created_at: String,
    /// Whether it began as a copy of another session, whose turns it has.
    pub is_fork: bool,
    /// The number of its last event.
    pub last: u64,
    /// The numbers of the events that end a turn.
    pub turn_ends: Vec<u64>,
}

impl CheckedSession {
    fn new(record: SessionRecord, last: i64, turn_ends: Vec<u64>) -> Self {
        Self {
            id: record.id,
            uuid: record.uuid,
            created_at: record.created_at,
            is_fork: record.forked_from.is_some(),
            last: last.cast_unsigned(),
            turn_ends,
        }
    }
}

/// The result of a check of all rows.
#[derive(Debug, Default)]
pub(super) struct RowCheck {
    pub(super) problems: Vec<StoreProblem>,
    pub(super) sessions: Vec<CheckedSession>,
    /// The number of events that can be decoded.
    pub(super) readable: u64,
}

/// Checks all rows. Each session is read in a transaction of its own, unless the caller has begun one: others can write in between.
pub(super) fn check(
    connection: &Connection,
    columns: &SessionColumns,
    codec: &mut Codec,
    progress: Progress<'_>,
) -> Result<RowCheck, Fault> {
    let mut check = RowCheck::default();
    let (valid, rows) = session_ids(connection)?;
    if rows > 0 {
        check.problems.push(StoreProblem::Numbers { rows });
    }
    for (done, id) in valid.iter().enumerate() {
        step(progress, &format!("session {} of {}", done + 1, valid.len()))?;
        let snapshot = connection.is_autocommit().then(|| connection.unchecked_transaction()).transpose()?;
        check_session(connection, columns, codec, *id, &mut check)?;
        drop(snapshot);
    }
    let uuids = check.sessions.iter().map(|session| (session.id, session.uuid));
    let shared = shared_uuids(uuids).into_iter().map(|(id, problem)| StoreProblem::Session(id, problem));
    check.problems.extend(shared.collect::<Vec<_>>());
    check.problems.extend(orphans(connection)?);
    let rows: i64 = connection.query_row(
        "SELECT count(*) FROM meta WHERE typeof(key) <> 'text' OR typeof(value) <> 'text'",
        [],
        |row| row.get(0),
    )?;
    if rows > 0 {
        check.problems.push(StoreProblem::Meta { rows: rows.cast_unsigned() });
    }
    check.problems.extend(last_number(connection)?);
    Ok(check)
}

/// Returns the sessions, and the number of rows whose number no session can have.
fn session_ids(connection: &Connection) -> rusqlite::Result<(Vec<SessionId>, u64)> {
    let numbers: Vec<i64> = connection
        .prepare("SELECT id FROM sessions ORDER BY id")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let valid: Vec<SessionId> = numbers.iter().filter_map(|number| session_id(*number)).collect();
    let others = (numbers.len() - valid.len()) as u64;
    Ok((valid, others))
}

/// Reads all sessions or one, without a check of their events.
pub(super) fn read(
    connection: &Connection,
    columns: &SessionColumns,
    codec: &mut Codec,
    only: Option<SessionId>,
) -> Result<Vec<CheckedSession>, Fault> {
    let ids = only.map_or_else(|| session_ids(connection).map(|(ids, _)| ids), |id| Ok(vec![id]))?;
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let session = i64::from(id.number());
        let snapshot = connection.unchecked_transaction()?;
        let record = match sessions::get(connection, columns, codec, id) {
            Err(Fault::Store(StoreError::NoSuchSession(_))) => continue,
            record => record?,
        };
        let last = connection.prepare_cached(LAST)?.query_row([session], |row| row.get(0))?;
        let last = counted(connection, columns, session)?.map_or(last, |counted| counted.max(last));
        let turn_ends = connection
            .prepare_cached(TURN_ENDS)?
            .query_map([session], |row| Ok(row.get::<_, i64>(0)?.cast_unsigned()))?
            .collect::<rusqlite::Result<_>>()?;
        drop(snapshot);
        found.push(CheckedSession::new(record, last, turn_ends));
    }
    Ok(found)
}

/// The number of the last event of a session.
const LAST: &str = "
SELECT ifnull(max(seq), 0) FROM events
WHERE session_id = ?1 AND typeof(seq) = 'integer' AND seq >= 1 AND seq < 9223372036854775807";
/// The numbers of the events that end a turn.
const TURN_ENDS: &str = "
SELECT seq FROM events
WHERE session_id = ?1 AND typeof(seq) = 'integer' AND seq >= 1 AND seq < 9223372036854775807 AND kind = 'Complete'
ORDER BY seq";

/// Returns the problem of a last number that is too large. Another wrong value is none: SQLite continues after the highest number in use.
fn last_number(connection: &Connection) -> rusqlite::Result<Option<StoreProblem>> {
    // A file of the original program has no such table, or no such row.
    if schema::columns(connection, "sqlite_sequence")?.is_empty() {
        return Ok(None);
    }
    let sql = "SELECT max(seq) FROM sqlite_sequence WHERE name = 'sessions' AND typeof(seq) = 'integer' AND seq > 4294967295";
    let number: Option<i64> = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(number.map(|number| StoreProblem::LastNumber { number }))
}

pub(super) fn session_id(number: i64) -> Option<SessionId> {
    u32::try_from(number).ok().and_then(SessionId::new)
}

fn check_session(
    connection: &Connection,
    columns: &SessionColumns,
    codec: &mut Codec,
    id: SessionId,
    check: &mut RowCheck,
) -> Result<(), Fault> {
    let session = i64::from(id.number());
    let mut record = match sessions::get(connection, columns, codec, id) {
        // It was deleted meanwhile.
        Err(Fault::Store(StoreError::NoSuchSession(_))) => return Ok(()),
        record => record?,
    };
    // All columns, also those that are not part of a record.
    record.damaged = wrong_columns(connection, session)?;
    let mut log = LogCheck::default();
    let (mut without_place, mut cells, mut last) = (0, 0, 0);
    let mut turn_ends = Vec::new();
    let mut extra = Vec::new();
    let mut statement = connection.prepare_cached(EVENTS)?;
    let mut rows = statement.query([session])?;
    while let Some(row) = rows.next()? {
        let seq = match row.get_ref(0)? {
            ValueRef::Integer(seq) if (1..i64::MAX).contains(&seq) => seq,
            _ => {
                without_place += 1;
                continue;
            }
        };
        let (stored, has_other_kind) = stored(row, codec, seq)?;
        if has_other_kind || has_wrong_cells(row)? {
            cells += 1;
        }
        if stored.json.is_ok() && stored.kind == "Complete" {
            turn_ends.push(seq.cast_unsigned());
        }
        last = seq;
        log.add(&stored);
    }
    drop(rows);
    let decoded = log.tally().counts.events;
    let mut problems = log.finish(&record);
    if let Some(counted) = counted(connection, columns, session)?.filter(|counted| *counted > last) {
        problems.push(SessionProblem::Gap { after: events::seq(last), next: events::seq(counted).next() });
        last = counted;
    }
    let undecodable =
        problems.iter().filter(|problem| matches!(problem, SessionProblem::Undecodable { .. })).count();
    check.readable += decoded.saturating_sub(undecodable as u64);
    extra.extend(problems.into_iter().map(|problem| StoreProblem::Session(id, problem)));
    if without_place > 0 {
        extra.push(StoreProblem::WithoutPlace { session: id, events: without_place });
    }
    if cells > 0 {
        extra.push(StoreProblem::EventCells { session: id, events: cells });
    }
    let (unusable, beyond) = summaries(connection, session, last)?;
    if unusable > 0 {
        extra.push(StoreProblem::Summaries { session: id, summaries: unusable });
    }
    extra.extend(beyond.into_iter().map(|after_seq| {
        StoreProblem::Session(id, SessionProblem::Summary { after_seq: events::seq(after_seq) })
    }));
    if lacks_uuid(connection, columns, session)? {
        extra.push(StoreProblem::Session(id, SessionProblem::NoUuid));
    }
    check.problems.append(&mut extra);
    check.sessions.push(CheckedSession::new(record, last, turn_ends));
    Ok(())
}

/// The events of a session, those without a place included.
const EVENTS: &str = "
SELECT seq, CASE WHEN octet_length(kind) > 1000 THEN '' ELSE kind END,
       CASE WHEN octet_length(data) > 67141632 THEN octet_length(data) ELSE data END,
       typeof(kind) = 'text', typeof(char_len) = 'integer' AND char_len >= 0,
       CASE WHEN typeof(char_len) = 'integer' THEN char_len END
FROM events WHERE session_id = ?1 ORDER BY seq, id";

/// Returns an event, and whether its kind is not that of its data.
fn stored(row: &Row<'_>, codec: &mut Codec, seq: i64) -> rusqlite::Result<(StoredEvent, bool)> {
    let kind = values::text(row.get_ref(1)?).unwrap_or_default();
    let mut stored = StoredEvent::new(events::seq(seq), kind, codec.unpack(row.get_ref(2)?));
    let has_other_kind = has_other_kind(&stored);
    // Read and counted as everywhere else.
    if let Ok(json) = &stored.json
        && let Some(event) = original_prompts::corrected(json, row.get_ref(5)?)
    {
        stored.json = Ok(event.to_json());
    }
    Ok((stored, has_other_kind))
}

/// Returns whether the kind of an event is not that of its data. Queries go by the kind.
pub(super) fn has_other_kind(stored: &StoredEvent) -> bool {
    let Ok(json) = &stored.json else { return false };
    // Almost always the text begins with the kind, so it is not parsed.
    let tag = json.strip_prefix('{').unwrap_or(json).strip_prefix('"');
    let begins = tag.and_then(|tag| tag.strip_prefix(&stored.kind)).is_some_and(|rest| rest.starts_with('"'));
    !begins && stored.event().is_ok_and(|event| event.kind() != stored.kind)
}

fn has_wrong_cells(row: &Row<'_>) -> rusqlite::Result<bool> {
    let is_right: (bool, bool) = (row.get(3)?, row.get(4)?);
    Ok(is_right != (true, true))
}

/// The only number that can be less than zero: details can be shorter than the contents that they replace.
const SIGNED: &str = "details";

/// Returns the columns of a session whose value has a wrong type, is too large, or is a number that is less than zero or infinite.
pub(super) fn wrong_columns(connection: &Connection, session: i64) -> rusqlite::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (column, kind) in known_columns(connection)? {
        let is_right = match kind {
            "INTEGER" if column == SIGNED => format!("typeof({column}) = 'integer'"),
            "INTEGER" => format!("typeof({column}) = 'integer' AND {column} >= 0"),
            "REAL" => {
                format!("typeof({column}) IN ('integer', 'real') AND {column} >= 0 AND {column} < 9e999")
            }
            _ => format!("typeof({column}) = 'text' AND octet_length({column}) <= {LARGEST_VALUE}"),
        };
        let sql = format!("SELECT {column} IS NULL OR {is_right} FROM sessions WHERE id = ?1");
        let is_right: bool = connection.prepare_cached(&sql)?.query_row([session], |row| row.get(0))?;
        if !is_right {
            wrong.push(column.to_owned());
        }
    }
    Ok(wrong)
}

/// Returns the columns of sessions that we know and that this file has, with the first word of their type.
pub(super) fn known_columns(connection: &Connection) -> rusqlite::Result<Vec<(&'static str, &'static str)>> {
    let present = schema::columns(connection, "sessions")?;
    let known = schema::session_columns().filter(|(name, _)| *name != "id" && present.contains(*name));
    Ok(known.map(|(name, kind)| (name, kind.split(' ').next().unwrap_or(""))).collect())
}

/// Returns the number of summaries that cannot be used, and the ends of those that cover more events than there are.
fn summaries(connection: &Connection, session: i64, last: i64) -> rusqlite::Result<(u64, Vec<i64>)> {
    let unusable: i64 = connection
        .prepare_cached(&format!(
            "SELECT count(*) FROM compactions WHERE session_id = ?1 AND NOT ({IS_USABLE})"
        ))?
        .query_row([session], |row| row.get(0))?;
    let beyond = connection
        .prepare_cached(&format!(
            "SELECT after_seq FROM compactions WHERE session_id = ?1 AND {IS_USABLE}
               AND (after_seq > ?2 OR after_seq < 1)"
        ))?
        .query_map([session, last], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    Ok((unusable.cast_unsigned(), beyond))
}

/// Returns the number of the last event that a session had when it was counted; `None` if its counts do not agree. Counts are written with the
/// events, so a later event that is not there was lost.
fn counted(connection: &Connection, columns: &SessionColumns, session: i64) -> rusqlite::Result<Option<i64>> {
    if !columns.keep_counts() {
        return Ok(None);
    }
    let sql = "SELECT counted_seq FROM sessions WHERE id = ?1 AND typeof(counted_seq) = 'integer'
                 AND counted_seq = event_count AND counted_seq = tallied_seq AND counted_seq < 9223372036854775807";
    connection.prepare_cached(sql)?.query_row([session], |row| row.get(0)).optional()
}

/// Returns whether a session that azureal has counted has no UUID. Those of other programs get one with the next change.
fn lacks_uuid(connection: &Connection, columns: &SessionColumns, session: i64) -> rusqlite::Result<bool> {
    if !columns.keep_counts() {
        return Ok(false);
    }
    let (uuid, is_counted): (Option<String>, bool) = connection
        .prepare_cached("SELECT uuid, counted_seq IS NOT NULL FROM sessions WHERE id = ?1")?
        .query_row([session], |row| Ok((values::text(row.get_ref(0)?), row.get(1)?)))?;
    Ok(match uuid {
        Some(uuid) => uuid.parse::<Uuid>().is_err(),
        None => is_counted,
    })
}

/// The session of an orphan as text: it may be no number. NULL is in no list.
pub(super) const ORPHAN: &str = "ifnull(CAST(substr(session_id, 1, 100) AS TEXT), 'NULL')";

/// Finds events and summaries without their session.
fn orphans(connection: &Connection) -> rusqlite::Result<Vec<StoreProblem>> {
    let mut found: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (table, is_event) in [("events", true), ("compactions", false)] {
        let sql = format!(
            "SELECT {ORPHAN}, count(*) FROM {table}
             WHERE session_id IS NULL OR session_id NOT IN (SELECT id FROM sessions) GROUP BY session_id"
        );
        let mut statement = connection.prepare(&sql)?;
        let groups = statement.query_map([], |row| {
            Ok((values::text(row.get_ref(0)?).unwrap_or_default(), row.get::<_, i64>(1)?))
        })?;
        for group in groups {
            let (session, count) = group?;
            let counts = found.entry(session).or_default();
            let place = if is_event { &mut counts.0 } else { &mut counts.1 };
            *place += count.cast_unsigned();
        }
    }
    let orphans = found.into_iter();
    Ok(orphans
        .map(|(session, (events, summaries))| StoreProblem::Orphans { session, events, summaries })
        .collect())
}
