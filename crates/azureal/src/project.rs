//! Which project the current directory belongs to.
//!
//! All worktrees of a git repository share one store, in the main worktree. Where that is, is read from
//! `.git` and what it points to; no program runs for it. What `.git` says is checked in both directions, as
//! git does: a folder that came with a download cannot send our history to another project.

use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use azureal_core::WorktreeFilter;

/// Where the store lies in its project.
const STORE: &str = ".azureal/sessions.azs";

/// The files that git keeps its pointers in hold one line; anything longer is not one of them.
const POINTER_LIMIT: u64 = 16 * 1024;

/// A project, and the worktree of it that we are in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Project {
    root: PathBuf,
    worktree: PathBuf,
    branch: Option<String>,
}

impl Project {
    /// Finds the project around `directory`.
    pub(crate) fn around(directory: &Path) -> Self {
        // Where that fails, what is there can still be named.
        let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        directory.ancestors().find_map(in_git).unwrap_or_else(|| outside_git(&directory))
    }

    /// Returns where the project's store is, whether it exists or not.
    pub(crate) fn store_path(&self) -> PathBuf {
        self.root.join(STORE)
    }

    /// Returns the folder of the worktree, which agents work in.
    pub(crate) fn directory(&self) -> &Path {
        &self.worktree
    }

    /// Says whether the worktree belongs to a git repository.
    pub(crate) fn is_in_git(&self) -> bool {
        self.worktree.join(".git").exists()
    }

    /// Returns the worktree as it is stored: its path relative to the root, `.` for the main one.
    pub(crate) fn worktree(&self) -> String {
        relative(&self.root, &self.worktree)
    }

    /// Returns what recognises the sessions of this worktree.
    pub(crate) fn worktree_filter(&self) -> WorktreeFilter {
        let mut names = vec![self.worktree()];
        names.extend(self.branch.clone());
        WorktreeFilter {
            names,
            last_part: self
                .worktree
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        }
    }
}

/// Looks at one folder: the project, if this folder is the top of a worktree.
fn in_git(top: &Path) -> Option<Project> {
    let dot_git = top.join(".git");
    let kind = fs::metadata(&dot_git).ok()?;
    if kind.is_dir() {
        // An empty `.git` is not a repository, for git neither.
        return dot_git.join("HEAD").exists().then(|| Project {
            root: top.to_owned(),
            worktree: top.to_owned(),
            branch: branch(&dot_git),
        });
    }
    let git_dir = pointer(&dot_git, "gitdir:");
    let main = git_dir.as_deref().and_then(|git_dir| main_worktree(&dot_git, git_dir));
    Some(Project {
        // A submodule is a project of its own, and so is whatever only pretends to be a linked worktree.
        root: main.unwrap_or_else(|| top.to_owned()),
        worktree: top.to_owned(),
        branch: git_dir.as_deref().and_then(branch),
    })
}

/// Finds the main worktree of the linked one whose `.git` file points to `git_dir`.
///
/// Nothing unless `git_dir` points back to that file and lies where the repository keeps its worktrees:
/// whoever can write there owns the repository.
fn main_worktree(dot_git: &Path, git_dir: &Path) -> Option<PathBuf> {
    let git_dir = fs::canonicalize(git_dir).ok()?;
    let common = fs::canonicalize(pointer(&git_dir.join("commondir"), "")?).ok()?;
    let back = fs::canonicalize(pointer(&git_dir.join("gitdir"), "")?).ok()?;
    let points_back = back == fs::canonicalize(dot_git).ok()?;
    let is_registered = git_dir.parent()? == common.join("worktrees");
    if !points_back || !is_registered {
        return None;
    }
    let hidden = common.file_name()?.to_string_lossy().starts_with('.');
    if hidden {
        common.parent().map(Path::to_owned)
    } else {
        // A bare repository has no main worktree; it stands for it.
        Some(common)
    }
}

/// Reads a file that holds one path, which is relative to the file's folder.
fn pointer(file: &Path, prefix: &str) -> Option<PathBuf> {
    let text = read_start(file)?;
    let path = text.strip_prefix(prefix)?.trim();
    (!path.is_empty()).then(|| file.parent().map(|folder| folder.join(path)))?
}

fn branch(git_dir: &Path) -> Option<String> {
    let head = read_start(&git_dir.join("HEAD"))?;
    let branch = head.strip_prefix("ref:")?.trim().strip_prefix("refs/heads/")?;
    Some(branch.to_owned())
}

