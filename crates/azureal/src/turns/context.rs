//! What agents receive besides the history: the system message and the context commands.

use azureal_core::{Beginning, ContextCommand};
use azureal_engine::{Briefing, Keeping};

use crate::config::Config;
use crate::error::Error;

/// How much of a command stands for its name, in characters.
const NAME_CHARS: usize = 60;

/// The context of a turn, besides what is configured.
#[derive(Debug, Clone, Default)]
pub struct ContextSettings {
    /// Further commands whose output the agent receives.
    pub commands: Vec<String>,
    /// Runs none of the commands that are configured.
    pub ignores_configured: bool,
    /// Values of variables of the commands.
    pub variables: Vec<(String, String)>,
    /// The system message of a new session; an empty one is none. `None` for the configured one.
    pub system: Option<String>,
}

impl ContextSettings {
    /// Returns what a turn in a session that begins like this sends to its agent.
    pub(crate) fn briefing(&self, config: &Config, beginning: Beginning) -> Result<Briefing, Error> {
        if self.system.is_some() {
            let message = match beginning {
                Beginning::Nothing => None,
                Beginning::SystemMessage { .. } => Some("this session has a system message already"),
                Beginning::NoSystemMessage => Some(
                    "this session has begun without a system message, and that can only be its first message",
                ),
            };
            if let Some(message) = message {
                return Err(Error::usage(message).with_hint("leave `--system` out, or begin a new session"));
            }
        }
        let static_ones_have_run = beginning == Beginning::SystemMessage { has_context: true };
        let mut commands = self.configured(config, static_ones_have_run)?;
        commands.extend(self.further(config)?.into_iter().map(|command| {
            // A command that is asked for while a session continues is to run now.
            ContextCommand { dynamic: beginning != Beginning::Nothing, ..command }
        }));
        Ok(Briefing { system: self.system(config), commands, keeping: Keeping::Stored })
    }

    /// Returns what a turn sends to its agent of which nothing is stored.
    pub(crate) fn ephemeral(&self, config: &Config) -> Result<Briefing, Error> {
        let mut commands = self.configured(config, false)?;
        commands.extend(self.further(config)?);
        Ok(Briefing { system: self.system(config), commands, keeping: Keeping::Ephemeral })
    }

    fn system(&self, config: &Config) -> Option<String> {
        self.system.clone().or_else(|| config.default_system_message())
    }

    /// Returns the commands that are configured. Those that have run need no values for their variables.
    fn configured(&self, config: &Config, static_ones_have_run: bool) -> Result<Vec<ContextCommand>, Error> {
        match (self.ignores_configured, static_ones_have_run) {
            (true, _) => Ok(Vec::new()),
            (false, true) => config.dynamic_commands(&self.variables),
            (false, false) => config.context_commands(&self.variables),
        }
    }

    fn further(&self, config: &Config) -> Result<Vec<ContextCommand>, Error> {
        let command = |text: &String| {
            let filled = config.fill_in(text, &self.variables).map_err(|error| error.about("`--exec`"))?;
            Ok(ContextCommand { template: Some(text.clone()), ..ContextCommand::new(name_of(text), filled) })
        };
        self.commands.iter().map(command).collect()
    }
}

/// Returns the name of a command: its text, or the beginning of that.
fn name_of(text: &str) -> String {
    let mut name: String = text.trim().chars().take(NAME_CHARS).collect();
    if name.len() < text.trim().len() {
        name.push('…');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_called_by_its_text() {
        assert_eq!(name_of(" git status "), "git status");
        assert_eq!(name_of(&"ä".repeat(61)), "ä".repeat(60) + "…");
    }
}
