//! The changes between two snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::iter::Peekable;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use azureal_process::Excerpt;

use crate::error::Error;
use crate::git::{Deadline, args};
use crate::worktree::Worktree;

/// The time limit of a comparison.
pub(crate) const TIME: Duration = Duration::from_secs(20);
/// The number of files that renames are looked for in.
pub(crate) const RENAMES: &str = "-l1000";
/// The line of a diff about a file that is not stored.
const NOT_STORED: &str = "too large or unreadable, not recorded\n";
/// The number of paths of one command.
const PATHS: usize = 100;

/// A file that differs between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Its path beneath the top of the worktree, in the later snapshot if that has it.
    pub path: PathBuf,
    /// The kind of change.
    pub status: FileStatus,
    /// The number of new lines. `None` if it is binary or not stored.
    pub added: Option<u64>,
    /// The number of removed lines. `None` if it is binary or not stored.
    pub removed: Option<u64>,
    /// Both versions are stored. If not, one was too large or could not be read, and is known by its size and time alone.
    pub is_stored: bool,
    /// Only the later snapshot has it, but it was created before the earlier one: it was ignored, or in a nested repository. It may
    /// have secrets.
    pub was_there: bool,
}

/// The kind of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileStatus {
    /// Only the later snapshot has it.
    Added,
    /// Its content differs.
    Modified,
    /// Only the earlier snapshot has it.
    Deleted,
    /// It had another path.
    Renamed {
        /// The path in the earlier snapshot.
        from: PathBuf,
    },
    /// Only its permission to be executed differs.
    ModeChanged,
    /// It was a file and is a link, or the reverse.
    TypeChanged,
}

/// The text of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    /// A unified diff. It ends with a whole line.
    pub text: String,
    /// The number of bytes that were left out at its end.
    pub left_out: u64,
}

/// A comparison that `git apply` can apply, byte for byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// The patch, with the contents of binary files. It ends with a whole line.
    pub bytes: Vec<u8>,
    /// The number of bytes that were left out at its end.
    pub left_out: u64,
    /// The number of files that it does not have, because a version of them is not stored.
    pub not_stored: usize,
}

/// A change as git reports it, without renames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawChange {
    pub(crate) path: Vec<u8>,
    pub(crate) before: Option<Version>,
    pub(crate) after: Option<Version>,
}

/// A file in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) mode: u32,
    pub(crate) id: String,
}

/// The mode of a file that is named and not stored.
pub(crate) const MARKED: u32 = 0o160_000;

impl Worktree {
    /// Lists the files that differ between two snapshots, in the order of their paths.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if one of them is no longer stored.
    pub fn compare(&self, before: &str, after: &str) -> Result<Vec<FileChange>, Error> {
        if before == after {
            return Ok(Vec::new());
        }
        self.check(&[before, after])?;
        let mut command = diff_tree();
        command.extend(args(["-z", "--raw", "--numstat", "-M", RENAMES]));
        command.extend([before.into(), after.into()]);
        let git = self.borrowing();
        let output = match git.run(&command, Vec::new(), Deadline::after(self.time)) {
            // A version may be missing that nobody needs but to count its lines.
            Err(Error::Git { .. }) => {
                let is_counting = |word: &OsString| word == "--numstat" || word == "-M" || word == RENAMES;
                command.retain(|word| !is_counting(word));
                git.run(&command, Vec::new(), Deadline::after(self.time))?
            }
            output => output?,
        };
        let mut changes = parse(&output);
        self.mark_old(before, after, &mut changes)?;
        Ok(changes)
    }

