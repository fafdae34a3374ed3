//! Aligns our index with the project's index and with the ignore rules, which both change between snapshots.
//!
//! Git lists no file that is ignored. Two kinds of files need more than that list: a tracked file that is ignored belongs into a snapshot, and a file that
//! is ignored by now, and not tracked, does not.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tracing::debug;

use crate::beneath::Beneath;
use crate::error::{At, Error};
use crate::git::{Deadline, OUTPUT, Running, args};
use crate::import::DRAFT;
use crate::project_index::{ProjectIndex, hex};
use crate::scan::Listing;
use crate::state::State;
use crate::take::Limits;
use crate::worktree::{Home, Worktree, write};

/// The list of tracked files that are ignored.
const FORCED: &str = "forced";
/// Objects of the project that are in no pack are copied up to this number. There are more of them after a first `git add` of everything, and those were committed then.
const LOOSE: usize = 2_000;

/// What the project's index and the ignore rules say of files that git does not list.
#[derive(Default)]
pub(crate) struct Alignment {
    /// Tracked files that are ignored, and that our index does not have.
    pub(crate) forced: Vec<Vec<u8>>,
    /// Files of our index that are ignored now and not tracked, and leave it.
    pub(crate) dropped: Vec<Vec<u8>>,
    /// Files of our index that are ignored now and not tracked, and stay.
    pub(crate) late: Vec<Vec<u8>>,
    /// Tracked files, if a large file that was not tracked may be among them.
    pub(crate) tracked: BTreeSet<Vec<u8>>,
}

impl Worktree {
    /// Aligns our index, if the project's index or the ignore rules have changed since the last time.
    pub(crate) fn align(
        &self,
        home: &Home,
        index: &Path,
        listing: &Listing,
        state: &mut State,
        limits: &Limits,
        deadline: Deadline<'_>,
    ) -> Result<Alignment, Error> {
        let stamp = self.stamp(home);
        let is_aligned =
            state.is_current && state.aligned.as_ref() == Some(&stamp) && !listing.has_new_rules();
        let mut aligned = Alignment::default();
        let forced = if is_aligned {
            home.read(FORCED).unwrap_or_default()
        } else {
            let mut beneath = Beneath::open(&self.places.root).at(&self.places.root)?;
            let draft = self.read_project(home, &mut beneath, deadline)?;
            let (forced, ignored) =
                (self.start_ignored(home, &draft.path)?, self.start_ignored(home, index)?);
            let (forced, ignored) = (forced.finish(deadline)?, ignored.finish(deadline)?);
            write_forced(home, &forced)?;
            let is_forced: HashSet<&[u8]> = paths(&forced).collect();
            let left_out = paths(&ignored).filter(|path| !is_forced.contains(path));
            let left_out: Vec<Vec<u8>> = left_out.map(<[u8]>::to_vec).collect();
            // What is not dropped now is looked for again.
            let is_done = limits.drops_ignored || left_out.is_empty();
            if limits.drops_ignored {
                aligned.dropped = left_out;
            } else {
                aligned.late = left_out;
            }
            if listing.has_new_large() {
                aligned.tracked = draft.index.entries.iter().map(|entry| entry.path.clone()).collect();
            }
            self.keep_loose(&draft.index, limits.known_file, deadline);
            home.own.remove(OsStr::new(DRAFT)).at(&draft.path)?;
            state.aligned = Some(stamp).filter(|_| is_done);
            state.write(home)?;
            forced
        };
        if !forced.is_empty() {
            let command = args(["ls-files", "-z"]);
            let ours = self.in_worktree(index).run(&command, Vec::new(), deadline)?;
            let ours: HashSet<&[u8]> = paths(&ours).collect();
            aligned.forced = paths(&forced).filter(|path| !ours.contains(path)).map(<[u8]>::to_vec).collect();
        }
        Ok(aligned)
    }

    /// Lists the files of the first snapshot of a turn that an index does not have: they were ignored meanwhile, and a turn of another session
    /// began, or they are gone.
    pub(crate) fn dropped_since(
        &self,
        first: Option<&str>,
        index: &Path,
        deadline: Deadline<'_>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let Some(first) = first.filter(|first| crate::is_id(first)) else { return Ok(Vec::new()) };
        let mut command =
            args(["diff-index", "-z", "--cached", "--name-only", "--diff-filter=D", "--no-renames"]);
        command.extend(args(["--ignore-submodules=none", first]));
        match self.borrowing().with("GIT_INDEX_FILE", index).run(&command, Vec::new(), deadline) {
            // The first snapshot is gone.
            Err(Error::Git { command, message }) => {
                debug!(command, message, "the first snapshot of a turn is not compared");
                Ok(Vec::new())
            }
            output => Ok(paths(&output?).map(<[u8]>::to_vec).collect()),
        }
    }

    /// Starts to list the files of an index that are ignored.
    pub(crate) fn start_ignored(&self, home: &Home, index: &Path) -> Result<Running, Error> {
        let mut command =
            args(["ls-files", "-z", "--cached", "--ignored", "--exclude-per-directory=.gitignore", "-X"]);
        command.push(self.write_excludes(home)?.into());
        self.in_worktree(index).start(&command, Vec::new(), OUTPUT)
    }

    /// Returns a text that differs if the project's index or the ignore rules outside the tree have changed.
    pub(crate) fn stamp(&self, home: &Home) -> String {
        let files = [self.places.git_dir.join("index"), home.own.join("exclude")];
        let of = |file: &Path| match fs::metadata(file) {
            Ok(found) => {
                let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
                format!("{}:{}:{times:?}", found.ino(), found.size()).replace(' ', "")
            }
            Err(_) => "none".to_owned(),
        };
        files.map(|file| of(&file)).join(",")
    }

    /// Copies objects of the project's index that are in no pack: those that are staged are in no commit, and `git gc` may remove them before the next snapshot.
    /// A copy that fails is not worth a snapshot.
    pub(crate) fn keep_loose(&self, index: &ProjectIndex, largest: u64, deadline: Deadline<'_>) {
        let format = self.places.format;
        let indexed: HashSet<&[u8]> = index.entries.iter().map(|entry| entry.id(format)).collect();
        let mut found = BTreeSet::new();
        for folder in (0..=u8::MAX).map(|byte| hex(&[byte])) {
            let files = fs::read_dir(self.places.common.join("objects").join(&folder));
            for file in files.into_iter().flatten().flatten() {
                let id = format!("{folder}{}", file.file_name().to_string_lossy());
                if bytes(&id).is_some_and(|bytes| indexed.contains(bytes.as_slice())) {
                    found.insert(id);
                }
            }
            if found.len() > LOOSE {
                debug!("too many objects of the project are in no pack");
                return;
            }
        }
        if !found.is_empty()
            && let Err(error) = self.copy(found, largest, deadline)
        {
            debug!(%error, "objects of the project's index are not copied");
        }
    }
}

/// Writes the list of tracked files that are ignored.
pub(crate) fn write_forced(home: &Home, forced: &[u8]) -> Result<(), Error> {
    if home.read(FORCED).unwrap_or_default() != forced {
        write(&home.own, FORCED, forced).at(&home.own.join(FORCED))?;
    }
    Ok(())
}

fn paths(output: &[u8]) -> impl Iterator<Item = &[u8]> {
    output.split(|byte| *byte == 0).filter(|path| !path.is_empty())
}

/// Returns the bytes of an object id.
fn bytes(id: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        id.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits?;
    Some(digits.chunks_exact(2).filter_map(|pair| Some(pair.first()? << 4 | pair.last()?)).collect())
}
