//! The changes of a turn in the files of the worktree, and their undo. All of it takes a while, on threads of its own.

use std::io::Write;

use azureal_core::event::{Changes, Undo};
use azureal_core::{Page, Seq, SessionId, SessionRecord, TurnIndex, counted, visible_line};
use azureal_snapshots::{Diff, UndoAction, UndoConflict};
use futures_executor::block_on;

use super::hub::HubMessage;
use super::reading::VisibleLines;
use super::shared::Shared;
use crate::changes::{ChangesOf, TurnChanges};
use crate::error::Error;
use crate::undo::{FinishedUndo, PlannedUndo, conflict_words};

/// The largest diff that an interface receives, in bytes.
const LARGEST_SHOWN: usize = 1 << 20;

/// The changes of a turn, or of an undo, with the beginning of their diff.
#[derive(Debug)]
pub struct FileChanges {
    /// The name of the changes in later requests: the turn, or the event of an undo.
    pub of: ChangesOf,
    /// The changes.
    pub changes: TurnChanges,
    /// Their diff, one megabyte at most; or the reason why there is none.
    pub diff: Result<Diff, Error>,
}

/// The effect of an undo, for a question to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoQuestion {
    /// The changes to undo: of a turn, or of an earlier undo.
    pub of: ChangesOf,
    /// The session.
    pub session: SessionId,
    /// The number of the turn.
    pub turn: usize,
    /// The number of files that get their earlier content; by a forced undo, if it needs the user's force.
    pub restored: usize,
    /// The number of files that are deleted; by a forced undo, if it needs the user's force.
    pub deleted: usize,
    /// The reasons why the undo needs the user's force; empty if it does not.
    pub obstacles: Vec<String>,
    /// The files in conflict: path and reason.
    pub conflicts: Vec<(String, &'static str)>,
}

impl FileChanges {
    /// Returns whether these are the changes of an undo.
    pub fn is_undo(&self) -> bool {
        matches!(self.of, ChangesOf::Event(_))
    }

    /// Returns the changes that the undo key is about: these, or the undo that took them back.
    pub fn undo_of(&self) -> ChangesOf {
        self.changes.undone_by.map_or(self.of, ChangesOf::Event)
    }
}

impl UndoQuestion {
    fn of(of: ChangesOf, planned: &PlannedUndo) -> Self {
        let PlannedUndo { changes, plan, .. } = planned;
        let obstacles = planned.obstacles();
        let files = if obstacles.is_empty() { &plan.files } else { &plan.forced };
        let count = |action| files.iter().filter(|file| file.action == action).count();
        Self {
            of,
            session: changes.session,
            turn: changes.turn,
            restored: count(UndoAction::Restore),
            deleted: count(UndoAction::Delete),
            obstacles,
            conflicts: plan.conflicts.iter().map(conflict_line).collect(),
        }
    }
}

fn conflict_line(conflict: &UndoConflict) -> (String, &'static str) {
    (conflict.path.to_string_lossy().into_owned(), conflict_words(conflict.why))
}

impl Shared {
    /// Finds the changes of the turn that an event belongs to, or those of an undo; without an event, those of the last turn that has any.
    pub(super) fn file_changes(&self, session: SessionId, at: Option<Seq>) -> Result<FileChanges, Error> {
        let record = block_on(self.workspace.store.get(session))?;
        let of = at.map_or(Ok(ChangesOf::LastTurn), |at| self.changes_at(&record, at))?;
        let changes = block_on(self.workspace.turn_changes(&record, of))?;
        // By its number from now on: another turn may end meanwhile.
        let of = if of == ChangesOf::LastTurn { ChangesOf::Turn(changes.turn) } else { of };
        let diff = self.workspace.diff_within(&changes, LARGEST_SHOWN);
        Ok(FileChanges { of, changes, diff })
    }

