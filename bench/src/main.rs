//! Measures azureal's store on the workloads that the raw limit and the peers run as well.
//!
//! One call is one workload and prints one line of JSON; `bench/README.md` says what each does and prints, and
//! `bench/table` runs all of them beside the others. Nothing of this is part of the program `azureal`.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a tool reads its environment and prints"
)]

mod data;
mod measure;
mod scratch;
mod workloads;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use azureal_store::sqlite::Journal;
use serde_json::{Value, json};

const USAGE: &str = "\
usage: azureal-bench w1    [--turns N] [--journal delete|wal]
       azureal-bench w1cli [--turns N] [--journal delete|wal]
       azureal-bench w2 | w3 | w4 | w6 | w6c
       azureal-bench pg    [--turns N]   (on the server that BENCH_PG names)
       azureal-bench pgw   [--secs S]    (on the same server)
       azureal-bench redis [--turns N]   (on the server that BENCH_REDIS names)
       azureal-bench w8    [--secs S] [--same 0|1] [--journal delete|wal]";

/// What was asked for besides the workload.
#[derive(Debug, Clone, PartialEq)]
struct Options {
    turns: Option<usize>,
    journal: Journal,
    seconds: u64,
    /// Whether all writers append to one session.
    same: bool,
    /// Which of the eight writers this process is; nothing for the one that starts them.
    child: Option<usize>,
    /// When the writers begin, in milliseconds since 1970.
    start: u64,
}

impl Options {
    fn parse(arguments: &[&str]) -> Result<Self> {
        let mut options =
            Self { turns: None, journal: Journal::Delete, seconds: 10, same: false, child: None, start: 0 };
        for pair in arguments.chunks(2) {
            let [name, value] = pair else {
                bail!("`{}` needs a value", pair.concat());
            };
            match (*name, *value) {
                ("--turns", count) => options.turns = Some(number(count)?),
                ("--journal", "delete") => options.journal = Journal::Delete,
                ("--journal", "wal") => options.journal = Journal::Wal,
                ("--secs", seconds) => options.seconds = number(seconds)?,
                ("--same", "0") => options.same = false,
                ("--same", "1") => options.same = true,
                ("--child", child) => options.child = Some(number(child)?),
                ("--start", start) => options.start = number(start)?,
                _ => bail!("`{name} {value}` is not an option"),
            }
        }
        Ok(options)
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, anyhow::Error>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.parse().with_context(|| format!("`{text}` is not a number"))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some((workload, rest)) = arguments.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let options = match Options::parse(rest) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error:#}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(workload, &options) {
        Ok(measured) => {
            println!("{measured}");
            ExitCode::SUCCESS
        }
        // The table has a place for it; a workload that fails must not look like one that did not run.
        Err(error) => {
            println!("{}", json!({"failed": format!("{error:#}")}));
            ExitCode::FAILURE
        }
    }
}

fn run(workload: &str, options: &Options) -> Result<Value> {
    match workload {
        "w1" => workloads::append::held_open(options),
        "w1cli" => workloads::append::as_a_command(options),
        "w2" => workloads::load::run(),
        "w3" => workloads::list::run(),
        "w4" => workloads::fork::run(),
        "w6" => workloads::context::run(),
        "w6c" => workloads::compacted::run(),
        "w8" => workloads::contend::run(options),
        "pg" => workloads::postgres::run(options),
        "pgw" => workloads::watched::run(options),
        "redis" => workloads::redis::run(options),
        unknown => bail!("there is no workload `{unknown}` here"),
    }
}
