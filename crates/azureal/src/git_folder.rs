//! The folder of azureal in the git directory of a project.
//!
//! `git clean -fdx` deletes whatever git does not track, but nothing in its own directory. What is found depends on the file of
//! the store alone, not on the current directory: processes that share a store agree on its folders.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use azureal_files::{OURS, OURS_IN_GIT, as_argument};
use azureal_store::sqlite::{PROJECT_STORE, StoreFolders};
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;

use crate::error::shown;
use crate::project::{Config, pointer};

/// The reason why a store has no folder in a git directory, and its file no second name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotInGit {
    /// It is not `.azureal/sessions.azs`.
    NotTheProjects,
    /// The project is no repository, or a linked worktree that is a project of its own.
    NoRepository,
    /// Another user owns the git directory.
    OtherOwner(PathBuf),
    /// The git directory is outside the project, and does not name it.
    Unconfirmed(PathBuf),
    /// The place of the folder in the git directory has something else.
    NoFolder(PathBuf),
    /// The folder in the git directory is open to other users.
    OpenToOthers(PathBuf),
    /// This process cannot write to the folder or to the git directory: a container may have it mounted read-only.
    ReadOnly(PathBuf),
}

impl NotInGit {
    /// Returns whether the folder may have turns of processes that can write there.
    pub(crate) fn is_readable(&self) -> bool {
        matches!(self, Self::OpenToOthers(_) | Self::ReadOnly(_))
    }
}

impl fmt::Display for NotInGit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTheProjects => f.write_str("it is not a project's own store"),
            Self::NoRepository => f.write_str("the project is no git repository"),
            Self::OtherOwner(git) => write!(f, "{} belongs to another user", shown(git)),
            Self::Unconfirmed(git) => write!(
                f,
                "{} does not say that this is its worktree; `git config core.worktree \"$PWD\"` does",
                shown(git)
            ),
            Self::NoFolder(folder) => write!(f, "{} is no folder", shown(folder)),
            Self::OpenToOthers(folder) => write!(
                f,
                "{} is open to others, so nothing there is used; `chmod go= {}` closes it",
                shown(folder),
                as_argument(folder)
            ),
            Self::ReadOnly(folder) => write!(f, "{} is read-only", shown(folder)),
        }
    }
}

/// Returns azureal's folder in the git directory of the project whose own store is this file, whether the folder exists or not.
pub(crate) fn of_store(file: &Path) -> Result<PathBuf, NotInGit> {
    let is_named = |path: &Path, name: &str| path.file_name().is_some_and(|found| found == name);
    let Some(folder) = file.parent().filter(|folder| is_named(file, PROJECT_STORE) && is_named(folder, OURS))
    else {
        return Err(NotInGit::NotTheProjects);
    };
    let root = match folder.parent() {
        Some(root) if !root.as_os_str().is_empty() => root,
        _ => Path::new("."),
    };
    let root = fs::canonicalize(root).map_err(|_| NotInGit::NoRepository)?;
    let git = git_directory(&root)?;
    let uid = |path: &Path| fs::symlink_metadata(path).map(|found| found.uid()).ok();
    let owner = uid(&root.join(OURS)).or_else(|| uid(&root));
    if owner.is_none() || owner != uid(&git) {
        return Err(NotInGit::OtherOwner(git));
    }
    Ok(git.join(OURS_IN_GIT))
}

/// Checks that this process can keep its files in azureal's folder in a git directory. Creates nothing.
pub(crate) fn check_usable(folder: &Path) -> Result<(), NotInGit> {
    let git = folder.parent().unwrap_or(Path::new("/"));
    let ours = rustix::process::geteuid().as_raw();
    if fs::metadata(git).ok().is_none_or(|git| git.uid() != ours) {
        return Err(NotInGit::OtherOwner(git.to_owned()));
    }
    match fs::symlink_metadata(folder) {
        Err(_) if !is_writable(git) => Err(NotInGit::ReadOnly(git.to_owned())),
        // The use of a link is an error that names it: a turn behind it may be running.
        Err(_) => Ok(()),
        Ok(found) if found.is_symlink() => Ok(()),
        Ok(found) if !found.is_dir() => Err(NotInGit::NoFolder(folder.to_owned())),
        Ok(found) if found.uid() != ours => Err(NotInGit::OtherOwner(folder.to_owned())),
        Ok(found) if found.mode() & 0o077 != 0 => Err(NotInGit::OpenToOthers(folder.to_owned())),
        Ok(_) if !is_writable(folder) => Err(NotInGit::ReadOnly(folder.to_owned())),
        Ok(_) => Ok(()),
    }
}

