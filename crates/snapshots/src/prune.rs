//! Removes snapshots: those of a deleted session, and the oldest if there is too much.
//!
//! An object stays if a snapshot that is kept, or the index of a worktree, refers to it. All that stays is put into one pack.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use azureal_files::{Folder, HeldFolder};
use rustix::fs::{FlockOperation, OFlags};

use crate::error::{At, Error};
use crate::git::{Deadline, Git, args};
use crate::import::NAME;
use crate::state::State;
use crate::take::PENDING;
use crate::undo::tree_in;
use crate::worktree::{Home, Worktree, read};

/// The time limit of a command.
const TIME: Duration = Duration::from_secs(300);
/// The time to wait for a snapshot that another process takes.
const WAIT: Duration = Duration::from_secs(2);
/// Loose objects up to this number stay as they are.
const LOOSE: usize = 2_000;
/// Packs up to this number stay as they are.
const PACKS: usize = 20;

/// The result of [`Worktree::prune`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The number of snapshots that were removed.
    pub snapshots: usize,
    /// The size of all objects that are left, in bytes.
    pub size: u64,
    /// The files that the worktrees have now are more than the limit: snapshots are off, and none is left.
    pub turned_off: bool,
}

/// A snapshot of a session.
pub(crate) struct Pin {
    /// Begins with the time.
    name: OsString,
    pub(crate) session: OsString,
    pub(crate) tree: String,
    /// The rules by which it left files out. `None` in old notes.
    pub(crate) rules: Option<String>,
}

impl Pin {
    /// Returns the time at which the snapshot was finished.
    pub(crate) fn time(&self) -> Option<Duration> {
        let (time, _) = self.name.to_str()?.split_once('-')?;
        Some(Duration::from_micros(time.parse().ok()?))
    }
}

/// A file of one object, or of a pack.
struct ObjectFile {
    folder: Folder,
    name: OsString,
    size: u64,
}

/// Returns whether a folder of objects is one of the 256 for objects that are in no pack.
pub(crate) fn is_fan_out(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.len() == 2 && name.iter().all(u8::is_ascii_hexdigit)
}

/// The objects of our repository, with their sizes on disk.
type Objects = BTreeMap<String, u64>;

impl Worktree {
    /// Returns the size of all snapshots of the repository, in bytes.
    pub fn size(&self) -> u64 {
        self.object_files().iter().map(|file| file.size).sum()
    }

    /// Returns whether [`prune`](Self::prune) has something to do: the snapshots are larger than `max_size`, or are in so many files
    /// that git becomes slow. Starts no git.
    pub fn needs_prune(&self, max_size: u64) -> bool {
        let files = self.object_files();
        has_many(&files) || files.iter().map(|file| file.size).sum::<u64>() > max_size
    }

    /// Forgets the snapshots of a session. The next [`prune`](Self::prune) removes them from the disk.
    ///
    /// # Errors
    ///
    /// Our folder in the git directory cannot be used.
    pub fn remove_session(&self, session: &str) -> Result<(), Error> {
        if !self.home.exists() {
            return Ok(());
        }
        let home = self.open_home()?;
        let path = home.repository.join("sessions");
        let sessions = home.repository.open_folder(OsStr::new("sessions")).at(&path)?;
        match sessions.open_folder(OsStr::new(session)) {
            Ok(folder) => {
                for name in folder.names().at(&path)? {
                    folder.remove(&name).at(&folder.join(&name))?;
                }
                sessions.remove_folder(OsStr::new(session)).at(&path)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error).at(&path),
        }
    }

    /// Removes objects that no snapshot needs. If the rest is larger than `max_size`, removes the oldest snapshots, until it is
    /// at most four fifths of it. Takes seconds; no turn should wait for it.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if a snapshot is being taken.
    pub fn prune(&self, max_size: u64) -> Result<Pruned, Error> {
        if !self.home.exists() {
            return Ok(Pruned::default());
        }
        let home = self.open_home()?;
        let worktrees = self.lock_all(&home)?;
        let pins = pins(&home)?;
        let objects = self.objects()?;
        let mut base = BTreeSet::new();
        for (worktree, _lock) in &worktrees {
            if pins.is_empty() {
                // With the last session goes all that was kept for the next snapshot.
                worktree.remove(OsStr::new(NAME)).at(&worktree.join(NAME))?;
                let state = State::of(&read(worktree, "state").unwrap_or_default());
                State { tree: None, ..state }.write_in(worktree)?;
            }
            base.extend(self.indexed(worktree)?);
        }
        let size_of = |kept: &BTreeSet<String>| {
            objects.iter().filter(|(id, _)| kept.contains(*id)).map(|(_, size)| size).sum::<u64>()
        };
        let kept_with = |count: usize| -> Result<BTreeSet<String>, Error> {
            let newest = pins.iter().take(count).flat_map(|pin| [Some(&pin.tree), pin.rules.as_ref()]);
            let newest = newest.flatten().cloned().collect();
            Ok(self.reachable(newest)?.union(&base).cloned().collect())
        };
        let mut kept = kept_with(pins.len())?;
        let mut count = pins.len();
        if size_of(&kept) > max_size {
            let target = max_size / 5 * 4;
            let (mut fits, mut too_many) = (0, pins.len());
            while fits + 1 < too_many {
                let middle = fits.midpoint(too_many);
                if size_of(&kept_with(middle)?) <= target { fits = middle } else { too_many = middle }
            }
            count = fits;
            kept = kept_with(count)?;
        }
        let turned_off = size_of(&kept) > max_size;
        if turned_off {
            for (worktree, _lock) in &worktrees {
                State { is_off: true, ..State::default() }.write_in(worktree)?;
                worktree.remove(OsStr::new(NAME)).at(&worktree.join(NAME))?;
            }
            (count, kept) = (0, BTreeSet::new());
        }
        for pin in pins.iter().skip(count) {
            self.unpin(&home, pin)?;
        }
        self.repack(&objects, &kept)?;
        Ok(Pruned { snapshots: pins.len() - count, size: self.size(), turned_off })
    }

