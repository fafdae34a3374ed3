//! The settings of an agent's own program.

use std::path::PathBuf;

use azureal_agents::registry;
use azureal_core::agent::Agent;

use crate::environment::Environment;

/// Reads the settings of the program of the agent with this name; `None` if nothing needs them, or if there are none that can be read.
pub fn own_settings_of(agent: &str, environment: &Environment) -> Option<String> {
    own_settings(registry::find(agent).ok()?, environment)
}

/// Reads the settings of the program of an agent.
pub(super) fn own_settings(agent: &dyn Agent, environment: &Environment) -> Option<String> {
    let own = agent.own_settings()?;
    let named = environment.value(own.variable).map(PathBuf::from);
    let folder = named.or_else(|| Some(environment.home()?.join(own.home)))?;
    std::fs::read_to_string(folder.join(own.file)).ok()
}
