//! The moves of files of an undo. Each first looks whether the file is still the recorded one.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::beneath::{Beneath, Found};
use crate::error::{At, Error};
use crate::notes::sync_notes;
use crate::origin::Began;
use crate::worktree::{Home, Worktree};

use super::identity::Identity;
use super::journal::{KEPT, Step};
use super::path;

/// The longest beginning of a name that gets an ending.
const LONGEST: usize = 230;
/// The number of versions that are put beside one file.
const BESIDE: usize = 100;

/// A test asks to stop as if the process were killed.
#[derive(Debug)]
pub(crate) struct Killed;

/// Called before each change of a file.
pub(crate) type Hook<'a> = &'a mut dyn FnMut(&str) -> Result<(), Killed>;

pub(crate) enum Halt {
    Killed,
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Killed> for Halt {
    fn from(_: Killed) -> Self {
        Self::Killed
    }
}

impl From<Halt> for Error {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Failed(error) => error,
            Halt::Killed => Self::BadJournal("killed"),
        }
    }
}

/// The open folders of one run.
pub(crate) struct Run<'a> {
    worktree: &'a Worktree,
    pub(crate) home: &'a Home,
    pub(crate) beneath: Beneath,
    pub(crate) hook: Hook<'a>,
}

/// Returns the error that a file is not the recorded one.
pub(crate) fn changed(step: &Step) -> Halt {
    Halt::Failed(Error::ChangedMeanwhile { path: path(&step.path), kept: Vec::new() })
}

impl<'a> Run<'a> {
    pub(crate) fn new(worktree: &'a Worktree, home: &'a Home, hook: Hook<'a>) -> Result<Self, Error> {
        let root = &worktree.places.root;
        Ok(Self { worktree, home, beneath: Beneath::open(root).at(root)?, hook })
    }

    /// Lists the versions that this undo put beside their files, also in a process that was killed.
    pub(crate) fn kept(&mut self) -> Result<Vec<PathBuf>, Error> {
        let noted = self.home.read(KEPT).unwrap_or_default();
        let noted: BTreeSet<&[u8]> = noted.split(|byte| *byte == 0).filter(|kept| !kept.is_empty()).collect();
        self.beneath.forget();
        let mut kept = Vec::new();
        for file in noted {
            // It is noted before it is moved.
            if self.beneath.look(file).at(&path(file))?.file().is_some() {
                kept.push(path(file));
            }
        }
        Ok(kept)
    }

