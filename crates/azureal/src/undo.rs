//! The undo of a turn: its files as they were before it.

use std::path::PathBuf;

use azureal_core::SessionRecord;
use azureal_core::event::Undo;
use azureal_engine::{Recovered, SessionLease, snapshot_owner, stored_changes};
use azureal_snapshots::{ConflictReason, RunningTurn, UndoConflict, UndoPlan, Worktree};
use tracing::warn;

use crate::changes::{TurnChanges, snapshot_error};
use crate::error::{Error, shown};
use crate::undo_note::UndoNote;
use crate::workspace::Workspace;

/// What an undo would do.
#[derive(Debug)]
pub struct PlannedUndo {
    /// The changes to undo.
    pub changes: TurnChanges,
    /// The files, and those that stand in its way.
    pub plan: UndoPlan,
    /// The directory that the turn ran in, if it was another one and is gone.
    pub elsewhere: Option<PathBuf>,
}

impl PlannedUndo {
    /// Returns whether a forced undo would change anything.
    pub fn can_be_forced(&self) -> bool {
        !self.plan.forced.is_empty()
    }

    /// Returns why the undo needs the user's force; empty if it does not.
    pub fn obstacles(&self) -> Vec<String> {
        let TurnChanges { turn, during, late, .. } = &self.changes;
        let mut obstacles = Vec::new();
        if let Some(directory) = &self.elsewhere {
            obstacles.push(format!("turn {turn} ran in {}, which is not there any more", shown(directory)));
        }
        if *late {
            obstacles.push(format!(
                "turn {turn} was interrupted: its recorded changes are those until it was recovered, your own among them"
            ));
        }
        if !during.is_empty() {
            let sessions = azureal_core::counted(during.len() as u64, "other session");
            obstacles.push(format!(
                "{sessions} ran in this worktree during turn {turn}, and may have made the changes"
            ));
        }
        match self.plan.conflicts.len() {
            0 => {}
            1 => obstacles.push(format!("1 file was changed since turn {turn}, or cannot be restored")),
            count => {
                obstacles
                    .push(format!("{count} files were changed since turn {turn}, or cannot be restored"));
            }
        }
        obstacles
    }
}

/// What an undo has done.
#[derive(Debug)]
pub struct FinishedUndo {
    /// The event of the session.
    pub seq: azureal_core::Seq,
    /// It.
    pub event: Undo,
    /// The files that were left as they are.
    pub left: Vec<UndoConflict>,
    /// Versions that were put beside their files, as `name.before-undo`.
    pub kept: Vec<PathBuf>,
}

impl Workspace {
    /// Looks at what the undo of some changes does. Changes nothing.
    ///
    /// # Errors
    ///
    /// A turn runs in the worktree, the changes are undone already or are of another worktree, or their snapshots are not on this
    /// machine. `found` is what [`recover`](Self::recover) returned.
    pub async fn plan_undo(&self, changes: TurnChanges, found: &[Recovered]) -> Result<PlannedUndo, Error> {
        let worktree = self.undo_worktree(&changes, found).await?;
        if let Some(unrecorded) = changes.unrecorded().filter(|_| changes.files.is_empty()) {
            let (session, turn) = (changes.session, changes.turn);
            let message = format!("there is nothing to undo in turn {turn} of {session}: {unrecorded}");
            return Err(Error::new("not_recorded", message)
                .with_hint("ignored files and files over the size limit are not recorded"));
        }
        let worktree = worktree.of_undo(changes.of_undo);
        let plan = worktree.plan_undo(&changes.before, &changes.after).map_err(snapshot_error)?;
        let elsewhere = self.elsewhere(&changes);
        Ok(PlannedUndo { changes, plan, elsewhere })
    }

    /// Restores the files of some changes to what they were before, and adds that to the session.
    ///
    /// # Errors
    ///
    /// Those of [`plan_undo`](Self::plan_undo); and files were changed since or other sessions ran meanwhile, unless `force` is set.
    pub async fn undo(
        &self,
        record: &SessionRecord,
        planned: &PlannedUndo,
        force: bool,
        found: &[Recovered],
    ) -> Result<FinishedUndo, Error> {
        let PlannedUndo { changes, .. } = planned;
        if let Some(obstacle) = planned.obstacles().into_iter().next().filter(|_| !force) {
            return Err(Error::refused("conflict", obstacle));
        }
        let worktree = self.undo_worktree(changes, found).await?;
        // No turn begins in the session, and one that begins in the worktree is told of this.
        let lease = self.lease(record.id, "undo").await?;
        let run = format!("{UNDO}{}", std::process::id());
        let mark = worktree.begin_turn(&snapshot_owner(record), &run).map_err(snapshot_error)?;
        // A turn may have begun since the last look. From now on, one that begins sees the mark.
        if let Some(other) = worktree.running().into_iter().find(|turn| turn.run != run) {
            worktree.end_turn(mark).map_err(snapshot_error)?;
            return Err(running_error(&other));
        }
        let done = self.undo_noted(record, &worktree, changes, force, &lease).await;
        // The mark ends with this process in any case.
        if let Err(error) = worktree.end_turn(mark) {
            warn!(%error, "the end of an undo is not noted in its worktree");
        }
        done
    }

