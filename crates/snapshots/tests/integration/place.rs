//! A repository to take snapshots of.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use azureal_process::ChildEnvironment;
use azureal_snapshots::{FileChange, FileStatus, GitProgram, Limits, Snapshot, Taken, Worktree};

pub(crate) const SESSION: &str = "0198f9a0-0000-7000-8000-000000000001";

pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) root: PathBuf,
}

impl Place {
    /// Creates a repository with a few committed files.
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(init: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap().join("project");
        fs::create_dir_all(folder.path().join("home")).unwrap();
        fs::create_dir(&root).unwrap();
        let place = Self { folder, root };
        place.git(&[&["init", "-q", "-b", "main"], init].concat());
        place
            .write("src/a.rs", "fn a() {}\n")
            .write("src/b.rs", "one\ntwo\nthree\n")
            .write("README", "read\n");
        place.commit();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub(crate) fn commit(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-qm", "x", "--allow-empty"]);
    }

    pub(crate) fn commit_file(&self, name: &str) {
        self.git(&["add", name]);
        self.git(&["commit", "-qm", "x"]);
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        self.git_in(&self.root, args)
    }

    pub(crate) fn git_in(&self, directory: &Path, args: &[&str]) -> String {
        let output = self.command(directory, args).output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn command(&self, directory: &Path, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.args(["-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"]).args(args);
        command.current_dir(directory).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", self.folder.path().join("home"));
        for name in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{name}_NAME"), "A").env(format!("GIT_{name}_EMAIL"), "a@b.example");
        }
        command
    }

    pub(crate) fn program(&self) -> GitProgram {
        let home = self.folder.path().join("home");
        let mut environment = ChildEnvironment::default();
        environment.set("PATH", std::env::var_os("PATH").unwrap());
        environment.set("HOME", home);
        // What a user's shell may have set; it must not matter.
        environment.set("GIT_DIR", "/nonexistent");
        environment.set("GIT_INDEX_FILE", "/nonexistent");
        GitProgram { program: "git".into(), environment }
    }

    pub(crate) fn worktree(&self) -> Worktree {
        Worktree::open(&self.root, &self.program()).unwrap().expect("a worktree")
    }

    pub(crate) fn take(&self) -> Snapshot {
        take(&self.worktree())
    }

    /// Returns all files of the project's git directory but ours, with their content, mode and time.
    ///
    /// Without the times of objects: git renews them instead of writing an object that is there.
    pub(crate) fn git_files(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32, i64)> {
        let mut found = BTreeMap::new();
        collect(&self.path(".git"), &mut |path| path.ends_with(".git/azureal"), &mut found);
        for (path, (_, _, time)) in &mut found {
            if path.starts_with(self.path(".git/objects")) {
                *time = 0;
            }
        }
        found
    }

    /// Returns all files of the worktree but those of git.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32)> {
        let mut found = BTreeMap::new();
        collect(&self.root, &mut |path| path.ends_with(".git"), &mut found);
        found.into_iter().map(|(path, (bytes, mode, _))| (path, (bytes, mode))).collect()
    }
}

pub(crate) fn take(worktree: &Worktree) -> Snapshot {
    let limits = Limits { time: std::time::Duration::from_secs(60), ..Limits::default() };
    match worktree.take(SESSION, &limits, &|| false).unwrap() {
        Taken::Whole(snapshot) => snapshot,
        other => panic!("{other:?}"),
    }
}

/// Takes the first snapshot of a turn.
pub(crate) fn begin(worktree: &Worktree) -> String {
    taken(worktree, &Limits { drops_ignored: true, ..patient() })
}

/// Takes the last snapshot of a turn that began with another one.
pub(crate) fn end(worktree: &Worktree, since: &str) -> String {
    taken(worktree, &Limits { since: Some(since.to_owned()), ..patient() })
}

pub(crate) fn patient() -> Limits {
    Limits { time: std::time::Duration::from_secs(60), ..Limits::default() }
}

pub(crate) fn taken(worktree: &Worktree, limits: &Limits) -> String {
    match worktree.take(SESSION, limits, &|| false).unwrap() {
        Taken::Whole(snapshot) => snapshot.tree,
        other => panic!("{other:?}"),
    }
}

fn collect(
    folder: &Path,
    is_left_out: &mut dyn FnMut(&Path) -> bool,
    found: &mut BTreeMap<PathBuf, (Vec<u8>, u32, i64)>,
) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if is_left_out(&path) {
            continue;
        }
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            collect(&path, is_left_out, found);
        }
        let bytes = if metadata.is_symlink() {
            fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
        } else if metadata.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        found.insert(path, (bytes, metadata.mode(), metadata.mtime()));
    }
}

/// Returns changes as short texts: `M src/a.rs +1 -0`.
pub(crate) fn shown(changes: &[FileChange]) -> Vec<String> {
    let number =
        |sign: &str, count: Option<u64>| count.map_or("?".to_owned(), |count| format!("{sign}{count}"));
    let line = |change: &FileChange| {
        let status = match &change.status {
            FileStatus::Added => "A".to_owned(),
            FileStatus::Modified => "M".to_owned(),
            FileStatus::Deleted => "D".to_owned(),
            FileStatus::Renamed { from } => format!("R {} ->", from.display()),
            FileStatus::ModeChanged => "mode".to_owned(),
            FileStatus::TypeChanged => "type".to_owned(),
        };
        let stored = if change.is_stored { "" } else { " not stored" };
        let (added, removed) = (number("+", change.added), number("-", change.removed));
        format!("{status} {} {added} {removed}{stored}", change.path.display())
    };
    changes.iter().map(line).collect()
}

pub(crate) fn link(target: impl AsRef<Path>, path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(target, path).unwrap();
}

pub(crate) fn os(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}
