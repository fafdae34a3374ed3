//! Codex, as `codex exec --json`.

mod command;
mod item;
mod native;
mod older;
mod parser;
mod provider;
mod repeats;
mod rollout;
mod shell;
mod wire;
mod write;

pub use native::CodexSessions;
pub use write::CodexWriter;

use azureal_core::agent::{
    Agent, AgentCommand, AgentError, AgentParser, AgentRequest, Login, Needs, OwnRecord, OwnSettings,
    Permission, Program,
};

/// Codex.
#[derive(Debug, Clone, Copy)]
pub struct Codex;

/// The name in the registry and in events.
const NAME: &str = "codex";

impl Agent for Codex {
    fn name(&self) -> &'static str {
        NAME
    }

    fn program(&self) -> Program {
        Program::Named("codex")
    }

    fn answers_for(&self, model: &str) -> bool {
        let model = model.to_ascii_lowercase();
        // `o3`, `o4-mini` and what will come after them.
        let numbered =
            model.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        numbered || model.starts_with("gpt-") || model.starts_with("codex-")
    }

    fn models(&self) -> &'static [&'static str] {
        &["gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-astra", "gpt-6-sol", "gpt-6-luna", "gpt-5.5"]
    }

    fn needs(&self) -> Option<Needs> {
        Some(Needs {
            version: &[0, 36, 0],
            ephemeral: &[0, 99, 0],
            login: Login {
                variables: &["CODEX_API_KEY", "OPENAI_API_KEY"],
                variable: "CODEX_HOME",
                home: ".codex",
                files: &["auth.json"],
                settings: &[
                    // Another provider has its own key, or needs none; a keyring cannot be looked into.
                    ("config.toml", &["model_provider", "cli_auth_credentials_store"]),
                    ("/etc/codex/config.toml", &["model_provider", "cli_auth_credentials_store"]),
                ],
                in_keychain: false,
                errors: &["401 Unauthorized", "codex login"],
                command: "codex login",
            },
        })
    }

    fn check(&self, turn: &AgentRequest) -> Result<(), AgentError> {
        command::check(turn)
    }

    fn command(&self, turn: &AgentRequest) -> Result<AgentCommand, AgentError> {
        let mut command = command::build(turn)?;
        if turn.permission == Some(Permission::Answer) {
            // If there is no answer, azureal asks another agent, instead of thirty retries with the same model.
            let asked_twice = turn.settings.as_deref().map(provider::ask_twice).unwrap_or_default();
            let before_input = command.args.len().saturating_sub(1);
            command.args.splice(before_input..before_input, asked_twice);
        }
        Ok(command)
    }

    fn parser(&self) -> Box<dyn AgentParser> {
        Box::new(parser::Parser::default())
    }

    fn own_settings(&self) -> Option<OwnSettings> {
        Some(OwnSettings { variable: "CODEX_HOME", home: ".codex", file: "config.toml" })
    }

    fn own_record(&self) -> Option<OwnRecord> {
        Some(OwnRecord {
            name: "Codex's rollout",
            variable: "CODEX_HOME",
            home: ".codex",
            folder: "sessions",
            // Year, month and day.
            depth: 3,
            is_of: rollout::is_of,
            folders_of: rollout::folders_of,
            last_usage: rollout::last_usage,
            model: rollout::model,
            reader: || Box::new(rollout::Rollout::default()),
            kept_outputs: None,
        })
    }
}
