//! One conversation, any agent: the library behind the program `azureal`.
//!
//! A [`Workspace`] is an opened project. It never prints, asks or exits, and takes directory and environment as arguments: these are the
//! business of a front end.
//!
//! ```
//! use azureal::{Environment, Options, Workspace};
//!
//! # futures_executor::block_on(async {
//! # let folder = tempfile::tempdir().unwrap();
//! # let directory = folder.path();
//! let environment = Environment::new(std::env::vars_os());
//! let options = Options { store: Some("memory:".into()), ..Options::default() };
//! let workspace = Workspace::open(directory, &environment, &options)?;
//! for notice in workspace.notices() {
//!     eprintln!("warning: {notice}");
//! }
//! workspace.recover().await?;
//!
//! // Every session of the store is a conversation.
//! use azureal::core::{ContextStore, Message, SessionContext};
//! let session = SessionContext::open(workspace.store.clone(), "my-session")?;
//! session.append(Message::user("Hello")).await?;
//! assert_eq!(session.get_history().await?, [Message::user("Hello")]);
//! # Ok::<(), azureal::Error>(())
//! # }).unwrap();
//! ```
//!
//! [`core`] is the model: events, messages, and what a store promises. Import, export and copy of sessions are in [`exchange`]. Configuration is in [`config`], the agents of this machine are in [`agents`], the public JSON shapes in [`json`].

pub mod agents;
mod child;
pub mod config;
mod environment;
pub mod error;
pub mod exchange;
pub mod follow;
mod git_config;
pub mod json;
pub mod meter;
mod project;
mod server_store;
pub mod sessions;
pub mod turns;
mod workspace;

pub use azureal_core as core;
pub use azureal_engine as engine;
pub use azureal_store as store;

pub use azureal_core::agent::{AgentOutput, Permission};
pub use azureal_core::event::Outcome;
pub use azureal_core::{
    ContextStore, Event, ListQuery, Message, NewSession, Page, Role, Seq, SessionContext, SessionId,
    SessionRecord, SessionStore, StoreError, StoredEvent, visible, visible_line,
};
pub use azureal_engine::{
    Accepted, Began, Busy, Engine, FinishedTurn, Recovered, SessionTarget, TurnControls, TurnError,
    TurnEvent, TurnHandle,
};
pub use futures_executor::block_on;

pub use child::child_main;
pub use config::Config;
pub use config::trust::TrustRequired;
pub use environment::Environment;
pub use error::{Category, Error};
pub use project::{Project, SharedName};
pub use server_store::ProjectNameRequired;
pub use turns::{ContextSettings, Prompt, TurnSettings};
pub use workspace::{Notice, Options, StoreChoice, Workspace};
