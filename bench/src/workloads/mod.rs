//! The workloads, one file each. How often each is repeated is what the raw limit does.

pub(crate) mod append;
pub(crate) mod compacted;
pub(crate) mod contend;
pub(crate) mod context;
pub(crate) mod fork;
pub(crate) mod list;
pub(crate) mod load;
pub(crate) mod postgres;
pub(crate) mod redis;
mod server;
pub(crate) mod watched;

use anyhow::{Result, ensure};
use azureal_core::{Page, Seq, SessionId, SessionStore};
use futures_executor::block_on;

use crate::data;
use crate::scratch::{self, Prepared};

/// How many messages the long session has.
const MESSAGES: usize = 10_000;
/// How many messages the data has per turn, and how many events they are.
const EVENTS_PER_TURN: u64 = 6;

/// Returns the store with the session of 10 000 messages.
fn long_session() -> Result<Prepared> {
    scratch::prepared("w2.azs", || Ok(vec![data::turns_of_messages(MESSAGES)?]))
}

/// Counts the events of a session by reading them all, and makes sure that none is missing between them.
fn count_events(store: &impl SessionStore, id: SessionId) -> Result<u64> {
    let mut last = Seq::START;
    loop {
        let page = block_on(store.read(id, Page::After(last, 1000)))?;
        if page.is_empty() {
            return Ok(last.0);
        }
        for event in page {
            ensure!(event.seq == last.next(), "{id} has no event {}", last.next());
            last = event.seq;
        }
    }
}
