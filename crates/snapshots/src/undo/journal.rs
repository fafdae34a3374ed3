//! Carries out an undo so that after a crash it is finished or taken back.
//!
//! The journal is a file whose name is its state:
//!
//! | state | done so far | after a crash |
//! |---|---|---|
//! | `prepared` | some new files are staged beside their targets | the staged files are removed |
//! | `forward` | all are staged; files are moved to their places, old ones aside | continues; on an error it goes `back` |
//! | `back` | files are moved back | continues, until it is `prepared` again |
//! | `done` | all files are in their places | the old files are removed |
//! | `undone` | all is done, and the caller has not confirmed that it knows | stays, until [`forget`] |
//! | `taken-back` | all is as before, and the caller has not confirmed that it knows | stays, until [`forget`] |
//!
//! Each step looks at the files that are there, so that it can be repeated. The journal has the identities of the files from
//! before the undo and of the staged ones. A file that is not the recorded one was changed by another program: it is neither moved
//! nor removed, and an undo that needs it goes `back`. An old version whose place is taken is put beside it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use azureal_files::Folder;
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::beneath::Found;
use crate::compare::Version;
use crate::error::{At, Error};
use crate::origin::Began;
use crate::worktree::{self, Home, Worktree};

use super::blobs::{self, Blobs};
use super::identity::Identity;
use super::moves::{Halt, Hook, Run, changed};
use super::{Recovered, path};

const PREPARED: &str = "undo.prepared";
const FORWARD: &str = "undo.forward";
const BACK: &str = "undo.back";
const DONE: &str = "undo.done";
const UNDONE: &str = "undo.undone";
const TAKEN_BACK: &str = "undo.taken-back";
const STATES: [&str; 6] = [PREPARED, FORWARD, BACK, DONE, UNDONE, TAKEN_BACK];
/// The journal with the identities of the staged files, until it replaces the one before.
const STAGED: &str = "undo.staged";
/// The index from which the snapshot after the undo is written.
pub(crate) const INDEX: &str = "undo.index";
/// All files that an undo may leave if it is killed, apart from its journal.
const DRAFTS: [&str; 4] = [STAGED, INDEX, "undo.index.lock", blobs::FILE];
/// The paths of the versions that were put beside their files, each followed by a NUL.
pub(crate) const KEPT: &str = "undo.kept";
const LINK: u32 = 0o120_000;
const EXECUTABLE: u32 = 0o100;

/// Returns whether the folder of a worktree has a journal, or a draft to remove.
pub(crate) fn is_in(folder: &Path) -> bool {
    STATES.iter().chain(&DRAFTS).any(|state| folder.join(state).symlink_metadata().is_ok())
}

/// A file to restore or to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) path: Vec<u8>,
    /// The version to restore. `None` if the file is deleted. Only staging needs its id.
    pub(crate) restored: Option<Version>,
    /// The present version, if it is the one that the turn left. Only the snapshot before the undo needs it.
    pub(crate) left: Option<Version>,
    /// The folder of the staged file and of the old one: the nearest that exists and stays.
    pub(crate) place: Vec<u8>,
    /// The file that is there before the undo. `None` if there is none.
    pub(crate) present: Option<Identity>,
    /// The staged file, once it is written.
    pub(crate) staged: Option<Identity>,
}

/// The steps of an undo, and the word in the names of its files.
pub(crate) struct Journal {
    pub(crate) id: String,
    /// The time of the snapshot from before the turn.
    pub(crate) began: Began,
    pub(crate) about: About,
    pub(crate) steps: Vec<Step>,
}

/// The part of a journal that no step needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct About {
    /// The session that keeps the snapshot after the undo.
    pub(crate) session: String,
    /// The snapshot after the undo.
    pub(crate) after: String,
    /// The text of the caller.
    pub(crate) note: String,
}

impl Journal {
    pub(crate) fn new(steps: Vec<Step>, began: Began) -> Self {
        let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let id = format!("{now:x}-{:x}", std::process::id());
        Self { id, began, about: About::default(), steps }
    }

