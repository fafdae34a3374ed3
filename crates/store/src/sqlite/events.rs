//! Events: appending a turn, reading pages, forking, clearing.

use azureal_core::{
    Appended, Damage, NewHistory, NewSession, NewTurn, Operation, Page, Seq, SessionId, StoreError,
    StoredEvent, Tally,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, params};

use super::codec::Codec;
use super::error::Fault;
use super::schema::SessionColumns;
use super::{connection, counts, marks, original_prompts, sessions, tokens, values};
use crate::timestamp::happened_at_or_now;

/// The largest size of an unpacked page, so that a page of large events does not fill the memory.
const LARGEST_PAGE: usize = azureal_core::LARGEST_EVENT;

/// Returns a place as SQLite's integer.
pub(super) fn integer(seq: Seq) -> i64 {
    seq.0.min(Seq::END.0).cast_signed()
}

/// Returns a place from SQLite's integer.
pub(super) fn seq(integer: i64) -> Seq {
    Seq(integer.max(0).cast_unsigned())
}

/// The data of an event, for a `SELECT`. SQLite does not load data that is too large (64 MiB, and 32 KiB for its frame): then
/// this is its size in bytes.
pub(super) const DATA: &str = "CASE WHEN octet_length(data) > 67141632 THEN octet_length(data) ELSE data END";
/// The kind of an event, likewise.
const KIND: &str = "CASE WHEN octet_length(kind) > 1000 THEN '' ELSE kind END";

/// Returns the place of an event. A number that is not whole is rounded in the direction in which events are read, so that
/// the next page does not begin with the same event.
pub(super) fn place(value: ValueRef<'_>, round: fn(f64) -> f64) -> Seq {
    match value {
        ValueRef::Integer(number) => seq(number),
        ValueRef::Real(number) => seq(round(number) as i64),
        // Not in a page: see `select`.
        ValueRef::Null | ValueRef::Text(_) | ValueRef::Blob(_) => Seq::START,
    }
}

/// An event as a row, packed before the lock is taken: packing is most of the work.
struct NewRow<'a> {
    kind: &'a str,
    data: Vec<u8>,
    char_len: i64,
    entry: Option<&'a str>,
    removed_at: Option<&'a str>,
}

/// Packs the rows of a turn.
fn pack<'a>(codec: &mut Codec, turn: &'a NewTurn) -> Result<Vec<NewRow<'a>>, Fault> {
    let texts = turn.texts()?;
    let rows = turn.events.iter().zip(texts).map(|(new, json)| {
        let char_len = json.chars().count().cast_signed() as i64;
        let (entry, removed_at) = (new.entry(), new.removed_at());
        Ok(NewRow { kind: new.event().kind(), data: codec.pack(&json)?, char_len, entry, removed_at })
    });
    Ok(rows.collect::<std::io::Result<_>>()?)
}

pub(super) fn append(
    connection: &mut Connection,
    codec: &mut Codec,
    id: SessionId,
    turn: &NewTurn,
) -> Result<Appended, Fault> {
    let rows = pack(codec, turn)?;
    let transaction = sessions::begin(connection)?;
    if let Some(created) = &turn.session_created
        && sessions::created_at(&transaction, id)?.as_ref() != Some(created)
    {
        return Err(StoreError::NoSuchSession(id).into());
    }
    if let Some(operation) = turn.operation
        && let Some(place) = repeated(&transaction, id, operation)?
    {
        return Ok(place);
    }
    let newest = counts::catch_up(&transaction, codec)?;
    let appended = append_rows(&transaction, codec, id, turn, turn.operation, &rows, newest)?;
    connection::commit(transaction)?;
    Ok(appended)
}

