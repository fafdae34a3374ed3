//! Which project the current directory belongs to.
//!
//! All worktrees of a git repository share one store, in the main worktree. Where that is, is read from
//! `.git` and what it points to; no program runs for it. What `.git` says is checked in both directions, as
//! git does: a folder that came with a download cannot send our history to another project.

use std::fs;
use std::path::{Component, Path, PathBuf};

use azureal_core::WorktreeFilter;
use tracing::{debug, info};

use crate::config::owner::Owners;
use crate::environment::Environment;
use crate::error::Error;
use crate::error::shown;
use crate::git_config::{self, Entry, read_start};

/// Where the store lies in its project.
pub(crate) const STORE: &str = ".azureal/sessions.azs";

/// The files that git keeps its pointers in hold one line; anything longer is not one of them.
const POINTER_LIMIT: u64 = 16 * 1024;

/// A project, and the worktree of it that we are in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    root: PathBuf,
    worktree: PathBuf,
    /// The directories of the repository that decided where its root is. Empty outside git.
    git_dirs: Vec<PathBuf>,
    branch: Option<String>,
    warning: Option<String>,
}

impl Project {
    /// Finds the project around `directory`.
    ///
    /// # Errors
    ///
    /// Another user owns it, or part of it, and this user has not allowed that: see [`Owners`].
    pub fn around(directory: &Path, environment: &Environment) -> Result<Self, Error> {
        let project = Self::of_any_owner(directory);
        Owners::of(environment).check(&project)?;
        Ok(project)
    }

    /// Finds the project around `directory`, of any owner.
    pub fn of_any_owner(directory: &Path) -> Self {
        // Where that fails, what is there can still be named.
        let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        let project = directory.ancestors().find_map(in_git).unwrap_or_else(|| outside_git(&directory));
        let in_git = !project.git_dirs.is_empty();
        debug!(root = ?project.root, worktree = ?project.worktree, in_git, "found the project");
        project
    }

    /// Returns the folders that make up the project, each with everything in it that azureal relies on. The top of a
    /// folder outside git is not among that: in a shared folder it is usually another user's.
    pub fn claims(&self) -> Vec<(&Path, Vec<PathBuf>)> {
        let store = self.store_path();
        let mut of_root: Vec<PathBuf> =
            store.parent().map(Path::to_owned).into_iter().chain([store]).collect();
        if self.git_dirs.is_empty() {
            return vec![(&self.root, of_root)];
        }
        of_root.insert(0, self.root.clone());
        let of_worktree = std::iter::once(&self.worktree).chain(&self.git_dirs).cloned().collect();
        vec![(&self.worktree, of_worktree), (&self.root, of_root)]
    }

    /// Returns what the user should know about how it was found.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Returns where the project's store is, whether it exists or not.
    pub fn store_path(&self) -> PathBuf {
        self.root.join(STORE)
    }

    /// Returns the store in the folder of a linked worktree, where the original program keeps one for each; `None` if there is none. The project
    /// itself has one store, in its main worktree.
    pub fn store_of_worktree(&self) -> Option<PathBuf> {
        let path = self.worktree.join(STORE);
        (path != self.store_path() && path.symlink_metadata().is_ok_and(|found| found.is_file()))
            .then_some(path)
    }

    /// Returns the name of the project on a server that several share: host and path of the repository that it was cloned
    /// from, such as `git.example/team/engine`, which are the same for everybody; else the name of its folder.
    pub fn shared_name(&self) -> SharedName {
        let dot_git = self.root.join(".git");
        let git_dir = if dot_git.is_dir() { Some(dot_git) } else { pointer(&dot_git, "gitdir:") };
        // A bare repository stands for its worktree.
        let origin = Config::of(git_dir.as_deref().unwrap_or(&self.root)).origin;
        origin.as_deref().and_then(name_of_remote).unwrap_or_else(|| {
            let name =
                self.root.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            SharedName { name, former: None }
        })
    }

    /// Returns the root of the project: the main worktree, or the folder of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder of the worktree, which agents work in.
    pub fn directory(&self) -> &Path {
        &self.worktree
    }

