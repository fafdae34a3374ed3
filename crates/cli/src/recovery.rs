//! Recovery of interrupted turns: every command stores them, and says so.

use std::time::Duration;

use azureal_agents::registry;
use azureal_core::event::{Complete, Outcome};
use azureal_core::{LeaseId, SessionId, StoreError, visible_line};
use azureal_engine::{
    IngestError, Noted, OriginalRun, Recovered, SpooledTurn, look_at_original, recover_original,
};
use azureal_process::ProcessIdentity;
use jiff::Timestamp;

use crate::confirm::{Answer, ask};
use crate::failure::Failure;
use crate::output::{tell, warn};
use crate::turn::kept;
use azureal::Workspace;
use azureal::error::shown;

/// Stores the interrupted turns that can be stored, reports each in a line, and returns what was found.
///
/// Never an error: a store that cannot be written can still be read.
pub(crate) async fn recover(place: &Workspace) -> Vec<Recovered> {
    let found = look(place).await;
    found.iter().for_each(report);
    found
}

/// Looks again, now that the caller holds the lease: a turn may have ended or begun since. Reports only what is new.
pub(crate) async fn recover_again(place: &Workspace, before: &[Recovered]) -> Vec<Recovered> {
    let found = look(place).await;
    let is_told = |found: &Recovered| {
        let is_alike = |before: &&Recovered| std::mem::discriminant(*before) == std::mem::discriminant(found);
        before.iter().filter(is_alike).any(|before| subject(before) == subject(found))
    };
    found.iter().filter(|found| !is_told(found)).for_each(report);
    found
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
        Recovered::Stored(turn, ingested) => {
            tell(&recovered(&name(turn), &ingested.complete));
            if let Some(path) = &ingested.kept {
                warn(&kept(path));
            }
        }
        Recovered::Orphan(turn, _) => {
            let began = turn.started_at.parse::<Timestamp>().unwrap_or(Timestamp::MAX);
            let elapsed = Duration::try_from(Timestamp::now().duration_since(began)).unwrap_or_default();
            tell(&format!(
                "{0}: {1} is still running in the background ({2}). `azureal cancel {0}` stops it",
                name(turn),
                visible_line(&turn.agent),
                in_words(elapsed)
            ));
        }
        Recovered::Running(..) => {}
        Recovered::Failed(turn, IngestError::Store(StoreError::NoSuchSession(_))) => warn(&format!(
            "an interrupted turn is kept though its session {} is not in this store. Remove the files `{}.*` in the \
             spool folder to discard it",
            name(turn),
            turn.run
        )),
        Recovered::Failed(turn, error) => {
            warn(&format!("the interrupted turn of {} could not be stored and is kept: {error}", name(turn)));
        }
        Recovered::Unreadable(path) => {
            warn(&format!("`{}` does not say which turn it belongs to. It is kept", shown(path)));
        }
        Recovered::UnknownAgent(turn) => warn(&format!(
            "the interrupted turn of {} is kept: its agent `{}` is unknown to this version of azureal",
            name(turn),
            visible_line(&turn.agent)
        )),
        Recovered::Noted(session, _, Ok(Noted::Stored(ingested, record))) => {
            tell(&format!("{} from {record}", recovered(&session.to_string(), &ingested.complete)));
        }
        // Told when the session continues.
        Recovered::Noted(_, _, Ok(Noted::Missing | Noted::WasStored | Noted::Busy)) => {}
        Recovered::Noted(session, run, Err(error)) => warn(&format!(
            "the interrupted turn of {session} could not be recovered from the agent's own transcript `{}`: {error}",
            visible_line(run)
        )),
    }
}

fn recovered(session: &str, complete: &Complete) -> String {
    let how = match complete.outcome {
        Some(Outcome::Done) => "complete",
        Some(Outcome::Cancelled) => "cancelled",
        Some(Outcome::Timeout) => "timed out",
        Some(Outcome::Failed) => "failed",
        Some(Outcome::Interrupted) | None => "incomplete",
    };
    format!("recovered the last turn of {session} ({how})")
}

fn name(turn: &SpooledTurn) -> String {
    format!("S{}", turn.session)
}

