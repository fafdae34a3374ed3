//! The files of a worktree that differ from our index, and what to do with each.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use azureal_process::Excerpt;
use rustix::fs::Stat;

use crate::align::Alignment;
use crate::beneath::{Beneath, Found, is_forbidden};
use crate::error::{At, Error};
use crate::git::{Deadline, Git, OUTPUT, Running, args};
use crate::ignored::{ignored, parent};
use crate::names::{Name, names};
use crate::places::ObjectFormat;
use crate::project_index::hex;
use crate::rules::is_ignore_file;
use crate::take::Limits;
use crate::worktree::{Home, Worktree, write};

const LARGE: &str = "large";
/// The beginning of git's warning of a folder, whose name follows.
const NOT_OPENED: &[u8] = b"warning: could not open directory '";
/// The name of a file of ignore rules.
const RULES: &[u8] = b".gitignore";
/// The number of skipped files that a snapshot names.
const NAMED: usize = 1_000;

/// A file or folder that is not stored in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its path beneath the top of the worktree.
    pub path: PathBuf,
    /// The reason.
    pub why: SkipReason,
}

/// The reason why a file or folder is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipReason {
    /// It is larger than its [limit](Limits).
    TooLarge,
    /// It is a submodule, or another repository.
    Repository,
    /// This user cannot read it.
    Unreadable,
    /// Its name could be that of a git directory, or of azureal's folder.
    Name,
    /// It is a pipe, a socket or a device.
    Special,
}

/// A file that is named in a snapshot and not stored. Its entry in the tree has the mode of a submodule, and this id.
#[derive(Clone)]
struct Large {
    /// The id that was recorded.
    id: String,
    is_new: bool,
}

/// The changes of our index that make it equal to the worktree.
#[derive(Default)]
pub(crate) struct Update {
    /// Files to hash, and files that are gone: paths, each followed by a NUL.
    pub(crate) files: Vec<u8>,
    /// Entries to set or remove without looking at a file, as `update-index --index-info` reads them.
    pub(crate) entries: Vec<u8>,
    /// The number of bytes to hash.
    pub(crate) bytes: u64,
    /// The first files and folders that are left out.
    pub(crate) skipped: Vec<Skipped>,
    /// The folders of all submodules and nested repositories.
    pub(crate) repositories: Vec<Vec<u8>>,
    /// Folders that this user cannot read. The top is the empty path.
    pub(crate) unreadable: Vec<Vec<u8>>,
    /// Files of ignore rules that are not recorded: they are ignored themselves, or too large.
    pub(crate) unrecorded_rules: Vec<Vec<u8>>,
    /// Files that stay recorded, though they are ignored now and not tracked.
    pub(crate) late: Vec<Vec<u8>>,
    /// A file that was named and not stored is a folder now, which git has not looked into.
    pub(crate) is_partial: bool,
    /// Git's list of what is ignored, if a turn begins.
    there: Option<Vec<u8>>,
    /// Files that are ignored from now on, and recorded no more.
    dropped: Vec<Vec<u8>>,
    large: BTreeMap<Vec<u8>, Large>,
}

impl Update {
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.entries.is_empty()
    }

    /// Returns the names of what is ignored and there, if a turn begins.
    pub(crate) fn names(&self, beneath: &mut Beneath) -> Option<Vec<Name>> {
        let listed = self.there.as_ref()?;
        let further: Vec<Vec<u8>> = self.dropped.iter().chain(&self.unrecorded_rules).cloned().collect();
        Some(names(listed, &further, beneath))
    }
}

