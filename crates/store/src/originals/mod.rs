//! Originals in files.
//!
//! ```text
//! originals/new/<session>.<first>-<last>-<run>.jsonl   the output of a turn, moved here from its spool
//! originals/new/<session>.<first>-<last>-<run>.more    what follows the output, of few turns
//! originals/new/<session>.<first>-<last>-<run>.turn    the header of that spool
//! originals/<session>/<first>-<last>-<run>.zst         all of it, compressed: header, an empty line, output, what follows it
//! originals/deleted/<session>/                         the originals of a session that is being deleted
//! ```
//!
//! A session is named by its UUID. The names hold the range of events, so that finding the original of an event opens no
//! file. A new original costs two renames; it is compressed later. Each step can be interrupted: an original has its first
//! form until the second one is complete and synced, and the next [`finish`](FileOriginals::finish) does what is left.
//! New ones are in one folder, so looking for them costs the same however many sessions there are.

#[cfg(feature = "sqlite")]
mod check;
mod file_store;
#[cfg(feature = "postgres")]
mod mask;
mod name;
#[cfg(feature = "sqlite")]
mod owner;
mod pack;
mod reader;
#[cfg(feature = "postgres")]
mod upload;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use azureal_core::{NewOriginal, OpenOriginal, Original, Seq, StoreError, Uuid, io_error_text};
use azureal_files::{Folder, HeldFolder};
use rustix::fs::OFlags;
use tracing::debug;

use self::name::{NewName, PackedName};
use self::pack::{Unpacker, pack};
use self::reader::{Part, PartReader};

#[cfg(feature = "sqlite")]
pub use self::check::{OriginalProblem, inspect_originals};
pub(crate) use self::file_store::FileStore;
#[cfg(any(feature = "redis", feature = "sqlite"))]
pub(crate) use self::file_store::originals_in_files;
#[cfg(feature = "postgres")]
pub use self::mask::Mask;
#[cfg(feature = "sqlite")]
pub(crate) use self::owner::{OwnedOriginals, Owner, owned_originals};
#[cfg(feature = "postgres")]
pub(crate) use self::reader::on_thread;
#[cfg(feature = "postgres")]
pub(crate) use self::upload::LARGEST_UPLOAD;

/// The folder of originals that are not compressed yet.
const NEW: &str = "new";
/// The folder of originals whose session is being deleted.
const DELETED: &str = "deleted";
/// The file whose time is that of the last [`FileOriginals::expire`].
const EXPIRED: &str = "expired";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the session of the original that a file is part of, and the last event of its turn, by the name of the file and that of
/// its folder; `None` if it is part of none.
#[cfg(feature = "sqlite")]
pub fn original_of(folder: &OsStr, file: &OsStr) -> Option<(Uuid, Seq)> {
    if folder == NEW {
        let name = NewName::parse(file)?;
        return Some((name.session, name.packed.last));
    }
    Some((folder.to_str()?.parse().ok()?, PackedName::parse(file)?.last))
}

/// The originals of a store, in files below one folder.
#[derive(Debug, Clone)]
pub(crate) struct FileOriginals {
    folder: PathBuf,
    /// The folder that kept them before. They are moved from there, or read there if that is not possible.
    former: Option<PathBuf>,
    takes_new: bool,
}

