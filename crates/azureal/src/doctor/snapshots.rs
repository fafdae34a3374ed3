//! The versions of files, for diff and undo.

use std::fs;
use std::path::PathBuf;

use azureal_files::as_argument;
use azureal_snapshots::{Error, GitProgram, SnapshotCheck, Worktree};

use super::{Finding, Severity};
use crate::environment::Environment;
use crate::git_folder;
use crate::project::Project;

/// Checks the snapshots, if there are any.
pub(super) fn check(project: &Project, environment: &Environment) -> Vec<Finding> {
    let folder = git_folder::of_store(&project.store_path()).ok().map(|folder| folder.join("snapshots"));
    // Turns are noted there too, also without git.
    let has_snapshots = |folder: &PathBuf| {
        fs::read_dir(folder.join("sessions")).is_ok_and(|mut notes| notes.next().is_some())
    };
    let Some(folder) = folder.filter(has_snapshots) else { return Vec::new() };
    let git = GitProgram { program: "git".into(), environment: environment.for_children().clone() };
    let checked = match Worktree::open(project.directory(), &git) {
        Ok(Some(worktree)) => worktree.check_snapshots(),
        Ok(None) => return Vec::new(),
        Err(error) => Err(error),
    };
    match checked {
        Ok(check) => findings(&check),
        Err(error @ (Error::NoGit { .. } | Error::OldGit { .. })) => {
            let message = format!("versions of files are not checked, shown or undone: {error}");
            vec![Finding::at("snapshots", Severity::Note, &folder, message)]
        }
        Err(error) => vec![Finding::at("snapshots", Severity::Error, &folder, error.to_string())],
    }
}

fn findings(check: &SnapshotCheck) -> Vec<Finding> {
    let unreadable = check.unreadable.iter().map(|path| {
        let message = "the note of a snapshot cannot be read, so snapshots are not pruned";
        Finding::at("snapshots", Severity::Warning, path, message)
            .advise(format!("`rm -r {}` gives the snapshot up", as_argument(path)))
    });
    let lost = check.lost.iter().map(|path| {
        let message = "the versions of files of a snapshot are gone: its changes cannot be shown or undone";
        Finding::at("snapshots", Severity::Note, path, message)
            .advise(format!("`rm {}` gives the snapshot up", as_argument(path)))
    });
    unreadable.chain(lost).collect()
}
