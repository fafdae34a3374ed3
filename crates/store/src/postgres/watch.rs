//! Notifications of changes to a session or a project: `LISTEN`, on its own connection.
//!
//! A `NOTIFY` makes commits wait for each other (`docs/decisions/0005-postgres-functions.md`), so a change sends one
//! only while the session or the project is watched. Its row has `watched_until`, by the clock of the server, which
//! watches renew.
//!
//! The watch tests whether `LISTEN` works; there is no setting. A pooler in transaction mode gives each transaction
//! any of its server connections, so a notification would go to whichever client uses that one next. Two connections
//! that reach one server process prove such a pooler. Otherwise the watch listens and notifies itself by another
//! connection: receiving that is the proof. Without it there is no watch, and the caller polls. While the connection
//! is down, the watch reports a possible change each time.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use azureal_core::{SessionId, SessionStore, StoreError, Watch, async_trait};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Connection};

use super::connection::{Call, Lines};
use super::error::Fault;
use super::{PostgresStore, rows};
use crate::server::Transient;

/// The time for which a session counts as watched, and the interval of renewal.
const LASTS: Duration = Duration::from_secs(20);
const RENEWED_EVERY: Duration = Duration::from_secs(5);
/// The time that a notification of our own may take. Then the server, or what stands before it, delivers none.
const PROOF_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay before a broken connection is replaced.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Whether notifications arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    /// Not yet, or the connection is down.
    Down,
    /// They do. To send this state again is a notification.
    Works,
    /// They do not and never will.
    Impossible,
}

struct PostgresWatch {
    delivery: watch::Receiver<Delivery>,
    lines: Lines,
    runtime: Handle,
    /// Ends when it is dropped.
    _listening: JoinSet<()>,
}

/// The calls of a watch, repeated after each broken connection.
struct Calls {
    process: Call,
    listen: Call,
    renew: Call,
    notify: Call,
    /// Whether to notify again at the first renewal. A change of a session locks the row with `watched_until`; a
    /// change in a project does not, and may commit just after the watch began without having seen it.
    notify_again: bool,
}

/// Stands for the project where a session is named: no session has this number.
const PROJECT: i32 = 0;

impl PostgresStore {
    pub(super) async fn watched(&self, id: SessionId) -> Result<Option<Box<dyn Watch>>, StoreError> {
        self.get(id).await?;
        let renew = self
            .call(
                "UPDATE @schema@.sessions SET watched_until = clock_timestamp() + make_interval(secs => $3)
                 WHERE project = $1 AND session = $2",
            )
            .with(Type::INT4, rows::number(id))
            .with(Type::FLOAT8, LASTS.as_secs_f64());
        self.listening_to(rows::number(id), renew).await
    }

    pub(super) async fn all_watched(&self) -> Result<Option<Box<dyn Watch>>, StoreError> {
        // A closed store returns its error.
        self.next_number().await?;
        let renew = self
            .call(
                "INSERT INTO @schema@.projects (project, watched_until)
                 VALUES ($1, clock_timestamp() + make_interval(secs => $2))
                 ON CONFLICT (project) DO UPDATE SET watched_until = EXCLUDED.watched_until",
            )
            .with(Type::FLOAT8, LASTS.as_secs_f64());
        self.listening_to(PROJECT, renew).await
    }

