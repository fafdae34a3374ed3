//! Private folders for temporary files.
//!
//! A folder is private from its creation on, whatever the umask is. A killed process leaves its folder behind, and the next
//! process that needs a folder removes it. A lock on each folder shows that it is in use, also by a process of
//! another container that shares the parent folder.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use tempfile::TempDir;

/// The beginning of the names of temporary folders. The id of the process that created the folder follows.
const PREFIX: &str = "azureal-";

/// A private folder for temporary files. Dropping it removes it.
#[derive(Debug)]
pub struct TemporaryFolder {
    folder: TempDir,
    /// Locked as long as it is open.
    _lock: File,
}

impl TemporaryFolder {
    /// Creates a folder in `parent`, and removes the folders of killed processes from there.
    pub fn create_in(parent: &Path) -> io::Result<Self> {
        remove_abandoned(parent);
        let prefix = format!("{PREFIX}{}-", std::process::id());
        loop {
            let folder = private_folder(parent, &prefix)?;
            let lock = match File::open(folder.path()) {
                // Another process removed the folder before it was locked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            lock.lock()?;
            if fs::symlink_metadata(folder.path()).is_ok_and(|found| is_same(&found, &lock)) {
                return Ok(Self { folder, _lock: lock });
            }
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Creates a folder that only its owner can enter.
fn private_folder(parent: &Path, prefix: &str) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)
}

/// Removes the folders of killed processes. Ignores errors: the next process tries again.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let creator: Option<u32> =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        let is_ours = |found: &Metadata| {
            found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0
        };
        if creator.is_some()
            && entry.metadata().is_ok_and(|found| is_ours(&found))
            && let Ok(lock) = File::open(entry.path())
            && lock.try_lock().is_ok()
        {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

fn is_same(found: &Metadata, file: &File) -> bool {
    file.metadata().is_ok_and(|file| (file.dev(), file.ino()) == (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn only_folders_that_nobody_uses_are_removed() {
        let parent = TempDir::new().unwrap();
        // No process has this number.
        let gone = format!("{PREFIX}{}-", i32::MAX);
        let abandoned = private_folder(parent.path(), &gone).unwrap().keep();
        fs::write(abandoned.join("x"), "x").unwrap();
        let in_another_container = private_folder(parent.path(), &gone).unwrap().keep();
        let _lock = File::open(&in_another_container).unwrap();
        _lock.lock().unwrap();
        let of_this_process = TemporaryFolder::create_in(parent.path()).unwrap();
        let kept_by_the_user = private_folder(parent.path(), "azureal-demo-").unwrap().keep();
        remove_abandoned(parent.path());
        assert!(!abandoned.exists());
        for kept in [in_another_container.as_path(), of_this_process.path(), &kept_by_the_user] {
            assert!(kept.exists(), "{}", kept.display());
        }
    }

    #[test]
    fn folders_that_are_created_at_the_same_time_are_all_there() {
        let parent = TempDir::new().unwrap();
        let create = || TemporaryFolder::create_in(parent.path()).unwrap();
        for _ in 0..50 {
            let folders = thread::scope(|scope| {
                let threads = [(); 4].map(|()| scope.spawn(create));
                threads.map(|thread| thread.join().unwrap())
            });
            for folder in &folders {
                fs::write(folder.path().join("x"), "x").unwrap();
            }
        }
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