/// Returns whether files can be created in a folder, as far as the system tells.
fn is_writable(folder: &Path) -> bool {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    let found = rustix::fs::accessat(CWD, folder, access, AtFlags::EACCESS);
    !matches!(found, Err(Errno::ROFS | Errno::ACCESS | Errno::PERM))
}

/// Returns the git directory of the main worktree in this folder, or the folder itself if it is a bare repository.
///
/// A link or a `.git` file may lead anywhere, and may have come with a download. It counts if the git directory is in the
/// project, or says itself that this is its worktree.
fn git_directory(root: &Path) -> Result<PathBuf, NotInGit> {
    let dot_git = root.join(".git");
    let Ok(found) = fs::symlink_metadata(&dot_git) else {
        let is_repository = root.join("HEAD").is_file() && root.join("objects").is_dir();
        let is_bare = is_repository && Config::of(root).is_bare;
        return if is_bare { Ok(root.to_owned()) } else { Err(NotInGit::NoRepository) };
    };
    if found.is_dir() {
        return if dot_git.join("HEAD").exists() { Ok(dot_git) } else { Err(NotInGit::NoRepository) };
    }
    let target = if found.is_symlink() { Some(dot_git.clone()) } else { pointer(&dot_git, "gitdir:") };
    let git = target.and_then(|target| fs::canonicalize(target).ok()).ok_or(NotInGit::NoRepository)?;
    // A directory with this file is that of a linked worktree: the repository's own is the main worktree's.
    if !git.join("HEAD").exists() || git.join("commondir").exists() {
        return Err(NotInGit::NoRepository);
    }
    let names_root = || {
        let worktree = Config::of(&git).worktree.and_then(|path| fs::canonicalize(git.join(path)).ok());
        worktree.is_some_and(|worktree| worktree == root)
    };
    if git.starts_with(root) || names_root() { Ok(git) } else { Err(NotInGit::Unconfirmed(git)) }
}

/// The files and folders of a project's own store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreLayout {
    /// The file.
    pub file: PathBuf,
    /// Azureal's folder in the git directory, which the file has its second name in: for [`SqliteOptions`](azureal_store::sqlite::SqliteOptions).
    pub in_git: Option<PathBuf>,
    /// Its folders.
    pub folders: StoreFolders,
    /// The second name that the file has, or gets with its next change; or the reason why it gets none.
    pub second_name: Result<PathBuf, String>,
}

impl StoreLayout {
    /// Returns where the store in this file has its folders, whether the file exists or not.
    pub fn of(file: &Path) -> Self {
        let in_git = of_store(file);
        let usable = in_git.as_deref().map_err(Clone::clone).and_then(check_usable);
        let folders = match (&in_git, &usable) {
            (Ok(folder), Ok(())) => StoreFolders::of(file, Some(folder)),
            (Ok(folder), Err(why)) if why.is_readable() => StoreFolders::of_unwritable_git(file, folder),
            _ => StoreFolders::of(file, None),
        };
        let second_name = match (usable, &folders.second_name) {
            (Err(NotInGit::ReadOnly(_)), Some(second)) if is_same(file, second) => Ok(second.clone()),
            (Err(why), _) => Err(why.to_string()),
            (Ok(()), second) => second
                .as_deref()
                .map_or_else(|| Err(NotInGit::NotTheProjects.to_string()), |second| name_of(file, second)),
        };
        Self { file: file.to_owned(), in_git: in_git.ok(), folders, second_name }
    }
}

fn is_same(file: &Path, other: &Path) -> bool {
    let identity = |path| fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()));
    identity(file).is_some_and(|found| Some(found) == identity(other))
}

