//! A context command: a command whose output every agent of a session receives.

use std::time::Duration;

/// A command whose output belongs into the context, ready to be run: configured, and its variables filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextCommand {
    /// The name of its block.
    pub name: String,
    /// The command for the shell.
    pub command: String,
    /// The command as it was written, if variables were filled in. This is what is stored: their values may be secret.
    pub template: Option<String>,
    /// The action if it does not succeed.
    pub on_failure: OnFailure,
    /// The time limit, including all processes that it starts.
    pub timeout: Duration,
    /// Whether it runs at every turn instead of once per session.
    pub dynamic: bool,
}

impl ContextCommand {
    /// The default time limit of a command.
    pub const TIMEOUT: Duration = Duration::from_secs(10);

    /// Creates a command that runs once, with the defaults of the configuration.
    pub fn new(name: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            command: command.into(),
            template: None,
            on_failure: OnFailure::default(),
            timeout: Self::TIMEOUT,
            dynamic: false,
        }
    }
}

/// The action if a context command does not succeed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Put an error block in its place, and notify the user.
    #[default]
    Warn,
    /// Leave its block out.
    Ignore,
    /// The turn does not begin.
    Fail,
}
