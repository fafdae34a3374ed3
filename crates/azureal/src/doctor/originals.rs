//! The output of turns.

use std::path::{Path, PathBuf};

use azureal_store::sqlite::StoreFolders;
use azureal_store::sqlite::health::{CheckedSession, OriginalProblem, inspect_originals};

use super::{Finding, Progress, Severity};

/// Returns the folders with the output of turns.
pub(super) fn folders(folders: &StoreFolders) -> Vec<&Path> {
    [Some(&folders.originals), folders.former_originals.as_ref()]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .collect()
}

/// Checks the output of turns of these sessions.
pub(super) fn check(
    folders: &StoreFolders,
    sessions: &[CheckedSession],
    progress: Progress<'_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in self::folders(folders) {
        match inspect_originals(folder, sessions, progress) {
            Ok(problems) => findings.extend(problems.iter().map(finding)),
            Err(error) => {
                let message = format!("the output of turns cannot be read: it {error}");
                findings.push(Finding::at("original", Severity::Error, folder, message));
            }
        }
    }
    findings
}

/// Repairs what can be repaired, and returns what was done.
pub(super) fn fix(
    folders: &StoreFolders,
    sessions: &[CheckedSession],
    progress: Progress<'_>,
) -> std::io::Result<Vec<String>> {
    let mut done = Vec::new();
    for folder in self::folders(folders) {
        for problem in inspect_originals(folder, sessions, progress)? {
            if let (Some(repair), Some(path)) = (problem.repair(), problem.path()) {
                problem.fix()?;
                done.push(format!("{}: {repair}", crate::error::shown(path)));
            }
        }
    }
    Ok(done)
}

fn finding(problem: &OriginalProblem) -> Finding {
    let (kind, severity) = match problem {
        OriginalProblem::Missing { .. } => ("missing_original", Severity::Note),
        // It may be all that is left of a session, so nothing is done about it.
        OriginalProblem::OtherSession { .. } => ("foreign_original", Severity::Note),
        OriginalProblem::Unreadable { .. } => ("unreadable_original", Severity::Error),
        _ => ("foreign_original", Severity::Warning),
    };
    let finding = match problem.path() {
        Some(path) => Finding::at(kind, severity, path, problem.to_string()),
        None => {
            let text = problem.to_string();
            let (place, message) = text.split_once(": ").unwrap_or(("", &text));
            Finding::new(kind, severity, place, message)
        }
    };
    match (problem.repair(), problem.path()) {
        (Some(repair), _) => finding.fixed_by(repair),
        (None, Some(_)) if matches!(problem, OriginalProblem::OtherSession { .. }) => finding.advise(
            "it is kept, and `zstdcat` shows its files; a backup or another store may have the session",
        ),
        (None, Some(_)) => finding.advise("move it elsewhere; azureal does not use it"),
        (None, None) => finding,
    }
}