/// Returns the second name of a file that can have it.
fn name_of(file: &Path, second: &Path) -> Result<PathBuf, String> {
    let git = second.parent().and_then(Path::parent).and_then(|git| fs::metadata(git).ok());
    match (fs::symlink_metadata(file).ok(), git) {
        (Some(file), Some(git)) if file.dev() != git.dev() => {
            Err("the git directory is on another file system".to_owned())
        }
        _ => Ok(second.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Makes files with these texts, and returns what is found for the store in the folder `root`.
    fn found(files: &[(&str, &str)], root: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(top.join(root)).unwrap();
        for (path, text) in files {
            let path = top.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match text.strip_prefix("-> ") {
                Some(target) => symlink(target, path).unwrap(),
                None => fs::write(path, text.replace("[top]", top.to_str().unwrap())).unwrap(),
            }
        }
        let found = of_store(&top.join(root).join(".azureal/sessions.azs")).ok()?;
        Some(found.strip_prefix(&top).unwrap().to_str().unwrap().to_owned())
    }

    const HEAD: &str = "ref: refs/heads/main\n";

    #[test]
    fn the_folder_is_in_the_git_directory_of_the_main_worktree() {
        let some = |path: &str| Some(path.to_owned());
        assert_eq!(found(&[("p/.git/HEAD", HEAD)], "p"), some("p/.git/azureal"));
        assert_eq!(found(&[("p/.git/config", "")], "p"), None, "an empty `.git` is no repository");
        assert_eq!(found(&[], "p"), None);
        let bare = [("p/HEAD", HEAD), ("p/objects/x", ""), ("p/config", "[core]\nbare = true\n")];
        assert_eq!(found(&bare, "p"), some("p/azureal"));
        assert_eq!(found(&bare[..2], "p"), None);
    }

    #[test]
    fn a_git_directory_elsewhere_counts_if_it_names_the_project() {
        let some = |path: &str| Some(path.to_owned());
        let submodule = [
            ("p/.git/modules/sub/HEAD", HEAD),
            ("p/.git/modules/sub/config", "[core]\nworktree = ../../../sub\n"),
            ("p/sub/.git", "gitdir: ../.git/modules/sub\n"),
        ];
        assert_eq!(found(&submodule, "p/sub"), some("p/.git/modules/sub/azureal"));
        let inside = [("p/.bare/HEAD", HEAD), ("p/.git", "gitdir: ./.bare\n")];
        assert_eq!(found(&inside, "p"), some("p/.bare/azureal"));
        let separate = [
            ("git/HEAD", HEAD),
            ("git/config", "[core]\nworktree = [top]/p\n"),
            ("p/.git", "gitdir: [top]/git"),
        ];
        assert_eq!(found(&separate, "p"), some("git/azureal"));
        let linked =
            [("git/HEAD", HEAD), ("git/config", "[core]\nworktree = ../p\n"), ("p/.git", "-> ../git")];
        assert_eq!(found(&linked, "p"), some("git/azureal"));
    }

    #[test]
    fn a_download_cannot_name_the_git_directory_of_another_project() {
        let victim = ("victim/.git/HEAD", HEAD);
        assert_eq!(found(&[victim, ("p/.git", "gitdir: ../victim/.git\n")], "p"), None);
        assert_eq!(found(&[victim, ("p/.git", "-> ../victim/.git")], "p"), None);
        let named = ("victim/.git/config", "[core]\nworktree = ../../victim\n");
        assert_eq!(found(&[victim, named, ("p/.git", "gitdir: ../victim/.git\n")], "p"), None);
        let linked = [
            victim,
            ("victim/.git/worktrees/w/HEAD", HEAD),
            ("victim/.git/worktrees/w/commondir", "../..\n"),
            ("w/.git", "gitdir: ../victim/.git/worktrees/w\n"),
        ];
        assert_eq!(found(&linked, "w"), None, "a linked worktree shares the git directory with others");
    }

    #[test]
    fn only_the_projects_own_store_is_in_git() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".git")).unwrap();
        fs::write(folder.path().join(".git/HEAD"), HEAD).unwrap();
        let of = |path: &str| of_store(&folder.path().join(path)).is_ok();
        assert!(of(".azureal/sessions.azs"));
        assert!(!of(".azureal/other.azs"));
        assert!(!of("sessions.azs"));
        assert!(!of("none/.azureal/sessions.azs"));
    }
}
