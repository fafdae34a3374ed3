//! The coding agents that azureal can talk to.
//!
//! One folder per agent: its command ([`Agent::command`]), the format of its output (its wire types), and the parser
//! that turns the output into events ([`Agent::parser`]). All of it is pure: it starts no process, opens no
//! file and reads no clock. The engine does, and a recording gives the same events as the live program.
//!
//! [`native`] reads the sessions that the agents' programs keep themselves. It opens files, read-only. It also writes sessions in
//! their formats, to any output.
//!
//! [`bridged`] parses the output of agents behind a bridge, for any protocol.
//!
//! [`registry`] finds an agent by its name or by the name of a model.
//!
//! ```
//! use azureal_agents::registry;
//! use azureal_core::ContextFrame;
//! use azureal_core::agent::{AgentOutput, AgentRequest};
//!
//! let choice = registry::for_model("codex/gpt-5.4")?;
//! let turn = AgentRequest {
//!     frame: ContextFrame::new("", "", "Fix the test"),
//!     model: choice.model,
//!     in_git: true,
//!     ..AgentRequest::default()
//! };
//! let command = choice.agent.command(&turn)?;
//! assert_eq!(command.args[..2], ["exec", "--json"]);
//! assert!(command.args.ends_with(&["-m".into(), "gpt-5.4".into(), "-".into()]));
//! assert_eq!(command.stdin, b"Fix the test");
//!
//! let mut parser = choice.agent.parser();
//! let said = parser.line(br#"{"type":"item.completed","item":{"type":"agent_message","text":"Done."}}"#);
//! assert_eq!(said, [AgentOutput::Event(azureal_core::Event::assistant("Done."))]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Agent::command`]: azureal_core::agent::Agent::command
//! [`Agent::parser`]: azureal_core::agent::Agent::parser

pub mod bridged;
pub mod claude;
pub mod codex;
pub mod copilot;
pub mod gemini;
pub mod goose;
pub mod native;
pub mod offline;
pub mod opencode;
pub mod qwen;
pub mod registry;

mod calls;
mod closing;
mod span;
mod unreadable;
mod wire;
