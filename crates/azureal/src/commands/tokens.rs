use azureal_core::{read_context, wrap_context};
use serde_json::json;

use super::SessionToRead;
use crate::failure::Failure;
use crate::meter::{ESTIMATED_BY, estimated};
use crate::output::Output;
use crate::place::Place;
use crate::resolve::{called, resolve_to_read};

/// Show how many tokens a session has used, and how many the next prompt starts with
///
/// The used tokens are those that the agents reported, summed over all turns. The tokens of the context are estimated
/// from its characters, four to a token: models count differently, and every agent adds its own instructions.
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
    let context = wrap_context(&read_context(&*place.store, record.id).await?);
    let chars = context.chars().count() as u64;
    let tokens = estimated(chars);
    if out.is_json() {
        return out.json(&json!({
            "session": record.id.to_string(),
            "input_tokens": record.tokens.input,
            "output_tokens": record.tokens.output,
            "context": {"chars": chars, "tokens": tokens, "counted_by": ESTIMATED_BY, "estimate": true},
        }));
    }
    out.line(&format!("session  {}", called(&record)))?;
    out.line(&format!(
        "used     {} in, {} out, as the agents reported",
        record.tokens.input, record.tokens.output
    ))?;
    out.line(&format!("context  {tokens} (estimate: {ESTIMATED_BY}), {chars} characters"))
}
