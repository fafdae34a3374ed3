//! Finds the git directories of a worktree. No program decides where we write.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::error::Error;
use crate::git::{Deadline, Git, OUTPUT, PATIENT, args};

/// Git's pointers are files of one line.
const POINTER: u64 = 16 * 1024;

/// The directories of a worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    /// The top of the worktree.
    pub(crate) root: PathBuf,
    /// The git directory of this worktree: it has the index.
    pub(crate) git_dir: PathBuf,
    /// The git directory that all worktrees share: it has the objects.
    pub(crate) common: PathBuf,
    /// The object format of the project: `sha1` or `sha256`.
    pub(crate) format: ObjectFormat,
    pub(crate) case: Case,
}

/// How names that differ by case alone are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    /// Git compares paths and rules without regard to case: `core.ignoreCase`, or the file system does it.
    pub(crate) is_ignored: bool,
    /// The file system does it.
    pub(crate) is_one_file: bool,
}

impl Case {
    /// Returns a path so that all that are the same one are equal.
    pub(crate) fn fold(self, path: &[u8]) -> Vec<u8> {
        if self.is_ignored {
            String::from_utf8_lossy(path).to_lowercase().into_bytes()
        } else {
            path.to_vec()
        }
    }
}

/// The hash function of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectFormat {
    Sha1,
    Sha256,
}

impl ObjectFormat {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    /// Returns the id of the tree without files, which git knows without an object.
    pub(crate) fn empty_tree(self) -> &'static str {
        match self {
            Self::Sha1 => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
            Self::Sha256 => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
        }
    }

    /// Returns the length of an object id, in bytes.
    pub(crate) fn length(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }
}

impl Places {
    /// Finds the directories of the worktree with this top. `None` if it is none, or if its repository does not confirm it.
    ///
    /// A `.git` file may have come with a download, and may name the repository of another project. It counts if the repository
    /// is inside the worktree, if it registered the worktree, or if its `core.worktree` names it.
    pub(crate) fn find(root: &Path, git: &Git) -> Result<Option<Self>, Error> {
        let Some(found) = Directories::find(root) else { return Ok(None) };
        let Directories { root, git_dir, common, is_linked } = found;
        let settings = settings(git, &common)?;
        let is_confirmed = if is_linked {
            let back = pointer(&git_dir.join("gitdir"), b"").and_then(|path| fs::canonicalize(path).ok());
            back == Some(root.join(".git")) && git_dir.parent() == Some(&common.join("worktrees"))
        } else {
            let named = settings.worktree.map(|path| git_dir.join(path));
            git_dir.starts_with(&root)
                || named.and_then(|path| fs::canonicalize(path).ok()).as_ref() == Some(&root)
        };
        let is_one_file = ignores_case(&root);
        let case = Case { is_ignored: settings.ignores_case || is_one_file, is_one_file };
        Ok(is_confirmed.then_some(Self { root, git_dir, common, format: settings.format, case }))
    }

    /// Returns the name of the worktree among those of its repository.
    pub(crate) fn name(&self) -> OsString {
        name(&self.git_dir, &self.common)
    }
}

/// The directories that a worktree names. Its repository need not confirm them: they are for looking alone.
pub(crate) struct Directories {
    root: PathBuf,
    git_dir: PathBuf,
    common: PathBuf,
    is_linked: bool,
}

impl Directories {
    /// Finds the directories of the worktree with this top, if they are of this user. Starts no git.
    pub(crate) fn find(root: &Path) -> Option<Self> {
        let root = fs::canonicalize(root).ok()?;
        let dot_git = root.join(".git");
        let found = fs::symlink_metadata(&dot_git).ok()?;
        let git_dir = if found.is_dir() || found.is_symlink() {
            fs::canonicalize(&dot_git).ok()
        } else {
            pointer(&dot_git, b"gitdir:").and_then(|path| fs::canonicalize(path).ok())
        };
        let git_dir = git_dir.filter(|git_dir| git_dir.join("HEAD").exists())?;
        let linked = pointer(&git_dir.join("commondir"), b"");
        let common = match &linked {
            Some(common) => fs::canonicalize(common).ok()?,
            None => git_dir.clone(),
        };
        let ours = rustix::process::geteuid().as_raw();
        let is_ours =
            |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == ours);
        (is_ours(&common) && is_ours(&git_dir)).then_some(Self {
            root,
            git_dir,
            common,
            is_linked: linked.is_some(),
        })
    }

    /// Returns the name of the worktree among those of its repository.
    pub(crate) fn name(&self) -> OsString {
        name(&self.git_dir, &self.common)
    }

    /// Returns the folder of the snapshots, whether it exists or not.
    pub(crate) fn snapshots(&self) -> PathBuf {
        snapshots(&self.common)
    }
}

