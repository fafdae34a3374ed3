//! Copies of a store with all that belongs to it, and their way back.
//!
//! A backup is a store like any other: a file, and beside it the folder `<file>.originals` with the output of turns.
//! `azureal --store FILE list` reads it, and `azureal import FILE` adds its sessions to another store.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use azureal_core::{Seq, SessionId, SessionStore, StoreError, Uuid};
use azureal_exchange::{SourceStore, TemporaryFolder, copy_session, originals_problem};
use azureal_files::Folder;
use azureal_store::SqliteStore;
use azureal_store::sqlite::health::{self, ExistingCopy, Inspection, inspect, name_again, original_of, step};
use azureal_store::sqlite::{SqliteOptions, StoreFolders, Work, make_folder_of, with_suffix};
use futures_executor::block_on;
use jiff::Timestamp;
use rustix::fs::OFlags;

use crate::doctor::{self, Progress};
use crate::environment::Environment;
use crate::error::{Error, shown};
use crate::git_folder::StoreLayout;
use crate::project::Project;
use crate::workspace::{Options, StoreChoice, Workspace};

/// The form of the time in names of files.
const TIME: &str = "%Y%m%dT%H%M%SZ";
/// The folders of originals that are not those of a session.
const NEW: &str = "new";
const PASSED_OVER: [&str; 2] = ["deleted", "expired"];
/// The suffix of a store that was replaced, before the time.
const KEPT: &str = ".before-restore-";
/// The time to wait for another restore.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// The name of a copy until it is complete.
const COPY: &str = "copy.azs";
/// Every output of a turn.
const ALL: fn(Uuid, Seq) -> bool = |_, _| true;

/// A finished backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// The file.
    pub path: PathBuf,
    /// The number of sessions.
    pub sessions: u64,
    /// The number of events.
    pub events: u64,
    /// The size of the file, in bytes.
    pub bytes: u64,
    /// The size of the output of turns, in bytes.
    pub originals_bytes: u64,
    /// What could not be copied as it is.
    pub problems: Vec<String>,
}