/// Returns the place of a turn that was appended by this operation.
fn repeated(connection: &Connection, id: SessionId, operation: Operation) -> Result<Option<Appended>, Fault> {
    let session = i64::from(id.number());
    let generation = connection
        .prepare_cached("SELECT generation FROM sessions WHERE id = ?1")?
        .query_row([session], |row| Ok(values::unsigned(values::integer(row.get_ref(0)?))))
        .optional()?
        .ok_or(StoreError::NoSuchSession(id))?;
    if generation != operation.generation {
        return Err(StoreError::Cleared(id).into());
    }
    let (first, last): (Option<i64>, Option<i64>) = connection
        .prepare_cached(
            "SELECT min(seq), max(seq) FROM events WHERE operation = ?1 AND session_id = ?2 AND seq > ?3",
        )?
        .query_row(params![operation.id.to_string(), session, integer(operation.after)], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    Ok(first.zip(last).map(|(first, last)| Appended { first: seq(first), last: seq(last) }))
}

/// Creates sessions with their histories, in one transaction. Nothing is created if one of the marks is set.
pub(super) fn create_all(
    connection: &mut Connection,
    codec: &mut Codec,
    histories: &[NewHistory],
) -> Result<Vec<SessionId>, Fault> {
    let mut packed = Vec::with_capacity(histories.len());
    for history in histories {
        packed.push(pack(codec, &history.turn)?);
    }
    let transaction = sessions::begin(connection)?;
    let mut created = Vec::with_capacity(histories.len());
    for (NewHistory { session, turn, compactions }, rows) in histories.iter().zip(&packed) {
        if let Some(mark) = &turn.mark
            && let Some(mark) = marks::get(&transaction, &mark.name)?
        {
            return Err(StoreError::Marked(mark).into());
        }
        counts::catch_up(&transaction, codec)?;
        let id = sessions::insert(&transaction, session)?;
        let newest = Some(counts::next_tick(&transaction)? - 1);
        append_rows(&transaction, codec, id, turn, None, rows, newest)?;
        for compaction in compactions {
            sessions::insert_compaction(&transaction, codec, id, compaction)?;
        }
        created.push(id);
    }
    connection::commit(transaction)?;
    Ok(created)
}

fn append_rows(
    transaction: &Connection,
    codec: &mut Codec,
    id: SessionId,
    turn: &NewTurn,
    operation: Option<Operation>,
    rows: &[NewRow<'_>],
    newest: Option<i64>,
) -> Result<Appended, Fault> {
    let session = i64::from(id.number());
    let mut state = counts::current(transaction, codec, session)?.ok_or(StoreError::NoSuchSession(id))?;
    let before = last_seq(transaction, session)?;
    if let Some(expected) = turn.after.filter(|expected| *expected != before) {
        return Err(StoreError::Moved { session: id, expected, last: before }.into());
    }
    let mut last = before;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO events (session_id, seq, kind, data, char_len, operation, entry, removed)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let operation = operation.map(|operation| operation.id.to_string());
    for (row, number) in rows.iter().zip(1..) {
        last = last.next();
        let NewRow { kind, data, char_len, entry, removed_at } = row;
        // On its ends, so that a repeat finds the place of the turn.
        let operation = operation.as_ref().filter(|_| number == 1 || number == rows.len());
        let place = integer(last);
        insert.execute(params![session, place, kind, data, char_len, operation, entry, removed_at])?;
    }
    if rows.is_empty() {
        tokens::add(transaction, session, turn.tokens)?;
    } else {
        turn.count_into(&mut state.tally, before);
        let last_event = transaction.last_insert_rowid();
        counts::write(transaction, session, &state.tally, Some(last_event))?;
        tokens::add_totals(transaction, session, turn)?;
        // A session that stays where it is in an order is one page less to write.
        if state.active != newest {
            counts::set_tick(transaction, session, counts::after(newest))?;
        }
        counts::set_last_active(transaction, session, &happened_at_or_now(turn))?;
    }
    if let Some(used_in) = turn.used_in.as_deref() {
        marks::set_last_used(transaction, id, used_in)?;
    }
    if let Some(mark) = &turn.mark {
        marks::set(transaction, id, mark)?;
    }
    if turn.ends_run {
        sessions::end_run(transaction, session)?;
    }
    Ok(Appended { first: before.next(), last })
}

/// Returns the last place in a session, which is not always what was counted: others append too.
pub(super) fn last_seq(connection: &Connection, session: i64) -> rusqlite::Result<Seq> {
    connection
        .prepare_cached(
            "SELECT ifnull(max(seq), 0) FROM events WHERE session_id = ?1 AND seq < 9223372036854775807",
        )?
        .query_row([session], |row| Ok(place(row.get_ref(0)?, f64::ceil)))
}

pub(super) fn read(
    connection: &Connection,
    columns: &SessionColumns,
    codec: &mut Codec,
    id: SessionId,
    page: Page,
) -> Result<Vec<StoredEvent>, Fault> {
    let (condition, bound, limit, round): (_, _, _, fn(f64) -> f64) = match page {
        // A text or a BLOB is greater than every number: it has no place, and would be in every page. Nor has the greatest
        // number one, after which there is none.
        Page::After(after, limit) => {
            ("seq > ?2 AND seq < 9223372036854775807 ORDER BY seq LIMIT ?3", after, limit, f64::ceil)
        }
        Page::Before(before, limit) => ("seq < ?2 ORDER BY seq DESC LIMIT ?3", before, limit, f64::floor),
    };
    let of_events = columns.of_events();
    let sql = format!(
        "SELECT seq, {KIND}, {DATA}, char_len, {of_events} FROM events WHERE session_id = ?1 AND {condition}"
    );
    let mut events = select(connection, codec, &sql, round, id, bound, limit)?;
    if matches!(page, Page::Before(..)) {
        events.reverse();
    }
    Ok(events)
}

/// Reads prompts backwards. A partial index holds exactly these; the condition must be its own to the letter.
fn prompts_sql(columns: &SessionColumns) -> String {
    format!(
        "SELECT seq, kind, {DATA}, char_len, {} FROM events WHERE session_id = ?1 AND seq <= ?2
           AND kind IN ('UserMessage', 'Message') ORDER BY seq DESC LIMIT ?3",
        columns.of_events()
    )
}

pub(super) fn read_prompts(
    connection: &Connection,
    columns: &SessionColumns,
    codec: &mut Codec,
    id: SessionId,
    until: Seq,
    limit: usize,
) -> Result<Vec<StoredEvent>, Fault> {
    select(connection, codec, &prompts_sql(columns), f64::floor, id, until, limit)
}

/// Reads the ends of turns and what is needed to attribute them. Other rows are skipped by their kind, without being unpacked.
fn usage_sql(columns: &SessionColumns) -> String {
    format!(
        "SELECT seq, kind, {DATA}, char_len, {} FROM events WHERE session_id = ?1 AND seq > ?2
           AND seq < 9223372036854775807 AND kind IN ('Complete', 'Init', 'ModelSwitch') ORDER BY seq LIMIT ?3",
        columns.of_events()
    )
}

pub(super) fn read_usage(
    connection: &Connection,
    columns: &SessionColumns,
    codec: &mut Codec,
    id: SessionId,
    after: Seq,
    limit: usize,
) -> Result<Vec<StoredEvent>, Fault> {
    select(connection, codec, &usage_sql(columns), f64::ceil, id, after, limit)
}

/// Reads the rows of a statement that takes session, place and limit.
fn select(
    connection: &Connection,
    codec: &mut Codec,
    sql: &str,
    round: fn(f64) -> f64,
    id: SessionId,
    bound: Seq,
    limit: usize,
) -> Result<Vec<StoredEvent>, Fault> {
    let session = i64::from(id.number());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    // Unpacked in place, without a copy. No process can commit meanwhile, so pages are small.
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![session, integer(bound), limit])?;
    let mut size = 0;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        let mut kind = match row.get_ref(1)? {
            ValueRef::Text(kind) | ValueRef::Blob(kind) => String::from_utf8_lossy(kind).into_owned(),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => String::new(),
        };
        let mut json = match row.get_ref(0)? {
            ValueRef::Integer(_) => codec.unpack(row.get_ref(2)?),
            _ => Err(Damage("its place is not a whole number".to_owned())),
        };
        if let Ok(text) = &json
            && let Some(event) = original_prompts::corrected(text, row.get_ref(3)?)
        {
            kind = event.kind().to_owned();
            json = Ok(event.to_json());
        }
        size += json.as_ref().map_or(0, String::len);
        let (entry, removed_at) = (values::text(row.get_ref(4)?), values::text(row.get_ref(5)?));
        events.push(StoredEvent { seq: place(row.get_ref(0)?, round), kind, json, entry, removed_at });
        if size > LARGEST_PAGE {
            break;
        }
    }
    if events.is_empty() && !sessions::exists(connection, session)? {
        return Err(StoreError::NoSuchSession(id).into());
    }
    Ok(events)
}

