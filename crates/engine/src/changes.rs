//! The changes of a turn: a snapshot of the worktree before it and one after it, and the event of their difference.
//!
//! A snapshot is never the reason why a turn does not run or is not stored: without one there is no event.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use azureal_core::detail::{attach_diffs, changes_detail};
use azureal_core::event::{Changes, DirectoryChanges, FileChange, FileStatus, SkippedPath};
use azureal_core::{Event, SessionRecord};
use azureal_snapshots::{Diff, Error, GitProgram, Limits, SkipReason, Skipped, Taken, TurnMark, Worktree};
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

/// The number of bytes of a turn's diff that are looked at: each event takes a few thousand characters of it.
const DIFF_BYTES: usize = 1 << 20;
/// The longest delay of a turn when it ends: for the snapshot, and for the comparison after it.
const TURN_TIME: Duration = Duration::from_secs(2);
/// The part of it for the snapshot.
const SNAPSHOT_TIME: Duration = Duration::from_millis(1_400);
/// A recovered turn has no changes for this reason.
const FIRST_IS_LOST: &str = "its changes are not recorded: the snapshot from before it was not on the disk yet when the machine stopped";
/// The most paths that are named as not part of a snapshot.
const MOST_SKIPPED: usize = 20;

/// Records the changes of the turns in a worktree. Clones share the opened worktree.
#[derive(Debug, Clone)]
pub struct ChangeRecorder {
    root: PathBuf,
    git: GitProgram,
    /// The folder of the snapshots, if it can be known without git.
    snapshots: Option<PathBuf>,
    only_marks: bool,
    worktree_name: String,
    /// Opened with the first snapshot: that starts git.
    opened: Arc<OnceLock<Result<Option<Worktree>, Error>>>,
}

/// Whether the changes of a turn are recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RecordChanges {
    /// They are not.
    Off,
    /// They are, until that is too slow in the worktree.
    #[default]
    On,
    /// They are, also where that is slow.
    Always,
}

/// The state of a worktree before a turn, for the process that recovers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpooledSnapshot {
    /// The top of the worktree.
    pub root: PathBuf,
    /// The snapshot.
    pub tree: String,
}

/// The state of the worktree before a turn.
#[derive(Debug)]
pub(crate) struct BeforeTurn {
    /// `None` if there is no snapshot.
    tree: Option<String>,
    skipped: Vec<Skipped>,
    /// `None` if the turn is recovered: its process is gone.
    mark: Option<TurnMark>,
}

impl ChangeRecorder {
    /// Creates the recorder of the worktree with this top. It starts nothing and writes nothing.
    pub fn new(root: impl Into<PathBuf>, git: GitProgram) -> Self {
        Self {
            root: root.into(),
            git,
            snapshots: None,
            only_marks: false,
            worktree_name: String::new(),
            opened: Arc::default(),
        }
    }

    /// Names the worktree in the events.
    #[must_use]
    pub fn named(self, worktree: impl Into<String>) -> Self {
        Self { worktree_name: worktree.into(), ..self }
    }

    /// Names the folder of the snapshots, which may not exist yet. A turn whose changes are not recorded looks for it.
    #[must_use]
    pub fn with_snapshots(self, folder: impl Into<PathBuf>) -> Self {
        Self { snapshots: Some(folder.into()), ..self }
    }

    /// Records no changes, and only notes that turns run.
    #[must_use]
    pub fn only_marks(self) -> Self {
        Self { only_marks: true, ..self }
    }

    /// Returns the worktree; `None` if there is no git repository.
    pub fn worktree(&self) -> Result<Option<&Worktree>, &Error> {
        self.opened.get_or_init(|| Worktree::open(&self.root, &self.git)).as_ref().map(Option::as_ref)
    }

    /// Returns whether a turn has used it.
    pub fn is_used(&self) -> bool {
        self.opened.get().is_some()
    }