impl FileOriginals {
    /// If `takes_new` is false, those that are there can be read and deleted, and no other is added.
    pub(crate) fn new(folder: PathBuf, takes_new: bool) -> Self {
        Self { folder, former: None, takes_new }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn with_former(self, former: Option<PathBuf>) -> Self {
        Self { former, ..self }
    }

    /// Returns the originals in the former folder, as far as they are still there.
    fn former(&self) -> Option<Self> {
        let former = self.former.clone().filter(|former| fs::symlink_metadata(former).is_ok())?;
        Some(Self::new(former, false))
    }

    /// Moves the originals of the former folder here. What cannot be moved stays there.
    fn adopt_former(&self) -> io::Result<()> {
        let Some(former) = self.former() else { return Ok(()) };
        let Some(old) = found(Folder::open(&former.folder))? else { return Ok(()) };
        let folder = Folder::open_or_create(&self.folder)?;
        for name in old.names()? {
            if name == EXPIRED {
                old.remove(&name)?;
                continue;
            }
            let Some(from) = open_in(&old, &name)? else { continue };
            let into = create_in(&folder, &name)?;
            if name == DELETED {
                for session in from.names()? {
                    move_files(&from.open_folder(&session)?, &create_in(&into, &session)?)?;
                    from.remove_folder(&session)?;
                }
            } else {
                move_files(&from, &into)?;
            }
            old.remove_folder(&name)?;
        }
        // Not if it has files that are not ours.
        fs::remove_dir(&former.folder)
    }

    /// Puts the files of a new original into the folder, where they survive a loss of power.
    pub(crate) fn put(&self, session: Uuid, new: &NewOriginal) -> Result<(), StoreError> {
        if self.takes_new { self.at(self.put_files(session, new)) } else { Ok(()) }
    }

    fn put_files(&self, session: Uuid, new: &NewOriginal) -> io::Result<()> {
        let name = NewName {
            session,
            packed: PackedName { first: new.first, last: new.last, run: new.run.clone() },
        };
        name.packed.check()?;
        let folder = self.create()?;
        let into = create_in(&folder, NEW)?;
        // The header last. A header without its output is found by the next start, an output without its header is not.
        move_file(&new.output, &into, name.output().as_ref())?;
        if let Some(more) = &new.more {
            move_file(more, &into, name.more().as_ref())?;
        }
        move_file(&new.header, &into, name.header().as_ref())?;
        into.sync()
    }

    /// Puts an original of another store.
    #[cfg(any(feature = "redis", feature = "sqlite"))]
    pub(crate) fn put_copy(
        &self,
        session: Uuid,
        original: &Original,
        content: &mut dyn Read,
    ) -> Result<(), StoreError> {
        if !self.takes_new {
            return Ok(());
        }
        self.at(self.put_packed(session, original, |file| pack::pack_reader(content, file)))
    }

    fn put_packed(
        &self,
        session: Uuid,
        original: &Original,
        write: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let name = PackedName::of(original);
        name.check()?;
        let folder = self.create()?;
        write_packed(&folder, session, &name, write)
    }

    /// Copies the originals of a session's first events to its fork.
    pub(crate) fn fork(&self, session: Uuid, at: Seq, fork: Uuid) -> Result<(), StoreError> {
        if !self.takes_new {
            return Ok(());
        }
        for original in self.list(session)? {
            if original.first == Seq::START || original.first > at {
                continue;
            }
            // The next events of the fork are of other turns.
            let copy = Original { last: original.last.min(at), ..original.clone() };
            self.at(self.fork_one(session, &original, fork, &copy))?;
        }
        Ok(())
    }

    fn fork_one(&self, session: Uuid, original: &Original, fork: Uuid, copy: &Original) -> io::Result<()> {
        let name = PackedName::of(original);
        let packed = self.session_folder(session)?;
        let packed = packed.map(|folder| folder.open_shared_file(name.file().as_ref()));
        match packed {
            Some(Ok(mut packed)) => {
                self.put_packed(fork, copy, |mut file| io::copy(&mut packed, &mut file).map(drop))
            }
            Some(Err(error)) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => {
                let Some((header, output)) = self.open_new(session, &original.run)? else { return Ok(()) };
                self.put_packed(fork, copy, |file| pack(header, output, file))
            }
        }
    }

    /// Returns the sessions that have new originals.
    pub(crate) fn new_sessions(&self) -> Result<Vec<Uuid>, StoreError> {
        self.at((|| {
            let Some(folder) = self.open()? else { return Ok(Vec::new()) };
            let Some(new) = open_in(&folder, NEW)? else { return Ok(Vec::new()) };
            let names = new.names()?;
            let mut sessions: Vec<Uuid> =
                names.iter().filter_map(|name| NewName::parse(name)).map(|name| name.session).collect();
            sessions.sort();
            sessions.dedup();
            Ok(sessions)
        })())
    }

    /// Returns the sessions whose deletion was interrupted.
    pub(crate) fn deleted_sessions(&self) -> Result<Vec<Uuid>, StoreError> {
        self.at((|| {
            let Some(folder) = self.open()? else { return Ok(Vec::new()) };
            let Some(deleted) = open_in(&folder, DELETED)? else { return Ok(Vec::new()) };
            Ok(deleted.names()?.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
        })())
    }

    /// Waits until no other process deletes a session, and keeps others from it; `None` if another process does, or if there is
    /// nothing to complete.
    pub(crate) fn hold_deletions(&self) -> Result<Option<HeldFolder>, StoreError> {
        self.at((|| {
            let Some(folder) = self.open()? else { return Ok(None) };
            let Some(deleted) = open_in(&folder, DELETED)? else { return Ok(None) };
            Ok(if deleted.names()?.is_empty() { None } else { deleted.hold(Duration::ZERO).ok() })
        })())
    }

    /// Completes a deletion: removes the originals if the session does not exist any more, else puts them back. The caller holds the
    /// deletions.
    pub(crate) fn finish_deleted(&self, session: Uuid, exists: bool) -> Result<(), StoreError> {
        if exists { self.put_back(session) } else { self.remove_deleted(session) }
    }

    /// Compresses the new originals. Returns at once if another process does it.
    ///
    /// Also those of sessions that are not in the store: a store that was damaged and set aside may come back.
    #[cfg(any(feature = "redis", feature = "sqlite"))]
    pub(crate) fn finish(&self) -> Result<(), StoreError> {
        self.finish_each(|folder, new, name| self.at(pack_new(folder, new, name)))
    }

    /// Settles each new original, under a lock.
    fn finish_each(
        &self,
        mut settle: impl FnMut(&Folder, &Folder, &NewName) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(folder) = self.at(self.open())? else { return Ok(()) };
        let Some(new) = self.at(open_in(&folder, NEW))? else { return Ok(()) };
        // Header and output have one name.
        let mut names: Vec<NewName> =
            self.at(new.names())?.iter().filter_map(|name| NewName::parse(name)).collect();
        names.sort_by_key(NewName::output);
        names.dedup();
        // One that cannot be settled does not stop the others.
        let mut done = Ok(());
        for name in names {
            // For each: a session is deleted under the same lock, and must not wait for all of them.
            let Ok(_lock) = new.try_lock() else { break };
            // Without its header it is being put, or was until azureal died; the header follows. Or its session is deleted.
            if new.size(name.header().as_ref()) > 0 {
                done = done.and(settle(&folder, &new, &name));
            }
        }
        done
    }

    /// Returns the originals of a session, in the order of their events.
    pub(crate) fn list(&self, session: Uuid) -> Result<Vec<Original>, StoreError> {
        self.at(self.find(session))
    }

    fn find(&self, session: Uuid) -> io::Result<Vec<Original>> {
        let folder = self.open()?;
        // What is still there could not be moved.
        let mut found = self.former().map_or(Ok(Vec::new()), |former| former.find(session))?;
        let Some(folder) = folder else { return Ok(found) };
        if let Some(packed) = open_in(&folder, session.to_string())? {
            for file in packed.names()? {
                let Some(name) = PackedName::parse(&file) else { continue };
                if !found.iter().any(|original| original.run == name.run) {
                    found.push(name.original(packed.size(&file)));
                }
            }
        }
        if let Some(new) = open_in(&folder, NEW)? {
            for name in new.names()?.iter().filter_map(|name| NewName::parse(name)) {
                let is_known = found.iter().any(|original| original.run == name.packed.run);
                if name.session == session && !is_known {
                    let files = [name.output(), name.more(), name.header()];
                    let bytes = files.iter().map(|file| new.size(file.as_ref())).sum();
                    found.push(name.packed.original(bytes));
                }
            }
        }
        found.sort_by(|one, other| (one.first, &one.run).cmp(&(other.first, &other.run)));
        Ok(found)
    }

    /// Opens the original of a run.
    pub(crate) fn open_run(&self, session: Uuid, run: &str) -> Result<Option<OpenOriginal>, StoreError> {
        self.at(self.open_content(session, run))
    }

    fn open_content(&self, session: Uuid, run: &str) -> io::Result<Option<OpenOriginal>> {
        let found = self.find(session)?.into_iter().find(|original| original.run == run);
        let Some(found) = found else { return Ok(None) };
        let packed = match self.session_folder(session)? {
            Some(folder) => folder.open_shared_file(PackedName::of(&found).file().as_ref()),
            None => Err(ErrorKind::NotFound.into()),
        };
        match packed {
            Ok(packed) => {
                let mut unpacker = Unpacker::new(packed)?;
                let header = unpacker.header()?;
                Ok(Some(OpenOriginal { header, output: Box::new(PartReader::new(self.place(), unpacker)) }))
            }
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Err(_) => {
                let Some((header, output)) = self.open_new(session, run)? else {
                    return self.former().map_or(Ok(None), |former| former.open_content(session, run));
                };
                let header = pack::read_header(header)?;
                Ok(Some(OpenOriginal { header, output: Box::new(PartReader::new(self.place(), output)) }))
            }
        }
    }

    /// Opens a compressed original that is elsewhere. Blocks.
    #[cfg(feature = "postgres")]
    pub(crate) fn open_packed(
        place: String,
        packed: impl Read + Send + 'static,
    ) -> Result<OpenOriginal, StoreError> {
        let opened = Unpacker::new(packed).and_then(|mut unpacker| Ok((unpacker.header()?, unpacker)));
        let (header, unpacker) = opened.map_err(|error| error_at(&place, &error))?;
        Ok(OpenOriginal { header, output: Box::new(PartReader::new(place, unpacker)) })
    }

    /// Opens the header and the rest of an original that is not compressed yet. A part that is missing is empty.
    fn open_new(&self, session: Uuid, run: &str) -> io::Result<Option<(Part, Part)>> {
        let Some(folder) = self.open()? else { return Ok(None) };
        let Some(new) = open_in(&folder, NEW)? else { return Ok(None) };
        let names = new.names()?;
        let name = names
            .iter()
            .filter_map(|name| NewName::parse(name))
            .find(|name| name.session == session && name.packed.run == run);
        name.map(|name| open_parts(&new, &name)).transpose()
    }

    /// Returns the size of the originals of a session.
    pub(crate) fn size(&self, session: Uuid) -> Result<u64, StoreError> {
        Ok(self.list(session)?.iter().map(|original| original.bytes).sum())
    }

    /// Deletes the originals of a session, and returns their size.
    pub(crate) fn delete(&self, session: Uuid) -> Result<u64, StoreError> {
        let bytes = self.size(session)?;
        let _held = self.set_aside(session)?;
        self.remove_deleted(session)?;
        Ok(bytes)
    }

    /// Moves the originals of a session out of the way, before the session is deleted. No other process completes the deletion as
    /// long as the result is held.
    pub(crate) fn set_aside(&self, session: Uuid) -> Result<Option<HeldFolder>, StoreError> {
        self.at((|| {
            let Some(folder) = self.open()? else { return Ok(None) };
            let new = create_in(&folder, NEW)?;
            let deleted = create_in(&folder, DELETED)?;
            let held = deleted.clone().hold(LOCK_TIMEOUT)?;
            // A process that compresses one of these would make it again.
            let _lock = new.lock(LOCK_TIMEOUT)?;
            let name = session.to_string();
            // What an earlier deletion set aside before it died belongs to the same session.
            self.put_back_from(&folder, &new, &deleted, &name)?;
            match folder.move_to(name.as_ref(), &deleted, name.as_ref()) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let aside = create_in(&deleted, &name)?;
            for file in new_files(&new, session)? {
                new.move_to(&file, &aside, &file)?;
            }
            aside.sync()?;
            deleted.sync()?;
            folder.sync()?;
            Ok(Some(held))
        })())
    }

    /// Puts back what was set aside: the session was not deleted.
    fn put_back(&self, session: Uuid) -> Result<(), StoreError> {
        self.at((|| {
            let Some(folder) = self.open()? else { return Ok(()) };
            let Some(deleted) = open_in(&folder, DELETED)? else { return Ok(()) };
            let new = create_in(&folder, NEW)?;
            self.put_back_from(&folder, &new, &deleted, &session.to_string())
        })())
    }

    fn put_back_from(&self, folder: &Folder, new: &Folder, deleted: &Folder, name: &str) -> io::Result<()> {
        let Some(aside) = open_in(deleted, name)? else { return Ok(()) };
        let own = create_in(folder, name)?;
        for file in aside.names()? {
            let into = if NewName::parse(&file).is_some() { new } else { &own };
            aside.move_to(&file, into, &file)?;
        }
        own.sync()?;
        new.sync()?;
        deleted.remove_folder(name.as_ref())?;
        // A session whose originals were all new has no folder yet.
        folder.remove_folder(name.as_ref()).ok();
        Ok(())
    }

    /// Removes what was set aside: the session is deleted.
    pub(crate) fn remove_deleted(&self, session: Uuid) -> Result<(), StoreError> {
        self.at((|| {
            let Some(folder) = self.open()? else { return Ok(()) };
            let Some(deleted) = open_in(&folder, DELETED)? else { return Ok(()) };
            remove_all(&deleted, &session.to_string())?;
            deleted.sync()
        })())
    }

    /// Deletes the originals that are older than so many days, at most once a day: all folders are read for it. Returns whether
    /// it was due.
    pub(crate) fn expire(&self, days: u32, now: SystemTime) -> Result<bool, StoreError> {
        self.at((|| {
            let Some(folder) = self.open()? else { return Ok(true) };
            let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let seconds =
                |age: Duration| i64::try_from(now.saturating_sub(age).as_secs()).unwrap_or(i64::MAX);
            if folder.modified(EXPIRED.as_ref()) > seconds(DAY) {
                return Ok(false);
            }
            let oldest = seconds(DAY.saturating_mul(days));
            for name in folder.names()? {
                let is_session = name.to_str().is_some_and(|name| name.parse::<Uuid>().is_ok());
                let Some(packed) = is_session.then(|| open_in(&folder, &name)).transpose()?.flatten() else {
                    continue;
                };
                for file in packed.names()? {
                    if packed.modified(&file) < oldest {
                        packed.remove(&file)?;
                    }
                }
                // Not if there are newer ones.
                folder.remove_folder(&name).ok();
            }
            folder.remove(EXPIRED.as_ref())?;
            folder.create_file(EXPIRED.as_ref(), OFlags::WRONLY).map(|_| true)
        })())
    }

    fn place(&self) -> String {
        self.folder.display().to_string()
    }

    fn open(&self) -> io::Result<Option<Folder>> {
        if let Err(error) = self.adopt_former() {
            debug!(error = ?error.to_string(), "originals of the former folder are not moved");
        }
        found(Folder::open(&self.folder))
    }

    /// Opens the folder, and creates it if there is none. A new one survives a loss of power.
    fn create(&self) -> io::Result<Folder> {
        if let Some(folder) = self.open()? {
            return Ok(folder);
        }
        let folder = Folder::open_or_create(&self.folder)?;
        let parent = self.folder.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(folder)
    }

    fn session_folder(&self, session: Uuid) -> io::Result<Option<Folder>> {
        match self.open()? {
            Some(folder) => open_in(&folder, session.to_string()),
            None => Ok(None),
        }
    }

    fn at<T>(&self, result: io::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| error_at(&self.place(), &error))
    }
}

/// The time to wait for another process that compresses originals.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

fn error_at(place: &str, error: &io::Error) -> StoreError {
    StoreError::other(format!("{place}: {}", io_error_text(error)))
}

/// Turns a missing file or folder into `None`.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn open_in(folder: &Folder, name: impl AsRef<OsStr>) -> io::Result<Option<Folder>> {
    found(folder.open_folder(name.as_ref()))
}

