//! Measures the input cost of long conversations with the real agents, beside `claude -c`.
//!
//! `bench/cost` installs and builds everything and runs this; `bench/README.md` explains the figures.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a tool reads its environment and prints"
)]

mod conversation;
mod report;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use azureal_testkit::model_server::CacheKeys;

use conversation::{LONGEST_PROMPT, Programs, Shape, Size, Way, converse, take_turns, version_of};
use report::{Comparison, LONG, table_of_targets, table_of_turns};

const USAGE: &str = "\
usage: cost --azureal PROGRAM --codex FOLDER --claude FOLDER [--claude FOLDER …]
            [--turns N] [--prompt CHARACTERS]
Each folder is one in which npm has installed the agent.";

/// The turns of a session that two agents share.
const SHARED_TURNS: usize = 8;

struct Options {
    azureal: PathBuf,
    codex: PathBuf,
    claude: Vec<PathBuf>,
    size: Size,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let (mut azureal, mut codex, mut claude) = (None, None, Vec::new());
        let mut size = Size { turns: 30, prompt: 500 };
        for pair in arguments.chunks(2) {
            let [name, value] = pair else {
                bail!("`{}` needs a value", pair.concat());
            };
            // The agents run in folders of their own.
            let path = || std::path::absolute(value).with_context(|| format!("`{value}`"));
            match name.as_str() {
                "--azureal" => azureal = Some(path()?),
                "--codex" => codex = Some(path()?),
                "--claude" => claude.push(path()?),
                "--turns" => {
                    size.turns =
                        value.parse().with_context(|| format!("`{value}` is not a number of turns"))?;
                }
                "--prompt" => {
                    let length = value.parse().ok().filter(|length| (1..=LONGEST_PROMPT).contains(length));
                    size.prompt = length
                        .with_context(|| format!("`--prompt {value}`: 1 to {LONGEST_PROMPT} characters"))?;
                }
                _ => bail!("`{name}` is not an option"),
            }
        }
        if size.turns < 1 || claude.is_empty() {
            bail!("nothing to measure: --turns and --claude say what");
        }
        Ok(Self {
            azureal: azureal.context("--azureal is missing")?,
            codex: codex.context("--codex is missing")?,
            claude,
            size,
        })
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = match Options::parse(&arguments) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error:#}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures everything and prints the tables. Returns whether all targets are met.
fn run(options: &Options) -> Result<bool> {
    println!("## Input cost of a conversation\n");
    println!(
        "Tokens of the input, as a model server with the providers' cache rules counts them. \
         Weighted: read 0.1, written 1.25, plain 1. A turn adds 20,000 characters, {} of them the prompt, and \
         files change between turns.\n",
        options.size.prompt
    );
    let mut targets = Vec::new();
    for claude in &options.claude {
        let version = version_of(claude)?;
        let programs = Programs {
            azureal: options.azureal.clone(),
            codex: options.codex.clone(),
            claude: claude.clone(),
        };
        for shape in Shape::ALL {
            let mut ways = Vec::new();
            for way in Way::ALL {
                eprintln!("Claude Code {version}, {shape:?}, {way:?}: {} turns", options.size.turns);
                let measured = converse(&programs, way, shape, options.size)
                    .with_context(|| format!("Claude Code {version}, {shape:?}, {way:?}"))?;
                ways.push((way, measured));
            }
            let comparison = Comparison { version: version.clone(), shape, ways };
            println!("{}", comparison.tables());
            targets.extend(comparison.targets());
        }
        let size = Size { turns: options.size.turns.min(SHARED_TURNS), ..options.size };
        eprintln!("Claude Code {version} and Codex in turns: {} turns", size.turns);
        let separate = take_turns(&programs, CacheKeys::Separate, size)?;
        let shared = take_turns(&programs, CacheKeys::Shared, size)?;
        println!("{}", table_of_turns(&version, &separate, &shared));
    }
    println!("{}", table_of_targets(&targets));
    if options.size.turns < LONG {
        println!(
            "A conversation of less than {LONG} turns is a try, not a measurement: it has no target for its cost."
        );
    }
    Ok(targets.iter().all(|target| target.is_met))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<Options> {
        Options::parse(&arguments.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn wrong_options_are_errors_that_name_them() {
        let options =
            parse("--azureal /a --codex /c --claude /x --claude /y --turns 4 --prompt 4000").unwrap();
        assert_eq!((options.claude.len(), options.size), (2, Size { turns: 4, prompt: 4_000 }));
        for (wrong, part) in [
            ("--azureal", "`--azureal` needs a value"),
            ("--azureal /a --codex /c", "nothing to measure"),
            ("--codex /c --claude /x", "--azureal is missing"),
            ("--azureal /a --claude /x", "--codex is missing"),
            ("--azureal /a --codex /c --claude /x --turns 0", "nothing to measure"),
            ("--turns many", "`many` is not a number of turns"),
            ("--prompt 6501", "`--prompt 6501`: 1 to 6500 characters"),
            ("--prompt 0", "`--prompt 0`: 1 to 6500 characters"),
            ("--color on", "`--color` is not an option"),
        ] {
            let error = parse(wrong).err().unwrap().to_string();
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }
}
