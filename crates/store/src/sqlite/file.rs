//! The file of a store: its location, its permissions, and its creation.
//!
//! History is private and is written below a folder that may have come with a cloned repository. So links are
//! refused, new files are private from the start, and a store appears whole, with its first session in it, or not at
//! all.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use azureal_core::StoreError;
use azureal_files::{OURS, as_argument};
use rusqlite::Connection;
use rustix::fs::{AtFlags, Mode, OFlags};

use super::folders::{COMPANIONS, with_suffix};
use super::second_name::SecondName;
use super::{error, schema};

/// Excludes history from commits; only the configuration is shared.
const GITIGNORE: &str =
    "# History stays out of commits; only the configuration is shared.\n*\n!azufig.toml\n";

/// The file of a store, which may not be there yet.
#[derive(Debug, Clone)]
pub(super) struct StoreFile {
    path: PathBuf,
    second_name: Option<SecondName>,
}

/// A store's file that is there.
#[derive(Debug)]
pub(super) struct Found {
    /// The path that SQLite is given.
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
    /// Whether it has its second name.
    pub(super) has_second_name: bool,
}

/// The identity of a file, to notice that it was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(super) fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}

impl StoreFile {
    /// The file at this path. `second_name` is where it has, or gets, its second name.
    pub(super) fn new(path: PathBuf, second_name: Option<PathBuf>) -> Self {
        Self { path, second_name: second_name.and_then(SecondName::new) }
    }

    pub(super) fn second_name(&self) -> Option<&SecondName> {
        self.second_name.as_ref()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }

    pub(super) fn lies_in_our_folder(&self) -> bool {
        self.folder().file_name().is_some_and(|name| name == OURS)
    }

    /// Returns the path that SQLite is given: links above our folder are the user's and are followed here,
    /// so that SQLite can refuse all others.
    pub(super) fn real_path(&self) -> Result<PathBuf, StoreError> {
        let folder = fs::canonicalize(self.folder()).map_err(|error| self.io(error))?;
        if self.lies_in_our_folder() && folder.file_name() != Some(OsStr::new(OURS)) {
            // A link took its place after the check.
            return Err(self.is_unsafe(self.folder(), "it is a symbolic link"));
        }
        match self.path.file_name() {
            Some(name) => Ok(folder.join(name)),
            None => Err(self.is_unsafe(&self.path, "it names no file")),
        }
    }

