//! The rules by which a snapshot left files out, as far as its tree does not have them.
//!
//! A turn can change ignore rules, so that files appear that were there before it. Whether a path was left out is decided by the
//! rules of that time: the `.gitignore` files of the tree, and the rules in this record, which is an object of its own. The
//! note of a snapshot names it.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags};

use crate::beneath::Beneath;
use crate::error::{At, Error};
use crate::git::{Deadline, OUTPUT, Running, args};
use crate::scan::{SkipReason, Skipped};
use crate::worktree::{EXCLUDE, Home, Worktree};

const HEADER: &[u8] = b"azureal rules 1\n";
/// The bound on a `.gitignore` file that is ignored itself.
const FILE_LIMIT: u64 = 1024 * 1024;
/// The most `.gitignore` files that are ignored themselves.
const MOST_FILES: usize = 1_000;

/// The rules of a snapshot outside its tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rules {
    /// The user's ignore rules and the project's, in one file.
    pub(crate) exclude: Vec<u8>,
    /// The folders of submodules and nested repositories.
    pub(crate) repositories: Vec<Vec<u8>>,
    /// `.gitignore` files that are ignored themselves, as `*` in one does it: path and content.
    pub(crate) files: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Worktree {
    /// Returns the present rules. `ignored` are the `.gitignore` files that are ignored themselves.
    pub(crate) fn present_rules(
        &self,
        home: &Home,
        skipped: &[Skipped],
        ignored: &[Vec<u8>],
    ) -> Result<Rules, Error> {
        let nested = skipped.iter().filter(|skipped| skipped.why == SkipReason::Repository);
        let mut beneath = Beneath::open(&self.places.root).at(&self.places.root)?;
        let files = ignored.iter().take(MOST_FILES);
        Ok(Rules {
            exclude: home.read(EXCLUDE).unwrap_or_default(),
            repositories: nested.map(|skipped| skipped.path.as_os_str().as_bytes().to_vec()).collect(),
            files: files
                .filter_map(|path| Some((path.clone(), read_beneath(path, FILE_LIMIT, &mut beneath)?)))
                .collect(),
        })
    }

    /// Starts to store rules.
    pub(crate) fn start_storing(&self, rules: &Rules) -> Result<Storing, Error> {
        let command = args(["hash-object", "-w", "--no-filters", "--stdin"]);
        Ok(Storing(self.git.start(&command, rules.to_bytes(), OUTPUT)?))
    }
}

/// Rules that are being stored.
pub(crate) struct Storing(Running);

impl Storing {
    /// Returns the id of the rules.
    pub(crate) fn finish(self, deadline: Deadline<'_>) -> Result<String, Error> {
        let output = self.0.finish(deadline)?;
        let id = String::from_utf8_lossy(&output).trim().to_owned();
        if crate::is_id(&id) { Ok(id) } else { Err(Error::NoSnapshot(id)) }
    }
}

/// Reads a plain file of the worktree. `None` if it is none, is longer, or cannot be read.
pub(crate) fn read_beneath(path: &[u8], limit: u64, beneath: &mut Beneath) -> Option<Vec<u8>> {
    let (folder, name) = beneath.parent(path).ok()?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::openat(&folder, name, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= limit).then_some(bytes)
}

/// Returns whether a path is that of a file of ignore rules.
pub(crate) fn is_ignore_file(path: &[u8]) -> bool {
    OsStr::from_bytes(path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()) == ".gitignore"
}

impl Rules {
    /// Writes the record: for each part a line with its kind and its lengths, then its bytes.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = HEADER.to_vec();
        let mut add = |kind: &str, first: &[u8], second: &[u8]| {
            bytes.extend(format!("{kind} {} {}\n", first.len(), second.len()).bytes());
            bytes.extend(first);
            bytes.extend(second);
        };
        add("exclude", &self.exclude, b"");
        self.repositories.iter().for_each(|path| add("repository", path, b""));
        self.files.iter().for_each(|(path, content)| add("file", path, content));
        bytes
    }

    /// Parses a record. `None` if it is none, or of a later version.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(HEADER)?;
        let mut rules = Self::default();
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            let (line, parts) = (std::str::from_utf8(rest.get(..end)?).ok()?, rest.get(end + 1..)?);
            let words: Vec<&str> = line.split(' ').collect();
            let [kind, first, second] = words.as_slice() else { return None };
            let (first, parts) = parts.split_at_checked(first.parse().ok()?)?;
            let (second, parts) = parts.split_at_checked(second.parse().ok()?)?;
            match *kind {
                "exclude" => rules.exclude = first.to_vec(),
                "repository" => rules.repositories.push(first.to_vec()),
                "file" => rules.files.push((first.to_vec(), second.to_vec())),
                _ => return None,
            }
            rest = parts;
        }
        Some(rules)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn written_rules_are_read_again_and_damaged_ones_do_not_panic(
            exclude: Vec<u8>,
            repositories in prop::collection::vec(any::<Vec<u8>>(), 0..3),
            files in prop::collection::vec(any::<(Vec<u8>, Vec<u8>)>(), 0..3),
            at: prop::sample::Index,
            byte: u8,
        ) {
            let rules = Rules { exclude, repositories, files };
            let mut bytes = rules.to_bytes();
            prop_assert_eq!(Rules::parse(&bytes), Some(rules));
            let at = at.index(bytes.len());
            bytes[at] = byte;
            Rules::parse(&bytes);
            Rules::parse(&bytes[..at]);
        }
    }
}
