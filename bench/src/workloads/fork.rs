//! W4: forking a long session.

use std::fs;
use std::time::Instant;

use anyhow::{Result, ensure};
use azureal_core::{Seq, SessionStore};
use azureal_store::sqlite::Journal;
use futures_executor::block_on;
use serde_json::{Value, json};

use super::{count_events, long_session};
use crate::measure::{median, milliseconds};
use crate::scratch;

const REPETITIONS: usize = 5;

pub(crate) fn run() -> Result<Value> {
    let long = long_session()?;
    let path = scratch::work("w4.azs")?;
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        // A fresh copy, as a file that has room left from the last fork would be filled faster.
        scratch::remove(&path)?;
        fs::copy(&long.path, &path)?;
        let store = scratch::open(&path, Journal::Delete)?;
        // Reading it warms the page cache of this copy.
        let events = count_events(&store, long.id)?;

        let start = Instant::now();
        let fork = block_on(store.fork(long.id, Seq::END, scratch::session()))?;
        times.push(milliseconds(start.elapsed()));

        let forked = count_events(&store, fork)?;
        ensure!(forked == events, "{forked} of {events} events are in the fork");
        block_on(store.close())?;
    }
    scratch::remove(&path)?;
    Ok(json!({"ms": median(&times)}))
}
