//! After a turn is stored: its spool becomes the original of the turn, or is removed.
//!
//! Header and output are moved to the store's [originals](azureal_core::Originals), the output first: a header that is left
//! alone leads the next start to the rest. Both folders are synced before the mark of the turn is removed from the store. So
//! after a loss of power at any point, the turn is stored once and its output is in one of both places.

use azureal_core::agent::Agent;
use azureal_core::{Event, Page, Seq, SessionId, SessionStore, StoreError, StoredEvent};
use tracing::warn;

use crate::header::{SpooledTurn, StoredTurn};
use crate::ingest::{IngestError, Ingested};
use crate::spool::{Spool, SpoolError};

/// The note of a mark whose turn is in the store without all that was printed: the output is kept.
pub(crate) const KEPT: &str = "kept";

/// Returns the name that says in the store that a turn is there.
pub(crate) fn mark_of(turn: &SpooledTurn) -> String {
    format!("run:{}", turn.run)
}

/// Settles the spool of a stored turn, whose first and last event are at `place`, if that is known.
///
/// The turn is stored, so what fails here is no error of the turn. The spool and its mark stay, and the next start tries
/// again.
pub(crate) async fn settle(
    store: &dyn SessionStore,
    agent: &dyn Agent,
    spool: Spool,
    ingested: Ingested,
    place: Option<(Seq, Seq)>,
    is_kept: bool,
) -> Result<Ingested, IngestError> {
    if ingested.appended.is_none() {
        // The turn was stored earlier, perhaps by a release that removed the note in a second step.
        store.note_run(ingested.session, None).await?;
    }
    let output = spool.output_path().to_owned();
    match settle_spool(store, agent, spool, ingested.session, place, is_kept).await {
        Ok(kept) => Ok(Ingested { kept: kept.then_some(output), ..ingested }),
        Err(error) => {
            // The user is told why.
            warn!(session = %ingested.session, "the spool of a stored turn is not settled");
            let unsettled =
                format!("the turn is stored, but its output is still in `{}`: {error}", output.display());
            Ok(Ingested { unsettled: Some(unsettled), ..ingested })
        }
    }
}

/// Why a spool is not settled.
#[derive(Debug, thiserror::Error)]
enum SettleError {
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Moves or removes the files of a spool; returns whether the output stays where it is.
async fn settle_spool(
    store: &dyn SessionStore,
    agent: &dyn Agent,
    mut spool: Spool,
    session: SessionId,
    place: Option<(Seq, Seq)>,
    is_kept: bool,
) -> Result<bool, SettleError> {
    let mark = mark_of(spool.turn());
    let (first, last) = place.unwrap_or_default();
    let original = spool.original(first, last);
    match (store.originals(), original) {
        (Some(originals), Some(original)) => {
            if spool.stored().is_none() {
                let bytes = spool.output_length();
                let parser = agent.parser_version();
                spool.note_stored(StoredTurn { first: first.0, last: last.0, parser, bytes })?;
            }
            // Before the header is moved, which leads to it.
            spool.remove_errors()?;
            originals.put(session, original).await?;
        }
        _ if is_kept => {
            // With its mark: should the header come back after a loss of power, the turn is not stored again, and the output
            // is kept again.
            spool.keep_output()?;
            return Ok(true);
        }
        _ => {}
    }
    // After a loss of power, a spool whose removal was not durable is there again. Without its mark the turn would be
    // stored a second time. So the mark stays where the folder cannot be synced: it is one small row.
    if spool.remove()? {
        store.remove_mark(&mark).await?;
    }
    Ok(false)
}

/// The number of newest events that are searched for a turn.
const SEARCHED: usize = 20_000;

/// Finds a stored turn by its events, and returns its first and last one. Only for a turn whose azureal died between two
/// steps: then it is among the newest.
pub(crate) async fn find_turn(
    store: &dyn SessionStore,
    session: SessionId,
    events: &[Event],
) -> Result<Option<(Seq, Seq)>, StoreError> {
    // The end has figures that may be known better now.
    let sought: Vec<&Event> =
        events.iter().take_while(|event| !matches!(event, Event::Complete(_))).collect();
    if sought.is_empty() {
        return Ok(None);
    }
    let mut newest: Vec<StoredEvent> = Vec::new();
    let mut before = Seq::END;
    while newest.len() < SEARCHED {
        let mut page = store.read(session, Page::Before(before, azureal_core::PAGE_EVENTS)).await?;
        let Some(first) = page.first() else { break };
        before = first.seq;
        page.append(&mut newest);
        newest = page;
        let is_turn = |stored: &[StoredEvent]| {
            stored
                .iter()
                .zip(&sought)
                .all(|(stored, sought)| stored.event().is_ok_and(|event| event.equals_but_detail(sought)))
        };
        let found = newest.windows(sought.len()).rev().find(|stored| is_turn(stored));
        if let Some([first, ..]) = found {
            let last = first.seq.0.saturating_add(events.len() as u64).saturating_sub(1);
            // The changes of the turn come before its end, and are not in its output.
            let next = Seq(first.seq.0.saturating_add(sought.len() as u64));
            let has_changes = newest.iter().any(|stored| stored.seq == next && stored.kind == "Changes");
            return Ok(Some((first.seq, Seq(last.saturating_add(u64::from(has_changes))))));
        }
    }
    Ok(None)
}
