//! Sessions in a PostgreSQL database, for several people and machines.
//!
//! `docs/postgres.md` describes the tables and how to operate them. Every change is one call of a function in the
//! database: one round trip and one transaction. The functions are part of the schema, in `schema/`
//! (`docs/decisions/0005-postgres-functions.md` has the reason). This module calls them.

mod address;
mod connection;
mod dial;
mod error;
mod frames;
mod leases;
mod originals;
mod passfile;
mod pieces;
mod recount;
mod rows;
mod schema;
mod search;
mod text;
mod tls;
mod upgrade;
mod values;
mod watch;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use azureal_core::{
    Appended, Compaction, CrashNotes, LARGEST_EVENT, Leases, ListQuery, Mark, NewSession, NewTurn, Originals,
    Page, SearchIndex, Seq, SessionId, SessionRecord, SessionStore, StoreError, StoredEvent, Tally, Tokens,
    Tombstone, Watch, async_trait, check_name, read_rendered_through,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

pub use address::PostgresAddress;
use connection::{ARGUMENTS, Call, Connections};
use error::Fault;
pub(crate) use error::hint;
use originals::LocalOriginals;
use schema::{ProjectNames, Upgrade};
use text::escaped;
use values::{
    LAST_ACTIVE, PROMPTS, USAGE, list_sql, page_sql, texts_of, with_compaction, with_compactions,
    with_filters, with_fork, with_session, with_tokens, with_turn,
};

use crate::originals::FileStore;
pub use crate::originals::Mask;
use crate::server::{OPEN_TIMEOUT, ServerStore, check_compactions, check_new, number_of, tally_through};

/// The largest page, so that a page of large events does not fill the memory.
const LARGEST_PAGE: i64 = LARGEST_EVENT as i64;
/// The page size that the usual time limit covers.
const USUAL_PAGE: usize = 16 << 20;

/// The options of a store.
#[derive(Debug, Clone, Copy)]
pub struct PostgresOptions {
    /// The largest number of connections. A watch has an additional one.
    pub connections: usize,
    /// The time for which a call is retried while the server does not answer. Then it is an error.
    pub retry_budget: Duration,
    /// Called while opening waits for another client, with the reason in one line.
    pub report_wait: fn(&str),
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { connections: 8, retry_budget: Duration::from_secs(30), report_wait: |_| {} }
    }
}

/// Stores the sessions of one project in a PostgreSQL database.
///
/// It has its own runtime, so the caller needs none.
///
/// ```no_run
/// # futures_executor::block_on(async {
/// use azureal_store::core::{Event, NewSession, SessionStore, NewTurn};
/// use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
///
/// let address: PostgresAddress = "postgres://ada@db.example/team?project=engine".parse()?;
/// let store = PostgresStore::open(&address, PostgresOptions::default()).await?;
/// let id = store.create(NewSession::default()).await?;
/// store.append(id, NewTurn::verbatim([Event::user("Hello")])).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct PostgresStore {
    /// An open original has a part in them.
    connections: Arc<Connections>,
    schema: String,
    project: String,
    /// The former name of the project, while it is not settled whose the sessions under it are.
    former: Option<String>,
    id: Uuid,
    originals: Option<LocalOriginals>,
    /// Whether the search index can be written, once that is known.
    may_index: OnceLock<bool>,
}

impl PostgresStore {
    /// Opens the store, and creates its tables if there are none.
    pub async fn open(address: &PostgresAddress, options: PostgresOptions) -> Result<Self, StoreError> {
        let connections = Arc::new(Connections::start(address, options)?);
        let retry_budget = options.retry_budget.min(OPEN_TIMEOUT);
        let name = address.project.name_or_default();
        let former = address.project.former.as_deref();
        let names = ProjectNames { project: name, former };
        let upgrade = Upgrade::new(address.schema(), connections.place(), &options);
        let found = schema::prepare(&connections, upgrade, names, retry_budget).await?;
        // A name that has been settled, either way, is not asked about again.
        let id = found.id;
        let former = former.filter(|_| found.has_former && found.kept_as.is_none()).map(str::to_owned);
        let project = found.kept_as.unwrap_or_else(|| name.to_owned());
        Ok(Self {
            connections,
            schema: address.schema().to_owned(),
            project,
            former,
            id,
            originals: None,
            may_index: OnceLock::new(),
        })
    }