    fn changes_at(&self, record: &SessionRecord, at: Seq) -> Result<ChangesOf, Error> {
        let store = &*self.workspace.store;
        let event = block_on(store.read(record.id, Page::After(Seq(at.0.saturating_sub(1)), 1)))?.pop();
        if event.is_some_and(|event| event.seq == at && event.kind == "Undo") {
            return Ok(ChangesOf::Event(at));
        }
        let turns = block_on(TurnIndex::read(store, record.id))?;
        let begins_before = |turn: &usize| turns.first_event(*turn).is_some_and(|first| first <= at);
        let turn = (1..=turns.count()).rev().find(begins_before);
        Ok(turn.map_or(ChangesOf::LastTurn, ChangesOf::Turn))
    }

    /// Looks at what an undo does.
    pub(super) fn plan_undo(&self, session: SessionId, of: ChangesOf) -> Result<UndoQuestion, Error> {
        // First: an undo that was interrupted is an event of a session.
        let found = block_on(self.workspace.recover())?;
        let record = block_on(self.workspace.store.get(session))?;
        let changes = block_on(self.workspace.turn_changes(&record, of))?;
        let planned = block_on(self.workspace.plan_undo(changes, &found))?;
        Ok(UndoQuestion::of(of, &planned))
    }

    /// Performs an undo that the user has confirmed, if it still does the same. Returns what it did, in words.
    pub(super) fn undo(
        &self,
        session: SessionId,
        shown: &UndoQuestion,
        force: bool,
    ) -> Result<String, Error> {
        let found = block_on(self.workspace.recover())?;
        let record = block_on(self.workspace.store.get(session))?;
        let changes = block_on(self.workspace.turn_changes(&record, shown.of))?;
        let planned = block_on(self.workspace.plan_undo(changes, &found))?;
        if UndoQuestion::of(shown.of, &planned) != *shown {
            return Err(Error::refused(
                "changed",
                "the files have changed since the question; nothing was undone",
            )
            .with_hint("look at the changes again"));
        }
        let done = block_on(self.workspace.undo(&record, &planned, force, &found))?;
        // Not every store notifies of it.
        self.tell_hub(HubMessage::Changed);
        Ok(undone_words(shown, &done, planned.changes.unrecorded()))
    }

    /// Shows the whole diff of some changes in the pager.
    pub(super) fn read_changes(&self, session: SessionId, of: ChangesOf) -> Result<(), Error> {
        let record = block_on(self.workspace.store.get(session))?;
        let changes = block_on(self.workspace.turn_changes(&record, of))?;
        let diff = self.workspace.diff(&changes)?;
        let summary = format!("{session} turn {}: {}\n\n", changes.turn, changes.summary());
        self.look_at(".diff", |file| {
            let mut out = VisibleLines::new(file);
            out.write_all(summary.as_bytes())?;
            out.write_all(diff.text().as_bytes())?;
            if diff.left_out > 0 {
                writeln!(out, "\nThe diff is cut: {} bytes more.", diff.left_out)?;
            }
            out.finish()
        })
    }
}

/// Says what an undo did.
fn undone_words(shown: &UndoQuestion, done: &FinishedUndo, unrecorded: Option<String>) -> String {
    let Undo { files, directories, turn, .. } = done.event.clone();
    let summary = Changes { files, directories, ..Changes::default() }.summary();
    let mut words = match shown.of {
        ChangesOf::Event(_) => format!("took back the undo of turn {turn}: {summary}"),
        _ => format!("undid turn {turn}: {summary}"),
    };
    if let Some(first) = done.left.first() {
        let path = first.path.to_string_lossy();
        let (path, why) = (visible_line(&path), conflict_words(first.why));
        let left = counted(done.left.len() as u64, "file");
        words.push_str(&format!("; {left} left as it is, such as {path}: {why}"));
    }
    if let Some(unrecorded) = unrecorded {
        words.push_str(&format!("; {unrecorded}"));
    }
    words
}
