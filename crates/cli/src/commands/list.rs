use azureal_core::{ListQuery, SessionId, SessionRecord, Threshold};

use crate::damage::warn_of_damage;
use crate::failure::Failure;
use crate::output::{Output, tell, to_json, warn};
use crate::session_table::{SessionTable, turn_of};
use crate::threshold::threshold;
use crate::times::Clock;
use azureal::Workspace;
use azureal::json::SessionLine;
use azureal::meter::Meter;
use azureal::native;
use azureal::turns::ActiveTurn;

/// How many sessions a terminal shows without being asked for more.
const ON_A_TERMINAL: usize = 50;

/// List sessions, the most recently active first
///
/// Those of the current worktree, or of all worktrees with `--all`. ✓ and ✗ say how the last turn ended, ● that one is
/// running: the line below it has the agent, the time since it runs, and the prompt. A terminal shows 50 sessions, unless `-n` is given; a program gets all of them.
///
/// ACTIVE is the time of the last activity. CONTEXT is the size of the context that the next agent receives, in percent of the
/// threshold of compaction; `azureal tokens` has its characters and tokens.
///
/// LAST PROMPT has at least 30 columns on a terminal of 70 or more. For that, other columns give way in this order: the model, MSGS,
/// COST, names longer than 16, AGENT, WORKTREE, CONTEXT, names longer than 8, ACTIVE, NAME. `--json` has everything.
#[derive(Debug, Default, clap::Args)]
#[command(
    visible_alias = "ls",
    after_long_help = "\
Examples:
  azureal list
  azureal list --all -n 10
  azureal list --all --json | jq -r '.[] | select(.completed == false) | .id'"
)]
pub(crate) struct Args {
    /// List the sessions of all worktrees
    #[arg(long)]
    all: bool,
    /// List at most N sessions
    #[arg(short = 'n', long = "limit", value_name = "N")]
    limit: Option<usize>,
}

pub(crate) async fn run(
    args: &Args,
    place: &Workspace,
    active: &[ActiveTurn],
    out: &mut Output,
) -> Result<(), Failure> {
    let limit = match args.limit {
        None if out.is_terminal() && !out.is_json() => Some(ON_A_TERMINAL),
        limit => limit,
    };
    let query = ListQuery {
        worktree: (!args.all).then(|| place.project.worktree_filter()),
        limit,
        ..ListQuery::default()
    };
    let records = place.store.list(&query).await?;
    warn_of_damage(&records);
    let threshold = threshold(&place.project);
    if out.is_json() {
        return write_json(place, &records, active, threshold, out).await;
    }
    if records.is_empty() && limit != Some(0) {
        return tell_why_empty(place).await;
    }
    let table = SessionTable {
        records: &records,
        active,
        threshold,
        all_worktrees: args.all,
        clock: Clock::read(),
        width: out.width(),
    };
    out.own_text(&table.render(out.paint()))?;
    if args.limit.is_none() && Some(records.len()) == limit {
        out.flush()?;
        tell("there may be more; `-n` says how many to list");
    }
    Ok(())
}

/// Says what can be done about an empty list.
async fn tell_why_empty(place: &Workspace) -> Result<(), Failure> {
    let any = ListQuery { limit: Some(1), ..ListQuery::default() };
    if place.project.store_of_worktree().is_none() && !place.store.list(&any).await?.is_empty() {
        tell("no sessions of this worktree yet; `azureal list --all` shows those of all worktrees");
        return Ok(());
    }
    tell_of_empty_store(place).await;
    Ok(())
}

/// Says that a store has no sessions, and where there are some.
pub(super) async fn tell_of_empty_store(place: &Workspace) {
    let found = native::find_importable(place).await;
    let found = found.as_deref().unwrap_or(
        "`azureal import --from all --all-projects` imports those that agents keep, of all projects",
    );
    tell(&format!("no sessions yet; {found}"));
}

/// Writes an array, one session to a line.
async fn write_json(
    place: &Workspace,
    records: &[SessionRecord],
    active: &[ActiveTurn],
    threshold: Threshold,
    out: &mut Output,
) -> Result<(), Failure> {
    let sizes = match place.store.originals() {
        Some(originals) => {
            let ids: Vec<SessionId> = records.iter().map(|record| record.id).collect();
            originals.sizes(&ids).await
        }
        None => Ok(vec![0; records.len()]),
    };
    // A size that cannot be read is left out. It is not worth the whole list.
    let sizes = sizes.unwrap_or_else(|error| {
        warn(&format!("the sizes of originals cannot be read: {error}"));
        Vec::new()
    });
    out.text("[")?;
    for (index, record) in records.iter().enumerate() {
        out.text(if index == 0 { "\n" } else { ",\n" })?;
        let meter = Meter::of(record, threshold);
        let line = SessionLine::live(record, turn_of(record, active), meter);
        out.text(&to_json(&line.with_originals(sizes.get(index).copied()))?)?;
    }
    out.line(if records.is_empty() { "]" } else { "\n]" })
}
