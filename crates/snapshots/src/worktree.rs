//! A worktree, and the folder of its snapshots.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use azureal_files::{Folder, HeldFolder};
use rustix::fs::OFlags;

use crate::compare::TIME;
use crate::error::{At, Error};
use crate::git::{Git, GitProgram, check_version};
use crate::places::{ObjectFormat, Places, read_start, snapshots, user_excludes};
use crate::prune::{is_fan_out, lock_worktrees};

/// The bound on a file of ignore rules outside the tree.
const EXCLUDES: u64 = 32 * 1024 * 1024;
/// The file of the ignore rules outside the tree.
pub(crate) const EXCLUDE: &str = "exclude";
/// The bound on a file of ours, apart from an index.
const OWN_FILE: u64 = 64 * 1024 * 1024;

/// Bytes stay as they are, whatever the attributes in the tree say.
const ATTRIBUTES: &str = "* -text -ident -filter !working-tree-encoding !eol\n";

/// A worktree of a git repository, whose snapshots are in `azureal/snapshots` of the git directory.
///
/// Opening it creates no file.
#[derive(Debug, Clone)]
pub struct Worktree {
    pub(crate) places: Places,
    /// Reads and writes our repository, without the worktree.
    pub(crate) git: Git,
    /// Reads the user's configuration and the project's, and nothing else.
    pub(crate) user_git: Git,
    user_excludes: Option<PathBuf>,
    /// The folder of the snapshots.
    pub(crate) home: PathBuf,
    /// The time limit of a comparison.
    pub(crate) time: Duration,
    /// Comparisons are of snapshots before and after an undo.
    pub(crate) is_of_undo: bool,
    /// This process has checked the objects that are in no pack. What is written later cannot be cut by a power loss that this
    /// process survives.
    pub(crate) is_checked: Arc<AtomicBool>,
}

/// The open folders of a worktree's snapshots.
pub(crate) struct Home {
    pub(crate) repository: Folder,
    /// The folder of all objects.
    pub(crate) objects: Folder,
    /// The folder of the packs, and of the notes.
    pub(crate) packs: Folder,
    /// The folder of this worktree: its index and its state.
    pub(crate) own: Folder,
    own_path: PathBuf,
}

impl Worktree {
    /// Opens the worktree with this top. `None` if it is not the top of a git worktree of this user.
    ///
    /// # Errors
    ///
    /// [`Error::NoGit`] and [`Error::OldGit`]: a notice is enough.
    pub fn open(root: &Path, program: &GitProgram) -> Result<Option<Self>, Error> {
        if fs::symlink_metadata(root.join(".git")).is_err() {
            return Ok(None);
        }
        let git = Git::new(program, Path::new("/"));
        // At once with the other questions, whose answers count only if this one is good.
        let version = git.start_version()?;
        let found = Places::find(root, &git);
        check_version(version)?;
        let Some(places) = found? else { return Ok(None) };
        let user_git = Git::of_user(program, &places.root).with("GIT_DIR", &places.git_dir);
        let user_excludes = user_excludes(&user_git, &places.root)?;
        let home = snapshots(&places.common);
        let git = git.with("GIT_DIR", &home).with("GIT_COMMON_DIR", &home).in_directory(&home);
        // Attributes in the tree have no effect, and may be a pipe, which git would wait for. Git knows this since 2.41.
        let git = git.with("GIT_ATTR_SOURCE", places.format.empty_tree());
        let ignores_case = if places.case.is_ignored { "true" } else { "false" };
        let git = git.with("GIT_CONFIG_COUNT", "1").with("GIT_CONFIG_KEY_0", "core.ignoreCase");
        let git = git.with("GIT_CONFIG_VALUE_0", ignores_case);
        let is_checked = Arc::default();
        Ok(Some(Self {
            places,
            git,
            user_git,
            user_excludes,
            home,
            time: TIME,
            is_of_undo: false,
            is_checked,
        }))
    }

