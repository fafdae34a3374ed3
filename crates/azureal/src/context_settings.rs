//! What agents are told besides the history: the system message and the context commands, wherever they were said.

use azureal_core::{Beginning, ContextCommand, SessionId};
use azureal_engine::{Briefing, Keeping};

use crate::failure::Failure;

/// How much of a command stands for its name, in characters.
const NAME_CHARS: usize = 60;

/// What the command line says of the context.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Context")]
pub(crate) struct ContextArgs {
    /// Run a command, and tell the agent what it prints; may be given more than once
    #[arg(long, value_name = "COMMAND")]
    exec: Vec<String>,
    /// Run none of the commands that are configured
    #[arg(long)]
    no_context_exec: bool,
    /// Give a variable of the commands a value; may be given more than once
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<(String, String)>,
    /// Begin the session with this system message; an empty one is none
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err("not of the form NAME=VALUE".to_owned()),
    }
}

/// What is meant by it, together with what is configured.
#[derive(Debug)]
pub(crate) struct ContextSettings {
    /// Whether the system message was asked for on the command line, and cannot be passed over.
    system_is_asked_for: bool,
    system: Option<String>,
    configured: Vec<ContextCommand>,
    /// The commands of the command line, which are meant for this very turn.
    asked_for: Vec<ContextCommand>,
}

impl ContextSettings {
    /// Reads what was said, and fails before anything is made or run.
    pub(crate) fn read(args: &ContextArgs) -> Result<Self, Failure> {
        let asked_for =
            args.exec.iter().map(|command| command_of(command)).collect::<Result<_, Failure>>()?;
        Ok(Self {
            system_is_asked_for: args.system.is_some(),
            system: args.system.clone(),
            configured: Vec::new(),
            asked_for,
        })
    }

    /// Returns what a turn in a session that begins like this tells its agent.
    pub(crate) fn briefing(self, session: SessionId, beginning: Beginning) -> Result<Briefing, Failure> {
        if self.system_is_asked_for {
            let message = match beginning {
                Beginning::Nothing => None,
                Beginning::SystemMessage { .. } => Some(format!("{session} has a system message already")),
                Beginning::NoSystemMessage => Some(format!(
                    "{session} has begun without a system message, and that can only be its first message"
                )),
            };
            if let Some(message) = message {
                return Err(Failure::usage(message).with_hint("leave `--system` out, or begin a new session"));
            }
        }
        let Self { system, configured: mut commands, mut asked_for, .. } = self;
        if beginning != Beginning::Nothing {
            // Whoever asks for a command while a session goes on wants to have it run, and now.
            asked_for.iter_mut().for_each(|command| command.dynamic = true);
        }
        commands.append(&mut asked_for);
        Ok(Briefing { system, commands, keeping: Keeping::Stored })
    }

    /// Returns what a turn tells its agent that nothing is stored of.
    pub(crate) fn ephemeral(self) -> Briefing {
        let Self { system, configured: mut commands, mut asked_for, .. } = self;
        commands.append(&mut asked_for);
        Briefing { system, commands, keeping: Keeping::Ephemeral }
    }
}

/// Makes a command of the command line, which is called by its own text.
fn command_of(command: &str) -> Result<ContextCommand, Failure> {
    if command.trim().is_empty() {
        return Err(Failure::usage("`--exec` needs a command, and this one is empty"));
    }
    let mut name: String = command.trim().chars().take(NAME_CHARS).collect();
    if name.len() < command.trim().len() {
        name.push('…');
    }
    Ok(ContextCommand::new(name, command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(system: Option<&str>, exec: &[&str]) -> ContextSettings {
        ContextSettings::read(&ContextArgs {
            exec: exec.iter().map(|command| (*command).to_owned()).collect(),
            no_context_exec: false,
            variables: Vec::new(),
            system: system.map(str::to_owned),
        })
        .unwrap()
    }

    const BEGINNINGS: [Beginning; 4] = [
        Beginning::Nothing,
        Beginning::NoSystemMessage,
        Beginning::SystemMessage { has_context: false },
        Beginning::SystemMessage { has_context: true },
    ];

    #[test]
    fn a_session_gets_a_system_message_only_as_its_first() {
        let session = SessionId::new(1).unwrap();
        for beginning in BEGINNINGS {
            let asked = settings(Some("Be brief."), &[]).briefing(session, beginning);
            match beginning {
                Beginning::Nothing => assert_eq!(asked.unwrap().system.as_deref(), Some("Be brief.")),
                _ => assert_eq!(asked.unwrap_err().kind(), "usage"),
            }
            assert!(settings(None, &[]).briefing(session, beginning).is_ok());
        }
    }

    #[test]
    fn a_command_that_is_asked_for_runs_in_any_case() {
        for beginning in BEGINNINGS {
            let briefing = settings(None, &["date"]).briefing(SessionId::new(1).unwrap(), beginning).unwrap();
            let expected = ContextCommand {
                dynamic: beginning != Beginning::Nothing,
                ..ContextCommand::new("date", "date")
            };
            assert_eq!(briefing.commands, [expected]);
        }
    }

    #[test]
    fn a_command_is_called_by_its_text() {
        assert_eq!(command_of(" git status ").unwrap().name, "git status");
        assert_eq!(command_of(&"ä".repeat(61)).unwrap().name, "ä".repeat(60) + "…");
        assert_eq!(command_of(" \n").unwrap_err().kind(), "usage");
    }

    #[test]
    fn a_variable_has_a_name_and_a_value() {
        assert_eq!(variable("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert_eq!(variable("A="), Ok(("A".into(), String::new())));
        assert!(variable("A").is_err() && variable("=b").is_err());
    }
}
