//! The undo of a turn: its files are restored to what they were before it.

mod blobs;
mod format;
mod identity;
mod journal;
mod moves;
mod present;
mod ready;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::beneath::{Beneath, Found, is_forbidden};
use crate::compare::{MARKED, RawChange, Version};
use crate::error::{At, Error};
use crate::origin::Began;
use crate::places::Directories;
use crate::worktree::{Home, Worktree};

use self::blobs::Blobs;
use self::identity::Identity;
use self::journal::{Journal, Step};
use self::present::{Now, Present, is_emptied};

pub(crate) use self::journal::tree_in;
pub use self::ready::{ReadyUndo, Undone};

/// The time that an undo waits for another process, and for each of its snapshots.
const WAIT: Duration = Duration::from_secs(60);
/// The time that a recovery waits for another process, which recovers too.
const RECOVERY_WAIT: Duration = Duration::from_secs(2);

/// The effect of an undo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoPlan {
    /// The files that it restores or deletes, in the order of their paths.
    pub files: Vec<UndoFile>,
    /// The files that were changed since the turn, or cannot be restored.
    pub conflicts: Vec<UndoConflict>,
    /// The files that a forced undo restores or deletes: these, and those in conflict that it can overwrite.
    pub forced: Vec<UndoFile>,
}

/// A file that an undo changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoFile {
    /// Its path beneath the top of the worktree.
    pub path: PathBuf,
    /// The change.
    pub action: UndoAction,
}

/// The change that an undo makes to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoAction {
    /// It gets its content from before the turn, and its permission to be executed.
    Restore,
    /// It is deleted: the turn created it.
    Delete,
}

/// A file that is not what the turn left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoConflict {
    /// Its path beneath the top of the worktree.
    pub path: PathBuf,
    /// The reason.
    pub why: ConflictReason,
}

/// The reason of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictReason {
    /// It was changed after the turn. A forced undo overwrites it.
    ChangedSince,
    /// It was deleted after the turn. A forced undo restores it.
    DeletedSince,
    /// The turn deleted it, and it is there again. A forced undo overwrites it.
    CreatedSince,
    /// A folder with other files, a pipe or a device, or a file in the place of its folder, is in the way. A forced undo leaves it out.
    InTheWay,
    /// A version was too large or could not be read, or is no longer stored. A forced undo leaves it out.
    NotStored,
    /// Its present content is not in the snapshot from before the undo, and would be lost. A forced undo leaves it out.
    NotKept,
    /// It may have been there before the turn: it was ignored then, or in a nested repository. A forced undo leaves it out.
    WasThere,
    /// Its name could be that of a git directory, or of azureal's folder. A forced undo leaves it out.
    Name,
}

impl ConflictReason {
    /// Returns whether a forced undo changes the file.
    pub fn can_be_forced(self) -> bool {
        matches!(self, Self::ChangedSince | Self::DeletedSince | Self::CreatedSince)
    }
}

/// The end of an undo that was interrupted. Its journal stays until [`Worktree::forget_undo`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The name of the undo.
    pub id: String,
    /// The undo was finished. If not, it was taken back.
    pub is_undone: bool,
    /// Versions that could not stay in their places, because they or the files there were changed meanwhile. Each is beside its
    /// file, as `name.before-undo`.
    pub kept: Vec<PathBuf>,
    /// The text that the undo was [carried out](ReadyUndo::carry_out) with. Empty if there was none.
    pub note: String,
}

/// A plan with all that is needed to carry it out.
struct Prepared {
    plan: UndoPlan,
    steps: Vec<Step>,
    blobs: Blobs,
    began: Began,
}

impl Worktree {
    /// Looks at what an undo of the changes between two snapshots does. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if one of the snapshots is no longer stored.
    pub fn plan_undo(&self, before: &str, after: &str) -> Result<UndoPlan, Error> {
        let home = self.open_home()?;
        let _lock = home.lock(WAIT)?;
        self.recover_held(&home)?;
        let mut plan = self.prepare(&home, before, after, None)?.plan;
        if plan.conflicts.is_empty() {
            plan.forced.clone_from(&plan.files);
            return Ok(plan);
        }
        // Only a snapshot of the files as they are now tells which of them a forced undo can overwrite.
        let present = self.take_for_undo(&home, None)?;
        let forced = self.prepare(&home, before, after, Some(&present))?.plan;
        let whys: BTreeMap<_, _> = forced.conflicts.into_iter().map(|it| (it.path, it.why)).collect();
        for conflict in &mut plan.conflicts {
            conflict.why = whys.get(&conflict.path).copied().unwrap_or(conflict.why);
        }
        plan.forced = forced.files;
        Ok(plan)
    }

