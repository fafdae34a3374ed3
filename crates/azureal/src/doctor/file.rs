//! The file of the store: its structure and its rows.

use std::path::Path;

use azureal_store::sqlite::health::{CheckedSession, StoreProblem, inspect};

use super::{Finding, Progress, Report, Severity};
use crate::error::{Error, shown};

/// Checks the file, and returns its sessions; `None` if there is no file, or if it cannot be read.
pub(super) fn check(path: &Path, report: &mut Report, progress: Progress<'_>) -> Option<Vec<CheckedSession>> {
    if std::fs::symlink_metadata(path).is_err() {
        return None;
    }
    let inspection = match inspect(path, progress) {
        Ok(inspection) => inspection,
        Err(error) => {
            report.add([Finding::of(&Error::from(error), shown(path))]);
            return None;
        }
    };
    let is_damaged = |problem: &StoreProblem| problem.kind() == "integrity";
    let can_be_read = !inspection.problems.iter().any(is_damaged);
    report.add(inspection.problems.iter().map(|problem| finding(problem, path)));
    report.sessions = Some(inspection.sessions.len() as u64);
    report.events = Some(inspection.readable_events);
    // Of a damaged file, not all sessions are known.
    can_be_read.then_some(inspection.sessions)
}

fn finding(problem: &StoreProblem, path: &Path) -> Finding {
    let place = problem.session().map_or_else(|| shown(path), |session| session.to_string());
    let severity = match problem.kind() {
        "counts" | "no_uuid" | "duplicate_uuid" => Severity::Warning,
        _ => Severity::Error,
    };
    // The place names the session already.
    let message = problem.to_string();
    let message = message.strip_prefix(&format!("{place}: ")).unwrap_or(&message).to_owned();
    let finding = Finding::new(problem.kind(), severity, place, message);
    match problem.repair() {
        Some(repair) => finding.fixed_by(repair),
        None if problem.kind() == "integrity" => {
            finding.advise("move it away if it is another file, or name the store with `--store FILE`")
        }
        None => finding.advise("the rest of the session can be read and continued"),
    }
}
