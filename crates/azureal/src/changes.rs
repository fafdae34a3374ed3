//! The changes of turns: what happened to the files of the worktree while a turn ran.

use std::path::PathBuf;

use azureal_core::event::{Changes, DirectoryChanges, FileChange, SkippedPath, Undo};
use azureal_core::{Event, PAGE_EVENTS, Page, Seq, SessionId, SessionRecord, StoredEvent, TurnIndex};
use azureal_engine::{ChangeRecorder, snapshot_owner, stored_changes};
use azureal_snapshots::{Diff, GitProgram, Patch, Worktree};
use tracing::{debug, info};

use crate::config::{self, Config};
use crate::error::Error;
use crate::git_folder;
use crate::workspace::{Notice, Workspace};

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
    /// The undo that took them back.
    pub undone_by: Option<Seq>,
    /// The worktree of the turn, by its path relative to the root of the project; empty if it is not known.
    pub worktree: String,
    /// Whether they are those of an undo, so that undoing them restores the changes of the turn.
    pub is_undo: bool,
    /// Whether they are those of an undo, or of one that took an undo back: azureal itself made them.
    pub of_undo: bool,
    /// Files and repositories that the snapshots do not have.
    pub skipped: Vec<SkippedPath>,
}

/// Which changes of a session are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangesOf {
    /// Those of the last turn that has any.
    LastTurn,
    /// Those of the last turn that has any and is not undone.
    LastNotUndone,
    /// Those of a turn, by its number.
    Turn(usize),
    /// Those of an event, which may be an undo.
    Event(Seq),
}

impl TurnChanges {
    /// Returns the counts in words: `3 files changed, +40 −12`. Names files that changed and are not recorded.
    pub fn summary(&self) -> String {
        let (files, directories, skipped) =
            (self.files.clone(), self.directories.clone(), self.skipped.clone());
        Changes { files, directories, skipped, ..Changes::default() }.summary()
    }

    /// Returns the files that changed and are not recorded, in words. `None` if there are none.
    pub fn unrecorded(&self) -> Option<String> {
        Changes { skipped: self.skipped.clone(), ..Changes::default() }.unrecorded()
    }

    /// Returns whether an event has something to undo.
    fn has_files(changes: &Event) -> bool {
        matches!(changes, Event::Changes(Changes { files, directories, .. }) if !files.is_empty() || !directories.is_empty())
    }
}

impl Workspace {
    /// Returns the recorder of the changes in this worktree; `None` outside a git repository, or if nothing is stored.
    pub(crate) fn change_recorder(&self) -> Option<ChangeRecorder> {
        let recorder = self.recorder.get_or_init(|| {
            let environment = self.environment().for_children().clone();
            let git = GitProgram { program: "git".into(), environment };
            // A folder that others can write to is not used, nor a worktree whose undo could overwrite the store.
            let folder = git_folder::of_store(&self.project.store_path());
            let folder = folder.and_then(|folder| git_folder::check_usable(&folder).map(|()| folder));
            let is_usable = folder.is_ok();
            let is_safe = self.file().is_none_or(|(file, _)| {
                file.extension().is_some_and(|end| end == "azs")
                    || !file.starts_with(self.project.directory())
            });
            let is_recorded = self.project.is_in_git() && is_usable && is_safe;
            let recorder = is_recorded.then(|| ChangeRecorder::new(self.project.directory(), git))?;
            let recorder =
                recorder.with_snapshots(folder.ok()?.join("snapshots")).named(self.project.worktree());
            Some(if self.is_ephemeral() { recorder.only_marks() } else { recorder })
        });
        recorder.clone()
    }

    /// Returns the folder of the snapshots in the git directory, if there is one.
    pub(crate) fn snapshot_folder(&self) -> Option<PathBuf> {
        let folder = git_folder::of_store(&self.project.store_path()).ok()?.join("snapshots");
        folder.is_dir().then_some(folder)
    }

    /// Removes the snapshots of a deleted session.
    pub(crate) fn remove_snapshots(&self, record: &SessionRecord) -> Result<(), Error> {
        let Some(folder) = self.snapshot_folder() else { return Ok(()) };
        let owner = snapshot_owner(record);
        if !Worktree::noted_sessions(&folder).contains(&owner) {
            return Ok(());
        }
        let worktree = self.snapshots()?;
        let removed = worktree.remove_session(&owner).and_then(|()| worktree.prune(self.snapshot_limit()));
        removed.map(drop).map_err(|error| {
            let error = snapshot_error(error);
            let message =
                format!("{} is deleted, but not the versions of its files: {}", record.id, error.message());
            Error::new("snapshot", message).with_hint("the next turn in this project removes them")
        })
    }

