use azureal_core::{NewSession, Seq};
use serde_json::json;

use super::SessionArg;
use crate::failure::Failure;
use crate::output::{Output, counted, warn};
use azureal::Workspace;
use azureal::sessions::{called, check_new_name, keep_name, resolve};

/// Copy a session's history up to a point into a new session
///
/// The new session belongs to the current worktree and gets a number of its own. Summaries that lie within
/// the copied history are copied too; cost, duration and tokens begin at zero. The original is not changed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal fork S3                         all of it
  azureal fork S3 --at 12 --name try-two  up to event 12; `azureal show S3 --json` shows the numbers")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Copy up to this event, which is the last one copied
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
    at: Option<u64>,
    /// Name the new session
    #[arg(long)]
    name: Option<String>,
}

pub(crate) async fn run(args: &Args, place: &Workspace, out: &mut Output) -> Result<(), Failure> {
    let original = resolve(&*place.store, &args.session.session).await?;
    if let Some(name) = &args.name {
        check_new_name(&*place.store, name, None).await?;
    }
    let new =
        NewSession { name: args.name.clone(), worktree: place.project.worktree(), ..NewSession::default() };
    let at = args.at.map_or(Seq::END, Seq);
    let id = place.store.fork(original.id, at, new).await?;
    if let Some(name) = &args.name {
        keep_name(&*place.store, name, id).await?;
    }
    let fork = place.store.get(id).await?;
    if let Some(originals) = place.store.originals().filter(|_| place.keeps_originals()) {
        let is_copied = |found: &azureal_core::Original| found.first != Seq::START && found.first <= at;
        // Only for a message: the fork is there.
        let wanted = originals.list(original.id).await.unwrap_or_default();
        let copied = originals.list(id).await.unwrap_or_default();
        if copied.len() < wanted.iter().filter(|found| is_copied(found)).count() {
            warn(&format!("the output of its turns was not copied whole; {} has it", called(&original)));
        }
    }
    if out.is_json() {
        out.json(&json!({
            "id": id.to_string(),
            "name": fork.name,
            "from": original.id.to_string(),
            "event_count": fork.counts.events,
        }))
    } else {
        out.line(&format!(
            "{} is a fork of {} with {}",
            called(&fork),
            called(&original),
            counted(fork.counts.events, "event")
        ))
    }
}
