//! The coding agents that azureal can talk to.
//!
//! One folder per agent: how its program is run ([`Agent::command`]), what it prints (its wire types), and
//! how that becomes events ([`Agent::parser`]). All of it is pure. Nothing here starts a process, opens a file or
//! reads a clock: the engine does, and a recording read from a file gives the same events as the live program.
//!
//! [`bridged`] reads the output of agents behind a bridge, whatever their protocol.
//!
//! [`registry`] is where an agent is found by its name or by the name of a model.
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
pub mod offline;
pub mod registry;

mod calls;
mod closing;
mod span;
mod unreadable;
mod wire;
