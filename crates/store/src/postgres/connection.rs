//! Connections to the server, on their own thread, with reconnects.
//!
//! The driver needs tokio; a caller may use any executor. So the store has a thread with a runtime, does its work
//! there and returns the answers.
//!
//! A call is retried while its error is transient: the server restarts, or another one takes its place. That is safe
//! because every call is idempotent: it reads, it sets a value, or it carries the name of an operation that the
//! server does once.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use azureal_core::{StoreError, Uuid};
use deadpool::Runtime;
use deadpool::managed::Pool;
use tokio::runtime::Handle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Connection, Row, Socket};
use tracing::debug;

use super::PostgresOptions;
use super::address::PostgresAddress;
use super::dial::{Dialer, Object};
use super::error::Fault;
use super::tls::Stream;
use crate::server::{
    ANSWER_TIMEOUT, CONNECT_TIMEOUT, Overflow, OwnThread, TIMEOUT_PER_MIB, Transient, retry_with_backoff,
    too_large,
};

/// The time limit of a call whose work grows with the session, and that may wait for others.
pub(super) const LONG_ANSWER: Duration = Duration::from_secs(600);

/// The usual length of an argument with its name.
const ARGUMENT_CHARS: usize = 32;
/// The placeholder for the arguments in a statement that calls a function.
pub(super) const ARGUMENTS: &str = "@arguments@";

/// A statement with its values. It may be run more than once.
pub(super) struct Call {
    sql: String,
    /// The names of the arguments, if the statement calls a function.
    names: Vec<&'static str>,
    types: Vec<Type>,
    values: Vec<Value>,
    /// The time limit of the answer.
    limit: Duration,
    /// Whether it changes something, so that a lost answer leaves the outcome open.
    changes: bool,
    /// The id by which the caller can ask again.
    operation: Option<Uuid>,
}

enum Value {
    Given(Box<dyn ToSql + Send + Sync>),
    /// Whether this is a retry.
    IsRepeated,
}

impl Call {
    pub(super) fn new(sql: String) -> Self {
        let (names, types, values) = (Vec::new(), Vec::new(), Vec::new());
        Self { sql, names, types, values, limit: ANSWER_TIMEOUT, changes: false, operation: None }
    }

    /// Notes that it changes something.
    pub(super) fn changing(mut self) -> Self {
        self.changes = true;
        self
    }

    /// Notes the id of the caller's operation.
    pub(super) fn of_operation(mut self, id: Uuid) -> Self {
        self.operation = Some(id);
        self
    }

    /// Gives it the time that it takes to send so much.
    pub(super) fn sending(mut self, bytes: usize) -> Self {
        let mib = u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
        self.limit = self.limit.saturating_add(TIMEOUT_PER_MIB.saturating_mul(mib));
        self
    }

    /// Gives it the time that it takes to go through a whole session.
    pub(super) fn long(mut self) -> Self {
        self.limit = LONG_ANSWER;
        self
    }

    /// Adds a value, in the order of `$1`, `$2`, …
    pub(super) fn with(mut self, kind: Type, value: impl ToSql + Send + Sync + 'static) -> Self {
        self.types.push(kind);
        self.values.push(Value::Given(Box::new(value)));
        self
    }

    /// Adds an argument of the function, by its name.
    pub(super) fn named(
        mut self,
        name: &'static str,
        kind: Type,
        value: impl ToSql + Send + Sync + 'static,
    ) -> Self {
        self.names.push(name);
        self.with(kind, value)
    }

    /// Adds the argument that is true for a retry, whose first attempt may have succeeded.
    pub(super) fn named_whether_repeated(mut self, name: &'static str) -> Self {
        self.names.push(name);
        self.types.push(Type::BOOL);
        self.values.push(Value::IsRepeated);
        self
    }

    /// Runs it on a connection.
    pub(super) async fn run_on(&self, client: &Client) -> Result<Vec<Row>, Fault> {
        within(self.limit, self.query(client, false)).await
    }

    /// Sends parse, bind, describe and execute together: one round trip, also the first time. The statement has no
    /// name on the server: behind a pooler the next transaction may run on another server connection, where another
    /// client may have taken the name. All types are built in, so the driver never looks one up.
    async fn query(&self, client: &Client, is_repeated: bool) -> Result<Vec<Row>, tokio_postgres::Error> {
        let values = self.values.iter().map(|value| match value {
            Value::Given(value) => &**value as &(dyn ToSql + Sync),
            Value::IsRepeated => &is_repeated,
        });
        let typed: Vec<(&(dyn ToSql + Sync), Type)> = values.zip(self.types.iter().cloned()).collect();
        client.query_typed(&self.statement(), &typed).await
    }

    /// Returns the text of the statement, with the arguments of its function: `in_session => $1, …`.
    fn statement(&self) -> Cow<'_, str> {
        if self.names.is_empty() {
            return Cow::Borrowed(&self.sql);
        }
        // One text, without one for each argument: every append has 33 of them.
        let mut named = String::with_capacity(self.names.len() * ARGUMENT_CHARS);
        for (index, name) in self.names.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            // Writing to a text does not fail.
            write!(named, "{comma}{name} => ${}", index + 1).ok();
        }
        Cow::Owned(self.sql.replacen(ARGUMENTS, &named, 1))
    }
}

/// The way to the server, for work on the store's thread.
#[derive(Clone)]
pub(super) struct Lines {
    pool: Pool<Dialer>,
    overflow: Overflow,
}

impl Lines {
    /// Opens a connection outside the pool. It does no work unless its second half is polled.
    pub(super) async fn open_another(&self) -> Result<(Client, Connection<Socket, Stream>), Fault> {
        self.pool.manager().dial().await
    }

