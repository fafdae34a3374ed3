//! The command line as a whole.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueHint};

use azureal::search::program_with;
use azureal::{Project, Workspace};
use azureal_engine::Recovered;
use futures_executor::block_on;
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
use crate::open::{LateNotices, open_workspace, recover_run};
use crate::output::{Format, Output};
use crate::recovery::recover;
use crate::usage_error::usage_error;

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

AZUREAL_LOG=debug writes a log, without prompts and answers, to ~/.local/state/azureal/azureal.log.
AZUREAL_LOG=/path writes it to another file.

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

    /// Store the interrupted turn RUN, which waits for the store under another address
    ///
    /// A store on a server has an id. Turns that this machine keeps for it are not stored under an address that is not known to be
    /// the store's: it may be that of a copy. On a terminal azureal asks. Who stores all of them says that it is that store.
    #[arg(long, global = true, value_name = "RUN", help_heading = "Global options")]
    recover: Option<String>,

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
        let out = &mut out;
        let Some(command) = command else {
            if global.json || !interface.asks_for_interface() {
                out.text(&Self::command().render_help().to_string())?;
                return out.flush();
            }
            global.enter()?;
            return run_interface(&interface, global.store(), out);
        };
        if let Some(option) = interface.option() {
            return Err(Failure::usage(format!("`{option}` before a command opens the interface"))
                .with_hint("put it behind the command, if the command has it"));
        }
        if !matches!(command, Command::Completions(_) | Command::Help(_)) {
            global.enter()?;
        }
        dispatch(&command, &global, out)?;
        out.flush()
    }
}

/// Runs a command. Each arm opens what the command needs.
fn dispatch(command: &Command, global: &Global, out: &mut Output) -> Result<(), Failure> {
    let store = global.store();
    match command {
        Command::Completions(args) => completions::run(args, out),
        Command::Help(args) => help::run(args, out),
        Command::Demo(args) => demo::run(args, out),

        // These depend on no store. They store interrupted turns all the same, if there is a store that can be opened.
        Command::Agents(args) => {
            recover_if_possible(store);
            agents::run(args, out)
        }
        Command::Config(args) => {
            recover_if_possible(store);
            config::run(args, &Project::around(Path::new("."), &environment())?, out)
        }
        Command::Trust(args) => {
            recover_if_possible(store);
            trust::run(args, &Project::of_any_owner(Path::new(".")), out)
        }

        // These open stores themselves: two of them, or one that cannot be opened as usual.
        Command::Copy(args) => copy::run(args, store, out),
        Command::Doctor(args) => doctor::run(args, store, out),
        Command::Restore(args) => restore::run(args, store, out),

        // It only reads, and may be a child of a turn that runs, so it recovers nothing.
        Command::Mcp(args) => match (args.agent(), args.relay()) {
            (Some(agent), _) => mcp::install(agent, args, out),
            (None, Some(socket)) => mcp::relay(socket),
            (None, None) => with_workspace(store, |place| mcp::run(args, place)),
        },

        // Threads drive these, and wait for the store on their own.
        Command::Run(args) => with_recovered(store, |place, found| {
            let done = run::run(args, place, found, out);
            block_on(finish_originals(place));
            done
        }),
        Command::Backup(args) => with_recovered(store, |place, _| backup::run(args, place, out)),
        Command::Compact(args) => with_recovered(store, |place, _| compact::run(args, place, out)),

        Command::Purge(args) => with_recovered(store, |place, _| block_on(purge::run(args, place, out))),
        Command::List(args) => on_sessions(store, out, async |place, found, out| {
            list::run(args, place, &place.active_turns(found).await?, out).await
        }),
        Command::Rm(args) => on_sessions(store, out, async |place, found, out| {
            rm::run(args, place, &place.active_turns(found).await?, out).await
        }),
        Command::Show(args) => {
            on_sessions(store, out, async |p, found, out| show::run(args, p, found, out).await)
        }
        Command::Search(args) => on_sessions(store, out, async |p, found, out| {
            search::run(args, p, found, &global.program(), out).await
        }),
        Command::Original(args) => {
            on_sessions(store, out, async |p, found, out| original::run(args, p, found, out).await)
        }
        Command::Diff(args) => {
            on_sessions(store, out, async |p, found, out| diff::run(args, p, found, out).await)
        }
        Command::Undo(args) => {
            on_sessions(store, out, async |p, found, out| undo::run(args, p, found, out).await)
        }
        Command::Context(args) => {
            on_sessions(store, out, async |p, found, out| context::run(args, p, found, out).await)
        }
        Command::Tokens(args) => {
            on_sessions(store, out, async |p, found, out| tokens::run(args, p, found, out).await)
        }
        Command::Stats(args) => on_sessions(store, out, async |p, _, out| stats::run(args, p, out).await),
        Command::Rename(args) => on_sessions(store, out, async |p, _, out| rename::run(args, p, out).await),
        Command::Fork(args) => on_sessions(store, out, async |p, _, out| fork::run(args, p, out).await),
        Command::Open(args) => {
            on_sessions(store, out, async |p, found, out| open::run(args, p, found, out).await)
        }
        Command::Import(args) => {
            on_sessions(store, out, async |p, _, out| import::run(args, p, store, out).await)
        }
        Command::Export(args) => {
            on_sessions(store, out, async |p, found, out| export::run(args, p, found, out).await)
        }
        Command::Ps(args) => {
            on_sessions(store, out, async |p, found, out| ps::run(args, p, found, out).await)
        }
        Command::Cancel(args) => {
            // It recovers interrupted turns after the cancel.
            with_workspace(store, |place| {
                block_on(async {
                    cancel::run(args, place, out).await?;
                    out.flush()?;
                    finish_originals(place).await;
                    Ok(())
                })
            })
        }
    }
}

