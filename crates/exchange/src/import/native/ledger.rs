//! The ledger of an imported session: what was read of its source. It is the note of a mark in the store.

use std::time::{SystemTime, UNIX_EPOCH};

use azureal_agents::native::{NativeSession, NativeTurn};
use azureal_core::event::Complete;
use azureal_core::{Event, LASTING_MARKS, NewMark, NewTurn, SessionId, SessionStore, StoreError};
use serde::{Deserialize, Serialize};

use crate::import::counted::Counted;

/// Returns the name of the mark in the store that is the ledger of a native session.
pub fn native_mark(agent: &str, id: &str) -> String {
    format!("{LASTING_MARKS}{agent}:{id}")
}

/// Returns the name of the mark of an import of a native session that others came before, because their turns were not all in it.
pub(super) fn ledger_mark(agent: &str, id: &str, before: usize) -> String {
    match before {
        0 => native_mark(agent, id),
        // The names of agents have no such character.
        before => native_mark(&format!("{agent}#{before}"), id),
    }
}

/// Removes the ledgers of a native session, as if it had never been imported.
pub async fn forget_native(store: &dyn SessionStore, agent: &str, id: &str) -> Result<(), StoreError> {
    for before in 0.. {
        if !store.remove_mark(&ledger_mark(agent, id, before)).await? {
            break;
        }
    }
    Ok(())
}

/// Returns whether a native session was imported into a store and deleted there.
pub async fn was_deleted(store: &dyn SessionStore, agent: &str, id: &str) -> Result<bool, StoreError> {
    let Some(mark) = store.mark(&native_mark(agent, id)).await? else { return Ok(false) };
    match store.get(mark.session).await {
        Err(StoreError::NoSuchSession(_)) => Ok(true),
        found => found.map(|_| false),
    }
}

/// Returns the name of the mark that says that a run of the import has kept the sources of its sessions.
fn run_mark(run: &str) -> String {
    format!("native-run:{run}")
}

/// Notes that a run of the import has kept the sources of its sessions, of which this is one.
pub async fn finish_native_run(
    store: &dyn SessionStore,
    run: &str,
    session: SessionId,
) -> Result<(), StoreError> {
    let mark = NewMark { name: run_mark(run), note: String::new() };
    store.append(session, NewTurn { mark: Some(mark), ..NewTurn::default() }).await?;
    Ok(())
}

/// Returns whether a run of the import has kept the sources of its sessions. One that was killed has not.
pub async fn has_finished_native_run(store: &dyn SessionStore, run: &str) -> Result<bool, StoreError> {
    Ok(store.mark(&run_mark(run)).await?.is_some())
}

/// The note of the mark of an imported session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Ledger {
    /// The number of turns that were read.
    pub(super) turns: u64,
    /// The last one.
    pub(super) last: LastTurn,
    /// The tokens and the cost of the turns before the last one, if the source counts them for the whole session only.
    #[serde(skip_serializing_if = "Counted::is_empty")]
    pub(super) earlier: Counted,
    /// The number of events that the session had then.
    pub(super) events: u64,
    /// The size of the source, and the time of its last change in milliseconds.
    pub(super) size: u64,
    pub(super) changed: u64,
    /// Whether azureal wrote the source from the session, which has its first turns.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_written: bool,
    /// The run of the import that keeps the source as an original; empty if it is not to be kept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) run: String,
}

impl Ledger {
    /// Returns whether the source is as it was.
    pub(super) fn is_of(&self, session: &NativeSession) -> bool {
        self.size == session.size && self.changed == milliseconds(session.changed) && self.changed > 0
    }
}

/// The last turn that was imported.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct LastTurn {
    /// Its id; empty if it is not known.
    pub(super) id: String,
    /// The number of its events without its end.
    pub(super) events: usize,
    #[serde(flatten)]
    pub(super) counted: Counted,
}

impl LastTurn {
    pub(super) fn of(turn: &NativeTurn) -> Self {
        // A turn without an end has an error that says so, which is not there any more if the turn continues.
        let end = match turn.events.as_slice() {
            [.., Event::Error(_), Event::Complete(_)] if turn.is_open => 2,
            _ => 1,
        };
        let complete = turn.events.iter().rev().find_map(|event| match event {
            Event::Complete(complete) => Some(complete),
            _ => None,
        });
        Self {
            id: turn.id.clone(),
            events: turn.events.len().saturating_sub(end),
            counted: complete.map(Counted::of).unwrap_or_default(),
        }
    }

    /// Leaves in the end of the turn what came since: the end that was imported before has the rest.
    pub(super) fn leave_new(&self, complete: &mut Complete) {
        let rest = Counted::of(complete).minus(self.counted);
        complete.duration_ms = rest.duration_ms();
        rest.put(complete);
    }
}

pub(super) fn milliseconds(time: Option<SystemTime>) -> u64 {
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
