//! The program: what was typed, what is meant, what is printed, and the exit code.

mod agent_choice;
mod agent_login;
mod agent_version;
mod cli;
mod commands;
mod completion;
mod config;
mod confirm;
mod context_settings;
mod dashed_prompt;
mod event_line;
mod export;
mod failure;
mod follow;
mod git_config;
mod import;
mod interrupts;
mod live;
mod log;
mod meter;
mod one_turn;
mod orphan;
mod output;
mod pages;
mod place;
mod program_cache;
mod project;
mod prompt;
mod prompt_cache;
mod recovery;
mod refusals;
mod resolve;
mod server_store;
mod session_line;
mod spinner;
mod suggest;
mod temporary;
mod token_counts;
mod transcript;
mod turn;
mod usage_error;
mod writers;

use std::process::ExitCode;
use std::sync::Arc;

use signal_hook::consts::SIGXFSZ;

fn main() -> ExitCode {
    // Writing beyond `ulimit -f` kills a process that does not handle this signal. With a handler, the write fails and is
    // reported. What we start does not inherit it.
    drop(signal_hook::flag::register(SIGXFSZ, Arc::default()));
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err((failure, as_json)) => failure.report(as_json),
    }
}