    /// Takes the snapshot before a turn. `None` if there is none; a reason that the user should know is a notice.
    pub(crate) fn before(
        &self,
        choice: RecordChanges,
        session: &str,
        run: &str,
        is_cancelled: &dyn Fn() -> bool,
        notice: &mut dyn FnMut(String),
    ) -> Option<BeforeTurn> {
        let choice = if self.only_marks { RecordChanges::Off } else { choice };
        // Without a snapshot, no turn could be confused by this one.
        if choice == RecordChanges::Off && !self.has_snapshots() {
            return None;
        }
        let worktree = match self.worktree() {
            Ok(worktree) => worktree?,
            Err(error) => {
                let is_told = match &self.snapshots {
                    _ if choice == RecordChanges::Off => false,
                    Some(folder) => Worktree::tell_once(&self.root, folder, error),
                    None => true,
                };
                if is_told {
                    notice(error.to_string());
                }
                return None;
            }
        };
        // Before the snapshot, and also without one: a turn or an undo that runs at the same time must know of this one.
        let mark = match worktree.begin_turn(session, run) {
            Ok(mark) => mark,
            Err(error) => {
                warn!(%error, "a turn is not noted in its worktree");
                notice(not_recorded(&error));
                return None;
            }
        };
        let taken = match choice {
            RecordChanges::Off => None,
            choice => {
                let limits = Limits { drops_ignored: true, ..Limits::default() };
                take(worktree, choice, session, &limits, is_cancelled, notice)
            }
        };
        let (tree, skipped) = taken.map_or((None, Vec::new()), |(tree, skipped)| (Some(tree), skipped));
        Some(BeforeTurn { tree, skipped, mark: Some(mark) })
    }

    /// Returns whether there is a folder of snapshots. Starts nothing.
    fn has_snapshots(&self) -> bool {
        self.snapshots.as_ref().is_some_and(|folder| folder.is_dir())
    }

    /// Returns the state before a turn of a process that is gone, if the turn ran in this worktree.
    pub(crate) fn noted(&self, noted: &SpooledSnapshot) -> Option<BeforeTurn> {
        let worktree = self.worktree().ok().flatten()?;
        let before = BeforeTurn { tree: Some(noted.tree.clone()), skipped: Vec::new(), mark: None };
        (noted.root == worktree.root()).then_some(before)
    }

    /// Returns what the next process needs if this one dies.
    pub(crate) fn note(&self, before: &BeforeTurn) -> Option<SpooledSnapshot> {
        let root = self.worktree().ok().flatten()?.root().to_owned();
        Some(SpooledSnapshot { root, tree: before.tree.clone()? })
    }

    /// Takes the snapshot after a turn, and compares both. `None` if there is none, or no file has changed.
    pub(crate) fn after(
        &self,
        session: &str,
        before: BeforeTurn,
        notice: &mut dyn FnMut(String),
    ) -> Option<TurnChanges> {
        let worktree = self.worktree().ok().flatten()?;
        let (late, began) = (before.mark.is_none(), Instant::now());
        let taken = before.tree.and_then(|tree| {
            let limits = Limits { time: SNAPSHOT_TIME, since: Some(tree.clone()), ..Limits::default() };
            // The first snapshot was not too slow.
            let (after, skipped) =
                take(worktree, RecordChanges::Always, session, &limits, &|| false, notice)?;
            Some((tree, after, skipped))
        });
        // In any case: the turn is over.
        let during = before.mark.map_or_else(|| Ok(Vec::new()), |mark| worktree.end_turn(mark));
        let (tree, after, skipped) = taken?;
        let left = TURN_TIME.saturating_sub(began.elapsed()) / 2;
        let worktree = worktree.comparing_within(left);
        let compared = during.and_then(|during| Ok((during, compare(&worktree, &tree, &after, late)?)));
        let (during, files) = match compared {
            Ok(compared) => compared,
            Err(error) => {
                warn!(%error, "two snapshots are not compared");
                let is_lost = late && matches!(error, Error::Gone(_) | Error::Damaged { .. });
                notice(if is_lost { FIRST_IS_LOST.to_owned() } else { not_recorded(&error) });
                return None;
            }
        };
        let (ignored, files): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.ignored_before);
        let unrecorded = worktree.changed_ignored(session, &tree).unwrap_or_else(|error| {
            warn!(%error, "ignored files that changed are not named");
            Vec::new()
        });
        if files.is_empty() && unrecorded.is_empty() {
            return None;
        }
        // The files are known: a diff that takes too long is only missing.
        let diff = worktree.diff(&tree, &after, DIFF_BYTES).unwrap_or_else(|error| {
            warn!(%error, "the changes of a turn are recorded without their lines");
            Diff::default()
        });
        // The event names both snapshots.
        if let Err(error) = worktree.make_durable(session, &tree, &after) {
            warn!(%error, "two snapshots are not durable");
            notice(not_recorded(&error));
            return None;
        }
        debug!(files = files.len(), "compared two snapshots");
        let (named, directories) = stored_changes(&files);
        let mut left_out = before.skipped;
        left_out
            .extend(skipped.into_iter().filter(|skipped| !left_out.contains(skipped)).collect::<Vec<_>>());
        let changes = Changes {
            worktree: self.worktree_name.clone(),
            before: tree,
            after,
            files: named,
            directories,
            during,
            skipped: skipped_paths(&unrecorded, &left_out, &ignored, &files),
            late,
            detail: None,
        };
        Some(TurnChanges { changes, diffs: diffs_by_path(&diff) })
    }
}

