//! Connections to the server, on a thread of their own, and going on when they break.
//!
//! The driver lives on tokio; whoever calls the store may live on anything. So the store has a thread with a
//! runtime, does its work there and hands over the answers.
//!
//! A call is tried again while the reason why it did not work may pass: the server is restarted, or another one
//! takes its place. That is safe because every call may be repeated: it reads, or it changes something to what it
//! would be anyway, or it carries the name of an operation that the server does once.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use azureal_core::StoreError;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Connection, Row, Socket};

use super::PostgresOptions;
use super::address::PostgresAddress;
use super::error::Fault;
use super::tls::{Connector, Stream};
use crate::bounded::{Overflow, too_large};

/// How long one attempt to connect to one host may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const SHORTEST_CONNECT: Duration = Duration::from_secs(2);
/// After how long a peer that says nothing and acknowledges nothing is given up. Well below the patience of a store, so
/// that there is time for another connection.
const SILENCE: Duration = Duration::from_secs(10);
/// How long an answer may take, and how much longer for each MiB that is sent. Then another connection is tried: the server
/// may never have heard of it.
const ANSWER: Duration = Duration::from_secs(10);
const ANSWER_PER_MIB: Duration = Duration::from_secs(1);
/// The same for what is as much work as a session is long, and may wait for others.
const LONG_ANSWER: Duration = Duration::from_secs(600);
/// The waits between attempts, from the first to those that follow each other until patience ends.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// A statement with its values. It may be run more than once.
pub(super) struct Call {
    sql: String,
    types: Vec<Type>,
    values: Vec<Value>,
    /// How long the answer may take.
    limit: Duration,
}

enum Value {
    Given(Box<dyn ToSql + Send + Sync>),
    /// Whether this is not the first try.
    IsRepeated,
}

impl Call {
    pub(super) fn new(sql: String) -> Self {
        Self { sql, types: Vec::new(), values: Vec::new(), limit: ANSWER }
    }

    /// Gives it the time that it takes to send so much.
    pub(super) fn sending(mut self, bytes: usize) -> Self {
        let mib = u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
        self.limit = self.limit.saturating_add(ANSWER_PER_MIB.saturating_mul(mib));
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

    /// Adds the value that says whether the call has been made before, in vain for all that is known.
    pub(super) fn with_whether_repeated(mut self) -> Self {
        self.types.push(Type::BOOL);
        self.values.push(Value::IsRepeated);
        self
    }

    /// Runs it on a connection.
    pub(super) async fn run_on(&self, client: &Client) -> Result<Vec<Row>, Fault> {
        within(self.limit, self.query(client, false)).await
    }

    /// Sends parse, bind, describe and execute together: one round trip, also the first time. The statement has no name on
    /// the server, because behind a pooler the next transaction may run on another server connection, and a name that
    /// another client has taken there is an error. All types are built in, so the driver never looks one up.
    async fn query(&self, client: &Client, is_repeated: bool) -> Result<Vec<Row>, tokio_postgres::Error> {
        let values = self.values.iter().map(|value| match value {
            Value::Given(value) => &**value as &(dyn ToSql + Sync),
            Value::IsRepeated => &is_repeated,
        });
        let typed: Vec<(&(dyn ToSql + Sync), Type)> = values.zip(self.types.iter().cloned()).collect();
        client.query_typed(&self.sql, &typed).await
    }
}

/// The way to the server, for work on the store's thread.
#[derive(Clone)]
pub(super) struct Lines {
    pool: Pool,
    config: Config,
    connector: Connector,
    overflow: Overflow,
}

impl Lines {
    /// Opens a connection that is not the pool's. Nothing happens on it unless its second half is polled.
    pub(super) async fn open_another(&self) -> Result<(Client, Connection<Socket, Stream>), Fault> {
        within(CONNECT_TIMEOUT, self.config.connect(self.connector.clone())).await
    }

    /// Runs a call on one of the pool's connections, once.
    pub(super) async fn run(&self, call: &Call) -> Result<Vec<Row>, Fault> {
        self.attempt(call, CONNECT_TIMEOUT, false).await
    }

    async fn attempt(&self, call: &Call, to_connect: Duration, is_repeated: bool) -> Result<Vec<Row>, Fault> {
        // It counts for the whole of it: what accepts a connection need not be a server.
        let connection = within(to_connect, self.pool.get()).await.map_err(|fault| self.judged(fault))?;
        match within(call.limit, call.query(&connection, is_repeated)).await {
            Ok(rows) => Ok(rows),
            Err(fault) => {
                let fault = self.judged(fault);
                if fault.is_passing() {
                    // Whatever is wrong with it, another one may be better.
                    drop(Object::take(connection));
                }
                Err(fault)
            }
        }
    }

    /// Tells a connection that broke from one that we ended because the server sent too much.
    fn judged(&self, fault: Fault) -> Fault {
        if self.overflow.take() { Fault::Answer(too_large()) } else { fault }
    }

