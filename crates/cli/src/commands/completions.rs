use clap_complete::Shell;
use clap_complete::env::Shells;
use serde_json::json;

use crate::completion::VARIABLE;
use crate::failure::Failure;
use crate::output::Output;

/// Print the script that lets a shell complete azureal's commands
///
/// The script calls azureal, so that it completes sessions by number and name, agents and models. Sessions are completed
/// from a store in a file, not from a store on a server.
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
    let name = args.shell.to_string();
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(&name) {
        shell.write_registration(VARIABLE, "azureal", "azureal", "azureal", &mut script)?;
    }
    let script = String::from_utf8_lossy(&script);
    let script = script.trim_start();
    let script = if args.shell == Shell::Zsh { loadable_by_zsh(script) } else { script.to_owned() };
    if out.is_json() {
        out.json(&json!({"shell": name, "script": script}))?;
    } else {
        out.text(&script)?;
    }
    out.flush()
}

/// Completes with the first key press too: a script that zsh loads from its folder of functions runs as the body of the
/// function `_azureal`, and would only register itself then.
fn loadable_by_zsh(script: &str) -> String {
    const REGISTER: &str = "compdef _clap_dynamic_completer_azureal azureal";
    let either = format!(
        "if [[ $funcstack[1] == _azureal ]]; then\n    _clap_dynamic_completer_azureal \"$@\"\nelse\n    {REGISTER}\nfi"
    );
    script.replace(REGISTER, &either)
}