    /// Returns whether the worktree with this top has the journal of an undo: of one that was interrupted, or that runs, or whose end
    /// is not [known](Self::forget_undo) yet. Starts no git.
    pub fn has_interrupted_undo(root: &Path) -> bool {
        let found = Directories::find(root);
        found.is_some_and(|found| journal::is_in(&found.snapshots().join("worktrees").join(found.name())))
    }

    /// Finishes or takes back an undo that was interrupted. `None` if there was none, or if another process uses the worktree now.
    /// Files that were changed since stay as they are. Returns the same again until [`forget_undo`](Self::forget_undo).
    ///
    /// # Errors
    ///
    /// Files cannot be moved back. The journal stays, and the next call continues.
    pub fn recover(&self) -> Result<Option<Recovered>, Error> {
        // Without a folder there has been no undo.
        if !self.home.exists() {
            return Ok(None);
        }
        let home = self.open_home()?;
        let _lock = match home.lock(RECOVERY_WAIT) {
            Err(Error::Busy) => return Ok(None),
            lock => lock?,
        };
        self.recover_held(&home)
    }

    /// Removes the journal of an undo that has ended, with the id of [`Undone`] or [`Recovered`]: the caller has noted and told all
    /// that there is to say about it.
    ///
    /// # Errors
    ///
    /// Our folder in the git directory cannot be used.
    pub fn forget_undo(&self, id: &str) -> Result<(), Error> {
        let home = self.open_home()?;
        let _lock = home.lock(WAIT)?;
        journal::forget(&home, id)
    }

    /// Finishes or takes back an undo that was interrupted. Its journal stays, so that its end is not lost.
    pub(crate) fn recover_held(&self, home: &Home) -> Result<Option<Recovered>, Error> {
        Journal::recover(self, home, &mut |_| Ok(()))
    }

    /// Decides about each file. With `forced`, the snapshot of the present files, it includes those that were changed since.
    fn prepare(
        &self,
        home: &Home,
        before: &str,
        after: &str,
        forced: Option<&str>,
    ) -> Result<Prepared, Error> {
        let mut changes = if before == after { Vec::new() } else { self.raw_changes(before, after)? };
        let hidden = self.hidden(home, before, after, &changes)?;
        changes.retain(|change| !hidden.after.contains(&change.path));
        let force = forced.is_some();
        // A file that is not as it was before the turn differs here too.
        let since = match forced {
            Some(present) if present != before => self.raw_changes(before, present)?,
            _ => Vec::new(),
        };
        let since: BTreeMap<Vec<u8>, Version> =
            since.into_iter().filter_map(|change| Some((change.path, change.after?))).collect();
        let kept = |change: &RawChange| since.get(&change.path).filter(|kept| kept.mode != MARKED);
        let versions = changes.iter().flat_map(|change| {
            [change.before.as_ref(), change.after.as_ref(), kept(change)].into_iter().flatten()
        });
        let ids =
            versions.filter(|version| version.mode != MARKED).map(|version| version.id.clone()).collect();
        let blobs = self.blobs(home, ids)?;
        let mut beneath = Beneath::open(&self.places.root).at(&self.places.root)?;
        let began = self.began(home, before, after)?;
        let mut prepared = Prepared { plan: UndoPlan::default(), steps: Vec::new(), blobs, began };
        let mut decided = Vec::new();
        for change in changes {
            let now = Now::of(&change.path, self.places.case, &mut beneath).at(&path(&change.path))?;
            let mut decision = prepared.decide(&change, &now.present).at(&path(&change.path))?;
            if force
                && let Decision::Conflict(ConflictReason::ChangedSince | ConflictReason::CreatedSince) =
                    decision
                && !prepared.is_kept(kept(&change), &now.present).at(&path(&change.path))?
            {
                decision = Decision::Conflict(ConflictReason::NotKept);
            }
            decided.push(Decided { change, decision, present: now.identity });
        }
        let is_kept =
            |it: &&mut Decided| it.decision != Decision::Nothing && hidden.before.contains(&it.change.path);
        for decided in decided.iter_mut().filter(is_kept) {
            decided.decision = Decision::Conflict(ConflictReason::WasThere);
        }
        prepared.check_places(&mut decided, &mut beneath, force)?;
        for decided in decided {
            prepared.add(decided, force);
        }
        prepared.place_steps(&mut beneath)?;
        Ok(prepared)
    }
}

/// The decision about a changed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// It is as it was before the turn.
    Nothing,
    Change,
    Conflict(ConflictReason),
}

/// A changed file, the decision about it, and the file that the decision is about.
struct Decided {
    change: RawChange,
    decision: Decision,
    present: Option<Identity>,
}

