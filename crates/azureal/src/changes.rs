//! The changes of turns: what happened to the files of the worktree while a turn ran.

use azureal_core::event::{Changes, DirectoryChanges, FileChange, Undo};
use azureal_core::{Event, PAGE_EVENTS, Page, Seq, SessionId, SessionRecord, StoredEvent, TurnIndex};
use azureal_engine::{ChangeRecorder, stored_changes};
use azureal_snapshots::{Diff, GitProgram, Worktree};

use crate::error::Error;
use crate::workspace::Workspace;

/// The largest diff that is read, in bytes.
const LARGEST_DIFF: usize = 64 << 20;

/// The recorded changes of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnChanges {
    /// The session.
    pub session: SessionId,
    /// The number of the turn.
    pub turn: usize,
    /// The event of the changes; the last one, if the turn was compacted in the middle.
    pub seq: Seq,
    /// The snapshot before the turn.
    pub before: String,
    /// The snapshot after it.
    pub after: String,
    /// The files, [`Changes::MOST_FILES`] at most.
    pub files: Vec<FileChange>,
    /// The number of further files, by directory.
    pub directories: Vec<DirectoryChanges>,
    /// The UUIDs of other sessions that ran in the worktree during the turn.
    pub during: Vec<String>,
    /// Whether later changes are among them, because the turn was recovered.
    pub late: bool,
    /// Whether the user has undone them.
    pub is_undone: bool,
}

impl TurnChanges {
    /// Returns the counts in words: `3 files changed, +40 −12`.
    pub fn summary(&self) -> String {
        let (files, directories) = (self.files.clone(), self.directories.clone());
        Changes { files, directories, ..Changes::default() }.summary()
    }
}

impl Workspace {
    /// Returns the recorder of the changes in this worktree; `None` outside a git repository, or if nothing is stored.
    pub(crate) fn change_recorder(&self) -> Option<ChangeRecorder> {
        if self.is_ephemeral() || !self.project.is_in_git() {
            return None;
        }
        let environment = self.environment().for_children().clone();
        let git = GitProgram { program: "git".into(), environment };
        Some(ChangeRecorder::new(self.project.directory(), git))
    }

    /// Finds the changes of a turn, by its number, or of the last turn that has any.
    ///
    /// # Errors
    ///
    /// There is no such turn, or its changes are not recorded.
    pub async fn turn_changes(
        &self,
        record: &SessionRecord,
        turn: Option<usize>,
    ) -> Result<TurnChanges, Error> {
        let turns = TurnIndex::read(&*self.store, record.id).await?;
        let turn = match turn {
            Some(turn) if turns.first_event(turn).is_some() => turn,
            Some(turn) => {
                let (session, count) = (record.id, turns.count());
                return Err(Error::new("no_turn", format!("{session} has no turn {turn}"))
                    .with_hint(format!("it has {count}; `azureal show {session}` shows their numbers")));
            }
            None => match self.last_changed(record.id, &turns).await? {
                Some(turn) => turn,
                None => return Err(not_recorded(record, None)),
            },
        };
        let (Some(first), Some(last)) = (turns.first_event(turn), turns.last_event(turn)) else {
            return Err(not_recorded(record, Some(turn)));
        };
        // An undo may come much later.
        let events = self.change_events(record.id, first).await?;
        let of_turn = events.iter().filter(|(seq, _)| *seq <= last);
        let parts: Vec<(Seq, &Changes)> = of_turn
            .filter_map(|(seq, event)| match event {
                Event::Changes(changes) => Some((*seq, changes)),
                _ => None,
            })
            .collect();
        let (Some((_, begin)), Some((seq, end))) = (parts.first(), parts.last()) else {
            return Err(not_recorded(record, Some(turn)));
        };
        let (files, directories) = match &parts[..] {
            [(_, only)] => (only.files.clone(), only.directories.clone()),
            // The parts of a turn that was compacted in the middle may have changed the same file.
            _ => {
                stored_changes(&self.snapshots()?.compare(&begin.before, &end.after).map_err(snapshot_error)?)
            }
        };
        let mut during: Vec<String> = parts.iter().flat_map(|(_, part)| part.during.clone()).collect();
        during.sort();
        during.dedup();
        Ok(TurnChanges {
            session: record.id,
            turn,
            seq: *seq,
            before: begin.before.clone(),
            after: end.after.clone(),
            files,
            directories,
            during,
            late: parts.iter().any(|(_, part)| part.late),
            is_undone: is_undone(*seq, &events),
        })
    }