    /// Locks all worktrees of the repository, so that no snapshot is taken. Removes the folders of worktrees that are gone.
    fn lock_all(&self, home: &Home) -> Result<Vec<(Folder, HeldFolder)>, Error> {
        let path = home.repository.join("worktrees");
        let folder = home.repository.open_folder(OsStr::new("worktrees")).at(&path)?;
        let mut worktrees = Vec::new();
        for name in folder.names().at(&path)? {
            let Ok(worktree) = folder.open_folder(&name) else { continue };
            let lock = match folder.open_folder(&name).at(&path)?.hold(WAIT) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Err(Error::Busy),
                lock => lock.at(&path)?,
            };
            if let Ok(pending) = worktree.open_file(OsStr::new(PENDING), OFlags::RDWR) {
                // A git in the background writes objects.
                let locked = rustix::fs::flock(&pending, FlockOperation::NonBlockingLockExclusive);
                locked.map_err(|_| Error::Busy)?;
                rustix::fs::flock(&pending, FlockOperation::Unlock).ok();
            }
            let linked = name.to_str().and_then(|name| name.strip_prefix("linked-"));
            if linked.is_some_and(|linked| !self.places.common.join("worktrees").join(linked).exists()) {
                remove_all(&worktree).at(&path)?;
                folder.remove_folder(&name).at(&path)?;
            } else {
                worktrees.push((worktree, lock));
            }
        }
        Ok(worktrees)
    }

    /// Returns the objects that an index refers to, and the last tree of its worktree.
    fn indexed(&self, worktree: &Folder) -> Result<BTreeSet<String>, Error> {
        let index = worktree.join(NAME);
        let mut ids = BTreeSet::new();
        if index.exists() {
            let git = self.git.with("GIT_INDEX_FILE", index);
            let output = git.run(&args(["ls-files", "-z", "--stage"]), Vec::new(), Deadline::after(TIME))?;
            for entry in output.split(|byte| *byte == 0) {
                let id = entry.split(|byte| *byte == b' ').nth(1).and_then(|id| std::str::from_utf8(id).ok());
                ids.extend(id.map(str::to_owned));
            }
        }
        let last = State::of(&read(worktree, "state").unwrap_or_default()).tree;
        // The snapshot after an undo that was interrupted belongs to no session yet.
        let trees: BTreeSet<String> = last.into_iter().chain(tree_in(worktree)).collect();
        if !trees.is_empty() {
            ids.extend(self.reachable(trees)?);
        }
        Ok(ids)
    }

    /// Returns all objects that trees refer to.
    fn reachable(&self, trees: BTreeSet<String>) -> Result<BTreeSet<String>, Error> {
        let git = self.borrowing();
        let found = self.sizes(&git, trees, Deadline::after(TIME))?.found;
        if found.is_empty() {
            return Ok(BTreeSet::new());
        }
        let list: String = found.into_iter().map(|(id, _)| id + "\n").collect();
        let command = args(["rev-list", "--objects", "--no-object-names", "--missing=allow-any", "--stdin"]);
        Ok(lines(&run(&git, &command, list)?).map(str::to_owned).collect())
    }

    fn objects(&self) -> Result<Objects, Error> {
        let format = "--batch-check=%(objectname) %(objectsize:disk)";
        let command = args(["cat-file", "--batch-all-objects", format, "--unordered", "--buffer"]);
        let output = run(&self.git, &command, String::new())?;
        let parse = |line: &str| {
            let (id, size) = line.split_once(' ')?;
            Some((id.to_owned(), size.parse().ok()?))
        };
        Ok(lines(&output).filter_map(parse).collect())
    }

    /// Puts the objects to keep into one pack, and removes all others. Does nothing if there is little to gain.
    fn repack(&self, objects: &Objects, kept: &BTreeSet<String>) -> Result<(), Error> {
        let files = self.object_files();
        let is_needed = objects.keys().all(|id| kept.contains(id));
        if is_needed && !has_many(&files) {
            return Ok(());
        }
        let list: String =
            objects.keys().filter(|id| kept.contains(*id)).map(|id| format!("{id}\n")).collect();
        let mut new = None;
        if !list.is_empty() {
            let mut command = args(["pack-objects", "-q"]);
            command.push(self.home.join("objects/pack/pack").into());
            let output = run(&self.git, &command, list)?;
            new = Some(format!("pack-{}", String::from_utf8_lossy(&output).trim()));
        }
        for ObjectFile { folder, name, .. } in files {
            if new.is_none() || Path::new(&name).file_stem().and_then(OsStr::to_str) != new.as_deref() {
                folder.remove(&name).at(&folder.join(&name))?;
            }
        }
        Ok(())
    }

    /// Lists the files of all objects. Only names that git gives to objects count, in folders of ours: the repository may have come with a download,
    /// with a link to other files in the place of a folder.
    fn object_files(&self) -> Vec<ObjectFile> {
        let Ok(objects) = Folder::open(&self.home).and_then(|home| home.open_folder(OsStr::new("objects")))
        else {
            return Vec::new();
        };
        let mut files = Vec::new();
        for name in objects.names().unwrap_or_default() {
            let is_object: fn(&[u8]) -> bool = if name == "pack" {
                |file| file.starts_with(b"pack-") || file.starts_with(b"tmp_")
            } else if is_fan_out(&name) {
                |file| file.iter().all(u8::is_ascii_hexdigit) || file.starts_with(b"tmp_")
            } else {
                continue;
            };
            let Ok(folder) = objects.open_folder(&name) else { continue };
            for file in folder.names().unwrap_or_default() {
                if is_object(file.as_encoded_bytes()) {
                    files.push(ObjectFile { size: folder.size(&file), folder: folder.clone(), name: file });
                }
            }
        }
        files
    }

    fn unpin(&self, home: &Home, pin: &Pin) -> Result<(), Error> {
        let path = home.repository.join("sessions");
        let sessions = home.repository.open_folder(OsStr::new("sessions")).at(&path)?;
        let folder = sessions.open_folder(&pin.session).at(&path)?;
        folder.remove(&pin.name).at(&path)?;
        if folder.names().at(&path)?.is_empty() {
            sessions.remove_folder(&pin.session).at(&path)?;
        }
        Ok(())
    }
}