    /// Carries out all steps, or none. Returns the versions that are kept beside their files. With a note, the journal stays
    /// until the caller [forgets](forget) it.
    pub(crate) fn carry_out(
        mut self,
        worktree: &Worktree,
        home: &Home,
        blobs: &Blobs,
        hook: Hook<'_>,
    ) -> Result<Vec<PathBuf>, Error> {
        if self.steps.is_empty() {
            return Ok(Vec::new());
        }
        home.own.remove(OsStr::new(KEPT)).at(&home.own.join(KEPT))?;
        let mut run = Run::new(worktree, home, hook)?;
        self.write(&mut run, PREPARED)?;
        let done = match self.stage(&mut run, blobs) {
            Err(Halt::Failed(error)) => self.drop_staged(&mut run).and_then(|()| {
                run.rename_journal(PREPARED, TAKEN_BACK)?;
                Err(error.into())
            }),
            Err(Halt::Killed) => Err(Halt::Killed),
            Ok(()) => self.write(&mut run, STAGED).map_err(Halt::from).and_then(|()| {
                run.rename_journal(STAGED, PREPARED)?;
                run.rename_journal(PREPARED, FORWARD)?;
                self.go(&mut run, FORWARD)
            }),
        };
        let kept = run.kept()?;
        match done {
            // The error says that it was taken back.
            Err(Halt::Failed(error)) => {
                forget(home, &self.id)?;
                match error {
                    Error::ChangedMeanwhile { path, .. } => Err(Error::ChangedMeanwhile { path, kept }),
                    error => Err(error),
                }
            }
            done => {
                done?;
                if self.about.note.is_empty() {
                    forget(home, &self.id)?;
                }
                Ok(kept)
            }
        }
    }

    /// Finishes or takes back an undo that was interrupted. `None` if there was none. Its journal stays, with the end as its
    /// state.
    pub(crate) fn recover(
        worktree: &Worktree,
        home: &Home,
        hook: Hook<'_>,
    ) -> Result<Option<Recovered>, Error> {
        remove_drafts(home)?;
        let found = STATES.into_iter().find_map(|state| Some((state, home.read(state)?)));
        let Some((state, bytes)) = found else { return Ok(None) };
        let mut run = Run::new(worktree, home, hook)?;
        let journal = match Self::parse(&bytes) {
            // It was not written completely, so no file was staged.
            Err(_) if state == PREPARED => {
                run.remove_journal(PREPARED)?;
                return Ok(Some(Recovered::default()));
            }
            // It has ended, which is all that can be said.
            Err(_) if matches!(state, UNDONE | TAKEN_BACK) => {
                return Ok(Some(Recovered { is_undone: state == UNDONE, ..Recovered::default() }));
            }
            journal => journal.map_err(Error::BadJournal)?,
        };
        if !matches!(state, UNDONE | TAKEN_BACK) {
            tracing::info!(state, steps = journal.steps.len(), "recovers an undo");
            match journal.go(&mut run, state) {
                // It was taken back, which is a whole result too.
                Err(Halt::Failed(error)) if home.read(TAKEN_BACK).is_some() => {
                    tracing::warn!(%error, "took an undo back");
                }
                done => done?,
            }
        }
        let kept = run.kept()?;
        let is_undone = home.read(UNDONE).is_some();
        Ok(Some(Recovered { id: journal.id, is_undone, kept, note: journal.about.note }))
    }

    /// Continues from a state to the end.
    fn go(&self, run: &mut Run<'_>, state: &str) -> Result<(), Halt> {
        let failed = match state {
            PREPARED => {
                self.drop_staged(run)?;
                return run.rename_journal(PREPARED, TAKEN_BACK);
            }
            FORWARD => match self.forward(run) {
                Err(Halt::Failed(error)) => {
                    run.rename_journal(FORWARD, BACK)?;
                    Some(error)
                }
                done => {
                    done?;
                    run.rename_journal(FORWARD, DONE)?;
                    None
                }
            },
            _ => None,
        };
        if failed.is_some() || state == BACK {
            self.back(run)?;
            // All is as it was when the files were staged. A second `back` would take old files for new ones.
            run.rename_journal(BACK, PREPARED)?;
            self.drop_staged(run)?;
            run.rename_journal(PREPARED, TAKEN_BACK)?;
            return failed.map_or(Ok(()), |error| Err(error.into()));
        }
        self.finish(run)?;
        if !self.about.after.is_empty() {
            run.pin(&self.about.session, &self.about.after)?;
        }
        run.rename_journal(DONE, UNDONE)
    }

