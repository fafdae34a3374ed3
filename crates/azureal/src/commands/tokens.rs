use serde_json::json;

use super::SessionToRead;
use crate::failure::Failure;
use crate::meter::{self, ESTIMATE, ESTIMATED_BY, Meter};
use crate::output::Output;
use crate::place::Place;
use crate::resolve::{called, resolve_to_read};

/// Show how many tokens a session has used, and how many the next prompt starts with
///
/// The used tokens are those that the agents reported, summed over all turns. The tokens of the context are the provider's
/// count of the last request, the agent's own instructions included; without one, an estimate of four characters to a
/// token. `azureal list` and `azureal context --stats` show the same number.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal tokens S3
  azureal tokens S3 --json | jq .context.tokens")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionToRead,
}

pub(crate) async fn run(args: &Args, place: &Place, out: &mut Output) -> Result<(), Failure> {
    let record = resolve_to_read(place, args.session.session.as_deref()).await?;
    let meter = Meter::of(&record, meter::threshold(&place.project));
    let (chars, tokens) = (meter.chars, meter.tokens);
    let is_estimate = meter.tokens_by == ESTIMATE;
    let counted_by = if is_estimate { ESTIMATED_BY } else { meter.tokens_by.as_str() };
    if out.is_json() {
        return out.json(&json!({
            "session": record.id.to_string(),
            "input_tokens": record.tokens.input,
            "output_tokens": record.tokens.output,
            "context": {"chars": chars, "tokens": tokens, "tokens_by": meter.tokens_by, "counted_by": counted_by, "estimate": is_estimate},
        }));
    }
    out.line(&format!("session  {}", called(&record)))?;
    out.line(&format!(
        "used     {} in, {} out, as the agents reported",
        record.tokens.input, record.tokens.output
    ))?;
    out.line(&format!("context  {}, {chars} characters", meter.tokens_line()))
}