    /// Returns the changes of a turn as a unified diff.
    ///
    /// # Errors
    ///
    /// The snapshots of the turn are on another machine, or no longer stored.
    pub fn diff(&self, changes: &TurnChanges) -> Result<Diff, Error> {
        let diff = self.snapshots()?.diff(&changes.before, &changes.after, None, LARGEST_DIFF);
        diff.map_err(snapshot_error)
    }

    /// Returns the worktree of the project with its snapshots.
    fn snapshots(&self) -> Result<Worktree, Error> {
        let recorder = self.change_recorder();
        let worktree = match recorder.as_ref().map(ChangeRecorder::worktree) {
            Some(Ok(Some(worktree))) => worktree.clone(),
            Some(Err(error)) => return Err(Error::new("git", error.to_string())),
            Some(Ok(None)) | None => {
                return Err(Error::new("not_recorded", "changes are recorded in a git repository only")
                    .with_hint("run this in the worktree that the turn ran in"));
            }
        };
        Ok(worktree)
    }

    /// Finds the last turn with changes.
    async fn last_changed(&self, session: SessionId, turns: &TurnIndex) -> Result<Option<usize>, Error> {
        let mut before = Seq::END;
        loop {
            let page = self.store.read(session, Page::Before(before, PAGE_EVENTS)).await?;
            let Some(first) = page.first() else { return Ok(None) };
            before = first.seq;
            if let Some(found) = page.iter().rev().find(|stored| stored.kind == "Changes") {
                let begins = |turn: &usize| turns.first_event(*turn).is_some_and(|first| first <= found.seq);
                return Ok((1..=turns.count()).rev().find(begins));
            }
        }
    }

    /// Reads all changes and undos from an event on.
    async fn change_events(&self, session: SessionId, first: Seq) -> Result<Vec<(Seq, Event)>, Error> {
        let mut events = Vec::new();
        let mut after = Seq(first.0.saturating_sub(1));
        loop {
            let page = self.store.read(session, Page::After(after, PAGE_EVENTS)).await?;
            let Some(last) = page.last() else { return Ok(events) };
            after = last.seq;
            let is_of_changes = |stored: &&StoredEvent| matches!(stored.kind.as_str(), "Changes" | "Undo");
            let found = page.iter().filter(is_of_changes);
            events.extend(found.filter_map(|stored| Some((stored.seq, stored.event().ok()?))));
        }
    }
}

/// Returns whether the changes of an event were undone, and that was not undone itself.
fn is_undone(of: Seq, events: &[(Seq, Event)]) -> bool {
    events.iter().any(|(seq, event)| {
        // An undo comes after what it undoes, so this ends.
        matches!(event, Event::Undo(Undo { of: undone, .. }) if *undone == of.0)
            && *seq > of
            && !is_undone(*seq, events)
    })
}

fn not_recorded(record: &SessionRecord, turn: Option<usize>) -> Error {
    let message = match turn {
        Some(turn) => format!("no changes of turn {turn} of {} are recorded", record.id),
        None => format!("no changes of {} are recorded", record.id),
    };
    Error::new("not_recorded", message).with_hint(
        "changes are recorded in a git repository, while turns of azureal run there; `azureal config` shows `[changes]`",
    )
}

fn snapshot_error(error: azureal_snapshots::Error) -> Error {
    let described = Error::new("snapshot", error.to_string());
    let described = match &error {
        azureal_snapshots::Error::Gone(_) => described.with_hint(
            "snapshots stay on the machine of their turn, and the oldest are removed; `azureal diff --stat` shows the files",
        ),
        _ => described,
    };
    described.with_source(error)
}
