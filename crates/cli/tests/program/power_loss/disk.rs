//! A disk that loses power: what a file system may have kept of the calls so far.
//!
//! A file keeps its content up to its last sync, and of later writes none, half or all. A folder keeps its entries up to
//! its own last sync, and of later changes any prefix: changes of one folder are kept in their order, those of different
//! folders independently of each other. That is how btrfs behaves, and stricter than ext4. A move from one folder to
//! another is kept as a whole or not at all, as on both.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::trace::Op;

type Inode = usize;

#[derive(Default)]
struct File {
    /// The content after each write, the first of them empty.
    versions: Vec<Arc<Vec<u8>>>,
    /// The version that the last sync made durable.
    synced: usize,
}

#[derive(Clone)]
enum Change {
    Add(OsString, Inode),
    Remove(OsString),
    Rename(OsString, OsString),
    /// Half of a move to another folder.
    MoveOut(OsString, Move),
    /// The other half.
    MoveIn(OsString, Inode, Move),
}

impl Change {
    fn moved(&self) -> Option<Move> {
        match self {
            Self::MoveOut(_, moved) | Self::MoveIn(_, _, moved) => Some(*moved),
            _ => None,
        }
    }
}

type Move = usize;
type Entries = BTreeMap<OsString, Inode>;

#[derive(Default)]
struct Folder {
    synced: Entries,
    /// What changed since the last sync.
    pending: Vec<Change>,
}

impl Folder {
    /// Returns the entries after the first `kept` changes since the last sync, without the moves that are not `whole`.
    fn entries(&self, kept: usize, whole: impl Fn(Move) -> bool) -> Entries {
        let mut entries = self.synced.clone();
        let is_kept = |change: &&Change| change.moved().is_none_or(&whole);
        for change in self.pending[..kept].iter().filter(is_kept) {
            match change {
                Change::MoveOut(name, _) => drop(entries.remove(name)),
                Change::MoveIn(name, inode, _) => drop(entries.insert(name.clone(), *inode)),
                Change::Add(name, inode) => drop(entries.insert(name.clone(), *inode)),
                Change::Remove(name) => drop(entries.remove(name)),
                Change::Rename(from, to) => {
                    let inode = entries.remove(from).unwrap();
                    entries.insert(to.clone(), inode);
                }
            }
        }
        entries
    }

    fn live(&self) -> Entries {
        self.entries(self.pending.len(), |_| true)
    }

    /// Returns the moves in the first `kept` changes since the last sync.
    fn moves(&self, kept: usize) -> BTreeSet<Move> {
        self.pending[..kept].iter().filter_map(Change::moved).collect()
    }

    /// Makes the first changes durable.
    fn sync(&mut self, kept: usize) {
        self.synced = self.entries(kept, |_| true);
        self.pending.drain(..kept);
    }
}

/// How much of the writes since the last sync is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kept {
    None,
    Half,
    All,
}

/// Files and folders after a loss of power, and how many turns had been acknowledged before it.
pub(super) struct Image {
    /// Paths with the same number are names of one file.
    pub(super) files: Vec<(PathBuf, usize, Arc<Vec<u8>>)>,
    pub(super) folders: Vec<PathBuf>,
    pub(super) acknowledged: usize,
    /// Where the power was cut, for the message of a failed test.
    pub(super) cut: String,
}

/// The disk below one folder, which is there from the beginning.
pub(super) struct Disk {
    root: PathBuf,
    files: HashMap<Inode, File>,
    folders: HashMap<Inode, Folder>,
    inodes: usize,
    acknowledged: usize,
}

const ROOT: Inode = 0;
const GIT: Inode = 1;

impl Disk {
    fn new(root: &Path) -> Self {
        let root_folder = Folder { synced: Entries::from([(".git".into(), GIT)]), pending: Vec::new() };
        let folders = HashMap::from([(ROOT, root_folder), (GIT, Folder::default())]);
        Self { root: root.to_owned(), files: HashMap::new(), folders, inodes: GIT + 1, acknowledged: 0 }
    }