    /// Marks the files that were there before the earlier snapshot.
    fn mark_old(&self, before: &str, after: &str, changes: &mut [FileChange]) -> Result<(), Error> {
        let bytes = |change: &FileChange| change.path.as_os_str().as_bytes().to_vec();
        let is_added = |change: &FileChange| {
            // The time of a file that is gone is unknown.
            let is_there = || self.places.root.join(&change.path).symlink_metadata().is_ok();
            change.status == FileStatus::Added && is_there()
        };
        let added: BTreeSet<_> = changes.iter().filter(|change| is_added(change)).map(bytes).collect();
        if added.is_empty() {
            return Ok(());
        }
        let began = self.began(&self.open_home()?, before, after)?;
        // A snapshot without a time is of a deleted session.
        if began.0.is_some() {
            let old = self.were_there(before, after, began, added)?;
            for change in changes {
                change.was_there = old.contains(&bytes(change));
            }
        }
        Ok(())
    }

    /// Returns the differences between two snapshots as a unified diff, of all files or of these, up to a number of bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if one of the snapshots is no longer stored.
    pub fn diff(
        &self,
        before: &str,
        after: &str,
        paths: Option<&[PathBuf]>,
        limit: usize,
    ) -> Result<Diff, Error> {
        let mut diff = Diff::default();
        self.each_diff(&[], before, after, paths, limit, |output| diff.push(output, limit))?;
        Ok(diff)
    }

    /// Returns the differences between two snapshots as a patch, of all files or of these, up to a number of bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if one of the snapshots is no longer stored.
    pub fn patch(
        &self,
        before: &str,
        after: &str,
        paths: Option<&[PathBuf]>,
        limit: usize,
    ) -> Result<Patch, Error> {
        let mut patch = Patch::default();
        self.each_diff(&["--binary"], before, after, paths, limit, |output| patch.push(output, limit))?;
        Ok(patch)
    }

    /// Starts git for as many paths as a command may have, and takes each output.
    fn each_diff(
        &self,
        options: &[&str],
        before: &str,
        after: &str,
        paths: Option<&[PathBuf]>,
        limit: usize,
        mut take: impl FnMut(&Excerpt),
    ) -> Result<(), Error> {
        self.check(&[before, after])?;
        let all = [PathBuf::new()];
        let chunks = paths.map_or_else(|| all.chunks(1), |paths| paths.chunks(PATHS));
        for chunk in chunks {
            let mut command = diff_tree();
            command.extend(args(["-p", "-M", RENAMES, "--no-color", "--src-prefix=a/", "--dst-prefix=b/"]));
            command.extend(options.iter().map(OsString::from));
            command.extend([before.into(), after.into(), "--".into()]);
            command.extend(
                chunk.iter().filter(|path| !path.as_os_str().is_empty()).map(|path| path.clone().into()),
            );
            let running = self.borrowing().start(&command, Vec::new(), limit)?;
            let deadline = Deadline::after(self.time);
            let ended = running.ends_within(deadline);
            let output = running.child.stdout();
            if !ended {
                running.child.kill();
                return Err(Error::Slow { command: "diff-tree".to_owned(), after: self.time });
            }
            let is_bounded = output.left_out > 0 || output.beginning.len() > limit;
            if !running.child.wait().success() && !is_bounded {
                running.output()?;
            }
            take(&output);
        }
        Ok(())
    }

    /// Returns the changes without renames, with the modes and ids of both versions.
    pub(crate) fn raw_changes(&self, before: &str, after: &str) -> Result<Vec<RawChange>, Error> {
        self.check(&[before, after])?;
        let mut command = diff_tree();
        command.extend(args(["-z", "--raw", "--no-renames"]));
        command.extend([before.into(), after.into()]);
        let output = self.borrowing().run(&command, Vec::new(), Deadline::after(TIME))?;
        let mut fields = output.split(|byte| *byte == 0);
        let mut changes = Vec::new();
        while let (Some(states), Some(path)) = (fields.next(), fields.next()) {
            let Some(raw) = Raw::parse(states) else { continue };
            changes.push(RawChange { path: path.to_vec(), before: raw.before, after: raw.after });
        }
        Ok(changes)
    }

