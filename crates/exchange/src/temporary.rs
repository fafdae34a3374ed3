//! Private folders for temporary files.
//!
//! A folder is private from its creation on, whatever the umask is. A killed process leaves its folder behind, and the next
//! process that needs a folder removes it. A lock on each folder shows that it is in use, also by a process of
//! another container that shares the parent folder.
//!
//! A folder of the user may have such a name, mode and owner. So each of ours holds a marker, written before anything else,
//! with the inode of the folder: only a folder whose marker names that very folder is removed. A copy of one, from an archive or
//! another machine, is none of ours.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use azureal_files::{Folder, HeldFolder};
use tempfile::TempDir;

/// The beginning of the names of temporary folders. The id of the process that created the folder follows.
const PREFIX: &str = "azureal-";

/// A private folder for temporary files. Dropping it removes it.
#[derive(Debug)]
pub struct TemporaryFolder {
    folder: TempDir,
    /// Locked as long as it is open.
    _lock: HeldFolder,
}

impl TemporaryFolder {
    /// Creates a folder in `parent`, and removes the folders of killed processes from there.
    pub fn create_in(parent: &Path) -> io::Result<Self> {
        remove_abandoned(parent);
        let folder = private_folder(parent, &format!("{PREFIX}{}-", std::process::id()))?;
        let opened = Folder::open(folder.path())?;
        // Until it has its mark, no other process takes it for an abandoned one.
        let lock = opened.clone().hold(Duration::ZERO)?;
        opened.mark()?;
        Ok(Self { folder, _lock: lock })
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
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX))
            && let Ok(folder) = Folder::open(&entry.path())
            && folder.is_marked()
            && let Ok(_lock) = folder.try_lock()
        {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
    use std::path::PathBuf;
    use std::thread;

    use azureal_files::MARKER;

    use super::*;

    /// Creates what a killed process leaves: no process has this number.
    fn abandoned(parent: &Path) -> PathBuf {
        let folder = private_folder(parent, &format!("{PREFIX}{}-", i32::MAX)).unwrap().keep();
        Folder::open(&folder).unwrap().mark().unwrap();
        fs::write(folder.join("x"), "x").unwrap();
        folder
    }

    #[test]
    fn only_folders_that_nobody_uses_are_removed() {
        let parent = TempDir::new().unwrap();
        let left = abandoned(parent.path());
        let in_another_container = abandoned(parent.path());
        let _lock = Folder::open(&in_another_container).unwrap().hold(Duration::ZERO).unwrap();
        let of_this_process = TemporaryFolder::create_in(parent.path()).unwrap();
        remove_abandoned(parent.path());
        assert!(!left.exists());
        for kept in [in_another_container.as_path(), of_this_process.path()] {
            assert!(kept.exists(), "{}", kept.display());
        }
    }

    #[test]
    fn no_folder_of_the_user_is_removed_whatever_its_name_is() {
        let parent = TempDir::new().unwrap();
        let ours = abandoned(parent.path());
        let folder = |name: &str| {
            let folder = parent.path().join(name);
            fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
            folder
        };
        let inode = |path: &Path| fs::symlink_metadata(path).unwrap().ino().to_string();
        let marked = |name: &str, content: &str| {
            let folder = folder(name);
            fs::write(folder.join(MARKER), content).unwrap();
            folder
        };
        // The inode of a copy is another one.
        let copy = marked("azureal-1-copy", &inode(&ours));
        let with_other_marker = [marked("azureal-2-x", ""), marked("azureal-3-x", &"1".repeat(1000))];
        let linked = folder("azureal-4-x");
        let marker = parent.path().join("marker");
        fs::write(&marker, inode(&linked)).unwrap();
        symlink(&marker, linked.join(MARKER)).unwrap();
        let piped = folder("azureal-5-x");
        rustix::fs::mkfifoat(rustix::fs::CWD, piped.join(MARKER), rustix::fs::Mode::RWXU).unwrap();
        let mut kept = vec![copy, linked, piped, folder("azureal-2026-11-18"), folder("azureal-7")];
        kept.extend(with_other_marker);
        symlink(&ours, parent.path().join("azureal-6-link")).unwrap();
        drop(TemporaryFolder::create_in(parent.path()).unwrap());
        for kept in kept {
            assert!(kept.exists(), "{}", kept.display());
        }
        assert!(!ours.exists());
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
