use std::io::Write as _;

use azureal::Workspace;
use azureal::changes::{ChangesOf, TurnChanges};
use azureal::sessions::{called, resolve_to_read};
use azureal_core::{visible, visible_line};
use azureal_engine::Recovered;
use azureal_snapshots::{Diff, Patch};
use serde_json::json;

use super::SessionToRead;
use crate::failure::Failure;
use crate::output::{Output, Paint, bytes_text, counted, warn};

/// Show the files that changed during a turn
///
/// The changes of the last turn that has any, or of `--turn N`, as a unified diff. They are what happened to the files of the worktree
/// while the turn ran, whatever did it: an edit of the agent, a command, or you. Files that git ignores are left out.
///
/// Changes are recorded in a git repository, in the git directory; the repository itself is not touched. Piped, the diff has the
/// contents of binary files too: `azureal diff S3 | git apply -R` works.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal diff                     the last turn of the last session
  azureal diff S3 --turn 5
  azureal diff S3 --stat           only the files")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionToRead,
    /// The turn, by its number; `azureal show S3` shows the numbers
    #[arg(long, value_name = "N")]
    turn: Option<usize>,
    /// Only the files, with the number of lines
    #[arg(long)]
    stat: bool,
}

pub(crate) async fn run(
    args: &Args,
    place: &Workspace,
    found: &[Recovered],
    out: &mut Output,
) -> Result<(), Failure> {
    let record = resolve_to_read(place, found, args.session.session.as_deref()).await?;
    let of = args.turn.map_or(ChangesOf::LastTurn, ChangesOf::Turn);
    let changes = place.turn_changes(&record, of).await?;
    if out.is_json() {
        let diff = if args.stat { None } else { Some(place.diff(&changes)?) };
        return out.json(&json!({
            "session": changes.session.to_string(),
            "turn": changes.turn,
            "seq": changes.seq.0,
            "before": changes.before,
            "after": changes.after,
            "files": changes.files,
            "directories": changes.directories,
            "during": changes.during,
            "late": changes.late,
            "skipped": changes.skipped,
            "undone": changes.undone_by.is_some(),
            "diff": diff.as_ref().map(Diff::text),
        }));
    }
    let paint = out.paint();
    if args.stat {
        out.line(&paint.heading(&heading(&called(&record), &changes)))?;
        return print_files(&changes, out);
    }
    if !out.is_terminal() {
        // As git prints it: another program may apply it.
        let Patch { bytes, left_out, not_stored } = place.patch(&changes)?;
        out.write_all(&bytes)?;
        if not_stored > 0 {
            let files = counted(not_stored as u64, "file");
            warn(&format!("{files} left out: too large or unreadable, not recorded; `--stat` shows all"));
        }
        warn_of_unrecorded(&changes);
        warn_of_cut(left_out);
        return Ok(());
    }
    let diff = place.diff(&changes)?;
    out.begin_pager()?;
    out.line(&paint.heading(&heading(&called(&record), &changes)))?;
    let mut is_header = false;
    for line in diff.text().lines() {
        // Lines of a file begin with another character.
        is_header = line.starts_with("diff --git ") || (is_header && !line.starts_with('@'));
        out.line(&painted(paint, line, is_header))?;
    }
    out.end_pager()?;
    warn_of_unrecorded(&changes);
    warn_of_cut(diff.left_out);
    Ok(())
}

fn warn_of_unrecorded(changes: &TurnChanges) {
    if let Some(unrecorded) = changes.unrecorded() {
        warn(&unrecorded);
    }
}

fn warn_of_cut(left_out: u64) {
    if left_out > 0 {
        warn(&format!("the diff is cut: {} more", bytes_text(left_out)));
    }
}

/// Returns the line above the changes of a turn.
fn heading(session: &str, changes: &TurnChanges) -> String {
    let mut heading = format!("{session} · turn {} · {}", changes.turn, changes.summary());
    if changes.undone_by.is_some() {
        heading.push_str(" · undone");
    }
    if changes.late {
        heading.push_str(" · until the turn was recovered");
    }
    if !changes.during.is_empty() {
        heading
            .push_str(&format!(" · {} ran meanwhile", counted(changes.during.len() as u64, "other session")));
    }
    heading
}

/// Prints the changed files, one on a line.
pub(super) fn print_files(changes: &TurnChanges, out: &mut Output) -> Result<(), Failure> {
    for file in &changes.files {
        out.line(&format!("  {}", visible_line(&file.to_string())))?;
    }
    for directory in &changes.directories {
        let files = counted(directory.files, "more file");
        out.line(&format!("  {files} in {}", visible_line(&directory.path)))?;
    }
    for skipped in &changes.skipped {
        out.line(&format!("  {}", visible_line(&skipped.to_string())))?;
    }
    Ok(())
}

/// Returns a line of a diff in its colour.
fn painted(paint: Paint, line: &str, is_header: bool) -> String {
    let line = visible(line);
    match line.bytes().next() {
        _ if is_header => paint.heading(&line),
        Some(b'+') => paint.success(&line),
        Some(b'-') => paint.danger(&line),
        Some(b'@') => paint.quiet(&line),
        _ => line.into_owned(),
    }
}
