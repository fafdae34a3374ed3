//! What it costs that a session is watched, and how soon one hears of a turn: PostgreSQL, on the server that `BENCH_PG`
//! names.
//!
//! Eight clients append to a session each, in turns with and without somebody who watches each of them.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use azureal_core::{SessionId, SessionStore, Watch};
use azureal_store::postgres::{PostgresOptions, PostgresStore};
use futures_executor::block_on;
use serde_json::{Value, json};

use super::postgres::open;
use crate::measure::{median, milliseconds};
use crate::{Options, data, scratch};

const WRITERS: usize = 8;
const ROUNDS: usize = 5;
/// How many turns are listened for.
const HEARD: usize = 200;
/// After so long a turn that was not heard will not be heard any more.
const LONG: Duration = Duration::from_secs(10);

pub(crate) fn run(options: &Options) -> Result<Value> {
    let one_connection = PostgresOptions { connections: 1, ..PostgresOptions::default() };
    let writers = (0..WRITERS)
        .map(|_| {
            let store = open(one_connection)?;
            let id = block_on(store.create(scratch::session()))?;
            Ok((store, id))
        })
        .collect::<Result<Vec<_>>>()?;
    let (mut alone, mut watched) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(turns_per_second(&writers, options.seconds)?);
        let watches = writers.iter().map(|(store, id)| watch(store, *id)).collect::<Result<Vec<_>>>()?;
        watched.push(turns_per_second(&writers, options.seconds)?);
        drop(watches);
        // Until nobody is thought to watch any more.
        thread::sleep(Duration::from_secs(21));
    }
    let heard_ms = hearing(&open(one_connection)?)?;
    for (store, id) in &writers {
        block_on(store.delete(*id))?;
    }
    let ratios: Vec<f64> = watched.iter().zip(&alone).map(|(watched, alone)| watched / alone).collect();
    Ok(json!({
        "turns_per_s": median(&alone),
        "watched_turns_per_s": median(&watched),
        "ratio": median(&ratios),
        "heard_ms": median(&heard_ms),
        "all_turns_per_s": alone,
        "all_watched_turns_per_s": watched,
    }))
}

/// Has all append for some seconds, as fast as they can.
fn turns_per_second(writers: &[(PostgresStore, SessionId)], seconds: u64) -> Result<f64> {
    let turns = data::turns(200)?;
    let limit = Duration::from_secs(seconds);
    let counts = thread::scope(|scope| {
        let writing: Vec<_> = writers
            .iter()
            .map(|(store, id)| {
                let turns = &turns;
                scope.spawn(move || -> Result<u64> {
                    let (start, mut count) = (Instant::now(), 0);
                    for messages in turns.iter().cycle().take_while(|_| start.elapsed() < limit) {
                        block_on(store.append(*id, scratch::turn(messages.clone())))?;
                        count += 1;
                    }
                    Ok(count)
                })
            })
            .collect();
        let joined = writing.into_iter().map(|writer| writer.join().ok().context("a writer panicked")?);
        joined.collect::<Result<Vec<u64>>>()
    })?;
    Ok(counts.iter().sum::<u64>() as f64 / seconds as f64)
}

/// Watches a session, once that can be heard.
fn watch(store: &PostgresStore, id: SessionId) -> Result<Box<dyn Watch>> {
    let mut watch = block_on(store.watch(id))?.context("the store tells nothing")?;
    let began = Instant::now();
    while block_on(watch.changed(Duration::from_millis(100)))? {
        ensure!(began.elapsed() < LONG, "listening does not work on this server");
    }
    Ok(watch)
}

/// Takes the times from when a turn is in the store to when another client has heard of it.
fn hearing(other: &PostgresStore) -> Result<Vec<f64>> {
    let store = open(PostgresOptions::default())?;
    let id = block_on(store.create(scratch::session()))?;
    let mut watch = watch(&store, id)?;
    let times = data::turns(HEARD)?.into_iter().map(|messages| {
        block_on(other.append(id, scratch::turn(messages)))?;
        let start = Instant::now();
        ensure!(block_on(watch.changed(LONG))?, "a turn was not heard of");
        Ok(milliseconds(start.elapsed()))
    });
    let times = times.collect::<Result<Vec<f64>>>()?;
    block_on(store.delete(id))?;
    Ok(times)
}