    fn name(&self, number: usize, kind: &str) -> OsString {
        OsString::from(format!(".azureal-undo-{}-{number}.{kind}", self.id))
    }

    /// Writes the new files beside their targets.
    fn stage(&mut self, run: &mut Run<'_>, blobs: &Blobs) -> Result<(), Halt> {
        let names: Vec<OsString> = (0..self.steps.len()).map(|number| self.name(number, "new")).collect();
        for (step, name) in self.steps.iter_mut().zip(names) {
            let Some(version) = &step.restored else { continue };
            (run.hook)("stage")?;
            let at = path(&step.path);
            let present = run.beneath.look(&step.path).at(&at)?;
            let place = run.beneath.open_folder(&step.place).at(&at)?;
            if version.mode == LINK {
                let target = blobs.read(&version.id).at(&at)?;
                rustix::fs::symlinkat(OsStr::from_bytes(&target), &place, &name).at(&at)?;
                let stat = rustix::fs::statat(&place, &name, AtFlags::SYMLINK_NOFOLLOW).at(&at)?;
                step.staged = Some(Identity::of(&stat));
                continue;
            }
            let is_executable = version.mode & EXECUTABLE != 0;
            let kept = match present {
                Found::File(stat) => Some(stat.st_mode & 0o777),
                _ => None,
            };
            let mode = match (kept, is_executable) {
                (Some(_), _) => Mode::RUSR | Mode::WUSR,
                (None, true) => Mode::from_raw_mode(0o777),
                (None, false) => Mode::from_raw_mode(0o666),
            };
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(rustix::fs::openat(&place, &name, flags, mode).at(&at)?);
            blobs.write(&version.id, &mut file).at(&at)?;
            if let Some(kept) = kept {
                #[allow(clippy::useless_conversion, reason = "its width differs between systems")]
                let kept = u32::from(kept);
                let mode = if is_executable { kept | (kept & 0o444) >> 2 } else { kept & !0o111 };
                file.set_permissions(Permissions::from_mode(mode)).at(&at)?;
            }
            file.sync_all().at(&at)?;
            step.staged = Some(Identity::of(&rustix::fs::fstat(&file).at(&at)?));
        }
        Ok(())
    }

    /// Lists the steps whose file is moved aside, with that file and its name there.
    fn replaced(&self) -> impl Iterator<Item = (&Step, &Identity, OsString)> {
        let steps = self.steps.iter().enumerate();
        steps.filter_map(|(number, step)| Some((step, step.present.as_ref()?, self.name(number, "old"))))
    }

    /// Lists the steps that restore a file, with the name of the staged one.
    fn restored(&self) -> impl Iterator<Item = (&Step, OsString)> {
        let steps = self.steps.iter().enumerate().filter(|(_, step)| step.restored.is_some());
        steps.map(|(number, step)| (step, self.name(number, "new")))
    }

    /// Moves the old files aside and the new ones to their places.
    fn forward(&self, run: &mut Run<'_>) -> Result<(), Halt> {
        let mut names: HashMap<u64, usize> = HashMap::new();
        for (_, present, _) in self.replaced() {
            *names.entry(present.inode()).or_default() += 1;
        }
        for (step, present, old) in self.replaced() {
            match run.beside(step, &old)? {
                Some(found) if found.is_renamed(present) => {}
                Some(_) => return Err(changed(step)),
                // To move one name of a file changes the time of all its names.
                None if names.get(&present.inode()).is_some_and(|names| *names > 1) => {
                    run.rename_aside(step, &old, present, Identity::is_renamed)?;
                }
                None => run.rename_aside(step, &old, present, Identity::eq)?,
            }
        }
        for (step, _) in self.restored() {
            if matches!(run.look(&step.path)?, Found::Folder) {
                run.remove_empty(&step.path)?;
            }
        }
        for (step, new) in self.restored() {
            if let Some(found) = run.beside(step, &new)? {
                let is_staged = step.staged.is_some_and(|staged| found.is_renamed(&staged));
                if !is_staged || !run.rename_into_place(step, &new)? {
                    return Err(changed(step));
                }
            }
        }
        run.sync(&self.steps)
    }

