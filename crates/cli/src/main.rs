//! The program: what was typed, what is meant, what is printed, and the exit code.
#![expect(clippy::disallowed_methods, reason = "a front end reads its arguments and its environment")]

mod active;
mod block_printer;
mod cli;
mod commands;
mod completion;
mod confirm;
mod context_settings;
mod damage;
mod dashed_prompt;
mod environment;
mod failure;
mod foreground;
mod interface;
mod interrupts;
mod live;
mod live_rows;
mod live_text;
mod log;
mod marks;
mod open;
mod output;
mod pager;
mod plain_text;
mod prompt;
mod recovery;
mod refusals;
mod screen;
mod session_table;
mod spinner;
mod stats_table;
mod suggest;
mod threshold;
mod times;
mod trust_question;
mod turn;
mod usage_error;
mod written;

use std::process::ExitCode;
use std::sync::Arc;

use signal_hook::consts::SIGXFSZ;

fn main() -> ExitCode {
    // Writing beyond `ulimit -f` kills a process that does not handle this signal. With a handler, the write fails and is
    // reported. What we start does not inherit it.
    drop(signal_hook::flag::register(SIGXFSZ, Arc::default()));
    if let Some(status) = azureal::child_main(std::env::args_os(), std::env::vars_os()) {
        return status;
    }
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err((failure, as_json)) => failure.report(as_json),
    }
}
