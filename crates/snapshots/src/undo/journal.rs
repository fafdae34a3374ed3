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
//!
//! Each step looks at the files that are there, so that it can be repeated.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::beneath::{Beneath, Found, is_forbidden};
use crate::compare::Version;
use crate::error::{At, Error};
use crate::worktree::{Home, Worktree};

use super::blobs::Blobs;
use super::path;

/// Returns whether the folder of the snapshots has the journal of an undo: of one that was interrupted, or that runs.
pub fn has_interrupted_undo(folder: &Path) -> bool {
    let worktrees = std::fs::read_dir(folder.join("worktrees")).into_iter().flatten().flatten();
    let has_journal = |folder: PathBuf| {
        [PREPARED, FORWARD, BACK, DONE].iter().any(|state| folder.join(state).symlink_metadata().is_ok())
    };
    worktrees.map(|entry| entry.path()).any(has_journal)
}

const PREPARED: &str = "undo.prepared";
const FORWARD: &str = "undo.forward";
const BACK: &str = "undo.back";
const DONE: &str = "undo.done";
const HEADER: &[u8] = b"azureal undo 1";
const LINK: u32 = 0o120_000;
const EXECUTABLE: u32 = 0o100;

/// A file to restore or to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) path: Vec<u8>,
    /// The version to restore. `None` if the file is deleted. Only staging needs its id.
    pub(crate) restored: Option<Version>,
    /// The folder of the staged file and of the old one: the nearest that exists and stays.
    pub(crate) place: Vec<u8>,
    /// There is a file now.
    pub(crate) replaces: bool,
}

/// The steps of an undo, and the word in the names of its files.
pub(crate) struct Journal {
    id: String,
    steps: Vec<Step>,
}

/// A test asks to stop as if the process were killed.
#[derive(Debug)]
pub(crate) struct Killed;

/// Called before each change of a file.
pub(crate) type Hook<'a> = &'a mut dyn FnMut(&str) -> Result<(), Killed>;

enum Halt {
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
struct Run<'a> {
    home: &'a Home,
    beneath: Beneath,
    hook: Hook<'a>,
}

impl Journal {
    pub(crate) fn new(steps: Vec<Step>) -> Self {
        let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        Self { id: format!("{now:x}-{:x}", std::process::id()), steps }
    }

    /// Carries out all steps, or none.
    pub(crate) fn carry_out(
        &self,
        worktree: &Worktree,
        home: &Home,
        blobs: &Blobs,
        hook: Hook<'_>,
    ) -> Result<(), Error> {
        if self.steps.is_empty() {
            return Ok(());
        }
        let mut run = Run::new(worktree, home, hook)?;
        self.write(&mut run)?;
        match self.stage(&mut run, blobs) {
            Err(Halt::Failed(error)) => {
                self.drop_staged(&mut run)?;
                run.remove_journal(PREPARED)?;
                return Err(error);
            }
            staged => staged?,
        }
        run.rename_journal(PREPARED, FORWARD)?;
        self.go(&mut run, FORWARD)
    }

    /// Finishes or takes back an undo that was interrupted. Returns whether there was one.
    pub(crate) fn recover(worktree: &Worktree, home: &Home, hook: Hook<'_>) -> Result<bool, Error> {
        let found =
            [PREPARED, FORWARD, BACK, DONE].into_iter().find_map(|state| Some((state, home.read(state)?)));
        let Some((state, bytes)) = found else { return Ok(false) };
        let journal = Self::parse(&bytes);
        let mut run = Run::new(worktree, home, hook)?;
        let journal = match journal {
            // It was not written completely, so no file was staged.
            Err(_) if state == PREPARED => {
                run.remove_journal(PREPARED)?;
                return Ok(true);
            }
            journal => journal.map_err(Error::BadJournal)?,
        };
        tracing::info!(state, steps = journal.steps.len(), "recovers an undo");
        match journal.go(&mut run, state) {
            // It was taken back, which is a whole result too.
            Err(error)
                if state == FORWARD
                    && [FORWARD, BACK, PREPARED, DONE].iter().all(|state| home.read(state).is_none()) =>
            {
                tracing::warn!(%error, "took an undo back");
                Ok(true)
            }
            result => result.map(|()| true),
        }
    }