/// Compares two snapshots. The first one of a turn that is recovered may be lost in part: nothing was durable yet.
fn compare(
    worktree: &Worktree,
    before: &str,
    after: &str,
    late: bool,
) -> Result<Vec<azureal_snapshots::FileChange>, Error> {
    let files = worktree.compare(before, after)?;
    if late {
        worktree.check_whole(before, after)?;
    }
    Ok(files)
}

/// Takes a snapshot. `None` if there is none; a reason that the user should know is a notice.
fn take(
    worktree: &Worktree,
    choice: RecordChanges,
    session: &str,
    limits: &Limits,
    is_cancelled: &dyn Fn() -> bool,
    notice: &mut dyn FnMut(String),
) -> Option<(String, Vec<Skipped>)> {
    let taken = match worktree.take(session, limits, is_cancelled) {
        Ok(Taken::Off) if choice == RecordChanges::Always => {
            worktree.turn_on().and_then(|()| worktree.take(session, limits, is_cancelled))
        }
        taken => taken,
    };
    match taken {
        Ok(Taken::Whole(snapshot)) => Some((snapshot.tree, snapshot.skipped)),
        Ok(Taken::TooSlow { now_off: false }) => {
            notice(
                "the changes of this turn are not recorded: the worktree could not be read in 2 s".to_owned(),
            );
            None
        }
        Ok(Taken::TooSlow { now_off: true }) => {
            notice(
                    "the changes of turns are no longer recorded in this worktree: three times in a row it could not \
                     be read in 2 s. `enabled = true` in `[changes]` of the configuration continues"
                        .to_owned(),
                );
            None
        }
        Ok(Taken::Off | Taken::Cancelled) => None,
        Err(error) => {
            warn!(%error, "no snapshot is taken");
            notice(not_recorded(&error));
            None
        }
    }
}

/// Returns the name under which the snapshots of a session are kept.
pub fn snapshot_owner(record: &SessionRecord) -> String {
    record.uuid.map_or_else(|| record.id.to_string(), |uuid| uuid.to_string())
}

fn not_recorded(error: &Error) -> String {
    format!("the changes of this turn are not recorded: {error}")
}

/// The changes of a turn, and the diffs that its events show.
#[derive(Debug)]
pub(crate) struct TurnChanges {
    changes: Changes,
    /// A path and its unified diff.
    diffs: Vec<(String, String)>,
}

impl TurnChanges {
    /// Adds the changes to the events of their turn, before its end: each diff to the event of its edit, the rest to an event
    /// of its own.
    pub(crate) fn add_to(self, events: &mut Vec<Event>) {
        let Self { mut changes, diffs } = self;
        changes.detail = changes_detail(&attach_diffs(events, &diffs));
        let end = events.iter().rposition(|event| matches!(event, Event::Complete(_)));
        events.insert(end.unwrap_or(events.len()), Event::Changes(changes));
    }
}

