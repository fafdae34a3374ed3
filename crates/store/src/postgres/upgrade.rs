//! Creating and upgrading the tables: one client does it, the others wait for it, and say for whom.

use std::pin::pin;
use std::time::Duration;

use azureal_core::StoreError;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, GenericClient, IsolationLevel, Transaction};
use tracing::info;

use super::PostgresOptions;
use super::connection::LONG_ANSWER;
use super::dial::Object;
use super::error::Fault;
use super::recount;
use super::schema::{KNOWN, VERSIONS, check_encoding, check_version, in_schema, other};
use crate::server::ANSWER_TIMEOUT;

/// The key of the lock: the name of the project as a number.
const LOCK: i64 = i64::from_be_bytes(*b"azureal\0");
/// The least time that an upgrade waits for another one, however small the retry budget.
const SHORTEST_WAIT: Duration = Duration::from_secs(3);
/// The time after which a wait is reported.
const REPORTED_AFTER: Duration = Duration::from_secs(1);
/// The interval at which the lock of another upgrade is tried.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// An upgrade of the tables of a schema.
pub(super) struct Upgrade {
    pub(super) schema: String,
    place: String,
    report_wait: fn(&str),
    /// The time that it waits for another one, and for each lock on a table.
    longest_wait: Duration,
}

impl Upgrade {
    pub(super) fn new(schema: &str, place: &str, options: &PostgresOptions) -> Self {
        Self {
            schema: schema.to_owned(),
            place: place.to_owned(),
            report_wait: options.report_wait,
            longest_wait: options.retry_budget.max(SHORTEST_WAIT),
        }
    }

