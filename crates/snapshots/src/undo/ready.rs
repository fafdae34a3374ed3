//! An undo, from its plan to its end.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use azureal_files::HeldFolder;
use rustix::fs::OFlags;

use crate::compare::Version;
use crate::error::{At, Error};
use crate::git::{Deadline, PATIENT, args};
use crate::import::NAME;
use crate::take::{Limits, Taken};
use crate::worktree::{Home, Worktree};

use super::journal::{About, INDEX, Journal, Step, remove_drafts};
use super::{Prepared, UndoConflict, UndoFile, WAIT};

/// An undo that is planned, with the worktree locked. No file is changed yet.
pub struct ReadyUndo<'a> {
    worktree: &'a Worktree,
    home: Home,
    _lock: HeldFolder,
    session: String,
    prepared: Prepared,
    left: Vec<UndoConflict>,
    before: String,
    after: String,
}

/// The result of an undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    /// Its name, for [`Worktree::forget_undo`].
    pub id: String,
    /// The snapshot before it.
    pub before: String,
    /// The snapshot after it: the one before it, with the changes of the undo alone. Undoing from this one to the one before
    /// undoes the undo.
    pub after: String,
    /// The files that it changed.
    pub files: Vec<UndoFile>,
    /// The conflicts that it did not resolve, if it was forced.
    pub left: Vec<UndoConflict>,
    /// Versions that were put beside their files, as [`Recovered::kept`](super::Recovered::kept).
    pub kept: Vec<PathBuf>,
}

impl ReadyUndo<'_> {
    /// Returns the snapshot before the undo.
    pub fn before(&self) -> &str {
        &self.before
    }

    /// Returns the snapshot after the undo.
    pub fn after(&self) -> &str {
        &self.after
    }

    /// Returns the conflicts that it leaves as they are, if it is forced.
    pub fn left(&self) -> &[UndoConflict] {
        &self.left
    }

    /// Restores all files, or none.
    ///
    /// A note is kept with the undo until the caller [forgets](Worktree::forget_undo) it. If this process dies before that,
    /// [`Worktree::recover`] returns the note, with the end of the undo. Without a note there is nothing to forget.
    ///
    /// # Errors
    ///
    /// [`Error::ChangedMeanwhile`] if a file was changed while the undo ran.
    pub fn carry_out(self, note: &str) -> Result<Undone, Error> {
        let Self { worktree, home, _lock, session, prepared, left, before, after } = self;
        let mut journal = Journal::new(prepared.steps, prepared.began);
        let id = journal.id.clone();
        journal.about = About { session, after: after.clone(), note: note.to_owned() };
        let kept = journal.carry_out(worktree, &home, &prepared.blobs, &mut |_| Ok(()))?;
        Ok(Undone { id, before, after, files: prepared.plan.files, left, kept })
    }
}