impl Workspace {
    /// Copies the store and the output of its turns to a file. Others can write to the store meanwhile. If the path is a folder,
    /// the file gets a name with the time.
    ///
    /// The sessions of a store on a server are read one by one, as a [copy](copy_session) does.
    ///
    /// # Errors
    ///
    /// The store is in memory or not there yet, or `replace` is false and something has the name of the file.
    pub fn back_up(&self, to: &Path, replace: bool, progress: Progress<'_>) -> Result<Backup, Error> {
        if self.is_ephemeral() {
            return Err(Error::usage("a store in memory cannot be backed up"));
        }
        let to = match to.is_dir() {
            true => to.join(format!("sessions-{}.azs", now())),
            false => to.to_owned(),
        };
        if self.owns(&to) {
            return Err(Error::usage(format!("{} is the store itself", shown(&to)))
                .with_hint("name another file for the backup"));
        }
        let originals = StoreFolders::of(&to, None).originals;
        // As root, a device would become a file.
        if fs::symlink_metadata(&to).is_ok_and(|found| !found.is_file() && !found.is_symlink()) {
            return Err(Error::usage(format!("{} is no file", shown(&to))));
        }
        let there = [&to, &originals].into_iter().find(|path| fs::symlink_metadata(path).is_ok());
        if let Some(there) = there.filter(|_| !replace) {
            return Err(exists(there));
        }
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let temporary = TemporaryFolder::create_in(folder).map_err(|error| Error::file(folder, &error))?;
        let copy = temporary.path().join(COPY);
        let copied = StoreFolders::of(&copy, None).originals;
        let mut inspection = None;
        let problems = match self.file() {
            Some((file, _)) if !file.exists() => {
                return Err(Error::new("not_found", "there is no store to back up yet")
                    .with_hint("the first session creates it"));
            }
            Some((file, folders)) => {
                health::back_up(file, &copy, ExistingCopy::Keep, progress)?;
                let found = inspection.insert(inspect(&copy, progress)?);
                // Turns can have ended since.
                let is_meant = |uuid: Uuid, last: Seq| {
                    let mut of_session =
                        found.sessions.iter().filter(|session| session.uuid == Some(uuid)).peekable();
                    of_session.peek().is_none() || of_session.any(|session| last.0 <= session.last)
                };
                let from = [Some(&folders.originals), folders.former_originals.as_ref()];
                for from in from.into_iter().flatten() {
                    copy_originals(from, &copied, &is_meant, progress)
                        .map_err(|error| Error::file(from, &error))?;
                }
                Vec::new()
            }
            None => self.copy_from_server(&copy, &copied, progress)?,
        };
        if !copy.exists() {
            return Err(Error::new("not_found", "there are no sessions to back up"));
        }
        let Inspection { sessions, readable_events, .. } = match inspection {
            Some(inspection) => inspection,
            None => inspect(&copy, progress)?,
        };
        let bytes = fs::metadata(&copy).map_or(0, |found| found.len());
        let originals_bytes = size(&copied);
        // The file is the last: a backup that is there is complete. Until then, one that it replaces is complete too.
        let at = |error: io::Error| Error::file(&originals, &error);
        let outputs = names_in(&copied).map_err(at)?;
        let is_new = !replace || fs::symlink_metadata(&originals).is_err();
        let published =
            if is_new { fs::rename(&copied, &originals) } else { add_originals(&copied, &originals) };
        published.or_else(nothing_there).map_err(at)?;
        publish(&copy, &to, replace).map_err(|error| {
            if is_new {
                drop(fs::rename(&originals, &copied));
            }
            match error.kind() {
                ErrorKind::AlreadyExists => exists(&to),
                _ => Error::file(&to, &error),
            }
        })?;
        if !is_new {
            remove_others(&originals, &outputs).map_err(at)?;
        }
        let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| Error::file(folder, &error))?;
        let (sessions, events) = (sessions.len() as u64, readable_events);
        Ok(Backup { path: to, sessions, events, bytes, originals_bytes, problems })
    }

    /// Copies the sessions of a store on a server to a file.
    fn copy_from_server(
        &self,
        copy: &Path,
        originals: &Path,
        progress: Progress<'_>,
    ) -> Result<Vec<String>, Error> {
        let options = SqliteOptions {
            work: Work::WhereCalled,
            originals: Some(originals.to_owned()),
            ..SqliteOptions::default()
        };
        let target = SqliteStore::open(copy, options)?;
        let source = Arc::new(SourceStore::in_place(Arc::clone(&self.store), "the store".to_owned()));
        block_on(async {
            let mut problems = Vec::new();
            let records = source.sessions().await?;
            for (done, record) in records.iter().enumerate() {
                step(progress, &format!("session {} of {}", done + 1, records.len()))
                    .map_err(|_| Error::cancelled("cancelled"))?;
                let copied = copy_session(&source, &target, record, &|_| ControlFlow::Continue(())).await?;
                copied.comparison?;
                problems.extend(
                    copied.session.problems().iter().map(|problem| format!("{}: {problem}", record.id)),
                );
                if let Err(error) = &copied.originals {
                    problems.push(format!("{}: {}", record.id, originals_problem(error)));
                }
            }
            if let Some(originals) = target.originals() {
                originals.finish().await?;
            }
            target.close().await?;
            Ok(problems)
        })
    }
}

fn exists(path: &Path) -> Error {
    Error::new("exists", format!("{} is there already; it was not changed", shown(path)))
        .with_hint("`--force` replaces it")
}

fn now() -> String {
    Timestamp::now().strftime(TIME).to_string()
}

/// Gives a complete file its name, in the same folder.
fn publish(from: &Path, to: &Path, replace: bool) -> io::Result<()> {
    if replace {
        return fs::rename(from, to);
    }
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        // Some file systems have no second names.
        Err(_) if fs::symlink_metadata(to).is_err() => fs::rename(from, to),
        Err(error) => Err(error),
    }
}

fn nothing_there(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// The names of outputs, with those of their folders.
type Outputs = BTreeSet<(OsString, OsString)>;

/// Returns the names of the outputs in a folder, which may not be there.
fn names_in(folder: &Path) -> io::Result<Outputs> {
    let folder = match Folder::open(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Outputs::new()),
        folder => folder?,
    };
    let mut found = Outputs::new();
    for name in folder.names()? {
        let Ok(inner) = folder.open_folder(&name) else { continue };
        found.extend(inner.names()?.into_iter().map(|file| (name.clone(), file)));
    }
    Ok(found)
}

