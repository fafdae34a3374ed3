//! Sessions: all but their events.

use std::collections::HashMap;

use azureal_core::{
    Compaction, Counts, ListOrder, ListQuery, NameFilter, NewSession, Seq, SessionId, SessionRecord,
    StoreError, Tally, Tokens, Uuid, check_name, normal_timestamp,
};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Row, Transaction, TransactionBehavior, params, params_from_iter,
};

use super::codec::Codec;
use super::error::Fault;
use super::schema::{self, IS_USABLE, SessionColumns};
use super::values::{Cells, guarded, integer, is_too_large, signed, text, unsigned};
use super::{connection, counts, events, marks, tombstones};
use crate::timestamp::{ActivityTimes, given_or_now, last_active_or_now, later_than, now};

/// Begins a transaction that changes the file. Other programs add sessions without an identity: they get it here.
pub(super) fn begin(connection: &mut Connection) -> Result<Transaction<'_>, Fault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    schema::check_versions(&transaction)?;
    fill_uuids(&transaction)?;
    Ok(transaction)
}

/// Gives an identity to each session that has none.
pub(super) fn fill_uuids(connection: &Connection) -> rusqlite::Result<()> {
    let mut without = connection.prepare_cached("SELECT id FROM sessions WHERE uuid IS NULL")?;
    let without = without.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
    for session in without {
        connection
            .prepare_cached("UPDATE sessions SET uuid = ?2 WHERE id = ?1")?
            .execute(params![session, Uuid::new_v4().to_string()])?;
    }
    Ok(())
}

/// Gives a time of the last activity to each session that has none.
pub(super) fn fill_last_active(connection: &Connection) -> rusqlite::Result<()> {
    let lack_it = "SELECT 1 FROM sessions WHERE last_active IS NULL OR last_active = ''";
    if !connection.prepare_cached(lack_it)?.exists([])? {
        return Ok(());
    }
    let sql = format!(
        "SELECT id, {}, {} FROM sessions ORDER BY active, id",
        guarded("last_active"),
        guarded("created")
    );
    let mut sessions = connection.prepare(&sql)?;
    let sessions = sessions
        .query_map([], |row| {
            let mut cells = Cells::of(row);
            Ok((row.get(0)?, cells.text(1).unwrap_or_default(), cells.text(2).unwrap_or_default()))
        })?
        .collect::<rusqlite::Result<Vec<(i64, String, String)>>>()?;
    let mut times = ActivityTimes::new();
    for (session, last_active, created) in sessions {
        let time = times.next(&last_active, &created);
        if last_active.is_empty() {
            connection
                .prepare_cached("UPDATE sessions SET last_active = ?2 WHERE id = ?1")?
                .execute(params![session, time])?;
        }
    }
    Ok(())
}

/// Creates a session inside a transaction, at the front of the list.
pub(super) fn insert(connection: &Connection, new: &NewSession) -> Result<SessionId, Fault> {
    if let Some(name) = &new.name {
        check_name(name)?;
    }
    let created_at = new.created_at.clone().unwrap_or_else(now);
    let named_at = new.name.as_ref().map(|_| new.named_at.clone().unwrap_or_else(now));
    let uuid = match new.uuid {
        Some(uuid) => {
            tombstones::revive(connection, uuid)?;
            uuid
        }
        None => Uuid::new_v4(),
    };
    let tick = counts::next_tick(connection)?;
    connection
        .prepare_cached(
            "INSERT INTO sessions (name, worktree, created, active, uuid, forked_from, last_active, named_at, generation)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0)",
        )?
        .execute(params![
            new.name.as_deref().unwrap_or(""),
            new.worktree,
            created_at,
            tick,
            uuid.to_string(),
            new.forked_from.map(|uuid| uuid.to_string()),
            last_active_or_now(new),
            named_at,
        ])
        .map_err(|error| not_inserted(connection, error))?;
    let id = session_id(connection.last_insert_rowid()).map_err(|_| StoreError::NumbersUsedUp)?;
    if new.name.is_none() {
        connection
            .prepare_cached("UPDATE sessions SET name = ?2 WHERE id = ?1")?
            .execute(params![id.number(), id.to_string()])?;
    }
    Ok(id)
}

