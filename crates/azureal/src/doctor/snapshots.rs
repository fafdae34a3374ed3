//! The versions of files, for diff and undo.

use std::path::PathBuf;

use azureal_core::counted;
use azureal_files::as_argument;
use azureal_snapshots::{Error, GitProgram, RepairedSnapshots, SnapshotCheck, Worktree};

use super::{Finding, Fixed, Report, Severity};
use crate::environment::Environment;
use crate::git_folder;
use crate::project::Project;

const KIND: &str = "snapshots";

/// Checks the snapshots, if there are any.
pub(super) fn check(project: &Project, environment: &Environment) -> Vec<Finding> {
    let folder = git_folder::of_store(&project.store_path()).ok().map(|folder| folder.join("snapshots"));
    // Turns are noted there too, also without git.
    let has_snapshots = |folder: &PathBuf| !Worktree::noted_sessions(folder).is_empty();
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
            vec![Finding::at(KIND, Severity::Note, &folder, message)]
        }
        Err(error) => vec![Finding::at(KIND, Severity::Error, &folder, error.to_string())],
    }
}

/// Repairs the snapshots, if the check has found that something is wrong with them.
pub(super) fn fix(project: &Project, environment: &Environment, report: &Report, fixed: &mut Fixed) {
    if !report.fixable().any(|finding| finding.kind == KIND) {
        return;
    }
    let git = GitProgram { program: "git".into(), environment: environment.for_children().clone() };
    let repaired = match Worktree::open(project.directory(), &git) {
        Ok(Some(worktree)) => worktree.repair_snapshots(),
        Ok(None) => return,
        Err(error) => Err(error),
    };
    match repaired {
        Ok(repaired) => fixed.done.extend(done(&repaired)),
        Err(error) => fixed.failed.push(format!("versions of files: {error}")),
    }
}

fn findings(check: &SnapshotCheck) -> Vec<Finding> {
    let warning = |path: &PathBuf, message: &str, fix: &str| {
        Finding::at(KIND, Severity::Warning, path, message).fixed_by(fix)
    };
    let unreadable = check.unreadable.iter().map(|path| {
        Finding::at(
            KIND,
            Severity::Warning,
            path,
            "notes of snapshots cannot be read, so snapshots are not pruned",
        )
        .advise(format!("`rm -r {}` gives the snapshots of this session up", as_argument(path)))
    });
    let notes = check.damaged_notes.iter().map(|path| {
        warning(
            path,
            "notes of snapshots are damaged, so snapshots are not pruned",
            "keeps the notes that are whole",
        )
    });
    let indexes = check.indexes.iter().map(|path| {
        warning(path, "the index of the snapshots is damaged", "removes it; the next turn creates it again")
    });
    let objects = check.objects.iter().map(|path| {
        warning(
            path,
            "a version of a file is damaged",
            "removes it; a file that is unchanged is stored again",
        )
    });
    let packs = check.packs.iter().map(|path| {
        Finding::at(
            KIND,
            Severity::Error,
            path,
            "versions of files are damaged: changes cannot be shown or undone",
        )
        .fixed_by("creates the index of the pack again, or keeps the versions that can be read")
    });
    let lost = check.lost.iter().map(|(session, count)| {
        let count = counted(*count as u64, "snapshot");
        let message =
            format!("the versions of files of {count} are gone: their changes cannot be shown or undone");
        Finding::new(KIND, Severity::Note, session.as_str(), message).fixed_by("gives these snapshots up")
    });
    unreadable.chain(notes).chain(indexes).chain(objects).chain(packs).chain(lost).collect()
}

/// Describes a repair.
fn done(repaired: &RepairedSnapshots) -> Vec<String> {
    let RepairedSnapshots { indexes, objects, indexed, salvaged, lost, notes } = *repaired;
    [
        (indexes, "worktree", "removed the damaged index of"),
        (objects, "object", "removed the damaged content of"),
        (indexed, "pack", "created the index again of"),
        (salvaged, "damaged pack", "kept what can be read of"),
        (lost, "snapshot", "gave up the rest of"),
        (notes, "session", "repaired the notes of"),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, what, verb)| format!("versions of files: {verb} {}", counted(count as u64, what)))
    .collect()
}