fn name(git_dir: &Path, common: &Path) -> OsString {
    if git_dir == common {
        return OsString::from("main");
    }
    let mut name = OsString::from("linked-");
    name.push(git_dir.file_name().unwrap_or(OsStr::new("")));
    name
}

/// Returns the folder of the snapshots in a git directory.
pub(crate) fn snapshots(common: &Path) -> PathBuf {
    common.join(azureal_files::OURS_IN_GIT).join("snapshots")
}

/// Reads the path in a file of git, relative to the file's folder.
fn pointer(file: &Path, prefix: &[u8]) -> Option<PathBuf> {
    let text = read_start(file, POINTER)?;
    let path = text.strip_prefix(prefix)?.trim_ascii();
    (!path.is_empty()).then(|| file.parent().unwrap_or(Path::new(".")).join(OsStr::from_bytes(path)))
}

/// Reads a plain file up to a bound. `None` if it is none or is longer.
pub(crate) fn read_start(file: &Path, limit: u64) -> Option<Vec<u8>> {
    // The opening of a pipe would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(file, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(limit + 1).read_to_end(&mut text).ok()?;
    (text.len() as u64 <= limit).then_some(text)
}

struct Settings {
    worktree: Option<PathBuf>,
    format: ObjectFormat,
    ignores_case: bool,
}

/// Returns whether git takes the text for `true`.
fn is_true(value: &[u8]) -> bool {
    let word = value.to_ascii_lowercase();
    matches!(&word[..], b"true" | b"yes" | b"on")
        || std::str::from_utf8(&word).is_ok_and(|word| word.parse::<i64>().is_ok_and(|number| number != 0))
}

/// Returns whether the file system of a worktree takes `.GIT` for its `.git`.
fn ignores_case(root: &Path) -> bool {
    let identity =
        |name: &str| fs::symlink_metadata(root.join(name)).ok().map(|found| (found.dev(), found.ino()));
    let (git, other) = (identity(".git"), identity(".GIT"));
    git.is_some() && git == other
}

/// Reads three settings of the project. `--file` follows no include and executes nothing.
fn settings(git: &Git, common: &Path) -> Result<Settings, Error> {
    let mut command = args(["config", "-z", "--no-includes", "--file"]);
    command.push(common.join("config").into());
    command.extend(args(["--get-regexp", r"^(core\.(worktree|ignorecase)|extensions\.objectformat)$"]));
    let output = git.start(&command, Vec::new(), OUTPUT)?.finish_search(Deadline::after(PATIENT))?;
    let mut settings = Settings { worktree: None, format: ObjectFormat::Sha1, ignores_case: false };
    for entry in output.split(|byte| *byte == 0) {
        let end = entry.iter().position(|byte| *byte == b'\n').unwrap_or(entry.len());
        let (name, value) = entry.split_at(end);
        // A name alone stands for `true`.
        let value = value.get(1..).unwrap_or(b"true");
        match name {
            b"core.worktree" => settings.worktree = Some(PathBuf::from(OsStr::from_bytes(value))),
            b"extensions.objectformat" if value == b"sha256" => settings.format = ObjectFormat::Sha256,
            b"core.ignorecase" => settings.ignores_case = is_true(value),
            _ => {}
        }
    }
    Ok(settings)
}

/// Returns the file of ignore rules outside the repository, as git finds it for this worktree: `core.excludesFile` of any of its
/// configurations, or the default.
pub(crate) fn user_excludes(git: &Git, root: &Path) -> Result<Option<PathBuf>, Error> {
    let command = args(["config", "-z", "--type=path", "--get", "core.excludesFile"]);
    let output = git.start(&command, Vec::new(), OUTPUT)?.finish_search(Deadline::after(PATIENT))?;
    if let Some(path) = output.strip_suffix(b"\0") {
        // An empty one stands for no file.
        return Ok((!path.is_empty()).then(|| root.join(OsStr::from_bytes(path))));
    }
    let folder = |name: &str| git.variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let configuration = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    Ok(configuration.map(|folder| folder.join("git/ignore")))
}