/// Opens the store for a command.
fn with_workspace(
    store: Option<&Path>,
    command: impl FnOnce(&Workspace) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let place = open_workspace(store)?;
    let _notices = LateNotices(&place);
    command(&place)
}

/// Opens the store for a command, and stores interrupted turns first.
fn with_recovered(
    store: Option<&Path>,
    command: impl FnOnce(&Workspace, &[Recovered]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    with_workspace(store, |place| command(place, &block_on(recover(place))))
}

/// The same for a command that waits for the store. The output of recovered turns is compressed when the user has the answer.
fn on_sessions(
    store: Option<&Path>,
    out: &mut Output,
    command: impl AsyncFnOnce(&Workspace, &[Recovered], &mut Output) -> Result<(), Failure>,
) -> Result<(), Failure> {
    with_recovered(store, |place, found| {
        block_on(async {
            command(place, found, out).await?;
            out.flush()?;
            finish_originals(place).await;
            Ok(())
        })
    })
}

/// Stores interrupted turns, if the store can be opened.
fn recover_if_possible(store: Option<&Path>) {
    if let Ok(place) = open_workspace(store) {
        let _notices = LateNotices(&place);
        block_on(recover(&place));
    }
}

impl Global {
    fn store(&self) -> Option<&Path> {
        self.store.as_deref().map(Path::new)
    }

    /// Returns the beginning of a command for the same store. It is run with the same variables.
    fn program(&self) -> String {
        let is_variable =
            |store: &&Path| std::env::var_os("AZUREAL_STORE").is_some_and(|value| *store == value);
        program_with(self.directory.as_deref(), self.store().filter(|store| !is_variable(store)))
    }

    /// Starts the log, and makes the folder of `-C` the current one.
    fn enter(&self) -> Result<(), Failure> {
        log::start(&environment())?;
        if let Some(run) = &self.recover {
            recover_run(run);
        }
        let Some(directory) = &self.directory else { return Ok(()) };
        std::env::set_current_dir(directory).map_err(|error| Failure::file(directory, &error))
    }
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
