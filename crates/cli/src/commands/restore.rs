use std::path::{Path, PathBuf};

use azureal::Options;
use azureal::backup::Restore;
use azureal::error::shown;
use azureal_core::{SessionId, visible_line};
use serde_json::json;

use crate::confirm::{Answer, ask};
use crate::environment::environment;
use crate::failure::Failure;
use crate::output::{Output, counted, tell};
use crate::spinner::Spinner;

/// Put a backup back
///
/// The store becomes what the backup is, in one transaction. What is there now is kept as `sessions.azs.before-restore-<time>` in azureal's
/// folder of the git directory, or beside the store, with the output of its turns. It asks first; without a terminal, it needs `--yes`. While
/// a turn runs, nothing is restored. Sessions that were deleted since the backup come back, and are named first. No session number is
/// given again.
///
/// With `--store FILE` or in another project, the backup is restored there.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal restore ~/backups/project.azs
  azureal -C ../other-project restore ~/backups/project.azs --yes
  azureal copy --from project.azs --to postgres://host/db   add a backup to a server")]
pub(crate) struct Args {
    /// The backup
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Restores to the store `named`, or else to the project's.
pub(crate) fn run(args: &Args, named: Option<&Path>, out: &mut Output) -> Result<(), Failure> {
    let environment = environment();
    let options = Options { store: named.map(Path::to_owned), may_block: true, ..Options::default() };
    let spinner = Spinner::start("checking the backup");
    let step = |step: &str| spinner.step(&format!("checking the backup: {step}"));
    let restore = Restore::prepare(&args.path, Path::new("."), &environment, &options, &step)?;
    drop(spinner);
    if !args.yes {
        confirm(&restore)?;
    }
    let spinner = Spinner::start("restoring");
    let restored = restore.run(&|step| spinner.step(&format!("restoring: {step}")))?;
    drop(spinner);
    if out.is_json() {
        let kept = restored.kept.as_ref().map(|kept| kept.display().to_string());
        return out.json(&json!({
            "store": restore.store.display().to_string(),
            "sessions": restore.sessions,
            "events": restore.events,
            "revived": restore.revived.iter().map(|(id, _)| id.to_string()).collect::<Vec<_>>(),
            "kept": kept,
        }));
    }
    out.line(&format!(
        "{} has {} and {} again",
        shown(&restore.store),
        counted(restore.sessions, "session"),
        counted(restore.events, "event")
    ))?;
    out.flush()?;
    if args.yes && !restore.revived.is_empty() {
        tell(&revived(&restore.revived));
    }
    if let Some(kept) = &restored.kept {
        tell(&format!("what was there is kept: {}", shown(kept)));
    }
    Ok(())
}

/// The most revived sessions that are named.
const MOST_NAMED: usize = 10;

/// Names the sessions that come back.
fn revived(deleted: &[(SessionId, String)]) -> String {
    let name = |(id, name): &(SessionId, String)| match *name == id.to_string() || name.is_empty() {
        true => id.to_string(),
        false => format!("{id} {}", visible_line(name)),
    };
    let mut names: Vec<String> = deleted.iter().take(MOST_NAMED).map(name).collect();
    if let Some(more) = deleted.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        names.push(format!("{more} more"));
    }
    let verb = if deleted.len() == 1 { "was deleted since and comes" } else { "were deleted since and come" };
    format!("{} {verb} back", names.join(", "))
}

fn confirm(restore: &Restore) -> Result<(), Failure> {
    let content =
        |(sessions, events)| format!("{} with {}", counted(sessions, "session"), counted(events, "event"));
    let there = match (restore.replaces, restore.replaced) {
        (true, Some(replaced)) => format!("There are {} now, which are kept in a copy.", content(replaced)),
        (true, None) => "What is there now is kept under another name.".to_owned(),
        (false, _) => "There is no store yet.".to_owned(),
    };
    let there = match restore.revived.as_slice() {
        [] => there,
        deleted => format!("{there} {}.", revived(deleted)),
    };
    let question = format!(
        "Restore {} to {}? {there} [y/N] ",
        content((restore.sessions, restore.events)),
        shown(&restore.store)
    );
    match ask(&question) {
        Answer::Yes => Ok(()),
        Answer::No => Err(Failure::cancelled("nothing was restored")),
        Answer::Nobody => Err(Failure::refused(
            "not_confirmed",
            "restoring replaces the store, and there is no terminal to ask on",
        )
        .with_hint("`--yes` restores without asking")),
    }
}
