//! Removes snapshots: those of a deleted session, and the oldest if there is too much.
//!
//! An object stays if a snapshot that is kept, or the index of a worktree, refers to it. All that stays is put into one pack, while turns
//! continue; the worktrees are locked for the moment in which the old files go.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use azureal_files::{Folder, HeldFolder};
use rustix::fs::{FlockOperation, OFlags};

use crate::error::{At, Error};
use crate::git::{Deadline, Git, args};
use crate::import::NAME;
use crate::notes::{Notes, Pin, replace};
use crate::packs::Effort;
use crate::state::State;
use crate::take::PENDING;
use crate::undo::tree_in;
use crate::worktree::{Home, Worktree, read};

/// The time limit of a command.
const TIME: Duration = Duration::from_secs(300);
/// The time to wait for a snapshot that another process takes.
const WAIT: Duration = Duration::from_secs(2);

/// A file that is being written is not older, in seconds.
const FRESH: i64 = 3_600;

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

/// The lock of the folder of all worktrees, and the folders with the locks of each.
type Locked = (HeldFolder, Vec<(Folder, HeldFolder)>);

/// Locks the folder of all worktrees: no further one begins meanwhile.
pub(crate) fn lock_worktrees(repository: &Folder) -> Result<HeldFolder, Error> {
    let path = repository.join("worktrees");
    match repository.open_folder(OsStr::new("worktrees")).at(&path)?.hold(WAIT) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Err(Error::Busy),
        lock => lock.at(&path),
    }
}

/// The objects that stay.
struct Needed {
    kept: BTreeSet<String>,
    /// All notes, the newest first.
    pins: Vec<Pin>,
    /// The notes of the oldest snapshots, which go.
    removed: Vec<Pin>,
    turned_off: bool,
}

/// The objects of our repository, with their sizes on disk.
type Objects = BTreeMap<String, u64>;

impl Worktree {
    /// Returns the size of all snapshots of the repository, in bytes.
    pub fn size(&self) -> u64 {
        self.object_files().iter().map(|file| file.size).sum()
    }

    /// Returns whether the snapshots are larger than `max_size`, so that [`prune`](Self::prune) removes some. Starts no git.
    pub fn needs_prune(&self, max_size: u64) -> bool {
        self.size() > max_size
    }

    /// Removes objects that no snapshot needs. If the rest is larger than `max_size`, removes the oldest snapshots, until it is
    /// at most four fifths of it. Takes seconds; turns continue meanwhile, but for the moment in which the old objects go.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if a snapshot is being taken.
    pub fn prune(&self, max_size: u64) -> Result<Pruned, Error> {
        if !self.home.exists() {
            return Ok(Pruned::default());
        }
        let home = self.open_home()?;
        let _lock = self.lock_packs(&home)?;
        let (files, objects) = (self.object_files(), self.objects()?);
        let needed = self.needed(&home, &objects, max_size)?;
        if needed.removed.is_empty() && objects.keys().all(|id| needed.kept.contains(id)) {
            return Ok(Pruned { size: self.size(), ..Pruned::default() });
        }
        let kept = objects.keys().map(String::as_str).filter(|id| needed.kept.contains(*id));
        let new = self.write_pack(&home, kept, Effort::Small)?;
        // From here on no snapshot is taken.
        let (_all, worktrees) = self.lock_all(&home)?;
        let mut packs: BTreeSet<String> = new.into_iter().collect();
        if needed.turned_off {
            for (worktree, _lock) in &worktrees {
                State { is_off: true, ..State::default() }.write_in(worktree)?;
                worktree.remove(OsStr::new(NAME)).at(&worktree.join(NAME))?;
            }
        } else {
            let late = self.late(&home, &worktrees, &needed)?;
            let late = objects.keys().map(String::as_str).filter(|id| late.contains(*id));
            packs.extend(self.write_pack(&home, late, Effort::Quick)?);
        }
        home.packs.sync().at(&home.packs.join(""))?;
        unpin(&home, &needed.removed)?;
        for ObjectFile { folder, name, .. } in files {
            let stem = Path::new(&name).file_stem().and_then(OsStr::to_str);
            if !stem.is_some_and(|stem| packs.contains(stem)) {
                folder.remove(&name).at(&folder.join(&name))?;
            }
        }
        Ok(Pruned { snapshots: needed.removed.len(), size: self.size(), turned_off: needed.turned_off })
    }

    /// Decides which objects stay. Locks nothing.
    fn needed(&self, home: &Home, objects: &Objects, max_size: u64) -> Result<Needed, Error> {
        let pins = all_pins(home)?;
        let mut base = BTreeSet::new();
        for worktree in self.worktrees(home)? {
            base.extend(self.indexed(&worktree, !pins.is_empty())?);
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
            (count, kept) = (0, BTreeSet::new());
        }
        let removed = pins.get(count..).unwrap_or_default().to_vec();
        Ok(Needed { kept, pins, removed, turned_off })
    }