    /// Begins a call. Its first value, `$1`, is the project.
    fn call(&self, sql: &str) -> Call {
        Call::new(schema::in_schema(sql, &self.schema)).with(Type::TEXT, self.project.clone())
    }

    /// Begins a call of a function. Its first argument is the project.
    fn function(&self, name: &str) -> Call {
        let sql = format!("SELECT * FROM @schema@.{name}({ARGUMENTS})");
        let project = self.project.clone();
        Call::new(schema::in_schema(&sql, &self.schema)).named("in_project", Type::TEXT, project)
    }

    /// Begins a call of a function that the server does once, however often it is asked: two arguments name the operation,
    /// and say whether it has been asked before.
    fn operation(&self, name: &str) -> Call {
        self.operation_of(name, Uuid::now_v7())
    }

    fn operation_of(&self, name: &str, id: Uuid) -> Call {
        self.function(name)
            .named("in_operation", Type::UUID, id)
            .named_whether_repeated("in_repeated")
            .changing()
    }

    async fn rows(&self, call: Call) -> Result<Vec<Row>, StoreError> {
        self.connections.call(call).await
    }

    /// Runs a call that has exactly one row for an answer, and reads it.
    async fn one<R>(
        &self,
        call: Call,
        read: impl FnOnce(&Row) -> Result<R, Fault> + Send,
    ) -> Result<R, StoreError> {
        let rows = self.rows(call).await?;
        let answer = rows.first().ok_or_else(|| Fault::Answer("an answer is missing".to_owned()));
        self.placed(answer.and_then(read))
    }

    /// Adds the name of the store to a fault.
    fn placed<R>(&self, answer: Result<R, Fault>) -> Result<R, StoreError> {
        answer.map_err(|fault| fault.at(self.connections.place(), Duration::ZERO))
    }

    /// Runs a call that answers whether there was what it was about.
    async fn is_there(&self, call: Call) -> Result<bool, StoreError> {
        self.one(call, |row| Ok(row.try_get(0)?)).await
    }

    /// Runs a call that has a row for an answer if there is such a session.
    async fn change(&self, id: SessionId, call: Call) -> Result<(), StoreError> {
        let rows = self.rows(call).await?;
        if rows.is_empty() { Err(StoreError::NoSuchSession(id)) } else { Ok(()) }
    }

    /// Runs a call that finds sessions, and returns the first.
    async fn first_session(&self, call: Call) -> Result<Option<SessionId>, StoreError> {
        let found = self.rows(call).await?;
        self.placed(found.first().map(|row| rows::session_id(row.try_get(0)?)).transpose())
    }

    /// Returns the number that the next session has.
    async fn next_number(&self) -> Result<SessionId, StoreError> {
        let call =
            self.call("SELECT coalesce(max(last_session), 0) + 1 FROM @schema@.projects WHERE project = $1");
        self.one(call, |row| rows::session_id(row.try_get(0)?)).await
    }

    /// An outcome that no version of the functions has.
    fn unknown(&self, outcome: &str) -> StoreError {
        Fault::Answer(format!("the database answered {outcome:?}"))
            .at(self.connections.place(), Duration::ZERO)
    }

    /// Counts the events up to `at` from the beginning; returns the generation of the session with it.
    async fn count(&self, id: SessionId, at: Seq) -> Result<(i64, Tally), StoreError> {
        let look = self
            .call("SELECT generation, last_seq FROM @schema@.sessions WHERE project = $1 AND session = $2")
            .with(Type::INT4, rows::number(id));
        let found = self.rows(look).await?;
        let row = found.first().ok_or(StoreError::NoSuchSession(id))?;
        let (generation, last): (i64, i64) = self.placed(two(row))?;
        Ok((generation, tally_through(self, id, at, rows::seq(last)).await?))
    }

    async fn read_page(&self, id: SessionId, page: Page) -> Result<Vec<StoredEvent>, StoreError> {
        let (bound, limit) = match page {
            Page::After(after, limit) => (after, limit),
            Page::Before(before, limit) => (before, limit),
        };
        self.events(id, page_sql(page), bound, limit).await
    }

