use azureal::Workspace;
use azureal::error::shown;
use azureal::purge::{Purge, describe_transcript};
use azureal_engine::Transcript;
use serde_json::json;

use crate::confirm::{Answer, ask};
use crate::failure::Failure;
use crate::output::{Output, bytes_text, counted, tell};

/// Delete everything that azureal keeps of this project
///
/// All sessions with their events, the output of all turns, both names of the store, unfinished turns and stores that were set
/// aside. Your configuration stays. This cannot be undone, so it shows what there is and asks first. Without a terminal, it
/// deletes only with `--yes`. While a turn runs, nothing is deleted.
///
/// The agents' programs keep transcripts of their own, which stay: they are named.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal purge
  azureal purge --yes
  azureal --store old.azs purge")]
pub(crate) struct Args {
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(args: &Args, place: &Workspace, out: &mut Output) -> Result<(), Failure> {
    let purge = place.purge().await?;
    if purge.parts.is_empty() {
        if out.is_json() {
            return out.json(&report(&purge));
        }
        tell("there is nothing to delete");
        return Ok(());
    }
    if !args.yes {
        confirm(&purge)?;
    }
    purge.run(place).await?;
    if out.is_json() {
        return out.json(&report(&purge));
    }
    let sessions = counted(purge.sessions, "session");
    out.line(&format!("deleted {sessions} and all that belongs to them ({})", bytes_text(purge.bytes())))?;
    out.flush()?;
    tell_of_transcripts(&purge.transcripts);
    Ok(())
}

/// The number of transcripts that are named one by one.
const NAMED: usize = 10;

/// Says what the agents' programs still have.
pub(super) fn tell_of_transcripts(transcripts: &[Transcript]) {
    for transcript in transcripts.iter().take(NAMED) {
        tell(&describe_transcript(transcript));
    }
    if let Some(more @ 1..) = transcripts.len().checked_sub(NAMED) {
        tell(&format!("and {} more", counted(more as u64, "transcript")));
    }
}

fn report(purge: &Purge) -> serde_json::Value {
    let parts: Vec<_> = purge
        .parts
        .iter()
        .map(|part| {
            let paths: Vec<_> = part.paths.iter().map(|path| path.display().to_string()).collect();
            json!({"what": part.what, "paths": paths, "bytes": part.bytes})
        })
        .collect();
    let files: Vec<_> = purge.transcripts.iter().map(|found| found.path.display().to_string()).collect();
    json!({"sessions": purge.sessions, "bytes": purge.bytes(), "deleted": parts, "agent_files": files})
}

/// Shows what there is, and asks whether it may go; an error is a no.
fn confirm(purge: &Purge) -> Result<(), Failure> {
    let mut question = String::new();
    for part in &purge.parts {
        let place = part.paths.first().map(|path| shown(path).to_string()).unwrap_or_default();
        question.push_str(&format!("{:>8}  {}  {place}\n", bytes_text(part.bytes), part.what));
    }
    let sessions = counted(purge.sessions, "session");
    question.push_str(&format!("Delete {sessions} and all of this for good? [y/N] "));
    match ask(&question) {
        Answer::Yes => Ok(()),
        Answer::No => Err(Failure::cancelled("nothing was deleted")),
        Answer::Nobody => Err(Failure::refused(
            "not_confirmed",
            "deleting cannot be undone, and there is no terminal to ask on",
        )
        .with_hint("`--yes` deletes without asking")),
    }
}
