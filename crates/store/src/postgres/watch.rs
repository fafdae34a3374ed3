//! Hearing of what others write: `LISTEN`, on a connection of its own.
//!
//! A `NOTIFY` makes commits wait for each other (`docs/decisions/0005-postgres-functions.md`), so a change does it
//! only in a session that somebody watches. The row of the session says so: `watched_until`, by the clock of the
//! server, renewed for as long as they do.
//!
//! Once it listens and its session says so, a watch rings its own bell, by way of another connection. To hear that is
//! the proof that listening works here, which through a pooler that hands connections around it does not. Whatever
//! was written before is seen by whoever looks then, and whatever is written afterwards rings. Until that moment, and
//! whenever the connection is down, the watch says each time that something may have changed: its owner looks as
//! often as if there were none.

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

/// How long a session counts as watched, and how often that is renewed.
const LASTS: Duration = Duration::from_secs(20);
const RENEWED_EVERY: Duration = Duration::from_secs(5);
/// How long to wait before a connection that broke is made again.
const WAIT: Duration = Duration::from_secs(1);

/// Whether the bell of a session can be heard. To say once more that it is open is a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ear {
    Open,
    Deaf,
}

struct PostgresWatch {
    ear: watch::Receiver<Ear>,
    lines: Lines,
    runtime: Handle,
    /// Ends when it is dropped.
    _listening: JoinSet<()>,
}

/// What a watch asks of the server, again after each break.
struct Calls {
    listen: Call,
    renew: Call,
    ring: Call,
}

impl PostgresStore {
    pub(super) async fn watched(&self, id: SessionId) -> Result<Option<Box<dyn Watch>>, StoreError> {
        self.get(id).await?;
        let about = |sql: &str| self.call(sql).with(Type::INT4, rows::number(id));
        let calls = Calls {
            listen: about("SELECT @schema@.listen_to($1, $2)"),
            renew: about(
                "UPDATE @schema@.sessions SET watched_until = clock_timestamp() + make_interval(secs => $3)
                 WHERE project = $1 AND session = $2",
            )
            .with(Type::FLOAT8, LASTS.as_secs_f64()),
            ring: about("SELECT @schema@.ring($1, $2)"),
        };
        let (said, ear) = watch::channel(Ear::Deaf);
        let (lines, runtime) = (self.connections.lines(), self.connections.runtime());
        let mut listening = JoinSet::new();
        listening.spawn_on(listen(lines.clone(), Arc::new(calls), said), &runtime);
        Ok(Some(Box::new(PostgresWatch { ear, lines, runtime, _listening: listening })))
    }
}

#[async_trait]
impl Watch for PostgresWatch {
    async fn changed(&mut self, at_most: Duration) -> Result<bool, StoreError> {
        if self.lines.are_closed() {
            return Err(StoreError::Closed);
        }
        // The clock is on the store's thread. What it hears there counts as heard here only once it is said.
        let mut ear = self.ear.clone();
        let waiting = self.runtime.spawn(async move { timeout(at_most, ear.changed()).await.is_ok() });
        let has_rung = waiting.await.map_err(|_| StoreError::Closed)?;
        let ear = *self.ear.borrow_and_update();
        Ok(has_rung || ear == Ear::Deaf)
    }
}

/// Listens, on one connection after the other.
async fn listen(lines: Lines, calls: Arc<Calls>, ear: watch::Sender<Ear>) {
    loop {
        let ended = match lines.open_another().await {
            Ok((client, connection)) => {
                let mut both = JoinSet::new();
                both.spawn(hear(connection, ear.clone()));
                both.spawn(stay_watched(client, lines.clone(), Arc::clone(&calls)));
                both.join_next().await
            }
            Err(fault) => Some(Ok(Err(fault))),
        };
        ear.send_replace(Ear::Deaf);
        match ended {
            Some(Ok(Err(fault))) if fault.is_passing() && !fault.is_read_only() => sleep(WAIT).await,
            // Somebody who may only read, or a server that will not have it: nothing is heard here.
            _ => pending().await,
        }
    }
}

/// Takes what the server says on a connection. Only its one session rings there.
async fn hear<S, T>(mut connection: Connection<S, T>, ear: watch::Sender<Ear>) -> Result<Infallible, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(said) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(_) = said? {
            ear.send_replace(Ear::Open);
        }
    }
    Err(Fault::Closed)
}

/// Has the session ring on a connection, for as long as it is there.
async fn stay_watched(client: Client, lines: Lines, calls: Arc<Calls>) -> Result<Infallible, Fault> {
    calls.listen.run_on(&client).await?;
    lines.run(&calls.renew).await?;
    lines.run(&calls.ring).await?;
    loop {
        sleep(RENEWED_EVERY).await;
        lines.run(&calls.renew).await?;
    }
}
