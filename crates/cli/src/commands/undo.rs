use azureal::Workspace;
use azureal::changes::{ChangesOf, TurnChanges};
use azureal::sessions::{called, resolve};
use azureal::undo::{FinishedUndo, PlannedUndo, conflict_words};
use azureal_core::{Seq, visible_line};
use azureal_engine::Recovered;
use azureal_snapshots::{UndoAction, UndoConflict, UndoFile};
use serde_json::{Value, json};

use super::SessionArg;
use crate::failure::Failure;
use crate::output::{Output, counted, tell};

/// Restore the files of a turn to what they were before it
///
/// Every file that changed during the turn gets its content from before it, and its permission to be executed: new files are
/// deleted, deleted ones come back. All of them, or none. The session keeps its events, and the next agent is told of the undo.
///
/// It is refused while a turn runs in the worktree, if a file was changed since the turn, or if other sessions ran
/// meanwhile; `--force` undoes all the same. The undo is an event of the session, and can itself be undone with `--seq`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal undo S3 --dry-run   show what it would do
  azureal undo S3             the last turn that changed files and is not undone
  azureal undo S3 --turn 5
  azureal undo S3 --seq 42    take back the undo that is event 42")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// The turn, by its number; `azureal show S3` shows the numbers
    #[arg(long, value_name = "N", conflicts_with = "seq")]
    turn: Option<usize>,
    /// The event of the changes, or of an earlier undo
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
    seq: Option<u64>,
    /// Show what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Overwrite files that were changed since, and ignore that other sessions ran meanwhile
    ///
    /// A forced undo never deletes a file that was there before the turn, such as one that was ignored then, and never overwrites
    /// content that no snapshot has. It names the files that it left as they are.
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(
    args: &Args,
    place: &Workspace,
    found: &[Recovered],
    out: &mut Output,
) -> Result<(), Failure> {
    let record = resolve(&*place.store, &args.session.session).await?;
    let of = match (args.turn, args.seq) {
        (Some(turn), _) => ChangesOf::Turn(turn),
        (None, Some(seq)) => ChangesOf::Event(Seq(seq)),
        (None, None) => ChangesOf::LastNotUndone,
    };
    let changes = place.turn_changes(&record, of).await?;
    let planned = place.plan_undo(changes, found).await?;
    let obstacles = planned.obstacles();
    if args.dry_run {
        return show_plan(&called(&record), &planned, args.force, &obstacles, out);
    }
    if !args.force && !obstacles.is_empty() {
        for conflict in &planned.plan.conflicts {
            tell(&format!("  {}", conflict_line(conflict)));
        }
        if let Some(unrecorded) = planned.changes.unrecorded() {
            tell(&format!("  {unrecorded}"));
        }
        let session = record.id;
        let which = match args.seq {
            Some(seq) => format!("--seq {seq}"),
            None => format!("--turn {}", planned.changes.turn),
        };
        let hint = match planned.can_be_forced() {
            true => format!(
                "nothing was changed; `azureal undo {session} {which} --force` undoes it all the same"
            ),
            false => "nothing was changed".to_owned(),
        };
        return Err(Failure::refused("conflict", obstacles.join("; ")).with_hint(hint));
    }
    let done = place.undo(&record, &planned, args.force, found).await?;
    report(&called(&record), &done, &planned.changes, out)
}

fn show_plan(
    session: &str,
    planned: &PlannedUndo,
    force: bool,
    obstacles: &[String],
    out: &mut Output,
) -> Result<(), Failure> {
    let PlannedUndo { changes, plan, .. } = planned;
    let files = if force { &plan.forced } else { &plan.files };
    if out.is_json() {
        return out.json(&json!({
            "session": changes.session.to_string(),
            "turn": changes.turn,
            "of": changes.seq.0,
            "done": false,
            "files": files.iter().map(file_json).collect::<Vec<_>>(),
            "conflicts": plan.conflicts.iter().map(conflict_json).collect::<Vec<_>>(),
            "skipped": changes.skipped,
            "refused_because": if force { &[] } else { obstacles },
        }));
    }
    let count = counted(files.len() as u64, "file");
    out.line(
        &out.paint().heading(&format!("the undo of turn {} of {session} changes {count}", changes.turn)),
    )?;
    for file in files {
        let action = match file.action {
            UndoAction::Restore => "restore",
            UndoAction::Delete => "delete",
        };
        out.line(&format!("  {action} {}", shown(&file.path)))?;
    }
    for conflict in plan.conflicts.iter().filter(|conflict| !force || !conflict.why.can_be_forced()) {
        let left = if conflict.why.can_be_forced() { "" } else { "; `--force` leaves it as it is" };
        out.line(&format!("  {}{left}", out.paint().caution(&conflict_line(conflict))))?;
    }
    print_unrecorded(changes, out)?;
    for obstacle in obstacles.iter().filter(|_| !force) {
        out.line(&out.paint().caution(&format!("refused without --force: {obstacle}")))?;
    }
    out.line("nothing was changed")
}

/// Names the files that changed during the turn and that no undo restores.
fn print_unrecorded(changes: &TurnChanges, out: &mut Output) -> Result<(), Failure> {
    for skipped in changes.skipped.iter().filter(|skipped| skipped.changed) {
        out.line(&format!("  {}", out.paint().caution(&visible_line(&skipped.to_string()))))?;
    }
    Ok(())
}

fn report(
    session: &str,
    done: &FinishedUndo,
    changes: &TurnChanges,
    out: &mut Output,
) -> Result<(), Failure> {
    let FinishedUndo { seq, event, left, kept } = done;
    if out.is_json() {
        return out.json(&json!({
            "session": session,
            "turn": event.turn,
            "of": event.of,
            "done": true,
            "seq": seq.0,
            "files": event.files,
            "directories": event.directories,
            "left": left.iter().map(conflict_json).collect::<Vec<_>>(),
            "skipped": changes.skipped,
            "kept": kept.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        }));
    }
    out.line(&format!("{session}: {}", event.summary()))?;
    for file in &event.files {
        out.line(&format!("  {}", visible_line(&file.to_string())))?;
    }
    for conflict in left {
        out.line(&format!("  left as it is: {}", conflict_line(conflict)))?;
    }
    print_unrecorded(changes, out)?;
    for path in kept {
        out.line(&format!("  kept beside its file: {}", shown(path)))?;
    }
    let number = session.split_whitespace().next().unwrap_or(session);
    tell(&format!("`azureal undo {number} --seq {seq}` takes it back"));
    Ok(())
}

fn conflict_line(conflict: &UndoConflict) -> String {
    format!("{}: {}", shown(&conflict.path), conflict_words(conflict.why))
}

fn file_json(file: &UndoFile) -> Value {
    let action = match file.action {
        UndoAction::Restore => "restore",
        UndoAction::Delete => "delete",
    };
    json!({"path": file.path.to_string_lossy(), "action": action})
}

fn conflict_json(conflict: &UndoConflict) -> Value {
    json!({
        "path": conflict.path.to_string_lossy(),
        "reason": conflict_words(conflict.why),
        "can_be_forced": conflict.why.can_be_forced(),
    })
}

fn shown(path: &std::path::Path) -> String {
    visible_line(&path.to_string_lossy()).into_owned()
}
