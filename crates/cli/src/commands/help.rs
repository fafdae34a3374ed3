use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_mangen::Man;
use serde_json::json;

use crate::cli::{Cli, command_names};
use crate::failure::Failure;
use crate::output::{Output, counted};
use crate::suggest::no_such_command;
use azureal::error::shown;
use azureal_tui::keys::{Context, Entry, TABLE};

/// Show the help of azureal or of a command
///
/// The same text as `azureal COMMAND --help`.
///
/// `azureal help keys` lists the actions of the interface: their names and keys, as `[keys]` of a configuration file takes them.
///
/// `--man` writes all of it as man pages: `azureal.1`, and one for each command, such as `azureal-run.1`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal help
  azureal help run
  azureal help keys
  azureal help --man ~/.local/share/man/man1")]
pub(crate) struct Args {
    /// The command, or `keys`
    #[arg(value_name = "COMMAND", add = ArgValueCandidates::new(candidates))]
    command: Option<String>,
    /// Write man pages into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    man: Option<PathBuf>,
}

/// The subject that is no command: the keys of the interface.
const KEYS: &str = "keys";

fn candidates() -> Vec<CompletionCandidate> {
    command_names().into_iter().chain([KEYS.to_owned()]).map(CompletionCandidate::new).collect()
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    if let Some(folder) = &args.man {
        return write_man_pages(folder, out);
    }
    if args.command.as_deref() == Some(KEYS) {
        let text = keys_text();
        return if out.is_json() {
            out.json(&json!({"command": KEYS, "help": text}))
        } else {
            out.text(&text)
        };
    }
    let mut cli = Cli::command();
    // Gives commands their full names and the options that they share.
    cli.build();
    let command = match &args.command {
        None => Some(&mut cli),
        Some(name) => cli.find_subcommand_mut(name).filter(|command| !command.is_hide_set()),
    };
    let command = command.ok_or_else(|| no_such_command(args.command.as_deref().unwrap_or_default()))?;
    let help = command.render_long_help();
    if out.is_json() {
        return out.json(&json!({"command": command.get_bin_name(), "help": help.to_string()}));
    }
    let text = if out.paint().is_on() { help.ansi().to_string() } else { help.to_string() };
    out.text(&text)
}

/// Lists the actions of the interface by where they apply: the name of each, its keys, and what it does.
fn keys_text() -> String {
    let mut text = String::from(
        "The actions of the interface, each with its name and its keys. `[keys]` of your own azufig.toml changes keys:\n\
         queue = [\"f6\", \"alt-q\"]\n",
    );
    let keys = |entry: &Entry| entry.keys.join(", ");
    let names = TABLE.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let widest = TABLE.iter().map(|entry| keys(entry).len()).max().unwrap_or(0);
    for context in Context::ALL {
        text.push_str(&format!("\n{}:\n", context.heading()));
        for entry in TABLE.iter().filter(|entry| entry.context == context) {
            text.push_str(&format!("  {:names$}  {:widest$}  {}\n", entry.name, keys(entry), entry.long));
        }
    }
    text
}

/// Writes a man page for azureal and for each command that is not hidden.
fn write_man_pages(folder: &Path, out: &mut Output) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::file(folder, &error))?;
    let mut cli = Cli::command();
    cli.build();
    let commands = cli.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let pages: Vec<Man> = commands.chain([cli.clone()]).map(man_page).collect();
    let mut files = Vec::new();
    for page in &pages {
        let file = folder.join(page.get_filename());
        let mut roff = Vec::new();
        page.render(&mut roff)?;
        // Examples get a section of their own, in which lines are not filled.
        let roff = String::from_utf8_lossy(&roff).replace(".SH EXTRA\nExamples:", ".SH EXAMPLES\n.nf");
        fs::write(&file, roff).map_err(|error| Failure::file(&file, &error))?;
        files.push(file.to_string_lossy().into_owned());
    }
    files.sort();
    if out.is_json() {
        return out.json(&json!({ "files": files }));
    }
    out.line(&format!("wrote {} to {}", counted(files.len() as u64, "man page"), shown(folder)))
}

fn man_page(command: clap::Command) -> Man {
    let source = format!("azureal {}", env!("CARGO_PKG_VERSION"));
    Man::new(command).source(source).manual("azureal")
}
