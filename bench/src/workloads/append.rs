//! W1: appending a turn, by a program that holds the store open and by one that opens it for each turn.

use anyhow::{Result, ensure};
use azureal_core::SessionStore;
use futures_executor::block_on;
use serde_json::{Value, json};

use super::{EVENTS_PER_TURN, count_events};
use crate::measure::Appending;
use crate::{Options, data, scratch};

/// Appends 2 000 turns to one session of a store that stays open.
pub(crate) fn held_open(options: &Options) -> Result<Value> {
    let turns = data::turns(options.turns.unwrap_or(2000))?;
    let count = turns.len() as u64;
    let (path, store, id) = scratch::fresh("w1.azs", options.journal)?;

    let mut appending = Appending::start();
    for messages in turns {
        appending.turn(|| Ok(block_on(store.append(id, scratch::turn(messages)))?))?;
    }
    let mut report = appending.report();

    let found = count_events(&store, id)?;
    ensure!(found == count * EVENTS_PER_TURN, "{count} turns became {found} events");
    block_on(store.close())?;
    drop(store);
    if let Some(fields) = report.as_object_mut() {
        fields.insert("bytes".into(), json!(scratch::size(&path)));
    }
    Ok(report)
}

/// Opens the store, appends one turn and closes it again, 300 times.
pub(crate) fn as_a_command(options: &Options) -> Result<Value> {
    let turns = data::turns(options.turns.unwrap_or(300))?;
    let count = turns.len() as u64;
    let (path, store, id) = scratch::fresh("w1cli.azs", options.journal)?;
    block_on(store.close())?;
    drop(store);

    let mut appending = Appending::start();
    for messages in turns {
        appending.turn(|| {
            let store = scratch::open(&path, options.journal)?;
            block_on(store.append(id, scratch::turn(messages)))?;
            block_on(store.close())?;
            Ok(())
        })?;
    }
    let mut report = appending.report();

    let found = count_events(&scratch::open(&path, options.journal)?, id)?;
    ensure!(found == count * EVENTS_PER_TURN, "{count} turns became {found} events");
    if let Some(fields) = report.as_object_mut() {
        fields.insert("bytes".into(), json!(scratch::size(&path)));
    }
    Ok(report)
}