/// Returns whether objects are in so many files that they should be in one pack.
fn has_many(files: &[ObjectFile]) -> bool {
    let packs = files.iter().filter(|file| file.name.as_encoded_bytes().ends_with(b".pack")).count();
    packs > PACKS || files.len() > LOOSE
}

fn run(git: &Git, command: &[OsString], input: String) -> Result<Vec<u8>, Error> {
    git.run(command, input.into_bytes(), Deadline::after(TIME))
}

fn lines(output: &[u8]) -> impl Iterator<Item = &str> {
    output
        .split(|byte| *byte == b'\n')
        .filter_map(|line| std::str::from_utf8(line).ok())
        .filter(|line| !line.is_empty())
}

/// Returns the snapshots of all sessions, the newest first.
pub(crate) fn pins(home: &Home) -> Result<Vec<Pin>, Error> {
    let path = home.repository.join("sessions");
    let sessions = home.repository.open_folder(OsStr::new("sessions")).at(&path)?;
    let mut pins = Vec::new();
    for session in sessions.names().at(&path)? {
        // What cannot be read is no reason to remove the objects that it keeps.
        let folder = sessions.open_folder(&session).at(&sessions.join(&session))?;
        for name in folder.names().at(&path)? {
            let tree = name.to_str().and_then(|name| read(&folder, name));
            let unreadable = || std::io::Error::other("a note of a snapshot that cannot be read");
            let tree = tree.ok_or_else(unreadable).at(&folder.join(&name))?;
            if let Some(tree) = String::from_utf8(tree).ok().filter(|tree| crate::is_id(tree)) {
                let rules = name.to_str().and_then(|name| name.splitn(3, '-').nth(2));
                let rules = rules.filter(|rules| crate::is_id(rules)).map(str::to_owned);
                pins.push(Pin { name, session: session.clone(), tree, rules });
            }
        }
    }
    pins.sort_by(|one, other| other.name.cmp(&one.name));
    Ok(pins)
}

/// Removes all files of a folder of ours, which has folders of one level.
fn remove_all(folder: &Folder) -> std::io::Result<()> {
    for name in folder.names()? {
        if let Ok(inner) = folder.open_folder(&name) {
            for file in inner.names()? {
                inner.remove(&file)?;
            }
            folder.remove_folder(&name)?;
        } else {
            folder.remove(&name)?;
        }
    }
    Ok(())
}