/// Returns a length of time in its largest unit: 12 s, 3 min, 5 h, 2 days.
fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min", seconds / 60),
        seconds @ 3_600..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Returns the agent of a session that runs in the background without an azureal.
pub(crate) fn orphan_of(found: &[Recovered], session: SessionId) -> Option<(&SpooledTurn, &ProcessIdentity)> {
    found.iter().find_map(|found| match found {
        Recovered::Orphan(turn, process) if turn.session_id() == Some(session) => Some((turn, process)),
        _ => None,
    })
}

/// Warns if a turn of the session was never stored and cannot be recovered: the next turn replaces the note of it.
pub(crate) fn warn_of_lost(found: &[Recovered], session: SessionId) {
    for found in found {
        if let Recovered::Noted(id, run, Ok(Noted::Busy)) = found
            && *id == session
        {
            warn(&format!(
                "an agent of {session} is still running, but the file with its output is gone. Its turn `{}` is not stored unless \
                 you wait until it has ended",
                visible_line(run)
            ));
        }
        if let Recovered::Noted(id, run, Ok(Noted::Missing)) = found
            && *id == session
        {
            warn(&format!(
                "an interrupted turn of {session} was never stored. Neither its output nor the agent's own transcript `{}` \
                 is on this machine",
                visible_line(run)
            ));
        }
    }
}

/// Recovers the turn that the original AZUREAL program noted in a session and never stored, if it has ended and the user
/// agrees. Otherwise nothing changes, and the turn of this command continues without it.
pub(crate) async fn recover_original_run(
    place: &Workspace,
    session: SessionId,
    lease: Option<&LeaseId>,
) -> Result<(), Failure> {
    let Some(run) = place.store.get(session).await?.original_run else { return Ok(()) };
    // The first release of azureal noted its runs in the same place. The spool has that turn, and is stored when it can be.
    if place.spools().is_some_and(|spools| spools.are_of(session).unwrap_or(true)) {
        return Ok(());
    }
    let (agents, homes) = (registry::all(), place.environment().homes());
    let (idle, record) = match look_at_original(agents, &homes, &run) {
        // The original program may know more of it.
        OriginalRun::Missing => return Ok(()),
        OriginalRun::Running(idle) => {
            tell(&format!(
                "{session}: the original AZUREAL program may still be running a turn here (its transcript changed {} ago). \
                 That turn is not part of the history yet",
                in_words(idle)
            ));
            return Ok(());
        }
        OriginalRun::Abandoned(idle, record) => (in_words(idle), record),
    };
    let noted =
        format!("{session}: the original AZUREAL program noted a run {idle} ago that it never stored.");
    match ask(&format!("{noted} Recover it from {record}? [y/N] ")) {
        Answer::No => return Ok(()),
        Answer::Nobody => {
            tell(&noted);
            tell(&format!("hint: `azureal run -s {session}` on a terminal recovers it from {record}"));
            return Ok(());
        }
        Answer::Yes => {}
    }
    match recover_original(&*place.store, agents, &homes, session, &run, lease.cloned()).await {
        Ok(Noted::Stored(ingested, record)) => {
            tell(&format!("{} from {record}", recovered(&session.to_string(), &ingested.complete)));
        }
        Ok(Noted::WasStored) => tell(&format!("the last turn of {session} is in the history already")),
        Ok(Noted::Busy | Noted::Missing) => {
            tell(&format!("the last turn of {session} was not recovered: its transcript has just changed"));
        }
        Err(error) => warn(&format!("the last turn of {session} could not be recovered: {error}")),
    }
    Ok(())
}

/// Returns the sessions that have a turn running, here or elsewhere.
pub(crate) async fn running(place: &Workspace, found: &[Recovered]) -> Result<Vec<SessionId>, StoreError> {
    let turns = found.iter().filter_map(|found| match found {
        Recovered::Running(turn, _) | Recovered::Orphan(turn, _) => turn.session_id(),
        _ => None,
    });
    let leased = place.store.held_leases().await?.into_iter().map(|(session, _)| session);
    Ok(turns.chain(leased).collect())
}
