//! The search index of a store in PostgreSQL: our tokens as lexemes, in a GIN index.
//!
//! A `tsvector` has at most 16,383 places, and 1 MiB of lexemes. So it has no places here: a phrase finds events with all of its tokens, which
//! the search then compares. An event with too many tokens is found by every query.
//!
//! The tables of sessions and of events may be restored, copied or emptied apart from each other. So each part of a session that is indexed adds a
//! receipt to the events: a row without words, whose place is that of its last event, below 0.

use std::collections::BTreeSet;
use std::fmt::Write;

use azureal_core::{
    IndexHit, IndexPart, IndexPhrase, IndexQuery, IndexState, IndexedEvent, SearchIndex, Seq, SessionId,
    StoreError, TOKENS_VERSION, async_trait, counted,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::error::Fault;
use super::text::{escaped, unescaped};
use super::{PostgresStore, rows};

/// The most bytes of lexemes in a row; PostgreSQL has room for 1 MiB.
const MOST_BYTES: usize = 900_000;
/// Stands before a label, which is no token of a text.
const LABEL: char = '\u{E000}';
/// The label of an event with too many tokens.
const LARGE: &str = "\u{E000}l";
/// The usual number of tokens of an event, for its score.
const USUAL_LENGTH: f64 = 60.0;

const VERSION: i32 = TOKENS_VERSION.cast_signed();

impl PostgresStore {
    /// Returns whether this user may write the index, and the server takes it.
    pub(super) async fn may_index(&self) -> Result<bool, StoreError> {
        if let Some(known) = self.may_index.get() {
            return Ok(*known);
        }
        // The tables are missing in a store that an early build of this version has made.
        let call = self.call(
            "SELECT $1::text IS NOT NULL AND current_setting('transaction_read_only') = 'off' AND coalesce(bool_and(
               has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
               AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')) AND count(*) = 2, false)
             FROM pg_class
             WHERE oid IN (to_regclass('@schema@.search_sessions')::oid, to_regclass('@schema@.search_events')::oid)",
        );
        let may = self.is_there(call).await?;
        Ok(*self.may_index.get_or_init(|| may))
    }

    /// Returns the label of the project and of the version.
    fn project_label(&self) -> String {
        let project = fnv(self.project.as_bytes());
        format!("{LABEL}p{project:016x}{VERSION}")
    }

    fn lexemes(&self, event: &IndexedEvent) -> String {
        let mut lexemes: BTreeSet<&str> = event.tokens.split(' ').filter(|token| !token.is_empty()).collect();
        let mut labels = vec![self.project_label(), label('r', event.role)];
        labels.extend(event.tool.as_deref().map(|tool| label('t', tool)));
        labels.extend(event.agent.as_deref().map(|agent| label('a', agent)));
        // Each has four bytes of its own beside the text.
        if lexemes.iter().map(|lexeme| lexeme.len() + 4).sum::<usize>() > MOST_BYTES {
            lexemes.clear();
            labels.push(LARGE.to_owned());
        }
        lexemes.extend(labels.iter().map(String::as_str));
        lexemes.into_iter().collect::<Vec<_>>().join(" ")
    }

    /// Writes a query in the language of PostgreSQL.
    fn tsquery(&self, query: &IndexQuery) -> String {
        let words = query.condition.write(" & ", " | ", &|IndexPhrase { tokens, is_prefix }| {
            // Tokens have neither quotes nor backslashes.
            let tokens: Vec<String> = tokens.iter().map(|token| format!("'{token}'")).collect();
            format!("({}{})", tokens.join(" & "), if *is_prefix { ":*" } else { "" })
        });
        let mut text = format!("'{}' & ({words} | '{LARGE}')", self.project_label());
        let labels = [
            query.roles.iter().map(|role| label('r', role)).collect::<Vec<_>>(),
            query.tools.iter().map(|tool| label('t', tool)).collect(),
            query.agents.iter().map(|agent| label('a', agent)).collect(),
        ];
        for labels in labels.iter().filter(|labels| !labels.is_empty()) {
            let quoted: Vec<String> = labels.iter().map(|label| format!("'{label}'")).collect();
            write!(text, " & ({})", quoted.join(" | ")).ok();
        }
        for tool in &query.without_tools {
            write!(text, " & !'{}'", label('t', tool)).ok();
        }
        text
    }
}

/// Returns a label of a sort. Its value is a hash: it may be any text, of any length.
fn label(sort: char, value: &str) -> String {
    format!("{LABEL}{sort}{:016x}", fnv(value.as_bytes()))
}

/// FNV-1a. It is in the database, so it must not change with the version of the compiler.
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[async_trait]
impl SearchIndex for PostgresStore {
    async fn sessions(&self) -> Result<u64, StoreError> {
        let call = self
            .call("SELECT count(*) FROM @schema@.search_sessions WHERE project = $1 AND version = $2 AND session > 0")
            .with(Type::INT4, VERSION);
        self.one(call, |row| Ok(row.try_get::<_, i64>(0)?.cast_unsigned())).await
    }

    async fn states(
        &self,
        sessions: Option<&[SessionId]>,
    ) -> Result<Vec<(SessionId, IndexState)>, StoreError> {
        let numbers: Option<Vec<i32>> =
            sessions.map(|sessions| sessions.iter().map(|id| rows::number(*id)).collect());
        let call = self
            .call(
                "SELECT session, stamp, through, last, changes, agent, active, worktree FROM @schema@.search_sessions
                 WHERE project = $1 AND version = $2 AND session > 0 AND ($3::int4[] IS NULL OR session = ANY ($3))",
            )
            .with(Type::INT4, VERSION)
            .with(Type::INT4_ARRAY, numbers);
        let found = self.rows(call).await?;
        self.placed(found.iter().map(state).collect())
    }

    async fn put(&self, parts: Vec<IndexPart>) -> Result<Vec<bool>, StoreError> {
        let mut added = Vec::with_capacity(parts.len());
        for IndexPart { session, before, after, events } in parts {
            let text = |text: &String| escaped(text).into_owned();
            let start = before.as_ref().map_or(Seq::START, |state| state.through);
            let receipt = (start < after.through).then(|| -rows::integer(after.through));
            let seqs: Vec<i64> = events.iter().map(|event| rows::integer(event.seq)).chain(receipt).collect();
            let words: Vec<String> = events
                .iter()
                .map(|event| self.lexemes(event))
                .chain(receipt.map(|_| self.project_label()))
                .collect();
            let agents: Vec<Option<String>> = events
                .iter()
                .map(|event| event.agent.as_ref().map(text))
                .chain(receipt.map(|_| None))
                .collect();
            let length =
                |event: &IndexedEvent| i32::try_from(event.tokens.split(' ').count()).unwrap_or(i32::MAX);
            let lengths: Vec<i32> = events.iter().map(length).chain(receipt.map(|_| 0)).collect();
            let size = words.iter().map(String::len).sum();
            let call = self
                .function("search_put")
                .long()
                .sending(size)
                .named("in_session", Type::INT4, rows::number(session))
                .named("in_version", Type::INT4, VERSION)
                .named(
                    "in_expected_stamp",
                    Type::INT8,
                    before.as_ref().map(|state| state.stamp.cast_signed()),
                )
                .named(
                    "in_expected_through",
                    Type::INT8,
                    before.as_ref().map(|state| rows::integer(state.through)),
                )
                .named("in_stamp", Type::INT8, after.stamp.cast_signed())
                .named("in_through", Type::INT8, rows::integer(after.through))
                .named("in_last", Type::INT8, after.last.cast_signed())
                .named("in_changes", Type::INT8, after.changes.cast_signed())
                .named("in_agent", Type::TEXT, after.agent.as_ref().map(text))
                .named("in_active", Type::INT8, after.active)
                .named("in_worktree", Type::TEXT, text(&after.worktree))
                .named("in_seqs", Type::INT8_ARRAY, seqs)
                .named("in_agents", Type::TEXT_ARRAY, agents)
                .named("in_lengths", Type::INT4_ARRAY, lengths)
                .named("in_words", Type::TEXT_ARRAY, words);
            added.push(self.is_there(call).await?);
        }
        Ok(added)
    }

    async fn remove(&self, sessions: &[SessionId]) -> Result<(), StoreError> {
        let numbers: Vec<i32> = sessions.iter().map(|id| rows::number(*id)).collect();
        let call = self
            .call(
                "WITH gone AS (DELETE FROM @schema@.search_sessions WHERE project = $1 AND session = ANY ($2))
                 DELETE FROM @schema@.search_events WHERE project = $1 AND session = ANY ($2)",
            )
            .long()
            .with(Type::INT4_ARRAY, numbers);
        self.rows(call).await.map(drop)
    }

    async fn find(&self, query: &IndexQuery) -> Result<Vec<IndexHit>, StoreError> {
        let sessions: Option<Vec<i32>> =
            query.sessions.as_ref().map(|sessions| sessions.iter().map(|id| rows::number(*id)).collect());
        let names: Option<Vec<String>> = query
            .worktree
            .as_ref()
            .map(|worktree| worktree.names.iter().map(|name| escaped(name).into_owned()).collect());
        let call = self
            .call(
                "SELECT event.session, event.seq, event.agent, known.active, event.length
                 FROM @schema@.search_events AS event JOIN @schema@.search_sessions AS known USING (project, session, version)
                 WHERE event.project = $1 AND event.version = $2 AND event.words @@ $3::text::tsquery
                   AND ($4::int4[] IS NULL OR event.session = ANY ($4)) AND ($5::int4 IS NULL OR event.session <> $5)
                   AND ($6::int8 IS NULL OR known.active >= $6)
                   AND ($7::text[] IS NULL OR known.worktree = ANY ($7) OR (left(known.worktree, 1) = '/'
                     AND split_part(reverse(rtrim(known.worktree, '/')), '/', 1) = reverse($8)))
                 ORDER BY known.active DESC, event.session DESC, event.seq DESC LIMIT $9",
            )
            .long()
            .with(Type::INT4, VERSION)
            .with(Type::TEXT, self.tsquery(query))
            .with(Type::INT4_ARRAY, sessions)
            .with(Type::INT4, query.without.map(rows::number))
            .with(Type::INT8, query.since)
            .with(Type::TEXT_ARRAY, names)
            .with(Type::TEXT, query.worktree.as_ref().map(|worktree| escaped(&worktree.last_part).into_owned()))
            .with(Type::INT8, i64::try_from(query.limit).unwrap_or(i64::MAX));
        let found = self.rows(call).await?;
        self.placed(found.iter().map(hit).collect())
    }

    fn is_exact(&self, query: &IndexQuery) -> bool {
        !query.condition.has(&|phrase| phrase.tokens.len() > 1)
    }

    async fn checked(&self) -> Result<Option<u64>, StoreError> {
        let call = self
            .call("SELECT through FROM @schema@.search_sessions WHERE project = $1 AND version = $2 AND session = 0")
            .with(Type::INT4, VERSION);
        let found = self.rows(call).await?;
        let checked = found.first().map(|row| Ok(row.try_get::<_, i64>(0)?.cast_unsigned()));
        self.placed(checked.transpose())
    }

    async fn check(&self) -> Result<(), StoreError> {
        // The limit makes it one look at the key for each session, not a join with all events.
        let call = self
            .call(
                "WITH lost AS (
                   DELETE FROM @schema@.search_sessions AS known
                   WHERE project = $1 AND version = $2 AND session > 0 AND through > 0 AND (
                     SELECT true FROM @schema@.search_events AS event
                     WHERE event.project = $1 AND event.session = known.session AND event.version = $2
                       AND event.seq = -known.through LIMIT 1) IS NULL
                   RETURNING session)
                 SELECT count(*) FROM lost",
            )
            .long()
            .with(Type::INT4, VERSION);
        match self.one(call, |row| Ok(row.try_get::<_, i64>(0)?.cast_unsigned())).await? {
            0 => Ok(()),
            lost => Err(StoreError::Other {
                place: "the search index".to_owned(),
                source: format!(
                    "it lacks the events of {}; the next search adds them",
                    counted(lost, "session")
                )
                .into(),
            }),
        }
    }

    async fn set_checked(&self, now: u64) -> Result<(), StoreError> {
        // What an older version has left is of no use any more.
        let call = self
            .call(
                "WITH old AS (DELETE FROM @schema@.search_events WHERE project = $1 AND version < $2),
                   old_sessions AS (DELETE FROM @schema@.search_sessions WHERE project = $1 AND version < $2)
                 INSERT INTO @schema@.search_sessions (project, session, version, stamp, through, last, changes, active, worktree)
                 VALUES ($1, 0, $2, 0, $3, 0, 0, 0, '')
                 ON CONFLICT (project, session, version) DO UPDATE SET through = EXCLUDED.through",
            )
            .long()
            .with(Type::INT4, VERSION)
            .with(Type::INT8, now.cast_signed());
        self.rows(call).await.map(drop)
    }
}