    /// Combines packs and removes the oldest snapshots, if a turn of this workspace has added some and there are too many.
    pub(crate) fn prune_snapshots(&self) {
        let recorder = self.recorder.get().and_then(Option::as_ref).filter(|recorder| recorder.is_used());
        let Some(Ok(Some(worktree))) = recorder.map(ChangeRecorder::worktree) else { return };
        if let Err(error) = worktree.combine() {
            // Another process does the same, or the next turn tries again.
            debug!(%error, "packs of snapshots are not combined");
        }
        let limit = self.snapshot_limit();
        if !worktree.needs_prune(limit) {
            return;
        }
        match worktree.prune(limit) {
            Ok(pruned) => {
                info!(snapshots = pruned.snapshots, size = pruned.size, "removed the oldest snapshots");
                if pruned.turned_off {
                    let limit = limit / 1_000_000;
                    self.add_notice(Notice::Snapshots(format!(
                        "the files of this worktree do not fit into `[changes] max_size` ({limit} MB): their versions are removed, and changes are no longer \
                         recorded; a larger `max_size` with `enabled = true` resumes it"
                    )));
                }
            }
            // Another process takes a snapshot: the next turn tries again.
            Err(error) => debug!(%error, "snapshots are not pruned"),
        }
    }

    fn snapshot_limit(&self) -> u64 {
        self.load_config().as_ref().map_or(config::CHANGES_SIZE, Config::changes_size)
    }

    fn not_recorded(&self, record: &SessionRecord, turn: Option<usize>) -> Error {
        use git_folder::NotInGit::{NoFolder, OpenToOthers, Unconfirmed};
        let message = match turn {
            Some(turn) => format!("no changes of turn {turn} of {} are recorded", record.id),
            None => format!("no changes of {} are recorded", record.id),
        };
        let folder = git_folder::of_store(&self.project.store_path());
        let hint = match folder.and_then(|folder| git_folder::check_usable(&folder)) {
            // What the user can mend.
            Err(error @ (NoFolder(_) | OpenToOthers(_) | Unconfirmed(_))) => error.to_string(),
            _ => "changes are recorded in a git repository, while turns of azureal run there; `azureal config` shows `[changes]`".to_owned(),
        };
        Error::new("not_recorded", message).with_hint(hint)
    }

