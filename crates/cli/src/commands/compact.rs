use azureal_core::{Keep, SessionRecord, read_record_chars, visible, visible_line};
use azureal_engine::{CompactionOptions, DIGEST, Summarised, TurnEvent};
use futures_executor::block_on;
use serde_json::{Value, json};

use super::SessionArg;
use crate::environment::environment;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::output::{Output, counted, tell};
use crate::spinner::Spinner;
use crate::threshold::threshold;
use crate::times::Clock;
use azureal::Workspace;
use azureal::agents::{SUMMARY_TIMEOUT, summarisers};
use azureal::sessions::{called, resolve};

/// Summarise the older part of a session, so that the next agent receives less
///
/// The last three prompts stay as they are, with the agent's work on them; of one very long turn, its newest part.
/// The part before is summarised by the session's last agent, else by another installed agent, else by azureal itself,
/// which needs no model. Your prompts stay beside the summary in your own words, up to 500 characters of each.
///
/// Nothing is deleted: `show` still shows everything, and `--undo` removes the summary.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal compact S3 --preview        write the summary and show it, without storing it
  azureal compact S3
  azureal compact S3 --agent offline  no model: what the events say
  azureal compact S3 --undo")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Write the summary and show it, without storing it
    #[arg(long, conflicts_with_all = ["undo", "list"])]
    preview: bool,
    /// Remove the newest summary
    #[arg(long, conflicts_with = "list")]
    undo: bool,
    /// List the summaries of the session, the one in effect last
    #[arg(long)]
    list: bool,
    /// Agent that writes the summary, without fallback: claude, codex, or offline for no model
    #[arg(short = 'a', long, value_name = "AGENT", conflicts_with_all = ["undo", "list"])]
    agent: Option<String>,
    /// Keep the last N prompts as they are, with the agent's work on them
    #[arg(long, value_name = "N", conflicts_with_all = ["undo", "list"])]
    keep: Option<usize>,
}

pub(crate) fn run(args: &Args, place: &Workspace, out: &mut Output) -> Result<(), Failure> {
    let record = block_on(resolve(&*place.store, &args.session.session))?;
    if args.list {
        return block_on(list(place, &record, out));
    }
    if args.undo {
        return block_on(undo(place, &record, out));
    }
    let summarised = write(args, place, &record)?;
    match summarised {
        Some(summarised) => report(args, &record, &summarised, out),
        None if out.is_json() => {
            out.json(&json!({"session": record.id.to_string(), "stored": false, "summary": null}))
        }
        None => out.line(&format!("nothing to compact in {}", called(&record))),
    }
}

/// Writes the summary, and stores it unless it is only to be looked at.
fn write(args: &Args, place: &Workspace, record: &SessionRecord) -> Result<Option<Summarised>, Failure> {
    let options = CompactionOptions {
        threshold: threshold(&place.project),
        keep: args.keep.map_or(Keep::Usual, Keep::Prompts),
        summarisers: summarisers(args.agent.as_deref(), record.counts.agent.as_deref(), &environment())?,
        timeout: SUMMARY_TIMEOUT,
    };
    let engine = place.engine()?;
    // The lock of a compaction is one of this machine; on a server, others compact what they run turns in.
    let _lease = match place.is_on_server() && !args.preview {
        true => Some(block_on(place.lease(record.id, "compact"))?),
        false => None,
    };
    // An agent has a process group of its own, so it would outlive us.
    let interrupts = Interrupts::listen()?;
    let cancelled = interrupts.on_interrupt(|| {});
    let is_cancelled = || cancelled.has_happened();
    let spinner = Spinner::start("reading the session");
    let mut show = |event: TurnEvent| match event {
        TurnEvent::Summarising { agent } => spinner.label(&format!("{agent} writes the summary")),
        TurnEvent::NotSummarised { agent, why } => {
            spinner.hide();
            tell(&format!("{agent} wrote no summary: {}", visible_line(&why)));
            spinner.show();
        }
        _ => {}
    };
    let written = match args.preview {
        true => engine.summarise(record.id, &options, &is_cancelled, &mut show),
        false => engine.compact(record.id, &options, &is_cancelled, &mut show),
    };
    drop(spinner);
    Ok(written.map_err(azureal::Error::from)?)
}