/// Tells a store whose session numbers are used up from a full disk: SQLite has one error for both.
fn not_inserted(connection: &Connection, error: rusqlite::Error) -> Fault {
    let last = "SELECT seq FROM sqlite_sequence WHERE name = 'sessions'";
    let is_last = || connection.query_row(last, [], |row| row.get(0)) == Ok(i64::MAX);
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) if is_last() => StoreError::NumbersUsedUp.into(),
        _ => error.into(),
    }
}

fn session_id(rowid: i64) -> Result<SessionId, Fault> {
    u32::try_from(rowid)
        .ok()
        .and_then(SessionId::new)
        .ok_or_else(|| Fault::Sqlite(rusqlite::Error::IntegralValueOutOfRange(0, rowid)))
}

pub(super) fn create(
    connection: &mut Connection,
    codec: &mut Codec,
    new: &NewSession,
) -> Result<SessionId, Fault> {
    let transaction = begin(connection)?;
    counts::catch_up(&transaction, codec)?;
    let id = insert(&transaction, new)?;
    connection::commit(transaction)?;
    Ok(id)
}

pub(super) fn find_or_create(
    connection: &mut Connection,
    columns: &SessionColumns,
    codec: &mut Codec,
    name: &str,
    new: &NewSession,
) -> Result<SessionId, Fault> {
    let transaction = begin(connection)?;
    counts::catch_up(&transaction, codec)?;
    // Searched under the lock: another process may have created it meanwhile.
    let id = match find(&transaction, columns, name)?.first() {
        Some(found) => *found,
        None => insert(&transaction, new)?,
    };
    connection::commit(transaction)?;
    Ok(id)
}

/// Whether the name of a session is `?1`, which is the number `?2`. The original program leaves the name empty if it
/// would be the number.
const IS_CALLED: &str = "name = ?1 OR (id = ?2 AND name = '')";

pub(super) fn find(
    connection: &Connection,
    columns: &SessionColumns,
    name: &str,
) -> Result<Vec<SessionId>, Fault> {
    let unnamed = name.parse::<SessionId>().ok().map(SessionId::number);
    let order = columns.in_order(ListOrder::Changes);
    connection
        .prepare_cached(&format!("SELECT id FROM sessions WHERE {IS_CALLED} ORDER BY {order}"))?
        .query_map(params![name, unnamed], |row| row.get(0))?
        .filter_map(|id| id.map(|id| session_id(id).ok()).transpose())
        .map(|id| Ok(id?))
        .collect()
}

/// Returns when a session was created.
pub(super) fn created_at(connection: &Connection, id: SessionId) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached("SELECT created FROM sessions WHERE id = ?1")?
        .query_row([id.number()], |row| Ok(normal_timestamp(&text(row.get_ref(0)?).unwrap_or_default())))
        .optional()
}

pub(super) fn find_uuid(connection: &Connection, uuid: Uuid) -> Result<Option<SessionId>, Fault> {
    connection
        .prepare_cached("SELECT id FROM sessions WHERE uuid = ?1 ORDER BY active DESC, id DESC LIMIT 1")?
        .query_row([uuid.to_string()], |row| row.get(0))
        .optional()?
        .map(session_id)
        .transpose()
}

pub(super) fn exists(connection: &Connection, session: i64) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM sessions WHERE id = ?1")?.exists([session])
}

/// Fails unless a statement changed the session that it was about.
pub(super) fn changed(id: SessionId, rows: usize) -> Result<(), Fault> {
    if rows == 0 { Err(StoreError::NoSuchSession(id).into()) } else { Ok(()) }
}