    /// Runs a call on one of the pool's connections, once.
    pub(super) async fn run(&self, call: &Call) -> Result<Vec<Row>, Fault> {
        self.attempt(call, false, &AtomicBool::new(false)).await
    }

    /// Sets `may_be_done` if the call was sent and its answer is lost.
    async fn attempt(
        &self,
        call: &Call,
        is_repeated: bool,
        may_be_done: &AtomicBool,
    ) -> Result<Vec<Row>, Fault> {
        let connection = self.pool.get().await.map_err(|error| self.judged(error.into()))?;
        match within(call.limit, call.query(&connection, is_repeated)).await {
            Ok(rows) => Ok(rows),
            Err(fault) => {
                let fault = self.judged(fault);
                may_be_done.fetch_or(fault.is_about_connection(), Ordering::Relaxed);
                if fault.is_transient() {
                    debug!(error = fault.kind(), "drops the connection");
                    // Whatever is wrong with it, another one may be better.
                    drop(Object::take(connection));
                    if fault.is_about_connection() {
                        // Those to the same host are as dead, and each would take as long to notice.
                        self.pool.retain(|_, _| false);
                    }
                }
                Err(fault)
            }
        }
    }

    /// Tells a connection that broke from one that we ended because the server sent too much.
    fn judged(&self, fault: Fault) -> Fault {
        if self.overflow.take() { Fault::Answer(too_large()) } else { fault }
    }

    /// Returns whether the store has been closed.
    pub(super) fn are_closed(&self) -> bool {
        self.pool.is_closed()
    }
}

/// The connections of a store.
pub(super) struct Connections {
    place: String,
    lines: Lines,
    retry_budget: Duration,
    thread: OwnThread,
}

impl Connections {
    /// Starts the thread. Does not connect yet.
    pub(super) fn start(address: &PostgresAddress, options: PostgresOptions) -> Result<Self, StoreError> {
        let place = address.to_string();
        let other = |source| StoreError::Other { place: place.clone(), source };
        let overflow = Overflow::default();
        let dialer = Dialer::new(address, overflow.clone()).map_err(other)?;
        let pool = Pool::builder(dialer)
            .max_size(options.connections)
            .wait_timeout(Some(CONNECT_TIMEOUT))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| other(error.into()))?;

        let thread = OwnThread::start("azureal-postgres").map_err(|error| other(error.into()))?;
        let lines = Lines { pool, overflow };
        Ok(Self { place, lines, retry_budget: options.retry_budget, thread })
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Returns the way to the server.
    pub(super) fn lines(&self) -> Lines {
        self.lines.clone()
    }

    pub(super) fn are_closed(&self) -> bool {
        self.lines.are_closed()
    }

    /// Returns what runs on the store's thread.
    pub(super) fn runtime(&self) -> Handle {
        self.thread.runtime()
    }

    /// Closes the connections; returns whether they were open.
    pub(super) fn close(&self) -> bool {
        self.lines.pool.close();
        self.thread.close()
    }

    /// Runs a call; retries while that may help.
    pub(super) async fn call(&self, call: Call) -> Result<Vec<Row>, StoreError> {
        self.call_for(call, self.retry_budget).await.map_err(|(fault, waited)| fault.at(&self.place, waited))
    }

    /// Like [`call`](Self::call), with this retry budget; a fault comes with the time that was spent.
    pub(super) async fn call_for(
        &self,
        call: Call,
        retry_budget: Duration,
    ) -> Result<Vec<Row>, (Fault, Duration)> {
        let lines = self.lines.clone();
        self.thread
            .run(async move {
                let may_be_done = AtomicBool::new(false);
                let answer =
                    retry_with_backoff(retry_budget, |is_retry| lines.attempt(&call, is_retry, &may_be_done))
                        .await;
                answer.map_err(|(fault, waited)| match call.changes && may_be_done.into_inner() {
                    true => (Fault::Unknown { operation: call.operation, last: Box::new(fault) }, waited),
                    false => (fault, waited),
                })
            })
            .await
            .unwrap_or(Err((Fault::Closed, Duration::ZERO)))
    }

    /// Runs work that needs one connection; it is not retried.
    pub(super) async fn with_connection<R: Send + 'static, W>(
        &self,
        work: impl FnOnce(Object) -> W + Send + 'static,
    ) -> Result<R, StoreError>
    where
        W: Future<Output = Result<R, StoreError>> + Send,
    {
        let (lines, place) = (self.lines.clone(), self.place.clone());
        self.thread
            .run(async move {
                let connection = lines.pool.get().await;
                let connection =
                    connection.map_err(|error| lines.judged(error.into()).at(&place, CONNECT_TIMEOUT))?;
                let done = work(connection).await;
                if done.is_err() && lines.overflow.take() {
                    return Err(Fault::Answer(too_large()).at(&place, Duration::ZERO));
                }
                done
            })
            .await
            .unwrap_or(Err(StoreError::Closed))
    }
}

impl Drop for Connections {
    /// A watch may outlive the store, and has a part of the pool.
    fn drop(&mut self) {
        self.lines.pool.close();
    }
}

/// Waits so long for the server.
pub(super) async fn within<R, E: Into<Fault>>(
    limit: Duration,
    work: impl Future<Output = Result<R, E>>,
) -> Result<R, Fault> {
    match tokio::time::timeout(limit, work).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_) => Err(Fault::Silent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_called_by_the_names_of_its_arguments() {
        let call = Call::new("SELECT rename(@arguments@)".to_owned())
            .named("in_session", Type::INT4, 1)
            .named_whether_repeated("in_repeated");
        assert_eq!(call.statement(), "SELECT rename(in_session => $1, in_repeated => $2)");
        assert_eq!(Call::new("SELECT $1".to_owned()).with(Type::INT4, 1).statement(), "SELECT $1");
    }
}
