//! The files of a worktree at one time, and what git itself says of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use super::acts::{PATHS, RULE_FILES};

/// A file: its kind, its content and whether it can be executed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) bytes: Vec<u8>,
    is_executable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Link,
    Pipe,
    /// More than a snapshot stores.
    Large,
}

pub(super) type Files = BTreeMap<Vec<u8>, Entry>;

/// The files of a worktree, and those of them that git does not ignore.
#[derive(Clone)]
pub(super) struct State {
    pub(super) files: Files,
    /// `None` if git cannot be asked: a pipe is in the place of rules.
    pub(super) git: Option<GitState>,
}

#[derive(Clone)]
pub(super) struct GitState {
    /// Tracked, or not ignored.
    pub(super) listed: BTreeSet<Vec<u8>>,
    /// The paths of acts that are ignored, also if there is no file.
    pub(super) ignored: BTreeSet<Vec<u8>>,
}

const LARGE: u64 = 10_000_000;
/// What is in these folders may be of another repository.
const REPOSITORIES: [&[u8]; 3] = [b"nested/", b"sub/", b"wt/"];

/// Returns whether a path may be in another repository.
pub(super) fn is_nested(path: &[u8]) -> bool {
    REPOSITORIES.iter().any(|folder| path.starts_with(folder)) || path.windows(5).any(|part| part == b".git/")
}

impl State {
    pub(super) fn of(root: &Path, git: &dyn Fn() -> Command) -> Self {
        let mut files = Files::new();
        collect(root, Path::new(""), &mut files);
        let is_pipe =
            |(path, entry): (&Vec<u8>, &Entry)| entry.kind == Kind::Pipe && path.ends_with(b".gitignore");
        let git = if files.iter().any(is_pipe) { None } else { GitState::of(&files, git) };
        Self { files, git }
    }

    /// Returns whether a snapshot has a file.
    pub(super) fn is_recorded(&self, path: &[u8]) -> bool {
        let is_stored = |entry: &Entry| matches!(entry.kind, Kind::File | Kind::Link);
        self.files.get(path).is_some_and(is_stored)
            && self.git.as_ref().is_some_and(|git| git.listed.contains(path))
    }

    /// Returns whether a path is ignored, whether it is there or not. Not known of all paths.
    pub(super) fn may_be_ignored(&self, path: &[u8]) -> bool {
        let is_known = PATHS.contains(&path) || RULE_FILES.contains(&path);
        is_nested(path) || !is_known || self.git.as_ref().is_none_or(|git| git.ignored.contains(path))
    }
}

impl GitState {
    fn of(files: &Files, git: &dyn Fn() -> Command) -> Option<Self> {
        let mut list = git();
        list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = paths(&run(list, b"")?);
        // Git refuses the question for a path behind a link or in a submodule.
        let is_behind = |path: &[u8]| {
            let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
            ends.into_iter().any(|end| files.get(&path[..end]).is_some_and(|entry| entry.kind == Kind::Link))
        };
        let asked = PATHS.iter().chain(&RULE_FILES).filter(|path| !is_nested(path) && !is_behind(path));
        let mut check = git();
        check.args(["check-ignore", "-z", "--stdin", "--no-index"]);
        let input: Vec<u8> = asked.flat_map(|path| [b"./", *path, b"\0"]).collect::<Vec<_>>().concat();
        let ignored = paths(&run(check, &input)?);
        let ignored =
            ignored.iter().filter_map(|path| path.strip_prefix(b"./")).map(<[u8]>::to_vec).collect();
        Some(Self { listed, ignored })
    }
}

/// Runs git. `None` if it fails; no result is none of a search.
fn run(mut git: Command, input: &[u8]) -> Option<Vec<u8>> {
    let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // It may have failed already.
    child.stdin.take().unwrap().write_all(input).ok();
    let output = child.wait_with_output().unwrap();
    matches!(output.status.code(), Some(0 | 1)).then_some(output.stdout)
}

fn paths(output: &[u8]) -> BTreeSet<Vec<u8>> {
    output.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect()
}

fn collect(root: &Path, folder: &Path, files: &mut Files) {
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let name = entry.unwrap().file_name();
        if folder == Path::new("") && (name == ".git" || name == ".azureal") {
            continue;
        }
        let path = folder.join(&name);
        let full = root.join(&path);
        let found = fs::symlink_metadata(&full).unwrap();
        let (kind, bytes) = if found.is_dir() {
            collect(root, &path, files);
            continue;
        } else if found.is_symlink() {
            (Kind::Link, fs::read_link(&full).unwrap().into_os_string().into_vec())
        } else if found.file_type().is_fifo() {
            (Kind::Pipe, Vec::new())
        } else if found.len() > LARGE {
            (Kind::Large, found.len().to_string().into_bytes())
        } else {
            (Kind::File, fs::read(&full).unwrap())
        };
        let is_executable = kind == Kind::File && found.mode() & 0o100 != 0;
        files.insert(path.as_os_str().as_bytes().to_vec(), Entry { kind, bytes, is_executable });
    }
}

/// Returns the paths whose files differ.
pub(super) fn changed(one: &Files, other: &Files) -> BTreeSet<Vec<u8>> {
    let all = one.keys().chain(other.keys());
    all.filter(|path| one.get(*path) != other.get(*path)).cloned().collect()
}

/// Returns a path for a message.
pub(super) fn shown(path: &[u8]) -> String {
    OsStr::from_bytes(path).to_string_lossy().escape_debug().to_string()
}

/// Returns a file for a message.
pub(super) fn shown_entry(entry: Option<&Entry>) -> String {
    entry.map_or_else(
        || "none".to_owned(),
        |entry| {
            let text = String::from_utf8_lossy(&entry.bytes[..entry.bytes.len().min(80)]).into_owned();
            format!("{:?} {text:?} executable: {}", entry.kind, entry.is_executable)
        },
    )
}