fn read_start(file: &Path) -> Option<String> {
    // A pipe would wait for a writer.
    if !fs::metadata(file).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    let file = fs::File::open(file).ok()?;
    file.take(POINTER_LIMIT).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Outside git the store that is nearest above counts, and else a new one here.
fn outside_git(directory: &Path) -> Project {
    let root = directory.ancestors().find(|folder| folder.join(STORE).is_file()).unwrap_or(directory);
    Project { root: root.to_owned(), worktree: root.to_owned(), branch: None }
}

/// Returns `path` as seen from `base`; both are absolute.
fn relative(base: &Path, path: &Path) -> String {
    let mut base = base.components().peekable();
    let mut path = path.components().peekable();
    while base.peek().is_some() && base.peek() == path.peek() {
        base.next();
        path.next();
    }
    let up = base.map(|_| Component::ParentDir);
    let parts: PathBuf = up.chain(path).collect();
    if parts.as_os_str().is_empty() { ".".to_owned() } else { parts.to_string_lossy().into_owned() }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A folder tree in the making.
    struct Tree {
        top: PathBuf,
        _folder: TempDir,
    }

    impl Tree {
        fn new() -> Self {
            let folder = TempDir::new().unwrap();
            Self { top: fs::canonicalize(folder.path()).unwrap(), _folder: folder }
        }

        fn path(&self, path: &str) -> PathBuf {
            self.top.join(path)
        }

        fn file(&self, path: &str, text: &str) -> &Self {
            let path = self.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        fn folder(&self, path: &str) -> &Self {
            fs::create_dir_all(self.path(path)).unwrap();
            self
        }

        /// A linked worktree `top` of the repository whose common directory is `common`.
        fn linked(&self, top: &str, common: &str, branch: &str) -> &Self {
            let name = Path::new(top).file_name().unwrap().to_str().unwrap();
            let git_dir = format!("{common}/worktrees/{name}");
            let back = self.path(top).join(".git");
            self.file(&format!("{top}/.git"), &format!("gitdir: {}\n", self.path(&git_dir).display()))
                .file(&format!("{git_dir}/commondir"), "../..\n")
                .file(&format!("{git_dir}/gitdir"), &format!("{}\n", back.display()))
                .file(&format!("{git_dir}/HEAD"), &format!("ref: refs/heads/{branch}\n"))
        }

        #[track_caller]
        fn check(&self, from: &str, root: &str, worktree: &str, names: &[&str]) {
            let project = Project::around(&self.path(from));
            assert_eq!(project.store_path(), self.path(root).join(STORE));
            assert_eq!(project.worktree(), worktree);
            assert_eq!(project.worktree_filter().names, names);
        }
    }

    #[test]
    fn the_main_worktree_is_the_root() {
        let tree = Tree::new();
        tree.file("p/.git/HEAD", "ref: refs/heads/feat/x\n").folder("p/src/deep");
        tree.check("p/src/deep", "p", ".", &[".", "feat/x"]);
        tree.check("p", "p", ".", &[".", "feat/x"]);
        tree.file("p/.git/HEAD", "0123456789abcdef\n");
        tree.check("p", "p", ".", &["."]);
    }

    #[test]
    fn linked_worktrees_share_the_root_of_the_main_one() {
        let tree = Tree::new();
        tree.file("p/.git/HEAD", "ref: refs/heads/main\n")
            .linked("trees/feat", "p/.git", "feature")
            .linked("p/inside", "p/.git", "inner")
            .folder("trees/feat/src");
        tree.check("trees/feat/src", "p", "../trees/feat", &["../trees/feat", "feature"]);
        tree.check("p/inside", "p", "inside", &["inside", "inner"]);
        let filter = Project::around(&tree.path("trees/feat")).worktree_filter();
        assert!(filter.matches("/elsewhere/feat"));
    }

    #[test]
    fn relative_links_are_followed() {
        let tree = Tree::new();
        tree.file("p/.git/HEAD", "ref: refs/heads/main\n")
            .linked("w", "p/.git", "w")
            .file("w/.git", "gitdir: ../p/.git/worktrees/w\n")
            .file("p/.git/worktrees/w/gitdir", "../../../../w/.git\n");
        tree.check("w", "p", "../w", &["../w", "w"]);
    }

    #[test]
    fn a_submodule_is_a_project_of_its_own() {
        let tree = Tree::new();
        tree.file("p/.git/HEAD", "ref: refs/heads/main\n")
            .file("p/sub/.git", "gitdir: ../.git/modules/sub\n")
            .file("p/.git/modules/sub/HEAD", "ref: refs/heads/dev\n");
        tree.check("p/sub", "p/sub", ".", &[".", "dev"]);
    }

    #[test]
    fn a_bare_repository_gathers_its_worktrees() {
        let tree = Tree::new();
        tree.linked("p/main", "p/.bare", "main").linked("w", "q.git", "dev");
        tree.check("p/main", "p", "main", &["main", "main"]);
        tree.check("w", "q.git", "../w", &["../w", "dev"]);
    }

    #[test]
    fn a_forged_pointer_leads_nowhere() {
        let tree = Tree::new();
        // The victim's repository has a worktree of its own.
        tree.file("victim/.git/HEAD", "ref: refs/heads/main\n").linked("w", "victim/.git", "w");
        // One that claims to be that worktree: it does not point back.
        tree.file("bad1/.git", "gitdir: ../victim/.git/worktrees/w\n");
        tree.check("bad1", "bad1", ".", &[".", "w"]);
        // One that brings its own git directory, which points back: nobody registered it.
        tree.file("bad2/.git", "gitdir: fake\n")
            .file("bad2/fake/gitdir", "../.git\n")
            .file("bad2/fake/commondir", "../../victim/.git\n");
        tree.check("bad2", "bad2", ".", &["."]);
        // Pointers to nothing, and no pointer at all.
        tree.file("bad3/.git", "gitdir: /nonexistent/x\n");
        tree.check("bad3", "bad3", ".", &["."]);
        tree.file("bad4/.git", "gitdir:\n");
        tree.check("bad4", "bad4", ".", &["."]);
    }

    #[test]
    fn outside_git_the_nearest_store_counts() {
        let tree = Tree::new();
        tree.file("a/.azureal/sessions.azs", "").folder("a/b/c").folder("d/.git");
        tree.check("a/b/c", "a", ".", &["."]);
        // An empty `.git` is no repository.
        tree.check("d", "d", ".", &["."]);
    }
}
