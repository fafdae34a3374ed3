//! Private files and folders: those that only this user has created.
//!
//! A repository can contain anything, also in the place of our own files: a link to the user's keys, an endless
//! device, a forged turn. So no file is opened through a link. Files that other users could have written, or that git
//! has checked out with its usual modes, are refused.
//!
//! A folder is opened once and its files are reached relative to it. Swapping the folder or its parent for a link
//! between two steps does not change where we write.

mod foreign;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

pub use foreign::open_foreign;

/// The permissions that no other user may have.
const OTHERS: u32 = 0o077;

/// The folder of a project that belongs to azureal. Its name is never followed through a link; the folders above it are
/// the user's, and may be links.
pub const OURS: &str = ".azureal";
/// The folder that belongs to azureal in the git directory of a project, under the same rule.
pub const OURS_IN_GIT: &str = "azureal";

/// The file that shows that a temporary folder is ours.
pub const MARKER: &str = ".azureal-temporary";
/// The most names that are tried for a file that is set aside.
const MOST_SET_ASIDE: usize = 1_000;
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

/// A private folder, open.
#[derive(Debug, Clone)]
pub struct Folder {
    handle: Arc<OwnedFd>,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder of ours.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (parent, name) = parent_of(path)?;
        Self::open_in(&parent, name, path)
    }

    /// Opens a folder of ours, and creates it if there is none. Creates [our folder in a git directory](OURS_IN_GIT) too,
    /// if the folder is in it.
    pub fn open_or_create(path: &Path) -> io::Result<Self> {
        let in_git = path.parent().filter(|parent| parent.file_name() == Some(OsStr::new(OURS_IN_GIT)));
        let (parent, name) = match (parent_of(path), in_git) {
            (Err(error), Some(in_git)) if error.kind() == io::ErrorKind::NotFound => {
                let (git, ours) = parent_of(in_git)?;
                Self::create_in(&git, ours, in_git)?;
                // It keeps the second name of a store, which has to survive a loss of power.
                rustix::fs::fsync(&git)?;
                parent_of(path)?
            }
            (found, _) => found?,
        };
        Self::create_in(&parent, name, path)
    }

    /// Opens a folder in this one.
    pub fn open_folder(&self, name: &OsStr) -> io::Result<Self> {
        Self::open_in(&self.handle, plain(name)?, &self.join(name))
    }

    /// Opens a folder in this one, and creates it if there is none. Its name is as durable as the parent's next
    /// [`sync`](Self::sync) makes it.
    pub fn open_or_create_folder(&self, name: &OsStr) -> io::Result<Self> {
        Self::create_in(&self.handle, plain(name)?, &self.join(name))
    }

    fn create_in(parent: &OwnedFd, name: &OsStr, path: &Path) -> io::Result<Self> {
        match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Self::open_in(parent, name, path),
            Err(error) => Err(error.into()),
        }
    }

    fn open_in(parent: &OwnedFd, name: &OsStr, path: &Path) -> io::Result<Self> {
        let handle = open_folder(parent, name)?;
        let handle = File::from(handle);
        check_owner(&handle.metadata()?, path)?;
        Ok(Self { handle: Arc::new(handle.into()), path: path.to_owned() })
    }

    /// Returns the path of a file in it, for messages and for readers.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the names of its files.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&*self.handle)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// Returns when a file was last written, in seconds; 0 if that is not known.
    pub fn modified(&self, name: &OsStr) -> i64 {
        rustix::fs::statat(&*self.handle, name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, |found| found.st_mtime)
    }

    /// Returns the size of a file; 0 if there is none.
    pub fn size(&self, name: &OsStr) -> u64 {
        let found = rustix::fs::statat(&*self.handle, name, AtFlags::SYMLINK_NOFOLLOW);
        found.ok().and_then(|found| u64::try_from(found.st_size).ok()).unwrap_or(0)
    }

    /// Returns whether a name is a folder of this user and no link, whatever its permissions are.
    pub fn has_folder(&self, name: &OsStr) -> bool {
        let found = rustix::fs::statat(&*self.handle, name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| {
            rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir()
                && found.st_uid == rustix::process::geteuid().as_raw()
        })
    }

    /// Opens a file of ours that is there, to be read and, with these flags, written.
    pub fn open_file(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        self.open_checked(name, flags, check_file)
    }

    fn open_checked(
        &self,
        name: &OsStr,
        flags: OFlags,
        check: fn(&Metadata, &Path) -> io::Result<()>,
    ) -> io::Result<File> {
        let name = plain(name)?;
        // A pipe in its place would block until its other end is opened.
        let careful = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&*self.handle, name, flags | careful, Mode::empty()) {
            Ok(handle) => File::from(handle),
            // A link, or a pipe or device without another end.
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => return Err(refused(NO_FILE)),
            Err(error) => return Err(error.into()),
        };
        check(&file.metadata()?, &self.join(name))?;
        // The agent inherits the file that it prints to.
        rustix::fs::fcntl_setfl(&file, flags & OFlags::APPEND)?;
        Ok(file)
    }

    /// Opens a file of ours that is there to be read, also if it has a second name: after `cp -al` every file has.
    pub fn open_shared_file(&self, name: &OsStr) -> io::Result<File> {
        self.open_checked(name, OFlags::RDONLY, check_shared_file)
    }

    /// Creates a file that only we can read.
    pub fn create_file(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(File::from(rustix::fs::openat(&*self.handle, plain(name)?, flags, mode)?))
    }

    /// Renames a file in it. A file that has the name is replaced.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&*self.handle, plain(from)?, &*self.handle, plain(to)?)?)
    }

    /// Renames a file in it, unless the new name is taken.
    pub fn rename_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let (from, to) = (plain(from)?, plain(to)?);
        match rustix::fs::renameat_with(&*self.handle, from, &*self.handle, to, RenameFlags::NOREPLACE) {
            // Some file systems cannot rename without replacing; a second name does the same in two steps.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                rustix::fs::linkat(&*self.handle, from, &*self.handle, to, AtFlags::empty())?;
                Ok(rustix::fs::unlinkat(&*self.handle, from, AtFlags::empty())?)
            }
            renamed => Ok(renamed?),
        }
    }

    /// Adds an ending to the name of a file in it, with a number before it if that name is taken.
    pub fn set_aside(&self, name: &OsStr, ending: &str) -> io::Result<()> {
        for number in 1..=MOST_SET_ASIDE {
            let mut aside = name.to_owned();
            if number > 1 {
                aside.push(format!(".{number}"));
            }
            aside.push(ending);
            match self.rename_new(name, &aside) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                renamed => return renamed,
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Moves a file to another folder of the same file system. A file that has the name there is replaced.
    pub fn move_to(&self, from: &OsStr, folder: &Self, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&*self.handle, plain(from)?, &*folder.handle, plain(to)?)?)
    }

    /// Removes an empty folder in this one, if there is one.
    pub fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::unlinkat(&*self.handle, plain(name)?, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a file, if there is one.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::unlinkat(&*self.handle, plain(name)?, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Locks the folder as a whole, until the lock is dropped. Fails if it is locked already.
    pub fn try_lock(&self) -> io::Result<FolderLock<'_>> {
        rustix::fs::flock(&*self.handle, FlockOperation::NonBlockingLockExclusive)?;
        Ok(FolderLock(self))
    }

    /// Locks the folder as a whole, until the lock is dropped. Waits for another holder, at most so long.
    pub fn lock(&self, at_most: Duration) -> io::Result<FolderLock<'_>> {
        let deadline = Instant::now() + at_most;
        loop {
            match self.try_lock() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                    thread::sleep(LOCK_POLL_INTERVAL);
                }
                locked => return locked,
            }
        }
    }

    /// Locks the folder like [`lock`](Self::lock), for a caller that moves the lock to another thread.
    pub fn hold(self, at_most: Duration) -> io::Result<HeldFolder> {
        std::mem::forget(self.lock(at_most)?);
        Ok(HeldFolder(self))
    }

    /// Marks the folder as one that this program created, before anything else is in it: [`is_marked`](Self::is_marked). The mark is a
    /// file with the inode of the folder.
    pub fn mark(&self) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let marker = rustix::fs::openat(&*self.handle, MARKER, flags, Mode::RUSR | Mode::WUSR)?;
        File::from(marker).write_all(self.inode()?.as_bytes())
    }

    /// Returns whether the folder was [marked](Self::mark). Name, place, owner and mode of a folder of the user may be those of one of
    /// ours. A copy of a marked folder, from an archive or another machine, has the mark of another one.
    pub fn is_marked(&self) -> bool {
        let read = || -> io::Result<bool> {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let marker = File::from(rustix::fs::openat(&*self.handle, MARKER, flags, Mode::empty())?);
            let mut text = String::new();
            marker.take(100).read_to_string(&mut text)?;
            Ok(text == self.inode()?)
        };
        read().unwrap_or(false)
    }

    /// Removes the mark, once the folder is no temporary one any more.
    pub fn remove_mark(&self) -> io::Result<()> {
        self.remove(OsStr::new(MARKER))
    }

    fn inode(&self) -> io::Result<String> {
        Ok(rustix::fs::fstat(&*self.handle)?.st_ino.to_string())
    }

    /// Makes new and removed names in it survive a loss of power.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&*self.handle)?)
    }

    /// Returns whether a name still leads to an open file.
    pub fn has(&self, name: &OsStr, file: &File) -> bool {
        let Ok(open) = file.metadata() else { return false };
        let named = rustix::fs::statat(&*self.handle, name, AtFlags::SYMLINK_NOFOLLOW);
        named.is_ok_and(|named| {
            #[allow(clippy::unnecessary_cast, reason = "its width differs between systems")]
            let device = named.st_dev as u64;
            (open.dev(), open.ino()) == (device, named.st_ino)
        })
    }
}

