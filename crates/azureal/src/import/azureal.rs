//! What `azureal export --format json` wrote.

use std::path::Path;

use azureal_core::{Event, SessionId, Tokens, TurnTotals};
use serde::Deserialize;

use super::recognise::parse;
use super::texts::Texts;
use super::{Arrival, Summary};
use crate::event_line::ReadLine;
use crate::export::json::VERSION;
use crate::failure::Failure;

#[derive(Deserialize)]
struct Exported {
    version: u64,
    session: Session,
    events: Vec<ReadLine>,
    #[serde(default)]
    compactions: Vec<Compaction>,
}

#[derive(Deserialize)]
struct Session {
    id: String,
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
}

#[derive(Deserialize)]
struct Compaction {
    after_seq: u64,
    summary: String,
    #[serde(default)]
    created: String,
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
    Ok(Arrival {
        source: path.display().to_string(),
        origin: origin(&session.id, &session.created),
        totals,
        name: Some(session.name).filter(|name| *name != session.id),
        created_at: Some(session.created.clone()),
        worktree: Some(session.worktree).filter(|worktree| !worktree.is_empty()),
        compactions: compactions
            .into_iter()
            .map(|compaction| Summary {
                covers: kept.up_to(compaction.after_seq),
                text: compaction.summary,
                created_at: compaction.created,
            })
            .collect(),
        texts: Texts::at_hand(kept.texts),
        tokens: Tokens { input: session.input_tokens, output: session.output_tokens },
        problems: kept.problems,
    })
}

/// Returns what a session of azureal is known by, be it in a store or exported from one.
pub(super) fn origin(id: &str, created: &str) -> String {
    format!("azureal:{id}@{created}")
}

/// Returns the number of a session where it is from, and when it was made, if it is one of azureal.
pub(super) fn home(origin: &str) -> Option<(SessionId, &str)> {
    let (id, created) = origin.strip_prefix("azureal:")?.split_once('@')?;
    Some((id.parse().ok()?, created))
}

/// Returns the mark that remembers where a session was copied from.
pub(super) fn origin_mark(id: SessionId) -> String {
    format!("origin:{id}")
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
