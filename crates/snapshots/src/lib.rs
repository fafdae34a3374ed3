//! Snapshots of a git worktree: the changes between two of them, and their undo.
//!
//! - [`Worktree::take`] records all files of the worktree that git does not ignore, in about the time of `git status`.
//! - [`Worktree::compare`] and [`Worktree::diff`] show the changes between two snapshots, [`Worktree::patch`] can be applied.
//! - [`Worktree::undo`] restores the files that differ, all or none, also if this process is killed meanwhile.
//! - [`Worktree::make_durable`] makes two snapshots survive a power loss.
//! - [`Worktree::prune`] removes the oldest snapshots, [`Worktree::remove_session`] those of a session.
//! - [`Worktree::begin_turn`] and [`Worktree::end_turn`] tell which other sessions had a turn meanwhile.
//!
//! The snapshots are in `azureal/snapshots` of the git directory, in a repository of our own. Git runs with our configuration
//! alone: it executes no hook, filter or monitor of the project, and does not change the project's repository.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use azureal_process::ChildEnvironment;
//! use azureal_snapshots::{Error, GitProgram, Limits, Taken, Worktree};
//!
//! # fn main() -> Result<(), Error> {
//! let environment = ChildEnvironment::from_iter([("PATH", "/usr/bin:/bin"), ("HOME", "/root")]);
//! let program = GitProgram { program: "git".into(), environment };
//! // `NoGit` and `OldGit` are worth a notice, `None` is not: the folder is no git worktree.
//! let Some(worktree) = Worktree::open(Path::new("."), &program)? else { return Ok(()) };
//! let take = || worktree.take("session-uuid", &Limits::default(), &|| false);
//! let turn = worktree.begin_turn("session-uuid", "run-uuid")?;
//! let before = take()?;
//! // The agent works.
//! let after = take()?;
//! let during = worktree.end_turn(turn)?;
//! if let (Taken::Whole(before), Taken::Whole(after)) = (before, after) {
//!     let files = worktree.compare(&before.tree, &after.tree)?;
//!     let diff = worktree.diff(&before.tree, &after.tree, 100_000)?;
//!     // Before anything names the snapshots for good.
//!     worktree.make_durable("session-uuid", &before.tree, &after.tree)?;
//!     let plan = worktree.plan_undo(&before.tree, &after.tree)?;
//!     if plan.conflicts.is_empty() && during.is_empty() && worktree.running().is_empty() {
//!         worktree.undo("session-uuid", &before.tree, &after.tree, false)?;
//!     }
//! }
//! # Ok(())
//! # }
//! ```

#[cfg(not(unix))]
compile_error!("azureal-snapshots needs the directory handles and locks of Unix");

mod align;
mod attributes;
mod beneath;
mod check;
mod compare;
mod diff;
mod durable;
mod error;
mod git;
mod ignored;
mod import;
mod keep;
mod loose;
mod names;
mod notes;
mod origin;
mod packs;
mod pipes;
mod places;
mod project_index;
mod prune;
mod rules;
mod scan;
mod scratch;
mod state;
mod take;
mod turns;
mod undo;
mod worktree;

pub use check::{RepairedSnapshots, SnapshotCheck};
pub use compare::{FileChange, FileStatus};
pub use diff::{Diff, Patch};
pub use error::Error;
pub use git::GitProgram;
pub use prune::Pruned;
pub use scan::{SkipReason, Skipped};
pub use take::{Limits, Snapshot, Taken};
pub use turns::{RunningTurn, TurnMark};
pub use undo::{ConflictReason, ReadyUndo, Recovered, UndoAction, UndoConflict, UndoFile, UndoPlan, Undone};
pub use worktree::Worktree;

/// Returns whether a text is an object id.
pub(crate) fn is_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