    /// Reads the events that a statement of [`values`] finds.
    async fn events(
        &self,
        id: SessionId,
        sql: &str,
        bound: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let call = self
            .call(sql)
            .with(Type::INT4, rows::number(id))
            .with(Type::INT8, rows::integer(bound))
            .with(Type::INT8, i64::try_from(limit).unwrap_or(i64::MAX))
            .with(Type::INT8, LARGEST_PAGE)
            // A page is that large only where its events are.
            .sending(USUAL_PAGE);
        let found = self.rows(call).await?;
        if found.is_empty() {
            return Err(StoreError::NoSuchSession(id));
        }
        self.placed(found.iter().filter_map(|row| rows::event(row).transpose()).collect())
    }
}

/// Reads the two values of a row.
fn two<'a, A, B>(row: &'a Row) -> Result<(A, B), Fault>
where
    A: tokio_postgres::types::FromSql<'a>,
    B: tokio_postgres::types::FromSql<'a>,
{
    Ok((row.try_get(0)?, row.try_get(1)?))
}

#[async_trait]
impl SessionStore for PostgresStore {
    async fn store_id(&self) -> Result<Option<Uuid>, StoreError> {
        if self.connections.are_closed() { Err(StoreError::Closed) } else { Ok(Some(self.id)) }
    }

    async fn create(&self, new: NewSession) -> Result<SessionId, StoreError> {
        check_new(&new)?;
        let call = self.operation("create_session");
        self.one(with_session(call, &new, LAST_ACTIVE), |row| rows::session_id(row.try_get(0)?)).await
    }

    async fn create_with(
        &self,
        new: NewSession,
        turn: NewTurn,
        compactions: Vec<Compaction>,
    ) -> Result<SessionId, StoreError> {
        check_new(&new)?;
        let texts = texts_of(&turn, self.connections.place())?;
        check_compactions(&turn, &compactions, || self.next_number()).await?;
        let call = self.operation("create_with");
        let call = with_turn(with_session(call, &new, "in_session_active"), &turn, texts);
        let call = with_compactions(call, &turn, &compactions);
        let (outcome, made) = self
            .one(call, |row| {
                let outcome: String = row.try_get(0)?;
                let made = match outcome.as_str() {
                    "marked" => Err(rows::mark(row, 1, 2)?),
                    _ => Ok(rows::session_id(row.try_get(1)?)?),
                };
                Ok((outcome, made))
            })
            .await?;
        match outcome.as_str() {
            "done" | "marked" => made.map_err(StoreError::Marked),
            other => Err(self.unknown(other)),
        }
    }

    async fn find_or_create(&self, new: NewSession) -> Result<SessionId, StoreError> {
        check_name(new.name.as_deref().unwrap_or(""))?;
        let call = self.function("find_or_create").changing();
        self.one(with_session(call, &new, LAST_ACTIVE), |row| rows::session_id(row.try_get(0)?)).await
    }

    async fn find_uuid(&self, uuid: Uuid) -> Result<Option<SessionId>, StoreError> {
        let call = self
            .call(
                "SELECT session FROM @schema@.sessions WHERE project = $1 AND uuid = $2
                 ORDER BY active DESC LIMIT 1",
            )
            .with(Type::UUID, uuid);
        self.first_session(call).await
    }

    async fn count(&self) -> Result<u64, StoreError> {
        let call = self.call("SELECT count(*) FROM @schema@.sessions WHERE project = $1");
        self.one(call, |row| Ok(row.try_get::<_, i64>(0)?.cast_unsigned())).await
    }

