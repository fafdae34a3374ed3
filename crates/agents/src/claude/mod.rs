//! Claude Code, as `claude -p` with a stream of JSON lines in both directions.

mod command;
mod parser;
mod wire;

use azureal_core::agent::{Agent, AgentCommand, AgentError, AgentParser, Program, TurnRequest};

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

    fn command(&self, turn: &TurnRequest) -> Result<AgentCommand, AgentError> {
        command::build(turn)
    }

    fn parser(&self) -> Box<dyn AgentParser> {
        Box::new(parser::Parser::default())
    }
}
