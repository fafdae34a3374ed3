//! A run that the original AZUREAL program noted in a session.
//!
//! That program notes the run in the session while its agent works, and removes the note when it has stored the turn. So
//! a note may belong to a turn that is running now: nothing here touches one by itself. On request, the turn is recovered
//! from the agent's own transcript if it cannot be running any more.

use std::path::Path;
use std::time::{Duration, SystemTime};

use azureal_core::agent::{Agent, OwnRecord};
use azureal_core::{LeaseId, SessionId, SessionStore, StoreError};
use azureal_process::{ChildEnvironment, ProcessIdentity};

use crate::ingest::{IngestError, Ingested};
use crate::own_record::{Noted, find_record, is_stored, store_record};

/// The time without a change of the transcript after which a run counts as abandoned.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The state of a run that the original AZUREAL program noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OriginalRun {
    /// Its transcript is not on this machine.
    Missing,
    /// It may still be running: a process has its transcript open, or the transcript changed so short a time ago.
    Running(Duration),
    /// It ended without being stored. Its transcript, named so, last changed so long ago.
    Abandoned(Duration, &'static str),
}

/// Looks at the transcript of a run that the original AZUREAL program noted.
pub(crate) fn look_at_original(
    agents: &[&dyn Agent],
    environment: &ChildEnvironment,
    run: &str,
) -> OriginalRun {
    find_record(agents, environment, run).map_or(OriginalRun::Missing, |(record, path)| state(&record, &path))
}

fn state(record: &OwnRecord, path: &Path) -> OriginalRun {
    let Ok(changed) = std::fs::metadata(path).and_then(|found| found.modified()) else {
        return OriginalRun::Missing;
    };
    // A time in the future is no age at all.
    let idle = SystemTime::now().duration_since(changed).unwrap_or_default();
    match idle < A_DAY || ProcessIdentity::holding(path).is_some() {
        true => OriginalRun::Running(idle),
        false => OriginalRun::Abandoned(idle, record.name),
    }
}

/// Stores the turn of an abandoned run from its transcript, exactly once, and removes the note. The caller holds the
/// session's turn lease.
pub(crate) async fn recover_original(
    store: &dyn SessionStore,
    agents: &[&dyn Agent],
    environment: &ChildEnvironment,
    session: SessionId,
    run: &str,
    lease: Option<LeaseId>,
) -> Result<Noted, IngestError> {
    let Some((record, path)) = find_record(agents, environment, run) else { return Ok(Noted::Missing) };
    if !matches!(state(&record, &path), OriginalRun::Abandoned(..)) {
        return Ok(Noted::Busy);
    }
    let noted = store_record(store, session, run, &record, &path, lease).await?;
    // If this fails, the next attempt finds the turn in the store and only removes the note.
    store.clear_original_run(session, run).await?;
    Ok(noted)
}

/// Removes the note of a run that turns out to be ours, now that its spool is stored: the first release of azureal noted
/// its runs in the place of the original program.
pub(crate) async fn clear_own_note(
    store: &dyn SessionStore,
    session: SessionId,
    ingested: &Ingested,
) -> Result<(), StoreError> {
    let Some(run) = store.get(session).await?.original_run else { return Ok(()) };
    if is_stored(store, ingested.session, &run).await? {
        store.clear_original_run(session, &run).await?;
    }
    Ok(())
}
