//! Notifications of changes: `XREAD BLOCK`, on its own connection, because it blocks that.
//!
//! The server wakes a client that waits for a stream when an entry is added. For one session that is the stream of
//! its events. Clearing or deleting a session wakes no client, so waits are short, and the session is read after
//! each.
//!
//! A project has its own stream, to which every change adds while a client watches: a key that expires marks the
//! project as watched. A channel (`PUBLISH`) is not used: it needs another kind of connection, and a cluster would
//! send the message to all its servers.

use std::time::{Duration, Instant};

use azureal_core::{Seq, SessionId, StoreError, Watch, async_trait};
use redis::Pipeline;

use super::connection::{Connections, Request};
use super::error::Fault;
use super::{RedisStore, replies};

/// The longest delay of the notification that a session was cleared or deleted.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// To Redis, a wait of no time is one without an end.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The generation of a session, and its last event; `None` if it is deleted.
type State = Option<(u64, Seq)>;

struct RedisWatch {
    connections: Connections,
    session: String,
    events: String,
    /// The state of the session when it was last read.
    seen: State,
}

impl RedisStore {
    pub(super) async fn watched(&self, id: SessionId) -> Result<Option<Box<dyn Watch>>, StoreError> {
        let (session, events) = (self.keys.session(id), self.keys.events(id));
        let mut watch = RedisWatch { connections: self.connections.another(), session, events, seen: None };
        watch.seen = watch.look_after(Duration::ZERO).await?;
        watch.seen.ok_or(StoreError::NoSuchSession(id))?;
        Ok(Some(Box::new(watch)))
    }
}

#[async_trait]
impl Watch for RedisWatch {
    async fn changed(&mut self, at_most: Duration) -> Result<bool, StoreError> {
        let began = Instant::now();
        loop {
            let left = at_most.saturating_sub(began.elapsed());
            match self.look_after(left.min(LONGEST_WAIT)).await {
                Ok(state) if state != self.seen => {
                    self.seen = state;
                    return Ok(true);
                }
                Ok(_) => {}
                Err(StoreError::Unreachable { .. }) => {
                    // Changes meanwhile are not reported.
                    self.connections.wait(left).await?;
                    return Ok(true);
                }
                Err(error) => return Err(error),
            }
            if began.elapsed() >= at_most {
                return Ok(false);
            }
        }
    }
}

impl RedisWatch {
    /// Waits until an event is added to the session, at most `at_most`, and reads its state.
    async fn look_after(&self, at_most: Duration) -> Result<State, StoreError> {
        let mut look = Pipeline::new();
        if at_most >= SHORTEST_WAIT {
            let last = self.seen.map_or(Seq::START, |(_, last)| last);
            let milliseconds = at_most.as_millis().to_string();
            look.cmd("XREAD").arg(&["COUNT", "1", "BLOCK", &milliseconds, "STREAMS"]);
            look.arg(&self.events).arg(replies::place(last));
        }
        look.cmd("HMGET").arg(&self.session).arg(&["name", "generation", "last_seq"]);
        // Without retries: the caller learns that there are no notifications, instead of waiting longer.
        let answers = self.connections.ask_for(Request::Commands(look), Duration::ZERO).await?;
        let state =
            replies::list(answers).and_then(|mut answers| state_of(answers.pop().unwrap_or_default()));
        state.map_err(|fault| fault.at(self.connections.place(), Duration::ZERO))
    }
}

/// The time for which a project counts as watched, and the interval of renewal.
const WATCHED: Duration = Duration::from_secs(20);
const RENEWED_EVERY: Duration = Duration::from_secs(5);

struct RedisProjectWatch {
    connections: Connections,
    watched: String,
    changes: String,
    /// The last reported change.
    seen: String,
    /// The time of the last renewal. Without renewal the server stops recording changes.
    renewed: Instant,
    /// Whether the project may have changed without a notification.
    is_deaf: bool,
}

impl RedisStore {
    pub(super) async fn all_watched(&self) -> Result<Option<Box<dyn Watch>>, StoreError> {
        let connections = self.connections.another();
        let (watched, changes) = (self.keys.watched(), self.keys.changes());
        let (seen, renewed) = ("0-0".to_owned(), Instant::now());
        let mut watch = RedisProjectWatch { connections, watched, changes, seen, renewed, is_deaf: false };
        match watch.look_after(Duration::ZERO).await {
            Ok(last) => watch.seen = last.unwrap_or(watch.seen),
            // A user who may only read, or a replica.
            Err(StoreError::Denied { .. } | StoreError::ReadOnly { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        Ok(Some(Box::new(watch)))
    }
}

#[async_trait]
impl Watch for RedisProjectWatch {
    async fn changed(&mut self, at_most: Duration) -> Result<bool, StoreError> {
        let began = Instant::now();
        // The caller may have been away.
        self.is_deaf |= self.renewed.elapsed() + RENEWED_EVERY > WATCHED;
        loop {
            let left = at_most.saturating_sub(began.elapsed());
            let wait = if self.is_deaf { Duration::ZERO } else { left.min(RENEWED_EVERY) };
            let asked = Instant::now();
            match self.look_after(wait).await {
                Ok(last) => {
                    self.renewed = asked;
                    let is_new = last.as_ref().is_some_and(|last| *last != self.seen);
                    self.seen = last.unwrap_or_else(|| self.seen.clone());
                    if is_new || std::mem::take(&mut self.is_deaf) {
                        return Ok(true);
                    }
                }
                Err(StoreError::Unreachable { .. }) => {
                    self.is_deaf = true;
                    self.connections.wait(left).await?;
                    return Ok(true);
                }
                Err(error) => return Err(error),
            }
            if began.elapsed() >= at_most {
                return Ok(false);
            }
        }
    }
}

impl RedisProjectWatch {
    /// Waits for a change, but not longer than `at_most`, and returns the last one. Has the project watched.
    async fn look_after(&self, at_most: Duration) -> Result<Option<String>, StoreError> {
        let mut look = Pipeline::new();
        look.cmd("SET").arg(&self.watched).arg(&["1", "PX", &WATCHED.as_millis().to_string()]);
        if at_most >= SHORTEST_WAIT {
            let milliseconds = at_most.as_millis().to_string();
            look.cmd("XREAD").arg(&["COUNT", "1", "BLOCK", &milliseconds, "STREAMS"]);
            look.arg(&self.changes).arg(&self.seen);
        }
        look.cmd("XREVRANGE").arg(&self.changes).arg(&["+", "-", "COUNT", "1"]);
        let answers = self.connections.ask_for(Request::Commands(look), Duration::ZERO).await?;
        let last = replies::list(answers).and_then(|mut answers| last_of(answers.pop().unwrap_or_default()));
        last.map_err(|fault| fault.at(self.connections.place(), Duration::ZERO))
    }
}

/// Reads the place of the one entry that `XREVRANGE` found.
fn last_of(entries: redis::Value) -> Result<Option<String>, Fault> {
    let Some(entry) = replies::list(entries)?.into_iter().next() else { return Ok(None) };
    replies::list(entry)?.into_iter().next().map(replies::text).transpose()
}

fn state_of(fields: redis::Value) -> Result<State, Fault> {
    let fields: Vec<Option<String>> =
        replies::list(fields)?.into_iter().map(replies::optional_text).collect::<Result<_, _>>()?;
    let [name, generation, last] = fields.as_slice() else { return Ok(None) };
    let number = |text: &Option<String>| text.as_deref().map_or(Ok(0), replies::number);
    Ok(if name.is_some() { Some((number(generation)?, Seq(number(last)?))) } else { None })
}