    /// Returns the branch that is checked out; `None` without one.
    pub fn branch(&self) -> Option<&str> {
        self.branch.as_deref()
    }

    /// Says whether the worktree belongs to a git repository.
    pub fn is_in_git(&self) -> bool {
        self.worktree.join(".git").exists()
    }

    /// Returns the worktree as it is stored: its path relative to the root, `.` for the main one.
    pub fn worktree(&self) -> String {
        relative(&self.root, &self.worktree)
    }

    /// Returns what recognises the sessions of this worktree.
    pub fn worktree_filter(&self) -> WorktreeFilter {
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

/// The name of a project on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedName {
    /// The name.
    pub name: String,
    /// The name that the first release gave it: without the host.
    pub former: Option<String>,
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
            git_dirs: vec![dot_git],
            warning: None,
        });
    }
    let git_dir = pointer(&dot_git, "gitdir:");
    let lost = git_dir.as_deref().filter(|git_dir| !git_dir.exists());
    let warning = lost.map(|lost| {
        format!(
            "{} points to {}, which is not there: {} is taken for a project of its own",
            shown(&dot_git),
            shown(lost),
            shown(top)
        )
    });
    let main = git_dir.as_deref().and_then(|git_dir| main_worktree(&dot_git, git_dir));
    Some(Project {
        // A submodule is a project of its own, and so is whatever only pretends to be a linked worktree.
        root: main.unwrap_or_else(|| top.to_owned()),
        worktree: top.to_owned(),
        branch: git_dir.as_deref().and_then(branch),
        git_dirs: git_dirs(&dot_git, git_dir.as_deref()),
        warning,
    })
}

/// Returns the directory that a `.git` file points to and the one that this shares with the other worktrees. The file
/// itself if it points nowhere: it makes a project all the same.
fn git_dirs(dot_git: &Path, git_dir: Option<&Path>) -> Vec<PathBuf> {
    let common = git_dir.and_then(|git_dir| pointer(&git_dir.join("commondir"), ""));
    let dirs = git_dir.map(Path::to_owned).into_iter().chain(common);
    std::iter::once(dot_git.to_owned()).chain(dirs).collect()
}

/// Finds the main worktree of the linked one whose `.git` file points to `git_dir`.
///
/// Nothing unless `git_dir` points back to that file and lies where the repository keeps its worktrees:
/// a user who can write there controls the repository.
fn main_worktree(dot_git: &Path, git_dir: &Path) -> Option<PathBuf> {
    let git_dir = fs::canonicalize(git_dir).ok()?;
    let common = fs::canonicalize(pointer(&git_dir.join("commondir"), "")?).ok()?;
    let back = fs::canonicalize(pointer(&git_dir.join("gitdir"), "")?).ok()?;
    let points_back = back == fs::canonicalize(dot_git).ok()?;
    let is_registered = git_dir.parent()? == common.join("worktrees");
    if !points_back || !is_registered {
        info!(
            ?git_dir,
            points_back, is_registered, "ignored a `.git` file: its repository does not confirm it"
        );
        return None;
    }
    let config = Config::of(&common);
    if let Some(worktree) = config.worktree.and_then(|path| fs::canonicalize(common.join(path)).ok())
        && belongs_to(&worktree, &common)
    {
        return Some(worktree);
    }
    let parent = common.parent()?;
    if parent.components().any(|part| part.as_os_str() == ".git") {
        // The inside of another repository is no place for history.
        return None;
    }
    let name = common.file_name()?.to_string_lossy();
    match (name.as_ref(), config.is_bare) {
        (".git", _) => Some(parent.to_owned()),
        // A bare repository has no main worktree. It stands for it, or the folder that hides it does.
        (hidden, true) if hidden.starts_with('.') => Some(parent.to_owned()),
        (_, true) => Some(common),
        // The main worktree is somewhere, and nothing says where.
        (_, false) => None,
    }
}