/// A folder that is locked as a whole, until this is dropped.
#[derive(Debug)]
pub struct HeldFolder(Folder);

impl Drop for HeldFolder {
    fn drop(&mut self) {
        drop(FolderLock(&self.0));
    }
}

/// A lock on a folder.
pub struct FolderLock<'a>(&'a Folder);

impl Drop for FolderLock<'_> {
    fn drop(&mut self) {
        // Not by closing the folder: a spool may hold it open for long.
        rustix::fs::flock(&*self.0.handle, FlockOperation::Unlock).ok();
    }
}

/// Opens the parent of a folder, and returns the folder's name in it.
fn parent_of(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or_else(|| refused(NO_FOLDER))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Some(ours) = parent.file_name().filter(|name| *name == OURS || *name == OURS_IN_GIT) else {
        return Ok((rustix::fs::openat(CWD, parent, DIRECTORY, Mode::empty())?, name));
    };
    let above = match parent.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let above = rustix::fs::openat(CWD, above, DIRECTORY, Mode::empty())?;
    Ok((open_folder(&above, ours)?, name))
}

fn open_folder(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    match rustix::fs::openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(handle) => Ok(handle),
        Err(Errno::LOOP | Errno::NOTDIR) => Err(refused(NO_FOLDER)),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a name that leads out of the folder.
fn plain(name: &OsStr) -> io::Result<&OsStr> {
    if name.as_bytes().contains(&b'/') || name == ".." {
        Err(refused("is no name of a file"))
    } else {
        Ok(name)
    }
}

/// Returns whether the file at a path is ours.
pub fn check(path: &Path) -> io::Result<()> {
    check_file(&fs::symlink_metadata(path)?, path)
}

fn check_file(found: &Metadata, path: &Path) -> io::Result<()> {
    check_shared_file(found, path)?;
    if found.nlink() > 1 {
        return Err(refused("has another name elsewhere (a hard link)"));
    }
    Ok(())
}

fn check_shared_file(found: &Metadata, path: &Path) -> io::Result<()> {
    if !found.is_file() {
        return Err(refused(NO_FILE));
    }
    check_owner(found, path)
}

fn check_owner(found: &Metadata, path: &Path) -> io::Result<()> {
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("belongs to another user"));
    }
    if found.mode() & OTHERS != 0 {
        // Not "remove it": it may be the last copy of a history.
        return Err(refused(&format!("is open to others; `chmod go= {}` closes it", as_argument(path))));
    }
    Ok(())
}

