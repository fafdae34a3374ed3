//! W6c: what the next agent is told of a long session whose beginning is summarised.

use std::os::unix::fs::DirBuilderExt;

use anyhow::{Context, Result, ensure};
use azureal_core::{
    Compaction, ContextBuilder, LedgerCache, Message, Page, Seq, SessionId, SessionSnapshot, SessionStore,
    Threshold, events_of_message, wrap_context,
};
use azureal_engine::Spools;
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

    // The folder of the cached ledger, as a turn has it.
    let folder = scratch::work("w6c-spool")?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let cache = Spools::new(folder);
    // In turns, so that both see the same machine, and in processor time: each takes a millisecond or two, of
    // which others on a shared machine take their part.
    let (mut long, mut first, mut short) = (Side::default(), Side::default(), Side::default());
    for _ in 0..REPETITIONS {
        long.tell(&store, sessions.id, Some(&cache))?;
        first.tell(&store, sessions.id, None)?;
        short.tell(&store, alone, Some(&cache))?;
    }
    ensure!(long.chars > short.chars, "a summary and prompts are told too");
    ensure!(long.chars == first.chars, "the cached ledger is another one");
    let (long_ms, short_ms) = (long.median(), short.median());
    Ok(json!({
        "events": end.0,
        "events_after": kept.0,
        "cpu_ms": long_ms,
        "first_cpu_ms": first.median(),
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
    fn tell(&mut self, store: &SqliteStore, id: SessionId, cache: Option<&Spools>) -> Result<()> {
        let before = processor_seconds();
        self.chars = told(store, id, cache)?;
        self.times.push((processor_seconds() - before) * 1e3);
        Ok(())
    }

    fn median(&self) -> f64 {
        median(&self.times).unwrap_or(f64::NAN)
    }
}

/// Builds the context as a turn does and returns its length in characters.
fn told(store: &SqliteStore, id: SessionId, cache: Option<&Spools>) -> Result<usize> {
    let cache = cache.map(|cache| cache as &dyn LedgerCache);
    let mut session = block_on(SessionSnapshot::read(store, id))?;
    let context = block_on(session.context(store, Threshold::default(), cache))?;
    Ok(wrap_context(&context).chars().count())
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
