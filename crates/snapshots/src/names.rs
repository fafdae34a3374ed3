//! The names of ignored files that are in a worktree when a turn begins, without their contents.
//!
//! An undo deletes no path that was there, whatever the rules say of it. A turn that changes such a file says so.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::AtFlags;

use crate::beneath::{Beneath, is_forbidden};
use crate::error::{At, Error};
use crate::git::{OUTPUT, Running, args};
use crate::ignored::parent;
use crate::places::Case;
use crate::worktree::Worktree;

/// The most names. Of a folder with too many, the folder is named.
const MOST: usize = 10_000;

/// An ignored file that was there. A folder, of which no more is known, ends with a slash.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) path: Vec<u8>,
    /// Its kind, size and time, as text. Empty for a folder.
    pub(crate) stamp: Vec<u8>,
}

/// Names to look paths up in.
pub(crate) struct There {
    case: Case,
    files: BTreeSet<Vec<u8>>,
    folders: BTreeSet<Vec<u8>>,
}

impl There {
    pub(crate) fn new(names: &[Name], case: Case) -> Self {
        let mut there = Self { case, files: BTreeSet::new(), folders: BTreeSet::new() };
        for Name { path, .. } in names {
            match path.strip_suffix(b"/") {
                Some(folder) => there.folders.insert(case.fold(folder)),
                None => there.files.insert(case.fold(path)),
            };
        }
        there
    }

    /// Returns whether a path was there, or may have been.
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        let path = self.case.fold(path);
        self.files.contains(&path) || is_in_any(&path, &self.folders)
    }
}

impl Worktree {
    /// Starts to list what is ignored: files, and folders that are ignored as a whole.
    pub(crate) fn start_names(&self, index: &Path, exclude: &Path) -> Result<Running, Error> {
        let mut command = args(["ls-files", "-z", "--others", "--ignored", "--directory"]);
        command.extend(args(["--exclude-per-directory=.gitignore", "-x", ".azureal", "-X"]));
        command.push(exclude.into());
        self.in_worktree(index).start(&command, Vec::new(), OUTPUT)
    }

    /// Returns the ignored files that are not as they were when a turn of a session began, or are gone. `before` is the first
    /// snapshot of the turn. The content of these files is not recorded.
    ///
    /// # Errors
    ///
    /// Our folder in the git directory cannot be used.
    pub fn changed_ignored(&self, session: &str, before: &str) -> Result<Vec<PathBuf>, Error> {
        let home = self.open_home()?;
        let names = self.last_names(&home, session, before)?;
        let mut beneath = Beneath::open(&self.places.root).at(&self.places.root)?;
        let changed = names.into_iter().filter(|name| {
            !name.stamp.is_empty() && stamp(&name.path, &mut beneath).is_none_or(|now| now != name.stamp)
        });
        Ok(changed.map(|name| PathBuf::from(OsString::from_vec(name.path))).collect())
    }
}

/// Returns the names of a list of git, and of further files.
pub(crate) fn names(listed: &[u8], further: &[Vec<u8>], beneath: &mut Beneath) -> Vec<Name> {
    let listed = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    let all: BTreeSet<&[u8]> = listed.chain(further.iter().map(Vec::as_slice)).collect();
    let mut paths = BTreeSet::new();
    let mut rest = all.into_iter().peekable();
    while let Some(path) = rest.next() {
        // Git also names a folder that only has ignored files, and then the files.
        let is_listed = path.ends_with(b"/") && rest.peek().is_some_and(|next| next.starts_with(path));
        if !is_listed && !is_forbidden(path.strip_suffix(b"/").unwrap_or(path)) {
            paths.insert(path.to_vec());
        }
    }
    let of = |path: Vec<u8>| {
        let stamp = if path.ends_with(b"/") { Some(Vec::new()) } else { stamp(&path, beneath) };
        Some(Name { stamp: stamp?, path })
    };
    fewer(paths, MOST).into_iter().filter_map(of).collect()
}

/// Replaces names by their folders until there are few enough: of those with the most names first. The top is a slash alone.
fn fewer(mut paths: BTreeSet<Vec<u8>>, most: usize) -> BTreeSet<Vec<u8>> {
    while paths.len() > most {
        let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
        for path in &paths {
            *counts.entry(parent(path.strip_suffix(b"/").unwrap_or(path))).or_default() += 1;
        }
        let mut folders: Vec<(usize, &[u8])> =
            counts.into_iter().map(|(folder, count)| (count, folder)).collect();
        folders.sort_unstable_by(|one, other| other.cmp(one));
        let mut left = paths.len();
        let mut full = BTreeSet::new();
        for (count, folder) in folders {
            if left <= most {
                break;
            }
            left -= count - 1;
            full.insert(folder.to_vec());
        }
        paths.retain(|path| !is_in_any(path.strip_suffix(b"/").unwrap_or(path), &full));
        paths.extend(
            full.iter().filter(|folder| !is_in_any(folder, &full)).map(|folder| [folder, &b"/"[..]].concat()),
        );
    }
    paths
}

/// Returns whether one of the folders above a path is in a set. The top is the empty path.
fn is_in_any(path: &[u8], folders: &BTreeSet<Vec<u8>>) -> bool {
    let mut path = path;
    while !path.is_empty() {
        path = parent(path);
        if folders.contains(path) {
            return true;
        }
    }
    false
}

/// Returns the kind, size and time of a file as text. `None` if there is none.
fn stamp(path: &[u8], beneath: &mut Beneath) -> Option<Vec<u8>> {
    let (folder, name) = beneath.parent(path).ok()?;
    let found = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let text = format!("{:o} {} {}.{}", found.st_mode, found.st_size, found.st_mtime, found.st_mtime_nsec);
    Some(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(paths: &[&str]) -> BTreeSet<Vec<u8>> {
        paths.iter().map(|path| path.as_bytes().to_vec()).collect()
    }

    #[test]
    fn of_too_many_names_the_folders_count() {
        let paths = set(&["a", "d/1", "d/2", "d/3", "d/sub/", "e/1"]);
        assert_eq!(fewer(paths.clone(), 6), paths);
        assert_eq!(fewer(paths.clone(), 5), set(&["a", "d/", "e/1"]));
        assert_eq!(fewer(paths, 1), set(&["/"]));
        let deep = set(&["a/x/1", "b/y/1", "c/z/1"]);
        assert_eq!(fewer(deep, 2), set(&["/"]));
        assert_eq!(fewer(set(&["a/x/1", "a/y/1", "b/1"]), 2), set(&["a/", "b/"]));
    }

    #[test]
    fn a_path_was_there_if_its_name_or_one_of_its_folders_was() {
        let name = |path: &str| Name { path: path.as_bytes().to_vec(), stamp: Vec::new() };
        let names = [name("file"), name("folder/"), name("in/Side")];
        let has = |is_ignored, path: &str| {
            There::new(&names, Case { is_ignored, is_one_file: false }).has(path.as_bytes())
        };
        for path in ["file", "folder/x", "folder/x/y", "in/Side"] {
            assert!(has(false, path) && has(true, path), "{path}");
        }
        for path in ["file/x", "folder", "folder2/x", "in", "in/Side2"] {
            assert!(!has(false, path) && !has(true, path), "{path}");
        }
        assert!(!has(false, "IN/side") && has(true, "IN/side") && has(true, "Folder/X"));
        assert!(There::new(&[name("/")], Case { is_ignored: false, is_one_file: false }).has(b"any"));
    }
}