    async fn get(&self, id: SessionId) -> Result<SessionRecord, StoreError> {
        let sql =
            format!("SELECT {} FROM @schema@.sessions WHERE project = $1 AND session = $2", rows::SESSION);
        let found = self.rows(self.call(&sql).with(Type::INT4, rows::number(id))).await?;
        self.placed(rows::session(found.first().ok_or(StoreError::NoSuchSession(id))?))
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<SessionRecord>, StoreError> {
        let found = self.rows(with_filters(self.call(&list_sql(query)), query)).await?;
        self.placed(found.iter().map(rows::session).collect())
    }

    async fn rename(&self, id: SessionId, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        let call = self
            .function("rename_session")
            .changing()
            .named("in_session", Type::INT4, rows::number(id))
            .named("in_name", Type::TEXT, escaped(name).into_owned());
        if self.is_there(call).await? { Ok(()) } else { Err(StoreError::NoSuchSession(id)) }
    }

    async fn delete(&self, id: SessionId) -> Result<(), StoreError> {
        self.delete_with_files(id).await
    }

    async fn tombstones(&self, after: Option<Uuid>, limit: usize) -> Result<Vec<Tombstone>, StoreError> {
        let call = self
            .call(
                "SELECT uuid, deleted_at, events, revived_at FROM @schema@.tombstones
                 WHERE project = $1 AND ($2::uuid IS NULL OR uuid > $2) ORDER BY uuid LIMIT $3",
            )
            .with(Type::UUID, after)
            .with(Type::INT8, i64::try_from(limit).unwrap_or(i64::MAX));
        let found = self.rows(call).await?;
        self.placed(found.iter().map(rows::tombstone).collect())
    }

    async fn append(&self, id: SessionId, turn: NewTurn) -> Result<Appended, StoreError> {
        let texts = texts_of(&turn, self.connections.place())?;
        let operation = turn.operation;
        let call = match operation {
            Some(operation) => self.operation_of("append_turn", operation.id).of_operation(operation.id),
            None => self.operation("append_turn"),
        };
        let call = call
            .named("in_session", Type::INT4, rows::number(id))
            .named("in_generation", Type::INT8, operation.map(|operation| rows::signed(operation.generation)))
            .named("in_after", Type::INT8, turn.after.map(rows::integer))
            .named("in_lease", Type::TEXT, turn.lease.as_ref().map(|lease| lease.as_str().to_owned()))
            .named("in_ends_run", Type::BOOL, turn.ends_run);
        let (outcome, first, last) = self
            .one(with_turn(call, &turn, texts), |row| {
                let first: Option<i64> = row.try_get(1)?;
                let last: Option<i64> = row.try_get(2)?;
                let outcome: String = row.try_get(0)?;
                Ok((outcome, rows::seq(first.unwrap_or(0)), rows::seq(last.unwrap_or(0))))
            })
            .await?;
        match (outcome.as_str(), turn.after) {
            ("done", _) => Ok(Appended { first, last }),
            ("absent", _) => Err(StoreError::NoSuchSession(id)),
            ("cleared", _) => Err(StoreError::Cleared(id)),
            ("fenced", _) => Err(StoreError::Fenced(id)),
            ("moved", Some(expected)) => Err(StoreError::Moved { session: id, expected, last }),
            (other, _) => Err(self.unknown(other)),
        }
    }

    async fn read(&self, id: SessionId, page: Page) -> Result<Vec<StoredEvent>, StoreError> {
        self.read_page(id, page).await
    }

    async fn read_prompts(
        &self,
        id: SessionId,
        until: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        self.events(id, PROMPTS, until, limit).await
    }

    async fn read_usage(
        &self,
        id: SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        self.events(id, USAGE, after, limit).await
    }

    async fn clear(&self, id: SessionId) -> Result<(), StoreError> {
        let call = self.operation("clear_session").long().named("in_session", Type::INT4, rows::number(id));
        if !self.is_there(call).await? {
            return Err(StoreError::NoSuchSession(id));
        }
        self.clear_files(id).await
    }

    async fn fork(&self, id: SessionId, at: Seq, new: NewSession) -> Result<SessionId, StoreError> {
        check_new(&new)?;
        loop {
            // The counts of the whole session are in its row. Those of a part have to be counted.
            let counted = if at == Seq::END { None } else { Some(self.count(id, at).await?) };
            let generation = counted.as_ref().map(|(generation, _)| *generation);
            let tally = counted.map(|(_, tally)| tally).unwrap_or_default();
            let text = |text: Option<String>| text.map(|text| escaped(&text).into_owned());
            let call = self
                .operation("fork_session")
                .long()
                .named("in_session", Type::INT4, rows::number(id))
                .named("in_at", Type::INT8, rows::integer(at))
                .named("in_generation", Type::INT8, generation)
                .named("in_messages", Type::INT8, rows::signed(tally.counts.messages))
                .named("in_open", Type::INT2, i16::from(number_of(tally.open)))
                .named("in_preview", Type::TEXT, text(tally.counts.preview))
                .named("in_agent", Type::TEXT, text(tally.counts.agent))
                .named("in_model", Type::TEXT, text(tally.counts.model))
                .named("in_told", Type::INT8, rows::signed(tally.counts.rendered_chars))
                .named("in_last_prompt", Type::TEXT, text(tally.counts.last_prompt))
                .named("in_answered", Type::BOOL, tally.counts.answered)
                .named("in_requested_model", Type::TEXT, text(tally.counts.requested_model));
            let (outcome, made, last) = self
                .one(with_fork(call, &new), |row| {
                    let made: Option<i32> = row.try_get(1)?;
                    let last: Option<i64> = row.try_get(2)?;
                    let outcome: String = row.try_get(0)?;
                    Ok((outcome, made, rows::seq(last.unwrap_or(0))))
                })
                .await?;
            match (outcome.as_str(), made) {
                ("done", Some(made)) => {
                    let fork = self.placed(rows::session_id(made))?;
                    self.fork_all_originals(id, at, fork).await;
                    return Ok(fork);
                }
                ("absent", _) => return Err(StoreError::NoSuchSession(id)),
                ("no_event", _) => return Err(StoreError::NoSuchEvent { session: id, seq: at, last }),
                ("changed", _) => {}
                (other, _) => return Err(self.unknown(other)),
            }
        }
    }

    async fn set_tokens(&self, id: SessionId, tokens: Tokens) -> Result<(), StoreError> {
        let call = self
            .call(
                "WITH counted AS (
                   UPDATE @schema@.sessions
                   SET tokens_in = $3, tokens_out = $4, cache_read = $5, cache_write = $6, changes = changes + 1
                   WHERE project = $1 AND session = $2 RETURNING session)
                 SELECT session, @schema@.tell($1, session, false)::text FROM counted",
            )
            .changing()
            .with(Type::INT4, rows::number(id));
        let Tokens { input, output, cache_read, cache_write } = tokens;
        let counts = [input, output, cache_read, cache_write].map(rows::signed);
        self.change(id, counts.into_iter().fold(call, |call, count| call.with(Type::INT8, count))).await
    }

