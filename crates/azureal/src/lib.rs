//! One conversation, any agent: the library behind the program `azureal`.
//!
//! It finds a project, reads its configuration, and says what of it is trusted. It never prints, asks or exits, and takes the
//! environment as an argument: that is the business of a front end.

pub mod agents;
pub mod config;
mod environment;
pub mod error;
mod git_config;
pub mod json;
pub mod meter;
mod project;
mod server_store;
mod workspace;

pub use environment::Environment;
pub use error::Error;
pub use project::{Project, SharedName};
pub use server_store::ProjectNameRequired;
pub use workspace::{Notice, Options, StoreChoice, Workspace, folder_of};
