use azureal_engine::Recovered;

use crate::active::describe;
use crate::failure::Failure;
use crate::output::{Output, tell};
use crate::times::Clock;
use azureal::Workspace;

/// Show the turns that are running, of every azureal on this store
///
/// Each with its agent, its prompt and the time since it runs. `azureal show -f` shows the events of one as they arrive.
///
/// With `--json`, an array of `{"session","agent","model","pid","since","orphan","user","host","interface","prompt"}`. An orphan is an
/// agent that continues in the background because its azureal is no longer running. The next azureal stores its turn
/// after it has ended. For a turn on another machine, `user` and `host` say who runs it and where, `pid` is that of its
/// azureal there, and `prompt` is `null`. `interface` is `true` for a session that `azureal open` has opened in the agent's own interface.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal ps
  azureal ps --json | jq -r '.[].session'")]
pub(crate) struct Args {}

pub(crate) async fn run(
    _: &Args,
    place: &Workspace,
    found: &[Recovered],
    out: &mut Output,
) -> Result<(), Failure> {
    let active = place.active_turns(found).await?;
    if out.is_json() {
        return out.json(&active);
    }
    if active.is_empty() {
        tell("no turn is running");
    }
    let clock = Clock::read();
    for turn in &active {
        let session = turn.session().to_string();
        let width = out.width().map(|width| width.saturating_sub(session.len() + 3));
        out.line(&format!("{session} · {}", describe(turn, &clock, width)))?;
    }
    Ok(())
}
