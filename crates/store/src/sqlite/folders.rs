//! The files and folders that belong to a store in a file, besides the file.

use std::path::{Path, PathBuf};

/// The name of a project's own store.
pub const PROJECT_STORE: &str = "sessions.azs";
/// The suffixes of the files that SQLite creates beside a database.
pub const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];

/// Returns the path of a file beside another one, whose name begins with that of the other.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(suffix);
    path.into()
}

/// The files and folders that belong to a store in a file.
///
/// `git clean -fdx` deletes everything in a worktree that git does not track, a store and the output of a running turn too.
/// So in a git repository all but the store are in the git directory, where the store's file has a second name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFolders {
    /// The folder that keeps turns until they are in the store.
    pub spools: PathBuf,
    /// The folder that earlier versions use for them, or processes that can write to the git directory, if it is another one.
    pub former_spools: Option<PathBuf>,
    /// The folder that keeps the output of stored turns.
    pub originals: PathBuf,
    /// The folder that kept it before the project had its git directory, or keeps it while that cannot be written.
    pub former_originals: Option<PathBuf>,
    /// The folder of the search index.
    pub search: PathBuf,
    /// The second name of the store's file.
    pub second_name: Option<PathBuf>,
}

impl StoreFolders {
    /// Returns the folders of the store in this file. `in_git` is azureal's folder in the git directory of the project, if the
    /// store is the project's own.
    ///
    /// Every file but a project's own store has folders that are called after it: sessions of two stores in one folder
    /// have the same numbers.
    pub fn of(file: &Path, in_git: Option<&Path>) -> Self {
        let beside = |name: &str| match file.file_name() {
            Some(own) if own != PROJECT_STORE => with_suffix(file, &format!(".{name}")),
            _ => file.with_file_name(name),
        };
        match in_git {
            Some(folder) => Self {
                spools: folder.join(SPOOLS),
                former_spools: Some(beside(SPOOLS)),
                originals: folder.join(ORIGINALS),
                former_originals: Some(beside(ORIGINALS)),
                search: folder.join(SEARCH),
                second_name: Some(folder.join(PROJECT_STORE)),
            },
            None => Self {
                spools: beside(SPOOLS),
                former_spools: None,
                originals: beside(ORIGINALS),
                former_originals: None,
                search: beside(SEARCH),
                second_name: None,
            },
        }
    }

    /// Returns the folders of a project's own store if this process cannot keep files in azureal's folder in the git directory. The
    /// turns that are there are still found.
    pub fn of_unwritable_git(file: &Path, in_git: &Path) -> Self {
        Self {
            former_spools: Some(in_git.join(SPOOLS)),
            former_originals: Some(in_git.join(ORIGINALS)),
            second_name: Some(in_git.join(PROJECT_STORE)),
            ..Self::of(file, None)
        }
    }
}

const SPOOLS: &str = "spool";
const ORIGINALS: &str = "originals";
const SEARCH: &str = "search";