impl Worktree {
    /// Plans to restore the files that differ between two snapshots to what they are in the earlier one. Locks the worktree.
    ///
    /// # Errors
    ///
    /// [`Error::Conflicts`] if files were changed since, unless `force` is set: [`plan_undo`](Self::plan_undo) lists them.
    /// [`Error::Unsettled`] if an earlier undo has ended and is not [forgotten](Self::forget_undo).
    pub fn begin_undo(
        &self,
        session: &str,
        before: &str,
        after: &str,
        force: bool,
    ) -> Result<ReadyUndo<'_>, Error> {
        let home = self.open_home()?;
        let lock = home.lock(WAIT)?;
        if self.recover_held(&home)?.is_some_and(|recovered| !recovered.id.is_empty()) {
            return Err(Error::Unsettled);
        }
        let present = self.take_for_undo(&home, Some(session))?;
        let mut prepared = self.prepare(&home, before, after, force.then_some(&*present))?;
        let conflicts = std::mem::take(&mut prepared.plan.conflicts);
        if !conflicts.is_empty() && !force {
            return Err(Error::Conflicts(conflicts.len()));
        }
        let left = conflicts.into_iter().filter(|conflict| !conflict.why.can_be_forced()).collect();
        let (before, after) = self.trees(&home, &present, &prepared.steps)?;
        if before != present {
            let now = UNIX_EPOCH.elapsed().unwrap_or_default();
            self.pin(&home, session, now, &before, None)?;
        }
        self.make_durable_held(&home, session, &before, &after)?;
        let session = session.to_owned();
        Ok(ReadyUndo { worktree: self, home, _lock: lock, session, prepared, left, before, after })
    }

    /// Restores the files that differ between two snapshots to what they are in the earlier one: all of them, or none.
    ///
    /// # Errors
    ///
    /// Those of [`begin_undo`](Self::begin_undo) and of [`ReadyUndo::carry_out`].
    pub fn undo(&self, session: &str, before: &str, after: &str, force: bool) -> Result<Undone, Error> {
        self.begin_undo(session, before, after, force)?.carry_out("")
    }

    /// Takes a snapshot of the files as they are. Without a session, nobody keeps it.
    pub(crate) fn take_for_undo(&self, home: &Home, session: Option<&str>) -> Result<String, Error> {
        let limits = Limits { time: WAIT, ..Limits::default() };
        match self.take_held(home, session, &limits, &|| false)? {
            Taken::Whole(snapshot) => Ok(snapshot.tree),
            _ => Err(Error::Busy),
        }
    }

    /// Writes the snapshots before and after an undo. The one before it is the present one, which our index has, with the files of the
    /// steps: of these, the present one lacks those that are ignored by now. The one after it is this with the steps, so it is known before
    /// the first file is changed, and has no change of another program.
    fn trees(&self, home: &Home, present: &str, steps: &[Step]) -> Result<(String, String), Error> {
        if steps.is_empty() {
            return Ok((present.to_owned(), present.to_owned()));
        }
        remove_drafts(home)?;
        let index = home.own.join(INDEX);
        let mut copied = home.own.open_file(OsStr::new(NAME), OFlags::RDONLY).at(&home.own.join(NAME))?;
        let mut copy = home.own.create_file(OsStr::new(INDEX), OFlags::WRONLY).at(&index)?;
        std::io::copy(&mut copied, &mut copy).at(&index)?;
        let before =
            self.tree_with(&index, steps.iter().map(|step| (&step.path, step.left.as_ref())), false)?;
        let after =
            self.tree_with(&index, steps.iter().map(|step| (&step.path, step.restored.as_ref())), true)?;
        home.own.remove(OsStr::new(INDEX)).at(&index)?;
        if before != present {
            self.keep(present, &before, Limits::default().known_file, Deadline::after(PATIENT))?;
        }
        self.keep(&before, &after, Limits::default().known_file, Deadline::after(PATIENT))?;
        Ok((before, after))
    }

    /// Writes the tree of an index with other versions of some files. Those without a version are removed, or stay.
    fn tree_with<'a>(
        &self,
        index: &Path,
        versions: impl Iterator<Item = (&'a Vec<u8>, Option<&'a Version>)> + Clone,
        removes: bool,
    ) -> Result<String, Error> {
        let deadline = Deadline::after(PATIENT);
        let git = self.borrowing().with("GIT_INDEX_FILE", index);
        let none = "0".repeat(self.places.format.length() * 2);
        let mut entries = Vec::new();
        let mut set = |mode: u32, id: &str, path: &[u8]| {
            entries.extend(format!("{mode:o} {id}\t").into_bytes());
            entries.extend(path);
            entries.push(0);
        };
        // Those that go come first: a file may become a folder, and the reverse.
        versions.clone().filter(|_| removes).for_each(|(path, _)| set(0, &none, path));
        for (path, version) in versions {
            if let Some(Version { mode, id }) = version {
                set(*mode, id, path);
            }
        }
        git.run(&args(["update-index", "-z", "--index-info"]), entries, deadline)?;
        // The project's git may have removed files that did not change.
        let output = git.run(&args(["write-tree", "--missing-ok"]), Vec::new(), deadline)?;
        let tree = String::from_utf8_lossy(&output).trim().to_owned();
        if crate::is_id(&tree) { Ok(tree) } else { Err(Error::NoSnapshot(tree)) }
    }
}
