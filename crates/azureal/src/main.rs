//! The program: what was typed, what is meant, what is printed, and the exit code.

mod cli;
mod commands;
mod event_line;
mod export;
mod failure;
mod import;
mod output;
mod pages;
mod place;
mod project;
mod resolve;
mod session_line;
mod transcript;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err((failure, as_json)) => failure.report(as_json),
    }
}
