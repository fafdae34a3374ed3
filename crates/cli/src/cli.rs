//! The command line as a whole.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueHint};

use azureal::Workspace;
use tracing::warn;

use crate::commands::{
    agents, backup, cancel, compact, completions, config, context, copy, demo, diff, doctor, export, fork,
    help, import, list, mcp, open, original, ps, purge, rename, restore, rm, run, search, show, stats,
    tokens, trust, undo,
};
use crate::completion;
use crate::dashed_prompt::protect;
use crate::environment::environment;
use crate::failure::Failure;
use crate::interface::{self, run_interface};
use crate::log;
use crate::open::{LateNotices, open_workspace};
use crate::output::{Format, Output};
use crate::recovery::recover;
use crate::usage_error::usage_error;
use azureal::Project;

/// One conversation, any agent
///
/// azureal owns the history of sessions with coding agents: start a session with one agent, continue it with another,
/// and resume it a month later with a third.
///
/// Without a command, azureal opens its interface on a terminal. F1 shows its keys.
///
/// Sessions are stored in `.azureal/sessions.azs` in the main worktree of the git repository around the current
/// directory. Outside git, that is the nearest parent folder that has such a file, else the current directory. The first
/// session creates the file. In a git repository it has a second name in the git directory, so that `git clean -fdx` does
/// not delete the history.
#[derive(Debug, Parser)]
#[command(
    name = "azureal",
    version = env!("AZUREAL_VERSION"),
    disable_help_subcommand = true,
    after_long_help = "\
Examples:
  azureal                               open the interface, on a terminal
  azureal -s S3                         open it with session S3
  azureal run \"What does this do?\"      ask an agent, in a new session
  azureal run -c -a codex \"Fix it\"      continue it with another agent
  azureal list                          the sessions of this worktree
  azureal show S3                       the messages and tool calls of session S3
  azureal context S3                    the context that the next agent receives
  azureal compact S3                    replace the older part by a summary
  azureal import --from claude          import the sessions of Claude Code in this project

A session is given by number (S3) or by name; commands that only read also take a unique prefix of a name.

AZUREAL_LOG=debug writes a log, without prompts and answers, to ~/.local/state/azureal/azureal.log; AZUREAL_LOG=/path
to another file.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused for safety, 130 cancelled."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    interface: interface::Args,
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
    /// A file; `postgres://user@host/database?project=name` or `redis://user@host?project=name` for a shared store;
    /// `memory:` for an empty one that ends with the command.
    #[arg(
        long,
        global = true,
        value_name = "STORE",
        env = "AZUREAL_STORE",
        hide_env_values = true,
        value_hint = ValueHint::FilePath,
        help_heading = "Global options"
    )]
    store: Option<OsString>,

    /// Run as if started in DIR
    #[arg(short = 'C', global = true, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Global options")]
    directory: Option<PathBuf>,

    /// Print JSON, for programs
    ///
    /// Errors become `{"error":{"kind","message","hint"}}` on standard error.
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Args>),
    List(list::Args),
    Show(show::Args),
    Search(search::Args),
    Original(original::Args),
    Diff(diff::Args),
    Undo(undo::Args),
    Context(context::Args),
    Compact(compact::Args),
    Tokens(tokens::Args),
    Stats(stats::Args),
    Rename(rename::Args),
    Rm(rm::Args),
    Purge(purge::Args),
    Fork(fork::Args),
    Open(open::Args),
    Import(import::Args),
    Export(export::Args),
    Copy(copy::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Ps(ps::Args),
    Cancel(cancel::Args),
    Mcp(mcp::Args),
    Agents(agents::Args),
    Config(config::Args),
    Trust(trust::Args),
    Doctor(doctor::Args),
    Demo(demo::Args),
    Completions(completions::Args),
    Help(help::Args),
}

/// Runs the command line. An error comes with whether to print it as JSON.
pub(crate) fn run() -> Result<(), (Failure, bool)> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if completion::answer(&arguments) {
        return Ok(());
    }
    let arguments = protect(arguments);
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let as_json = asks_for_json(&arguments);
            return misread(&error, &arguments).map_err(|failure| (failure, as_json));
        }
    };
    let as_json = cli.global.json;
    cli.run().map_err(|failure| (failure, as_json))
}