    /// Finds recorded changes of a session.
    ///
    /// # Errors
    ///
    /// There is no such turn or event, or its changes are not recorded.
    pub async fn turn_changes(&self, record: &SessionRecord, of: ChangesOf) -> Result<TurnChanges, Error> {
        let turns = TurnIndex::read(&*self.store, record.id).await?;
        let turn = match of {
            ChangesOf::Turn(turn) => Some(turn),
            ChangesOf::Event(seq) => turn_of(&turns, seq),
            ChangesOf::LastTurn => self.last_changed(record.id, &turns, false).await?,
            ChangesOf::LastNotUndone => self.last_changed(record.id, &turns, true).await?,
        };
        let Some(turn) = turn else { return Err(self.not_recorded(record, None)) };
        let (Some(first), Some(last)) = (turns.first_event(turn), turns.last_event(turn)) else {
            let (session, count) = (record.id, turns.count());
            return Err(Error::new("no_turn", format!("{session} has no turn {turn}"))
                .with_hint(format!("it has {count}; `azureal show {session}` shows their numbers")));
        };
        // An undo may come much later.
        let events = self.change_events(record.id, first).await?;
        let worktree = events.iter().filter(|(seq, _)| *seq <= last).find_map(|(_, event)| match event {
            Event::Changes(changes) => Some(changes.worktree.clone()),
            _ => None,
        });
        let worktree = worktree.unwrap_or_default();
        if let ChangesOf::Event(seq) = of
            && let Some((_, Event::Undo(undo))) = events.iter().find(|(found, _)| *found == seq)
        {
            return Ok(TurnChanges {
                session: record.id,
                turn: usize::try_from(undo.turn).unwrap_or(turn),
                seq,
                before: undo.before.clone(),
                after: undo.after.clone(),
                files: undo.files.clone(),
                directories: undo.directories.clone(),
                during: Vec::new(),
                late: false,
                undone_by: undone_by(seq, &events),
                worktree,
                is_undo: !undo.redo,
                of_undo: true,
                skipped: Vec::new(),
            });
        }
        let of_turn = events.iter().filter(|(seq, _)| *seq <= last);
        let parts: Vec<(Seq, &Changes)> = of_turn
            .filter_map(|(seq, event)| match event {
                Event::Changes(changes) => Some((*seq, changes)),
                _ => None,
            })
            .filter(|(seq, _)| !matches!(of, ChangesOf::Event(wanted) if wanted != *seq))
            .collect();
        let (Some((_, begin)), Some((seq, end))) = (parts.first(), parts.last()) else {
            return Err(self.not_recorded(record, Some(turn)));
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
            undone_by: undone_by(*seq, &events),
            worktree,
            is_undo: false,
            of_undo: false,
            skipped: end.skipped.clone(),
        })
    }

    /// Returns the changes of a turn as a unified diff.
    ///
    /// # Errors
    ///
    /// The snapshots of the turn are on another machine, or no longer stored.
    pub fn diff(&self, changes: &TurnChanges) -> Result<Diff, Error> {
        self.diff_within(changes, LARGEST_DIFF)
    }

    /// Returns the changes of a turn as a patch that `git apply` can apply, byte for byte.
    ///
    /// # Errors
    ///
    /// The snapshots of the turn are on another machine, or no longer stored.
    pub fn patch(&self, changes: &TurnChanges) -> Result<Patch, Error> {
        let worktree = self.snapshots()?.of_undo(changes.of_undo);
        worktree.patch(&changes.before, &changes.after, LARGEST_DIFF).map_err(snapshot_error)
    }

    /// Returns the beginning of the diff, up to a number of bytes.
    pub(crate) fn diff_within(&self, changes: &TurnChanges, limit: usize) -> Result<Diff, Error> {
        let worktree = self.snapshots()?.of_undo(changes.of_undo);
        worktree.diff(&changes.before, &changes.after, limit).map_err(snapshot_error)
    }

    /// Returns the worktree of the project with its snapshots.
    pub(crate) fn snapshots(&self) -> Result<Worktree, Error> {
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

    /// Finds the last turn with changes; or, if those of all turns are undone, the last of them.
    async fn last_changed(
        &self,
        session: SessionId,
        turns: &TurnIndex,
        is_not_undone: bool,
    ) -> Result<Option<usize>, Error> {
        let mut before = Seq::END;
        let (mut later, mut last): (Vec<(Seq, Event)>, _) = (Vec::new(), None);
        // The turn whose changes were met last, and a turn that may have changed files without a record of it.
        let (mut recorded, mut unrecorded) = (None, None);
        loop {
            let page = self.store.read(session, Page::Before(before, PAGE_EVENTS)).await?;
            let Some(first) = page.first() else { return Ok(last) };
            before = first.seq;
            for stored in page.iter().rev() {
                match stored.kind.as_str() {
                    // One without files has nothing to show or to undo.
                    "Changes" if !stored.event().is_ok_and(|event| TurnChanges::has_files(&event)) => {
                        recorded = turn_of(turns, stored.seq);
                    }
                    "Changes" => {
                        let turn = turn_of(turns, stored.seq);
                        recorded = turn;
                        if !is_not_undone {
                            return Ok(turn);
                        }
                        if undone_by(stored.seq, &later).is_none() {
                            return match (turn, unrecorded) {
                                (Some(turn), Some(later)) => Err(not_the_last(session, turn, later)),
                                _ => Ok(turn),
                            };
                        }
                        last = last.or(turn);
                    }
                    "ToolCall" if unrecorded.is_none() && may_change_files(stored) => {
                        unrecorded = turn_of(turns, stored.seq).filter(|turn| recorded != Some(*turn));
                    }
                    "Undo" => later.extend(stored.event().ok().map(|event| (stored.seq, event))),
                    _ => {}
                }
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

/// Returns whether a stored tool call can change files.
fn may_change_files(stored: &StoredEvent) -> bool {
    let Ok(Event::ToolCall(call)) = stored.event() else { return false };
    ["Bash", "Edit", "MultiEdit", "NotebookEdit", "Write"].contains(&call.tool_name.as_str())
}

/// Refuses to undo an older turn that the user did not name.
fn not_the_last(session: SessionId, turn: usize, later: usize) -> Error {
    let message = format!(
        "turn {later} of {session} ran commands or edits, and has no recorded changes; the last turn that has some is turn {turn}"
    );
    Error::refused("not_the_last", message)
        .with_hint(format!("`azureal undo {session} --turn {turn}` undoes that one"))
}

/// Returns the undo of an event that was not undone itself.
fn undone_by(of: Seq, events: &[(Seq, Event)]) -> Option<Seq> {
    let undos = events.iter().filter(|(seq, event)| {
        // An undo comes after what it undoes, so this ends.
        *seq > of && matches!(event, Event::Undo(Undo { of: undone, .. }) if *undone == of.0)
    });
    undos.map(|(seq, _)| *seq).find(|seq| undone_by(*seq, events).is_none())
}

/// Returns the turn that an event belongs to.
fn turn_of(turns: &TurnIndex, seq: Seq) -> Option<usize> {
    (1..=turns.count()).rev().find(|turn| turns.first_event(*turn).is_some_and(|first| first <= seq))
}

pub(crate) fn snapshot_error(error: azureal_snapshots::Error) -> Error {
    let described = Error::new("snapshot", error.to_string());
    let described = match &error {
        azureal_snapshots::Error::Gone(_) => described.with_hint(
            "snapshots stay on the machine of their turn, and the oldest are removed; `azureal diff --stat` shows the files",
        ),
        azureal_snapshots::Error::Damaged { .. } => described
            .with_hint("`azureal doctor` says what is damaged; `azureal diff --stat` shows the files"),
        _ => described,
    };
    described.with_source(error)
}
