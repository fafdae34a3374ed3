//! Reader for exported sessions ([`crate::json`]).

use std::path::Path;

use azureal_core::{Compaction, Event, Seq, Tokens, TurnTotals, Uuid};
use serde::Deserialize;

use super::event_texts::EventTexts;
use super::problem::{ImportProblem, Reason};
use super::recognise::parse;
use super::{ImportError, IncomingSession};
use crate::identity::{SessionIdentity, origin};
use crate::json::{ParsedEventLine, SESSION_VERSION};

#[derive(Deserialize)]
struct ExportedFile {
    version: u64,
    session: ExportedSession,
    events: Vec<ParsedEventLine>,
    #[serde(default)]
    compactions: Vec<ExportedCompaction>,
}

#[derive(Deserialize)]
struct ExportedSession {
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
    last_active: String,
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

pub(super) fn read(path: &Path, text: &str) -> Result<IncomingSession, ImportError> {
    let ExportedFile { version, session, events, compactions } = parse(path, text)?;
    if version > SESSION_VERSION {
        return Err(ImportError::NewerVersion { path: path.to_owned(), version });
    }
    let mut kept = KeptEvents::default();
    for line in events {
        let (seq, kind) = (line.seq, line.kind.clone());
        kept.add(seq, &kind, line.into_text().map_err(Reason::from));
    }
    // A file that was written by hand may lack the totals. The events have them too.
    let totals = match session.duration_ms.zip(session.cost_usd) {
        Some((duration_ms, cost_usd)) => TurnTotals { completed: session.completed, duration_ms, cost_usd },
        None => {
            let events: Vec<Event> =
                kept.texts.iter().filter_map(|text| Event::from_json(text).ok()).collect();
            TurnTotals::of(&events)
        }
    };
    let uuid = |text: Option<String>| text.and_then(|text| text.parse::<Uuid>().ok());
    Ok(IncomingSession {
        label: path.display().to_string(),
        identity: SessionIdentity::new(
            uuid(session.uuid),
            uuid(session.forked_from),
            origin(&session.id, &session.created),
        ),
        totals,
        name: Some(session.name).filter(|name| *name != session.id),
        named_at: None,
        created_at: Some(session.created.clone()),
        last_active: Some(session.last_active),
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
        texts: EventTexts::in_memory(kept.texts),
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

/// Returns the text of an event, or the problem if it cannot be read.
pub(super) fn readable(seq: u64, kind: &str, text: Result<String, Reason>) -> Result<String, ImportProblem> {
    let checked = text.and_then(|text| match Event::from_json(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(error.into()),
    });
    checked.map_err(|source| ImportProblem::EventLeftOut { seq, kind: kind.to_owned(), source })
}

/// The readable events, and the problems of the others.
#[derive(Default)]
struct KeptEvents {
    texts: Vec<String>,
    /// Their numbers in the source, with gaps for damaged events.
    numbers: Vec<u64>,
    problems: Vec<ImportProblem>,
}

impl KeptEvents {
    fn add(&mut self, seq: u64, kind: &str, text: Result<String, Reason>) {
        match readable(seq, kind, text) {
            Ok(text) => {
                self.texts.push(text);
                self.numbers.push(seq);
            }
            Err(problem) => self.problems.push(problem),
        }
    }

    /// Returns the number of readable events up to a place in the source.
    fn up_to(&self, seq: u64) -> usize {
        self.numbers.iter().filter(|number| **number <= seq).count()
    }
}
