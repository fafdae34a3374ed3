//! Settings of the interface.

use azureal::transcript::Places;

/// What the interface knows of its project and its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name of the project.
    pub project: String,
    /// The branch; `None` without one.
    pub branch: Option<String>,
    /// The store, as users write it.
    pub store: String,
    /// What agents' programs keep of this project and the store has not, for a project without sessions.
    pub found_elsewhere: Option<String>,
    /// The directories that paths are shown relative to.
    pub places: Places,
    /// Whether the last running turn of this interface is shown some time after the shown one has ended.
    pub auto_switch: bool,
    /// Whether marks of running turns move.
    pub has_motion: bool,
    /// Whether the mouse is used.
    pub uses_mouse: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            project: String::new(),
            branch: None,
            store: String::new(),
            found_elsewhere: None,
            places: Places::default(),
            auto_switch: true,
            has_motion: true,
            uses_mouse: true,
        }
    }
}
