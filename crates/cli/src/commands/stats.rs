use std::time::{Duration, Instant};

use azureal::Workspace;
use azureal::parse_since;
use azureal::stats::{Group, GroupKey, Grouping, Stats, StatsQuery, Sums};
use azureal::transcript::{cost_text, short_count, tokens_in_detail};
use azureal_core::{ListQuery, elapsed_text, visible_line};
use clap::builder::PossibleValuesParser;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::list::tell_of_empty_store;
use crate::damage::warn_of_damage;
use crate::failure::Failure;
use crate::marks::is_ascii;
use crate::output::{Output, counted, in_rows, tell, warn};
use crate::spinner::Spinner;
use crate::stats_table::StatsTable;
use crate::times::Clock;

/// The number of groups of one kind that a terminal shows without being asked for more.
const ON_A_TERMINAL: usize = 20;
/// The time after which progress is shown.
const QUIET: Duration = Duration::from_millis(400);

/// Show turns, tokens, cost and time by agent, model, day, worktree or session
///
/// Of the sessions of the current worktree, or of all worktrees with `--all`. A bar compares the cost with that of the largest row, or the tokens if the cost
/// of a tenth of them is not known, such as that of imported turns. CACHED is the share of the tokens sent that the provider read from its cache. A terminal shows 20 rows of each kind, unless `-n` is given; a program gets all of them.
///
/// A session counts what its turns reported, and what its totals in `azureal list` have beyond that. The difference is a row of its own, `outside
/// turns`: the tokens of summaries for compactions, whose cost and time are not counted, and turns that were removed. A fork counts its own turns, not those that it began with.
///
/// A day is one of this computer's time zone, and a turn belongs to the day on which it began. Turns of earlier versions have no time. Their day
/// is unknown if their session was active on several days, and `--since` leaves them out if they may be older.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal stats
  azureal stats --all --by model --since 30d
  azureal stats --by day --csv > days.csv
  azureal stats --json | jq .total.cost_usd")]
pub(crate) struct Args {
    /// Add up by this: agent, model, day, worktree or session; several with commas
    #[arg(
        long,
        value_name = "WHAT",
        value_delimiter = ',',
        default_value = "agent,model,day",
        hide_possible_values = true,
        value_parser = PossibleValuesParser::new(Grouping::ALL.map(Grouping::name))
    )]
    by: Vec<String>,
    /// Count turns that began since then: `30m`, `12h`, `7d`, `2w` ago, or a date
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Count the sessions of all worktrees
    #[arg(long)]
    all: bool,
    /// Show at most N rows of each kind
    #[arg(short = 'n', long = "limit", value_name = "N")]
    limit: Option<usize>,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

pub(crate) async fn run(args: &Args, place: &Workspace, out: &mut Output) -> Result<(), Failure> {
    let clock = Clock::read();
    let since = args.since.as_deref().map(parse_since).transpose()?;
    let query = StatsQuery {
        worktree: (!args.all).then(|| place.project.worktree_filter()),
        since,
        zone: clock.zone().clone(),
    };
    let stats = read(place, &query).await?;
    warn_of_damage(&stats.damaged_sessions);
    if stats.damaged > 0 {
        let events = counted(stats.damaged, "event");
        warn(&format!("{events} cannot be read: what these turns took is counted without them"));
    }
    if stats.undated > 0 {
        let turns = counted(stats.undated, "turn");
        let since = shown(since, &clock);
        warn(&format!("not counted: {turns} whose time is not known and may be before {since}"));
    }
    let mut groupings: Vec<Grouping> = Vec::new();
    for grouping in args.by.iter().filter_map(|name| Grouping::named(name)) {
        if !groupings.contains(&grouping) {
            groupings.push(grouping);
        }
    }
    let is_for_people = out.is_terminal() && !out.is_json() && !args.csv;
    let limit = args.limit.unwrap_or(if is_for_people { ON_A_TERMINAL } else { usize::MAX });
    let parts: Vec<(Grouping, Vec<Group>, usize)> = groupings
        .into_iter()
        .map(|grouping| {
            let (groups, more) = limited(stats.by(grouping), grouping, limit);
            (grouping, groups, more)
        })
        .collect();
    if out.is_json() {
        return write_json(place, args, since, &stats, &parts, out);
    }
    if args.csv {
        return write_csv(&parts, out);
    }
    if stats.total.sessions == 0 {
        let any = ListQuery { limit: Some(1), ..ListQuery::default() };
        if place.store.list(&any).await?.is_empty() {
            tell_of_empty_store(place).await;
            return Ok(());
        }
        tell(match (args.since.is_some(), args.all) {
            (true, _) => "no turns since then",
            (false, true) => "no turns yet",
            (false, false) => {
                "no turns in this worktree yet; `azureal stats --all` counts those of all worktrees"
            }
        });
        return Ok(());
    }
    let summary = in_rows(&summary(&stats.total, since, &clock), out.width().unwrap_or(usize::MAX));
    out.own_text(&format!("{}\n", out.paint().heading(&summary)))?;
    for (grouping, groups, _) in &parts {
        let table = StatsTable {
            grouping: *grouping,
            groups,
            measure: stats.measure(),
            width: out.width(),
            is_ascii: is_ascii(),
        };
        out.own_text(&format!("\n{}", table.render(out.paint())))?;
    }
    let more: usize = parts.iter().map(|(_, _, more)| more).sum();
    if more > 0 && args.limit.is_none() {
        out.flush()?;
        tell(&format!("{} more; `-n` says how many to show", counted(more as u64, "row")));
    }
    Ok(())
}

