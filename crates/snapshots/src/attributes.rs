//! Attributes by which a file in the worktree is not the bytes of its blob.
//!
//! They decide whether an entry of the project's index can be trusted. Line endings, `$Id$` and most filters change the size of a file,
//! which is seen elsewhere. Here it is about those that may not: filters, and encodings with one byte for a character.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::beneath::{Beneath, Found};
use crate::error::Error;
use crate::git::{Deadline, OUTPUT, Running, args};
use crate::places::read_start;
use crate::project_index::ProjectIndex;
use crate::rules::{Content, read_beneath};
use crate::worktree::Worktree;

const NAME: &[u8] = b".gitattributes";
/// The bound on a file of attributes.
const LIMIT: u64 = 1024 * 1024;
const SYSTEM: &str = "/etc/gitattributes";

/// The entries of an index that may have another content than their files, though their sizes are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doubt {
    None,
    /// Those of the size of an LFS pointer.
    Pointers,
    All,
}

impl Doubt {
    /// Returns the doubt that the text of a file of attributes gives.
    fn of(text: &[u8]) -> Self {
        let of_word = |word: &[u8]| match word.strip_prefix(b"filter=") {
            Some(b"lfs") => Self::Pointers,
            Some(_) => Self::All,
            None if word.starts_with(b"working-tree-encoding=") => Self::All,
            None => Self::None,
        };
        text.split(u8::is_ascii_whitespace).map(of_word).max().unwrap_or(Self::None)
    }

    fn of_file(file: &Path) -> Self {
        match read_start(file, LIMIT) {
            Some(text) => Self::of(&text),
            None if fs::symlink_metadata(file).is_ok_and(|found| !found.is_dir()) => Self::All,
            None => Self::None,
        }
    }
}

/// Questions to git about the files of attributes outside the worktree.
pub(crate) struct Asked {
    settings: Running,
    system: Running,
}

impl Worktree {
    /// Asks git for the user's files of attributes. It reads settings, and executes nothing.
    pub(crate) fn ask_attributes(&self) -> Result<Asked, Error> {
        let git = &self.user_git;
        let settings =
            args(["config", "-z", "--type=path", "--get-regexp", r"^(core\.attributesfile|attr\.tree)$"]);
        let settings = git.start(&settings, Vec::new(), OUTPUT)?;
        Ok(Asked { settings, system: git.start(&args(["var", "GIT_ATTR_SYSTEM"]), Vec::new(), OUTPUT)? })
    }

    /// Looks at all attributes that git may have used: in the worktree, of the project, of the user and of the system.
    pub(crate) fn doubt(
        &self,
        asked: Asked,
        index: &ProjectIndex,
        beneath: &mut Beneath,
        deadline: Deadline<'_>,
    ) -> Doubt {
        let in_tree = in_tree(index, beneath);
        let others = self.attribute_files(asked, deadline).map_or(Doubt::All, |files| {
            files.iter().map(|file| Doubt::of_file(file)).max().unwrap_or(Doubt::None)
        });
        in_tree.max(others)
    }

    /// Returns the files of attributes outside the worktree. `None` if they are not known.
    fn attribute_files(&self, asked: Asked, deadline: Deadline<'_>) -> Option<Vec<PathBuf>> {
        let mut files = vec![self.places.common.join("info/attributes"), PathBuf::from(SYSTEM)];
        let git = &self.user_git;
        let folder = |name: &str| git.variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        files.extend(folder("HOME").map(|home| home.join(".config/git/attributes")));
        files.extend(folder("XDG_CONFIG_HOME").map(|folder| folder.join("git/attributes")));
        // Git knows this question since 2.42.
        if let Ok(path) = asked.system.finish(deadline) {
            files.push(PathBuf::from(OsStr::from_bytes(path.trim_ascii_end())));
        }
        let settings = asked.settings.finish_search(deadline).ok()?;
        for setting in settings.split(|byte| *byte == 0).filter(|setting| !setting.is_empty()) {
            // Attributes of any tree, if it is not this.
            let value = setting.strip_prefix(b"core.attributesfile\n")?;
            files.push(self.places.root.join(OsStr::from_bytes(value)));
        }
        Some(files)
    }
}

/// Looks at the files of attributes in the worktree, tracked or not: in each folder of a tracked file, and in those above.
fn in_tree(index: &ProjectIndex, beneath: &mut Beneath) -> Doubt {
    let parent = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/');
    let mut folders: BTreeSet<&[u8]> = [&b""[..]].into();
    for entry in &index.entries {
        let mut path = entry.path.as_slice();
        while let Some(folder) = parent(path).and_then(|end| path.get(..end)) {
            if !folders.insert(folder) {
                break;
            }
            path = folder;
        }
    }
    let mut doubt = Doubt::None;
    for folder in folders {
        let path = if folder.is_empty() { NAME.to_vec() } else { [folder, b"/", NAME].concat() };
        doubt = doubt.max(match beneath.look(&path) {
            // Git follows no link here.
            Ok(Found::Missing | Found::Blocked | Found::Link(_) | Found::Folder | Found::Other(_)) => {
                Doubt::None
            }
            Ok(Found::File(_)) => match read_beneath(&path, LIMIT, beneath) {
                Content::Whole(text) => Doubt::of(&text),
                Content::TooLarge | Content::NoFile => Doubt::All,
            },
            _ => Doubt::All,
        });
        if doubt == Doubt::All {
            break;
        }
    }
    doubt
}