/// Changes one session by one statement, whose first parameter is its number.
pub(super) fn change(
    connection: &mut Connection,
    id: SessionId,
    sql: &str,
    parameters: &[&dyn rusqlite::ToSql],
) -> Result<(), Fault> {
    let transaction = begin(connection)?;
    let rows = transaction.prepare_cached(sql)?.execute(parameters)?;
    changed(id, rows)?;
    connection::commit(transaction)?;
    Ok(())
}

/// Counts a change that adds no event: [`SessionRecord::revision`].
pub(super) const CHANGED: &str = "changes = min(ifnull(changes, 0) + 1, 9223372036854775807)";

pub(super) fn rename(connection: &mut Connection, id: SessionId, name: &str) -> Result<(), Fault> {
    check_name(name)?;
    let transaction = begin(connection)?;
    let former = transaction
        .prepare_cached("SELECT substr(named_at, 1, 100) FROM sessions WHERE id = ?1")?
        .query_row([id.number()], |row| Ok(text(row.get_ref(0)?).unwrap_or_default()))
        .optional()?
        .ok_or(StoreError::NoSuchSession(id))?;
    transaction
        .prepare_cached(&format!("UPDATE sessions SET name = ?2, named_at = ?3, {CHANGED} WHERE id = ?1"))?
        .execute(params![id.number(), name, later_than(&former)])?;
    connection::commit(transaction)?;
    Ok(())
}

pub(super) fn delete(connection: &mut Connection, id: SessionId) -> Result<(), Fault> {
    let transaction = begin(connection)?;
    tombstones::bury(&transaction, i64::from(id.number()))?;
    // Events and compactions go with their session, by their foreign keys.
    let rows = transaction.execute("DELETE FROM sessions WHERE id = ?1", [id.number()])?;
    changed(id, rows)?;
    marks::remove_of(&transaction, i64::from(id.number()))?;
    marks::forget_last_used(&transaction, i64::from(id.number()))?;
    connection::commit(transaction)?;
    Ok(())
}

/// Notes a run in a column of ours; empty is none. The column of the original program, `last_claude_uuid`, is not
/// ours: a program that finds a note there takes the run for its own.
pub(super) fn note_run(connection: &mut Connection, id: SessionId, run: &str) -> Result<(), Fault> {
    // A note that is there already is no change, and costs no sync.
    let sql = "UPDATE sessions SET run = nullif(?2, '') WHERE id = ?1 AND run IS NOT nullif(?2, '')";
    change_if(connection, id, sql, run).map(drop)
}

/// Removes the note of a run, in the transaction of the turn that stores its events.
pub(super) fn end_run(transaction: &Connection, session: i64) -> rusqlite::Result<()> {
    let mut end =
        transaction.prepare_cached("UPDATE sessions SET run = NULL WHERE id = ?1 AND run IS NOT NULL")?;
    end.execute([session]).map(drop)
}

/// Removes the note of the original program, unless it has noted another run since.
pub(super) fn clear_original_run(
    connection: &mut Connection,
    id: SessionId,
    run: &str,
) -> Result<bool, Fault> {
    let sql = format!(
        "UPDATE sessions SET last_claude_uuid = '', {CHANGED} WHERE id = ?1 AND last_claude_uuid = ?2"
    );
    change_if(connection, id, &sql, run)
}

/// Changes a session by one statement that has a condition. Returns whether it held.
fn change_if(connection: &mut Connection, id: SessionId, sql: &str, value: &str) -> Result<bool, Fault> {
    let transaction = begin(connection)?;
    let rows = transaction.prepare_cached(sql)?.execute(params![id.number(), value])?;
    if rows == 0 && !exists(&transaction, i64::from(id.number()))? {
        return Err(StoreError::NoSuchSession(id).into());
    }
    connection::commit(transaction)?;
    Ok(rows > 0)
}