    async fn add_tokens(&self, id: SessionId, tokens: Tokens) -> Result<(), StoreError> {
        let call = self.operation("add_tokens").named("in_session", Type::INT4, rows::number(id));
        if self.is_there(with_tokens(call, tokens)).await? {
            Ok(())
        } else {
            Err(StoreError::NoSuchSession(id))
        }
    }

    async fn compactions(&self, id: SessionId) -> Result<Vec<Compaction>, StoreError> {
        let call = self
            .call(
                "SELECT after_seq, summary, compactions.created_at, writer, opening_chars FROM @schema@.sessions
                 LEFT JOIN @schema@.compactions USING (project, session)
                 WHERE project = $1 AND session = $2 ORDER BY after_seq",
            )
            .with(Type::INT4, rows::number(id));
        let found = self.rows(call).await?;
        if found.is_empty() {
            return Err(StoreError::NoSuchSession(id));
        }
        self.placed(found.iter().filter_map(|row| rows::compaction(row).transpose()).collect())
    }

    async fn add_compaction(&self, id: SessionId, compaction: &Compaction) -> Result<(), StoreError> {
        let after_seq = compaction.after_seq;
        // What stands up to a place stays as it is, so that this can be known before.
        let covers = read_rendered_through(self, id, after_seq).await?;
        let call =
            self.function("add_compaction").changing().named("in_session", Type::INT4, rows::number(id));
        let (outcome, last): (String, Option<i64>) = self
            .one(with_compaction(call, compaction, covers), |row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .await?;
        match outcome.as_str() {
            "done" => Ok(()),
            "absent" => Err(StoreError::NoSuchSession(id)),
            "no_event" => Err(StoreError::NoSuchEvent {
                session: id,
                seq: after_seq,
                last: rows::seq(last.unwrap_or(0)),
            }),
            other => Err(self.unknown(other)),
        }
    }

    async fn remove_compaction(&self, id: SessionId, after_seq: Seq) -> Result<bool, StoreError> {
        let call = self
            .operation("remove_compaction")
            .named("in_session", Type::INT4, rows::number(id))
            .named("in_after_seq", Type::INT8, rows::integer(after_seq));
        let outcome: String = self.one(call, |row| Ok(row.try_get(0)?)).await?;
        match outcome.as_str() {
            "done" => Ok(true),
            "none" => Ok(false),
            "absent" => Err(StoreError::NoSuchSession(id)),
            other => Err(self.unknown(other)),
        }
    }

    async fn last_used(&self, used_in: &str) -> Result<Option<SessionId>, StoreError> {
        let call = self
            .call(
                "SELECT session FROM @schema@.last_used
                 WHERE project = $1 AND md5(used_in) = md5($2) AND used_in = $2",
            )
            .with(Type::TEXT, escaped(used_in).into_owned());
        self.first_session(call).await
    }

    async fn search_index(&self) -> Result<Option<&dyn SearchIndex>, StoreError> {
        Ok(self.may_index().await?.then_some(self as &dyn SearchIndex))
    }

    async fn watch(&self, id: SessionId) -> Result<Option<Box<dyn Watch>>, StoreError> {
        self.watched(id).await
    }

    async fn watch_all(&self) -> Result<Option<Box<dyn Watch>>, StoreError> {
        self.all_watched().await
    }

    fn crash_notes(&self) -> Option<&dyn CrashNotes> {
        Some(self)
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }

    fn originals(&self) -> Option<&dyn Originals> {
        self.originals.is_some().then_some(self as &dyn Originals)
    }

    async fn close(&self) -> Result<(), StoreError> {
        if self.connections.close() { Ok(()) } else { Err(StoreError::Closed) }
    }
}

#[async_trait]
impl ServerStore for PostgresStore {
    fn project(&self) -> &str {
        &self.project
    }