    fn go(&self, run: &mut Run<'_>, state: &str) -> Result<(), Error> {
        let failed = match state {
            PREPARED => {
                self.drop_staged(run)?;
                return Ok(run.remove_journal(PREPARED)?);
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
            run.remove_journal(PREPARED)?;
            return failed.map_or(Ok(()), Err);
        }
        self.finish(run)?;
        Ok(run.remove_journal(DONE)?)
    }

    fn name(&self, number: usize, kind: &str) -> OsString {
        OsString::from(format!(".azureal-undo-{}-{number}.{kind}", self.id))
    }

    /// Writes the new files beside their targets.
    fn stage(&self, run: &mut Run<'_>, blobs: &Blobs) -> Result<(), Halt> {
        for (number, step) in self.steps.iter().enumerate() {
            let Some(version) = &step.restored else { continue };
            (run.hook)("stage")?;
            let at = path(&step.path);
            let present = run.beneath.look(&step.path).at(&at)?;
            let place = run.beneath.open_folder(&step.place).at(&at)?;
            let name = self.name(number, "new");
            if version.mode == LINK {
                let target = blobs.read(&version.id).at(&at)?;
                rustix::fs::symlinkat(OsStr::from_bytes(&target), &place, &name).at(&at)?;
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
        }
        Ok(())
    }

    /// Moves the old files aside and the new ones to their places.
    fn forward(&self, run: &mut Run<'_>) -> Result<(), Halt> {
        for (number, step) in self.steps.iter().enumerate().filter(|(_, step)| step.replaces) {
            let old = self.name(number, "old");
            if !run.has(step, &old)? {
                run.rename_aside(step, &old)?;
            }
        }
        for step in self.steps.iter().filter(|step| step.restored.is_some()) {
            if matches!(run.look(&step.path)?, Found::Folder) {
                run.remove_empty(&step.path)?;
            }
        }
        for (number, step) in self.steps.iter().enumerate().filter(|(_, step)| step.restored.is_some()) {
            let new = self.name(number, "new");
            if run.has(step, &new)? {
                run.rename_into_place(step, &new)?;
            }
        }
        run.sync(&self.steps)
    }

    /// Moves the new files out of their places and the old ones back.
    fn back(&self, run: &mut Run<'_>) -> Result<(), Halt> {
        let restored = || self.steps.iter().enumerate().filter(|(_, step)| step.restored.is_some());
        for (number, step) in restored() {
            let new = self.name(number, "new");
            let is_in_place =
                !matches!(run.look(&step.path)?, Found::Missing | Found::Blocked | Found::Folder);
            if is_in_place && !run.has(step, &new)? {
                run.rename_aside(step, &new)?;
            }
        }
        for (_, step) in restored() {
            // Folders below the place did not exist.
            run.remove_parents(&step.path, step.place.len())?;
        }
        for (number, step) in self.steps.iter().enumerate().filter(|(_, step)| step.replaces) {
            let old = self.name(number, "old");
            if run.has(step, &old)? {
                run.rename_into_place(step, &old)?;
            }
        }
        run.sync(&self.steps)
    }

    fn drop_staged(&self, run: &mut Run<'_>) -> Result<(), Halt> {
        for (number, step) in self.steps.iter().enumerate().filter(|(_, step)| step.restored.is_some()) {
            run.unlink(step, &self.name(number, "new"))?;
        }
        Ok(())
    }

    /// Removes the old files, and the folders that are empty without them.
    fn finish(&self, run: &mut Run<'_>) -> Result<(), Halt> {
        for (number, step) in self.steps.iter().enumerate().filter(|(_, step)| step.replaces) {
            run.unlink(step, &self.name(number, "old"))?;
        }
        for step in self.steps.iter().filter(|step| step.restored.is_none()) {
            run.remove_parents(&step.path, 0)?;
        }
        Ok(())
    }

    /// Writes the journal: the header and the id, then three fields for each step, each followed by a NUL.
    fn write(&self, run: &mut Run<'_>) -> Result<(), Error> {
        let mut bytes = Vec::new();
        for field in [HEADER, self.id.as_bytes()] {
            bytes.extend(field);
            bytes.push(0);
        }
        for step in &self.steps {
            bytes.push(if step.restored.is_some() { b'+' } else { b'-' });
            bytes.push(if step.replaces { b'!' } else { b'.' });
            for field in [&[][..], &step.path, &step.place] {
                bytes.extend(field);
                bytes.push(0);
            }
        }
        bytes.extend(b"end");
        (run.hook)("journal").map_err(Halt::from)?;
        let folder = &run.home.own;
        let at = folder.join(PREPARED);
        let mut file = folder.create_file(OsStr::new(PREPARED), OFlags::WRONLY).at(&at)?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).and_then(|()| folder.sync()).at(&at)
    }

    fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let bytes = bytes.strip_suffix(b"\0end").ok_or("it is cut short")?;
        let mut fields = bytes.split(|byte| *byte == 0);
        if fields.next() != Some(HEADER) {
            return Err("it is no journal");
        }
        let id = fields.next().and_then(|id| std::str::from_utf8(id).ok()).unwrap_or_default().to_owned();
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
            return Err("it has no id");
        }
        let mut steps = Vec::new();
        while let Some(kind) = fields.next() {
            let (Some(path), Some(place)) = (fields.next(), fields.next()) else {
                return Err("it is cut short");
            };
            if is_forbidden(path) || (!place.is_empty() && is_forbidden(place)) {
                return Err("it names a file that no undo changes");
            }
            let is_restored = kind.first() == Some(&b'+');
            // The staged file has the content.
            let restored = is_restored.then(|| Version { mode: 0, id: String::new() });
            let replaces = kind.get(1) == Some(&b'!');
            steps.push(Step { path: path.to_vec(), restored, place: place.to_vec(), replaces });
        }
        Ok(Self { id, steps })
    }
}