pub(super) fn fork(
    connection: &mut Connection,
    codec: &mut Codec,
    id: SessionId,
    at: Seq,
    new: &NewSession,
) -> Result<SessionId, Fault> {
    let session = i64::from(id.number());
    let transaction = sessions::begin(connection)?;
    counts::catch_up(&transaction, codec)?;
    let state = counts::current(&transaction, codec, session)?.ok_or(StoreError::NoSuchSession(id))?;
    let last = last_seq(&transaction, session)?;
    let at = match at {
        Seq::END => last,
        at if at > last => {
            return Err(StoreError::NoSuchEvent { session: id, seq: at, last }.into());
        }
        at => at,
    };
    let forked_from = transaction.query_row("SELECT uuid FROM sessions WHERE id = ?1", [session], |row| {
        Ok(values::text(row.get_ref(0)?).and_then(|uuid| uuid.parse().ok()))
    })?;
    let fork = sessions::insert(&transaction, &NewSession { uuid: None, forked_from, ..new.clone() })?;
    let forked = i64::from(fork.number());
    let copied = transaction.execute(
        "INSERT INTO events (session_id, seq, kind, data, char_len, entry, removed)
         SELECT ?1, seq, kind, data, char_len, entry, removed FROM events
         WHERE session_id = ?2 AND seq <= ?3 ORDER BY seq",
        params![forked, session, integer(at)],
    )?;
    let last_event = (copied > 0).then(|| transaction.last_insert_rowid());
    transaction.execute("UPDATE sessions SET copied_seq = ?2 WHERE id = ?1", params![forked, integer(at)])?;
    transaction.execute(
        "INSERT INTO compactions (session_id, after_seq, summary, created, covers, writer, opening, covered_details)
         SELECT ?1, after_seq, summary, created, covers, writer, opening, covered_details FROM compactions
         WHERE session_id = ?2 AND after_seq <= ?3
         ORDER BY id",
        params![forked, session, integer(at)],
    )?;
    let mut tally = if at == last {
        state.tally
    } else {
        // Half a session has to be counted again. That is as much work as copying it.
        let mut tally = Tally::default();
        counts::count_rest(&transaction, codec, forked, &mut tally, at)?;
        tally
    };
    // No model has had this before it yet.
    tally.counts.context_tokens = None;
    counts::write(&transaction, forked, &tally, last_event)?;
    connection::commit(transaction)?;
    Ok(fork)
}