/// Moves complete outputs to those of a former backup, which stay: its file needs them until another one has its name.
fn add_originals(from: &Path, to: &Path) -> io::Result<()> {
    let (source, target) = (Folder::open(from)?, Folder::open(to)?);
    for name in source.names()? {
        let (inner, into) = (source.open_folder(&name)?, target.open_or_create_folder(&name)?);
        for file in inner.names()? {
            inner.move_to(&file, &into, &file)?;
        }
        into.sync()?;
    }
    target.sync()
}

/// Removes the outputs of a former backup that are none of the new one's.
fn remove_others(folder: &Path, outputs: &Outputs) -> io::Result<()> {
    let opened = Folder::open(folder)?;
    for (name, file) in names_in(folder)?.difference(outputs) {
        let inner = opened.open_folder(name)?;
        inner.remove(file)?;
        if inner.names()?.is_empty() {
            opened.remove_folder(name)?;
        }
    }
    opened.sync()
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Copies the output of the turns that are meant, by session and last event, to another folder. A file that is there stays.
///
/// New outputs first: one that is compressed meanwhile is then found in its second form.
fn copy_originals(
    from: &Path,
    to: &Path,
    is_meant: &dyn Fn(Uuid, Seq) -> bool,
    progress: Progress<'_>,
) -> io::Result<()> {
    let source = match Folder::open(from) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        source => source?,
    };
    let target = Folder::open_or_create(to)?;
    let mut names = source.names()?;
    names.sort_by_key(|name| (name != NEW, name.clone()));
    for (done, name) in names.iter().enumerate() {
        if PASSED_OVER.iter().any(|other| *name == **other) {
            continue;
        }
        step(progress, &format!("output of session {} of {}", done + 1, names.len()))?;
        let inner = match source.open_folder(name) {
            // It was deleted meanwhile, or is no folder of ours.
            Err(_) => continue,
            Ok(inner) => inner,
        };
        let into = target.open_or_create_folder(name)?;
        for file in inner.names()? {
            if original_of(name, &file).is_some_and(|(uuid, last)| !is_meant(uuid, last)) {
                continue;
            }
            copy_file(&inner, &into, &file)?;
        }
        into.sync()?;
    }
    target.sync()
}

fn copy_file(from: &Folder, into: &Folder, name: &OsStr) -> io::Result<()> {
    let mut source = match from.open_shared_file(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        source => source?,
    };
    if into.size(name) > 0 {
        return Ok(());
    }
    let mut unfinished: OsString = name.to_owned();
    unfinished.push(".tmp");
    into.remove(&unfinished)?;
    let mut copy = into.create_file(&unfinished, OFlags::WRONLY)?;
    io::copy(&mut source, &mut copy)?;
    copy.sync_all()?;
    into.rename(&unfinished, name)
}

/// A backup that is about to be put back.
#[derive(Debug)]
pub struct Restore {
    /// The backup.
    pub backup: PathBuf,
    /// The number of its sessions.
    pub sessions: u64,
    /// The number of its events.
    pub events: u64,
    /// The store that it replaces or creates.
    pub store: PathBuf,
    /// Whether there is a store, which is kept under another name.
    pub replaces: bool,
    /// The number of sessions in that store, and of their events; `None` if it cannot be read.
    pub replaced: Option<(u64, u64)>,
    /// The sessions of the backup that were deleted in that store since, with their names: they come back.
    pub revived: Vec<(SessionId, String)>,
}

/// A finished restore.
#[derive(Debug)]
pub struct Restored {
    /// The former store, with the output of its turns beside it; `None` if there was none.
    pub kept: Option<PathBuf>,
}