    /// Checks the path: `None` if there is no file.
    pub(super) fn look(&self) -> Result<Option<Found>, StoreError> {
        self.check_folder()?;
        let metadata = match fs::symlink_metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io(error)),
        };
        self.check_kind(&self.path, &metadata)?;
        let identity = Identity::of(&metadata);
        let has_second_name = match metadata.nlink() {
            0 | 1 => false,
            2 if self.second_name.as_ref().is_some_and(|second| second.is_of(identity)) => true,
            2 if self.second_name.is_none() && self.is_named_in_git(identity) => true,
            _ => return Err(self.linked(&self.path, &metadata)),
        };
        if metadata.len() == 0 {
            let place = self.path.display().to_string();
            return Err(StoreError::NotAStore { place, why: "it is empty".to_owned() });
        }
        self.check_companions()?;
        Ok(Some(Found { path: self.real_path()?, identity, has_second_name }))
    }

    /// Returns whether the file has its second name in the folder `.git` beside ours: for callers that do not say where that is.
    fn is_named_in_git(&self, identity: Identity) -> bool {
        let git = self.folder().parent().map(|project| project.join(".git"));
        let git = git.filter(|git| {
            self.lies_in_our_folder() && fs::symlink_metadata(git).is_ok_and(|git| git.is_dir())
        });
        let second = git.and_then(|git| {
            SecondName::new(git.join(azureal_files::OURS_IN_GIT).join(self.path.file_name()?))
        });
        second.is_some_and(|second| second.is_of(identity))
    }

    /// Refuses a link, and whatever else is no plain file.
    pub(super) fn check_plain(&self) -> Result<(), StoreError> {
        match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            found => self.check_kind(&self.path, &found.map_err(|error| self.io(error))?),
        }
    }

    /// Checks the files that SQLite would open with this one.
    pub(super) fn check_companions(&self) -> Result<(), StoreError> {
        for suffix in COMPANIONS {
            let companion = with_suffix(&self.path, suffix);
            if let Ok(metadata) = fs::symlink_metadata(&companion) {
                self.check_kind(&companion, &metadata)?;
                if metadata.nlink() > 1 {
                    return Err(self.is_unsafe(&companion, ANOTHER_NAME));
                }
            }
        }
        Ok(())
    }

    /// Returns whether something has the first name.
    pub(super) fn exists(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok()
    }

    /// Returns whether the path still leads to this file. Writing to one that was removed would lose turns.
    pub(super) fn is_still(&self, identity: Identity) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|now| Identity::of(&now) == identity)
    }

    /// Narrows the permissions, and excludes history from commits: stores of the original program have wider modes
    /// and no ignore file.
    ///
    /// A missing permission for that is no error: the file may be another user's, shared on purpose.
    pub(super) fn make_private(&self) {
        drop(narrow(&self.path, 0o600));
        if self.lies_in_our_folder() {
            drop(narrow(self.folder(), 0o700));
            drop(self.write_gitignore());
        }
    }

    /// Creates the store with the content of `fill`. `None`, without an effect, if there is one already.
    pub(super) fn create<T>(
        &self,
        fill: impl FnOnce(&mut Connection) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        self.make_folder()?;
        self.remove_leftovers();
        let (unfinished, file) = self.create_unfinished().map_err(|error| self.io(error))?;
        let made = self.fill_new(&unfinished, &file, fill).and_then(|made| {
            let published = publish(&unfinished, &self.path).map_err(|error| self.io(error))?;
            Ok(published.then_some(made))
        });
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != ErrorKind::NotFound && made.is_ok() => return Err(self.io(error)),
            Ok(()) | Err(_) => {}
        }
        made
    }

    /// Returns the temporary name of a file beside this one, which the next process cleans up if this one is killed. The name has the
    /// inode of the file, so that no file of the user is taken for one of ours.
    pub(super) fn unfinished(&self, found: &Metadata) -> PathBuf {
        with_suffix(&self.path, &format!("{UNFINISHED}{}-{}", std::process::id(), found.ino()))
    }

    /// Creates a file under a temporary name. It is private from its first moment, which SQLite would not do.
    pub(super) fn create_unfinished(&self) -> io::Result<(PathBuf, File)> {
        let attempt = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
        let first = with_suffix(&self.path, &format!("{UNFINISHED}{}-{attempt}.tmp", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&first)?;
        let path = file.metadata().map(|found| self.unfinished(&found));
        let named = path.and_then(|path| fs::rename(&first, &path).map(|()| path));
        match named {
            Ok(path) => Ok((path, file)),
            Err(error) => {
                drop(fs::remove_file(&first));
                Err(error)
            }
        }
    }

    fn fill_new<T>(
        &self,
        unfinished: &Path,
        file: &File,
        fill: impl FnOnce(&mut Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let connection = Connection::open(unfinished).map_err(|error| self.sqlite(error));
        let made = connection.and_then(|mut connection| {
            // The file is not visible before it is finished and synced, so it needs no journal.
            connection
                .execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
                .and_then(|()| schema::create(&connection))
                .map_err(|error| self.sqlite(error))?;
            let made = fill(&mut connection)?;
            connection.close().map_err(|(_, error)| self.sqlite(error))?;
            Ok(made)
        })?;
        file.sync_all().map_err(|error| self.io(error))?;
        Ok(made)
    }

    pub(super) fn make_folder(&self) -> Result<(), StoreError> {
        match DirBuilder::new().mode(0o700).create(self.folder()) {
            Ok(()) => sync_folder(self.folder().parent().unwrap_or(Path::new("/"))),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
        .map_err(|error| self.io(error))?;
        self.check_folder()?;
        if self.lies_in_our_folder() {
            self.write_gitignore().map_err(|error| self.io(error))?;
        }
        Ok(())
    }

    /// Writes the ignore file if there is none, atomically: an empty one would exclude nothing.
    ///
    /// Relative to the open folder: a link that replaces it after the check has no effect.
    fn write_gitignore(&self) -> io::Result<()> {
        let folder = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(self.folder(), folder, Mode::empty())?;
        let written = rustix::fs::statat(&folder, ".gitignore", AtFlags::SYMLINK_NOFOLLOW);
        if written.is_ok_and(|found| found.st_size > 0) {
            return Ok(());
        }
        let unfinished = format!(".gitignore{UNFINISHED}{}", std::process::id());
        let new = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let written = rustix::fs::openat(&folder, &unfinished, new, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).write_all(GITIGNORE.as_bytes()))
            .and_then(|()| Ok(rustix::fs::renameat(&folder, &unfinished, &folder, ".gitignore")?));
        if written.is_err() {
            rustix::fs::unlinkat(&folder, &unfinished, AtFlags::empty()).ok();
        }
        written
    }

    /// Removes what creations that were killed have left.
    pub(super) fn remove_leftovers(&self) {
        for (path, end) in self.all_unfinished() {
            let Some((owner, inode)) = end.split_once('-') else { continue };
            let Some(owner) = owner.parse().ok().and_then(rustix::process::Pid::from_raw) else { continue };
            let is_ours = fs::symlink_metadata(&path)
                .is_ok_and(|found| found.is_file() && found.ino().to_string() == inode);
            if is_ours && rustix::process::test_kill_process(owner) == Err(rustix::io::Errno::SRCH) {
                // Only cleanup: a file that cannot be removed does no harm.
                drop(fs::remove_file(path));
            }
        }
    }

    /// Removes the temporary names of this file that processes have left which were killed while they put it back. Another process
    /// may have the id of such a one by now. Only under the lock of the second name: no process puts it back then.
    pub(super) fn remove_temporary_names(&self, identity: Identity) {
        for (path, _) in self.all_unfinished() {
            if fs::symlink_metadata(&path).is_ok_and(|found| Identity::of(&found) == identity) {
                for suffix in COMPANIONS.iter().chain(&[""]) {
                    drop(fs::remove_file(with_suffix(&path, suffix)));
                }
            }
        }
    }

    /// Returns every temporary name beside the file, with the part that follows the prefix.
    fn all_unfinished(&self) -> Vec<(PathBuf, String)> {
        let Some(name) = self.path.file_name().and_then(|name| name.to_str()) else {
            return Vec::new();
        };
        let prefix = format!("{name}{UNFINISHED}");
        let entries = fs::read_dir(self.folder()).into_iter().flatten().flatten();
        let end = |name: &OsStr| Some(name.to_str()?.strip_prefix(&prefix)?.to_owned());
        entries.filter_map(|entry| Some((entry.path(), end(&entry.file_name())?))).collect()
    }

    fn check_folder(&self) -> Result<(), StoreError> {
        if !self.lies_in_our_folder() {
            return Ok(());
        }
        let folder = self.folder();
        let metadata = match fs::symlink_metadata(folder) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(self.io(error)),
        };
        if metadata.is_symlink() {
            return Err(self.is_unsafe(folder, "it is a symbolic link"));
        }
        if !metadata.is_dir() {
            return Err(self.is_unsafe(folder, "it is not a folder"));
        }
        Ok(())
    }

    fn check_kind(&self, path: &Path, metadata: &Metadata) -> Result<(), StoreError> {
        if metadata.is_symlink() {
            return Err(self.is_unsafe(path, "it is a symbolic link"));
        }
        if !metadata.is_file() {
            return Err(self.is_unsafe(path, "it is not a plain file"));
        }
        Ok(())
    }

    /// Returns the error of a file that has more names than a store may have, with the commands that make it a file of its own.
    pub(super) fn linked(&self, path: &Path, metadata: &Metadata) -> StoreError {
        let second = self.second_name.as_ref().filter(|second| second.is_of(Identity::of(metadata)));
        let own = as_argument(&with_suffix(&self.path, ".own"));
        let mut commands =
            format!("cp -p {} {own} && mv {own} {}", as_argument(path), as_argument(&self.path));
        if let Some(second) = second {
            commands.push_str(&format!(" && rm {}", as_argument(second.path())));
        }
        let cause = if metadata.nlink() > 2 { ", as after `cp -al`" } else { "" };
        self.is_unsafe(path, &format!("{ANOTHER_NAME}{cause}; `{commands}` makes it a file of its own"))
    }

    fn is_unsafe(&self, path: &Path, why: &str) -> StoreError {
        StoreError::Unsafe { place: path.display().to_string(), why: why.to_owned() }
    }

    fn io(&self, error: io::Error) -> StoreError {
        error::from_io(&self.path, error)
    }

    fn sqlite(&self, error: rusqlite::Error) -> StoreError {
        error::from_sqlite(&self.path, error)
    }
}

