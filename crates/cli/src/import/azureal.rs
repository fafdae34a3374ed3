//! What `azureal export --format json` wrote.

use std::path::Path;

use azureal_core::{Compaction, Event, Seq, Tokens, TurnTotals, Uuid};
use serde::Deserialize;

use super::Arrival;
use super::recognise::parse;
use super::texts::Texts;
use super::{Identity, identity::origin};
use crate::failure::Failure;
use azureal::json::ReadLine;
use azureal_exchange::json::SESSION_VERSION as VERSION;

#[derive(Deserialize)]
struct Exported {
    version: u64,
    session: Session,
    events: Vec<ReadLine>,
    #[serde(default)]
    compactions: Vec<ExportedCompaction>,
}

#[derive(Deserialize)]
struct Session {
    id: String,
    #[serde(default)]
    uuid: Option<String>,
    #[serde(default)]
    forked_from: Option<String>,
    name: String,
    #[serde(default)]
    worktree: String,
    #[serde(default)]
    created: String,
    #[serde(default)]
    completed: Option<bool>,
    #[serde(default)]
    duration_ms: Option<u64>,
    #[serde(default)]
    cost_usd: Option<f64>,
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    #[serde(default)]
    cache_read_tokens: u64,
    #[serde(default)]
    cache_write_tokens: u64,
}

#[derive(Deserialize)]
struct ExportedCompaction {
    after_seq: u64,
    summary: String,
    #[serde(default)]
    created: String,
    #[serde(default)]
    writer: Option<String>,
    #[serde(default)]
    opening_chars: Option<u64>,
}

pub(super) fn read(path: &Path, text: &str) -> Result<Arrival, Failure> {
    let Exported { version, session, events, compactions } = parse(path, text)?;
    if version > VERSION {
        return Err(Failure::new(
            "newer",
            format!(
                "{} was written by a newer azureal: it has version {version}, and this one knows up to {VERSION}",
                path.display()
            ),
        )
        .with_hint("use a newer azureal; nothing was imported"));
    }
    let mut kept = KeptEvents::default();
    for line in events {
        let (seq, kind) = (line.seq, line.kind.clone());
        kept.add(seq, &kind, line.into_text());
    }
    // Written by hand, an export may lack them: then the events say it.
    let totals = match session.duration_ms.zip(session.cost_usd) {
        Some((duration_ms, cost_usd)) => TurnTotals { completed: session.completed, duration_ms, cost_usd },
        None => {
            let events: Vec<Event> =
                kept.texts.iter().filter_map(|text| Event::from_json(text).ok()).collect();
            TurnTotals::of(&events)
        }
    };
    let uuid = |text: Option<String>| text.and_then(|text| text.parse::<Uuid>().ok());
    Ok(Arrival {
        source: path.display().to_string(),
        identity: Identity {
            uuid: uuid(session.uuid),
            forked_from: uuid(session.forked_from),
            ..Identity::of_origin(origin(&session.id, &session.created))
        },
        totals,
        name: Some(session.name).filter(|name| *name != session.id),
        created_at: Some(session.created.clone()),
        worktree: Some(session.worktree).filter(|worktree| !worktree.is_empty()),
        compactions: compactions
            .into_iter()
            .map(|compaction| Compaction {
                after_seq: Seq(kept.up_to(compaction.after_seq) as u64),
                summary: compaction.summary,
                created_at: compaction.created,
                writer: compaction.writer,
                opening_chars: compaction.opening_chars,
            })
            .collect(),
        texts: Texts::at_hand(kept.texts),
        tokens: Tokens {
            input: session.input_tokens,
            output: session.output_tokens,
            cache_read: session.cache_read_tokens,
            cache_write: session.cache_write_tokens,
        },
        notices: Vec::new(),
        problems: kept.problems,
    })
}

/// Returns the text of an event that can be read, or what is to be said of one that cannot.
pub(super) fn readable(seq: u64, kind: &str, text: Result<String, String>) -> Result<String, String> {
    let checked = text.and_then(|text| match Event::from_json(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(error.to_string()),
    });
    checked.map_err(|why| format!("event {seq} ({kind}) was left out, because it cannot be read: {why}"))
}

/// Events that can be read, and what is to be said of the others.
#[derive(Default)]
struct KeptEvents {
    texts: Vec<String>,
    /// Their numbers where they are from, which have gaps here where one was damaged.
    numbers: Vec<u64>,
    problems: Vec<String>,
}

impl KeptEvents {
    fn add(&mut self, seq: u64, kind: &str, text: Result<String, String>) {
        match readable(seq, kind, text) {
            Ok(text) => {
                self.texts.push(text);
                self.numbers.push(seq);
            }
            Err(problem) => self.problems.push(problem),
        }
    }

    /// Returns how many of them stand at or before a place in the source.
    fn up_to(&self, seq: u64) -> usize {
        self.numbers.iter().filter(|number| **number <= seq).count()
    }
}
