//! W6c: what the next agent is told of a long session whose beginning is summarised.

use anyhow::{Context, Result, ensure};
use azureal_core::{
    Compaction, ContextBuilder, Message, Page, Seq, SessionId, SessionStore, events_of_message, read_context,
    wrap_context,
};
use azureal_store::SqliteStore;
use azureal_store::sqlite::Journal;
use futures_executor::block_on;
use serde_json::{Value, json};

use super::EVENTS_PER_TURN;
use crate::measure::{median, processor_seconds};
use crate::{data, scratch};

const EVENTS: u64 = 100_000;
/// What stays as it is after a compaction: at most half of what a context may have.
const KEPT_CHARS: usize = 200_000;
/// As long as a summary is.
const SUMMARY: &str = "They looked at it from all sides, changed what was wrong and ran the tests. ";
const REPETITIONS: usize = 101;

pub(crate) fn run() -> Result<Value> {
    let sessions = scratch::prepared("w6c.azs", || {
        let kept = kept_turns()?;
        let covered = data::turns(usize::MAX)?.into_iter().cycle();
        let turns = usize::try_from(EVENTS / EVENTS_PER_TURN)? - kept.len();
        Ok(vec![covered.take(turns).chain(kept.clone()).collect(), kept])
    })?;
    let store = scratch::open(&sessions.path, Journal::Delete)?;
    let alone = SessionId::new(2).context("there is no session 2")?;
    let (end, kept) = (last(&store, sessions.id)?, last(&store, alone)?);
    ensure!(end.0 > EVENTS * 99 / 100, "the long session has {end} events");
    block_on(store.add_compaction(sessions.id, &Compaction::new(Seq(end.0 - kept.0), SUMMARY.repeat(40))))?;

    // In turns, so that both see the same machine, and in processor time: each takes a millisecond or two, of
    // which others on a shared machine take their part.
    let (mut long, mut short) = (Side::default(), Side::default());
    for _ in 0..REPETITIONS {
        long.tell(&store, sessions.id)?;
        short.tell(&store, alone)?;
    }
    ensure!(long.chars > short.chars, "a summary and prompts are told too");
    let (long_ms, short_ms) = (long.median(), short.median());
    Ok(json!({
        "events": end.0,
        "events_after": kept.0,
        "cpu_ms": long_ms,
        "chars": long.chars,
        "alone_cpu_ms": short_ms,
        "alone_chars": short.chars,
        "ratio": long_ms / short_ms,
    }))
}

/// One of the two sessions.
#[derive(Default)]
struct Side {
    /// The processor time of each time, in milliseconds.
    times: Vec<f64>,
    chars: usize,
}

impl Side {
    fn tell(&mut self, store: &SqliteStore, id: SessionId) -> Result<()> {
        let before = processor_seconds();
        self.chars = told(store, id)?;
        self.times.push((processor_seconds() - before) * 1e3);
        Ok(())
    }

    fn median(&self) -> f64 {
        median(&self.times).unwrap_or(f64::NAN)
    }
}

/// Builds the context as it is sent and returns its length in characters.
fn told(store: &SqliteStore, id: SessionId) -> Result<usize> {
    Ok(wrap_context(&block_on(read_context(store, id))?).chars().count())
}

fn last(store: &SqliteStore, id: SessionId) -> Result<Seq> {
    let page = block_on(store.read(id, Page::last(1)))?;
    Ok(page.last().context("a session is empty")?.seq)
}

/// Returns the first turns, so many that their context just has the length that stays.
fn kept_turns() -> Result<Vec<Vec<Message>>> {
    let mut context = ContextBuilder::default();
    let mut turns = data::turns(usize::MAX)?;
    let enough = turns.iter().position(|messages| {
        for event in messages.iter().cloned().flat_map(events_of_message) {
            context.push(&event);
        }
        context.as_str().chars().count() >= KEPT_CHARS
    });
    turns.truncate(enough.map_or(turns.len(), |last| last + 1));
    Ok(turns)
}