    /// Listens to a session or the project, which `renew` has the server notify for a while.
    async fn listening_to(&self, number: i32, renew: Call) -> Result<Option<Box<dyn Watch>>, StoreError> {
        let function = |name: &str| self.function(name).named("in_session", Type::INT4, number);
        let calls = Calls {
            process: Call::new("SELECT pg_backend_pid()".to_owned()),
            listen: function("listen_to"),
            renew,
            notify: function("ring"),
            notify_again: number == PROJECT,
        };
        let (report, mut delivery) = watch::channel(Delivery::Down);
        let (lines, runtime) = (self.connections.lines(), self.connections.runtime());
        let mut listening = JoinSet::new();
        listening.spawn_on(listen(lines.clone(), Arc::new(calls), report), &runtime);
        let mut first = delivery.clone();
        let proven = runtime.spawn(async move {
            let settled = first.wait_for(|delivery| *delivery != Delivery::Down);
            matches!(timeout(PROOF_TIMEOUT * 2, settled).await, Ok(Ok(state)) if *state == Delivery::Impossible)
        });
        if proven.await.map_err(|_| StoreError::Closed)? {
            return Ok(None);
        }
        delivery.mark_unchanged();
        Ok(Some(Box::new(PostgresWatch { delivery, lines, runtime, _listening: listening })))
    }
}

#[async_trait]
impl Watch for PostgresWatch {
    async fn changed(&mut self, at_most: Duration) -> Result<bool, StoreError> {
        if self.lines.are_closed() {
            return Err(StoreError::Closed);
        }
        // The timer needs the store's runtime. Dropping the future must lose no change, so only a copy waits there.
        let mut delivery = self.delivery.clone();
        let waiting = self.runtime.spawn(async move { timeout(at_most, delivery.changed()).await.is_ok() });
        let is_notified = waiting.await.map_err(|_| StoreError::Closed)?;
        let delivery = *self.delivery.borrow_and_update();
        Ok(is_notified || delivery != Delivery::Works)
    }
}

/// Listens, on one connection after the other.
async fn listen(lines: Lines, calls: Arc<Calls>, report: watch::Sender<Delivery>) {
    loop {
        let ended = match lines.open_another().await {
            Ok((client, connection)) => {
                let mut both = JoinSet::new();
                both.spawn(receive(connection, report.clone()));
                both.spawn(stay_watched(client, lines.clone(), Arc::clone(&calls), report.subscribe()));
                both.join_next().await
            }
            Err(fault) => Some(Ok(Err(fault))),
        };
        match ended {
            Some(Ok(Err(fault))) if fault.is_transient() && !fault.is_read_only() => {
                report.send_replace(Delivery::Down);
                sleep(RECONNECT_DELAY).await;
            }
            // A user that may only read, or a server that does not let us.
            _ => {
                report.send_replace(Delivery::Impossible);
                pending::<()>().await;
            }
        }
    }
}

/// Receives what the server sends on a connection. Only its one session notifies it.
async fn receive<S, T>(
    mut connection: Connection<S, T>,
    report: watch::Sender<Delivery>,
) -> Result<Infallible, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(_) = message? {
            report.send_replace(Delivery::Works);
        }
    }
    Err(Fault::Closed)
}

/// Has the session notify a connection for as long as it is there; ends if notifications cannot arrive.
async fn stay_watched(
    client: Client,
    lines: Lines,
    calls: Arc<Calls>,
    mut delivery: watch::Receiver<Delivery>,
) -> Result<Infallible, Fault> {
    let process = |found: Vec<tokio_postgres::Row>| match found.first() {
        Some(row) => Ok(row.try_get::<_, i32>(0)?),
        None => Err(Fault::Answer("the server does not name its process".to_owned())),
    };
    let first = process(calls.process.run_on(&client).await?)?;
    let other = process(lines.run(&calls.process).await?)?;
    let second = process(calls.process.run_on(&client).await?)?;
    if first == other || first != second {
        return Err(Fault::Undelivered);
    }
    calls.listen.run_on(&client).await?;
    lines.run(&calls.renew).await?;
    lines.run(&calls.notify).await?;
    let proof = delivery.wait_for(|delivery| *delivery == Delivery::Works);
    if timeout(PROOF_TIMEOUT, proof).await.is_err() {
        return Err(Fault::Undelivered);
    }
    let mut notify_again = calls.notify_again;
    loop {
        sleep(RENEWED_EVERY).await;
        lines.run(&calls.renew).await?;
        if std::mem::take(&mut notify_again) {
            lines.run(&calls.notify).await?;
        }
    }
}
