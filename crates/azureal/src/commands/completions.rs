use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output::Output;

/// Print what a shell needs to complete azureal's commands
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal completions bash > ~/.local/share/bash-completion/completions/azureal
  azureal completions zsh > ~/.zfunc/_azureal
  azureal completions fish > ~/.config/fish/completions/azureal.fish")]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    // The generator panics when it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "azureal", &mut script);
    let script = String::from_utf8_lossy(&script);
    if out.is_json() {
        out.json(&json!({"shell": args.shell.to_string(), "script": script}))?;
    } else {
        out.text(&script)?;
    }
    out.flush()
}
