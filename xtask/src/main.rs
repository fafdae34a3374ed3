//! The repository's own commands: `cargo xtask test`, `tidy`, `conformance`, `agents`, `repeat` and `privileged`.
//!
//! They stand here rather than in a shell script, so that a person and the continuous integration run the
//! same thing, on a machine that has nothing but Rust and a C compiler.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a tool reads its environment and prints"
)]

mod agents;
mod conformance;
mod privileged;
mod repeat;
mod test;
mod tidy;
mod tools;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: cargo xtask test [--install]
       cargo xtask tidy
       cargo xtask conformance
       cargo xtask agents
       cargo xtask repeat PACKAGE TIMES LOAD [FILTER ...]
       cargo xtask privileged [CHECK]

test         everything that has to hold before a change is merged: format, lints, tests, documentation, supply chain
               --install  install the programs that some tests need, as is done when CI=true
tidy         only the rules about the repository itself, which are part of the tests
conformance  run what every store promises on every store, and make docs/conformance.md of it
agents       install the real coding agents that some tests run, from npm into target/agents; `test` does it too
repeat       run the tests of a package so many times, beside so many processes that compute
privileged   checks that need root, such as loop devices and network namespaces: all of them, or one. No other command runs them";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["test"] => test::run(tools::Installing::from_environment()),
        ["test", "--install"] => test::run(tools::Installing::Allowed),
        ["tidy"] => tidy(),
        ["conformance"] => conformance::run(),
        ["agents"] => agents::install(),
        ["repeat", words @ ..] => match repeat::Repeat::parse(words) {
            Some(repeat) => repeat::run(&repeat),
            None => return wrong_usage(),
        },
        ["privileged"] => privileged::run(None),
        ["privileged", name] => privileged::run(Some(name)),
        ["--help" | "-h" | "help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => return wrong_usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn wrong_usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn tidy() -> Result<()> {
    let problems = tidy::check(&tidy::Repository::load(root()?)?);
    for problem in &problems {
        println!("{problem}");
    }
    match problems.len() {
        0 => Ok(()),
        count => bail!("the repository breaks {count} of its own rules"),
    }
}

/// Returns the folder that holds the workspace.
fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no folder above it")
}
