//! Whether an agent's program can run without a transcript of its own.

use std::path::Path;

use azureal_core::agent::Agent;
use azureal_core::visible_line;

use super::version::{self, numbers};
use crate::environment::Environment;
use crate::error::Error;

/// Checks that the program of an agent keeps no transcript of an ephemeral turn. An older program does, or rejects the
/// argument for it. Returns a notice if the version is unknown.
pub(crate) fn check(
    agent: &dyn Agent,
    program: &Path,
    directory: &Path,
    environment: &Environment,
) -> Result<Option<String>, Error> {
    let Some(needs) = agent.needs() else { return Ok(None) };
    let name = agent.name();
    let oldest = needs.ephemeral.iter().map(u64::to_string).collect::<Vec<_>>().join(".");
    let version = version::find(program, directory, environment);
    match version.as_deref().and_then(numbers) {
        Some(found) if found.as_slice() >= needs.ephemeral => Ok(None),
        Some(_) => {
            let version = version.as_deref().map(visible_line).unwrap_or_default();
            let message = format!(
                "{name} is too old for `--ephemeral`: version `{version}` stores the prompt in a transcript of its own"
            );
            let hint = format!("update {name} to version {oldest} or later, or name another agent with `-a`");
            Err(Error::new("too_old", message).with_hint(hint))
        }
        None => Ok(Some(format!(
            "the version of {name} is unknown; before {oldest} it cannot run without a transcript of its own"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use azureal_agents::registry;
    use azureal_testkit::programs::script;

    use super::*;

    #[test]
    fn a_program_that_is_too_old_is_refused_and_an_unknown_one_gets_a_notice() {
        let folder = tempfile::tempdir().unwrap();
        let checked = |agent: &str, prints: &str| {
            let program = folder.path().join(agent);
            script(&program, prints);
            let agent = registry::find(agent).unwrap();
            check(agent, &program, folder.path(), &Environment::default())
        };
        for (agent, version) in [
            ("claude", "2.0.64 (Claude Code)"),
            ("claude", "2.1.197 (Claude Code)"),
            ("codex", "codex-cli 0.99.0"),
            ("codex", "codex-cli 1.0"),
        ] {
            assert_eq!(checked(agent, &format!("echo '{version}'")).unwrap(), None, "{version}");
        }
        for (agent, version, oldest) in
            [("claude", "2.0.62 (Claude Code)", "2.0.64"), ("codex", "codex-cli 0.98.0", "0.99.0")]
        {
            let error = checked(agent, &format!("echo '{version}'")).unwrap_err();
            assert_eq!(error.kind(), "too_old");
            assert!(error.message().contains(version), "{error}");
            assert!(error.hint().unwrap().contains(oldest), "{error}");
        }
        for silent in ["exit 1", "echo no number"] {
            let notice = checked("claude", silent).unwrap().unwrap();
            assert!(notice.contains("2.0.64"), "{notice}");
        }
        assert_eq!(checked("offline", "exit 1").unwrap(), None, "it has no program of its own");
    }
}