/// Says whether a folder is a worktree of the repository whose directory is `common`: what a repository says
/// of another folder counts only if that folder agrees.
fn belongs_to(worktree: &Path, common: &Path) -> bool {
    let dot_git = worktree.join(".git");
    let git_dir = if dot_git.is_dir() { Some(dot_git) } else { pointer(&dot_git, "gitdir:") };
    git_dir.and_then(|git_dir| fs::canonicalize(git_dir).ok()).is_some_and(|git_dir| git_dir == common)
}

/// What a repository's own configuration says of its worktree.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) worktree: Option<String>,
    pub(crate) is_bare: bool,
    /// Where it was cloned from.
    origin: Option<String>,
}

impl Config {
    pub(crate) fn of(common: &Path) -> Self {
        let mut config = Self::default();
        // The second one is that of the main worktree alone, where the repository uses it.
        for file in ["config", "config.worktree"] {
            config.read(&git_config::read(&common.join(file)));
        }
        config
    }

    fn read(&mut self, text: &str) {
        for Entry { section, name, value } in git_config::entries(text) {
            if section == "remote \"origin\"" && name.eq_ignore_ascii_case("url") {
                self.origin = Some(value);
            } else if section.eq_ignore_ascii_case("core") && name.eq_ignore_ascii_case("worktree") {
                self.worktree = Some(value);
            } else if section.eq_ignore_ascii_case("core") && name.eq_ignore_ascii_case("bare") {
                self.is_bare = matches!(value.to_ascii_lowercase().as_str(), "true" | "yes" | "on" | "1");
            }
        }
    }
}

/// Returns the name of a repository: its host and its path there. Scheme, port, user and password are left out: these
/// differ between people who clone the same. Of a folder on this machine it is the name.
fn name_of_remote(url: &str) -> Option<SharedName> {
    let (host, path) = match url.split_once("://") {
        Some(("file", path)) => (None, path.rsplit('/').find(|part| !part.is_empty())?),
        Some((_, rest)) => {
            let (authority, path) = rest.split_once('/')?;
            (Some(host_of(authority)?), path)
        }
        None => match url.split_once(':') {
            // `git@host:team/engine.git`
            Some((authority, path)) if !authority.contains('/') => (Some(host_of(authority)?), path),
            Some(_) | None => (None, url.rsplit('/').find(|part| !part.is_empty())?),
        },
    };
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path).trim_matches('/');
    if path.is_empty() {
        return None;
    }
    Some(match host {
        Some(host) => SharedName { name: format!("{host}/{path}"), former: Some(path.to_owned()) },
        None => SharedName { name: path.to_owned(), former: None },
    })
}

