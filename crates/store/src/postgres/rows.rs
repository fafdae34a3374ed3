//! Parses rows into values of a store.

use azureal_core::{
    Compaction, Counts, Mark, Seq, SessionId, SessionRecord, StoredEvent, Tokens, Tombstone, normal_timestamp,
};
use tokio_postgres::Row;

use super::error::Fault;
use super::text::unescaped;

/// The columns of a session, in the order in which [`session`] reads them.
pub(super) const SESSION: &str = "session, name, worktree, created_at, completed, duration_ms, cost_usd, \
                                  tokens_in, tokens_out, last_seq, messages, preview, agent, model, told, \
                                  context_tokens, last_prompt, answered, requested_model, uuid, \
                                  forked_from, last_active, cache_read, cache_write, changes, named_at, \
                                  generation, \
                                  (SELECT ARRAY[covers, opening] FROM @schema@.compactions \
                                    WHERE compactions.project = sessions.project \
                                      AND compactions.session = sessions.session \
                                    ORDER BY after_seq DESC LIMIT 1)";

/// Reads a session from a row of [`SESSION`].
pub(super) fn session(row: &Row) -> Result<SessionRecord, Fault> {
    let preview: Option<&str> = row.try_get(11)?;
    let agent: Option<&str> = row.try_get(12)?;
    let model: Option<&str> = row.try_get(13)?;
    let context_tokens: Option<i64> = row.try_get(15)?;
    let last_prompt: Option<&str> = row.try_get(16)?;
    let requested_model: Option<&str> = row.try_get(18)?;
    let newest_summary: Option<Vec<i64>> = row.try_get(27)?;
    let mut newest_summary = newest_summary.unwrap_or_default().into_iter().map(unsigned);
    Ok(SessionRecord {
        id: session_id(row.try_get(0)?)?,
        damaged: Vec::new(),
        name: unescaped(row.try_get(1)?),
        named_at: normal_timestamp(row.try_get(25)?),
        generation: unsigned(row.try_get(26)?),
        worktree: unescaped(row.try_get(2)?),
        created_at: normal_timestamp(row.try_get(3)?),
        completed: row.try_get(4)?,
        duration_ms: unsigned(row.try_get(5)?),
        cost_usd: row.try_get(6)?,
        tokens: Tokens {
            input: unsigned(row.try_get(7)?),
            output: unsigned(row.try_get(8)?),
            cache_read: unsigned(row.try_get(22)?),
            cache_write: unsigned(row.try_get(23)?),
        },
        counts: Counts {
            events: unsigned(row.try_get(9)?),
            messages: unsigned(row.try_get(10)?),
            preview: preview.map(unescaped),
            agent: agent.map(unescaped),
            model: model.map(unescaped),
            rendered_chars: unsigned(row.try_get(14)?),
            context_tokens: context_tokens.map(unsigned),
            last_prompt: last_prompt.map(unescaped),
            answered: row.try_get(17)?,
            requested_model: requested_model.map(unescaped),
        },
        covered: newest_summary.next().unwrap_or(0),
        opening: newest_summary.next().unwrap_or(0),
        uuid: Some(row.try_get(19)?),
        forked_from: row.try_get(20)?,
        last_active: normal_timestamp(row.try_get(21)?),
        original_run: None,
        revision: unsigned(row.try_get(24)?).saturating_add(unsigned(row.try_get(9)?)),
    })
}

/// Reads an event from a row of its place, its kind, its text and two facts beside it; `None` if these are missing.
pub(super) fn event(row: &Row) -> Result<Option<StoredEvent>, Fault> {
    let Some(place) = row.try_get::<_, Option<i64>>(0)? else { return Ok(None) };
    let (entry, removed_at): (Option<&str>, Option<&str>) = (row.try_get(3)?, row.try_get(4)?);
    Ok(Some(StoredEvent {
        entry: entry.map(unescaped),
        removed_at: removed_at.map(unescaped),
        ..StoredEvent::new(seq(place), unescaped(row.try_get(1)?), Ok(row.try_get(2)?))
    }))
}

/// Reads a summary from a row of its place, text, time, author and measured size; `None` where these are missing.
pub(super) fn compaction(row: &Row) -> Result<Option<Compaction>, Fault> {
    let Some(after) = row.try_get::<_, Option<i64>>(0)? else { return Ok(None) };
    let writer: Option<&str> = row.try_get(3)?;
    let opening: Option<i64> = row.try_get(4)?;
    Ok(Some(Compaction {
        after_seq: seq(after),
        summary: unescaped(row.try_get(1)?),
        created_at: row.try_get(2)?,
        writer: writer.map(unescaped),
        opening_chars: opening.map(unsigned),
    }))
}

/// Reads a mark from its session and its note.
pub(super) fn mark(row: &Row, session: usize, note: usize) -> Result<Mark, Fault> {
    Ok(Mark { session: session_id(row.try_get(session)?)?, note: unescaped(row.try_get(note)?) })
}

/// Returns the number of a session as PostgreSQL's integer. No session has a number that is too large for it.
pub(super) fn number(id: SessionId) -> i32 {
    i32::try_from(id.number()).unwrap_or(-1)
}

pub(super) fn session_id(number: i32) -> Result<SessionId, Fault> {
    u32::try_from(number)
        .ok()
        .and_then(SessionId::new)
        .ok_or_else(|| Fault::Answer(format!("{number} is not the number of a session")))
}

/// Returns a place as PostgreSQL's integer.
pub(super) fn integer(seq: Seq) -> i64 {
    seq.0.min(Seq::END.0).cast_signed()
}

/// Returns a place from PostgreSQL's integer.
pub(super) fn seq(integer: i64) -> Seq {
    Seq(unsigned(integer))
}

fn unsigned(integer: i64) -> u64 {
    integer.max(0).cast_unsigned()
}

/// PostgreSQL has signed integers; totals that large do not occur.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads a tombstone from a row of its UUID, time, number of events and time of revival.
pub(super) fn tombstone(row: &Row) -> Result<Tombstone, Fault> {
    let revived_at: Option<&str> = row.try_get(3)?;
    Ok(Tombstone {
        uuid: row.try_get(0)?,
        deleted_at: normal_timestamp(row.try_get(1)?),
        events: unsigned(row.try_get(2)?),
        revived_at: revived_at.map(normal_timestamp),
    })
}
