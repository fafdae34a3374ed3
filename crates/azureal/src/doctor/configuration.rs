//! Configuration and trust.

use super::{Finding, Severity};
use crate::config::{Config, trust};
use crate::environment::Environment;
use crate::error::shown;
use crate::project::Project;

/// Checks that the configuration can be read, and returns the configured agent.
pub(super) fn check(project: &Project, environment: &Environment) -> (Vec<Finding>, Option<String>) {
    let place = shown(project.directory());
    let config = match Config::load_to_show(project, environment) {
        Ok(config) => config,
        Err(error) => {
            let finding = Finding { kind: "configuration", ..Finding::of(&error, place) };
            return (vec![finding], None);
        }
    };
    let mut findings = Vec::new();
    if let Some(required) = trust::required(&config) {
        let message = format!("{}, so nothing in there is in effect", required.message);
        let finding = Finding::new("trust", Severity::Note, place.clone(), message);
        findings.push(finding.advise("`azureal trust` shows what it says, and asks"));
    }
    if let Err(error) = config.context_commands(&[]) {
        let finding = Finding::of(&error, place);
        findings.push(Finding { kind: "configuration", severity: Severity::Warning, ..finding });
    }
    (findings, config.agent().map(str::to_owned))
}
