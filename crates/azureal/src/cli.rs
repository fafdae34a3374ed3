//! The command line as a whole.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::commands::{
    agents, cancel, compact, completions, config, context, copy, demo, export, fork, import, list, offline,
    ps, rename, rm, run, show, tokens, trust,
};
use crate::config::bounded;
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::place::Place;
use crate::project::Project;
use crate::recovery::{recover, running};

/// One conversation, any agent
///
/// azureal owns the history of sessions with coding agents, so that a session can be started with one
/// agent, continued with another and picked up a month later by a third.
///
/// Sessions are kept in `.azureal/sessions.azs` in the main worktree of the git repository around the
/// current directory; outside git, in the nearest parent folder that has such a file, or else in the current
/// directory. The file is made with the first session.
#[derive(Debug, Parser)]
#[command(
    name = "azureal",
    version = env!("AZUREAL_VERSION"),
    disable_help_subcommand = true,
    after_long_help = "\
Examples:
  azureal run \"What does this do?\"      ask an agent, in a new session
  azureal run -c -a codex \"Fix it\"      go on with it, with another agent
  azureal list                          the sessions of this worktree
  azureal show S3                       what was said and done in session S3
  azureal context S3                    what the next agent would be told of it
  azureal compact S3                    tell the next agent less: a summary instead
  azureal import ~/.cllm/conversations  take over conversations of another program

Sessions are called by number (S3), by name, or by the beginning of a name.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused for safety, 130 cancelled."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What every command takes.
#[derive(Debug, Args)]
struct Global {
    /// Use this store instead of the project's own
    ///
    /// A file, `postgres://user@host/database?project=name` or `redis://user@host?project=name` for one that is shared,
    /// or `memory:` for an empty one that is gone afterwards.
    #[arg(
        long,
        global = true,
        value_name = "STORE",
        env = "AZUREAL_STORE",
        hide_env_values = true,
        help_heading = "Global options"
    )]
    store: Option<OsString>,

    /// Do everything as if started in DIR
    #[arg(short = 'C', global = true, value_name = "DIR", help_heading = "Global options")]
    directory: Option<PathBuf>,

    /// Print for programs, as JSON
    ///
    /// Errors become `{"error":{"kind","message","hint"}}` on standard error.
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    List(list::Args),
    Show(show::Args),
    Context(context::Args),
    Compact(compact::Args),
    Tokens(tokens::Args),
    Rename(rename::Args),
    Rm(rm::Args),
    Fork(fork::Args),
    Import(import::Args),
    Export(export::Args),
    Copy(copy::Args),
    Ps(ps::Args),
    Cancel(cancel::Args),
    Agents(agents::Args),
    Config(config::Args),
    Trust(trust::Args),
    Demo(demo::Args),
    Completions(completions::Args),
    #[command(name = azureal_agents::offline::SUBCOMMAND, hide = true)]
    Offline(offline::Args),
    #[command(name = bounded::SUBCOMMAND, hide = true)]
    FillIn,
}

/// Does what the command line says. The error comes with whether it is to be told as JSON.
pub(crate) fn run() -> Result<(), (Failure, bool)> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let as_json = asks_for_json(&arguments);
            return misread(&error).map_err(|failure| (failure, as_json));
        }
    };
    let as_json = cli.global.json;
    cli.run().map_err(|failure| (failure, as_json))
}