/// Every command asks for these. With an order, SQLite would read all sessions instead of the index that holds only them.
const NOTED_RUNS: &str = "SELECT id, run FROM sessions WHERE run <> ''";

pub(super) fn noted_runs(connection: &Connection) -> Result<Vec<(SessionId, String)>, Fault> {
    let mut noted = connection
        .prepare_cached(NOTED_RUNS)?
        .query_map([], |row| {
            // One damaged row must not prevent the recovery of other sessions.
            let run = text(row.get_ref(1)?).unwrap_or_default();
            Ok(session_id(row.get(0)?).ok().map(|id| (id, run)))
        })?
        .filter_map(Result::transpose)
        .collect::<rusqlite::Result<Vec<_>>>()?;
    noted.sort();
    Ok(noted)
}

pub(super) fn get(
    connection: &Connection,
    columns: &SessionColumns,
    codec: &mut Codec,
    id: SessionId,
) -> Result<SessionRecord, Fault> {
    let session = i64::from(id.number());
    let read = |columns: &str| {
        let sql = format!("SELECT {columns} FROM sessions WHERE id = ?1");
        connection.prepare_cached(&sql)?.query_row([session], from_row).optional()
    };
    let record = match read(columns.as_str()) {
        Err(error) if is_too_large(&error) => read(columns.guarded())?,
        record => record?,
    };
    let mut record = record.flatten().ok_or(StoreError::NoSuchSession(id))?;
    count(connection, columns, codec, &mut record)?;
    find_covered(connection, columns, codec, &mut record)?;
    record.revision = record.revision.saturating_add(record.counts.events);
    if columns.keep_counts() {
        record.damaged.extend(damaged_state(connection, session)?);
    }
    record.damaged.extend(damaged_rows(connection, session)?);
    Ok(record)
}

/// Counts what a session has, from where its row ends.
fn count(
    connection: &Connection,
    columns: &SessionColumns,
    codec: &mut Codec,
    record: &mut SessionRecord,
) -> Result<(), Fault> {
    let session = i64::from(record.id.number());
    let counted = if columns.keep_counts() { counts::state(connection, session)? } else { None };
    let mut tally = counted.map(|state| state.tally).unwrap_or_default();
    let is_counted = tally.through > Seq::START;
    let through = tally.through;
    counts::count_rest(connection, codec, session, &mut tally, Seq::END)?;
    if tally.through > through
        && let Some(totals) = counts::Totals::of(connection, codec, session)?
    {
        totals.correct(record);
    }
    if !is_counted {
        counts::forget_before_compaction(connection, session, &mut tally)?;
    }
    record.counts = tally.counts;
    Ok(())
}

/// Returns what cannot be read of the columns that are not listed. They are counted again when the session is next
/// appended to.
fn damaged_state(connection: &Connection, session: i64) -> rusqlite::Result<Vec<String>> {
    const NUMBERS: [&str; 4] = ["counted_seq", "tallied_seq", "last_event", "active"];
    const TEXTS: [&str; 2] = ["open_message", "run"];
    let columns = [&NUMBERS[..], &TEXTS[..]].concat().into_iter().map(guarded).collect::<Vec<_>>().join(", ");
    connection.prepare_cached(&format!("SELECT {columns} FROM sessions WHERE id = ?1"))?.query_row(
        [session],
        |row| {
            let mut cells = Cells::of(row);
            for index in 0..NUMBERS.len() {
                cells.integer(index);
            }
            for index in NUMBERS.len()..NUMBERS.len() + TEXTS.len() {
                cells.text(index);
            }
            Ok(cells.damaged)
        },
    )
}

