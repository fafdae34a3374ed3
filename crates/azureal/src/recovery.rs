//! Turns whose azureal died: stored by whoever comes next, and said so.

use azureal_agents::registry;
use azureal_core::event::Outcome;
use azureal_core::{SessionId, StoreError};
use azureal_engine::{Homes, IngestError, Noted, Recovered, SpooledTurn, Spools};
use azureal_process::ProcessIdentity;

use crate::output::{tell, warn};
use crate::place::Place;
use crate::turn::kept;

/// Stores what can be stored, tells of it in a line each, and returns what was found.
///
/// Nothing here stops a command: where the store cannot be written it can still be read.
pub(crate) async fn recover(place: &Place) -> Vec<Recovered> {
    let Some(spools) = place.spools() else { return Vec::new() };
    let found = look(place, &spools).await;
    found.iter().for_each(report);
    found
}

/// Looks again, now that the session is ours: what was found before may be over, or have begun since. Only what is new
/// is told.
pub(crate) async fn recover_again(place: &Place, before: &[Recovered]) -> Vec<Recovered> {
    let Some(spools) = place.spools() else { return Vec::new() };
    let found = look(place, &spools).await;
    let is_told = |found: &Recovered| {
        let is_alike = |before: &&Recovered| std::mem::discriminant(*before) == std::mem::discriminant(found);
        let run = |found: &Recovered| found.turn().map(|turn| turn.run.clone());
        before.iter().filter(is_alike).any(|before| run(before) == run(found))
    };
    found.iter().filter(|found| !is_told(found)).for_each(report);
    found
}

async fn look(place: &Place, spools: &Spools) -> Vec<Recovered> {
    let homes = Homes::of_this_process();
    azureal_engine::recover(&*place.store, spools, registry::all(), &homes).await.unwrap_or_else(|error| {
        warn(&error.to_string());
        Vec::new()
    })
}

fn report(found: &Recovered) {
    match found {
        // It had been stored, and only its spool was left.
        Recovered::Stored(_, ingested) if ingested.appended.is_none() => {}
        Recovered::Stored(turn, ingested) => {
            let ended = match ingested.complete.outcome {
                Some(Outcome::Done) => "and had been finished",
                _ => "and was not finished",
            };
            tell(&format!(
                "recovered the turn of {} that was interrupted {ended}: {}",
                name(turn),
                who(turn)
            ));
            if let Some(path) = &ingested.kept {
                warn(&kept(path));
            }
        }
        Recovered::Orphan(turn, process) => tell(&format!(
            "the turn of {0} goes on without its azureal: {1}, process {2}; it is stored when it has ended, \
             and `azureal cancel {0}` ends it",
            name(turn),
            who(turn),
            process.pid
        )),
        Recovered::Running(..) => {}
        Recovered::Failed(turn, IngestError::Store(StoreError::NoSuchSession(_))) => warn(&format!(
            "the interrupted turn of {} is kept, though that session is not in this store any more; the files {}.* in the \
             folder of spools are all there is of it, and can be removed",
            name(turn),
            turn.run
        )),
        Recovered::Failed(turn, error) => {
            warn(&format!("the interrupted turn of {} could not be stored and is kept: {error}", name(turn)));
        }
        Recovered::Unreadable(path) => {
            warn(&format!("{} says nothing of its turn; it is left where it is", path.display()));
        }
        Recovered::UnknownAgent(turn) => warn(&format!(
            "the interrupted turn of {} is kept: this azureal does not know its agent {}",
            name(turn),
            turn.agent
        )),
        Recovered::Noted(session, _, Ok(Noted::Stored(_, record))) => tell(&format!(
            "recovered the turn of {session} that was interrupted from {record}: what was printed is gone"
        )),
        // Said where it matters: when the session goes on.
        Recovered::Noted(_, _, Ok(Noted::Missing | Noted::WasStored | Noted::Busy)) => {}
        Recovered::Noted(session, run, Err(error)) => warn(&format!(
            "the interrupted turn of {session} could not be taken from the agent's own record of {}: {error}",
            azureal_core::visible_line(run)
        )),
    }
}

fn name(turn: &SpooledTurn) -> String {
    format!("S{}", turn.session)
}

fn who(turn: &SpooledTurn) -> String {
    format!(
        "{}, since {}",
        azureal_core::visible_line(&turn.agent),
        azureal_core::visible_line(&turn.started_at)
    )
}

/// Returns the agent of a session that runs on though its azureal has gone.
pub(crate) fn orphan_of(found: &[Recovered], session: SessionId) -> Option<(&SpooledTurn, &ProcessIdentity)> {
    found.iter().find_map(|found| match found {
        Recovered::Orphan(turn, process) if turn.session_id() == Some(session) => Some((turn, process)),
        _ => None,
    })
}

/// Warns if a turn of the session was never stored and no trace of it is left: going on forgets that it was.
pub(crate) fn warn_of_lost(found: &[Recovered], session: SessionId) {
    for found in found {
        if let Recovered::Noted(id, run, Ok(Noted::Missing)) = found
            && *id == session
        {
            warn(&format!(
                "an interrupted turn of {session} was never stored, and neither what was printed nor the agent's own \
                 record of it ({}) is on this machine",
                azureal_core::visible_line(run)
            ));
        }
    }
}

/// Returns the sessions that have a turn running, here or elsewhere.
pub(crate) async fn running(place: &Place, found: &[Recovered]) -> Result<Vec<SessionId>, StoreError> {
    let turns = found.iter().filter_map(|found| match found {
        Recovered::Running(turn, _) | Recovered::Orphan(turn, _) => turn.session_id(),
        _ => None,
    });
    let leased = place.store.leases().await?.into_iter().map(|(session, _)| session);
    Ok(turns.chain(leased).collect())
}