impl Cli {
    fn run(self) -> Result<(), Failure> {
        let Self { global, command } = self;
        let mut out = Output::new(if global.json { Format::Json } else { Format::People });
        let Some(command) = command else {
            out.text(&Self::command().render_help().to_string())?;
            return out.flush();
        };
        if let Command::Completions(args) = &command {
            return completions::run(args, &mut out);
        }
        if let Command::Offline(args) = &command {
            // Its output goes to whoever started it, and not through ours.
            drop(out);
            return offline::run(args);
        }
        if matches!(command, Command::FillIn) {
            drop(out);
            return bounded::answer();
        }
        if let Some(directory) = &global.directory {
            std::env::set_current_dir(directory).map_err(|error| Failure::file(directory, &error))?;
        }
        if matches!(command, Command::Agents(_) | Command::Config(_) | Command::Trust(_))
            && let Ok(place) = Place::open(global.store.as_deref().map(Path::new))
        {
            // They need no store, and work where there is none that can be opened.
            futures_executor::block_on(recover(&place));
        }
        match &command {
            Command::Agents(args) => return agents::run(args, &mut out).and_then(|()| out.flush()),
            Command::Demo(args) => return demo::run(args, &mut out),
            // It has two stores, and changes nothing about the one that it copies from.
            Command::Copy(args) => {
                let usual = global.store.as_deref().map(Path::new);
                return copy::run(args, usual, &mut out);
            }
            // What is configured and trusted does not depend on a store.
            Command::Config(args) => {
                return config::run(args, &Project::around(Path::new(".")), &mut out)
                    .and_then(|()| out.flush());
            }
            Command::Trust(args) => {
                return trust::run(args, &Project::around(Path::new(".")), &mut out)
                    .and_then(|()| out.flush());
            }
            _ => {}
        }
        let place = Place::open(global.store.as_deref().map(Path::new))?;
        let found = futures_executor::block_on(recover(&place));
        // Turns are driven by threads, and wait for the store on their own.
        if let Command::Run(args) = &command {
            return run::run(args, &place, &found, &mut out);
        }
        if let Command::Compact(args) = &command {
            return compact::run(args, &place, &mut out).and_then(|()| out.flush());
        }
        futures_executor::block_on(async {
            match &command {
                Command::List(args) => {
                    list::run(args, &place, &running(&place, &found).await?, &mut out).await
                }
                Command::Show(args) => show::run(args, &place, &mut out).await,
                Command::Context(args) => context::run(args, &place, &mut out).await,
                Command::Tokens(args) => tokens::run(args, &place, &mut out).await,
                Command::Rename(args) => rename::run(args, &place, &mut out).await,
                Command::Rm(args) => rm::run(args, &place, &running(&place, &found).await?, &mut out).await,
                Command::Fork(args) => fork::run(args, &place, &mut out).await,
                Command::Import(args) => import::run(args, &place, &mut out).await,
                Command::Export(args) => export::run(args, &place, &mut out).await,
                Command::Ps(args) => ps::run(args, &place, &found, &mut out).await,
                Command::Cancel(args) => cancel::run(args, &place, &found, &mut out).await,
                // Done above.
                Command::Run(_)
                | Command::Compact(_)
                | Command::Copy(_)
                | Command::Agents(_)
                | Command::Config(_)
                | Command::Trust(_)
                | Command::Demo(_)
                | Command::Completions(_)
                | Command::Offline(_)
                | Command::FillIn => Ok(()),
            }?;
            out.flush()
        })
    }
}

/// Prints the help that was asked for, or says what is wrong with the command line.
fn misread(error: &clap::Error) -> Result<(), Failure> {
    let text = error.render();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let mut out = Output::new(Format::People);
            let styled = text.ansi().to_string();
            let plain = text.to_string();
            let text = if out.paint().is_on() { styled } else { plain };
            out.text(&text)?;
            out.flush()
        }
        _ => {
            let (message, hint) = in_our_words(&text.to_string());
            Err(Failure::usage(message).with_hint(hint))
        }
    }
}

/// Divides what clap says into what is wrong and what to do.
fn in_our_words(text: &str) -> (String, String) {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let (message, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let hints: Vec<String> = rest
        .lines()
        .map(|line| line.trim().trim_start_matches("tip: ").replacen("Usage: ", "usage: ", 1))
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        .collect();
    let hint =
        if hints.is_empty() { "`azureal --help` shows how it is used".to_owned() } else { hints.join("\n") };
    (message.trim_end().to_owned(), hint)
}

/// Says whether JSON was asked for on a command line that cannot be read as a whole.
fn asks_for_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