    /// Moves the new files out of their places and the old ones back.
    fn back(&self, run: &mut Run<'_>) -> Result<(), Halt> {
        for (step, new) in self.restored() {
            let target = run.target(step)?;
            if let Some(staged) = step.staged.filter(|staged| target.is_some_and(|it| it.is_renamed(staged)))
                && run.beside(step, &new)?.is_none()
            {
                match run.rename_aside(step, &new, &staged, Identity::is_renamed) {
                    // It was changed at this moment, and is left or put back.
                    Err(Halt::Failed(Error::ChangedMeanwhile { .. })) => {
                        if run.beside(step, &new)?.is_some() && !run.rename_into_place(step, &new)? {
                            run.keep_beside(step, &new)?;
                        }
                    }
                    moved => moved?,
                }
            }
        }
        for (step, _) in self.restored() {
            // Folders below the place did not exist.
            run.remove_parents(&step.path, step.place.len(), None)?;
        }
        for (step, _, old) in self.replaced() {
            if run.beside(step, &old)?.is_some() && !run.rename_into_place(step, &old)? {
                run.keep_beside(step, &old)?;
            }
        }
        run.sync(&self.steps)
    }

    fn drop_staged(&self, run: &mut Run<'_>) -> Result<(), Halt> {
        for (step, new) in self.restored() {
            run.unlink(step, &new, step.staged.as_ref())?;
        }
        Ok(())
    }

    /// Removes the old files, and the folders that are empty without them and were not there before the turn.
    fn finish(&self, run: &mut Run<'_>) -> Result<(), Halt> {
        for (step, present, old) in self.replaced() {
            // A program that had it open may have written to it.
            run.unlink(step, &old, Some(present))?;
        }
        for step in self.steps.iter().filter(|step| step.restored.is_none()) {
            run.remove_parents(&step.path, 0, Some(self.began))?;
        }
        Ok(())
    }

    fn write(&self, run: &mut Run<'_>, name: &str) -> Result<(), Error> {
        (run.hook)("journal").map_err(Halt::from)?;
        let folder = &run.home.own;
        let at = folder.join(name);
        // An undo that was killed may have left it.
        folder.remove(OsStr::new(name)).at(&at)?;
        let mut file = folder.create_file(OsStr::new(name), OFlags::WRONLY).at(&at)?;
        file.write_all(&self.to_bytes()).and_then(|()| file.sync_all()).and_then(|()| folder.sync()).at(&at)
    }
}

/// Returns the snapshot that the undo of a worktree leads to, if its journal is there.
pub(crate) fn tree_in(folder: &Folder) -> Option<String> {
    let bytes = STATES.iter().find_map(|state| worktree::read(folder, state))?;
    Some(Journal::parse(&bytes).ok()?.about.after).filter(|tree| crate::is_id(tree))
}

/// Removes the journal of an undo that has ended, if it is still the one with this id.
pub(crate) fn forget(home: &Home, id: &str) -> Result<(), Error> {
    for state in [UNDONE, TAKEN_BACK] {
        let Some(bytes) = home.read(state) else { continue };
        if Journal::parse(&bytes).map(|journal| journal.id).unwrap_or_default() == id {
            for name in [KEPT, state] {
                home.own.remove(OsStr::new(name)).at(&home.own.join(name))?;
            }
            home.own.sync().at(&home.own.join(state))?;
        }
    }
    Ok(())
}

/// Removes the files that an undo may have left that was killed, apart from its journal.
pub(crate) fn remove_drafts(home: &Home) -> Result<(), Error> {
    for name in DRAFTS {
        home.own.remove(OsStr::new(name)).at(&home.own.join(name))?;
    }
    Ok(())
}
