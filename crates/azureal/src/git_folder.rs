//! The folder of azureal in the git directory of a project.
//!
//! `git clean -fdx` deletes whatever git does not track, but nothing in its own directory. What is found depends on the file of
//! the store alone, not on the current directory: processes that share a store agree on its folders.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use azureal_files::{OURS, OURS_IN_GIT};
use tracing::info;

use crate::project::{Config, pointer};

/// The name of a project's own store.
const STORE: &str = "sessions.azs";

/// Returns azureal's folder in the git directory of the project whose own store is this file, whether the folder exists or not.
///
/// `None` if the file is not `.azureal/sessions.azs`, the project is no repository, its git directory is another project's, or
/// another user owns it.
pub(crate) fn of_store(file: &Path) -> Option<PathBuf> {
    let folder = file.parent()?;
    if file.file_name()? != STORE || folder.file_name()? != OURS {
        return None;
    }
    let root = folder.parent()?;
    let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
    let root = fs::canonicalize(root).ok()?;
    let git = git_directory(&root)?;
    let store = fs::symlink_metadata(root.join(OURS)).or_else(|_| fs::metadata(&root)).ok()?;
    if fs::metadata(&git).ok()?.uid() != store.uid() {
        info!(?git, "ignored a git directory: it belongs to another user than the store");
        return None;
    }
    Some(git.join(OURS_IN_GIT))
}

/// Returns whether this user owns the git directory that the folder is in, and so can write there.
pub(crate) fn is_ours(folder: &Path) -> bool {
    let git = folder.parent().and_then(|git| fs::metadata(git).ok());
    git.is_some_and(|git| git.uid() == rustix::process::geteuid().as_raw())
}

/// Returns the git directory of the main worktree in this folder, or the folder itself if it is a bare repository.
///
/// A link or a `.git` file may lead anywhere, and may have come with a download. It counts if the git directory is in the
/// project, or says itself that this is its worktree.
fn git_directory(root: &Path) -> Option<PathBuf> {
    let dot_git = root.join(".git");
    let Ok(found) = fs::symlink_metadata(&dot_git) else {
        let is_repository = root.join("HEAD").is_file() && root.join("objects").is_dir();
        return (is_repository && Config::of(root).is_bare).then(|| root.to_owned());
    };
    if found.is_dir() {
        return dot_git.join("HEAD").exists().then_some(dot_git);
    }
    let target = if found.is_symlink() { dot_git.clone() } else { pointer(&dot_git, "gitdir:")? };
    let git = fs::canonicalize(target).ok()?;
    // A directory with this file is that of a linked worktree: the repository's own is the main worktree's.
    if !git.join("HEAD").exists() || git.join("commondir").exists() {
        return None;
    }
    let names_root = || {
        let worktree = Config::of(&git).worktree.and_then(|path| fs::canonicalize(git.join(path)).ok());
        worktree.is_some_and(|worktree| worktree == root)
    };
    if git.starts_with(root) || names_root() {
        return Some(git);
    }
    info!(?git, "ignored a git directory: it does not say that this is its worktree");
    None
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
        let found = of_store(&top.join(root).join(".azureal/sessions.azs"))?;
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
        let of = |path: &str| of_store(&folder.path().join(path)).is_some();
        assert!(of(".azureal/sessions.azs"));
        assert!(!of(".azureal/other.azs"));
        assert!(!of("sessions.azs"));
        assert!(!of("none/.azureal/sessions.azs"));
    }
}
