//! The agents that write the summary when a session is compacted.

use std::path::PathBuf;
use std::time::Duration;

use azureal_agents::registry;
use azureal_core::agent::{Agent, Program};
use azureal_engine::Summariser;

use super::choice::{Wanted, choose, program_of};
use super::own_settings::own_settings;
use crate::environment::Environment;
use crate::error::Error;

/// The longest time that one agent may take for a summary.
pub const SUMMARY_TIMEOUT: Duration = Duration::from_secs(300);

fn summariser(
    agent: &'static dyn Agent,
    program: PathBuf,
    model: Option<String>,
    environment: &Environment,
) -> Summariser {
    let settings = own_settings(agent, environment);
    Summariser { agent, program, model, settings }
}

/// Returns the agents to ask for a summary, in this order: the named one; else the session's last agent, then the
/// other installed ones. Never the built-in one: it has no model, and the digest is better. A session with the
/// built-in agent has not left the machine, and does not for a summary.
pub fn summarisers(
    named: Option<&str>,
    last: Option<&str>,
    environment: &Environment,
) -> Result<Vec<Summariser>, Error> {
    if let Some(named) = named {
        let choice = choose(&Wanted { agent: Some(named), ..Wanted::default() }, environment)?;
        let has_model = choice.agent.program() != Program::Ourselves;
        let writer = summariser(choice.agent, choice.program, choice.model, environment);
        return Ok(has_model.then_some(writer).into_iter().collect());
    }
    let stays_here = |agent: &dyn Agent| agent.program() == Program::Ourselves;
    if last.and_then(|name| registry::find(name).ok()).is_some_and(stays_here) {
        return Ok(Vec::new());
    }
    let mut agents = registry::all().to_vec();
    agents.retain(|agent| !stays_here(*agent));
    // Stable: the others stay in the order in which they are preferred.
    agents.sort_by_key(|agent| Some(agent.name()) != last);
    let installed = agents.into_iter().filter_map(|agent| {
        let program = program_of(agent, environment)?.ok()?;
        Some(summariser(agent, program, None, environment))
    });
    Ok(installed.collect())
}