    /// Checks that trees are stored.
    pub(crate) fn check(&self, trees: &[&str]) -> Result<(), Error> {
        if let Some(bad) = trees.iter().find(|tree| !crate::is_id(tree)) {
            return Err(Error::NoSnapshot((*bad).to_owned()));
        }
        let gone = || Error::Gone(trees.first().map_or_else(String::new, |tree| (*tree).to_owned()));
        // Without a folder there has never been a snapshot.
        if !self.home.join("HEAD").exists() {
            return Err(gone());
        }
        let ids = trees.iter().map(|tree| (*tree).to_owned()).collect();
        let missing = self.sizes(&self.borrowing(), ids, Deadline::after(TIME))?.missing;
        missing.into_iter().next().map_or(Ok(()), |tree| Err(Error::Gone(tree)))
    }
}

impl Diff {
    fn push(&mut self, output: &Excerpt, limit: usize) {
        let (kept, left_out) = whole_lines(output, limit.saturating_sub(self.text.len()));
        self.text.push_str(&without_marks(&String::from_utf8_lossy(kept)));
        self.left_out += left_out;
    }
}

impl Patch {
    fn push(&mut self, output: &Excerpt, limit: usize) {
        let (kept, left_out) = whole_lines(output, limit.saturating_sub(self.bytes.len()));
        self.left_out += left_out;
        let mut file = Vec::new();
        for line in kept.split_inclusive(|byte| *byte == b'\n') {
            if line.starts_with(b"diff --git ") {
                self.push_file(&std::mem::take(&mut file));
            }
            file.extend(line);
        }
        self.push_file(&file);
    }

    /// Adds the lines of a file, unless a version of it is not stored.
    fn push_file(&mut self, lines: &[u8]) {
        // A line of a file has another first character than the lines of a header.
        let mut header = lines.split(|byte| *byte == b'\n').take_while(|line| !line.starts_with(b"@@ "));
        let is_marked = |line: &[u8]| std::str::from_utf8(line).is_ok_and(|line| marked_mode(line).is_some());
        if header.any(is_marked) {
            self.not_stored += 1;
        } else {
            self.bytes.extend(lines);
        }
    }
}

/// Returns the whole lines of an output that have room, and the number of bytes after them.
fn whole_lines(output: &Excerpt, room: usize) -> (&[u8], u64) {
    let total = output.beginning.len() as u64 + output.left_out + output.end.len() as u64;
    let kept = output.beginning.get(..room.min(output.beginning.len())).unwrap_or_default();
    let kept = if (kept.len() as u64) < total {
        let end = kept.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        kept.get(..end).unwrap_or_default()
    } else {
        kept
    };
    (kept, total - kept.len() as u64)
}

/// Returns the beginning of a line of a header that ends with the mode of a file that is not stored.
fn marked_mode(line: &str) -> Option<&str> {
    let has_mode = ["index ", "new file mode ", "deleted file mode ", "old mode ", "new mode "]
        .iter()
        .any(|beginning| line.starts_with(beginning));
    line.trim_end().strip_suffix("160000").filter(|_| has_mode)
}

/// Says of files that are not stored that they are not, in the place of the ids that stand for them.
fn without_marks(diff: &str) -> String {
    let mut text = String::with_capacity(diff.len());
    let (mut in_header, mut is_marked, mut is_said) = (false, false, false);
    // A line of a file has another first character than the lines of a header.
    for line in diff.split_inclusive('\n') {
        if line.starts_with("diff --git ") {
            (in_header, is_marked, is_said) = (true, false, false);
        } else if line.starts_with("@@ ") {
            in_header = false;
        }
        match marked_mode(line).filter(|_| in_header) {
            Some(mode) => {
                is_marked = true;
                // The line with the ids is left out.
                if mode.ends_with("mode ") {
                    text.push_str(mode);
                    text.push_str("100644\n");
                }
            }
            None if is_marked && line.starts_with(['-', '+']) => {
                if !is_said && !in_header {
                    text.push_str(NOT_STORED);
                    is_said = true;
                }
            }
            None if is_marked && line.starts_with(['@', 'i']) => {}
            None => text.push_str(line),
        }
    }
    text
}

pub(crate) fn diff_tree() -> Vec<OsString> {
    args([
        "diff-tree",
        "-r",
        "--no-ext-diff",
        "--no-textconv",
        "--ignore-submodules=none",
        "--submodule=short",
    ])
}

