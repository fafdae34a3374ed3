use std::io::Write;

use azureal_core::{read_context_for, read_record_chars, visible, wrap_context};
use azureal_engine::Recovered;
use serde_json::json;

use super::{Paging, SessionToRead};
use crate::failure::Failure;
use crate::output::Output;
use crate::threshold::threshold;
use azureal::Workspace;
use azureal::meter::{Meter, grouped};
use azureal::sessions::{called, resolve_to_read};

/// Show exactly the context that the next agent receives
///
/// The system message if there is one, the newest summary with the files, commands, failures and prompts of the part
/// that it covers, and everything after it, in the tags that it is sent in. If output is not a terminal, it is exact to the byte.
///
/// The number of tokens is the provider's count at the end of the last turn, the agent's own instructions included. If
/// that is not known, it is an estimate: a quarter of the number of characters. `azureal tokens` shows the same number, and
/// `azureal list` the same percentage.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal context S3
  azureal context S3 --stats
  azureal context S3 > context.txt")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionToRead,
    /// Show its size instead; `--json` always shows both
    #[arg(long)]
    stats: bool,
    #[command(flatten)]
    paging: Paging,
}

pub(crate) async fn run(
    args: &Args,
    place: &Workspace,
    found: &[Recovered],
    out: &mut Output,
) -> Result<(), Failure> {
    let record = resolve_to_read(place, found, args.session.session.as_deref()).await?;
    let compaction = place.store.compactions(record.id).await?.pop();
    let after = compaction.map(|compaction| compaction.after_seq.0);
    let threshold = threshold(&place.project);
    let text = wrap_context(&read_context_for(&*place.store, record.id, threshold).await?);
    let chars = text.chars().count() as u64;
    // Of a summary that an earlier version wrote, the record has only an estimate.
    let meter = Meter::of_text(&record, chars, threshold);
    let since = read_record_chars(&*place.store, &record).await?;
    let Meter { threshold, percent, .. } = meter;
    if out.is_json() {
        return out.json(&json!({
            "text": text,
            "chars": chars,
            "tokens": meter.tokens,
            "tokens_by": meter.tokens_by,
            "since_compaction": since,
            "threshold": threshold,
            "percent": percent,
            "compaction": after.map(|after| json!({ "after_seq": after })),
        }));
    }
    if args.stats {
        out.line(&format!("session     {}", called(&record)))?;
        out.line(&format!("characters  {}", grouped(chars)))?;
        out.line(&format!("tokens      {}", meter.tokens_line()))?;
        let (since, threshold) = (grouped(since), grouped(threshold));
        out.line(&format!(
            "compaction  {since} of {threshold} characters since the last one; context {percent} % full"
        ))?;
        return out.line(&match after {
            Some(after) => format!("summary     of the events up to {after}"),
            None => "summary     none".to_owned(),
        });
    }
    if !out.is_terminal() {
        return Ok(out.write_all(text.as_bytes())?);
    }
    args.paging.begin(out)?;
    out.line(&visible(&text))?;
    out.end_pager()
}
