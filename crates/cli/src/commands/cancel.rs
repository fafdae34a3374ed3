use super::SessionArg;
use crate::failure::Failure;
use crate::output::Output;
use crate::recovery::recover;
use azureal::Workspace;
use azureal::sessions::{called, resolve};
use azureal::turns::CancelledTurn;

/// Cancel the running turn of a session
///
/// Asks the agent to stop, then kills it and every process that it started. Its output so far is stored.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal cancel S3
  azureal ps --json | jq -r '.[].session' | xargs -n1 azureal cancel")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
}

pub(crate) async fn run(args: &Args, place: &Workspace, out: &mut Output) -> Result<(), Failure> {
    let record = resolve(&*place.store, &args.session.session).await?;
    // First: to store turns of other sessions may take a while.
    let cancelled = place.cancel_turn(record.id, &[]).await;
    // Of an orphan, this stores the turn: no other process waits for it.
    recover(place).await;
    let CancelledTurn { agent, pid, .. } = cancelled?;
    if out.is_json() {
        let session = record.id.to_string();
        return out.json(&serde_json::json!({"session": session, "agent": agent, "pid": pid}));
    }
    out.line(&format!("cancelled the turn of {}", called(&record)))
}
