//! Recovery of interrupted turns: every command stores them, and says so.

use std::time::Duration;

use azureal_core::{SessionId, StoreError, elapsed_text};
use azureal_engine::{IngestError, Noted, OriginalRunEvent, Recovered};
use jiff::Timestamp;

use crate::confirm::{Answer, ask};
use crate::output::{tell, warn};
use crate::turn::kept;
use azureal::Workspace;

/// Stores the interrupted turns that can be stored, reports each in a line, and returns what was found.
///
/// Never an error: a store that cannot be written can still be read.
pub(crate) async fn recover(place: &Workspace) -> Vec<Recovered> {
    let found = look(place).await;
    found.iter().for_each(report);
    found
}

/// Reports the findings of a turn that are new: the program may have reported some when it started.
pub(crate) struct Told<'a> {
    before: &'a [Recovered],
    since: Vec<Recovered>,
}

impl<'a> Told<'a> {
    pub(crate) fn new(before: &'a [Recovered]) -> Self {
        Self { before, since: Vec::new() }
    }

    pub(crate) fn report(&mut self, found: Recovered) {
        let is_same = |told: &Recovered| {
            std::mem::discriminant(told) == std::mem::discriminant(&found) && subject(told) == subject(&found)
        };
        if !self.before.iter().chain(&self.since).any(is_same) {
            report(&found);
            self.since.push(found);
        }
    }

    /// Warns if a turn of the session was never stored and cannot be recovered: the next turn replaces the note of it.
    pub(crate) fn warn_of_lost(&self, session: SessionId) {
        for found in self.before.iter().chain(&self.since) {
            if let Recovered::Noted(id, _, Ok(Noted::Busy | Noted::Missing)) = found
                && *id == session
            {
                warn(&found.to_string());
            }
        }
    }
}

/// Returns what a finding is about.
fn subject(found: &Recovered) -> String {
    match found {
        Recovered::Noted(session, run, noted) => {
            format!("{session} {run} {:?}", noted.as_ref().ok().map(std::mem::discriminant))
        }
        Recovered::Unreadable(path) => path.display().to_string(),
        other => other.turn().map(|turn| turn.run.clone()).unwrap_or_default(),
    }
}

async fn look(place: &Workspace) -> Vec<Recovered> {
    place.recover().await.unwrap_or_else(|error| {
        warn(error.message());
        Vec::new()
    })
}

fn report(found: &Recovered) {
    match found {
        // It had been stored, and only its spool was left.
        Recovered::Stored(_, ingested) if ingested.appended.is_none() => {}
        Recovered::Stored(_, ingested) => {
            tell(&found.to_string());
            if let Some(path) = &ingested.kept {
                warn(&kept(path));
            }
            ingested.notices.iter().for_each(|notice| warn(notice));
        }
        Recovered::Orphan(turn, _) => {
            let began = turn.started_at.parse::<Timestamp>().unwrap_or(Timestamp::MAX);
            let elapsed = Duration::try_from(Timestamp::now().duration_since(began)).unwrap_or_default();
            tell(&format!(
                "{found} ({}). `azureal cancel S{}` stops it",
                elapsed_text(elapsed),
                turn.session
            ));
        }
        Recovered::Running(..) => {}
        Recovered::Failed(turn, IngestError::Store(StoreError::NoSuchSession(_))) => warn(&format!(
            "an interrupted turn is kept though its session S{} is not in this store. Remove the files `{}.*` in the \
             spool folder to discard it",
            turn.session, turn.run
        )),
        Recovered::SummaryStopped(_) | Recovered::Noted(_, _, Ok(Noted::Stored(..))) => {
            tell(&found.to_string());
        }
        // Told when the session continues.
        Recovered::Noted(_, _, Ok(Noted::Missing | Noted::WasStored | Noted::Busy | Noted::Running)) => {}
        Recovered::Failed(..)
        | Recovered::Unreadable(_)
        | Recovered::UnknownAgent(_)
        | Recovered::Noted(_, _, Err(_)) => warn(&found.to_string()),
    }
}

/// Reports a run that the original AZUREAL program noted in a session, and asks whether to recover it.
pub(crate) fn answer_original_run(run: OriginalRunEvent) {
    match run {
        OriginalRunEvent::Running { session, idle } => tell(&format!(
            "{session}: the original AZUREAL program may still be running a turn here (its transcript changed {} ago). \
             That turn is not part of the history yet",
            elapsed_text(idle)
        )),
        OriginalRunEvent::Abandoned { session, idle, record, answer } => {
            let noted = format!(
                "{session}: the original AZUREAL program noted a run {} ago that it never stored.",
                elapsed_text(idle)
            );
            let is_wanted = match ask(&format!("{noted} Recover it from {record}? [y/N] ")) {
                Answer::Yes => true,
                Answer::No => false,
                Answer::Nobody => {
                    tell(&noted);
                    tell(&format!(
                        "hint: `azureal run -s {session}` on a terminal recovers it from {record}"
                    ));
                    false
                }
            };
            // A turn that is over needs no answer.
            answer.send(is_wanted).ok();
        }
        OriginalRunEvent::Recovered { session, noted } => match noted {
            Ok(Noted::Stored(..) | Noted::WasStored) => {
                tell(&Recovered::Noted(session, String::new(), noted).to_string());
            }
            Ok(Noted::Busy | Noted::Missing | Noted::Running) => {
                tell(&format!(
                    "the last turn of {session} was not recovered: its transcript has just changed"
                ));
            }
            Err(error) => warn(&format!("the last turn of {session} could not be recovered: {error}")),
        },
    }
}
