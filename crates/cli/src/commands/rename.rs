use azureal_core::visible_line;
use serde_json::json;

use super::SessionArg;
use crate::failure::Failure;
use crate::output::Output;
use azureal::Workspace;
use azureal::sessions::resolve;

/// Give a session another name
///
/// The number stays. A name must not be empty, look like a session's number, or belong to another session.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal rename S3 fix-login
  azureal rename fix-login \"fix the login page\"")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// The new name
    name: String,
}

pub(crate) async fn run(args: &Args, place: &Workspace, out: &mut Output) -> Result<(), Failure> {
    let id = resolve(&*place.store, &args.session.session).await?.id;
    place.rename_session(id, &args.name).await?;
    if out.is_json() {
        out.json(&json!({"id": id.to_string(), "name": args.name}))
    } else {
        out.line(&format!("{id} is now called {}", visible_line(&args.name)))
    }
}