fn state(row: &Row) -> Result<(SessionId, IndexState), Fault> {
    let number = |column: usize| -> Result<u64, Fault> { Ok(row.try_get::<_, i64>(column)?.cast_unsigned()) };
    let agent: Option<&str> = row.try_get(5)?;
    let state = IndexState {
        stamp: number(1)?,
        through: rows::seq(row.try_get(2)?),
        last: number(3)?,
        changes: number(4)?,
        agent: agent.map(unescaped),
        active: row.try_get(6)?,
        worktree: unescaped(row.try_get(7)?),
    };
    Ok((rows::session_id(row.try_get(0)?)?, state))
}

fn hit(row: &Row) -> Result<IndexHit, Fault> {
    let agent: Option<&str> = row.try_get(2)?;
    let length: i32 = row.try_get(4)?;
    // BM25 of a text that has the words once: how often it has them is not known here.
    let score = 2.2 / (1.0 + 1.2 * (0.25 + 0.75 * f64::from(length) / USUAL_LENGTH));
    Ok(IndexHit {
        session: rows::session_id(row.try_get(0)?)?,
        seq: rows::seq(row.try_get(1)?),
        agent: agent.map(unescaped),
        active: row.try_get(3)?,
        score,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_a_lexeme_of_any_text() {
        let label = label('t', "it's a \\ tool");
        assert!(label.chars().skip(1).all(|c| c.is_ascii_alphanumeric()), "{label}");
        assert_ne!(label, super::label('t', "it's a tool"));
    }
}