impl Decided {
    /// Returns whether the file is changed.
    fn acts(&self, force: bool) -> bool {
        match self.decision {
            Decision::Nothing => false,
            Decision::Change => true,
            Decision::Conflict(why) => force && why.can_be_forced(),
        }
    }
}

impl Prepared {
    /// Returns whether a version is stored and is exactly the present file.
    fn is_kept(&self, version: Option<&Version>, present: &Present) -> std::io::Result<bool> {
        match version.filter(|version| self.blobs.has(&version.id)) {
            Some(version) => present.is(Some(version), &self.blobs),
            None => Ok(false),
        }
    }

    fn decide(&self, change: &RawChange, present: &Present) -> std::io::Result<Decision> {
        let is_missing = |version: &Option<Version>| {
            version.as_ref().is_some_and(|version| version.mode == MARKED || !self.blobs.has(&version.id))
        };
        if is_forbidden(&change.path) {
            return Ok(Decision::Conflict(ConflictReason::Name));
        }
        if is_missing(&change.before) || is_missing(&change.after) {
            return Ok(Decision::Conflict(ConflictReason::NotStored));
        }
        if present.is(change.before.as_ref(), &self.blobs)? {
            return Ok(Decision::Nothing);
        }
        if present.is(change.after.as_ref(), &self.blobs)? {
            return Ok(Decision::Change);
        }
        Ok(Decision::Conflict(match (present, &change.after) {
            // Whether it can be removed is checked with the other files.
            (Present::Folder, None) => return Ok(Decision::Change),
            (Present::Folder, Some(_)) | (Present::Other, _) => ConflictReason::InTheWay,
            (Present::Missing, _) => ConflictReason::DeletedSince,
            (_, None) => ConflictReason::CreatedSince,
            (_, Some(_)) => ConflictReason::ChangedSince,
        }))
    }

    /// Checks that nothing else is in the place of a restored file or of its folders.
    fn check_places(&self, decided: &mut [Decided], beneath: &mut Beneath, force: bool) -> Result<(), Error> {
        // A conflict that is found can put another file in the way.
        loop {
            let moved: BTreeSet<Vec<u8>> = decided
                .iter()
                .filter(|decided| decided.acts(force))
                .map(|decided| decided.change.path.clone())
                .collect();
            let mut is_changed = false;
            for decided in decided.iter_mut().filter(|decided| decided.acts(force)) {
                let change = &decided.change;
                if change.before.is_some()
                    && !is_free(&change.path, &moved, beneath).at(&path(&change.path))?
                {
                    decided.decision = Decision::Conflict(ConflictReason::InTheWay);
                    is_changed = true;
                }
            }
            if !is_changed {
                return Ok(());
            }
        }
    }

    fn add(&mut self, decided: Decided, force: bool) {
        let acts = decided.acts(force);
        let Decided { change, decision, present } = decided;
        if let Decision::Conflict(why) = decision {
            self.plan.conflicts.push(UndoConflict { path: path(&change.path), why });
        }
        if acts {
            let action = if change.before.is_some() { UndoAction::Restore } else { UndoAction::Delete };
            self.plan.files.push(UndoFile { path: path(&change.path), action });
            self.steps.push(Step {
                path: change.path,
                restored: change.before,
                left: change.after.filter(|_| decision == Decision::Change),
                place: Vec::new(),
                present,
                staged: None,
            });
        }
    }

    /// Chooses the folder in which each file is staged: the nearest one that exists now and stays.
    fn place_steps(&mut self, beneath: &mut Beneath) -> Result<(), Error> {
        let restored: BTreeSet<Vec<u8>> =
            self.steps.iter().filter(|step| step.restored.is_some()).map(|step| step.path.clone()).collect();
        for step in &mut self.steps {
            let at = path(&step.path);
            for (end, _) in step.path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
                let folder = step.path.get(..end).unwrap_or_default();
                if restored.contains(folder) || !matches!(beneath.look(folder).at(&at)?, Found::Folder) {
                    break;
                }
                step.place = folder.to_vec();
            }
        }
        Ok(())
    }
}

/// Returns whether a file can be put at a path once the files in `moved` are out of the way.
fn is_free(file: &[u8], moved: &BTreeSet<Vec<u8>>, beneath: &mut Beneath) -> std::io::Result<bool> {
    for (end, _) in file.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
        let folder = file.get(..end).unwrap_or_default();
        match beneath.look(folder)? {
            Found::Folder => {}
            Found::Missing | Found::Blocked => return Ok(true),
            _ => return Ok(moved.contains(folder)),
        }
    }
    match beneath.look(file)? {
        Found::Folder => is_emptied(file, moved, beneath),
        _ => Ok(true),
    }
}

pub(crate) fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}