impl Worktree {
    /// Compares the worktree with an index. `is_current` says that no update of the index was interrupted.
    pub(crate) fn scan(
        &self,
        home: &Home,
        index: &Path,
        is_current: bool,
        limits: &Limits,
        deadline: Deadline<'_>,
    ) -> Result<Listing, Error> {
        let git = self.in_worktree(index);
        let changed = args(["diff-files", "-z", "--raw", "--no-renames", "--ignore-submodules=all"]);
        let changed = git.start(&changed, Vec::new(), OUTPUT)?;
        let mut others_command = args([
            "ls-files",
            "-z",
            "--others",
            "--exclude-per-directory=.gitignore",
            "-x",
            ".azureal",
            // Rules count even if a rule ignores their file.
            "-x",
            "!.gitignore",
            "-X",
        ]);
        let exclude = self.write_excludes(home)?;
        others_command.push(exclude.clone().into());
        let others = git.start(&others_command, Vec::new(), OUTPUT)?;
        let there = limits.drops_ignored.then(|| self.start_names(index, &exclude)).transpose()?;
        let named = self.start_named(&git, &others_command)?;
        let changed = changed.finish(deadline)?;
        let (others, warnings) = others.finish_warned(deadline)?;
        let unreadable = unreadable(&warnings, &self.places.root);
        let renamed = match named {
            Some(named) => self.renamed(&git, &others, &named.finish(deadline)?, deadline)?,
            None => Vec::new(),
        };
        let there = there.map(|there| there.finish(deadline)).transpose()?;
        let rules: Vec<&[u8]> = others
            .split(|byte| *byte == 0)
            .filter(|path| is_ignore_file(path) && !is_forbidden(path))
            .collect();
        let ignored_rules =
            if rules.is_empty() { Vec::new() } else { ignored(&git, &exclude, &rules, deadline)? };
        let large = if is_current { read_large(home) } else { self.marked(&git, home, deadline)? };
        let (limits, format) = (limits.clone(), self.places.format);
        Ok(Listing { changed, others, unreadable, there, renamed, ignored_rules, large, limits, format })
    }
}

impl Worktree {
    /// Returns the files of an index that are named and not stored, after an update that may have been interrupted.
    fn marked(
        &self,
        git: &Git,
        home: &Home,
        deadline: Deadline<'_>,
    ) -> Result<BTreeMap<Vec<u8>, Large>, Error> {
        let known = read_large(home);
        let output = git.run(&args(["ls-files", "-z", "--stage"]), Vec::new(), deadline)?;
        let entries = output.split(|byte| *byte == 0).filter_map(|entry| entry.strip_prefix(b"160000 "));
        let marked = entries.filter_map(|entry| {
            let tab = entry.iter().position(|byte| *byte == b'\t')?;
            let path = entry.get(tab + 1..)?.to_vec();
            let id = entry.split(|byte| *byte == b' ').next()?;
            let is_new = known.get(&path).is_none_or(|known| known.is_new);
            Some((path, Large { id: String::from_utf8(id.to_vec()).ok()?, is_new }))
        });
        Ok(marked.collect())
    }
}

impl Worktree {
    /// Starts to list the files that our index does not have under exactly their name, where names that differ by case are one file.
    fn start_named(&self, git: &Git, others: &[OsString]) -> Result<Option<Running>, Error> {
        let start = || git.with("GIT_CONFIG_VALUE_0", "false").start(others, Vec::new(), OUTPUT);
        self.places.case.is_one_file.then(start).transpose()
    }

    /// Finds the files that our index has under a name that differs by case. The names of folders are those of our index.
    fn renamed(
        &self,
        git: &Git,
        others: &[u8],
        named: &[u8],
        deadline: Deadline<'_>,
    ) -> Result<Vec<Renamed>, Error> {
        let paths = |output: &'_ [u8]| -> BTreeSet<Vec<u8>> {
            output.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect()
        };
        let others = paths(others);
        let found: Vec<Vec<u8>> =
            paths(named).into_iter().filter(|path| !others.contains(path) && !is_forbidden(path)).collect();
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let indexed = paths(&git.run(&args(["ls-files", "-z"]), Vec::new(), deadline)?);
        let indexed: BTreeMap<Vec<u8>, Vec<u8>> =
            indexed.into_iter().map(|path| (self.places.case.fold(&path), path)).collect();
        let mut beneath = Beneath::open(&self.places.root).at(&self.places.root)?;
        let mut renamed = Vec::new();
        for path in found {
            let Some(former) = indexed.get(&self.places.case.fold(&path)) else { continue };
            let name = path.get(parent(&path).len()..).unwrap_or_default();
            let present = [parent(former), name].concat();
            let is_there = beneath.is_named(former).at(Path::new(&OsString::from_vec(former.clone())))?;
            if present != *former && !is_there {
                renamed.push(Renamed { former: former.clone(), present });
            }
        }
        Ok(renamed)
    }
}

/// A file whose name differs by case from that in our index.
struct Renamed {
    former: Vec<u8>,
    present: Vec<u8>,
}

/// The output of git.
pub(crate) struct Listing {
    changed: Vec<u8>,
    others: Vec<u8>,
    /// Folders that git could not look into.
    unreadable: BTreeSet<Vec<u8>>,
    /// What is ignored, if a turn begins.
    there: Option<Vec<u8>>,
    renamed: Vec<Renamed>,
    /// Files of ignore rules that are ignored themselves.
    ignored_rules: Vec<Vec<u8>>,
    large: BTreeMap<Vec<u8>, Large>,
    limits: Limits,
    format: ObjectFormat,
}