    /// Returns every distinct image that a loss of power during these calls may leave. Syncs of folders with
    /// these names are taken for lost.
    pub(super) fn images(root: &Path, ops: &[Op], unsynced: &[&str]) -> Vec<Image> {
        let mut disk = Self::new(root);
        let mut seen = BTreeSet::new();
        let mut images = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let is_lost = matches!(op, Op::Sync(path) if unsynced.iter().any(|name| path.ends_with(name)));
            if is_lost {
                continue;
            }
            disk.apply(op);
            // A row of writes to one file is one step: the versions between are covered by `Kept::Half`.
            let goes_on = ops.get(index + 1).is_some_and(|next| next.is_write() && next.path() == op.path());
            if op.is_write() && goes_on {
                continue;
            }
            disk.collect(&format!("after call {index}: {}", describe(op)), &mut seen, &mut images);
        }
        images
    }

    /// Reads the disk as it is now, all of it durable.
    pub(super) fn read(root: &Path) -> Self {
        let mut disk = Self::new(root);
        disk.folders = HashMap::from([(ROOT, Folder::default())]);
        disk.read_folder(root, ROOT);
        disk
    }

    /// Returns the same disk at another place.
    pub(super) fn at(self, root: &Path) -> Self {
        Self { root: root.to_owned(), ..self }
    }

    fn read_folder(&mut self, path: &Path, folder: Inode) {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            let inode = self.inodes;
            self.inodes += 1;
            let name = path.file_name().unwrap().to_owned();
            self.folders.get_mut(&folder).unwrap().synced.insert(name, inode);
            if path.is_dir() {
                self.folders.insert(inode, Folder::default());
                self.read_folder(&path, inode);
            } else {
                let content = Arc::new(fs::read(&path).unwrap());
                self.files.insert(inode, File { versions: vec![content], synced: 0 });
            }
        }
    }

    /// Returns so many images of which each file and each folder was kept independently of all others: up to its own last sync, and of
    /// what came later nothing, a part or all. Syncs for which `is_lost` are taken for lost. A third of the images is of moments in which a
    /// turn was acknowledged.
    pub(super) fn random_images(
        mut self,
        ops: &[Op],
        count: usize,
        is_lost: impl Fn(&Path) -> bool,
    ) -> Vec<Image> {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let acknowledged: Vec<usize> =
            (0..ops.len()).filter(|index| matches!(ops[*index], Op::Acknowledged)).collect();
        let mut cuts: Vec<usize> = (0..count)
            .map(|number| match number % 3 {
                0 => acknowledged[random.below(acknowledged.len())],
                _ => random.below(ops.len()),
            })
            .collect();
        cuts.sort_unstable();
        let (mut images, mut cuts) = (Vec::new(), cuts.into_iter().peekable());
        for (index, op) in ops.iter().enumerate() {
            if !matches!(op, Op::Sync(path) if is_lost(path)) {
                self.apply(op);
            }
            while cuts.next_if_eq(&index).is_some() {
                images.push(self.random_image(&format!("after call {index}: {}", describe(op)), &mut random));
            }
        }
        images
    }

    fn random_image(&self, cut: &str, random: &mut Random) -> Image {
        let mut folders: Vec<Inode> = self.folders.keys().copied().collect();
        folders.sort_unstable();
        let choice: HashMap<Inode, usize> = folders
            .into_iter()
            .map(|folder| {
                let pending = self.folders[&folder].pending.len();
                let kept = [0, pending, random.below(pending + 1)][random.below(3)];
                (folder, kept)
            })
            .collect();
        let seed = random.next();
        // The same for all names of a file.
        let kept = |path: &Path| {
            let mut random = Random(seed ^ hash(path.as_os_str().as_encoded_bytes()));
            random.next();
            [Kept::None, Kept::Half, Kept::All][random.below(3)]
        };
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        self.walk(ROOT, Path::new(""), &choice, &kept, &mut files, &mut folders);
        let mut versions = HashMap::new();
        let content = |(path, inode, version): (PathBuf, Inode, usize)| {
            let version = *versions.entry(inode).or_insert(version);
            (path, inode, Arc::clone(&self.files[&inode].versions[version]))
        };
        let files = files.into_iter().map(content).collect();
        Image { files, folders, acknowledged: self.acknowledged, cut: format!("{cut}; seed {seed:x}") }
    }

    fn folder_of(&self, path: &Path) -> Option<(Inode, OsString)> {
        let below = path.strip_prefix(&self.root).ok()?;
        let mut folder = ROOT;
        for name in below.parent()? {
            folder = *self.folders.get(&folder)?.live().get(name)?;
        }
        Some((folder, below.file_name()?.to_owned()))
    }

    fn inode(&self, path: &Path) -> Option<Inode> {
        if path == self.root {
            return Some(ROOT);
        }
        let (folder, name) = self.folder_of(path)?;
        self.folders.get(&folder)?.live().get(&name).copied()
    }

    fn change(&mut self, path: &Path, change: impl FnOnce(OsString) -> Change) {
        let (folder, name) = self.folder_of(path).unwrap();
        self.folders.get_mut(&folder).unwrap().pending.push(change(name));
    }

    fn add(&mut self, path: &Path) -> Inode {
        if self.folder_of(path).is_none() {
            self.make_folder(path.parent().unwrap());
        }
        let inode = self.inodes;
        self.inodes += 1;
        self.change(path, |name| Change::Add(name, inode));
        inode
    }

    /// Changes the content of a file, which may have been there before the first call.
    fn write(&mut self, path: &Path, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(inode) = self.inode(path) else { return };
        let file = self.files.get_mut(&inode).unwrap();
        let mut content = file.versions.last().unwrap().to_vec();
        write(&mut content);
        file.versions.push(Arc::new(content));
    }

    fn make_folder(&mut self, path: &Path) {
        // Another process used it before the call that created it returned.
        if self.inode(path).is_none() {
            let inode = self.add(path);
            self.folders.insert(inode, Folder::default());
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::MakeFolder(path) => self.make_folder(path),
            Op::Open { path, truncate } => {
                if self.inode(path).is_none() {
                    let inode = self.add(path);
                    self.files.insert(inode, File { versions: vec![Arc::default()], synced: 0 });
                } else if *truncate {
                    self.write(path, Vec::clear);
                }
            }
            Op::Append(path, data) => self.write(path, |content| content.extend(data)),
            Op::WriteAt(path, at, data) => self.write(path, |content| {
                content.resize(content.len().max(at + data.len()), 0);
                content[*at..at + data.len()].copy_from_slice(data);
            }),
            Op::Truncate(path, length) => self.write(path, |content| content.resize(*length, 0)),
            Op::Sync(path) => {
                let Some(inode) = self.inode(path) else { return };
                if let Some(file) = self.files.get_mut(&inode) {
                    file.synced = file.versions.len() - 1;
                } else if let Some(folder) = self.folders.get_mut(&inode) {
                    let moves = folder.moves(folder.pending.len());
                    folder.sync(folder.pending.len());
                    // The other half of a move is durable with this one, and what its folder changed before it.
                    for other in self.folders.values_mut() {
                        let is_moved =
                            |change: &Change| change.moved().is_some_and(|moved| moves.contains(&moved));
                        if let Some(last) = other.pending.iter().rposition(is_moved) {
                            other.sync(last + 1);
                        }
                    }
                }
            }
            Op::Rename(from, to) => {
                if from.parent() == to.parent() {
                    let to = to.file_name().unwrap().to_owned();
                    self.change(from, |from| Change::Rename(from, to));
                } else {
                    let (inode, moved) = (self.inode(from).unwrap(), self.inodes);
                    self.inodes += 1;
                    self.change(from, |from| Change::MoveOut(from, moved));
                    self.change(to, |to| Change::MoveIn(to, inode, moved));
                }
            }
            Op::Link(from, to) => {
                let inode = self.inode(from).unwrap();
                self.change(to, |name| Change::Add(name, inode));
            }
            Op::Remove(path) => self.change(path, Change::Remove),
            Op::Acknowledged => self.acknowledged += 1,
        }
    }

    /// Adds the images of this moment that were not seen before.
    fn collect(&self, cut: &str, seen: &mut BTreeSet<String>, images: &mut Vec<Image>) {
        let folders: Vec<Inode> = BTreeSet::from_iter(self.folders.keys().copied()).into_iter().collect();
        let mut choices: Vec<HashMap<Inode, usize>> = vec![HashMap::new()];
        for folder in folders {
            let pending = self.folders[&folder].pending.len();
            choices = choices
                .into_iter()
                .flat_map(|choice| {
                    (0..=pending).map(move |kept| {
                        let mut choice = choice.clone();
                        choice.insert(folder, kept);
                        choice
                    })
                })
                .collect();
        }
        // The files of the store are written by SQLite, the others by us and by the agent.
        let kept = [Kept::None, Kept::Half, Kept::All];
        for choice in &choices {
            for (store, other) in kept.iter().flat_map(|store| kept.iter().map(move |other| (*store, *other)))
            {
                let kept = |path: &Path| {
                    let name = path.file_name().unwrap().to_string_lossy();
                    if name.starts_with("sessions.azs") { store } else { other }
                };
                let (mut files, mut folders) = (Vec::new(), Vec::new());
                self.walk(ROOT, Path::new(""), choice, &kept, &mut files, &mut folders);
                if !seen.insert(format!("{} {files:?} {folders:?}", self.acknowledged)) {
                    continue;
                }
                let content = |(path, inode, version): (PathBuf, Inode, usize)| {
                    (path, inode, Arc::clone(&self.files[&inode].versions[version]))
                };
                let cut = format!(
                    "{cut}; of the store's writes {store:?}, of others {other:?}, of folders {choice:?}"
                );
                let files = files.into_iter().map(content).collect();
                images.push(Image { files, folders, acknowledged: self.acknowledged, cut });
            }
        }
    }

    fn walk(
        &self,
        folder: Inode,
        path: &Path,
        choice: &HashMap<Inode, usize>,
        kept: &dyn Fn(&Path) -> Kept,
        files: &mut Vec<(PathBuf, Inode, usize)>,
        folders: &mut Vec<PathBuf>,
    ) {
        let is_whole = |moved: Move| {
            let halves =
                choice.iter().filter(|(folder, kept)| self.folders[folder].moves(**kept).contains(&moved));
            halves.count() == 2
        };
        for (name, inode) in self.folders[&folder].entries(choice[&folder], is_whole) {
            let path = path.join(name);
            let Some(file) = self.files.get(&inode) else {
                if inode != GIT {
                    folders.push(path.clone());
                }
                self.walk(inode, &path, choice, kept, files, folders);
                continue;
            };
            let last = file.versions.len() - 1;
            let version = match kept(&path) {
                Kept::None => file.synced,
                Kept::Half => file.synced + (last - file.synced) / 2,
                Kept::All => last,
            };
            files.push((path, inode, version));
        }
    }
}

/// Numbers that look random and are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn describe(op: &Op) -> String {
    match op {
        Op::Append(path, data) => format!("append {} bytes to {}", data.len(), path.display()),
        Op::WriteAt(path, at, data) => format!("write {} bytes at {at} to {}", data.len(), path.display()),
        other => format!("{other:?}"),
    }
}
