use std::io;

use azureal::{SessionId, Workspace};
use azureal_serve::mcp::Server;

use crate::failure::Failure;

/// Let an agent search and read the sessions of this project
///
/// A server of the Model Context Protocol on standard input and output, which an agent starts by itself. It has three tools, which only read:
/// `search_sessions`, `read_session` and `list_sessions`. Keys, tokens and passwords in what they return are masked, as in `azureal export`.
///
/// `--install` adds the server to the configuration of an agent, after a question. With `[recall] enabled = true` in your own azufig.toml, every
/// agent that azureal runs has the tools, without being installed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal mcp --install claude
  azureal mcp --install codex --show
  echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}' | azureal mcp")]
pub(crate) struct Args {
    /// The session of the running turn: a search leaves it out
    #[arg(long, value_name = "SESSION", hide = true)]
    current: Option<SessionId>,
}

/// Answers until the agent closes the input.
pub(crate) fn run(args: &Args, place: &Workspace) -> Result<(), Failure> {
    let server = Server::new(place, args.current)?;
    Ok(server.serve(io::stdin().lock(), io::stdout().lock())?)
}
