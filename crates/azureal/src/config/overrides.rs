//! Settings from environment variables. They take precedence over the files, and the command line over them.

use std::time::Duration;

use azureal_agents::registry;
use azureal_core::agent::Permission;

use super::settings::{PERMISSIONS, agent_names, one_of, permission_named, seconds};
use crate::environment::Environment;
use crate::error::{Error, quoted};

const AGENT: &str = "AZUREAL_AGENT";
const MODEL: &str = "AZUREAL_MODEL";
const PERMISSION: &str = "AZUREAL_PERMISSION";
const TIMEOUT: &str = "AZUREAL_TIMEOUT";

/// The values that are set, each with its variable.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    pub(super) agent: Option<Override<String>>,
    pub(super) model: Option<Override<String>>,
    pub(super) permission: Option<Override<Permission>>,
    pub(super) timeout: Option<Override<Duration>>,
}

/// A value and the variable that it comes from.
#[derive(Debug)]
pub(super) struct Override<T> {
    pub(super) value: T,
    pub(super) variable: &'static str,
}

impl Overrides {
    /// Reads the variables. An empty one is unset.
    pub(super) fn of(environment: &Environment) -> Result<Self, Error> {
        let find = |variable| environment.variable(variable).filter(|text| !text.trim().is_empty());
        let mut overrides = Self::default();
        if let Some(model) = find(MODEL) {
            overrides.model = Some(Override { value: model.to_owned(), variable: MODEL });
            // Like `-m`: the model implies its agent, even if a file names another.
            let agent = registry::for_model(model).ok().map(|choice| choice.agent.name().to_owned());
            overrides.agent = agent.map(|value| Override { value, variable: MODEL });
        }
        if let Some(agent) = find(AGENT) {
            if registry::find(agent).is_err() {
                return Err(wrong(AGENT, agent, &one_of(&agent_names())));
            }
            overrides.agent = Some(Override { value: agent.to_owned(), variable: AGENT });
        }
        if let Some(word) = find(PERMISSION) {
            let value =
                permission_named(word).ok_or_else(|| wrong(PERMISSION, word, &one_of(&PERMISSIONS)))?;
            overrides.permission = Some(Override { value, variable: PERMISSION });
        }
        if let Some(text) = find(TIMEOUT) {
            let value = seconds(text).map_err(|_| wrong(TIMEOUT, text, "a number of seconds above 0"))?;
            overrides.timeout = Some(Override { value, variable: TIMEOUT });
        }
        Ok(overrides)
    }
}

fn wrong(variable: &str, value: &str, allowed: &str) -> Error {
    let message =
        format!("{} in the environment is {}; allowed is {allowed}", quoted(variable), quoted(value));
    Error::usage(message).with_hint(format!("`unset {variable}` goes back to the configuration files"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_in_the_environment_says_whose_it_is() {
        let agent = |variables: &[(&str, &str)]| {
            let overrides = Overrides::of(&Environment::from(variables)).unwrap();
            overrides.agent.map(|agent| (agent.value, agent.variable))
        };
        let found = |name: &str, variable| Some((name.to_owned(), variable));
        assert_eq!(agent(&[(MODEL, "opus")]), found("claude", MODEL));
        assert_eq!(agent(&[(MODEL, "opus"), (AGENT, "codex")]), found("codex", AGENT));
        assert_eq!(agent(&[(MODEL, "unheard-of")]), None);
        assert_eq!(agent(&[(MODEL, ""), (AGENT, " ")]), None);
    }

    #[test]
    fn a_wrong_value_is_named_with_what_is_allowed() {
        for (variable, value, expected) in [
            (
                PERMISSION,
                "bypass",
                "`AZUREAL_PERMISSION` in the environment is `bypass`; allowed is one of read, edit, all",
            ),
            (
                TIMEOUT,
                "0",
                "`AZUREAL_TIMEOUT` in the environment is `0`; allowed is a number of seconds above 0",
            ),
            (
                AGENT,
                "eliza",
                "`AZUREAL_AGENT` in the environment is `eliza`; allowed is one of claude, codex, offline",
            ),
        ] {
            let failure = Overrides::of(&Environment::from([(variable, value)])).unwrap_err();
            assert_eq!(failure.message(), expected);
        }
    }
}
