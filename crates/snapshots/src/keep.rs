//! Keeps both versions of each changed file in our own objects.
//!
//! Our trees refer to objects of the project. `git gc` may remove those later, so the objects that differ between a snapshot and
//! the one before it are copied. Every file that differs between any two snapshots differs between two neighbours.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::git::{Deadline, Git, OUTPUT, Running, args};
use crate::worktree::Worktree;

/// The mode of an entry that is not an object of ours.
const MARKED: &[u8] = b"160000";
/// The beginning of the mode of a folder.
const FOLDER: &[u8] = b"04";

impl Worktree {
    /// Copies the objects that differ between two trees, unless they are larger than `largest`.
    pub(crate) fn keep(
        &self,
        before: &str,
        after: &str,
        largest: u64,
        deadline: Deadline<'_>,
    ) -> Result<(), Error> {
        self.copy(self.differing(before, after, deadline)?, largest, deadline)
    }

    /// Returns the objects that differ between two trees, and those that decide which files are new.
    pub(crate) fn differing(
        &self,
        before: &str,
        after: &str,
        deadline: Deadline<'_>,
    ) -> Result<BTreeSet<String>, Error> {
        let mut command =
            args(["diff-tree", "-z", "-r", "-t", "--raw", "--no-renames", "--ignore-submodules=none"]);
        command.extend([before.into(), after.into()]);
        let output = self.borrowing().run(&command, Vec::new(), deadline)?;
        let mut wanted: BTreeSet<String> = [before.to_owned(), after.to_owned()].into();
        let mut added = BTreeSet::new();
        let mut fields = output.split(|byte| *byte == 0);
        while let (Some(states), Some(path)) = (fields.next(), fields.next()) {
            let words: Vec<&[u8]> =
                states.strip_prefix(b":").unwrap_or_default().split(|byte| *byte == b' ').collect();
            let [mode_before, mode_after, before, after, _] = words.as_slice() else { continue };
            if mode_before.iter().all(|digit| *digit == b'0') && !mode_after.starts_with(FOLDER) {
                added.insert(path.to_vec());
            }
            for (mode, id) in [(mode_before, before), (mode_after, after)] {
                let is_object = *mode != MARKED && id.iter().any(|digit| *digit != b'0');
                if is_object {
                    wanted.insert(String::from_utf8_lossy(id).into_owned());
                }
            }
        }
        if !added.is_empty() {
            // They decide which files are new.
            wanted.extend(self.ignore_file_ids(before, &added, deadline)?);
        }
        Ok(wanted)
    }

    /// Copies objects of the project, unless they are larger than `largest`.
    pub(crate) fn copy(
        &self,
        mut wanted: BTreeSet<String>,
        largest: u64,
        deadline: Deadline<'_>,
    ) -> Result<(), Error> {
        let objects = self.home.join("objects");
        // Most are files of ours, which takes no git to see.
        wanted.retain(|id| {
            id.split_at_checked(2).is_none_or(|(folder, file)| !objects.join(folder).join(file).exists())
        });
        if wanted.is_empty() {
            return Ok(());
        }
        // Both at once: few commands are waited for longer than they take to start.
        let (ours, all) =
            (self.start_sizes(&self.git, &wanted)?, self.start_sizes(&self.borrowing(), &wanted)?);
        let ours = Sizes::parse(wanted.clone(), &ours.finish(deadline)?);
        let all = Sizes::parse(wanted, &all.finish(deadline)?);
        if !all.missing.is_empty() {
            let objects = all.missing.len();
            tracing::warn!(objects, "the project no longer has objects that a snapshot refers to");
        }
        let is_copied = |(id, size): &(String, u64)| ours.missing.contains(id) && *size <= largest;
        let copied = all.found.into_iter().filter(is_copied);
        let copied: Vec<String> = copied.map(|(id, _)| id).collect();
        if copied.is_empty() { Ok(()) } else { self.copy_objects(&copied, deadline) }
    }

    /// Looks up the sizes of objects.
    pub(crate) fn sizes(
        &self,
        git: &Git,
        ids: BTreeSet<String>,
        deadline: Deadline<'_>,
    ) -> Result<Sizes, Error> {
        let output = self.start_sizes(git, &ids)?.finish(deadline)?;
        Ok(Sizes::parse(ids, &output))
    }

    fn start_sizes(&self, git: &Git, ids: &BTreeSet<String>) -> Result<Running, Error> {
        let input: String = ids.iter().flat_map(|id| [id.as_str(), "\n"]).collect();
        let command = args(["cat-file", "--batch-check=%(objectsize)", "--buffer"]);
        git.start(&command, input.into_bytes(), OUTPUT)
    }
}

/// The sizes of objects.
pub(crate) struct Sizes {
    pub(crate) found: Vec<(String, u64)>,
    pub(crate) missing: BTreeSet<String>,
}

impl Sizes {
    fn parse(ids: BTreeSet<String>, output: &[u8]) -> Self {
        let mut sizes = Self { found: Vec::new(), missing: BTreeSet::new() };
        for (id, line) in ids.into_iter().zip(String::from_utf8_lossy(output).lines()) {
            match line.parse() {
                Ok(size) => sizes.found.push((id, size)),
                Err(_) => {
                    sizes.missing.insert(id);
                }
            }
        }
        sizes
    }
}
