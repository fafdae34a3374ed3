//! A store on a server: appending turns and loading them.

use anyhow::{Result, ensure};
use azureal_core::{SessionStore, read_history};
use futures_executor::block_on;
use serde_json::{Value, json};

use super::{EVENTS_PER_TURN, MESSAGES, count_events};
use crate::measure::{Appending, repeated};
use crate::{Options, data, scratch};

const REPETITIONS: usize = 5;

pub(super) fn measure(store: &impl SessionStore, options: &Options) -> Result<Value> {
    let turns = data::turns(options.turns.unwrap_or(2000))?;
    let count = turns.len() as u64;
    let id = block_on(store.create(scratch::session()))?;

    let mut appending = Appending::start();
    for messages in turns {
        appending.turn(|| Ok(block_on(store.append(id, scratch::turn(messages)))?))?;
    }
    let mut report = appending.report();
    let found = count_events(store, id)?;
    ensure!(found == count * EVENTS_PER_TURN, "{count} turns became {found} events");

    let long = block_on(store.create(scratch::session()))?;
    for messages in data::turns_of_messages(MESSAGES)? {
        block_on(store.append(long, scratch::turn(messages)))?;
    }
    let (ms, messages) = repeated(REPETITIONS, || Ok(block_on(read_history(store, long))?.len()))?;
    ensure!(messages == MESSAGES, "{messages} messages were loaded");
    for session in [id, long] {
        block_on(store.delete(session))?;
    }
    if let Some(fields) = report.as_object_mut() {
        fields.insert("w2_ms".into(), json!(ms));
    }
    Ok(report)
}
