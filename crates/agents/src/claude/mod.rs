//! Claude Code, as `claude -p` with a stream of JSON lines in both directions.

mod api_block;
mod chain;
mod command;
mod edited;
mod kept;
mod native;
mod parser;
mod record;
mod token_count;
mod typed;
mod wire;
mod write;

pub use api_block::api_block;
pub use native::ClaudeSessions;
pub use write::ClaudeWriter;

use azureal_core::agent::{
    Agent, AgentCommand, AgentError, AgentParser, AgentRequest, Login, Needs, OwnRecord, Program,
};

/// Claude Code.
#[derive(Debug, Clone, Copy)]
pub struct Claude;

/// The name in the registry and in events.
const NAME: &str = "claude";

impl Agent for Claude {
    fn name(&self) -> &'static str {
        NAME
    }

    fn program(&self) -> Program {
        Program::Named("claude")
    }

    fn answers_for(&self, model: &str) -> bool {
        let model = model.to_ascii_lowercase();
        // An alias may name a context window: `sonnet[1m]`.
        let alias = model.split('[').next().unwrap_or("");
        ["opus", "sonnet", "haiku", "opusplan"].contains(&alias) || model.starts_with("claude-")
    }

    fn models(&self) -> &'static [&'static str] {
        &["opus", "sonnet", "haiku"]
    }

    fn needs(&self) -> Option<Needs> {
        Some(Needs {
            version: &[1, 0, 128],
            ephemeral: &[2, 0, 64],
            login: Login {
                variables: &[
                    "ANTHROPIC_API_KEY",
                    "ANTHROPIC_AUTH_TOKEN",
                    "CLAUDE_CODE_OAUTH_TOKEN",
                    "CLAUDE_CODE_USE_BEDROCK",
                    "CLAUDE_CODE_USE_FOUNDRY",
                    "CLAUDE_CODE_USE_VERTEX",
                ],
                variable: "CLAUDE_CONFIG_DIR",
                home: ".claude",
                files: &[".credentials.json"],
                settings: &[
                    ("settings.json", &["apiKeyHelper", "ANTHROPIC_", "CLAUDE_CODE_USE_"]),
                    (
                        "/etc/claude-code/managed-settings.json",
                        &["apiKeyHelper", "ANTHROPIC_", "CLAUDE_CODE_USE_"],
                    ),
                    // Beside the folder, or in it where a variable names it.
                    ("../.claude.json", &["\"primaryApiKey\"", "\"oauthAccount\""]),
                    (".claude.json", &["\"primaryApiKey\"", "\"oauthAccount\""]),
                ],
                in_keychain: true,
                errors: &["authentication_failed"],
                command: "claude /login",
            },
        })
    }

    fn command(&self, turn: &AgentRequest) -> Result<AgentCommand, AgentError> {
        command::build(turn)
    }

    fn parser(&self) -> Box<dyn AgentParser> {
        Box::new(parser::Parser::default())
    }

    fn tells_git_status(&self) -> bool {
        true
    }

    fn own_record(&self) -> Option<OwnRecord> {
        Some(OwnRecord {
            name: "Claude Code's transcript",
            variable: "CLAUDE_CONFIG_DIR",
            home: ".claude",
            folder: "projects",
            depth: 1,
            is_of: record::is_of,
            folders_of: |_| Vec::new(),
            last_usage: |_| None,
            model: |_| None,
            reader: || Box::new(record::Record::default()),
            kept_outputs: Some(kept::KEPT_OUTPUTS),
        })
    }
}