    /// Says whether the store has been closed.
    pub(super) fn are_closed(&self) -> bool {
        self.pool.is_closed()
    }
}

/// The connections of a store.
pub(super) struct Connections {
    place: String,
    lines: Lines,
    runtime: Handle,
    patience: Duration,
    is_closed: AtomicBool,
    /// Dropped with the store, which ends the thread.
    _alive: oneshot::Sender<()>,
}

impl Connections {
    /// Starts the thread. Nothing is connected by that.
    pub(super) fn start(address: &PostgresAddress, options: PostgresOptions) -> Result<Self, StoreError> {
        let place = address.to_string();
        let other = |source| StoreError::Other { place: place.clone(), source };
        let mut config = address.config.clone();
        let overflow = Overflow::default();
        let connector = Connector::new(address, &mut config, overflow.clone()).map_err(other)?;
        if config.get_application_name().is_none() {
            config.application_name("azureal");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
            config.keepalives_idle(SILENCE);
        }
        config.tcp_user_timeout(SILENCE);
        // Connections are not asked whether they are well: that would be a round trip for every call. One that
        // turns out not to be is thrown away.
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config.clone(), connector.clone(), recycling);
        let pool = Pool::builder(manager)
            .max_size(options.connections)
            .build()
            .map_err(|error| other(error.into()))?;

        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| other(error.into()))?;
        let handle = runtime.handle().clone();
        let (alive, ended) = oneshot::channel::<()>();
        let on_thread = pool.clone();
        std::thread::Builder::new()
            .name("azureal-postgres".to_owned())
            .spawn(move || {
                // Ends when the other side is dropped, and takes connections and calls along.
                drop(runtime.block_on(ended));
                on_thread.close();
            })
            .map_err(|error| other(error.into()))?;
        let patience = options.patience;
        let lines = Lines { pool, config, connector, overflow };
        Ok(Self { place, lines, runtime: handle, patience, is_closed: AtomicBool::new(false), _alive: alive })
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Returns the way to the server.
    pub(super) fn lines(&self) -> Lines {
        self.lines.clone()
    }

    /// Returns what runs on the store's thread.
    pub(super) fn runtime(&self) -> Handle {
        self.runtime.clone()
    }

    /// Closes the connections; says whether they were open.
    pub(super) fn close(&self) -> bool {
        self.lines.pool.close();
        !self.is_closed.swap(true, Ordering::AcqRel)
    }

    /// Runs a call, again and again while that may help.
    pub(super) async fn call(&self, call: Call) -> Result<Vec<Row>, StoreError> {
        self.call_for(call, self.patience).await.map_err(|(fault, waited)| fault.at(&self.place, waited))
    }

    /// The same for a time that is given; a fault comes with how long it was tried.
    pub(super) async fn call_for(
        &self,
        call: Call,
        patience: Duration,
    ) -> Result<Vec<Row>, (Fault, Duration)> {
        let lines = self.lines.clone();
        self.on_thread(async move {
            // Whoever does not try again wants to connect all the same.
            let to_connect = patience.clamp(SHORTEST_CONNECT, CONNECT_TIMEOUT);
            let attempt = |is_repeated| lines.attempt(&call, to_connect, is_repeated);
            again_and_again(&lines.pool, patience, attempt).await
        })
        .await
        .unwrap_or(Err((Fault::Closed, Duration::ZERO)))
    }

    /// Runs work that wants a connection of its own; it is not repeated.
    pub(super) async fn with_connection<R: Send + 'static, W>(
        &self,
        work: impl FnOnce(Object) -> W + Send + 'static,
    ) -> Result<R, StoreError>
    where
        W: Future<Output = Result<R, StoreError>> + Send,
    {
        let (lines, place) = (self.lines.clone(), self.place.clone());
        self.on_thread(async move {
            let connection = within(CONNECT_TIMEOUT, lines.pool.get())
                .await
                .map_err(|fault| lines.judged(fault).at(&place, CONNECT_TIMEOUT))?;
            let done = work(connection).await;
            if done.is_err() && lines.overflow.take() {
                return Err(Fault::Answer(too_large()).at(&place, Duration::ZERO));
            }
            done
        })
        .await
        .unwrap_or(Err(StoreError::Closed))
    }

    /// Does work on the store's thread. Nothing if the thread is gone.
    async fn on_thread<R: Send + 'static>(
        &self,
        work: impl Future<Output = R> + Send + 'static,
    ) -> Option<R> {
        if self.is_closed.load(Ordering::Acquire) {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        self.runtime.spawn(async move {
            // Whoever asked may have gone. The work is done either way.
            drop(answer.send(work.await));
        });
        answered.await.ok()
    }
}

/// Repeats an attempt while its fault may pass and patience lasts.
async fn again_and_again<R, A>(
    pool: &Pool,
    patience: Duration,
    attempt: impl Fn(bool) -> A,
) -> Result<R, (Fault, Duration)>
where
    A: Future<Output = Result<R, Fault>>,
{
    let started = Instant::now();
    let (mut wait, mut is_repeated) = (SHORTEST_WAIT, false);
    loop {
        let fault = match attempt(is_repeated).await {
            Ok(answer) => return Ok(answer),
            Err(fault) => fault,
        };
        if fault.is_about_values() && !is_repeated {
            // They are looked at with more care when they come again.
            is_repeated = true;
            continue;
        }
        let waited = started.elapsed();
        if !fault.is_passing() || waited + wait > patience || pool.is_closed() {
            return Err((fault, waited));
        }
        // Uneven, so that clients that were thrown out together do not come back together.
        tokio::time::sleep(wait.mul_f64(0.5 + chance())).await;
        wait = (wait * 2).min(LONGEST_WAIT);
        is_repeated = true;
    }
}

/// Returns something between 0 and 1.
fn chance() -> f64 {
    f64::from(RandomState::new().build_hasher().finish() as u32) / f64::from(u32::MAX)
}

/// Waits so long for the server.
async fn within<R, E: Into<Fault>>(
    limit: Duration,
    work: impl Future<Output = Result<R, E>>,
) -> Result<R, Fault> {
    match tokio::time::timeout(limit, work).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_) => Err(Fault::Silent),
    }
}
