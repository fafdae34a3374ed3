//! W6: what the next agent is told of a session.

use std::time::Instant;

use anyhow::{Result, ensure};
use azureal_core::{ContextBuilder, Event, Message, events_of_message, read_context, wrap_context};
use azureal_store::sqlite::Journal;
use futures_executor::block_on;
use serde_json::{Value, json};

use super::{MESSAGES, long_session};
use crate::measure::{median, milliseconds, repeated};
use crate::scratch::Prepared;
use crate::{data, scratch};

const REPETITIONS: usize = 7;
/// A context is compacted when it grows beyond this, so it is the longest that a turn pays for.
const LONGEST_CONTEXT: usize = 400_000;

pub(crate) fn run() -> Result<Value> {
    let long = long_session()?;
    let (whole, bytes) = repeated(REPETITIONS, || context_bytes(&long))?;

    let usual = scratch::prepared("w6.azs", || Ok(vec![turns_of_longest_context()?]))?;
    let (usual, usual_bytes) = repeated(REPETITIONS, || context_bytes(&usual))?;
    ensure!(usual_bytes > LONGEST_CONTEXT, "the context has {usual_bytes} bytes");

    Ok(json!({
        "context_bytes": bytes,
        "ms": whole,
        "context_400k_ms": usual,
        "incremental_turn_ms": one_more_turn()?,
    }))
}

/// Opens the store, builds the context as it is sent and returns its length.
fn context_bytes(session: &Prepared) -> Result<usize> {
    let store = scratch::open(&session.path, Journal::Delete)?;
    Ok(wrap_context(&block_on(read_context(&store, session.id))?).len())
}

/// Returns the first turns, so many that their context just has the length at which it is compacted.
fn turns_of_longest_context() -> Result<Vec<Vec<Message>>> {
    let mut context = ContextBuilder::default();
    let mut turns = data::turns_of_messages(MESSAGES)?;
    let enough = turns.iter().position(|messages| {
        for event in messages.iter().cloned().flat_map(events_of_message) {
            context.push(&event);
        }
        context.as_str().chars().count() >= LONGEST_CONTEXT
    });
    turns.truncate(enough.map_or(turns.len(), |last| last + 1));
    Ok(turns)
}

/// Extends a context that is kept by the events of one new turn, again and again.
fn one_more_turn() -> Result<Option<f64>> {
    let mut context = ContextBuilder::default();
    let mut times = Vec::new();
    for messages in data::turns(REPETITIONS * 20)? {
        let events: Vec<Event> = messages.into_iter().flat_map(events_of_message).collect();
        let start = Instant::now();
        for event in &events {
            context.push(event);
        }
        times.push(milliseconds(start.elapsed()));
    }
    ensure!(!context.as_str().is_empty(), "the context is empty");
    Ok(median(&times))
}
