//! W8: eight processes that append as fast as they can.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result};
use azureal_core::{ListQuery, SessionId, SessionStore};
use azureal_store::sqlite::Journal;
use futures_executor::block_on;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{EVENTS_PER_TURN, count_events};
use crate::measure::{milliseconds, percentile};
use crate::{Options, data, scratch};

const WRITERS: usize = 8;
const STORE: &str = "w8.azs";
/// Long enough for eight processes to start and to open a file that nobody writes to.
const START_AFTER_MILLISECONDS: u64 = 1000;

/// What one writer says of itself.
#[derive(Serialize, Deserialize)]
struct Writer {
    ok: u64,
    error_texts: BTreeMap<String, u64>,
    p99_ms: f64,
    max_ms: f64,
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    match options.child {
        Some(child) => Ok(serde_json::to_value(write(child, options)?)?),
        None => start_writers(options),
    }
}

fn start_writers(options: &Options) -> Result<Value> {
    let (_, store, _) = scratch::fresh(STORE, options.journal)?;
    for _ in 1..WRITERS {
        block_on(store.create(scratch::session()))?;
    }
    // One start line for all, after everybody has opened the file: a writer that came late to its seconds
    // would spend the end of them alone, and what it wrote then would count as written against seven others.
    let start = epoch_milliseconds()? + START_AFTER_MILLISECONDS;
    let ourselves = std::env::current_exe()?;
    let children: Vec<_> = (1..=WRITERS)
        .map(|child| {
            Command::new(&ourselves)
                .args(["w8", "--child", &child.to_string()])
                .args(["--start", &start.to_string()])
                .args(["--secs", &options.seconds.to_string()])
                .args(["--same", if options.same { "1" } else { "0" }])
                .args(["--journal", journal_name(options.journal)])
                .stdout(Stdio::piped())
                .spawn()
        })
        .collect();
    let mut writers: Vec<Writer> = Vec::new();
    for child in children {
        let output = child?.wait_with_output()?;
        let line = String::from_utf8_lossy(&output.stdout);
        writers.push(serde_json::from_str(&line).with_context(|| format!("a writer said {line}"))?);
    }

    let mut rows = 0;
    for session in block_on(store.list(&ListQuery::default()))? {
        rows += count_events(&store, session.id)?;
    }
    let ok: u64 = writers.iter().map(|writer| writer.ok).sum();
    let mut errors: BTreeMap<&str, u64> = BTreeMap::new();
    for (text, count) in writers.iter().flat_map(|writer| &writer.error_texts) {
        *errors.entry(text).or_default() += count;
    }
    let longest = |time: fn(&Writer) -> f64| writers.iter().map(time).fold(0.0, f64::max);
    Ok(json!({
        "turns_per_s": ok as f64 / options.seconds as f64,
        "ok": ok,
        "errors": errors.values().sum::<u64>(),
        "error_texts": errors,
        "lost_rows": (ok * EVENTS_PER_TURN).cast_signed() - rows.cast_signed(),
        "p99_ms": longest(|writer| writer.p99_ms),
        "max_ms": longest(|writer| writer.max_ms),
        "min_share": writers.iter().map(|writer| writer.ok).min(),
        "max_share": writers.iter().map(|writer| writer.ok).max(),
    }))
}

fn write(child: usize, options: &Options) -> Result<Writer> {
    let turns = data::turns(200)?;
    let store = scratch::open(&scratch::work(STORE)?, options.journal)?;
    let session = if options.same { 1 } else { child };
    let id = u32::try_from(session).ok().and_then(SessionId::new);
    let id = id.context("there is no session 0")?;

    let mut writer = Writer { ok: 0, error_texts: BTreeMap::new(), p99_ms: 0.0, max_ms: 0.0 };
    let mut times = Vec::new();
    let limit = Duration::from_secs(options.seconds);
    let wait = options.start.checked_sub(epoch_milliseconds()?);
    thread::sleep(Duration::from_millis(wait.context("too late for the start")?));
    let start = Instant::now();
    for messages in turns.iter().cycle() {
        if start.elapsed() >= limit {
            break;
        }
        let messages = messages.clone();
        let turn_start = Instant::now();
        match block_on(store.append(id, scratch::turn(messages))) {
            Ok(_) => writer.ok += 1,
            Err(error) => *writer.error_texts.entry(error.to_string()).or_default() += 1,
        }
        times.push(milliseconds(turn_start.elapsed()));
    }
    block_on(store.close())?;
    writer.p99_ms = percentile(&times, 0.99).unwrap_or(f64::NAN);
    writer.max_ms = percentile(&times, 1.0).unwrap_or(f64::NAN);
    Ok(writer)
}

fn epoch_milliseconds() -> Result<u64> {
    Ok(u64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?)
}

fn journal_name(journal: Journal) -> &'static str {
    match journal {
        Journal::Delete => "delete",
        Journal::Wal => "wal",
    }
}