/// Opens a folder in another one, and creates it if there is none. A new one survives a loss of power.
fn create_in(folder: &Folder, name: impl AsRef<OsStr>) -> io::Result<Folder> {
    if let Some(found) = open_in(folder, name.as_ref())? {
        return Ok(found);
    }
    let created = folder.open_or_create_folder(name.as_ref())?;
    folder.sync()?;
    Ok(created)
}

/// Returns the files of a session's new originals.
fn new_files(new: &Folder, session: Uuid) -> io::Result<Vec<OsString>> {
    let is_own = |file: &OsString| NewName::parse(file).is_some_and(|name| name.session == session);
    Ok(new.names()?.into_iter().filter(is_own).collect())
}

/// Moves all files of a folder. One that another process has moved is as good as moved.
fn move_files(from: &Folder, into: &Folder) -> io::Result<()> {
    for file in from.names()? {
        match from.move_to(&file, into, &file) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    into.sync()
}

/// Removes a folder with its files.
fn remove_all(folder: &Folder, name: &str) -> io::Result<()> {
    let Some(inner) = open_in(folder, name)? else { return Ok(()) };
    for file in inner.names()? {
        inner.remove(&file)?;
    }
    folder.remove_folder(name.as_ref())
}

/// Moves a file, if it is still there. On another file system it is copied.
fn move_file(from: &Path, into: &Folder, to: &OsStr) -> io::Result<()> {
    let (Some(folder), Some(name)) = (from.parent(), from.file_name()) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    let Some(folder) = found(Folder::open(folder))? else { return Ok(()) };
    match folder.move_to(name, into, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::CrossesDevices => {
            let mut source = folder.open_file(name, OFlags::RDONLY)?;
            into.remove(to)?;
            let mut copy = into.create_file(to, OFlags::WRONLY)?;
            io::copy(&mut source, &mut copy)?;
            copy.sync_all()?;
            folder.remove(name)
        }
        moved => moved,
    }
}

fn open_parts(new: &Folder, name: &NewName) -> io::Result<(Part, Part)> {
    let open = |file: String| -> io::Result<Part> {
        match found(new.open_file(file.as_ref(), OFlags::RDONLY))? {
            Some(file) => Ok(Box::new(file)),
            None => Ok(Box::new(io::empty())),
        }
    };
    let output = open(name.output())?.chain(open(name.more())?);
    Ok((open(name.header())?, Box::new(output)))
}

/// Compresses a new original, then removes its first form.
fn pack_new(folder: &Folder, new: &Folder, name: &NewName) -> io::Result<()> {
    let packed = open_in(folder, name.session.to_string())?;
    // Otherwise an earlier call was interrupted when the second form was complete.
    if packed.is_none_or(|packed| packed.size(name.packed.file().as_ref()) == 0) {
        let (header, output) = open_parts(new, name)?;
        write_packed(folder, name.session, &name.packed, |file| pack(header, output, file))?;
    }
    remove_new(new, name)
}

fn remove_new(new: &Folder, name: &NewName) -> io::Result<()> {
    new.remove(name.output().as_ref())?;
    new.remove(name.more().as_ref())?;
    new.remove(name.header().as_ref())
}

/// Writes a compressed original. It has its name only when it is complete and synced.
fn write_packed(
    folder: &Folder,
    session: Uuid,
    name: &PackedName,
    write: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let into = create_in(folder, session.to_string())?;
    write_whole(&into, &name.file(), &format!("{}.tmp", name.run), write)?;
    into.sync()
}

/// Writes a file, which has its name only when it is complete and synced. Two processes may write the same one, such as the original of a
/// session that both import: the second waits for the first.
fn write_whole(
    into: &Folder,
    name: &str,
    unfinished: &str,
    write: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let (name, unfinished) = (name.as_ref(), unfinished.as_ref());
    let file = lock_unfinished(into, unfinished)?;
    let written = write(&file).and_then(|()| file.sync_all());
    let written = written.and_then(|()| into.rename(unfinished, name));
    if written.is_err() {
        into.remove(unfinished).ok();
    }
    written
}

/// Creates a file, or takes the one that a killed process left, and locks it.
fn lock_unfinished(into: &Folder, name: &OsStr) -> io::Result<File> {
    loop {
        let file = match into.create_file(name, OFlags::WRONLY) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let Some(file) = found(into.open_file(name, OFlags::WRONLY))? else { continue };
                file
            }
            created => created?,
        };
        file.lock()?;
        // Otherwise the writer before has renamed it.
        if into.has(name, &file) {
            file.set_len(0)?;
            return Ok(file);
        }
    }
}

#[cfg(test)]
mod tests;
