//! The agents of this machine.

use super::{Finding, Severity};
use crate::agents::{AgentState, Problem, known_name};

/// Checks that installed agents can be used. One that is not installed is a finding only if it is configured.
pub(super) fn check(agents: &[AgentState], configured: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = configured.map(|name| known_name(name).unwrap_or(name));
    if let Some(name) = name
        && agents.iter().all(|state| state.agent != name)
    {
        let message = "it is configured, and this azureal does not know it";
        findings.push(Finding::new("agent", Severity::Warning, name, message));
    }
    for state in agents {
        let Some(problem) = state.problem else { continue };
        let is_configured = name == Some(state.agent);
        if problem == Problem::NotInstalled && !is_configured {
            continue;
        }
        let message = match problem {
            Problem::NotInstalled => "it is configured, and is not installed",
            Problem::NoVersion => "it does not say its version",
            Problem::TooOld => "it is too old",
            Problem::NotLoggedIn => "no login was found",
        };
        let severity = if is_configured { Severity::Warning } else { Severity::Note };
        let finding = Finding::new("agent", severity, state.agent, message);
        findings.push(Finding { advice: state.hint.clone(), ..finding });
    }
    findings
}
