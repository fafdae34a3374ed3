//! The changes between two snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::iter::Peekable;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use azureal_process::Excerpt;

use crate::diff::{Diff, Patch};
use crate::error::{At, Error};
use crate::git::{Deadline, Git, args};
use crate::notes::pins;
use crate::scratch::Scratch;
use crate::worktree::Worktree;

/// The time limit of a comparison.
pub(crate) const TIME: Duration = Duration::from_secs(20);
/// The number of files that renames are looked for in.
const RENAMES: &str = "-l1000";

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
    /// Only the later snapshot has it, but it may have been there before: the rules of the earlier one ignored it, or it was in a
    /// nested repository. It may have secrets, so no diff has its content, and no undo deletes it.
    pub ignored_before: bool,
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

/// The differences between two snapshots that are shown.
struct View {
    /// A tree with at least the earlier versions.
    before: String,
    /// A tree with at least the later versions.
    after: String,
    changes: Vec<RawChange>,
    /// Files that may have been there before, and are in neither tree.
    ignored: BTreeSet<Vec<u8>>,
    /// Sees both trees.
    git: Git,
    _scratch: Option<Scratch>,
}

/// The mode of a file that is named and not stored.
pub(crate) const MARKED: u32 = 0o160_000;
/// The bits of a mode that tell a file from a link.
const TYPE: u32 = 0o170_000;

impl Worktree {
    /// Lists the files that differ between two snapshots, in the order of the bytes of their paths. If lines cannot be counted in
    /// [time](Self::comparing_within), the list has neither counts nor renames.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if one of them is no longer stored, [`Error::Damaged`] if it cannot be read.
    pub fn compare(&self, before: &str, after: &str) -> Result<Vec<FileChange>, Error> {
        if before == after {
            return Ok(Vec::new());
        }
        let view = self.view(before, after)?;
        let mut command = diff_tree();
        command.extend(args(["-z", "--raw", "--numstat", "-M", RENAMES]));
        command.extend([view.before.as_str().into(), view.after.as_str().into()]);
        let mut changes = match view.git.run(&command, Vec::new(), Deadline::after(self.time)) {
            // A version may be missing that nobody needs but to count its lines.
            Err(error @ (Error::Git { .. } | Error::Slow { .. } | Error::TooMuch { .. })) => {
                tracing::debug!(%error, "lines are not counted");
                let plain = view.changes.iter();
                plain.map(|it| change(it.before.as_ref(), it.after.as_ref(), None, path(&it.path))).collect()
            }
            output => parse(&output?),
        };
        changes.extend(
            view.ignored.iter().map(|ignored| FileChange {
                ignored_before: true,
                ..change(None, None, None, path(ignored))
            }),
        );
        changes.sort_by(|one, other| one.path.as_os_str().as_bytes().cmp(other.path.as_os_str().as_bytes()));
        Ok(changes)
    }

    /// Returns the differences between two snapshots as a unified diff, up to a number of bytes. Files that were
    /// [ignored before](FileChange::ignored_before) are not in it.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if one of the snapshots is no longer stored. [`Error::Slow`] if it takes longer than
    /// [its time](Self::comparing_within).
    pub fn diff(&self, before: &str, after: &str, limit: usize) -> Result<Diff, Error> {
        Ok(Diff::of(&self.diff_output(&[], before, after, limit)?, limit))
    }

    /// Returns the differences between two snapshots as a patch, up to a number of bytes. Files that were
    /// [ignored before](FileChange::ignored_before) are not in it.
    ///
    /// # Errors
    ///
    /// Those of [`diff`](Self::diff).
    pub fn patch(&self, before: &str, after: &str, limit: usize) -> Result<Patch, Error> {
        Ok(Patch::of(&self.diff_output(&["--binary"], before, after, limit)?, limit))
    }

    /// Returns the beginning of git's comparison.
    fn diff_output(
        &self,
        options: &[&str],
        before: &str,
        after: &str,
        limit: usize,
    ) -> Result<Excerpt, Error> {
        if before == after {
            return Ok(Excerpt::default());
        }
        let view = self.view(before, after)?;
        let mut command = diff_tree();
        command.extend(args(["-p", "-M", RENAMES, "--no-color", "--src-prefix=a/", "--dst-prefix=b/"]));
        command.extend(options.iter().map(OsString::from));
        command.extend([view.before.as_str().into(), view.after.as_str().into()]);
        let running = view.git.start(&command, Vec::new(), limit)?;
        if !running.ends_within(Deadline::after(self.time)) {
            running.child.kill();
            return Err(Error::Slow { command: "diff-tree".to_owned(), after: self.time });
        }
        let output = running.child.stdout();
        let is_bounded = output.left_out > 0 || output.beginning.len() > limit;
        if !running.child.wait().success() && !is_bounded {
            running.output().map_err(|error| error.of_objects(after))?;
        }
        Ok(output)
    }

