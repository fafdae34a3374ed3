//! The totals of a session: time, cost and tokens.

use std::collections::HashMap;

use azureal_core::event::Complete;
use azureal_core::{Event, NewTurn, SessionId, Tokens};
use rusqlite::{Connection, params};

use super::codec::Codec;
use super::error::Fault;
use super::sessions::{CHANGED, begin, change, changed};
use super::values::signed;
use super::{connection, events};

/// Adds what a turn took to the totals of its session. Integers that grow too large become floats in SQLite,
/// so they stop before.
pub(super) fn add_totals(connection: &Connection, session: i64, turn: &NewTurn) -> rusqlite::Result<()> {
    let (totals, tokens) = (turn.totals(), turn.tokens);
    connection
        .prepare_cached(
            "UPDATE sessions SET completed = ?2,
                    duration_ms = min(ifnull(duration_ms, 0) + ?3, 9223372036854775807),
                    cost_usd = min(ifnull(cost_usd, 0) + ?4, 1e300),
                    tokens_in = min(ifnull(tokens_in, 0) + ?5, 9223372036854775807),
                    tokens_out = min(ifnull(tokens_out, 0) + ?6, 9223372036854775807),
                    cache_read = min(ifnull(cache_read, 0) + ?7, 9223372036854775807),
                    cache_write = min(ifnull(cache_write, 0) + ?8, 9223372036854775807)
             WHERE id = ?1",
        )?
        .execute(params![
            session,
            totals.completed,
            signed(totals.duration_ms),
            totals.cost_usd,
            signed(tokens.input),
            signed(tokens.output),
            signed(tokens.cache_read),
            signed(tokens.cache_write),
        ])?;
    Ok(())
}

/// Adds tokens to the totals of a session; returns the number of sessions that were found.
pub(super) fn add(connection: &Connection, session: i64, tokens: Tokens) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(&format!(
            "UPDATE sessions SET tokens_in = min(ifnull(tokens_in, 0) + ?2, 9223372036854775807),
                    tokens_out = min(ifnull(tokens_out, 0) + ?3, 9223372036854775807),
                    cache_read = min(ifnull(cache_read, 0) + ?4, 9223372036854775807),
                    cache_write = min(ifnull(cache_write, 0) + ?5, 9223372036854775807), {CHANGED} WHERE id = ?1"
        ))?
        .execute(with_counts(session, tokens))
}

/// Returns the number of a session and counts of tokens, as statements take them.
fn with_counts(session: i64, tokens: Tokens) -> [i64; 5] {
    let Tokens { input, output, cache_read, cache_write } = tokens;
    [session, signed(input), signed(output), signed(cache_read), signed(cache_write)]
}

/// Adds up the cache tokens of earlier turns, in a file without totals of them. The events that end turns hold them:
/// SQLite finds these by their kind, without loading other events.
///
/// If they report more input than was counted, some of the events came from another session, as in a fork. Such a
/// session begins at 0.
pub(super) fn sum_cache(connection: &Connection, codec: &mut Codec) -> rusqlite::Result<()> {
    let sql = format!(
        "SELECT session_id, {} FROM events WHERE kind = 'Complete' AND typeof(session_id) = 'integer'",
        events::DATA
    );
    let mut reported: HashMap<i64, Tokens> = HashMap::new();
    let mut ends = connection.prepare(&sql)?;
    let mut rows = ends.query([])?;
    while let Some(row) = rows.next()? {
        let json = codec.unpack(row.get_ref(1)?);
        let event = json.ok().and_then(|json| Event::from_json(&json).ok());
        if let Some(Event::Complete(Complete { usage: Some(usage), .. })) = event {
            let sum = reported.entry(row.get(0)?).or_default();
            *sum = *sum + usage.into();
        }
    }
    reported.retain(|_, tokens| tokens.cache_read > 0 || tokens.cache_write > 0);
    for (session, tokens) in reported {
        connection
            .prepare_cached(
                "UPDATE sessions SET cache_read = min(?3, tokens_in), cache_write = min(?4, tokens_in)
                 WHERE id = ?1 AND typeof(tokens_in) = 'integer' AND tokens_in >= ?2",
            )?
            .execute(params![
                session,
                signed(tokens.input),
                signed(tokens.cache_read),
                signed(tokens.cache_write)
            ])?;
    }
    Ok(())
}

pub(super) fn set(connection: &mut Connection, id: SessionId, tokens: Tokens) -> Result<(), Fault> {
    let sql = format!(
        "UPDATE sessions SET tokens_in = ?2, tokens_out = ?3, cache_read = ?4, cache_write = ?5, {CHANGED}
         WHERE id = ?1"
    );
    let [session, input, output, read, written] = with_counts(i64::from(id.number()), tokens);
    change(connection, id, &sql, params![session, input, output, read, written])
}

pub(super) fn add_to_session(
    connection: &mut Connection,
    id: SessionId,
    tokens: Tokens,
) -> Result<(), Fault> {
    let transaction = begin(connection)?;
    let rows = add(&transaction, i64::from(id.number()), tokens)?;
    changed(id, rows)?;
    connection::commit(transaction)?;
    Ok(())
}