impl Cli {
    fn run(self) -> Result<(), Failure> {
        let Self { global, interface, command } = self;
        let mut out = Output::new(if global.json { Format::Json } else { Format::People });
        let Some(command) = command else {
            if global.json || !interface.asks_for_interface() {
                out.text(&Self::command().render_help().to_string())?;
                return out.flush();
            }
            log::start(&environment())?;
            go_to(global.directory.as_deref())?;
            return run_interface(&interface, global.store.as_deref().map(Path::new), &mut out);
        };
        if let Some(option) = interface.option() {
            return Err(Failure::usage(format!("`{option}` before a command opens the interface"))
                .with_hint("put it behind the command, if the command has it"));
        }
        if let Command::Completions(args) = &command {
            return completions::run(args, &mut out);
        }
        if let Command::Help(args) = &command {
            return help::run(args, &mut out).and_then(|()| out.flush());
        }
        log::start(&environment())?;
        go_to(global.directory.as_deref())?;
        if let Command::Mcp(args) = &command {
            if let Some(agent) = args.agent() {
                return mcp::install(agent, args, &mut out).and_then(|()| out.flush());
            }
            if let Some(socket) = args.relay() {
                return mcp::relay(socket);
            }
        }
        if matches!(command, Command::Agents(_) | Command::Config(_) | Command::Trust(_))
            && let Ok(place) = open_workspace(global.store.as_deref().map(Path::new))
        {
            // They need no store, and work where there is none that can be opened.
            let _notices = LateNotices(&place);
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
            // Both work on a store that cannot be opened, and the doctor changes nothing unless it is asked to.
            Command::Doctor(args) => {
                return doctor::run(args, global.store.as_deref().map(Path::new), &mut out);
            }
            Command::Restore(args) => {
                let named = global.store.as_deref().map(Path::new);
                return restore::run(args, named, &mut out).and_then(|()| out.flush());
            }
            // What is configured and trusted does not depend on a store.
            Command::Config(args) => {
                return config::run(args, &Project::around(Path::new("."), &environment())?, &mut out)
                    .and_then(|()| out.flush());
            }
            Command::Trust(args) => {
                return trust::run(args, &Project::of_any_owner(Path::new(".")), &mut out)
                    .and_then(|()| out.flush());
            }
            _ => {}
        }
        let place = open_workspace(global.store.as_deref().map(Path::new))?;
        let _notices = LateNotices(&place);
        // It only reads, and may be a child of a turn that runs.
        if let Command::Mcp(args) = &command {
            return mcp::run(args, &place);
        }
        let found = futures_executor::block_on(recover(&place));
        // Turns are driven by threads, and wait for the store on their own.
        if let Command::Run(args) = &command {
            let done = run::run(args, &place, &found, &mut out);
            futures_executor::block_on(finish_originals(&place));
            return done;
        }
        if let Command::Backup(args) = &command {
            return backup::run(args, &place, &mut out);
        }
        if let Command::Compact(args) = &command {
            return compact::run(args, &place, &mut out).and_then(|()| out.flush());
        }
        futures_executor::block_on(async {
            match &command {
                Command::List(args) => {
                    list::run(args, &place, &place.active_turns(&found).await?, &mut out).await
                }
                Command::Show(args) => show::run(args, &place, &found, &mut out).await,
                Command::Search(args) => search::run(args, &place, &found, &mut out).await,
                Command::Original(args) => original::run(args, &place, &found, &mut out).await,
                Command::Diff(args) => diff::run(args, &place, &found, &mut out).await,
                Command::Undo(args) => undo::run(args, &place, &found, &mut out).await,
                Command::Context(args) => context::run(args, &place, &found, &mut out).await,
                Command::Tokens(args) => tokens::run(args, &place, &found, &mut out).await,
                Command::Stats(args) => stats::run(args, &place, &mut out).await,
                Command::Rename(args) => rename::run(args, &place, &mut out).await,
                Command::Rm(args) => {
                    rm::run(args, &place, &place.active_turns(&found).await?, &mut out).await
                }
                Command::Purge(args) => {
                    return purge::run(args, &place, &mut out).await.and_then(|()| out.flush());
                }
                Command::Open(args) => open::run(args, &place, &found, &mut out).await,
                Command::Fork(args) => fork::run(args, &place, &mut out).await,
                Command::Import(args) => {
                    import::run(args, &place, global.store.as_deref().map(Path::new), &mut out).await
                }
                Command::Export(args) => export::run(args, &place, &found, &mut out).await,
                Command::Ps(args) => ps::run(args, &place, &found, &mut out).await,
                Command::Cancel(args) => cancel::run(args, &place, &found, &mut out).await,
                // Done above.
                Command::Run(_)
                | Command::Compact(_)
                | Command::Backup(_)
                | Command::Restore(_)
                | Command::Doctor(_)
                | Command::Copy(_)
                | Command::Mcp(_)
                | Command::Agents(_)
                | Command::Config(_)
                | Command::Trust(_)
                | Command::Demo(_)
                | Command::Completions(_)
                | Command::Help(_) => Ok(()),
            }?;
            out.flush()?;
            // The user has the answer. The output of recovered turns is compressed now.
            finish_originals(&place).await;
            Ok(())
        })
    }
}

/// Makes a folder the current one, if one is given.
fn go_to(directory: Option<&Path>) -> Result<(), Failure> {
    let Some(directory) = directory else { return Ok(()) };
    std::env::set_current_dir(directory).map_err(|error| Failure::file(directory, &error))
}

/// Compresses the output of stored turns. What fails is done by the next command.
pub(crate) async fn finish_originals(place: &Workspace) {
    if let Err(error) = place.finish_originals().await {
        warn!(kind = error.kind(), "the output of turns is not compressed yet");
    }
}

/// Returns the names of all commands that are not hidden, in the order of the help.
pub(crate) fn command_names() -> Vec<String> {
    let cli = Cli::command();
    let commands = cli.get_subcommands().filter(|command| !command.is_hide_set());
    commands.map(|command| command.get_name().to_owned()).collect()
}

/// Prints the help that was asked for, or returns what is wrong with the command line.
fn misread(error: &clap::Error, arguments: &[OsString]) -> Result<(), Failure> {
    if !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Err(usage_error(error, arguments));
    }
    let mut out = Output::new(Format::People);
    let text = error.render();
    let text = if out.paint().is_on() { text.ansi().to_string() } else { text.to_string() };
    out.text(&text)?;
    out.flush()
}

/// Returns whether JSON was asked for on a command line that cannot be parsed.
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
