use std::io::Write;

use azureal::Workspace;
use azureal::sessions::{called, resolve, resolve_to_read};
use azureal_core::{Original, Page, Seq, SessionRecord, visible};
use azureal_engine::{OriginalLines, Recovered, missing_bytes};
use serde_json::json;

use super::SessionToRead;
use crate::confirm::{Answer, ask};
use crate::failure::Failure;
use crate::output::{Output, bytes_text, counted, tell, warn};

/// Print the output of a session's turns as the agents printed it
///
/// azureal stores short events and keeps the whole output of every turn beside them. With `--seq`, the line that an event was
/// read from; without, everything, turn after turn. Byte for byte and without masks; only a terminal gets visible signs instead of control
/// characters. Outputs that the agent keeps in files beside its transcript follow, in lines of azureal. With `--json` and without
/// `--seq`, a list of what is kept.
///
/// `azureal show --full` shows the same as a transcript.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal original S3 --seq 42
  azureal original S3 | jq -c 'select(.type == \"assistant\")'
  azureal original S3 --json
  azureal original S3 --forget")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionToRead,
    /// Only the lines behind this event; `azureal show S3 --json` shows the numbers
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
    seq: Option<u64>,
    /// Delete the outputs of the session; its events stay
    #[arg(long, requires = "session", conflicts_with = "seq")]
    forget: bool,
    /// Do not ask
    #[arg(short, long, requires = "forget")]
    yes: bool,
}

pub(crate) async fn run(
    args: &Args,
    place: &Workspace,
    found: &[Recovered],
    out: &mut Output,
) -> Result<(), Failure> {
    if let Some(session) = args.session.session.as_deref().filter(|_| args.forget) {
        return forget(&resolve(&*place.store, session).await?, args.yes, place, out).await;
    }
    let record = resolve_to_read(place, found, args.session.session.as_deref()).await?;
    let mut events = place.full_events(record.id).await?;
    let Some(seq) = args.seq.map(Seq) else {
        if out.is_json() {
            return write_list(events.originals(), out);
        }
        if events.originals().is_empty() {
            return Err(none(&record));
        }
        for original in events.originals() {
            print(place, &record, original, None, out).await?;
        }
        return Ok(());
    };
    let page = Page::After(Seq(seq.0.saturating_sub(1)), 1);
    let stored = place.store.read(record.id, page).await?.into_iter().find(|stored| stored.seq == seq);
    let Some(stored) = stored else {
        let (session, last) = (record.id, Seq(record.counts.events));
        return Err(azureal_core::StoreError::NoSuchEvent { session, seq, last }.into());
    };
    match events.lines_of(&stored).await? {
        None => Err(none(&record)),
        Some(OriginalLines::Lines(original, lines)) => {
            print(place, &record, &original, Some(&lines), out).await
        }
        Some(OriginalLines::Turn(original)) => {
            tell(&format!("event {seq} is not from one line: this is the output of its whole turn"));
            print(place, &record, &original, None, out).await
        }
        Some(OriginalLines::Unmatched(original)) => {
            tell(&format!("the line of event {seq} is not found: this is the output of its whole turn"));
            print(place, &record, &original, None, out).await
        }
    }
}

/// Prints some lines of an original, in their order, or all of them, byte for byte.
async fn print(
    place: &Workspace,
    record: &SessionRecord,
    original: &Original,
    only: Option<&[u64]>,
    out: &mut Output,
) -> Result<(), Failure> {
    let Some(originals) = place.store.originals() else { return Err(none(record)) };
    let Some(mut content) = originals.open(record.id, &original.run).await? else { return Err(none(record)) };
    let (mut printed, mut line) = (0, 0);
    while let Some(piece) = content.output.next().await? {
        printed += piece.len() as u64;
        let Some(only) = only else {
            write(&piece, out)?;
            continue;
        };
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if only.contains(&line) {
                write(part, out)?;
            }
            line += u64::from(part.ends_with(b"\n"));
        }
        if only.last().is_none_or(|last| line > *last) {
            return out.flush();
        }
    }
    let missing = missing_bytes(&content.header, printed);
    if missing > 0 {
        warn(&format!("{} of this output are missing, after a loss of power", bytes_text(missing)));
    }
    out.flush()
}

/// Writes bytes as they are, unless a terminal would act on them.
fn write(bytes: &[u8], out: &mut Output) -> Result<(), Failure> {
    if out.is_terminal() {
        return out.text(&visible(&String::from_utf8_lossy(bytes)));
    }
    Ok(out.write_all(bytes)?)
}

fn write_list(originals: &[Original], out: &mut Output) -> Result<(), Failure> {
    let line = |original: &Original| {
        json!({
            "run": original.run,
            "first_seq": original.first.0,
            "last_seq": original.last.0,
            "bytes": original.bytes,
        })
    };
    out.json(&originals.iter().map(line).collect::<Vec<_>>())
}

fn none(record: &SessionRecord) -> Failure {
    Failure::new("no_original", format!("no output of {} is kept", called(record))).with_hint(
        "azureal keeps it for turns that it ran itself, unless `[originals]` in your configuration says otherwise",
    )
}

/// Deletes the originals of a session.
async fn forget(
    record: &SessionRecord,
    is_confirmed: bool,
    place: &Workspace,
    out: &mut Output,
) -> Result<(), Failure> {
    let Some(originals) = place.store.originals() else { return Err(none(record)) };
    let found = originals.list(record.id).await?;
    if found.is_empty() {
        return Err(none(record));
    }
    let size = bytes_text(found.iter().map(|original| original.bytes).sum());
    if !is_confirmed {
        let turns = counted(found.len() as u64, "turn");
        let question =
            format!("Delete the output of {turns} of {} ({size})? Its events stay. [y/N] ", called(record));
        match ask(&question) {
            Answer::Yes => {}
            Answer::No => return Err(Failure::cancelled("nothing was deleted")),
            Answer::Nobody => {
                let message = "deleting cannot be undone, and there is no terminal to ask on";
                return Err(
                    Failure::refused("not_confirmed", message).with_hint("`--yes` deletes without asking")
                );
            }
        }
    }
    let bytes = originals.delete(record.id).await?;
    if out.is_json() {
        out.json(&json!({"id": record.id.to_string(), "turns": found.len(), "bytes": bytes}))
    } else {
        out.line(&format!("deleted the output of {} ({size})", called(record)))
    }
}