    fn note_kept(&self, kept: &Path) -> Result<(), Error> {
        let (name, at) = (OsStr::new(KEPT), self.home.own.join(KEPT));
        let file = match self.home.own.open_file(name, OFlags::WRONLY | OFlags::APPEND) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.home.own.create_file(name, OFlags::WRONLY)
            }
            opened => opened,
        };
        let mut file = file.at(&at)?;
        tracing::warn!(path = %kept.display(), "an undo keeps a version beside its file");
        let line = [kept.as_os_str().as_bytes(), b"\0"].concat();
        file.write_all(&line).and_then(|()| file.sync_all()).at(&at)
    }

    /// Has the session keep the snapshot after the undo.
    pub(crate) fn pin(&mut self, session: &str, tree: &str) -> Result<(), Halt> {
        (self.hook)("keep the snapshot")?;
        let now = UNIX_EPOCH.elapsed().unwrap_or_default();
        // No turn begins with it, so nobody asks for its ignore rules.
        self.worktree.pin(self.home, session, now, tree, None)?;
        // Before the journal goes, which has the snapshot too.
        Ok(sync_notes(self.home, session)?)
    }

    pub(crate) fn rename_journal(&mut self, from: &str, to: &str) -> Result<(), Halt> {
        (self.hook)(to)?;
        let folder = &self.home.own;
        let renamed = folder.rename(OsStr::new(from), OsStr::new(to)).and_then(|()| folder.sync());
        Ok(renamed.at(&folder.join(to))?)
    }

    pub(crate) fn remove_journal(&mut self, state: &str) -> Result<(), Halt> {
        (self.hook)("remove the journal")?;
        Ok(self.home.own.remove(OsStr::new(state)).at(&self.home.own.join(state))?)
    }

    /// Looks at a path, without what was remembered of its folders.
    pub(crate) fn look(&mut self, file: &[u8]) -> Result<Found, Halt> {
        self.beneath.forget();
        Ok(self.beneath.look(file).at(&path(file))?)
    }

    fn place(&mut self, step: &Step) -> Result<Arc<OwnedFd>, Halt> {
        self.beneath.forget();
        Ok(self.beneath.open_folder(&step.place).at(&path(&step.path))?)
    }

    /// Returns the identity of the file at the path of a step. `None` if there is none.
    pub(crate) fn target(&mut self, step: &Step) -> Result<Option<Identity>, Halt> {
        Ok(self.look(&step.path)?.file().map(Identity::of))
    }

    /// Returns the identity of a file in the place of a step. `None` if there is none.
    pub(crate) fn beside(&mut self, step: &Step, name: &OsStr) -> Result<Option<Identity>, Halt> {
        self.beneath.forget();
        let place = self.beneath.open_folder(&step.place);
        match place.and_then(|place| rustix::fs::statat(&place, name, AtFlags::SYMLINK_NOFOLLOW)) {
            // The user may have removed or replaced the folder.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            found => Ok(Some(Identity::of(&found.at(&path(&step.path))?))),
        }
    }

    /// Moves the file of a step into its place, if `is_recorded` confirms it.
    pub(crate) fn rename_aside(
        &mut self,
        step: &Step,
        name: &OsStr,
        recorded: &Identity,
        is_recorded: fn(&Identity, &Identity) -> bool,
    ) -> Result<(), Halt> {
        (self.hook)("move aside")?;
        if !self.target(step)?.is_some_and(|found| is_recorded(&found, recorded)) {
            return Err(changed(step));
        }
        let place = self.place(step)?;
        let at = path(&step.path);
        let (folder, file) = self.beneath.parent(&step.path).at(&at)?;
        rename_new(&folder, file, &place, name).at(&at)?;
        // It may have been replaced between the look and the move, and a program that has it open may write to it.
        (self.hook)("look again")?;
        if self.beside(step, name)?.is_some_and(|found| found.is_renamed(recorded)) {
            Ok(())
        } else {
            Err(changed(step))
        }
    }

    /// Moves a file from the place of a step to its path. Creates the folders of the path. Returns `false` if something else is
    /// there.
    pub(crate) fn rename_into_place(&mut self, step: &Step, name: &OsStr) -> Result<bool, Halt> {
        let at = path(&step.path);
        let ends = step.path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        for end in ends.filter(|end| *end > step.place.len()) {
            let folder = step.path.get(..end).unwrap_or_default();
            if matches!(self.look(folder)?, Found::Missing) {
                (self.hook)("create a folder")?;
                let (parent, name) = self.beneath.parent(folder).at(&at)?;
                match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
                    Err(Errno::EXIST) => {}
                    created => created.at(&at)?,
                }
            }
        }
        (self.hook)("move to its path")?;
        let place = self.place(step)?;
        let (folder, file) = match self.beneath.parent(&step.path) {
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            parent => parent.at(&at)?,
        };
        match rename_new(&place, name, &folder, file) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            renamed => Ok(renamed.map(|()| true).at(&at)?),
        }
    }

    /// Gives a file in the place of a step a name that a person can read, beside the file at its path.
    pub(crate) fn keep_beside(&mut self, step: &Step, name: &OsStr) -> Result<(), Halt> {
        (self.hook)("keep beside")?;
        let at = path(&step.path);
        let place = self.place(step)?;
        let end = step.path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (parent, file) = step.path.split_at(end);
        let (folder, parent) = match self.beneath.parent(&step.path) {
            Ok((folder, _)) => (folder, path(parent)),
            // The folder of the file is no longer there.
            Err(_) => (Arc::clone(&place), path(&step.place)),
        };
        for number in 1..=BESIDE {
            let mut readable = file.get(..LONGEST).unwrap_or(file).to_vec();
            readable.extend(b".before-undo");
            if number > 1 {
                readable.extend(format!("-{number}").into_bytes());
            }
            let readable = OsString::from_vec(readable);
            if rustix::fs::statat(&folder, &readable, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                continue;
            }
            // Before the move: the user must hear of it also if this process is killed right after it.
            self.note_kept(&parent.join(&readable))?;
            match rename_new(&place, name, &folder, &readable) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                renamed => return Ok(renamed.at(&at)?),
            }
        }
        Ok(self.note_kept(&path(&step.place).join(name))?)
    }

    /// Removes a file from the place of a step. If it is not the recorded one, it is kept beside the file of the step. Without a
    /// record, it is a staged file that was being written.
    pub(crate) fn unlink(
        &mut self,
        step: &Step,
        name: &OsStr,
        recorded: Option<&Identity>,
    ) -> Result<(), Halt> {
        (self.hook)("remove")?;
        // A folder that became empty is removed too.
        let Some(found) = self.beside(step, name)? else { return Ok(()) };
        if recorded.is_some_and(|recorded| !found.is_renamed(recorded)) {
            return self.keep_beside(step, name);
        }
        let place = self.place(step)?;
        Ok(rustix::fs::unlinkat(&place, name, AtFlags::empty()).at(&path(&step.path))?)
    }

    /// Removes a folder that has only empty folders.
    pub(crate) fn remove_empty(&mut self, folder: &[u8]) -> Result<(), Halt> {
        let at = path(folder);
        let opened = self.beneath.open_folder(folder).at(&at)?;
        for entry in Dir::read_from(&opened).at(&at)? {
            let entry = entry.at(&at)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                // Of a file, this is an error.
                self.remove_empty(&[folder, b"/", name].concat())?;
            }
        }
        (self.hook)("remove a folder")?;
        self.beneath.forget();
        let (parent, name) = self.beneath.parent(folder).at(&at)?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR).at(&at)?)
    }

    /// Removes the folders of a file as long as they are empty, down to a length of their path. With a time, only those that were
    /// created after it.
    pub(crate) fn remove_parents(
        &mut self,
        file: &[u8],
        longer_than: usize,
        after: Option<Began>,
    ) -> Result<(), Halt> {
        let mut folder = file;
        while let Some(end) = folder.iter().rposition(|byte| *byte == b'/').filter(|end| *end > longer_than) {
            folder = folder.get(..end).unwrap_or_default();
            (self.hook)("remove an empty folder")?;
            self.beneath.forget();
            let is_there = !matches!(self.beneath.look(folder), Ok(Found::Missing));
            if let Some(after) = after.filter(|_| is_there)
                && after.is_before(folder, &mut self.beneath).at(&path(folder))? != Some(true)
            {
                break;
            }
            let parent = self.beneath.parent(folder);
            let removed =
                parent.and_then(|(parent, name)| rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR));
            if !matches!(removed, Ok(()) | Err(Errno::NOENT)) {
                break;
            }
        }
        Ok(())
    }

    /// Makes the moves survive a loss of power.
    pub(crate) fn sync(&mut self, steps: &[Step]) -> Result<(), Halt> {
        let parent = |file: &[u8]| {
            let end = file.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            file.get(..end).unwrap_or_default().to_vec()
        };
        let folders: BTreeSet<Vec<u8>> =
            steps.iter().flat_map(|step| [parent(&step.path), step.place.clone()]).collect();
        for folder in folders {
            self.beneath.forget();
            if let Ok(opened) = self.beneath.open_folder(&folder) {
                rustix::fs::fsync(&opened).at(&path(&folder))?;
            }
        }
        Ok(())
    }
}

/// Renames a file, unless the new name is taken.
fn rename_new(from: &OwnedFd, name: &OsStr, to: &OwnedFd, new: &OsStr) -> io::Result<()> {
    match rustix::fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // Some file systems cannot rename without replacing.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            match rustix::fs::statat(to, new, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => Ok(rustix::fs::renameat(from, name, to, new)?),
                Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                Err(error) => Err(error.into()),
            }
        }
        renamed => Ok(renamed?),
    }
}
