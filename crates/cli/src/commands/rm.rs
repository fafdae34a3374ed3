use azureal_core::{SessionRecord, visible_line};
use serde_json::json;

use super::purge::tell_of_transcripts;
use crate::confirm::{Answer, ask};
use crate::failure::Failure;
use crate::output::{Output, bytes_text, counted, tell};
use azureal::Workspace;
use azureal::error::shown;
use azureal::sessions::{called, resolve};
use azureal::turns::{ActiveTurn, describe_holder};

/// Delete sessions and all that belongs to them
///
/// Events, summaries and the output of turns are deleted, and overwritten in the store's file. The agents' programs keep transcripts of
/// their own, which stay: they are named.
///
/// This cannot be undone, so it asks first. Without a terminal, it deletes only with `--yes`. A session with a running
/// turn is not deleted. The numbers of deleted sessions are never used again.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal rm S3
  azureal rm S3 S4 fix-login --yes")]
pub(crate) struct Args {
    /// The sessions: numbers or whole names
    #[arg(value_name = "SESSION", required = true)]
    sessions: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(
    args: &Args,
    place: &Workspace,
    active: &[ActiveTurn],
    out: &mut Output,
) -> Result<(), Failure> {
    // All of them are found before the first is deleted: a typing error deletes nothing.
    let mut records: Vec<SessionRecord> = Vec::new();
    for session in &args.sessions {
        let record = resolve(&*place.store, session).await?;
        if let Some(turn) = active.iter().find(|turn| turn.session() == record.id) {
            if turn.interface {
                let (name, agent) = (called(&record), visible_line(&turn.agent));
                return Err(Failure::new("busy", format!("{name} is open in the interface of {agent}"))
                    .with_hint("quit it there; nothing was deleted"));
            }
            // Its agent would work on for nobody, and what it says could not be stored.
            let id = record.id;
            let holder = place.store.held_leases().await?.into_iter().find(|(leased, _)| *leased == id);
            let (who, there) = match &holder {
                Some((_, holder)) => (format!(": {}", describe_holder(holder)), " where it runs"),
                None => (String::new(), ""),
            };
            return Err(Failure::new("busy", format!("a turn of {} is running{who}", called(&record)))
                .with_hint(format!(
                    "wait for it, or end it with `azureal cancel {id}`{there}; nothing was deleted"
                )));
        }
        if records.iter().all(|known| known.id != record.id) {
            records.push(record);
        }
    }
    if !args.yes {
        confirm(place, &records).await?;
    }
    let mut transcripts = Vec::new();
    for record in &records {
        // Only for a message.
        transcripts.append(&mut place.transcripts(record.id).await.unwrap_or_default());
    }
    let mut deleted = Vec::new();
    let mut done = Ok(());
    for record in &records {
        done = place.delete_session(record).await;
        if done.is_err() {
            break;
        }
        deleted.push(record.id.to_string());
        if !out.is_json() {
            out.line(&format!("deleted {}", called(record)))?;
        }
    }
    // What is gone is told also when the next one would not go.
    if out.is_json() {
        let files: Vec<_> = transcripts.iter().map(|found| found.path.display().to_string()).collect();
        out.json(&json!({ "deleted": deleted, "agent_files": files }))?;
    }
    out.flush()?;
    if !out.is_json() {
        tell_of_transcripts(&transcripts);
        for path in place.stores_set_aside() {
            tell(&format!("a store that was set aside may have a copy: {}", shown(&path)));
        }
    }
    Ok(done?)
}

/// Asks whether these may go; an error is a no.
async fn confirm(place: &Workspace, records: &[SessionRecord]) -> Result<(), Failure> {
    let mut question = String::new();
    for record in records {
        let bytes = match place.store.originals() {
            Some(originals) => originals.size(record.id).await.unwrap_or(0),
            None => 0,
        };
        let output = if bytes > 0 { format!(", {} of output", bytes_text(bytes)) } else { String::new() };
        question.push_str(&format!(
            "{}: {}{output}. {}\n",
            called(record),
            counted(record.counts.messages, "message"),
            visible_line(record.counts.preview_text())
        ));
    }
    question.push_str(if records.len() == 1 {
        "Delete this session for good? [y/N] "
    } else {
        "Delete these sessions for good? [y/N] "
    });
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