    /// Carries out an undo, with a journal that stays until the event is in the session.
    async fn undo_noted(
        &self,
        record: &SessionRecord,
        worktree: &Worktree,
        changes: &TurnChanges,
        force: bool,
        lease: &SessionLease,
    ) -> Result<FinishedUndo, Error> {
        let owner = snapshot_owner(record);
        let planned = worktree.of_undo(changes.of_undo);
        let ready = planned.begin_undo(&owner, &changes.before, &changes.after, force);
        let ready = ready.map_err(snapshot_error)?;
        let files = worktree.of_undo(true).compare(ready.before(), ready.after()).map_err(snapshot_error)?;
        if files.is_empty() && !ready.left().is_empty() {
            let count = azureal_core::counted(ready.left().len() as u64, "file");
            let message = format!("nothing was undone: {count} cannot be restored as the worktree is now");
            return Err(Error::refused("conflict", message).with_hint(format!(
                "`azureal undo {} --turn {} --dry-run` shows why",
                record.id, changes.turn
            )));
        }
        let (files, directories) = stored_changes(&files);
        let event = Undo {
            of: changes.seq.0,
            turn: changes.turn as u64,
            redo: changes.is_undo,
            before: ready.before().to_owned(),
            after: ready.after().to_owned(),
            files,
            directories,
        };
        let note = UndoNote::new(self, record, event)?;
        let undone = ready.carry_out(&note.to_text()?).map_err(snapshot_error)?;
        let stored = self.store_undo(record.id, &note, &undone.id, lease).await.map_err(|error| {
            error
                .about("the files are restored, but the session does not say so yet")
                .with_hint("the next command of azureal in this worktree adds it to the session")
        })?;
        self.forget_undo(worktree, &undone.id).await;
        Ok(FinishedUndo { seq: stored, event: note.event, left: undone.left, kept: undone.kept })
    }

    /// Returns the worktree of some changes, if it is another one than this.
    fn elsewhere(&self, changes: &TurnChanges) -> Option<PathBuf> {
        let is_here = changes.worktree.is_empty() || changes.worktree == self.project.worktree();
        (!is_here).then(|| {
            let path = self.project.root().join(&changes.worktree);
            std::fs::canonicalize(&path).unwrap_or(path)
        })
    }

    /// Returns the worktree of some changes, if they can be undone there now.
    async fn undo_worktree(&self, changes: &TurnChanges, found: &[Recovered]) -> Result<Worktree, Error> {
        let worktree = self.snapshots()?;
        // The plan of the caller is from before it.
        if self.recover_undo().await? {
            let message = "an earlier undo was interrupted, and has just ended; nothing else was changed";
            return Err(Error::refused("changed", message).with_hint("look at the changes again"));
        }
        let TurnChanges { session, turn, undone_by, .. } = changes;
        if let Some(undo) = undone_by {
            return Err(Error::new("undone", format!("turn {turn} of {session} is undone already"))
                .with_hint(format!("`azureal undo {session} --seq {undo}` takes the undo back")));
        }
        let here = self.project.directory();
        if let Some(there) = self.elsewhere(changes).filter(|there| there.is_dir()) {
            let there = shown(&there);
            return Err(Error::new("other_worktree", format!("turn {turn} of {session} ran in {there}"))
                .with_hint(format!("run `azureal -C {there} undo {session} --turn {turn}`")));
        }
        let is_here = |found: &&Recovered| {
            matches!(found, Recovered::Running(..) | Recovered::Orphan(..))
                && found.turn().is_some_and(|turn| turn.directory == here)
        };
        let running = found.iter().find(is_here).and_then(Recovered::turn);
        if let Some(turn) = running {
            let (busy, agent) = (turn.session, &turn.agent);
            return Err(Error::new("busy", format!("a turn of S{busy} runs in this worktree: {agent}"))
                .with_hint(format!(
                    "wait for it, or end it with `azureal cancel S{busy}`; nothing was changed"
                )));
        }
        match worktree.running().first() {
            Some(other) => Err(running_error(other)),
            None => Ok(worktree),
        }
    }
}

/// The beginning of the name of an undo among the turns of a worktree.
const UNDO: &str = "undo-";

fn running_error(running: &RunningTurn) -> Error {
    let (message, hint) = if running.run.starts_with(UNDO) {
        ("another undo runs in this worktree", "try again when it has ended; nothing was changed")
    } else {
        ("a turn runs in this worktree", "wait for it; `azureal ps` shows it. Nothing was changed")
    };
    Error::new("busy", message).with_hint(hint)
}

/// Returns the reason of a conflict in words.
pub fn conflict_words(why: ConflictReason) -> &'static str {
    match why {
        ConflictReason::ChangedSince => "changed since the turn",
        ConflictReason::DeletedSince => "deleted since the turn",
        ConflictReason::CreatedSince => "created since the turn",
        ConflictReason::InTheWay => "another file or folder is in its place",
        ConflictReason::NotKept => "its present content would be lost: no snapshot has it",
        ConflictReason::WasThere => "it was ignored before the turn",
        ConflictReason::NotStored => {
            "its content is not recorded: it is over the size limit, or could not be read"
        }
        ConflictReason::Name => "its name is reserved",
    }
}
