//! The event of an undo, from the journal of the undo to the session: exactly once, also if azureal is killed in between.
//!
//! The journal has the event before the first file is changed. It is removed when the event is in the store, or when there is no session
//! that could have it. A mark of the store tells whether the event was appended before.

use azureal_core::event::Undo;
use azureal_core::{Event, NewMark, NewTurn, Page, Seq, SessionId, SessionRecord, StoreError, TurnTotals};
use azureal_engine::SessionLease;
use azureal_snapshots::{Recovered, Worktree};
use futures_executor::block_on;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::changes::snapshot_error;
use crate::error::{Error, shown};
use crate::workspace::{Notice, Workspace};

/// The event of an undo, and its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UndoNote {
    /// The store, by its identity on this machine.
    store: String,
    /// The number of the session.
    session: u32,
    /// Its UUID; empty if it has none.
    uuid: String,
    /// The time of its creation. A store in a file may be replaced.
    created_at: String,
    pub(crate) event: Undo,
}

/// What became of the event of an undo.
enum Told {
    /// It is in its session.
    Stored,
    /// A turn or an undo runs in the session. Its end comes first.
    Later,
    /// No session can have it, for this reason.
    Nowhere(&'static str),
}

impl UndoNote {
    pub(crate) fn new(workspace: &Workspace, record: &SessionRecord, event: Undo) -> Result<Self, Error> {
        let store =
            workspace.store_identity().ok_or_else(|| Error::new("memory", "this store is in memory"))?;
        Ok(Self {
            store,
            session: record.id.number(),
            uuid: uuid_of(record),
            created_at: record.created_at.clone(),
            event,
        })
    }

    pub(crate) fn to_text(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|error| Error::new("event", error.to_string()))
    }

    fn is_of(&self, record: &SessionRecord) -> bool {
        uuid_of(record) == self.uuid && record.created_at == self.created_at
    }
}

fn uuid_of(record: &SessionRecord) -> String {
    record.uuid.map(|uuid| uuid.to_string()).unwrap_or_default()
}

fn mark_of(undo: &str) -> String {
    format!("undo:{undo}")
}

impl Workspace {
    /// Finishes or takes back an undo that was interrupted, adds it to its session, and tells the user. Returns whether there was one.
    pub(crate) async fn recover_undo(&self) -> Result<bool, Error> {
        // Every command looks: git is started only if there is something to do.
        if self.is_ephemeral() || !Worktree::has_interrupted_undo(self.project.directory()) {
            return Ok(false);
        }
        let worktree = self.snapshots()?;
        let Some(recovered) = worktree.recover().map_err(snapshot_error)? else { return Ok(false) };
        let note: Option<UndoNote> = serde_json::from_str(&recovered.note).ok();
        let told = match &note {
            Some(note) if recovered.is_undone => self.add_recovered(&worktree, note, &recovered.id).await?,
            _ => Told::Nowhere("its journal names none"),
        };
        if let Told::Later = told {
            return Ok(false);
        }
        info!(is_undone = recovered.is_undone, "recovered an undo that was interrupted");
        self.forget_undo(&worktree, &recovered.id).await;
        self.add_notice(Notice::Undo(words(&recovered, note.as_ref(), &told)));
        Ok(true)
    }

    /// Looks for an undo that was interrupted. One that cannot end now is no reason against a turn.
    pub(crate) fn recover_undo_before_turn(&self) {
        if let Err(error) = block_on(self.recover_undo()) {
            warn!(error = error.message(), "an undo that was interrupted is not finished");
        }
    }

    /// Adds an undo that was interrupted and is finished to its session, if that is in this store.
    async fn add_recovered(&self, worktree: &Worktree, note: &UndoNote, id: &str) -> Result<Told, Error> {
        if self.store_identity().as_ref() != Some(&note.store) {
            return Ok(Told::Nowhere("it is in another store"));
        }
        let gone = || Ok(Told::Nowhere("it is deleted"));
        let Some(session) = SessionId::new(note.session) else { return gone() };
        let record = match self.store.get(session).await {
            Err(StoreError::NoSuchSession(_)) => return gone(),
            record => record?,
        };
        if !note.is_of(&record) {
            return gone();
        }
        // A session can be emptied. Then the event is about nothing.
        let undone = self.store.read(record.id, Page::After(Seq(note.event.of.saturating_sub(1)), 1)).await?;
        if !undone
            .iter()
            .any(|event| event.seq.0 == note.event.of && matches!(&*event.kind, "Changes" | "Undo"))
        {
            return Ok(Told::Nowhere("its turn is deleted"));
        }
        let lease = match self.lease(record.id, "undo").await {
            Err(error) if error.kind() == "busy" => return Ok(Told::Later),
            lease => lease?,
        };
        // Another process may have added it before the lease was ours.
        if worktree.recover().map_err(snapshot_error)?.is_none_or(|found| found.id != id) {
            return Ok(Told::Later);
        }
        self.store_undo(record.id, note, id, &lease).await.map(|_| Told::Stored)
    }

    /// Adds the event of an undo to its session, unless it is there. Returns the last event of the session.
    pub(crate) async fn store_undo(
        &self,
        session: SessionId,
        note: &UndoNote,
        id: &str,
        lease: &SessionLease,
    ) -> Result<Seq, Error> {
        let record = self.store.get(session).await?;
        if self.store.mark(&mark_of(id)).await?.is_some() {
            return Ok(Seq(record.counts.events));
        }
        let turn = NewTurn {
            mark: Some(NewMark { name: mark_of(id), note: String::new() }),
            session_created: Some(note.created_at.clone()).filter(|created| !created.is_empty()),
            lease: lease.id().cloned(),
            // The outcome of the last turn stays.
            totals: Some(TurnTotals { completed: record.completed, ..TurnTotals::default() }),
            ..NewTurn::verbatim([Event::Undo(note.event.clone())])
        };
        Ok(self.store.append(session, turn).await?.last)
    }

    /// Removes the journal of an undo whose event is stored, then the mark that told so. What fails is done by the next command.
    pub(crate) async fn forget_undo(&self, worktree: &Worktree, id: &str) {
        if let Err(error) = worktree.forget_undo(id) {
            return warn!(%error, "the journal of an undo is not removed");
        }
        if let Err(error) = self.store.remove_mark(&mark_of(id)).await {
            warn!(error = ?error.to_string(), "the mark of an undo is not removed");
        }
    }
}

/// Says how an undo ended that was interrupted.
fn words(recovered: &Recovered, note: Option<&UndoNote>, told: &Told) -> String {
    let mut words = match (told, note) {
        _ if !recovered.is_undone => {
            "an undo that was interrupted is taken back: it changed no file".to_owned()
        }
        (Told::Nowhere(why), note) => {
            let session = note.map_or_else(|| "its session".to_owned(), |note| format!("S{}", note.session));
            format!(
                "an undo that was interrupted is finished, but {session} does not have it: {why}; `git status` shows the files"
            )
        }
        (_, note) => {
            let done =
                note.map(|note| format!("S{}: {}", note.session, note.event.summary())).unwrap_or_default();
            format!("an undo that was interrupted is finished. {done}")
        }
    };
    for path in &recovered.kept {
        words.push_str(&format!("; kept beside its file: {}", shown(path)));
    }
    words
}