async fn read(place: &Workspace, query: &StatsQuery) -> Result<Stats, Failure> {
    let (begun, mut spinner) = (Instant::now(), None);
    let stats = place.stats(query, |done, all| {
        if done < all && begun.elapsed() > QUIET {
            let label = format!("counting the turns of {all} sessions: {} %", done * 100 / all.max(1));
            spinner.get_or_insert_with(|| Spinner::start(&label)).relabel(&label);
        }
    });
    Ok(stats.await?)
}

/// Returns at most so many groups, and how many are left out. Of days, the last ones are kept. Groups without a name always are.
fn limited(groups: Vec<Group>, grouping: Grouping, limit: usize) -> (Vec<Group>, usize) {
    let (mut known, unnamed): (Vec<Group>, Vec<Group>) =
        groups.into_iter().partition(|group| matches!(group.key, GroupKey::Known(_)));
    let more = known.len().saturating_sub(limit);
    if grouping == Grouping::Day {
        known.drain(..more);
    } else {
        known.truncate(limit);
    }
    known.extend(unnamed);
    (known, more)
}

/// Returns the sums of everything, in parts of a line.
fn summary(total: &Sums, since: Option<Timestamp>, clock: &Clock) -> Vec<String> {
    let turns = counted(total.turns, "turn");
    let sessions = counted(total.sessions, "session");
    let since = since.map_or_else(String::new, |_| format!(" since {}", shown(since, clock)));
    let mut parts = vec![format!("{turns} in {sessions}{since}")];
    if total.failed > 0 {
        parts.push(format!("{} failed or stopped", short_count(total.failed)));
    }
    parts.extend(tokens_in_detail(total.tokens()).split(" · ").map(str::to_owned));
    parts.extend(Some(cost_text(total.cost_usd)).filter(|cost| !cost.is_empty()));
    if total.unpriced_turns > 0 {
        parts.push(format!("cost of {} unknown", counted(total.unpriced_turns, "turn")));
    }
    parts.push(elapsed_text(Duration::from_millis(total.duration_ms)));
    parts
}

fn shown(time: Option<Timestamp>, clock: &Clock) -> String {
    time.map_or_else(String::new, |time| clock.local(&time.to_string()))
}

fn write_json(
    place: &Workspace,
    args: &Args,
    since: Option<Timestamp>,
    stats: &Stats,
    parts: &[(Grouping, Vec<Group>, usize)],
    out: &mut Output,
) -> Result<(), Failure> {
    let mut by = Map::new();
    for (grouping, groups, _) in parts {
        by.insert(grouping.name().to_owned(), json!(groups));
    }
    out.json(&json!({
        "since": since.map(|time| time.to_string()),
        "worktree": (!args.all).then(|| place.project.worktree()),
        "total": stats.total,
        "by": Value::Object(by),
        "undated_turns": stats.undated,
        "damaged_events": stats.damaged,
    }))
}

/// Writes one line per group. The names of the columns are those of the JSON.
fn write_csv(parts: &[(Grouping, Vec<Group>, usize)], out: &mut Output) -> Result<(), Failure> {
    out.line(
        "by,key,name,outside_turns,sessions,turns,failed,input_tokens,output_tokens,cache_read_tokens,\
         cache_write_tokens,cost_usd,duration_ms,unpriced_turns",
    )?;
    for (grouping, groups, _) in parts {
        for Group { key, name, outside_turns, sums } in groups {
            let key = match key {
                GroupKey::Known(key) => key.as_str(),
                GroupKey::Unknown | GroupKey::OutsideTurns => "",
            };
            let numbers = [
                sums.sessions,
                sums.turns,
                sums.failed,
                sums.input_tokens,
                sums.output_tokens,
                sums.cache_read_tokens,
                sums.cache_write_tokens,
            ];
            let numbers = numbers.map(|number| number.to_string()).join(",");
            let (key, name) = (csv_text(key), csv_text(name.as_deref().unwrap_or("")));
            let Sums { cost_usd, duration_ms, unpriced_turns, .. } = sums;
            out.line(&format!(
                "{},{key},{name},{outside_turns},{numbers},{cost_usd},{duration_ms},{unpriced_turns}",
                grouping.name()
            ))?;
        }
    }
    Ok(())
}

/// Returns a text as a value of a line. What acts on a terminal is made visible, and what a spreadsheet would take for a formula is quoted as text.
fn csv_text(text: &str) -> String {
    let text = visible_line(text);
    let is_formula = text.starts_with(['=', '+', '-', '@']);
    match is_formula || text.contains([',', '"']) {
        true => format!("\"{}{}\"", if is_formula { "'" } else { "" }, text.replace('"', "\"\"")),
        false => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_a_line_is_one_value_and_no_formula() {
        for (text, expected) in [
            ("opus", "opus"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("=1+1", "\"'=1+1\""),
            ("-x", "\"'-x\""),
            ("a\nb\u{1b}[2J", "a␊b␛[2J"),
        ] {
            assert_eq!(csv_text(text), expected);
        }
    }
}
