//! The agents of this machine: which one answers, where its program is, and what is known of it.

mod choice;
pub(crate) mod ephemeral;
mod login;
mod own_settings;
mod problem;
mod program_cache;
pub mod prompt_cache;
mod summarisers;
mod survey;
pub mod version;

pub(crate) use choice::on_path;
pub use choice::{AgentChoice, Wanted, choose, program_of};
pub use login::{is_logged_in, login_hint};
pub use own_settings::own_settings_of;
pub use problem::{Problem, problem_of};
pub use program_cache::ProgramFile;
pub use summarisers::{SUMMARY_TIMEOUT, summarisers};
pub use survey::{AgentState, survey};

/// Returns the name of an agent as this build has it, if it does.
pub fn known_name(name: &str) -> Option<&'static str> {
    Some(azureal_agents::registry::find(name).ok()?.name())
}
