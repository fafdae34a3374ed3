//! A store on a server: what can be checked through the interface of every store.

use azureal_core::{SessionProblem, check_sessions};
use azureal_store::sqlite::health::StoreProblem;
use futures_executor::block_on;

use super::{Doctor, Finding, Progress, Report, Severity, spools};
use crate::error::Error;
use crate::workspace::Workspace;

const ADVICE: &str = "`azureal copy --to FILE` copies everything that can be read to a file, which `azureal --store FILE doctor --fix` repairs";

impl Doctor<'_> {
    pub(super) fn examine_server(&self, report: &mut Report, progress: Progress<'_>) {
        report.store = "a server".to_owned();
        let workspace = match Workspace::open(&self.directory, self.environment, &self.options) {
            Ok(workspace) => workspace,
            Err(error) => {
                report.add([Finding::of(&error, "the store")]);
                return report.add(spools::elsewhere(&self.project, None));
            }
        };
        report.add(spools::elsewhere(&self.project, workspace.server_folder()));
        let notices = workspace.notices().iter();
        report.add(
            notices.map(|notice| Finding::new("store", Severity::Note, "the store", notice.to_string())),
        );
        if let Some(spools) = workspace.spools() {
            report.add(spools::check(&spools));
        }
        let sessions = std::cell::Cell::new(0);
        let checked = block_on(check_sessions(&*workspace.store, |done, all| {
            sessions.set(all);
            progress(&format!("session {done} of {all}"))
        }));
        match checked {
            Ok(problems) => {
                report.sessions = Some(sessions.get() as u64);
                report.add(problems.into_iter().map(|(id, problem)| {
                    let severity = match problem {
                        SessionProblem::Counts { .. } | SessionProblem::SharedUuid { .. } => {
                            Severity::Warning
                        }
                        _ => Severity::Error,
                    };
                    let kind = StoreProblem::Session(id, problem.clone()).kind();
                    Finding::new(kind, severity, id.to_string(), problem.to_string()).advise(ADVICE)
                }));
            }
            Err(error) => report.add([Finding::of(&Error::from(error), "the store")]),
        }
    }
}
