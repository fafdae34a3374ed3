use std::path::PathBuf;

use azureal::Workspace;
use azureal::error::shown;
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Output, bytes_text, counted, warn};
use crate::spinner::Spinner;

/// Copy the store to a file, while others may write to it
///
/// The copy has all turns that are stored at one moment, and the output of turns in the folder `<file>.originals` beside it. Both are private,
/// and appear when they are complete and checked. The copy is a store of its own: `azureal --store FILE list` reads it.
///
/// `azureal restore` puts it back. Versions of files, for diff and undo, and your configuration are not part of it.
///
/// A store on a server is copied session by session, as `azureal copy` does.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal backup ~/backups/project.azs
  azureal backup ~/backups            a new file with the time in its name
  azureal --store postgres://host/db backup sessions.azs")]
pub(crate) struct Args {
    /// The file to write, or a folder for it
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Replace an existing backup
    #[arg(short, long)]
    force: bool,
}

pub(crate) fn run(args: &Args, place: &Workspace, out: &mut Output) -> Result<(), Failure> {
    let spinner = Spinner::start("copying");
    let made = place.back_up(&args.path, args.force, &|step| spinner.step(&format!("copying: {step}")))?;
    drop(spinner);
    for problem in &made.problems {
        warn(problem);
    }
    if out.is_json() {
        out.json(&json!({
            "path": made.path.display().to_string(),
            "sessions": made.sessions,
            "events": made.events,
            "bytes": made.bytes,
            "originals_bytes": made.originals_bytes,
            "problems": made.problems,
        }))?;
    } else {
        out.line(&format!(
            "{} with {} and {}, {}; output of turns: {}",
            shown(&made.path),
            counted(made.sessions, "session"),
            counted(made.events, "event"),
            bytes_text(made.bytes),
            bytes_text(made.originals_bytes)
        ))?;
    }
    out.flush()?;
    match made.problems.is_empty() {
        true => Ok(()),
        false => Err(Failure::new("incomplete", "not everything could be copied as it is")
            .with_hint("the warnings say what; everything else is there, and was compared")),
    }
}