/// Returns the host of `user:password@host:port`, in lower case. Without one there is no name: the path alone would be
/// that of another server's repository.
fn host_of(authority: &str) -> Option<String> {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(address) => address.split(']').next()?,
        None => host.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

/// Reads a file that holds one path, which is relative to the file's folder.
pub(crate) fn pointer(file: &Path, prefix: &str) -> Option<PathBuf> {
    let text = read_start(file, POINTER_LIMIT)?;
    let path = text.strip_prefix(prefix)?.trim();
    (!path.is_empty()).then(|| file.parent().map(|folder| folder.join(path)))?
}

fn branch(git_dir: &Path) -> Option<String> {
    let head = read_start(&git_dir.join("HEAD"), POINTER_LIMIT)?;
    let branch = head.strip_prefix("ref:")?.trim().strip_prefix("refs/heads/")?;
    Some(branch.to_owned())
}

/// Outside git the nearest store above counts, and else a new one here.
fn outside_git(directory: &Path) -> Project {
    let root = directory.ancestors().find(|folder| folder.join(STORE).is_file()).unwrap_or(directory);
    Project {
        root: root.to_owned(),
        worktree: root.to_owned(),
        git_dirs: Vec::new(),
        branch: None,
        warning: None,
    }
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
            let project = Project::of_any_owner(&self.path(from));
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
        let filter = Project::of_any_owner(&tree.path("trees/feat")).worktree_filter();
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
        tree.file("p/.bare/config", "[core]\n\tbare = true\n").file("q.git/config", "[Core] bare\n");
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
    fn a_repository_cannot_send_history_to_a_folder_that_is_not_its_own() {
        let tree = Tree::new();
        tree.file("victim/.git/HEAD", "ref: refs/heads/main\n");
        // All of it came with a download, and points to itself as it should.
        tree.linked("bad/w", "bad/fake", "w").file("bad/fake/config", "[core]\nworktree = ../../victim\n");
        tree.check("bad/w", "bad/w", ".", &[".", "w"]);
        // With the victim's agreement it counts.
        tree.file("good/.git", "gitdir: ../bad/fake\n")
            .file("bad/fake/config", "[core]\nworktree = ../../good # here\n");
        tree.check("bad/w", "good", "../bad/w", &["../bad/w", "w"]);
    }

    #[test]
    fn the_inside_of_a_repository_is_no_place_for_a_store() {
        let tree = Tree::new();
        tree.file("p/.git/HEAD", "ref: refs/heads/main\n").linked("w", "p/.git/modules/sub", "w");
        tree.check("w", "w", ".", &[".", "w"]);
        tree.linked("v", "p/.git/modules/a/.git", "v");
        tree.check("v", "v", ".", &[".", "v"]);
    }

    #[test]
    fn a_pointer_to_nothing_is_told() {
        let tree = Tree::new();
        tree.file("a/.git", "gitdir: /nonexistent/x\ny\n").file("b/.git/HEAD", "");
        let warning = |path: &str| Project::of_any_owner(&tree.path(path)).warning().map(str::to_owned);
        let told = warning("a").unwrap();
        assert!(told.contains("/nonexistent/x\u{240a}y, which is not there"), "{told}");
        assert_eq!(warning("b"), None);
    }

    #[test]
    fn a_configuration_is_read_as_git_reads_it() {
        let read = |text: &str| {
            let mut config = Config::default();
            config.read(text);
            (config.worktree, config.is_bare)
        };
        let found = |path: &str| Some(path.to_owned());
        assert_eq!(read("[core]\n\tbare = false\n\tworktree = ../x y\n"), (found("../x y"), false));
        assert_eq!(read("[CORE]\nWorkTree=\"a # \\\"b\" ; c\nbare = Yes"), (found("a # \"b"), true));
        assert_eq!(read("[core \"x\"]\nworktree = a\n[remote]\nworktree = b"), (None, false));
        assert_eq!(read("[core] bare # really"), (None, true));
        assert_eq!(read("[core] bare\n[x] worktree = ]"), (None, true));
    }

    #[test]
    fn everybody_who_cloned_a_repository_calls_it_the_same() {
        let one = Some(("host.example/team/engine", Some("team/engine")));
        let rows = [
            ("git@host.example:team/engine.git", one),
            ("https://ada:token@host.example/team/engine.git", one),
            ("https://HOST.example/team/engine/", one),
            ("ssh://git@host.example:22/team/engine", one),
            (
                "https://host.example@evil.example/team/engine",
                Some(("evil.example/team/engine", Some("team/engine"))),
            ),
            ("ssh://git@[::1]:22/team/engine", Some(("::1/team/engine", Some("team/engine")))),
            ("/srv/git/engine.git", Some(("engine", None))),
            ("file:///srv/git/engine.git/", Some(("engine", None))),
            ("../engine", Some(("engine", None))),
            ("https://host.example", None),
            ("https:///team/engine", None),
            (":team/engine", None),
            ("", None),
        ];
        for (url, expected) in rows {
            let found = name_of_remote(url);
            let found = found.as_ref().map(|found| (found.name.as_str(), found.former.as_deref()));
            assert_eq!(found, expected, "{url}");
        }
        let tree = Tree::new();
        tree.file("p/.git/HEAD", "ref: refs/heads/main\n")
            .file(
                "p/.git/config",
                "[remote \"fork\"]\nurl = a:b/c\n[remote \"origin\"]\n\turl = h:team/engine.git\n",
            )
            .linked("w", "p/.git", "w")
            .file("q/.git/HEAD", "ref: refs/heads/main\n");
        let name = |path: &str| Project::of_any_owner(&tree.path(path)).shared_name().name;
        assert_eq!([name("p"), name("w"), name("q")], ["h/team/engine", "h/team/engine", "q"]);
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
