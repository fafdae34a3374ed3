use azureal_core::event::Usage;
use azureal_core::{Event, Page, SessionRecord, Tokens};
use azureal_engine::Recovered;
use serde_json::{Value, json};

use super::SessionToRead;
use crate::failure::Failure;
use crate::output::Output;
use crate::threshold::threshold;
use azureal::Workspace;
use azureal::meter::{ESTIMATE, ESTIMATED_BY, Meter, grouped};
use azureal::sessions::{called, resolve_to_read};
use azureal::transcript::tokens_in_detail;

/// How many events are searched for the end of the last turn, from the end of the session.
const SEARCHED: usize = 20;

/// Show how many tokens a session has used, and how many the next prompt starts with
///
/// The used tokens are those that the agents reported, summed over all turns. "93 % cached" is the share of the tokens sent
/// that the provider read from its cache, at a lower price; "written" is the share that it wrote to the cache. Both are
/// left out if no agent reported any.
///
/// The tokens of the context are the provider's count of the last request, the agent's own instructions included; without
/// one, an estimate of four characters to a token. `azureal context --stats` shows the same number.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal tokens S3
  azureal tokens S3 --json | jq .context.tokens
  azureal tokens S3 --json | jq .last_turn.cache_read_tokens")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionToRead,
}

pub(crate) async fn run(
    args: &Args,
    place: &Workspace,
    found: &[Recovered],
    out: &mut Output,
) -> Result<(), Failure> {
    let record = resolve_to_read(place, found, args.session.session.as_deref()).await?;
    let last_turn = last_turn(place, &record).await?;
    let meter = Meter::of(&record, threshold(&place.project));
    let (chars, tokens) = (meter.chars, meter.tokens);
    let is_estimate = meter.tokens_by == ESTIMATE;
    let counted_by = if is_estimate { ESTIMATED_BY } else { meter.tokens_by.as_str() };
    if out.is_json() {
        return out.json(&json!({
            "session": record.id.to_string(),
            "input_tokens": record.tokens.input,
            "output_tokens": record.tokens.output,
            "cache_read_tokens": record.tokens.cache_read,
            "cache_write_tokens": record.tokens.cache_write,
            "last_turn": last_turn.map(usage_json),
            "context": {"chars": chars, "tokens": tokens, "tokens_by": meter.tokens_by, "counted_by": counted_by, "estimate": is_estimate},
        }));
    }
    out.line(&format!("session    {}", called(&record)))?;
    out.line(&format!("used       {}, as the agents reported", tokens_in_detail(record.tokens)))?;
    if let Some(usage) = last_turn {
        out.line(&format!("last turn  {}", tokens_in_detail(Tokens::from(usage))))?;
    }
    out.line(&format!("context    {}, {} characters", meter.tokens_line(), grouped(chars)))
}

/// Returns what the agent reported of the last turn; `None` if it reported nothing, if a turn began since, or if no agent has run in the session
/// itself: a fork begins with the turns of another.
async fn last_turn(place: &Workspace, record: &SessionRecord) -> Result<Option<Usage>, Failure> {
    if record.tokens == Tokens::default() {
        return Ok(None);
    }
    let events = place.store.read(record.id, Page::last(SEARCHED)).await?;
    let last = events.iter().rev().filter_map(|stored| stored.event().ok());
    let end =
        last.take_while(|event| !matches!(event, Event::UserMessage(_))).find_map(|event| match event {
            Event::Complete(complete) => Some(complete),
            _ => None,
        });
    Ok(end.and_then(|complete| complete.usage))
}

/// Returns every count, also those that are 0 and left out where an event is stored.
fn usage_json(usage: Usage) -> Value {
    let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, context_tokens } = usage;
    json!({
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "cache_read_tokens": cache_read_tokens,
        "cache_write_tokens": cache_write_tokens,
        "context_tokens": context_tokens,
    })
}