pub(super) fn clear(connection: &mut Connection, codec: &mut Codec, id: SessionId) -> Result<(), Fault> {
    let session = i64::from(id.number());
    let transaction = sessions::begin(connection)?;
    counts::catch_up(&transaction, codec)?;
    if !sessions::exists(&transaction, session)? {
        return Err(StoreError::NoSuchSession(id).into());
    }
    transaction.execute("DELETE FROM events WHERE session_id = ?1", [session])?;
    transaction.execute("DELETE FROM compactions WHERE session_id = ?1", [session])?;
    // The events are counted in the revision, which never falls.
    transaction.execute(
        "UPDATE sessions SET last_event = NULL, completed = NULL, copied_seq = 0,
                generation = min(ifnull(generation, 0) + 1, 9223372036854775807),
                changes = min(ifnull(changes, 0) + ifnull(event_count, 0) + 1, 9223372036854775807)
         WHERE id = ?1",
        [session],
    )?;
    counts::write(&transaction, session, &Tally::default(), None)?;
    connection::commit(transaction)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn prompts_are_found_by_their_index_alone() {
        let connection = Connection::open_in_memory().unwrap();
        super::super::schema::create(&connection).unwrap();
        let sql = prompts_sql(&super::super::schema::prepare(Path::new("x"), &connection).unwrap());
        let plan: String = connection
            .query_row(&format!("EXPLAIN QUERY PLAN {sql}"), params![1, 1, 1], |row| row.get(3))
            .unwrap();
        assert!(plan.contains("idx_events_prompts (session_id=? AND seq<?)"), "{plan}");
        assert_eq!(azureal_core::PROMPT_KINDS, ["UserMessage", "Message"], "the kinds of the index");
    }
}
