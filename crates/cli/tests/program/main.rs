//! The real program, from the outside: exit code, standard output and standard error.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "tests read the environment of their process, and start it again"
)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, and says where"
)]

mod agent_input;
mod agents;
mod backup;
mod bounds;
mod cached_tokens;
mod changes;
mod compact;
mod completion;
mod config;
mod context_commands;
mod context_savings;
mod copy;
mod damaged;
mod docs;
mod doctor;
mod earlier_files;
mod ephemeral;
mod export;
mod faults;
mod flood;
mod follow;
mod formats;
mod git_clean;
mod handoff;
mod hostile;
mod identity;
mod import;
mod import_cost;
mod import_native;
mod interruptions;
mod log;
mod lost_spool;
mod moving;
mod native_export;
mod open;
mod original_program;
mod originals;
mod owners;
mod page;
mod pager;
mod permissions;
mod postgres;
mod power_loss;
mod project_names;
mod prompt_cache;
mod purge;
mod random_undo;
mod real_agents;
mod recall;
mod redact;
mod redis;
mod refused;
mod rendered;
mod run;
mod search;
mod server_addresses;
mod servers;
mod sessions;
mod stats;
mod status_line;
mod terminal;
mod trust;
mod turn_numbers;
mod two_people;
mod undo_killed;
mod usage;
mod whole_outputs;
mod worktrees;
mod world;