    /// Returns the same worktree, to compare the snapshots before and after an undo, or to take the undo back. The undo itself wrote
    /// what only the later snapshot has, so all of it is shown and can be deleted, whatever the rules ignored.
    #[must_use]
    pub fn of_undo(&self, is_of_undo: bool) -> Self {
        Self { is_of_undo, ..self.clone() }
    }

    /// Returns the same worktree with another time limit of a comparison, which is 20 s by default.
    #[must_use]
    pub fn comparing_within(&self, time: Duration) -> Self {
        Self { time, ..self.clone() }
    }

    /// Returns the top of the worktree.
    pub fn root(&self) -> &Path {
        &self.places.root
    }

    /// Returns the folder of the snapshots of all worktrees of the repository, whether it exists or not.
    pub fn folder(&self) -> &Path {
        &self.home
    }

    /// Returns a runner that also sees the project's objects. For reading only: git would not write an object that it sees.
    pub(crate) fn borrowing(&self) -> Git {
        self.git.with("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&self.places.common.join("objects")))
    }

    /// Returns a runner that reads the same objects, and writes into a folder of its own.
    pub(crate) fn borrowing_into(&self, objects: &Path) -> Git {
        let mut others = quoted(&self.home.join("objects"));
        others.push(":");
        others.push(quoted(&self.places.common.join("objects")));
        self.git.with("GIT_OBJECT_DIRECTORY", objects).with("GIT_ALTERNATE_OBJECT_DIRECTORIES", others)
    }

    /// Returns a runner in the worktree, with this index.
    pub(crate) fn in_worktree(&self, index: &Path) -> Git {
        let root = &self.places.root;
        self.git.with("GIT_WORK_TREE", root).with("GIT_INDEX_FILE", index).in_directory(root)
    }

    /// Opens the folders, and creates what is missing.
    pub(crate) fn open_home(&self) -> Result<Home, Error> {
        let repository = Folder::open_or_create(&self.home).at(&self.home)?;
        for name in ["objects", "refs", "info", "worktrees"] {
            let folder = repository.open_or_create_folder(OsStr::new(name)).at(&repository.join(name))?;
            match name {
                "objects" => {
                    for name in ["info", "pack"] {
                        let folder = folder.open_or_create_folder(OsStr::new(name)).at(&folder.join(name))?;
                        // Only the environment names other objects.
                        folder.remove(OsStr::new("alternates")).at(&folder.join("alternates"))?;
                    }
                    // Git writes objects through a link too. Its new folders are open to others for a moment.
                    for name in folder.names().at(&self.home)?.iter().filter(|name| is_fan_out(name)) {
                        // One that is not there any more is no obstacle.
                        if !folder.has_folder(name) && folder.join(name).symlink_metadata().is_ok() {
                            let error = std::io::Error::other("is no folder of yours; remove it");
                            return Err(error).at(&folder.join(name));
                        }
                    }
                }
                "info" => {
                    ensure(&folder, "attributes", ATTRIBUTES)?;
                    // It would win over the rules that we name.
                    ensure(&folder, "exclude", "")?;
                }
                _ => {}
            }
        }
        ensure(&repository, "config", &configuration(self.places.format))?;
        ensure(&repository, "HEAD", "ref: refs/heads/none\n")?;
        let inner = |folder: &Folder, name: &str| folder.open_folder(OsStr::new(name)).at(&folder.join(name));
        let (objects, worktrees) = (inner(&repository, "objects")?, inner(&repository, "worktrees")?);
        let packs = inner(&objects, "pack")?;
        let name = self.places.name();
        let own = match worktrees.open_folder(&name) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // Not while another process removes objects: it has locked the worktrees that are there.
                let _lock = lock_worktrees(&repository)?;
                worktrees.open_or_create_folder(&name)
            }
            opened => opened,
        };
        let own = own.at(&worktrees.join(&name))?;
        Ok(Home { repository, objects, packs, own, own_path: worktrees.join(&name) })
    }

    /// Writes the ignore rules outside the tree into one file: the user's, then the project's, which win.
    pub(crate) fn write_excludes(&self, home: &Home) -> Result<PathBuf, Error> {
        let rules = self.excludes()?;
        let path = home.own.join(EXCLUDE);
        if home.read(EXCLUDE).is_none_or(|found| found != rules) {
            write(&home.own, EXCLUDE, &rules).at(&path)?;
        }
        Ok(path)
    }

    /// Returns the present ignore rules outside the tree. Git reads no pipe and no folder.
    pub(crate) fn excludes(&self) -> Result<Vec<u8>, Error> {
        let project = Some(self.places.common.join("info/exclude"));
        let mut rules = Vec::new();
        for file in [&self.user_excludes, &project].into_iter().flatten() {
            let text = read_start(file, EXCLUDES);
            // Without them, files that are ignored would be recorded.
            if text.is_none()
                && fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() > EXCLUDES)
            {
                return Err(std::io::Error::other("ignore rules of more than 32 MB are not read")).at(file);
            }
            rules.extend(text.unwrap_or_default());
            rules.push(b'\n');
        }
        Ok(rules)
    }
}

