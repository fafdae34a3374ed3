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
//! assert!(workspace.store.list(&Default::default()).await?.is_empty());
//! # Ok::<(), azureal::Error>(())
//! # }).unwrap();
//! ```
//!
//! Configuration is in [`config`], the agents of this machine are in [`agents`], the public JSON shapes in [`json`].

pub mod agents;
mod child;
pub mod config;
mod environment;
pub mod error;
pub mod follow;
mod git_config;
pub mod json;
pub mod meter;
mod project;
mod server_store;
pub mod sessions;
mod workspace;

pub use child::child_main;
pub use environment::Environment;
pub use error::Error;
pub use project::{Project, SharedName};
pub use server_store::ProjectNameRequired;
pub use workspace::{Notice, Options, StoreChoice, Workspace, folder_of};
