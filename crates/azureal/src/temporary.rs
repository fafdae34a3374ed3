//! Folders in the system's temporary folder, for files that are gone when azureal ends.
//!
//! They are private from the moment of their creation, whatever the umask is. A process that is killed leaves its folder
//! behind: the next one that needs a folder removes it. A lock on each folder tells which ones are in use, also by
//! processes of another container that share the temporary folder.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use azureal_process::ProcessIdentity;
use tempfile::TempDir;

use crate::environment::Environment;
use crate::error::Error;

/// The names of temporary folders begin with this, followed by the id of the process that created them.
const PREFIX: &str = "azureal-";

/// A private folder that is removed when this is dropped.
#[derive(Debug)]
pub struct TemporaryFolder {
    folder: TempDir,
    /// Locked as long as it is open.
    _lock: File,
}

impl TemporaryFolder {
    /// Creates a folder, and removes those of killed processes.
    pub fn create(environment: &Environment) -> Result<Self, Error> {
        let parent = environment.temporary();
        remove_abandoned(&parent);
        Self::create_in(&parent).map_err(|error| Error::file(&parent, &error))
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        let prefix = format!("{PREFIX}{}-", std::process::id());
        loop {
            let folder = private_folder_in(parent, &prefix)?;
            let lock = File::open(folder.path())?;
            lock.lock()?;
            // Another process may have taken it for abandoned before it was locked.
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
pub fn private_folder_in(parent: &Path, prefix: &str) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)
}

/// Removes the folders of processes that were killed. A folder that cannot be removed now is removed another time.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let creator =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        let is_ours = |found: &Metadata| {
            found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0
        };
        if creator.is_some_and(is_gone)
            && entry.metadata().is_ok_and(|found| is_ours(&found))
            && let Ok(lock) = File::open(entry.path())
            && lock.try_lock().is_ok()
        {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

/// Says whether no process of this id runs here. One of another container may.
fn is_gone(pid: u32) -> bool {
    ProcessIdentity::of(pid).is_none_or(|process| !process.is_alive())
}

fn is_same(found: &Metadata, file: &File) -> bool {
    file.metadata().is_ok_and(|file| (file.dev(), file.ino()) == (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_that_nobody_uses_are_removed() {
        let parent = TempDir::new().unwrap();
        // No process has this number.
        let gone = format!("{PREFIX}{}-", i32::MAX);
        let abandoned = private_folder_in(parent.path(), &gone).unwrap().keep();
        fs::write(abandoned.join("x"), "x").unwrap();
        let in_another_container = private_folder_in(parent.path(), &gone).unwrap().keep();
        let _lock = File::open(&in_another_container).unwrap();
        _lock.lock().unwrap();
        let of_this_process = TemporaryFolder::create_in(parent.path()).unwrap();
        let kept_by_the_user = private_folder_in(parent.path(), "azureal-demo-").unwrap().keep();
        remove_abandoned(parent.path());
        assert!(!abandoned.exists());
        for kept in [in_another_container.as_path(), of_this_process.path(), &kept_by_the_user] {
            assert!(kept.exists(), "{}", kept.display());
        }
    }
}