impl<'a> Run<'a> {
    fn new(worktree: &Worktree, home: &'a Home, hook: Hook<'a>) -> Result<Self, Error> {
        let root = &worktree.places.root;
        Ok(Self { home, beneath: Beneath::open(root).at(root)?, hook })
    }

    fn rename_journal(&mut self, from: &str, to: &str) -> Result<(), Halt> {
        (self.hook)(to)?;
        let folder = &self.home.own;
        let renamed = folder.rename(OsStr::new(from), OsStr::new(to)).and_then(|()| folder.sync());
        Ok(renamed.at(&folder.join(to))?)
    }

    fn remove_journal(&mut self, state: &str) -> Result<(), Halt> {
        (self.hook)("remove the journal")?;
        Ok(self.home.own.remove(OsStr::new(state)).at(&self.home.own.join(state))?)
    }

    /// Looks at a path, without what was remembered of its folders.
    fn look(&mut self, file: &[u8]) -> Result<Found, Halt> {
        self.beneath.forget();
        Ok(self.beneath.look(file).at(&path(file))?)
    }

    fn place(&mut self, step: &Step) -> Result<Arc<OwnedFd>, Halt> {
        self.beneath.forget();
        Ok(self.beneath.open_folder(&step.place).at(&path(&step.path))?)
    }

    /// Returns whether the place of a step has this file.
    fn has(&mut self, step: &Step, name: &OsStr) -> Result<bool, Halt> {
        let place = self.place(step)?;
        match rustix::fs::statat(&place, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(false),
            found => Ok(found.map(|_| true).at(&path(&step.path))?),
        }
    }

    /// Moves the file of a step into its place.
    fn rename_aside(&mut self, step: &Step, name: &OsStr) -> Result<(), Halt> {
        (self.hook)("move aside")?;
        let place = self.place(step)?;
        let at = path(&step.path);
        let (folder, file) = self.beneath.parent(&step.path).at(&at)?;
        Ok(rename_new(&folder, file, &place, name).at(&at)?)
    }

    /// Moves a file from the place of a step to its path. Creates the folders of the path.
    fn rename_into_place(&mut self, step: &Step, name: &OsStr) -> Result<(), Halt> {
        let at = path(&step.path);
        let ends = step.path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        for end in ends.filter(|end| *end > step.place.len()) {
            let folder = step.path.get(..end).unwrap_or_default();
            if matches!(self.look(folder)?, Found::Missing) {
                (self.hook)("create a folder")?;
                let (parent, name) = self.beneath.parent(folder).at(&at)?;
                rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777)).at(&at)?;
            }
        }
        (self.hook)("move to its path")?;
        let place = self.place(step)?;
        let (folder, file) = self.beneath.parent(&step.path).at(&at)?;
        Ok(rename_new(&place, name, &folder, file).at(&at)?)
    }

    fn unlink(&mut self, step: &Step, name: &OsStr) -> Result<(), Halt> {
        (self.hook)("remove")?;
        self.beneath.forget();
        let place = self.beneath.open_folder(&step.place);
        match place.and_then(|place| rustix::fs::unlinkat(&place, name, AtFlags::empty())) {
            // A folder that became empty is removed too.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Ok(Err(error).at(&path(&step.path))?),
        }
    }

    /// Removes a folder that has only empty folders.
    fn remove_empty(&mut self, folder: &[u8]) -> Result<(), Halt> {
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

    /// Removes the folders of a file as long as they are empty, down to a length of their path.
    fn remove_parents(&mut self, file: &[u8], longer_than: usize) -> Result<(), Halt> {
        let mut folder = file;
        while let Some(end) = folder.iter().rposition(|byte| *byte == b'/').filter(|end| *end > longer_than) {
            folder = folder.get(..end).unwrap_or_default();
            (self.hook)("remove an empty folder")?;
            self.beneath.forget();
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
    fn sync(&mut self, steps: &[Step]) -> Result<(), Halt> {
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
