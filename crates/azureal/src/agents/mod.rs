//! The agents of this machine: which one answers, where its program is, and what is known of it.

mod choice;
mod login;
mod program_cache;
pub mod prompt_cache;
pub mod version;
mod writers;

pub use choice::{AgentChoice, Wanted, choose, program_of};
pub use login::is_logged_in;
pub use program_cache::ProgramFile;
pub use writers::{PATIENCE, Writer, writers};