impl Listing {
    /// Returns whether a file of ignore rules has changed, or is new.
    pub(crate) fn has_new_rules(&self) -> bool {
        let others = self.others.split(|byte| *byte == 0);
        self.changed().chain(others).any(|path| path == RULES || path.ends_with(&[b"/", RULES].concat()))
    }

    /// Returns whether there are files that are named and not stored, as they are large and not tracked.
    pub(crate) fn has_new_large(&self) -> bool {
        self.large.values().any(|large| large.is_new)
    }

    /// Returns the changed files of our index.
    fn changed(&self) -> impl Iterator<Item = &[u8]> {
        let fields = self.changed.split(|byte| *byte == 0).filter(|field| !field.is_empty());
        // Fields are in turn the states and the path.
        fields.skip(1).step_by(2)
    }

    /// Looks at each file, and decides what is recorded of it. Files that are `converted` are hashed again.
    pub(crate) fn update(
        &self,
        beneath: &mut Beneath,
        converted: &[Vec<u8>],
        aligned: &Alignment,
    ) -> Result<Update, Error> {
        let rules = aligned.dropped.iter().filter(|path| is_ignore_file(path));
        let mut update = Update {
            unrecorded_rules: self.ignored_rules.iter().chain(rules).cloned().collect(),
            // A later snapshot of the same files, before an undo, says nothing of the turn.
            late: if self.limits.since.is_some() { aligned.late.clone() } else { Vec::new() },
            there: self.there.clone(),
            unreadable: self.unreadable.iter().cloned().collect(),
            dropped: aligned.dropped.clone(),
            ..Update::default()
        };
        for path in &self.unreadable {
            update.skip(if path.is_empty() { b"." } else { path }, SkipReason::Unreadable);
        }
        let mut seen: BTreeSet<&[u8]> = aligned.dropped.iter().map(Vec::as_slice).collect();
        for path in &aligned.dropped {
            update.set(path, "0", &"0".repeat(self.format.length() * 2));
        }
        for Renamed { former, present } in &self.renamed {
            if seen.insert(former) && seen.insert(present) {
                update.set(former, "0", &"0".repeat(self.format.length() * 2));
                self.look(present, None, false, beneath, &mut update)?;
            }
        }
        for path in self.changed().chain(converted.iter().map(Vec::as_slice)) {
            if seen.insert(path) {
                self.look(path, None, false, beneath, &mut update)?;
            }
        }
        for path in &aligned.forced {
            let is_there = beneath.look(path).is_ok_and(|found| found.file().is_some());
            if is_there && seen.insert(path) {
                self.look(path, None, false, beneath, &mut update)?;
            }
        }
        for (path, Large { id, is_new }) in &self.large {
            if !seen.contains(path.as_slice()) {
                let is_new = *is_new && !aligned.tracked.contains(path);
                self.look(path, Some(id), is_new, beneath, &mut update)?;
            }
        }
        let is_ignored =
            |path: &&[u8]| is_ignore_file(path) && self.ignored_rules.iter().any(|it| it == path);
        let others = self.others.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        for path in others.filter(|path| !is_ignored(path)) {
            let repository = path.strip_suffix(b"/");
            if is_forbidden(repository.unwrap_or(path)) {
                update.skip(repository.unwrap_or(path), SkipReason::Name);
            } else if let Some(path) = repository {
                update.repositories.push(path.to_vec());
                update.skip(path, SkipReason::Repository);
            } else {
                self.look(path, None, true, beneath, &mut update)?;
            }
        }
        Ok(update)
    }