impl Restore {
    /// Checks a backup, and the store that the options name or the project's own. Changes nothing, apart from interrupted turns of that
    /// store, which are stored.
    ///
    /// # Errors
    ///
    /// The backup is damaged or no store, the store is not a file, or a turn runs.
    pub fn prepare(
        backup: &Path,
        directory: &Path,
        environment: &Environment,
        options: &Options,
        progress: Progress<'_>,
    ) -> Result<Self, Error> {
        let project = Project::around(directory, environment)?;
        let named = options.store.as_deref().filter(|named| !named.as_os_str().is_empty());
        let store = match named.map(StoreChoice::of).transpose()? {
            None => project.store_path(),
            Some(StoreChoice::File(path)) => path,
            Some(_) => {
                return Err(Error::usage("a backup is restored to a file")
                    .with_hint("`azureal copy --from BACKUP --to STORE` adds its sessions to a server"));
            }
        };
        let found = fs::metadata(backup).map_err(|error| Error::file(backup, &error))?;
        if !found.is_file() {
            return Err(Error::usage(format!("{} is no file", shown(backup))));
        }
        // By whatever name: it has two.
        let identity = |found: &fs::Metadata| (found.dev(), found.ino());
        if fs::metadata(&store).is_ok_and(|store| identity(&store) == identity(&found)) {
            return Err(Error::usage("the backup is the store itself"));
        }
        let inspection = inspect(backup, progress)?;
        if let Some(damage) = inspection.problems.iter().find(|problem| problem.kind() == "integrity") {
            return Err(Error::new("corrupt", format!("{}: {damage}", shown(backup)))
                .with_hint("`azureal --store BACKUP doctor --fix` saves what can be read"));
        }
        doctor::check_idle(&StoreLayout::of(&store))?;
        if let Ok(workspace) = Workspace::open(directory, environment, options) {
            // The turn of a session of the former store belongs there.
            block_on(workspace.recover())?;
        }
        let replaces = fs::symlink_metadata(&store).is_ok();
        let counts = |inspection: &Inspection| (inspection.sessions.len() as u64, inspection.readable_events);
        let (sessions, events) = counts(&inspection);
        let replaced = match replaces {
            true => inspect(&store, progress).ok().map(|inspection| counts(&inspection)),
            false => None,
        };
        let revived = match replaced {
            // What cannot be read has no tombstones.
            Some(_) => health::deleted_since(backup, &store).unwrap_or_default(),
            None => Vec::new(),
        };
        Ok(Self { backup: backup.to_owned(), sessions, events, replaces, replaced, revived, store })
    }

    /// Puts the backup in the place of the store. The former store is kept under another name, with the output of its turns.
    pub fn run(&self, progress: Progress<'_>) -> Result<Restored, Error> {
        let layout = StoreLayout::of(&self.store);
        doctor::check_idle(&layout)?;
        if let Ok(Some(_)) = health::restored(&self.store) {
            // Of an earlier restore that was killed in its last step.
            health::forget_restored(&self.store)?;
        }
        let folders = &layout.folders;
        let suffix = unused(&self.store, folders);
        let kept = kept_as(&self.store, folders, &suffix);
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| Error::file(&path, &error)
        };
        make_folder_of(&self.store)?;
        // The output first, which takes long: a turn that is stored meanwhile is in the copy of the store then.
        let staged = staged(folders);
        if is_unfinished(folders) {
            // Of a store that cannot be read.
            fs::remove_dir_all(&staged).map_err(at(&staged))?;
        }
        let folder = Folder::open_or_create(&staged).map_err(at(&staged))?;
        let held = folder.clone().hold(LOCK_TIMEOUT).map_err(at(&staged))?;
        if !folder.names().map_err(at(&staged))?.is_empty() {
            return Err(Error::new("exists", format!("{} is none of azureal's folders", shown(&staged)))
                .with_hint("move it away; nothing was changed"));
        }
        folder.mark().map_err(at(&staged))?;
        let backed_up = StoreLayout::of(&self.backup).folders.originals;
        let restored = copy_originals(&backed_up, &staged, &ALL, progress)
            .map_err(at(&staged))
            .and_then(|()| self.replace(&layout, &kept, &suffix, progress));
        if let Err(error) = restored {
            // It may have failed after the store had its new content.
            let is_unchanged = match health::restored(&self.store) {
                Ok(found) => found.is_none(),
                Err(_) => !self.store.exists(),
            };
            if is_unchanged {
                drop(fs::remove_dir_all(&staged));
            }
            return Err(error);
        }
        put_staged(&self.store, folders, &suffix, progress)?;
        drop(held);
        if let Ok(second) = &layout.second_name {
            // A store without it can be used.
            name_again(&self.store, second).ok();
        }
        Ok(Restored { kept: self.replaces.then_some(kept) })
    }

    /// Replaces the store, and keeps what it was.
    fn replace(
        &self,
        layout: &StoreLayout,
        kept: &Path,
        suffix: &str,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let mut restoring = health::restoring(&self.backup, &self.store, suffix, progress)?;
        match restoring.replace(kept, progress) {
            // It cannot be used, so there is no other way to keep it.
            Err(
                StoreError::Corrupt { .. }
                | StoreError::NotAStore { .. }
                | StoreError::UnknownDefinition { .. }
                | StoreError::Newer { .. },
            ) => {
                restoring.replace_unusable(kept, layout.folders.second_name.as_deref())?;
            }
            replaced => drop(replaced?),
        }
        Ok(())
    }
}

