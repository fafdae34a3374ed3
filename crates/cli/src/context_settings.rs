//! The arguments of a turn that say what the agent receives besides the history.

use crate::environment::CllmConfig;
use crate::failure::Failure;
use crate::trust_question;
use azureal::config::{Config, assignment};
use azureal::{ContextSettings, Project};

/// What the command line says of the context.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Context")]
pub(crate) struct ContextArgs {
    /// Run a command, and send its output to the agent; repeatable
    #[arg(long, value_name = "COMMAND", value_parser = command)]
    exec: Vec<String>,
    /// Run none of the configured commands
    #[arg(long)]
    no_context_exec: bool,
    /// Set a variable of the commands; repeatable
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = assignment)]
    variables: Vec<(String, String)>,
    /// Start the session with this system message; empty for none
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[command(flatten)]
    cllm: CllmConfig,
}

impl ContextArgs {
    /// Returns them in the form that a turn takes.
    pub(crate) fn settings(&self) -> ContextSettings {
        ContextSettings {
            commands: self.exec.clone(),
            ignores_configured: self.no_context_exec,
            variables: self.variables.clone(),
            system: self.system.clone(),
        }
    }
}

/// Reads the configuration and makes sure that it is trusted, before anything is made or run.
pub(crate) fn load_config(args: &ContextArgs, project: &Project) -> Result<Config, Failure> {
    let mut config = Config::load(project, &args.cllm.environment())?;
    if args.no_context_exec {
        // Nothing of it has to run, so nobody has to be asked.
        trust_question::note_ignored(&config);
    } else {
        trust_question::require(&mut config).map_err(|failure| {
            failure.with_hint(format!(
                "`azureal trust{}` shows what is in there and asks; `--no-context-exec` continues without it",
                args.cllm.as_arguments()
            ))
        })?;
    }
    Ok(config)
}

/// Reads a command of the command line.
fn command(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("there is no command in it".to_owned()) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_text() {
        assert!(command(" \n").is_err());
        assert_eq!(command(" git status ").as_deref(), Ok(" git status "));
    }
}
