//! After a turn is stored: its spool becomes the original of the turn, or is removed.
//!
//! Header and output are moved to the store's [originals](azureal_core::Originals), the output first: a header that is left
//! alone leads the next start to the rest. Both folders are synced before the mark of the turn is removed from the store. So
//! after a loss of power at any point, the turn is stored once and its output is in one of both places.

use std::io::BufReader;

use azureal_core::agent::Agent;
use azureal_core::{Event, Page, Seq, SessionId, SessionStore, StoreError, StoredEvent};
use azureal_process::ChildEnvironment;
use tracing::warn;

use crate::header::{SpooledTurn, StoredTurn};
use crate::ingest::{IngestError, Ingested};
use crate::own_record::find;
use crate::spool::{Spool, SpoolError, at};
use crate::whole_outputs::OutputScan;

/// The note of a mark whose turn is in the store without all that was printed: the output is kept.
pub(crate) const KEPT: &str = "kept";

/// Returns the name that says in the store that a turn is there.
pub(crate) fn mark_of(turn: &SpooledTurn) -> String {
    format!("run:{}", turn.run)
}

/// A stored turn whose spool is settled.
pub(crate) struct Settled<'a> {
    /// Its agent.
    pub(crate) agent: &'a dyn Agent,
    /// The first and the last event of the turn, if that is known.
    pub(crate) place: Option<(Seq, Seq)>,
    /// Whether not all that was printed is in the store.
    pub(crate) is_kept: bool,
    /// The agent's own name of the run and its environment, by which its transcript is found; `None` if it never started.
    pub(crate) run: Option<(String, &'a ChildEnvironment)>,
}

/// Settles the spool of a stored turn.
///
/// The turn is stored, so what fails here is no error of the turn. The spool and its mark stay, and the next start tries
/// again.
pub(crate) async fn settle(
    store: &dyn SessionStore,
    spool: Spool,
    ingested: Ingested,
    settled: Settled<'_>,
) -> Result<Ingested, IngestError> {
    if ingested.appended.is_none() {
        // The turn was stored earlier, perhaps by a release that removed the note in a second step.
        store.note_run(ingested.session, None).await?;
    }
    let output = spool.output_path().to_owned();
    match settle_spool(store, spool, ingested.session, settled).await {
        Ok((kept, notices)) => Ok(Ingested { kept: kept.then_some(output), notices, ..ingested }),
        Err(error) => {
            // The user is told why.
            warn!(session = %ingested.session, "the spool of a stored turn is not settled");
            let unsettled =
                format!("the turn is stored, but its output is still in `{}`: {error}", output.display());
            Ok(Ingested { notices: vec![unsettled], ..ingested })
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

/// Moves or removes the files of a spool; returns whether the output stays where it is, and the whole outputs that were left out.
async fn settle_spool(
    store: &dyn SessionStore,
    mut spool: Spool,
    session: SessionId,
    settled: Settled<'_>,
) -> Result<(bool, Vec<String>), SettleError> {
    let mark = mark_of(spool.turn());
    let (first, last) = settled.place.unwrap_or_default();
    let mut left_out = Vec::new();
    match store.originals().filter(|_| spool.original(first, last).is_some()) {
        Some(originals) => {
            if spool.stored().is_none() {
                let output = spool.output_length();
                let whole = add_whole_outputs(&spool, &settled)?;
                left_out = whole.left_out;
                spool.note_stored(StoredTurn {
                    first: first.0,
                    last: last.0,
                    parser: settled.agent.parser_version(),
                    bytes: output.saturating_add(whole.bytes),
                    lines: whole.lines,
                })?;
            }
            // Before the header is moved, which leads to it.
            spool.remove_errors()?;
            if let Some(original) = spool.original(first, last) {
                originals.put(session, original).await?;
            }
        }
        None if settled.is_kept => {
            // With its mark: should the header come back after a loss of power, the turn is not stored again, and the output
            // is kept again.
            spool.keep_output()?;
            return Ok((true, left_out));
        }
        None => {}
    }
    // After a loss of power, a spool whose removal was not durable is there again. Without its mark the turn would be
    // stored a second time. So the mark stays where the folder cannot be synced: it is one small row.
    if spool.remove()? {
        store.remove_mark(&mark).await?;
    }
    Ok((false, left_out))
}

/// The whole outputs that follow the output of a turn.
#[derive(Default)]
struct AddedOutputs {
    /// The number of the agent's lines, if lines of azureal follow them.
    lines: Option<u64>,
    /// The length of what follows them.
    bytes: u64,
    left_out: Vec<String>,
}

/// Writes the whole outputs that the agent keeps beside its transcript to a file of the spool. The agent deletes them later.
fn add_whole_outputs(spool: &Spool, settled: &Settled<'_>) -> Result<AddedOutputs, SpoolError> {
    let record = settled.agent.own_record();
    let Some((record, outputs)) = record.and_then(|record| Some((record, record.kept_outputs?))) else {
        return Ok(AddedOutputs::default());
    };
    let Some((run, environment)) = &settled.run else { return Ok(AddedOutputs::default()) };
    let scan = OutputScan::read(&mut BufReader::new(spool.read_output()?), &outputs);
    let scan = scan.map_err(at(spool.output_path()))?;
    if !scan.names_any() {
        return Ok(AddedOutputs::default());
    }
    let lines = scan.lines;
    let mut whole = scan.whole_outputs(&outputs, find(&record, environment, run).as_deref());
    let written = spool.write_more(|| whole.next_line());
    let mut left_out = whole.left_out(true);
    Ok(match written {
        Ok(bytes) => AddedOutputs { lines: Some(lines), bytes, left_out },
        Err(error) => {
            // The disk may be full. The turn is stored, and what the agent printed is kept in any case.
            spool.remove_more()?;
            left_out.push(format!("the whole outputs of the turn are not kept: {error}"));
            AddedOutputs { left_out, ..AddedOutputs::default() }
        }
    })
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