    /// Does it in one transaction, unless another client has done it meanwhile.
    pub(super) async fn run(self, mut connection: Object) -> Result<(), StoreError> {
        // Under another default isolation, what is read under the lock would be from before the lock.
        let level = IsolationLevel::ReadCommitted;
        let transaction = self.answer(connection.build_transaction().isolation_level(level).start()).await?;
        let limit = format!("SET LOCAL lock_timeout = {}", self.longest_wait.as_millis());
        self.answer(transaction.batch_execute(&limit)).await?;
        self.lock(&transaction).await?;
        let upgraded = self.with_a_word(self.upgrade(&transaction)).await;
        let is_locked = matches!(&upgraded, Err(Failed::Driver(error)) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE));
        match upgraded {
            Ok(from) => {
                let committed = self.with_a_word(self.within(LONG_ANSWER, transaction.commit())).await;
                committed.map_err(|failed| self.at(failed))?;
                if let Some(from) = from {
                    info!(from, to = KNOWN, "upgraded the tables");
                }
                Ok(())
            }
            Err(_) if is_locked => {
                self.answer(transaction.rollback()).await?;
                let holder = self.holder(&**connection, &self.tables()).await?;
                let holder = holder.unwrap_or_else(|| "another client".to_owned());
                Err(self.gave_up(&format!("{holder} has locked a table")))
            }
            Err(Failed::Driver(error)) => Err(self.failed(error)),
            Err(Failed::Store(error)) => Err(error),
        }
    }

    /// Waits until no other client upgrades.
    async fn lock(&self, transaction: &Transaction<'_>) -> Result<(), StoreError> {
        let (began, mut is_reported) = (Instant::now(), false);
        let failed = |error| other(&self.place, error);
        loop {
            let lock = "SELECT pg_try_advisory_xact_lock($1)";
            let tried = self.answer(transaction.query_typed(lock, &[(&LOCK, Type::INT8)])).await?;
            let is_ours: Option<bool> =
                tried.first().map(|row| row.try_get(0)).transpose().map_err(failed)?;
            if is_ours == Some(true) {
                return Ok(());
            }
            let waited = began.elapsed();
            if waited >= REPORTED_AFTER {
                // It may have ended meanwhile.
                let holder = self.holder(transaction, &upgrading()).await?;
                let holder = holder.unwrap_or_else(|| "another client".to_owned());
                if waited >= self.longest_wait {
                    return Err(self.gave_up(&format!("{holder} is upgrading the tables")));
                }
                if !std::mem::replace(&mut is_reported, true) {
                    (self.report_wait)(&format!(
                        "{}: waiting up to {} s: {holder} is upgrading the tables",
                        self.place,
                        self.longest_wait.as_secs()
                    ));
                }
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the version that was there, unless it is ours.
    async fn upgrade(&self, transaction: &Transaction<'_>) -> Result<Option<i32>, Failed> {
        // Each of these may wait for a lock, which is refused in time.
        let soon = self.longest_wait + ANSWER_TIMEOUT;
        let encoding = "SELECT getdatabaseencoding()::text";
        let encoding = self.within(soon, transaction.query_typed(encoding, &[])).await?;
        if let Some(row) = encoding.first() {
            check_encoding(&self.place, row.try_get(0)?)?;
        }
        let begin = in_schema(
            "CREATE SCHEMA IF NOT EXISTS @schema@;
             CREATE TABLE IF NOT EXISTS @schema@.format (version integer NOT NULL);",
            &self.schema,
        );
        self.within(soon, transaction.batch_execute(&begin)).await?;
        // Read under the lock: another client may have upgraded meanwhile.
        let look = in_schema("SELECT version FROM @schema@.format", &self.schema);
        let found = self.within(soon, transaction.query_typed(&look, &[])).await?;
        let found: i32 = found.first().map_or(Ok(0), |row| row.try_get(0))?;
        if check_version(&self.place, found)? {
            return Ok(None);
        }
        for version in VERSIONS.iter().skip(usize::try_from(found).unwrap_or_default()) {
            let step = in_schema(version, &self.schema);
            self.within(LONG_ANSWER, transaction.batch_execute(&step)).await?;
        }
        if found == 1 {
            self.within(LONG_ANSWER, recount::recount(transaction, &self.schema)).await?;
        }
        // The row has the id of the store, which stays.
        let note = format!(
            "INSERT INTO @schema@.format (version) SELECT {KNOWN} WHERE NOT EXISTS (SELECT 1 FROM @schema@.format);
             UPDATE @schema@.format SET version = {KNOWN}"
        );
        self.within(LONG_ANSWER, transaction.batch_execute(&in_schema(&note, &self.schema))).await?;
        Ok(Some(found))
    }

    /// Describes a client that holds one of the locks that a condition on `pg_locks` selects.
    async fn holder(
        &self,
        client: &impl GenericClient,
        condition: &str,
    ) -> Result<Option<String>, StoreError> {
        let sql = format!(
            "SELECT format('process %s of %s%s', pid, coalesce(usename::text, 'another user'),
               coalesce(' on ' || host(client_addr), '') || coalesce(', for ' || CASE
                 WHEN now() - xact_start < interval '2 min' THEN extract(epoch FROM now() - xact_start)::int || ' s'
                 ELSE (extract(epoch FROM now() - xact_start) / 60)::int || ' min' END, ''))
             FROM pg_locks JOIN pg_stat_activity USING (pid)
             WHERE granted AND pid <> pg_backend_pid() AND {condition} ORDER BY xact_start LIMIT 1"
        );
        let found = self.answer(client.query_typed(&sql, &[])).await?;
        found.first().map(|row| row.try_get(0)).transpose().map_err(|error| other(&self.place, error))
    }

    /// Waits so long for the server.
    async fn within<R>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<R, Error>>,
    ) -> Result<R, Failed> {
        match timeout(limit, work).await {
            Ok(answer) => answer.map_err(Failed::Driver),
            Err(_) => Err(Failed::Store(Fault::Silent.at(&self.place, limit))),
        }
    }

    /// Waits for what a server answers at once.
    async fn answer<R>(&self, work: impl Future<Output = Result<R, Error>>) -> Result<R, StoreError> {
        self.within(ANSWER_TIMEOUT, work).await.map_err(|failed| self.at(failed))
    }

    /// Reports work that takes a while.
    async fn with_a_word<R>(&self, work: impl Future<Output = R>) -> R {
        let mut work = pin!(work);
        if let Ok(done) = timeout(REPORTED_AFTER, &mut work).await {
            return done;
        }
        (self.report_wait)(&format!("{}: creating or upgrading the tables", self.place));
        work.await
    }

    fn at(&self, failed: Failed) -> StoreError {
        match failed {
            Failed::Driver(error) => other(&self.place, error),
            Failed::Store(error) => error,
        }
    }

    fn tables(&self) -> String {
        format!(
            "relation IN (SELECT oid FROM pg_class WHERE relnamespace = '{}'::regnamespace)
             AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            self.schema
        )
    }

    fn gave_up(&self, why: &str) -> StoreError {
        let why = format!("{why}; waited {} s", self.longest_wait.as_secs());
        StoreError::Other { place: self.place.clone(), source: why.into() }
    }

    fn failed(&self, error: Error) -> StoreError {
        match error.code() {
            Some(&SqlState::DUPLICATE_TABLE | &SqlState::DUPLICATE_FUNCTION) => StoreError::NotAStore {
                place: self.place.clone(),
                why: format!("the schema {} holds tables of something else", self.schema),
            },
            _ => other(&self.place, error),
        }
    }
}

/// Selects the lock of upgrades in this database.
fn upgrading() -> String {
    let [high, low] = [LOCK >> 32, LOCK & 0xffff_ffff];
    format!(
        "locktype = 'advisory' AND classid = {high}::oid AND objid = {low}::oid AND objsubid = 1
         AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
}

/// The error of an upgrade.
enum Failed {
    Driver(Error),
    Store(StoreError),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
