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
use crate::ignored::parent;
use crate::names::Name;
use crate::scan::Update;
use crate::worktree::Worktree;

const HEADER: &[u8] = b"azureal rules 1\n";
/// The bound on all `.gitignore` files that a tree does not have.
const FILES_LIMIT: u64 = 32 * 1024 * 1024;

/// The rules of a snapshot outside its tree, and the names of what they ignore.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rules {
    /// The user's ignore rules and the project's, in one file.
    pub(crate) exclude: Vec<u8>,
    /// The folders of submodules and nested repositories.
    pub(crate) repositories: Vec<Vec<u8>>,
    /// `.gitignore` files that the tree does not have: ignored themselves, as `*` in one does it, or large. Path and content.
    pub(crate) files: Vec<(Vec<u8>, Vec<u8>)>,
    /// Folders that cannot be read, or whose `.gitignore` file is not recorded: all in them may have been there. The top is the empty path.
    pub(crate) unknown: Vec<Vec<u8>>,
    /// What was ignored and there. `None` if no turn began with the snapshot.
    pub(crate) there: Option<Vec<Name>>,
    /// Files of the tree that were ignored and not tracked when a turn ended. An earlier snapshot had them.
    pub(crate) late: Vec<Vec<u8>>,
}

impl Worktree {
    /// Returns the present rules.
    pub(crate) fn present_rules(&self, update: &Update) -> Result<Rules, Error> {
        let mut beneath = Beneath::open(&self.places.root).at(&self.places.root)?;
        let mut rules = Rules {
            exclude: self.excludes()?,
            repositories: update.repositories.clone(),
            there: update.names(&mut beneath),
            late: update.late.clone(),
            unknown: update.unreadable.clone(),
            ..Rules::default()
        };
        let mut room = FILES_LIMIT;
        for path in &update.unrecorded_rules {
            match read_beneath(path, room, &mut beneath) {
                Content::Whole(content) => {
                    room = room.saturating_sub(content.len() as u64);
                    rules.files.push((path.clone(), content));
                }
                Content::TooLarge => rules.unknown.push(parent(path).to_vec()),
                // Git reads none of these either.
                Content::NoFile => {}
            }
        }
        Ok(rules)
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

/// The content of a file of the worktree.
pub(crate) enum Content {
    Whole(Vec<u8>),
    /// It is longer than the bound.
    TooLarge,
    /// It is no plain file, or this user cannot read it.
    NoFile,
}

/// Reads a plain file of the worktree, without following a link.
pub(crate) fn read_beneath(path: &[u8], limit: u64, beneath: &mut Beneath) -> Content {
    read_file(path, limit, beneath).unwrap_or(Content::NoFile)
}

fn read_file(path: &[u8], limit: u64, beneath: &mut Beneath) -> Option<Content> {
    let (folder, name) = beneath.parent(path).ok()?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::openat(&folder, name, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).ok()?;
    Some(if bytes.len() as u64 <= limit { Content::Whole(bytes) } else { Content::TooLarge })
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
        self.unknown.iter().for_each(|folder| add("unknown", folder, b""));
        if let Some(there) = &self.there {
            add("begin", b"", b"");
            there.iter().for_each(|name| add("there", &name.path, &name.stamp));
        }
        self.late.iter().for_each(|path| add("late", path, b""));
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
                "unknown" => rules.unknown.push(first.to_vec()),
                "begin" => rules.there = Some(Vec::new()),
                "there" => {
                    rules.there.as_mut()?.push(Name { path: first.to_vec(), stamp: second.to_vec() });
                }
                "late" => rules.late.push(first.to_vec()),
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
            names in prop::collection::vec(any::<(Vec<u8>, Vec<u8>)>(), 0..3),
            at: prop::sample::Index,
            byte: u8,
            is_begin: bool,
        ) {
            let (unknown, late) = names.iter().cloned().unzip();
            let there = is_begin.then(|| names.into_iter().map(|(path, stamp)| Name { path, stamp }).collect());
            let rules = Rules { exclude, repositories, files, unknown, there, late };
            let mut bytes = rules.to_bytes();
            prop_assert_eq!(Rules::parse(&bytes), Some(rules));
            let at = at.index(bytes.len());
            bytes[at] = byte;
            Rules::parse(&bytes);
            Rules::parse(&bytes[..at]);
        }
    }
}