pub(crate) struct Raw<'a> {
    before: Option<Version>,
    pub(crate) after: Option<Version>,
    status: &'a str,
}

impl<'a> Raw<'a> {
    fn parse(states: &'a [u8]) -> Option<Self> {
        let words: Vec<&str> = std::str::from_utf8(states).ok()?.strip_prefix(':')?.split(' ').collect();
        let [mode_before, mode_after, before, after, status] = words.as_slice() else { return None };
        let version = |mode: &str, id: &str| {
            let mode = u32::from_str_radix(mode, 8).ok()?;
            (mode != 0).then(|| Version { mode, id: id.to_owned() })
        };
        Some(Self { before: version(mode_before, before), after: version(mode_after, after), status })
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

/// An entry of the raw list: the versions, the path before a rename, and the path.
type RawEntry<'a> = (Raw<'a>, Option<&'a [u8]>, &'a [u8]);

/// Parses an entry of the raw list. `None` at its end.
pub(crate) fn raw_fields<'a>(fields: &mut Peekable<impl Iterator<Item = &'a [u8]>>) -> Option<RawEntry<'a>> {
    let raw = Raw::parse(fields.next_if(|field| field.starts_with(b":"))?)?;
    let first = fields.next()?;
    if raw.status.starts_with(['R', 'C']) {
        return Some((raw, Some(first), fields.next()?));
    }
    Some((raw, None, first))
}

/// Parses the raw list, and the list of counts after it.
fn parse(output: &[u8]) -> Vec<FileChange> {
    let mut fields = output.split(|byte| *byte == 0).peekable();
    let mut changes = Vec::new();
    while let Some((raw, from, last)) = raw_fields(&mut fields) {
        changes.push(change(&raw, from.map(path), path(last)));
    }
    let mut places: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for (place, change) in changes.iter().enumerate() {
        places.insert(change.path.as_os_str().as_bytes().to_vec(), place);
    }
    while let Some(counts) = fields.next().filter(|field| !field.is_empty()) {
        let mut words = counts.splitn(3, |byte| *byte == b'\t');
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
        let (added, removed) = (number(), number());
        let named = words.next().unwrap_or_default();
        // A rename has its two paths in fields of their own.
        let named = if named.is_empty() { fields.nth(1).unwrap_or_default() } else { named };
        let change = places.get(named).and_then(|place| changes.get_mut(*place));
        if let Some(change) = change.filter(|change| change.is_stored) {
            (change.added, change.removed) = (added, removed);
        }
    }
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    changes
}

fn change(raw: &Raw<'_>, from: Option<PathBuf>, path: PathBuf) -> FileChange {
    let is_marked =
        |version: &Option<Version>| version.as_ref().is_some_and(|version| version.mode == MARKED);
    let is_stored = !is_marked(&raw.before) && !is_marked(&raw.after);
    let status = match (&raw.before, &raw.after, from) {
        (_, _, Some(from)) => FileStatus::Renamed { from },
        (None, _, _) => FileStatus::Added,
        (_, None, _) => FileStatus::Deleted,
        (Some(before), Some(after), _) if is_stored && before.id == after.id => FileStatus::ModeChanged,
        _ if raw.status == "T" && is_stored => FileStatus::TypeChanged,
        _ => FileStatus::Modified,
    };
    FileChange { path, status, added: None, removed: None, is_stored, was_there: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_looks_like_a_mark_stays_as_it_is() {
        let diff = "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n 160000\n-Subproject commit 1\n\
                    +index 1..2 160000\n\\ No newline at end of file\n";
        assert_eq!(without_marks(diff), diff);
        let named = "diff --git a/160000 b/a 160000\nrename from 160000\nrename to a 160000\nindex 1..2 100644\n--- a/160000\n\
                     +++ b/a 160000\n@@ -1 +1 @@\n-a\n+b\n";
        assert_eq!(without_marks(named), named);
    }
}