/// Returns the folder of the output of a backup, until the store has the content of the backup.
pub(crate) fn staged(folders: &StoreFolders) -> PathBuf {
    with_suffix(&folders.originals, ".restored")
}

/// Returns whether a restore was killed before it was complete.
pub(crate) fn is_unfinished(folders: &StoreFolders) -> bool {
    // A restore that runs holds the folder.
    Folder::open(&staged(folders)).is_ok_and(|folder| folder.is_marked() && folder.try_lock().is_ok())
}

/// Completes a restore that was killed, or removes what it has left if the store has its former content.
pub(crate) fn finish_restore(file: &Path, folders: &StoreFolders) -> Result<(), Error> {
    let staged = staged(folders);
    let Ok(folder) = Folder::open(&staged) else { return Ok(()) };
    if !folder.is_marked() {
        return Ok(());
    }
    let Ok(_held) = folder.try_lock() else { return Ok(()) };
    let note = match file.exists() {
        true => health::restored(file)?,
        false => None,
    };
    // It is part of a path.
    match note.filter(|suffix| suffix.starts_with(KEPT) && !suffix.contains('/')) {
        Some(suffix) => put_staged(file, folders, &suffix, &|_| ControlFlow::Continue(())),
        None => fs::remove_dir_all(&staged).map_err(|error| Error::file(&staged, &error)),
    }
}

/// Moves the output of the former store to that of the kept file, whose name ends so, and that of the backup to its place. Can be killed at
/// each step, and called again.
fn put_staged(
    file: &Path,
    folders: &StoreFolders,
    suffix: &str,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let staged = staged(folders);
    let kept = StoreFolders::of(&kept_as(file, folders, suffix), None).originals;
    for from in [Some(&folders.originals), folders.former_originals.as_ref()].into_iter().flatten() {
        move_originals(from, &kept, progress).map_err(|error| Error::file(&kept, &error))?;
    }
    let at = |error: io::Error| Error::file(&folders.originals, &error);
    doctor::remove_index(folders).map_err(at)?;
    if fs::rename(&staged, &folders.originals).is_err() {
        copy_originals(&staged, &folders.originals, &ALL, progress).map_err(at)?;
        fs::remove_dir_all(&staged).map_err(at)?;
    }
    Folder::open(&folders.originals).and_then(|folder| folder.remove_mark()).map_err(at)?;
    Ok(health::forget_restored(file)?)
}

/// Returns a suffix with which the name of the former store is free.
fn unused(store: &Path, folders: &StoreFolders) -> String {
    let time = now();
    let suffix = |number: usize| match number {
        0 => format!("{KEPT}{time}"),
        number => format!("{KEPT}{time}-{number}"),
    };
    let is_free = |suffix: &String| {
        let path = kept_as(store, folders, suffix);
        [&path, &StoreFolders::of(&path, None).originals]
            .into_iter()
            .all(|path| fs::symlink_metadata(path).is_err())
    };
    (0..).map(suffix).find(is_free).unwrap_or_else(|| suffix(0))
}

/// Returns the file that the former store is kept in. In a git repository it is in the git directory: `git clean -fdx` deletes what lies
/// in the worktree, and some of its sessions are nowhere else.
fn kept_as(store: &Path, folders: &StoreFolders, suffix: &str) -> PathBuf {
    let in_git = folders.second_name.as_deref().filter(|second| {
        let device = |path: &Path| fs::metadata(path.parent()?).ok().map(|found| found.dev());
        // A damaged store is renamed, and can be kept on its own file system only.
        second.parent().is_some_and(|folder| rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok())
            && device(second) == device(store)
    });
    with_suffix(in_git.unwrap_or(store), suffix)
}

/// Moves the output of turns away. On another file system it is copied, and stays.
fn move_originals(from: &Path, to: &Path, progress: Progress<'_>) -> io::Result<()> {
    if fs::symlink_metadata(from).is_err() {
        return Ok(());
    }
    if fs::symlink_metadata(to).is_err() && fs::rename(from, to).is_ok() {
        return Ok(());
    }
    copy_originals(from, to, &ALL, progress)
}
