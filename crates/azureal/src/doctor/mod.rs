//! The check of a store and its surroundings: what is wrong, and what a repair does about it.
//!
//! [`Doctor::examine`] changes nothing: it does not even put a deleted file back or store an interrupted turn, which every other
//! command does. [`Doctor::fix`] repairs what can be repaired, after a copy of the store is made.
//!
//! ```
//! use azureal::doctor::Doctor;
//! use azureal::{Environment, Options};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! let environment = Environment::default();
//! let doctor = Doctor::new(folder.path(), &environment, &Options::default());
//! let report = doctor.examine(&|_step| (), &|| false)?;
//! assert!(report.is_healthy(), "{:?}", report.findings);
//! # Ok::<(), azureal::Error>(())
//! ```

mod agents;
mod configuration;
mod file;
mod fix;
mod index;
mod modes;
mod names;
mod originals;
mod server;
mod snapshots;
mod space;
mod spools;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use azureal_store::sqlite::StoreFolders;
use azureal_store::sqlite::health::{CheckedSession, sessions_now};
use serde::Serialize;

use crate::agents::AgentState;
use crate::backup;
use crate::environment::Environment;
use crate::error::{Error, shown};
use crate::git_folder::StoreLayout;
use crate::project::Project;
use crate::workspace::{Options, StoreChoice};

pub use fix::Fixed;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something cannot be read or used.
    Error,
    /// Something is not as it should be.
    Warning,
    /// Something is worth knowing. A store with notes alone is healthy.
    Note,
}

/// Something that a check found. Fields may be added, never removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A word that stays the same between versions.
    pub kind: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The file, folder, session or agent.
    pub place: String,
    /// What is wrong.
    pub message: String,
    /// What `--fix` does; `None` if it does nothing.
    pub fix: Option<String>,
    /// What the user can do; `None` if nothing, or if `--fix` does it.
    pub advice: Option<String>,
    /// The number of findings that it stands for: more than 1 if it sums up the rest of its kind.
    pub count: u64,
}

impl Finding {
    fn new(
        kind: &'static str,
        severity: Severity,
        place: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            severity,
            place: place.into(),
            message: message.into(),
            fix: None,
            advice: None,
            count: 1,
        }
    }

    fn at(kind: &'static str, severity: Severity, path: &Path, message: impl Into<String>) -> Self {
        Self::new(kind, severity, shown(path), message)
    }

    fn fixed_by(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }

    fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// Describes an error of the library.
    fn of(error: &Error, place: impl Into<String>) -> Self {
        let finding = Self::new(error.kind(), Severity::Error, place, error.message());
        Self { advice: error.hint().map(str::to_owned), ..finding }
    }
}

/// The result of a check.
#[derive(Debug, Default)]
pub struct Report {
    /// The store, as a user names it.
    pub store: String,
    /// The number of its sessions; `None` if there is no store yet, or if it cannot be read.
    pub sessions: Option<u64>,
    /// The number of events that can be decoded.
    pub events: Option<u64>,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// The agents of this machine.
    pub agents: Vec<AgentState>,
}

impl Report {
    /// Returns whether nothing is wrong. Notes do not count.
    pub fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Note)
    }

    /// Returns the findings that [`Doctor::fix`] can repair.
    pub fn fixable(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.fix.is_some())
    }

    fn add(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.findings.extend(findings);
    }

    /// Puts the worst findings first, and sums up those of one kind that are too many to read.
    fn finish(mut self) -> Self {
        let mut kept: Vec<Finding> = Vec::new();
        let mut more: Vec<Finding> = Vec::new();
        self.findings.sort_by_key(|finding| finding.severity);
        for finding in self.findings {
            let same = |other: &&Finding| (other.kind, &other.fix) == (finding.kind, &finding.fix);
            if kept.iter().filter(same).count() < MOST_OF_A_KIND {
                kept.push(finding);
            } else {
                match more.iter_mut().find(|other| (other.kind, &other.fix) == (finding.kind, &finding.fix)) {
                    Some(other) => other.count += 1,
                    None => more.push(finding),
                }
            }
        }
        kept.extend(more.into_iter().map(|finding| Finding {
            place: String::new(),
            message: format!(
                "{} more of this kind, such as {}: {}",
                finding.count, finding.place, finding.message
            ),
            ..finding
        }));
        kept.sort_by_key(|finding| finding.severity);
        self.findings = kept;
        self
    }
}

/// The most findings of one kind that are listed one by one.
const MOST_OF_A_KIND: usize = 20;

pub use azureal_store::sqlite::health::Progress;

/// Checks a store and its surroundings.
pub struct Doctor<'a> {
    directory: PathBuf,
    project: Project,
    environment: &'a Environment,
    options: Options,
}

impl<'a> Doctor<'a> {
    /// The project around a directory, with the store that the options name, or else the project's.
    pub fn new(directory: &Path, environment: &'a Environment, options: &Options) -> Self {
        Self {
            directory: directory.to_owned(),
            project: Project::of_any_owner(directory),
            environment,
            options: options.clone(),
        }
    }

