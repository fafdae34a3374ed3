//! A private folder for the time of one question to git.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use crate::error::{At, Error};
use crate::worktree::Home;

const FOLDER: &str = "scratch";
/// A folder that is older was left by a process that was killed.
const OLD_SECONDS: i64 = 3_600;

/// A folder that is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(home: &Home) -> Result<Self, Error> {
        static FOLDERS: AtomicU64 = AtomicU64::new(0);
        let folder =
            home.repository.open_or_create_folder(OsStr::new(FOLDER)).at(&home.repository.join(FOLDER))?;
        let now = i64::try_from(UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()).unwrap_or(0);
        for name in folder.names().at(&folder.join(""))? {
            if folder.modified(&name) + OLD_SECONDS < now {
                // Follows no link.
                fs::remove_dir_all(folder.join(&name)).ok();
            }
        }
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{}-{number}", std::process::id()));
        // Left by a process with the same number.
        fs::remove_dir_all(&path).ok();
        fs::DirBuilder::new().mode(0o700).create(&path).at(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::debug!(%error, "a folder of a comparison is left");
        }
    }
}
