//! Snapshots of a git worktree: the changes between two of them, and their undo.
//!
//! - [`Worktree::take`] records all files of the worktree that git does not ignore, in about the time of `git status`.
//! - [`Worktree::compare`] and [`Worktree::diff`] show the changes between two snapshots.
//! - [`Worktree::undo`] restores the files that differ, all or none, also if this process is killed meanwhile.
//! - [`Worktree::prune`] removes the oldest snapshots, [`Worktree::remove_session`] those of a session.
//! - [`Worktree::begin_turn`] and [`Worktree::end_turn`] tell which other sessions had a turn meanwhile.
//!
//! The snapshots are in `azureal/snapshots` of the git directory, in a repository of our own. Git runs with our configuration
//! alone: it executes no hook, filter or monitor of the project, and does not change the project's repository.

#[cfg(not(unix))]
compile_error!("azureal-snapshots needs the directory handles and locks of Unix");

mod beneath;
mod compare;
mod error;
mod git;
mod import;
mod keep;
mod places;
mod project_index;
mod prune;
mod scan;
mod state;
mod take;
mod turns;
mod undo;
mod worktree;

pub use compare::{Diff, FileChange, FileStatus};
pub use error::Error;
pub use git::GitProgram;
pub use prune::Pruned;
pub use scan::{SkipReason, Skipped};
pub use take::{Limits, Snapshot, Taken};
pub use turns::{RunningTurn, TurnMark};
pub use undo::{ConflictReason, UndoAction, UndoConflict, UndoFile, UndoPlan, Undone, has_interrupted_undo};
pub use worktree::Worktree;

/// Returns whether a text is an object id.
pub(crate) fn is_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