fn report(
    args: &Args,
    record: &SessionRecord,
    summarised: &Summarised,
    out: &mut Output,
) -> Result<(), Failure> {
    let Summarised { boundary, summary, agent, failed, chars_before, chars_after, used, .. } = summarised;
    if out.is_json() {
        let failed: Vec<Value> =
            failed.iter().map(|(agent, why)| json!({"agent": agent, "error": why})).collect();
        return out.json(&json!({
            "session": record.id.to_string(),
            "stored": !args.preview,
            "summary": summary,
            "written_by": agent.as_deref().unwrap_or("digest"),
            "failed": failed,
            "after_seq": boundary.after_seq.0,
            "inside_turn": boundary.inside_turn,
            "chars_before": chars_before,
            "chars_after": chars_after,
            "input_tokens": used.input,
            "output_tokens": used.output,
            "cache_read_tokens": used.cache_read,
            "cache_write_tokens": used.cache_write,
        }));
    }
    if args.preview {
        out.line(&visible(summary))?;
        out.flush()?;
    }
    let what = agent
        .as_ref()
        .map_or_else(|| "azureal's own digest".to_owned(), |agent| format!("the summary by {agent}"));
    let verb = if args.preview { "would receive" } else { "receives" };
    let told = format!(
        "{what} covers the events up to {} of {}: the next agent {verb} {chars_after} characters instead of {chars_before}",
        boundary.after_seq,
        called(record)
    );
    if args.preview {
        tell(&told);
    } else {
        out.line(&told)?;
    }
    if agent.is_none() && !failed.is_empty() {
        tell("no agent wrote a summary, so it is what the events themselves say");
    }
    if summarised.frees_little() {
        tell(
            "that is less than a fifth: what stays is large, and another compaction would not help before the next prompt",
        );
    }
    Ok(())
}

async fn undo(place: &Workspace, record: &SessionRecord, out: &mut Output) -> Result<(), Failure> {
    let mut compactions = place.store.compactions(record.id).await?;
    let Some(newest) = compactions.pop() else {
        return Err(Failure::new("not_found", format!("{} has no summary", called(record)))
            .with_hint(format!("`azureal compact {}` writes one", record.id)));
    };
    place.store.remove_compaction(record.id, newest.after_seq).await?;
    let left = compactions.len() as u64;
    let now = place.store.get(record.id).await?;
    let (since, threshold) = (read_record_chars(&*place.store, &now).await?, threshold(&place.project));
    if threshold.is_exceeded_by(since, now.counts.context_tokens) {
        tell(&format!(
            "{} is over the threshold again ({since} of {} characters): the next prompt compacts it",
            record.id,
            threshold.chars()
        ));
    }
    if out.is_json() {
        let session = record.id.to_string();
        return out.json(&json!({"session": session, "after_seq": newest.after_seq.0, "left": left}));
    }
    out.line(&format!(
        "removed the summary of the events up to {} of {}; {} left",
        newest.after_seq,
        called(record),
        match left {
            1 => "1 summary is".to_owned(),
            left => format!("{left} summaries are"),
        }
    ))
}

async fn list(place: &Workspace, record: &SessionRecord, out: &mut Output) -> Result<(), Failure> {
    let compactions = place.store.compactions(record.id).await?;
    if out.is_json() {
        let rows: Vec<Value> = compactions
            .iter()
            .map(|one| {
                let chars = one.summary.chars().count();
                json!({
                    "after_seq": one.after_seq.0,
                    "chars": chars,
                    "created": one.created_at,
                    "writer": one.writer,
                    "summary": one.summary,
                })
            })
            .collect();
        return out.json(&rows);
    }
    if compactions.is_empty() {
        tell(&format!("{} has no summary", called(record)));
    }
    let clock = Clock::read();
    for one in &compactions {
        let chars = counted(one.summary.chars().count() as u64, "character");
        let writer = match one.writer.as_deref() {
            Some(DIGEST) => "by azureal's own digest".to_owned(),
            Some(writer) => format!("by {}", visible_line(writer)),
            None => "by an unknown author".to_owned(),
        };
        out.line(&format!(
            "up to event {}, {chars}, {writer}, {}",
            one.after_seq,
            clock.local(&one.created_at)
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stayed_on_the_machine_stays_there() {
        assert!(summarisers(None, Some("offline"), &environment()).unwrap().is_empty());
        assert!(summarisers(Some("offline"), Some("claude"), &environment()).unwrap().is_empty());
        assert_eq!(summarisers(Some("eliza"), None, &environment()).err().unwrap().kind(), "unknown_agent");
    }
}