/// Returns a path as a word of a shell.
pub fn as_argument(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

const NO_FILE: &str = "is no plain file";
const NO_FOLDER: &str = "is no folder";

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn close(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_files_of_our_own_are_opened() {
        let temporary = tempfile::tempdir().unwrap();
        let path = |name: &str| temporary.path().join(name);
        close(temporary.path(), 0o700);
        for (name, mode) in [("ours", 0o600), ("open", 0o644), ("twice", 0o600)] {
            fs::write(path(name), "x").unwrap();
            close(&path(name), mode);
        }
        fs::hard_link(path("twice"), path("second name")).unwrap();
        symlink(path("ours"), path("link")).unwrap();
        symlink("/dev/zero", path("device")).unwrap();
        rustix::fs::mknodat(CWD, path("pipe"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        fs::create_dir(path("folder")).unwrap();
        let folder = Folder::open(temporary.path()).unwrap();
        for flags in [OFlags::RDONLY, OFlags::RDWR, OFlags::WRONLY | OFlags::APPEND] {
            let opens =
                |name: &str| folder.open_file(name.as_ref(), flags).map_err(|error| error.to_string());
            assert!(opens("ours").is_ok());
            for (name, why) in [
                ("open", "is open to others"),
                ("twice", "has another name elsewhere"),
                ("link", NO_FILE),
                ("device", NO_FILE),
                ("pipe", NO_FILE),
                ("folder", NO_FILE),
                ("../x", "is no name of a file"),
                ("..", "is no name of a file"),
            ] {
                let error = opens(name).unwrap_err();
                assert!(error.starts_with(why), "{name}: {error}");
            }
            let missing = folder.open_file("none".as_ref(), flags).unwrap_err();
            assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn only_folders_of_our_own_are_opened() {
        let temporary = tempfile::tempdir().unwrap();
        let path = |name: &str| temporary.path().join(name);
        assert_eq!(Folder::open(&path("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        Folder::open_or_create(&path("folder")).unwrap();
        assert_eq!(fs::metadata(path("folder")).unwrap().mode() & 0o777, 0o700);
        symlink(path("folder"), path("link")).unwrap();
        assert!(Folder::open(&path("link")).is_err());
        // Links above our own folder are the user's.
        assert!(Folder::open_or_create(&path("link/below")).is_ok());
        symlink(path("folder"), path(".azureal")).unwrap();
        let error = Folder::open_or_create(&path(".azureal/spool")).unwrap_err();
        assert_eq!(error.to_string(), NO_FOLDER);
        close(&path("folder"), 0o755);
        assert!(Folder::open(&path("folder")).is_err());
    }

    #[test]
    fn our_folder_in_a_git_directory_is_created_with_the_first_folder_in_it() {
        let temporary = tempfile::tempdir().unwrap();
        let path = |name: &str| temporary.path().join(name);
        assert!(Folder::open_or_create(&path("none/azureal/spool")).is_err());
        fs::create_dir(path(".git")).unwrap();
        Folder::open_or_create(&path(".git/azureal/spool")).unwrap();
        for folder in [".git/azureal", ".git/azureal/spool"] {
            assert_eq!(fs::metadata(path(folder)).unwrap().mode() & 0o777, 0o700);
        }
        fs::rename(path(".git/azureal"), path("elsewhere")).unwrap();
        symlink(path("elsewhere"), path(".git/azureal")).unwrap();
        let error = Folder::open_or_create(&path(".git/azureal/originals")).unwrap_err();
        assert_eq!(error.to_string(), NO_FOLDER);
        assert!(!path("elsewhere/originals").exists());
    }
}
