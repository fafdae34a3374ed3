use azureal_core::{Digest, SessionRecord, visible, visible_line};
use serde_json::json;

use super::SessionArg;
use crate::event_line::EventLine;
use crate::failure::Failure;
use crate::output::{Output, counted};
use crate::pages::{Damaged, Range, each_page};
use crate::place::Place;
use crate::resolve::{has_name, resolve};
use crate::transcript::{Text, Transcript, duration};

/// Show what was said and done in a session
///
/// Tool calls are one line each, results are as they were stored, reasoning is folded away. With `--json`,
/// one line per stored event, `{"seq":1,"kind":"UserMessage","data":{…}}`, with everything that is stored;
/// an event that cannot be read has `error` instead of `data`.
///
/// Characters that would act on the terminal are shown as what they are, unless `--raw` is given.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal show S3
  azureal show fix-login --last 20
  azureal show S3 --digest
  azureal show S3 --json | jq -r 'select(.kind == \"UserMessage\") | .data.content'")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Only the last N events
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    /// Print text as it is, escape sequences included
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Show what it comes to instead: goals, decisions, files, commands, open errors, where it stands
    ///
    /// Gathered from the events without any model, in at most 4 000 characters.
    #[arg(long, conflicts_with_all = ["last", "raw"])]
    digest: bool,
}

pub(crate) async fn run(args: &Args, place: &Place, out: &mut Output) -> Result<(), Failure> {
    let record = resolve(&*place.store, &args.session.session).await?;
    if args.digest {
        return show_digest(&record, place, out).await;
    }
    let range = args.last.map_or(Range::All, Range::Last);
    let mut damaged = Damaged::default();
    let text = if args.raw { Text::Raw } else { Text::Visible };
    let mut transcript = Transcript::new(out.paint(), text);
    if !out.is_json() {
        out.text(&header(&record, out))?;
    }
    each_page(&*place.store, record.id, range, |page| {
        for stored in &page {
            if out.is_json() {
                let line = EventLine::of(stored);
                if let Some(why) = line.damage() {
                    damaged.note(stored, why);
                }
                out.json(&line)?;
            } else {
                let rendered = match stored.event() {
                    Ok(event) => transcript.event(&event),
                    Err(damage) => {
                        damaged.note(stored, &damage.to_string());
                        transcript.damaged(stored, &damage.to_string())
                    }
                };
                out.text(&rendered)?;
            }
        }
        out.flush()
    })
    .await?;
    damaged.report(record.id);
    Ok(())
}

async fn show_digest(record: &SessionRecord, place: &Place, out: &mut Output) -> Result<(), Failure> {
    let mut digest = Digest::default();
    each_page(&*place.store, record.id, Range::All, |page| {
        page.iter().filter_map(|stored| stored.event().ok()).for_each(|event| digest.push(&event));
        Ok::<(), Failure>(())
    })
    .await?;
    let text = digest.finish();
    if out.is_json() {
        return out.json(&json!({"session": record.id.to_string(), "digest": text}));
    }
    out.text(&header(record, out))?;
    if text.is_empty() { Ok(()) } else { out.line(&visible(&text)) }
}

/// Says which session this is, in one line and a blank one.
fn header(record: &SessionRecord, out: &Output) -> String {
    let mut parts = vec![record.id.to_string()];
    if has_name(record) {
        parts.push(visible_line(&record.name).into_owned());
    }
    parts.extend(
        [&record.counts.agent, &record.counts.model]
            .into_iter()
            .flatten()
            .map(|name| visible_line(name).into_owned()),
    );
    if !record.created_at.is_empty() {
        parts.push(visible_line(&record.created_at).into_owned());
    }
    parts.push(counted(record.counts.messages, "message"));
    if record.duration_ms > 0 {
        parts.push(duration(record.duration_ms));
    }
    format!("{}\n\n", out.paint().quiet(&parts.join(" · ")))
}
