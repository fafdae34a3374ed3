//! The rows of an index: states of sessions, blocks, tokens.

use azureal_core::{IndexPart, IndexState, Seq, SessionId};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::labels::labels;

const STATE: &str = "stamp, through, last, changes, agent, active, worktree";

fn read_state(row: &Row<'_>, from: usize) -> rusqlite::Result<IndexState> {
    let number = |column: usize| row.get::<_, i64>(from + column).map(i64::cast_unsigned);
    Ok(IndexState {
        stamp: number(0)?,
        through: Seq(number(1)?),
        last: number(2)?,
        changes: number(3)?,
        agent: row.get(from + 4)?,
        active: row.get(from + 5)?,
        worktree: row.get(from + 6)?,
    })
}

pub(super) fn state_of(connection: &Connection, session: SessionId) -> rusqlite::Result<Option<IndexState>> {
    connection
        .prepare_cached(&format!("SELECT {STATE} FROM sessions WHERE id = ?1"))?
        .query_row([session.number()], |row| read_state(row, 0))
        .optional()
}

pub(super) fn all_states(connection: &Connection) -> rusqlite::Result<Vec<(SessionId, IndexState)>> {
    let mut statement = connection.prepare_cached(&format!("SELECT id, {STATE} FROM sessions"))?;
    let rows = statement.query_map([], |row| Ok((SessionId::new(row.get(0)?), read_state(row, 1)?)))?;
    let known = rows.filter_map(|row| row.map(|(id, state)| id.map(|id| (id, state))).transpose());
    known.collect()
}

pub(super) fn remove(connection: &Connection, session: SessionId) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("SELECT first, count FROM blocks WHERE session = ?1")?;
    let blocks: Vec<(i64, i64)> = statement
        .query_map([session.number()], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (first, count) in blocks {
        connection
            .prepare_cached("DELETE FROM tokens WHERE rowid BETWEEN ?1 AND ?2")?
            .execute([first, first.saturating_add(count) - 1])?;
    }
    connection.prepare_cached("DELETE FROM blocks WHERE session = ?1")?.execute([session.number()])?;
    connection.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([session.number()])?;
    Ok(())
}

pub(super) fn put(connection: &Connection, parts: &[IndexPart]) -> rusqlite::Result<Vec<bool>> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let mut next: i64 =
        transaction.query_row("SELECT coalesce(max(first + count), 1) FROM blocks", [], |row| row.get(0))?;
    let mut added = Vec::with_capacity(parts.len());
    for part in parts {
        let found = state_of(&transaction, part.session)?;
        if part.before.is_none() {
            remove(&transaction, part.session)?;
        }
        let is_next = part.before.is_none() || part.before == found;
        if is_next {
            next = put_part(&transaction, part, next)?;
        }
        added.push(is_next);
    }
    transaction.commit()?;
    Ok(added)
}

/// Adds a part, whose rows begin with `next`, and returns the row after them.
fn put_part(connection: &Connection, part: &IndexPart, mut next: i64) -> rusqlite::Result<i64> {
    let IndexPart { session, before, after, events } = part;
    let start = before.as_ref().map_or(Seq::START, |before| before.through);
    let mut insert =
        connection.prepare_cached("INSERT INTO tokens (rowid, text, labels) VALUES (?1, ?2, ?3)")?;
    let mut insert_block = connection.prepare_cached("INSERT INTO blocks VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    let mut seq = start;
    let mut rest = events.as_slice();
    while seq < after.through {
        // The events without tokens belong to the block of those before them.
        let agent = rest.first().and_then(|event| event.agent.clone());
        let same = rest.iter().take_while(|event| event.agent == agent).count();
        let (block, further) = rest.split_at_checked(same).unwrap_or((rest, &[]));
        let last = further.first().map_or(after.through, |event| Seq(event.seq.0.saturating_sub(1)));
        for event in block {
            let row = next.saturating_add_unsigned(event.seq.0.saturating_sub(seq.0).saturating_sub(1));
            insert.execute(params![row, event.tokens, labels(event)])?;
        }
        let count = last.0.saturating_sub(seq.0).cast_signed();
        insert_block.execute(params![
            next,
            count,
            session.number(),
            seq.next().0.cast_signed(),
            agent,
            block.len() as i64
        ])?;
        next = next.saturating_add(count);
        (seq, rest) = (last, further);
    }
    let IndexState { stamp, through, last, changes, agent, active, worktree } = after;
    connection
        .prepare_cached(
            "INSERT INTO sessions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (id) DO UPDATE SET
             stamp = ?2, through = ?3, last = ?4, changes = ?5, agent = ?6, active = ?7, worktree = ?8",
        )?
        .execute(params![
            session.number(),
            stamp.cast_signed(),
            through.0.cast_signed(),
            last.cast_signed(),
            changes.cast_signed(),
            agent,
            active,
            worktree
        ])?;
    Ok(next)
}