fn change(file: &azureal_snapshots::FileChange) -> FileChange {
    use azureal_snapshots::FileStatus as Found;
    let (status, from) = match &file.status {
        Found::Added => (FileStatus::Added, None),
        Found::Modified | Found::TypeChanged => (FileStatus::Modified, None),
        Found::Deleted => (FileStatus::Deleted, None),
        Found::Renamed { from } => (FileStatus::Renamed, Some(shown(from))),
        Found::ModeChanged => (FileStatus::Mode, None),
    };
    FileChange { path: shown(&file.path), status, from, added: file.added, removed: file.removed }
}

/// Returns the changed files of a comparison as they are stored: the first by name, the rest by directory.
pub fn stored_changes(files: &[azureal_snapshots::FileChange]) -> (Vec<FileChange>, Vec<DirectoryChanges>) {
    let files: Vec<_> = files.iter().filter(|file| !file.ignored_before).cloned().collect();
    let (named, further) = files.split_at(files.len().min(Changes::MOST_FILES));
    (named.iter().map(change).collect(), by_directory(further))
}

/// Returns what the snapshots do not have: [`MOST_SKIPPED`] at most. First ignored files that changed, then what is too large or no file, then what was ignored
/// before the turn and is not any more.
fn skipped_paths(
    unrecorded: &[PathBuf],
    left_out: &[Skipped],
    ignored: &[azureal_snapshots::FileChange],
    files: &[azureal_snapshots::FileChange],
) -> Vec<SkippedPath> {
    let changed: BTreeSet<&Path> =
        files.iter().filter(|file| !file.is_stored).map(|file| file.path.as_path()).collect();
    let named = |path: &Path, reason: &str, changed: bool| SkippedPath {
        path: shown(path),
        reason: reason.to_owned(),
        changed,
    };
    let mut left_out: Vec<SkippedPath> = left_out
        .iter()
        .map(|skipped| named(&skipped.path, reason(skipped.why), changed.contains(skipped.path.as_path())))
        .collect();
    left_out.sort_by_key(|skipped| !skipped.changed);
    let lists = [
        unrecorded.iter().map(|path| named(path, "ignored", true)).collect(),
        left_out,
        ignored.iter().map(|file| named(&file.path, "ignored before the turn", false)).collect::<Vec<_>>(),
    ];
    // All lists have room.
    let mut room = MOST_SKIPPED;
    let mut skipped = Vec::new();
    for (place, mut list) in lists.into_iter().enumerate() {
        let most = if place == 2 { room } else { room / 2 };
        let count = list.len();
        if let Some(last) = list.get(most..).and_then(|rest| rest.first()).cloned() {
            list.truncate(most.saturating_sub(1));
            let more = azureal_core::counted((count - list.len()) as u64, "more file");
            list.push(SkippedPath { path: more, ..last });
        }
        room = room.saturating_sub(list.len());
        skipped.extend(list);
    }
    skipped
}

fn by_directory(files: &[azureal_snapshots::FileChange]) -> Vec<DirectoryChanges> {
    let mut directories: Vec<DirectoryChanges> = Vec::new();
    for file in files {
        let parent = file.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let path = parent.map_or_else(|| ".".to_owned(), shown);
        match directories.last_mut() {
            Some(last) if last.path == path => last.files += 1,
            _ => directories.push(DirectoryChanges { path, files: 1 }),
        }
    }
    directories
}

fn reason(why: SkipReason) -> &'static str {
    match why {
        SkipReason::TooLarge => "too large",
        SkipReason::Repository => "another repository",
        SkipReason::Unreadable => "not readable",
        SkipReason::Name => "a reserved name",
        SkipReason::Special => "no file",
    }
}

fn shown(path: impl AsRef<Path>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}

/// Returns the diff of each path.
fn diffs_by_path(diff: &Diff) -> Vec<(String, String)> {
    let mut diffs: Vec<(String, String)> = Vec::new();
    for (path, part) in diff.files() {
        let (path, part) = (shown(path), String::from_utf8_lossy(part));
        match diffs.last_mut() {
            // A file that became a link.
            Some((last, text)) if *last == path => text.push_str(&part),
            _ => diffs.push((path, part.into_owned())),
        }
    }
    diffs
}
