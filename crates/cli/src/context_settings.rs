//! What agents are told besides the history: the system message and the context commands, wherever they were said.

use azureal_core::{Beginning, ContextCommand};
use azureal_engine::{Briefing, Keeping};

use crate::environment::environment;
use crate::failure::Failure;
use crate::trust_question;
use azureal::Project;
use azureal::config::{Config, assignment};

/// How much of a command stands for its name, in characters.
const NAME_CHARS: usize = 60;

/// What the command line says of the context.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Context")]
pub(crate) struct ContextArgs {
    /// Run a command, and tell the agent what it prints; may be given more than once
    #[arg(long, value_name = "COMMAND", value_parser = command)]
    exec: Vec<String>,
    /// Run none of the commands that are configured
    #[arg(long)]
    no_context_exec: bool,
    /// Give a variable of the commands a value; may be given more than once
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = assignment)]
    variables: Vec<(String, String)>,
    /// Begin the session with this system message; an empty one is none
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
}

/// What is meant by it, together with what is configured.
#[derive(Debug)]
pub(crate) struct ContextSettings<'a> {
    args: &'a ContextArgs,
    config: &'a Config,
}

impl<'a> ContextSettings<'a> {
    pub(crate) fn new(args: &'a ContextArgs, config: &'a Config) -> Self {
        Self { args, config }
    }

    /// Returns what a turn in a session that begins like this tells its agent.
    pub(crate) fn briefing(&self, beginning: Beginning) -> Result<Briefing, Failure> {
        if self.args.system.is_some() {
            let message = match beginning {
                Beginning::Nothing => None,
                Beginning::SystemMessage { .. } => Some("this session has a system message already"),
                Beginning::NoSystemMessage => Some(
                    "this session has begun without a system message, and that can only be its first message",
                ),
            };
            if let Some(message) = message {
                return Err(Failure::usage(message).with_hint("leave `--system` out, or begin a new session"));
            }
        }
        let static_ones_have_run = beginning == Beginning::SystemMessage { has_context: true };
        let mut commands = self.configured(static_ones_have_run)?;
        commands.extend(self.asked_for()?.into_iter().map(|command| {
            // Whoever asks for a command while a session goes on wants to have it run, and now.
            ContextCommand { dynamic: beginning != Beginning::Nothing, ..command }
        }));
        Ok(Briefing { system: self.system(), commands, keeping: Keeping::Stored })
    }

    /// Returns what a turn tells its agent that nothing is stored of.
    pub(crate) fn ephemeral(&self) -> Result<Briefing, Failure> {
        let mut commands = self.configured(false)?;
        commands.extend(self.asked_for()?);
        Ok(Briefing { system: self.system(), commands, keeping: Keeping::Ephemeral })
    }

    fn system(&self) -> Option<String> {
        self.args.system.clone().or_else(|| self.config.default_system_message())
    }

    /// Returns the commands that are configured. Those that have run need no values for their variables.
    fn configured(&self, static_ones_have_run: bool) -> Result<Vec<ContextCommand>, Failure> {
        match (self.args.no_context_exec, static_ones_have_run) {
            (true, _) => Ok(Vec::new()),
            (false, true) => Ok(self.config.dynamic_commands(&self.args.variables)?),
            (false, false) => Ok(self.config.context_commands(&self.args.variables)?),
        }
    }

    /// Returns the commands of the command line.
    fn asked_for(&self) -> Result<Vec<ContextCommand>, Failure> {
        self.args
            .exec
            .iter()
            .map(|text| {
                let command = self.config.fill_in(text, &self.args.variables);
                let command = command.map_err(|failure| failure.about("`--exec`"))?;
                Ok(ContextCommand {
                    template: Some(text.clone()),
                    ..ContextCommand::new(name_of(text), command)
                })
            })
            .collect()
    }
}

/// Reads the configuration and makes sure that it is trusted, before anything is made or run.
pub(crate) fn load_config(args: &ContextArgs, project: &Project) -> Result<Config, Failure> {
    let mut config = Config::load(project, &environment())?;
    if args.no_context_exec {
        // Nothing of it has to run, so nobody has to be asked.
        trust_question::note_ignored(&config);
    } else {
        trust_question::require(&mut config)?;
    }
    Ok(config)
}

/// Reads a command of the command line.
fn command(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("there is no command in it".to_owned()) } else { Ok(text.to_owned()) }
}

/// Returns what a command of the command line is called: as it was typed, or the beginning of that.
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
        assert!(command(" \n").is_err());
    }
}
