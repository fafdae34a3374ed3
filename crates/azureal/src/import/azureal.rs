//! What `azureal export --format json` wrote.

use std::path::Path;

use azureal_core::{Event, Tokens, TurnTotals};
use serde::Deserialize;

use super::recognise::parse;
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
    Ok(Arrival {
        source: path.display().to_string(),
        origin: origin(&session.id, &session.created),
        home: session.id.parse().ok().map(|id| (id, session.created.clone())),
        // Written by hand, an export may lack them: then the events say it.
        totals: session.duration_ms.zip(session.cost_usd).map(|(duration_ms, cost_usd)| TurnTotals {
            completed: session.completed,
            duration_ms,
            cost_usd,
        }),
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
        events: kept.texts,
        tokens: Tokens { input: session.input_tokens, output: session.output_tokens },
        problems: kept.problems,
    })
}

/// Returns what a session of azureal is known by, be it in a store or exported from one.
pub(super) fn origin(id: &str, created: &str) -> String {
    format!("azureal:{id}@{created}")
}

/// Events that can be read, and what is to be said of the others.
#[derive(Default)]
pub(super) struct KeptEvents {
    pub(super) texts: Vec<String>,
    /// Their numbers where they are from, which have gaps here where one was damaged.
    numbers: Vec<u64>,
    pub(super) problems: Vec<String>,
}

impl KeptEvents {
    pub(super) fn add(&mut self, seq: u64, kind: &str, text: Result<String, String>) {
        let checked = text.and_then(|text| match Event::from_json(&text) {
            Ok(_) => Ok(text),
            Err(error) => Err(error.to_string()),
        });
        match checked {
            Ok(text) => {
                self.texts.push(text);
                self.numbers.push(seq);
            }
            Err(why) => {
                let problem = format!("event {seq} ({kind}) was left out, because it cannot be read: {why}");
                self.problems.push(problem);
            }
        }
    }

    /// Returns how many of them stand at or before a place in the source.
    pub(super) fn up_to(&self, seq: u64) -> usize {
        self.numbers.iter().filter(|number| **number <= seq).count()
    }
}