    fn former_project(&self) -> Option<&str> {
        self.former.as_deref()
    }

    async fn settle_former_project(&mut self, is_ours: bool) -> Result<(), StoreError> {
        let Some(former) = self.former.clone() else { return Ok(()) };
        let kept_as = if is_ours { former } else { self.project.clone() };
        let call = self
            .call(
                "WITH claimed AS (
                   INSERT INTO @schema@.project_names (name, project) VALUES ($1, $2) ON CONFLICT DO NOTHING
                   RETURNING project)
                 SELECT project FROM claimed UNION ALL SELECT project FROM @schema@.project_names WHERE name = $1",
            )
            .with(Type::TEXT, kept_as);
        let rows = self.rows(call).await?;
        self.former = None;
        // Another project may have claimed them meanwhile.
        if let Some(row) = rows.first() {
            self.project = self.placed(row.try_get(0).map_err(Fault::from))?;
        }
        let id = schema::STORE_ID.replace("@name@", "$1");
        let call = self.call(&format!("SELECT {id} FROM @schema@.format"));
        self.id = self.one(call, |row| Ok(row.try_get(0)?)).await?;
        Ok(())
    }
}

#[async_trait]
impl CrashNotes for PostgresStore {
    async fn mark(&self, name: &str) -> Result<Option<Mark>, StoreError> {
        let call = self
            .call(
                "SELECT session, note FROM @schema@.marks
                 WHERE project = $1 AND md5(name) = md5($2) AND name = $2",
            )
            .with(Type::TEXT, escaped(name).into_owned());
        let found = self.rows(call).await?;
        self.placed(found.first().map(|row| rows::mark(row, 0, 1)).transpose())
    }

    async fn remove_mark(&self, name: &str) -> Result<bool, StoreError> {
        let call = self.operation("remove_mark").named("in_name", Type::TEXT, escaped(name).into_owned());
        self.is_there(call).await
    }

    async fn note_run(&self, id: SessionId, run: Option<&str>) -> Result<(), StoreError> {
        let run = run.filter(|run| !run.is_empty()).map(|run| escaped(run).into_owned());
        let call = self
            .call(
                "UPDATE @schema@.sessions SET noted_run = $3 WHERE project = $1 AND session = $2
                 RETURNING session",
            )
            .changing()
            .with(Type::INT4, rows::number(id))
            .with(Type::TEXT, run);
        self.change(id, call).await
    }

    async fn noted_runs(&self) -> Result<Vec<(SessionId, String)>, StoreError> {
        let call = self.call(
            "SELECT session, noted_run FROM @schema@.sessions
             WHERE project = $1 AND noted_run IS NOT NULL ORDER BY session",
        );
        let found = self.rows(call).await?;
        let noted = found.iter().map(|row| {
            let (session, run): (i32, &str) = two(row)?;
            Ok((rows::session_id(session)?, text::unescaped(run)))
        });
        self.placed(noted.collect())
    }
}