/// Creates the folder of a file as that of a store: a folder `.azureal` is private, is no link, and excludes all but
/// the configuration from commits.
///
/// For other files that a project has there. The file itself is not touched.
pub fn make_folder_of(file: &Path) -> Result<(), StoreError> {
    StoreFile::new(file.to_owned(), None).make_folder()
}

/// Removes the permissions of all but the owner, if this user owns the file.
///
/// Never by opening the file: closing it again would drop the locks that SQLite holds on it in this process.
fn narrow(path: &Path, mode: u32) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
    if metadata.mode() & 0o077 == 0 || !is_ours || metadata.is_symlink() {
        return Ok(());
    }
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        // A handle for the path alone, without read access. It follows no link.
        let handle =
            rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        fs::set_permissions(format!("/proc/self/fd/{}", handle.as_raw_fd()), Permissions::from_mode(mode))
    }
    #[cfg(not(target_os = "linux"))]
    {
        use rustix::fs::{CWD, chmodat};
        let mode = Mode::from_bits_truncate(mode as rustix::fs::RawMode);
        Ok(chmodat(CWD, path, mode, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

const ANOTHER_NAME: &str = "it has another name elsewhere (a hard link)";

/// The prefix of a store that is being created; the id of the process and the inode of the file follow.
const UNFINISHED: &str = ".new-";
/// Tells the attempts of one process apart.
static ATTEMPTS: AtomicU64 = AtomicU64::new(0);

/// Gives a finished file its name, unless something has that name; returns whether it did.
pub(super) fn publish(unfinished: &Path, path: &Path) -> io::Result<bool> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let published = rustix::fs::renameat_with(
        rustix::fs::CWD,
        unfinished,
        rustix::fs::CWD,
        path,
        rustix::fs::RenameFlags::NOREPLACE,
    );
    match published {
        Ok(()) => {}
        Err(rustix::io::Errno::EXIST) => return Ok(false),
        // Some file systems cannot rename without replacing; a second name does the same in two steps.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {
            match fs::hard_link(unfinished, path) {
                Ok(()) => fs::remove_file(unfinished)?,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Err(error) => return Err(error.into()),
    }
    sync_folder(folder)?;
    Ok(true)
}

/// Syncs a folder, so that a new name in it survives a power loss.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_takes_the_place_of_the_folder_after_the_check_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("sessions.azs"), "").unwrap();
        std::os::unix::fs::symlink(&outside, folder.path().join(OURS)).unwrap();
        let file = StoreFile::new(folder.path().join(OURS).join("sessions.azs"), None);
        assert!(file.write_gitignore().is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert!(matches!(file.real_path(), Err(StoreError::Unsafe { .. })));
    }
}
