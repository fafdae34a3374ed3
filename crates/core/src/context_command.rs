//! A context command: what somebody wants every agent of a session to know, as a command that prints it.

use std::time::Duration;

/// A command whose output belongs into the context, ready to be run: configured, and its variables filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextCommand {
    /// What its block is called.
    pub name: String,
    /// What the shell is given.
    pub command: String,
    /// The command as it was written, if variables were filled in. This is what is stored: their values may be secret.
    pub template: Option<String>,
    /// What happens when it does not succeed.
    pub on_failure: OnFailure,
    /// How long it may take, with everything that it starts.
    pub timeout: Duration,
    /// Whether it runs at every turn instead of once per session.
    pub dynamic: bool,
}

impl ContextCommand {
    /// How long a command may take where nobody says otherwise.
    pub const TIMEOUT: Duration = Duration::from_secs(10);

    /// Makes a command that is run once, with the defaults of the configuration.
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

/// What happens when a context command does not succeed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// An error block stands in its place, and the person is told.
    #[default]
    Warn,
    /// It leaves nothing.
    Ignore,
    /// The turn does not begin.
    Fail,
}