impl Home {
    /// Locks the folder of the worktree; waits for another holder at most so long.
    pub(crate) fn lock(&self, at_most: Duration) -> Result<HeldFolder, Error> {
        let path = &self.own_path;
        // Opened again: a lock belongs to an opened folder, and threads of one process exclude each other too.
        match Folder::open(path).at(path)?.hold(at_most) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Err(Error::Busy),
            held => held.at(path),
        }
    }

    /// Reads a small file of the worktree's folder. `None` if it is missing or not ours.
    pub(crate) fn read(&self, name: &str) -> Option<Vec<u8>> {
        read(&self.own, name)
    }
}

pub(crate) fn read(folder: &Folder, name: &str) -> Option<Vec<u8>> {
    use std::io::Read as _;
    let file = folder.open_file(OsStr::new(name), OFlags::RDONLY).ok()?;
    let mut bytes = Vec::new();
    file.take(OWN_FILE).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Replaces a file as a whole.
pub(crate) fn write(folder: &Folder, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let write = WRITES.fetch_add(1, Ordering::Relaxed);
    let temporary = OsString::from(format!("{name}.{}-{write}.new", std::process::id()));
    folder.remove(&temporary)?;
    folder.create_file(&temporary, OFlags::WRONLY)?.write_all(bytes)?;
    folder.rename(&temporary, OsStr::new(name))
}

/// Writes a file of our repository, if it has another content: the folder may have come with a download.
fn ensure(folder: &Folder, name: &str, text: &str) -> Result<(), Error> {
    if read(folder, name).is_some_and(|found| found == text.as_bytes()) {
        return Ok(());
    }
    write(folder, name, text.as_bytes()).at(&folder.join(name))
}

fn configuration(format: ObjectFormat) -> String {
    let (version, extension) = match format {
        ObjectFormat::Sha1 => (0, String::new()),
        ObjectFormat::Sha256 => (1, format!("[extensions]\nobjectFormat = {}\n", format.name())),
    };
    format!(
        "[core]\nrepositoryFormatVersion = {version}\nbare = false\nfileMode = true\nsymlinks = true\n\
         sharedRepository = 0600\nfsync = none\nprotectHFS = true\nprotectNTFS = true\nattributesFile = /dev/null\n\
         excludesFile = /dev/null\nfsmonitor = false\nhooksPath = /dev/null\nuntrackedCache = false\n\
         splitIndex = false\nquotePath = false\npreloadIndex = true\nlooseCompression = 1\n\
         {extension}[index]\nskipHash = true\nthreads = true\n[pack]\nwriteReverseIndex = false\n[gc]\nauto = 0\n[maintenance]\nauto = false\n\
         [diff]\nignoreSubmodules = all\n[submodule]\nrecurse = false\n[protocol]\nallow = never\n"
    )
}

/// Returns a path for a list of paths with colons: quoted, if it has one itself or a quote.
fn quoted(path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let bytes = path.as_os_str().as_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b':' | b'"' | b'\\' | b'\n')) {
        return path.into();
    }
    let mut quoted = vec![b'"'];
    for byte in bytes {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            b'\n' => quoted.extend(b"\\n"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'"');
    OsString::from_vec(quoted)
}
