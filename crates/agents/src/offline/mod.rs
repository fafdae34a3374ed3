//! The agent that is built in: no network, no key, no other program, and no model.
//!
//! It answers from the session itself: prompts, tool calls, changes and failures. It is the agent of a machine
//! without any other, and of the tour, so it runs through the whole pipeline like the others. The program starts
//! itself with [`SUBCOMMAND`], reads the frame from standard input, and prints the outputs of [`answer()`], one
//! [`line_of`] each. The parser here reads that stream.
//!
//! ```
//! use azureal_agents::offline::{Offline, Persona, answer, line_of};
//! use azureal_core::agent::{Agent, AgentOutput, Ending};
//!
//! let mut parser = Offline.parser();
//! let mut text = String::new();
//! for output in answer(Persona::Ada, "/project", "What happened so far?") {
//!     for read in parser.line(line_of(&output).as_bytes()) {
//!         if let AgentOutput::Delta(delta) = read {
//!             text.push_str(&delta);
//!         }
//!     }
//! }
//! assert!(text.contains("built-in offline agent"));
//! assert_eq!(parser.end(&Ending::default()).len(), 1);
//! ```

mod answer;
mod parser;
mod record;

use azureal_core::agent::{Agent, AgentCommand, AgentError, AgentOutput, AgentParser, AgentRequest, Program};
use serde_json::json;

pub use answer::answer;

/// The agent that is built in.
#[derive(Debug, Clone, Copy)]
pub struct Offline;

/// The name in the registry and in events.
const NAME: &str = azureal_core::agent::OFFLINE_AGENT;

/// The hidden command that the program is started with, followed by the name of a [`Persona`].
pub const SUBCOMMAND: &str = "__offline";

/// The persona. There are two, so that one can continue after the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Persona {
    /// Brief, and in lists.
    #[default]
    Ada,
    /// In whole sentences.
    Ben,
}

impl Persona {
    /// Every persona there is.
    pub const ALL: [Self; 2] = [Self::Ada, Self::Ben];

    /// Returns the name, which takes the place of a model's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ada => "ada",
            Self::Ben => "ben",
        }
    }

    /// Finds the persona of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|persona| persona.name().eq_ignore_ascii_case(name))
    }
}

/// Returns the persona that answers a turn.
fn persona_of(turn: &AgentRequest) -> Result<Persona, AgentError> {
    let Some(model) = &turn.model else { return Ok(Persona::default()) };
    Persona::named(model).ok_or_else(|| AgentError::NoSuchModel {
        agent: NAME,
        model: model.clone(),
        known: "ada, ben",
    })
}

impl Agent for Offline {
    fn name(&self) -> &'static str {
        NAME
    }

    fn program(&self) -> Program {
        Program::Ourselves
    }

    fn answers_for(&self, model: &str) -> bool {
        Persona::named(model).is_some()
    }

    fn models(&self) -> &'static [&'static str] {
        &["ada", "ben"]
    }

    fn check(&self, turn: &AgentRequest) -> Result<(), AgentError> {
        persona_of(turn)?;
        if turn.arguments.is_empty() { Ok(()) } else { Err(AgentError::NoArguments { agent: NAME }) }
    }

    fn command(&self, turn: &AgentRequest) -> Result<AgentCommand, AgentError> {
        self.check(turn)?;
        let persona = persona_of(turn)?;
        Ok(AgentCommand {
            args: vec![SUBCOMMAND.to_owned(), persona.name().to_owned()],
            stdin: turn.frame.clone().into_text().into_bytes(),
            ..AgentCommand::default()
        })
    }

    fn parser(&self) -> Box<dyn AgentParser> {
        Box::new(parser::Parser::default())
    }
}

/// Writes an output as a line, without its line break: an event as it is stored, and `{"delta":"…"}`,
/// `{"notice":"…"}` and `{"usage":{…}}` for what is only shown.
pub fn line_of(output: &AgentOutput) -> String {
    match output {
        AgentOutput::Event(event) => event.to_json(),
        AgentOutput::Delta(text) => json!({ "delta": text }).to_string(),
        AgentOutput::Notice(text) | AgentOutput::Retry(text) => json!({ "notice": text }).to_string(),
        AgentOutput::Usage(usage) => json!({ "usage": usage }).to_string(),
        // An agent without a provider has no prompt cache, and one without tools needs no permission.
        AgentOutput::Cache(_) | AgentOutput::Question(_) | AgentOutput::Answered(_) => json!({}).to_string(),
        AgentOutput::Refused(tools) => json!({ "refused": tools }).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::ContextFrame;

    use super::*;

    fn turn(model: Option<&str>) -> AgentRequest {
        AgentRequest {
            frame: ContextFrame::new("past", "now", "the prompt"),
            model: model.map(str::to_owned),
            ..AgentRequest::default()
        }
    }

    #[test]
    fn the_program_runs_itself_and_gets_the_frame_on_stdin() {
        for (model, persona) in [(None, "ada"), (Some("ada"), "ada"), (Some("Ben"), "ben")] {
            let command = Offline.command(&turn(model)).unwrap();
            assert_eq!(command.args, ["__offline", persona]);
            assert_eq!(
                String::from_utf8(command.stdin).unwrap(),
                "<azureal-session-context>\npast\n</azureal-session-context>\n\n\
                 <azureal-turn-context>\nnow\n</azureal-turn-context>\n\nthe prompt"
            );
        }
    }

    #[test]
    fn arguments_are_refused() {
        let turn = AgentRequest { arguments: vec!["--max-turns".to_owned()], ..turn(None) };
        assert_eq!(Offline.command(&turn).unwrap_err().to_string(), "offline takes no arguments");
    }

    #[test]
    fn a_voice_that_there_is_not_is_refused() {
        let error = Offline.command(&turn(Some("eliza"))).unwrap_err();
        assert_eq!(error.to_string(), "offline has no model \"eliza\"; there are ada, ben");
    }
}