/// Returns what a session has in other tables that cannot be used: summaries, and events without a place.
fn damaged_rows(connection: &Connection, session: i64) -> rusqlite::Result<Vec<String>> {
    // One probe at either end of the session's part of an index; a session has few compactions.
    let (events, summaries): (i64, i64) = connection
        .prepare_cached(&format!(
            "SELECT (SELECT count(*) FROM events WHERE session_id = ?1 AND seq < 1)
                      + (SELECT count(*) FROM events WHERE session_id = ?1 AND seq >= 9223372036854775807)
                      + (SELECT count(*) FROM events WHERE session_id = ?1 AND seq IS NULL),
                    (SELECT count(*) FROM compactions WHERE session_id = ?1 AND NOT ({IS_USABLE}))"
        ))?
        .query_row([session], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let some = |count: i64, what: &str| (count > 0).then(|| format!("{count} {what}"));
    Ok([some(events, "events without a place"), some(summaries, "summaries")].into_iter().flatten().collect())
}

/// The covered size of a summary by a program that does not record it, and the size of a session whose details are not
/// counted.
const UNKNOWN: u64 = u64::MAX;

/// Counts the part that the newest summary of a session covers, if it is not known.
fn find_covered(
    connection: &Connection,
    columns: &SessionColumns,
    codec: &mut Codec,
    record: &mut SessionRecord,
) -> Result<(), Fault> {
    if record.covered != UNKNOWN {
        return Ok(());
    }
    let after_seq =
        compactions(connection, columns, record.id)?.pop().map_or(Seq::START, |newest| newest.after_seq);
    let session = i64::from(record.id.number());
    record.covered = if columns.keep_counts() {
        counts::rendered_through(connection, codec, session, after_seq)?.rendered()
    } else {
        let mut covered = Tally::default();
        counts::count_rest(connection, codec, session, &mut covered, after_seq)?;
        covered.counts.rendered_chars
    };
    Ok(())
}

pub(super) fn list(
    connection: &mut Connection,
    columns: &SessionColumns,
    codec: &mut Codec,
    query: &ListQuery,
) -> Result<Vec<SessionRecord>, Fault> {
    // One snapshot for all that is looked at.
    let snapshot = connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
    match list_as(&snapshot, columns, columns.as_str(), codec, query) {
        Err(Fault::Sqlite(error)) if is_too_large(&error) => {
            list_as(&snapshot, columns, columns.guarded(), codec, query)
        }
        listed => listed,
    }
}

/// Lists sessions, read by this list of columns.
fn list_as(
    snapshot: &Connection,
    columns: &SessionColumns,
    selected: &str,
    codec: &mut Codec,
    query: &ListQuery,
) -> Result<Vec<SessionRecord>, Fault> {
    let limit = query.limit.unwrap_or(usize::MAX);
    let wanted = |record: &SessionRecord| query.matches(record);
    // An older file may have no names, and has no index of them.
    let (condition, values) = match &query.name {
        Some(name) if columns.keep_counts() => of_name(name),
        Some(_) | None => ("true", Vec::new()),
    };
    let sql = list_sql(columns, selected, condition, query.order);
    let mut statement = snapshot.prepare_cached(&sql)?;
    let mut records = statement.query_map(params_from_iter(values), from_row)?.filter_map(Result::transpose);
    if columns.keep_counts() && counts::are_current(snapshot)? {
        let mut listed = Vec::new();
        while listed.len() < limit {
            let Some(record) = records.next().transpose()? else {
                break;
            };
            if wanted(&record) {
                listed.push(record);
            }
        }
        finish(snapshot, columns, codec, &mut listed)?;
        return Ok(listed);
    }
    // Another program has appended without counting. Its sessions were active last.
    let mut listed =
        records.filter(|record| record.as_ref().map_or(true, wanted)).collect::<Result<Vec<_>, _>>()?;
    // Looked up once for all of them: another program may have touched every session.
    let numbers = listed.iter().map(|record| i64::from(record.id.number()));
    let places: HashMap<i64, usize> = numbers.zip(0..).collect();
    let recounted = if columns.keep_counts() {
        for counts::Recounted { session, tally, .. } in counts::recount_stale(snapshot, codec)? {
            if let Some(record) = places.get(&session).and_then(|place| listed.get_mut(*place)) {
                record.counts = tally.counts;
            }
        }
        counts::recount(snapshot, codec)?
    } else {
        counts::recount_all(snapshot, codec)?
    };
    let mut others: Vec<Option<SessionRecord>> = listed.into_iter().map(Some).collect();
    let mut listed = Vec::with_capacity(others.len());
    for counts::Recounted { session, tally, totals, .. } in recounted.into_iter().rev() {
        if let Some(mut record) = places.get(&session).and_then(|place| others.get_mut(*place)?.take()) {
            record.counts = tally.counts;
            if let Some(totals) = totals {
                totals.correct(&mut record);
            }
            listed.push(record);
        }
    }
    listed.extend(others.into_iter().flatten());
    listed.truncate(limit);
    finish(snapshot, columns, codec, &mut listed)?;
    Ok(listed)
}

fn list_sql(columns: &SessionColumns, selected: &str, condition: &str, order: ListOrder) -> String {
    let order = columns.in_order(order);
    format!("SELECT {selected} FROM sessions WHERE {condition} ORDER BY {order}")
}

/// Returns the condition that finds the sessions of a name by the index of names, and its values.
fn of_name(filter: &NameFilter) -> (&'static str, Vec<Value>) {
    match filter {
        NameFilter::Exact(name) => {
            let unnamed = name.parse::<SessionId>().map_or(Value::Null, |id| i64::from(id.number()).into());
            (IS_CALLED, vec![name.clone().into(), unnamed])
        }
        NameFilter::Prefix(prefix) => match NameFilter::end_of_prefix(prefix) {
            Some(end) => ("name >= ?1 AND name < ?2", vec![prefix.clone().into(), end.into()]),
            None => ("name >= ?1", vec![prefix.clone().into()]),
        },
    }
}

/// Counts what the rows of listed sessions do not say.
fn finish(
    connection: &Connection,
    columns: &SessionColumns,
    codec: &mut Codec,
    listed: &mut [SessionRecord],
) -> Result<(), Fault> {
    for record in listed {
        if !record.damaged.is_empty() || record.counts.rendered_chars == UNKNOWN {
            count(connection, columns, codec, record)?;
        }
        find_covered(connection, columns, codec, record)?;
        record.revision = record.revision.saturating_add(record.counts.events);
    }
    Ok(())
}

/// Reads a session from a row of [`SessionColumns`]; `None` if its number is not valid.
///
/// A value of a wrong type, from another program or a damaged page, reads as its nearest valid value: one damaged row
/// must not prevent the listing of others.
fn from_row(row: &Row<'_>) -> rusqlite::Result<Option<SessionRecord>> {
    let Ok(id) = session_id(row.get(0)?) else { return Ok(None) };
    let mut cells = Cells::of(row);
    let name = cells.text(1).unwrap_or_default();
    let mut record = SessionRecord {
        name: if name.is_empty() { id.to_string() } else { name },
        worktree: cells.text(2).unwrap_or_default(),
        created_at: normal_timestamp(&cells.text(3).unwrap_or_default()),
        completed: cells.integer(4).map(|completed| completed != 0),
        duration_ms: cells.count(5),
        cost_usd: cells.real(6),
        tokens: Tokens {
            input: cells.count(7),
            output: cells.count(8),
            cache_read: cells.count(23),
            cache_write: cells.count(24),
        },
        counts: Counts {
            events: cells.count(9),
            messages: cells.count(10),
            preview: cells.text(11),
            agent: cells.text(12),
            model: cells.text(13),
            rendered_chars: cells.count(14).saturating_add_signed(cells.integer(26).unwrap_or(0)),
            context_tokens: cells.integer(15).map(|tokens| unsigned(Some(tokens))),
            last_prompt: cells.text(16),
            answered: cells.integer(17).is_some_and(|answered| answered != 0),
            requested_model: cells.text(18),
        },
        uuid: cells.uuid(19),
        forked_from: cells.uuid(20),
        last_active: normal_timestamp(&cells.text(21).unwrap_or_default()),
        original_run: cells.text(22).filter(|run| !run.is_empty()),
        // The events are added once they are counted.
        revision: cells.count(25),
        named_at: normal_timestamp(&cells.text(29).unwrap_or_default()),
        generation: cells.count(30),
        ..SessionRecord::new(id)
    };
    record.damaged = cells.damaged;
    if !counts::has_details(integer(row.get_ref(28)?), integer(row.get_ref(27)?)) {
        record.counts.rendered_chars = UNKNOWN;
    }
    // Of the newest summary, which is measured again if its measures are no numbers.
    record.covered = match integer(row.get_ref(31)?) {
        Some(unknown) if unknown < 0 => UNKNOWN,
        None if row.get_ref(31)? != ValueRef::Null => UNKNOWN,
        covered => unsigned(covered),
    };
    record.opening = opening(row.get_ref(32)?);
    Ok(Some(record))
}

/// Returns the measured size of a context's opening, or the length of the summary. SQLite's own `length` stops at a NUL
/// character.
fn opening(value: ValueRef<'_>) -> u64 {
    match value {
        ValueRef::Text(summary) => String::from_utf8_lossy(summary).chars().count() as u64,
        measured => unsigned(integer(measured)),
    }
}

pub(super) fn compactions(
    connection: &Connection,
    columns: &SessionColumns,
    id: SessionId,
) -> Result<Vec<Compaction>, Fault> {
    let session = i64::from(id.number());
    let found = connection
        .prepare_cached(&format!(
            "SELECT {} FROM compactions WHERE session_id = ?1 AND {IS_USABLE} ORDER BY after_seq, id",
            columns.of_compactions()
        ))?
        .query_map([session], |row| {
            Ok(Compaction {
                after_seq: events::seq(row.get(0)?),
                summary: text(row.get_ref(1)?).unwrap_or_default(),
                created_at: normal_timestamp(&text(row.get_ref(2)?).unwrap_or_default()),
                writer: text(row.get_ref(3)?),
                opening_chars: integer(row.get_ref(4)?).map(|chars| unsigned(Some(chars))),
            })
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    if found.is_empty() && !exists(connection, session)? {
        return Err(StoreError::NoSuchSession(id).into());
    }
    Ok(found)
}

pub(super) fn add_compaction(
    connection: &mut Connection,
    codec: &mut Codec,
    id: SessionId,
    compaction: &Compaction,
) -> Result<(), Fault> {
    let session = i64::from(id.number());
    let transaction = begin(connection)?;
    if !exists(&transaction, session)? {
        return Err(StoreError::NoSuchSession(id).into());
    }
    insert_compaction(&transaction, codec, id, compaction)?;
    count_change(&transaction, session)?;
    connection::commit(transaction)?;
    Ok(())
}

/// Lays a summary over the events up to a point, inside a transaction.
pub(super) fn insert_compaction(
    connection: &Connection,
    codec: &mut Codec,
    id: SessionId,
    compaction: &Compaction,
) -> Result<(), Fault> {
    let session = i64::from(id.number());
    let Compaction { after_seq, summary, created_at, writer, opening_chars } = compaction;
    let last = events::last_seq(connection, session)?;
    if *after_seq == Seq::START || *after_seq > last {
        return Err(StoreError::NoSuchEvent { session: id, seq: *after_seq, last }.into());
    }
    let covered = params![session, events::integer(*after_seq)];
    connection.execute("DELETE FROM compactions WHERE session_id = ?1 AND after_seq = ?2", covered)?;
    let created_at = given_or_now(created_at);
    let covered = counts::rendered_through(connection, codec, session, *after_seq)?;
    connection.execute(
        "INSERT INTO compactions (session_id, after_seq, summary, created, covers, writer, opening, covered_details)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            session,
            events::integer(*after_seq),
            summary,
            created_at,
            signed(covered.plain),
            writer,
            opening_chars.map(signed),
            covered.details
        ],
    )?;
    forget_model_tokens(connection, session)
}

/// The model will have something else before it, from now on.
fn forget_model_tokens(connection: &Connection, session: i64) -> Result<(), Fault> {
    connection.execute("UPDATE sessions SET model_tokens = NULL WHERE id = ?1", [session])?;
    Ok(())
}

fn count_change(connection: &Connection, session: i64) -> Result<(), Fault> {
    connection.execute(&format!("UPDATE sessions SET {CHANGED} WHERE id = ?1"), [session])?;
    Ok(())
}

pub(super) fn remove_compaction(
    connection: &mut Connection,
    id: SessionId,
    after_seq: Seq,
) -> Result<bool, Fault> {
    let session = i64::from(id.number());
    let transaction = begin(connection)?;
    let removed = transaction.execute(
        "DELETE FROM compactions WHERE session_id = ?1 AND after_seq = ?2",
        params![session, events::integer(after_seq)],
    )?;
    if removed == 0 {
        return if exists(&transaction, session)? {
            Ok(false)
        } else {
            Err(StoreError::NoSuchSession(id).into())
        };
    }
    forget_model_tokens(&transaction, session)?;
    count_change(&transaction, session)?;
    connection::commit(transaction)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn noted_runs_are_found_by_their_index_alone() {
        let connection = Connection::open_in_memory().unwrap();
        schema::create(&connection).unwrap();
        let plan: String =
            connection.query_row(&format!("EXPLAIN QUERY PLAN {NOTED_RUNS}"), [], |row| row.get(3)).unwrap();
        assert!(plan.ends_with("COVERING INDEX idx_sessions_noted_run"), "{plan}");
    }

    #[test]
    fn a_list_is_read_in_its_order() {
        let connection = Connection::open_in_memory().unwrap();
        schema::create(&connection).unwrap();
        let columns = schema::prepare(Path::new("x"), &connection).unwrap();
        for (order, index) in
            [(ListOrder::Activity, "idx_sessions_last_active"), (ListOrder::Changes, "idx_sessions_active")]
        {
            let sql = list_sql(&columns, columns.as_str(), "true", order);
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let steps = plan.query_map([], |row| Ok((row.get(1)?, row.get(3)?))).unwrap();
            let steps: Vec<(i64, String)> = steps.map(Result::unwrap).collect();
            // Below are the steps that look up the summary of one session.
            let own: Vec<&String> = steps.iter().filter(|(of, _)| *of == 0).map(|(_, step)| step).collect();
            assert_eq!(own[0], &format!("SCAN sessions USING INDEX {index}"));
            assert!(!own.iter().any(|step| step.contains("TEMP B-TREE")), "{own:?}");
        }
    }

    #[test]
    fn names_are_found_by_their_index() {
        let connection = Connection::open_in_memory().unwrap();
        schema::create(&connection).unwrap();
        let filters = [
            NameFilter::Exact("login".to_owned()),
            NameFilter::Exact("S3".to_owned()),
            NameFilter::Prefix("log".to_owned()),
        ];
        for filter in filters {
            let (condition, values) = of_name(&filter);
            let sql = format!(
                "EXPLAIN QUERY PLAN SELECT * FROM sessions WHERE {condition} ORDER BY active DESC, id DESC"
            );
            let mut plan = connection.prepare(&sql).unwrap();
            let steps = plan.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
            let steps: Vec<String> = steps.map(Result::unwrap).collect();
            assert!(
                steps.iter().any(|step| step.contains("idx_sessions_name (name")),
                "{filter:?}: {steps:?}"
            );
            assert!(!steps.iter().any(|step| step.starts_with("SCAN")), "{filter:?}: {steps:?}");
        }
    }
}