    /// Returns two trees with the differences between two snapshots, without the files that were ignored before.
    fn view(&self, before: &str, after: &str) -> Result<View, Error> {
        let mut changes = self.raw_changes(before, after)?;
        let home = self.open_home()?;
        let hidden = self.hidden(&home, before, after, &changes)?;
        let (before, after, git) = (before.to_owned(), after.to_owned(), self.borrowing());
        let count = changes.len();
        changes.retain(|change| !hidden.has(&change.path));
        let ignored = hidden.before;
        if changes.len() == count {
            return Ok(View { before, after, changes, ignored, git, _scratch: None });
        }
        // Not by a list of paths for git: a path there stands for all that is in a folder of this name too.
        let scratch = Scratch::new(&home)?;
        let objects = scratch.join("objects");
        std::fs::create_dir(&objects).at(&objects)?;
        let git = self.borrowing_into(&objects);
        let tree = |name: &str, version: fn(&RawChange) -> Option<&Version>| {
            let git = git.with("GIT_INDEX_FILE", scratch.join(name));
            let mut entries = Vec::new();
            for change in &changes {
                if let Some(Version { mode, id }) = version(change) {
                    entries.extend(format!("{mode:o} {id}\t").bytes());
                    entries.extend(&change.path);
                    entries.push(0);
                }
            }
            git.run(&args(["update-index", "-z", "--index-info"]), entries, Deadline::after(TIME))?;
            let tree = git.run(&args(["write-tree", "--missing-ok"]), Vec::new(), Deadline::after(TIME))?;
            Ok::<_, Error>(String::from_utf8_lossy(&tree).trim().to_owned())
        };
        let before = tree("before", |change| change.before.as_ref())?;
        let after = tree("after", |change| change.after.as_ref())?;
        Ok(View { before, after, changes, ignored, git, _scratch: Some(scratch) })
    }

    /// Returns the changes without renames, with the modes and ids of both versions.
    pub(crate) fn raw_changes(&self, before: &str, after: &str) -> Result<Vec<RawChange>, Error> {
        self.check(&[before, after])?;
        let mut command = diff_tree();
        command.extend(args(["-z", "--raw", "--no-renames"]));
        command.extend([before.into(), after.into()]);
        let output = self.borrowing().run(&command, Vec::new(), Deadline::after(TIME));
        let output = output.map_err(|error| error.of_objects(after))?;
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
        if !self.home.exists() {
            return Err(gone());
        }
        // A power loss may have left no configuration.
        let home = self.open_home()?;
        let ids = trees.iter().map(|tree| (*tree).to_owned()).collect();
        let missing = self.sizes(&self.borrowing(), ids, Deadline::after(TIME))?.missing;
        let Some(tree) = missing.into_iter().next() else { return Ok(()) };
        let is_noted = pins(&home)?.iter().any(|pin| pin.tree == tree);
        Err(if is_noted {
            Error::Damaged { tree, why: "its objects are missing".to_owned() }
        } else {
            Error::Gone(tree)
        })
    }
}

fn diff_tree() -> Vec<OsString> {
    args([
        "diff-tree",
        "-r",
        "--no-ext-diff",
        "--no-textconv",
        "--ignore-submodules=none",
        "--submodule=short",
    ])
}

struct Raw<'a> {
    before: Option<Version>,
    after: Option<Version>,
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
fn raw_fields<'a>(fields: &mut Peekable<impl Iterator<Item = &'a [u8]>>) -> Option<RawEntry<'a>> {
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
        changes.push(change(raw.before.as_ref(), raw.after.as_ref(), from.map(path), path(last)));
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
    changes
}

fn change(
    before: Option<&Version>,
    after: Option<&Version>,
    from: Option<PathBuf>,
    path: PathBuf,
) -> FileChange {
    let is_stored = [before, after].into_iter().flatten().all(|version| version.mode != MARKED);
    let status = match (before, after, from) {
        (_, _, Some(from)) => FileStatus::Renamed { from },
        (None, _, _) => FileStatus::Added,
        (_, None, _) => FileStatus::Deleted,
        (Some(before), Some(after), _) if is_stored && (before.mode ^ after.mode) & TYPE != 0 => {
            FileStatus::TypeChanged
        }
        (Some(before), Some(after), _) if is_stored && before.id == after.id => FileStatus::ModeChanged,
        _ => FileStatus::Modified,
    };
    FileChange { path, status, added: None, removed: None, is_stored, ignored_before: false }
}