    /// Decides about one file. `marked` is its id if it was named and not stored.
    fn look(
        &self,
        path: &[u8],
        marked: Option<&str>,
        is_new: bool,
        beneath: &mut Beneath,
        update: &mut Update,
    ) -> Result<(), Error> {
        let limit = if is_new { self.limits.new_file } else { self.limits.known_file };
        let size = |stat: &Stat| u64::try_from(stat.st_size).unwrap_or(0);
        let found = match beneath.look(path) {
            // A folder that this user can list and not enter.
            Err(rustix::io::Errno::ACCESS) => {
                update.skip(path, SkipReason::Unreadable);
                return Ok(());
            }
            found => found.at(Path::new(&OsString::from_vec(path.to_vec())))?,
        };
        match found {
            Found::File(stat) if size(&stat) > limit => {
                self.mark(path, &stat, SkipReason::TooLarge, marked, is_new, update);
            }
            Found::Unreadable(stat) => self.mark(path, &stat, SkipReason::Unreadable, marked, is_new, update),
            Found::File(stat) | Found::Link(stat) => {
                update.bytes += size(&stat);
                update.files.extend(path);
                update.files.push(0);
            }
            Found::Missing if marked.is_none() => {
                update.files.extend(path);
                update.files.push(0);
            }
            Found::Missing | Found::Blocked | Found::Folder | Found::Other(_) => {
                if matches!(found, Found::Other(_)) {
                    update.skip(path, SkipReason::Special);
                }
                update.is_partial |= marked.is_some() && matches!(found, Found::Folder);
                update.set(path, "0", &"0".repeat(self.format.length() * 2));
            }
        }
        Ok(())
    }

    /// Records a file by its size and time alone.
    fn mark(
        &self,
        path: &[u8],
        stat: &Stat,
        why: SkipReason,
        marked: Option<&str>,
        is_new: bool,
        update: &mut Update,
    ) {
        let mut id = Vec::with_capacity(self.format.length());
        id.extend(stat.st_size.to_be_bytes());
        #[allow(clippy::useless_conversion, reason = "its width differs between systems")]
        id.extend(i64::from(stat.st_mtime).to_be_bytes());
        id.extend(u32::try_from(stat.st_mtime_nsec).unwrap_or(0).to_be_bytes());
        id.resize(self.format.length(), 0);
        let id = hex(&id);
        if marked != Some(&id) {
            update.set(path, "160000", &id);
        }
        if why == SkipReason::TooLarge && is_ignore_file(path) {
            update.unrecorded_rules.push(path.to_vec());
        }
        update.skip(path, why);
        update.large.insert(path.to_vec(), Large { id, is_new });
    }
}

impl Update {
    fn set(&mut self, path: &[u8], mode: &str, id: &str) {
        self.entries.extend(format!("{mode} {id}\t").bytes());
        self.entries.extend(path);
        self.entries.push(0);
    }

    fn skip(&mut self, path: &[u8], why: SkipReason) {
        if self.skipped.len() < NAMED {
            self.skipped.push(Skipped { path: PathBuf::from(OsString::from_vec(path.to_vec())), why });
        }
    }

    /// Writes the list of files that are named and not stored. Git does not report their changes.
    pub(crate) fn write_large(&self, home: &Home) -> Result<(), Error> {
        let mut text = Vec::new();
        for (path, Large { id, is_new }) in &self.large {
            text.extend(if *is_new { b"new " } else { b"old " });
            text.extend(id.bytes());
            text.push(b' ');
            text.extend(path);
            text.push(0);
        }
        if home.read(LARGE).unwrap_or_default() != text {
            write(&home.own, LARGE, &text).at(&home.own.join(LARGE))?;
        }
        Ok(())
    }
}

/// Returns the folders of which git warns that it cannot look into them. It lists nothing of what is there.
fn unreadable(warnings: &Excerpt, root: &Path) -> BTreeSet<Vec<u8>> {
    let top = Vec::new;
    if warnings.left_out > 0 {
        return [top()].into();
    }
    let text = [&warnings.beginning[..], &warnings.end].concat();
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(NOT_OPENED));
    let folder = |line: &[u8]| {
        // A name with a newline, or of which git prints no control characters, is not known.
        let Some(end) = line.windows(3).rposition(|end| end == b"': ") else { return Some(top()) };
        let (path, why) = line.split_at(end);
        if why.ends_with(b"No such file or directory") {
            return None;
        }
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let is_folder = root.join(OsStr::from_bytes(path)).symlink_metadata().is_ok_and(|it| it.is_dir());
        Some(if is_folder && path != b"." { path.to_vec() } else { top() })
    };
    lines.filter_map(folder).collect()
}

fn read_large(home: &Home) -> BTreeMap<Vec<u8>, Large> {
    let text = home.read(LARGE).unwrap_or_default();
    let records = text.split(|byte| *byte == 0).filter(|record| !record.is_empty());
    let parsed = records.filter_map(|record| {
        let mut parts = record.splitn(3, |byte| *byte == b' ');
        let is_new = parts.next()? == b"new";
        let id = String::from_utf8(parts.next()?.to_vec()).ok()?;
        Some((parts.next()?.to_vec(), Large { id, is_new }))
    });
    parsed.collect()
}
