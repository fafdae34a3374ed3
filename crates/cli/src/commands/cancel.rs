use azureal_engine::{Recovered, SpooledProcess, SpooledTurn, end_commands, stop_turn};
use azureal_process::ProcessIdentity;

use super::SessionArg;
use crate::failure::Failure;
use crate::output::Output;
use crate::recovery::recover;
use azureal::Workspace;
use azureal::sessions::{called, resolve};
use azureal::turns::describe_holder;

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

pub(crate) async fn run(
    args: &Args,
    place: &Workspace,
    found: &[Recovered],
    out: &mut Output,
) -> Result<(), Failure> {
    let record = resolve(&*place.store, &args.session.session).await?;
    let of_session = |turn: &SpooledTurn| turn.session_id() == Some(record.id);
    let running = found.iter().find_map(|found| match found {
        Recovered::Running(turn, process) if of_session(turn) => {
            let process = process.as_ref();
            let identity = |process: &SpooledProcess| ProcessIdentity {
                pid: process.pid,
                started: process.began.clone(),
            };
            Some((turn, process.map(identity), false))
        }
        Recovered::Orphan(turn, process) if of_session(turn) => Some((turn, Some(process.clone()), true)),
        _ => None,
    });
    let Some((turn, process, is_orphan)) = running else {
        let leases = place.store.held_leases().await?;
        if let Some((_, holder)) = leases.iter().find(|(session, _)| *session == record.id) {
            let who = describe_holder(holder);
            return Err(Failure::new(
                "elsewhere",
                format!("the turn of {} runs elsewhere: {who}", called(&record)),
            )
            .with_hint("cancel it on the machine where it runs"));
        }
        return Err(Failure::new("not_running", format!("no turn of {} is running", called(&record)))
            .with_hint("`azureal ps` shows which are"));
    };
    if let Some(spools) = place.spools() {
        match &process {
            Some(process) => stop_turn(&spools, turn, process).map_err(azureal::Error::from)?,
            // Its context is being gathered, and its agent not asked yet.
            None => {
                spools.note_cancel(turn).map_err(|error| Failure::file(&error.path, &error.source))?;
                end_commands(turn);
            }
        }
    }
    if is_orphan {
        // Nobody else waits for it.
        recover(place).await;
    }
    if out.is_json() {
        return out.json(&serde_json::json!({
            "session": record.id.to_string(), "agent": turn.agent, "pid": process.map(|process| process.pid)
        }));
    }
    out.line(&format!("cancelled the turn of {}", called(&record)))
}