    /// Returns the objects that are needed since it was decided which stay. The worktrees are locked.
    fn late(
        &self,
        home: &Home,
        worktrees: &[(Folder, HeldFolder)],
        needed: &Needed,
    ) -> Result<BTreeSet<String>, Error> {
        let pins = all_pins(home)?;
        let new = pins.iter().filter(|pin| !needed.pins.contains(pin));
        let new = new.flat_map(|pin| [Some(pin.tree.clone()), pin.rules.clone()]).flatten().collect();
        let mut late = self.reachable(new)?;
        for (worktree, _lock) in worktrees {
            if pins.is_empty() {
                // With the last session goes all that was kept for the next snapshot.
                worktree.remove(OsStr::new(NAME)).at(&worktree.join(NAME))?;
                let state = State::of(&read(worktree, "state").unwrap_or_default());
                State { tree: None, ..state }.write_in(worktree)?;
            }
            late.extend(self.indexed(worktree, !pins.is_empty())?);
        }
        late.retain(|id| !needed.kept.contains(id));
        Ok(late)
    }

    /// Opens the folders of all worktrees, but for those that are gone.
    fn worktrees(&self, home: &Home) -> Result<Vec<Folder>, Error> {
        let path = home.repository.join("worktrees");
        let folder = home.repository.open_folder(OsStr::new("worktrees")).at(&path)?;
        let names = folder.names().at(&path)?.into_iter().filter(|name| !self.is_gone(name));
        Ok(names.filter_map(|name| folder.open_folder(&name).ok()).collect())
    }

    /// Returns whether the folder is that of a linked worktree which the project no longer has.
    fn is_gone(&self, folder: &OsStr) -> bool {
        let linked = folder.to_str().and_then(|name| name.strip_prefix("linked-"));
        linked.is_some_and(|linked| !self.places.common.join("worktrees").join(linked).exists())
    }

    /// Locks all worktrees of the repository, and the folder in which a further one would begin, so that no snapshot is taken. Removes the
    /// folders of worktrees that are gone.
    pub(crate) fn lock_all(&self, home: &Home) -> Result<Locked, Error> {
        let path = home.repository.join("worktrees");
        let folder = home.repository.open_folder(OsStr::new("worktrees")).at(&path)?;
        let all = lock_worktrees(&home.repository)?;
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
            if self.is_gone(&name) {
                remove_all(&worktree).at(&path)?;
                folder.remove_folder(&name).at(&path)?;
            } else {
                worktrees.push((worktree, lock));
            }
        }
        Ok((all, worktrees))
    }

    /// Returns the objects that the index and the last tree of a worktree refer to, unless these are removed, and those of its undo.
    fn indexed(&self, worktree: &Folder, with_index: bool) -> Result<BTreeSet<String>, Error> {
        // A damaged one is made again.
        let indexed = with_index.then(|| self.index_ids(&worktree.join(NAME))).flatten();
        let mut ids = indexed.unwrap_or_default();
        let last = State::of(&read(worktree, "state").unwrap_or_default()).tree.filter(|_| with_index);
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

    /// Lists the files of all objects. Only names that git gives to objects count, in folders of ours: the repository may have come with a download,
    /// with a link to other files in the place of a folder.
    fn object_files(&self) -> Vec<ObjectFile> {
        let Ok(objects) = Folder::open(&self.home).and_then(|home| home.open_folder(OsStr::new("objects")))
        else {
            return Vec::new();
        };
        let mut files = Vec::new();
        let now = i64::try_from(UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()).unwrap_or(0);
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
                let is_new =
                    file.as_encoded_bytes().starts_with(b"tmp_") && folder.modified(&file) > now - FRESH;
                if is_object(file.as_encoded_bytes()) && !is_new {
                    files.push(ObjectFile { size: folder.size(&file), folder: folder.clone(), name: file });
                }
            }
        }
        files
    }
}

/// Removes notes.
fn unpin(home: &Home, removed: &[Pin]) -> Result<(), Error> {
    let sessions: BTreeSet<&str> = removed.iter().map(|pin| pin.session.as_str()).collect();
    let pins = all_pins(home)?;
    for session in sessions {
        let of_session = pins.iter().rev().filter(|pin| pin.session == session);
        let left: Vec<&Pin> = of_session.filter(|pin| !removed.contains(pin)).collect();
        replace(&home.packs, session, &left)?;
    }
    Ok(())
}

/// Returns the notes of all sessions, the newest first. What cannot be read is no reason to remove the objects that it keeps.
fn all_pins(home: &Home) -> Result<Vec<Pin>, Error> {
    let Notes { pins, unreadable, damaged } = Notes::read(&home.packs)?;
    match unreadable.first().or(damaged.first()) {
        Some(path) => {
            Err(std::io::Error::other("notes of snapshots that cannot be read; `azureal doctor` says more"))
                .at(path)
        }
        None => Ok(pins),
    }
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