    /// Finds what is wrong. Changes nothing.
    ///
    /// # Errors
    ///
    /// The store is in memory, or the check was cancelled.
    pub fn examine(
        &self,
        progress: &dyn Fn(&str),
        is_cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<Report, Error> {
        let tell = progress;
        let progress: Progress<'_> = &|step| {
            tell(step);
            if is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut report = Report::default();
        report.add(modes::check_owners(&self.project, self.environment));
        let has_foreign_owner = !report.findings.is_empty();
        match self.choice()? {
            StoreChoice::Memory => return Err(Error::usage("a store in memory has nothing to check")),
            StoreChoice::File(path) => self.examine_file(&path, &mut report, progress),
            // What is kept for it is in the project, which is not used if it belongs to another user.
            StoreChoice::Postgres(_) | StoreChoice::Redis(_) if has_foreign_owner => {}
            StoreChoice::Postgres(_) | StoreChoice::Redis(_) => self.examine_server(&mut report, progress),
        }
        if progress("configuration").is_break() {
            return Err(Error::cancelled("cancelled"));
        }
        let (findings, agent) = configuration::check(&self.project, self.environment);
        report.add(findings);
        tell("agents");
        match crate::agents::survey(self.environment, is_cancelled) {
            Some(agents) => {
                report.add(agents::check(&agents, agent.as_deref()));
                report.agents = agents;
            }
            None => return Err(Error::cancelled("cancelled")),
        }
        Ok(report.finish())
    }

    fn choice(&self) -> Result<StoreChoice, Error> {
        let named = self.options.store.as_deref().filter(|named| !named.as_os_str().is_empty());
        match named {
            Some(named) => StoreChoice::of(named),
            None => Ok(StoreChoice::File(self.project.store_path())),
        }
    }

    fn examine_file(&self, path: &Path, report: &mut Report, progress: Progress<'_>) {
        let layout = StoreLayout::of(path);
        report.store = shown(path);
        // The owners of the project's own folders are checked already.
        let known: Vec<String> = report.findings.iter().map(|finding| finding.place.clone()).collect();
        report.add(modes::check(&layout).into_iter().filter(|finding| !known.contains(&finding.place)));
        let sessions = file::check(path, report, progress);
        let is_unfinished = backup::is_unfinished(&layout.folders);
        if is_unfinished {
            let message = "a restore was interrupted: the output of turns may not be that of the sessions";
            report.add([Finding::at("interrupted_restore", Severity::Warning, path, message)
                .fixed_by("completes it, as every other command does")]);
        }
        let around = |sessions: Option<&[CheckedSession]>| {
            let mut findings: Vec<Finding> = names::check(&layout).into_iter().collect();
            if let Some(sessions) = sessions.filter(|_| !is_unfinished) {
                findings.extend(originals::check(&layout.folders, sessions, progress));
                findings.extend(index::check(&layout, sessions));
            }
            if progress("unfinished turns").is_continue() {
                findings.extend(spools::check(&spools::of(&layout.folders)));
            }
            findings
        };
        let mut found = around(sessions.as_deref());
        if !found.is_empty() {
            // Turns, searches and new stores change one file after the other. What is wrong is so for a second look too.
            let now = sessions.is_some().then(|| sessions_now(path, None).ok()).flatten();
            let again = around(now.as_deref());
            let is_same =
                |one: &Finding, other: &Finding| (one.kind, &one.place) == (other.kind, &other.place);
            found.retain(|finding| again.iter().any(|other| is_same(finding, other)));
        }
        report.add(found);
        if layout.file == self.project.store_path() && progress("versions of files").is_continue() {
            report.add(snapshots::check(&self.project, self.environment));
        }
        report.add(spools::elsewhere(&self.project, None));
        report.add(space::check(path));
    }
}

/// Refuses if a turn runs in a store.
pub(crate) fn check_idle(layout: &StoreLayout) -> Result<(), Error> {
    spools::check_idle(&spools::of(&layout.folders))
}

/// Removes the search index, whose store has other sessions now.
pub(crate) fn remove_index(folders: &StoreFolders) -> std::io::Result<()> {
    index::remove(folders)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicBool, Ordering};

    use azureal_core::{NewSession, SessionStore};
    use azureal_store::SqliteStore;
    use azureal_store::sqlite::SqliteOptions;
    use futures_executor::block_on;

    use super::*;

    #[test]
    fn a_check_that_is_cancelled_ends_with_the_session_that_it_reads() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.azs");
        let store = SqliteStore::open(&file, SqliteOptions::default()).unwrap();
        for _ in 0..3 {
            block_on(store.create(NewSession::default())).unwrap();
        }
        drop(store);
        let environment = Environment::default();
        let options = Options { store: Some(file), ..Options::default() };
        let doctor = Doctor::new(folder.path(), &environment, &options);
        let (steps, is_cancelled) = (RefCell::new(Vec::new()), AtomicBool::new(false));
        let progress = |step: &str| {
            is_cancelled.fetch_or(step.starts_with("session 2"), Ordering::Relaxed);
            steps.borrow_mut().push(step.to_owned());
        };
        let ended = doctor.examine(&progress, &|| is_cancelled.load(Ordering::Relaxed));
        assert_eq!(ended.unwrap_err().kind(), "cancelled");
        let sessions = steps.borrow().iter().filter(|step| step.starts_with("session")).count();
        assert_eq!(sessions, 2, "{steps:?}");
    }
}
