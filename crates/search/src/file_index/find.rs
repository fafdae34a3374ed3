//! The query of an index.

use std::collections::HashMap;
use std::fmt::Write;

use azureal_core::{IndexHit, IndexKind, IndexPhrase, IndexQuery, Seq, SessionId};
use rusqlite::{Connection, OptionalExtension, params};

use super::labels::label;
use super::rows::state_of;

/// Writes a query in the language of FTS5. Tokens have no character that means something in it.
fn expression(query: &IndexQuery) -> String {
    let mut expression = query.condition.write(" AND ", " OR ", &|IndexPhrase { tokens, is_prefix }| {
        format!("\"{}\"{}", tokens.join(" "), if *is_prefix { " *" } else { "" })
    });
    let labels = [
        query.roles.iter().map(|role| label('r', role)).collect::<Vec<_>>(),
        query.tools.iter().map(|tool| label('t', tool)).collect(),
    ];
    for labels in labels.iter().filter(|labels| !labels.is_empty()) {
        let quoted: Vec<String> = labels.iter().map(|label| format!("\"{label}\"")).collect();
        let _ = write!(expression, " AND ({})", quoted.join(" OR "));
    }
    for tool in &query.without_tools {
        let _ = write!(expression, " NOT \"{}\"", label('t', tool));
    }
    expression
}

struct Block {
    first: i64,
    after: i64,
    session: SessionId,
    seq: i64,
    agent: Option<String>,
    /// What the query says of its session; `None` if it does not want the block.
    active: Option<i64>,
}

/// The most events with a prefix that are ranked. FTS5 gathers all tokens with a prefix again for each of its ranks, which takes
/// seconds for a short one.
const MOST_RANKED_PREFIX: usize = 1_000;

/// The score of events that are all the same.
const ALIKE: &str = "-1.0";
/// The score of a text. How rare its role and its tool are says nothing of it.
const BM25: &str = "bm25(tokens, 1.0, 0.0)";

/// Finds events, the ones that were indexed last first.
pub(super) fn find(
    connection: &Connection,
    kind: IndexKind,
    query: &IndexQuery,
) -> rusqlite::Result<Vec<IndexHit>> {
    if kind == IndexKind::Substrings {
        // The number of times that a text has three characters says nothing.
        return find_scored(connection, query, ALIKE);
    }
    if query.condition.has(&|phrase| phrase.is_prefix) {
        let hits = find_scored(connection, query, ALIKE)?;
        if hits.len() > MOST_RANKED_PREFIX {
            return Ok(hits);
        }
    }
    find_scored(connection, query, BM25)
}

/// Finds events with this score of FTS5, of which the smallest is the best.
fn find_scored(connection: &Connection, query: &IndexQuery, score: &str) -> rusqlite::Result<Vec<IndexHit>> {
    let Some((least, most)) = rows_of(connection, query)? else { return Ok(Vec::new()) };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT rowid, {score} FROM tokens WHERE tokens MATCH ?1 AND rowid BETWEEN ?2 AND ?3 ORDER BY rowid DESC",
    ))?;
    let mut block_at = connection.prepare_cached(
        "SELECT first, count, session, seq, agent FROM blocks WHERE first <= ?1 ORDER BY first DESC LIMIT 1",
    )?;
    let mut rows = statement.query(params![expression(query), least, most])?;
    let mut hits = Vec::new();
    let mut block: Option<Block> = None;
    let mut sessions: HashMap<SessionId, Option<i64>> = HashMap::new();
    while let Some(row) = rows.next()? {
        let place: i64 = row.get(0)?;
        if !block.as_ref().is_some_and(|block| (block.first..block.after).contains(&place)) {
            block = block_at
                .query_row([place], |row| {
                    let (first, count): (i64, i64) = (row.get(0)?, row.get(1)?);
                    let after = first.saturating_add(count);
                    let session = SessionId::new(row.get(2)?).ok_or(rusqlite::Error::InvalidQuery)?;
                    Ok(Block { first, after, session, seq: row.get(3)?, agent: row.get(4)?, active: None })
                })
                .optional()?;
            if let Some(block) = &mut block {
                let is_agent = query.agents.is_empty()
                    || block.agent.as_ref().is_some_and(|agent| query.agents.contains(agent));
                if is_agent {
                    block.active = match sessions.get(&block.session) {
                        Some(active) => *active,
                        None => {
                            let active = wanted_session(connection, query, block.session)?;
                            sessions.insert(block.session, active);
                            active
                        }
                    };
                }
            }
        }
        let Some(Block { first, session, seq, agent, active: Some(active), .. }) = &block else { continue };
        hits.push(IndexHit {
            session: *session,
            seq: Seq(seq.saturating_add(place - first).cast_unsigned()),
            agent: agent.clone(),
            active: *active,
            score: -row.get::<_, f64>(1)?,
        });
        if hits.len() >= query.limit {
            break;
        }
    }
    Ok(hits)
}

/// Returns the range of rows to look at; `None` if there is none.
fn rows_of(connection: &Connection, query: &IndexQuery) -> rusqlite::Result<Option<(i64, i64)>> {
    let Some(sessions) = &query.sessions else { return Ok(Some((0, i64::MAX))) };
    let mut range: Option<(i64, i64)> = None;
    let sql = "SELECT min(first), max(first + count) FROM blocks WHERE session = ?1";
    for session in sessions {
        let found: (Option<i64>, Option<i64>) = connection
            .prepare_cached(sql)?
            .query_row([session.number()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if let (Some(first), Some(after)) = found {
            let (least, most) = range.unwrap_or((i64::MAX, 0));
            range = Some((least.min(first), most.max(after - 1)));
        }
    }
    Ok(range)
}

/// Returns the time of a session's last activity, if the query wants the session.
fn wanted_session(
    connection: &Connection,
    query: &IndexQuery,
    session: SessionId,
) -> rusqlite::Result<Option<i64>> {
    let is_named = query.sessions.as_ref().is_none_or(|sessions| sessions.contains(&session));
    if !is_named || query.without == Some(session) {
        return Ok(None);
    }
    let Some(state) = state_of(connection, session)? else { return Ok(None) };
    let is_wanted = query.worktree.as_ref().is_none_or(|worktree| worktree.matches(&state.worktree))
        && query.since.is_none_or(|since| state.active >= since);
    Ok(is_wanted.then_some(state.active))
}
