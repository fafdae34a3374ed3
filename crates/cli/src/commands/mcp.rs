use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use azureal::error::shown;
use azureal::{SessionId, Workspace};
use azureal_core::visible_line;
use azureal_files::as_argument;
use azureal_serve::mcp::install::{self, Installation};
use azureal_serve::mcp::{self, Server};
use serde_json::json;

use crate::confirm::{Answer, ask};
use crate::environment::environment;
use crate::failure::Failure;
use crate::output::Output;

/// Let an agent search and read the sessions of this project
///
/// A server of the Model Context Protocol on standard input and output, which an agent starts by itself. It has three tools, which only read:
/// `search_sessions`, `read_session` and `list_sessions`. Keys, tokens and passwords in what they return are masked, as in `azureal export`.
///
/// `--install` adds the server to the configuration of an agent, after a question. The agent then has the tools also when azureal does not run it, for
/// the project that it runs in, whatever `--store` says now. With `[recall] enabled = true` in your own azufig.toml, the agents that azureal runs have the tools without that.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal mcp --install claude
  azureal mcp --install codex --show
  echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}' | azureal mcp")]
pub(crate) struct Args {
    /// Add the server to the configuration of this agent
    #[arg(long, value_name = "AGENT", value_parser = install::AGENTS)]
    install: Option<String>,
    /// Only show what `--install` would do
    #[arg(long, requires = "install")]
    show: bool,
    /// Do not ask
    #[arg(short, long, requires = "install", conflicts_with = "show")]
    yes: bool,
    /// The session of the running turn: a search leaves it out
    #[arg(long, value_name = "SESSION", hide = true, conflicts_with = "install")]
    current: Option<SessionId>,
    /// The socket of the process that runs the turn and answers: for a store on a server
    #[arg(long, value_name = "SOCKET", hide = true, conflicts_with_all = ["install", "current"])]
    relay: Option<PathBuf>,
}

impl Args {
    /// Returns the agent that the server is installed for. That needs no store.
    pub(crate) fn agent(&self) -> Option<&str> {
        self.install.as_deref()
    }

    /// Returns the socket that messages are passed on to. That needs no store.
    pub(crate) fn relay(&self) -> Option<&Path> {
        self.relay.as_deref()
    }
}

/// Passes messages on to the process that runs the turn, until the agent closes the input.
pub(crate) fn relay(socket: &Path) -> Result<(), Failure> {
    Ok(mcp::relay(socket, io::stdin().lock(), io::stdout().lock())?)
}

/// Answers until the agent closes the input.
pub(crate) fn run(args: &Args, place: &Workspace) -> Result<(), Failure> {
    let server = Server::new(place, args.current)?;
    Ok(server.serve(io::stdin().lock(), io::stdout().lock())?)
}

/// Adds the server to the configuration of an agent.
pub(crate) fn install(agent: &str, args: &Args, out: &mut Output) -> Result<(), Failure> {
    let environment = environment();
    let plan = install::plan(agent, environment.own_program()?, &environment)?;
    let (what, change) = match &plan {
        Installation::Installed { file } => {
            let line = format!("{agent} has the server already, in {}", shown(file));
            return if out.is_json() {
                out.json(&json!({"agent": agent, "installed": true, "file": file.to_string_lossy()}))
            } else {
                out.line(&line)
            };
        }
        Installation::Commands { program, commands } => {
            let lines: Vec<String> = commands.iter().map(|args| line_of(program, args)).collect();
            ("Run".to_owned(), lines.join("\n"))
        }
        Installation::Entry(entry) => {
            let what = match &entry.former {
                None => format!("Add to {}", shown(&entry.file)),
                Some(former) => {
                    format!(
                        "In {}, replace `azureal`, which is {} now, by",
                        shown(&entry.file),
                        visible_line(former)
                    )
                }
            };
            (what, entry.text())
        }
        Installation::Manual { file, text, .. } => (format!("Add to {} yourself", shown(file)), text.clone()),
        _ => return Err(Failure::new("not_installed", "this build cannot install it")),
    };
    let indented: Vec<String> = change.trim_end().lines().map(|line| format!("  {line}")).collect();
    let shown_change = format!("{what}:\n\n{}", indented.join("\n"));
    let by_hand = match &plan {
        Installation::Manual { why, .. } => Some(*why),
        _ => None,
    };
    if args.show {
        return if out.is_json() {
            out.json(&json!({
                "agent": agent, "installed": false, "what": what, "change": change, "why_by_hand": by_hand,
            }))
        } else {
            out.line(&shown_change)
        };
    }
    if !out.is_json() && (args.yes || by_hand.is_some()) {
        out.line(&shown_change)?;
        out.flush()?;
    }
    if let Some(why) = by_hand {
        return Err(Failure::new("not_installed", format!("azureal does not change that file: {why}"))
            .with_hint("add the entry yourself; `--show --json` prints it for programs"));
    }
    if !args.yes {
        match ask(&format!("{shown_change}\n\nDo it? [y/N] ")) {
            Answer::Yes => {}
            Answer::No => return Err(Failure::cancelled("nothing was changed")),
            Answer::Nobody => {
                let message =
                    format!("the configuration of {agent} is yours, and there is no terminal to ask on");
                return Err(Failure::refused("not_confirmed", message)
                    .with_hint("`--yes` changes it without asking, `--show` shows the change"));
            }
        }
    }
    match plan {
        Installation::Commands { program, commands } => {
            commands.iter().try_for_each(|args| run_agent(&program, args))?;
        }
        Installation::Entry(entry) => entry.write()?,
        _ => {}
    }
    if out.is_json() {
        out.json(&json!({"agent": agent, "installed": true}))
    } else {
        out.line(&format!("{agent} has the recall tools of azureal from its next start"))
    }
}

/// Returns a command as a user would type it.
fn line_of(program: &str, args: &[String]) -> String {
    let args: Vec<String> = args.iter().map(|arg| as_argument(Path::new(arg))).collect();
    format!("{program} {}", args.join(" "))
}

/// Runs a command of an agent's program. What it prints is for the user.
fn run_agent(program: &str, args: &[String]) -> Result<(), Failure> {
    let ran = Command::new(program).args(args).stdin(Stdio::null()).stdout(io::stderr()).status();
    match ran {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(Failure::new("agent_failed", format!("`{}` failed: {status}", line_of(program, args))))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Failure::new("not_found", format!("{program} is not installed"))
                .with_hint("install it first; `azureal agents` lists the agents of this machine"))
        }
        Err(error) => Err(Failure::new("agent_failed", format!("`{program}` does not start: {error}"))),
    }
}
