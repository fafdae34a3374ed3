use azureal_core::{ListQuery, SessionId, SessionRecord, Threshold, visible_line};
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr;

use crate::active::describe_briefly;
use crate::damage::warn_of_damage;
use crate::failure::Failure;
use crate::output::{Output, Paint, fit, tell, to_json, warn};
use crate::threshold::threshold;
use crate::token_counts::count;
use azureal::Workspace;
use azureal::json::SessionLine;
use azureal::meter::{ESTIMATE, Meter};
use azureal::turns::ActiveTurn;

/// How many sessions a terminal shows without being asked for more.
const ON_A_TERMINAL: usize = 50;
/// How much of a name or a worktree is shown on a terminal.
const LONGEST_NAME: usize = 24;

/// List sessions, the most recently active first
///
/// Those of the current worktree, or of all worktrees with `--all`. ✓ and ✗ say how the last turn ended, ● that one is
/// running: the line below it has the agent, the time since it runs, and the prompt. A terminal shows 50 sessions, unless `-n` is given; a program gets all of them.
///
/// CONTEXT is the context that the next agent receives: its characters; its tokens, with a ~ if they are an estimate; and
/// its size in percent of the threshold of compaction.
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
    let table = Table::of(&records, active, threshold, args.all, azureal_engine::clock::now(), out.width());
    out.text(&table.render(out.paint()))?;
    if args.limit.is_none() && Some(records.len()) == limit {
        out.flush()?;
        tell("there may be more; `-n` says how many to list");
    }
    Ok(())
}

/// Says what can be done about an empty list.
async fn tell_why_empty(place: &Workspace) -> Result<(), Failure> {
    let any = ListQuery { limit: Some(1), ..ListQuery::default() };
    tell(if place.store.list(&any).await?.is_empty() {
        "no sessions yet; `azureal import` takes over those of other programs"
    } else {
        "no sessions of this worktree yet; `azureal list --all` shows those of all worktrees"
    });
    Ok(())
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

/// A table that fits its terminal: the last column takes what the others leave.
struct Table {
    columns: Vec<Column>,
    badges: Vec<&'static str>,
    /// The line below a row: the running turn of the session.
    notes: Vec<Option<String>>,
    width: Option<usize>,
}

struct Column {
    title: &'static str,
    align: Align,
    cells: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

impl Table {
    fn of(
        records: &[SessionRecord],
        active: &[ActiveTurn],
        threshold: Threshold,
        all_worktrees: bool,
        now: Timestamp,
        width: Option<usize>,
    ) -> Self {
        let badge = |record: &SessionRecord| badge(record, active);
        let longest = width.map_or(usize::MAX, |_| LONGEST_NAME);
        let column = |title, align, cell: &dyn Fn(&SessionRecord) -> String| Column {
            title,
            align,
            cells: records.iter().map(cell).collect(),
        };
        let text = |text: &str| fit(&one_line(text), longest);
        let mut columns = vec![
            column("", Align::Left, &|record| record.id.to_string()),
            column("", Align::Left, &|record| badge(record).to_owned()),
            column("NAME", Align::Left, &|record| {
                text(if record.has_own_name() { &record.name } else { "" })
            }),
        ];
        if all_worktrees {
            columns.push(column("WORKTREE", Align::Left, &|record| text(&record.worktree)));
        }
        columns.extend([
            column("AGENT", Align::Left, &|record| text(record.counts.agent.as_deref().unwrap_or(""))),
            column("AGE", Align::Right, &|record| age(&record.created_at, now)),
            column("MSGS", Align::Right, &|record| record.counts.messages.to_string()),
            column("TOKENS", Align::Right, &|record| match record
                .tokens
                .input
                .saturating_add(record.tokens.output)
            {
                0 => String::new(),
                tokens => count(tokens),
            }),
            column("CONTEXT", Align::Right, &|record| match Meter::of(record, threshold) {
                Meter { chars: 0, .. } => String::new(),
                Meter { chars, tokens, tokens_by, percent, .. } => {
                    let about = if tokens_by == ESTIMATE { "~" } else { "" };
                    format!("{} {about}{} {percent} %", count(chars), count(tokens))
                }
            }),
            column("COST", Align::Right, &|record| cost(record.cost_usd)),
            column("PREVIEW", Align::Left, &|record| one_line(record.counts.preview_text())),
        ]);
        // A column that has nothing in it is not worth its space.
        columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
        let note = |record: &SessionRecord| {
            let turn = turn_of(record, active)?;
            // Under the name, so that the numbers of sessions stand out.
            let indent = columns.iter().take(2).map(|column| column.width() + 2).sum::<usize>();
            let left = width.map(|width| width.saturating_sub(indent));
            let text = format!("{}{}", " ".repeat(indent), describe_briefly(turn, now, left));
            Some(fit(&text, width.unwrap_or(usize::MAX)))
        };
        let notes = records.iter().map(note).collect();
        Self { badges: records.iter().map(badge).collect(), notes, columns, width }
    }

    fn render(&self, paint: Paint) -> String {
        let titles = self.columns.iter().map(|column| column.title);
        let mut out = paint.quiet(&self.row(titles));
        out.push('\n');
        for (index, (badge, note)) in self.badges.iter().zip(&self.notes).enumerate() {
            let cells = self.columns.iter().map(|column| column.cells.get(index).map_or("", String::as_str));
            let row = self.row(cells);
            let painted = match *badge {
                DONE => row.replacen(DONE, &paint.success(DONE), 1),
                FAILED => row.replacen(FAILED, &paint.danger(FAILED), 1),
                _ => row,
            };
            out.push_str(&painted);
            out.push('\n');
            if let Some(note) = note {
                out.push_str(&paint.quiet(note));
                out.push('\n');
            }
        }
        out
    }

    fn row<'a>(&self, cells: impl Iterator<Item = &'a str>) -> String {
        let mut row = String::new();
        for (column, cell) in self.columns.iter().zip(cells) {
            let pad = " ".repeat(column.width().saturating_sub(cell.width()));
            match column.align {
                Align::Left => row.extend([cell, &pad, "  "]),
                Align::Right => row.extend([&pad, cell, "  "]),
            }
        }
        fit(row.trim_end(), self.width.unwrap_or(usize::MAX))
    }
}

impl Column {
    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.width());
        cells.max().unwrap_or(0).max(self.title.width())
    }
}

const DONE: &str = "✓";
const FAILED: &str = "✗";
const RUNNING: &str = "●";

/// Returns the turn that runs in a session.
fn turn_of<'a>(record: &SessionRecord, active: &'a [ActiveTurn]) -> Option<&'a ActiveTurn> {
    active.iter().find(|turn| turn.session() == record.id)
}

fn badge(record: &SessionRecord, active: &[ActiveTurn]) -> &'static str {
    match record.completed {
        _ if turn_of(record, active).is_some() => RUNNING,
        Some(true) => DONE,
        Some(false) => FAILED,
        None => "",
    }
}

/// Returns a text on one line, safe to show.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    visible_line(&words.join(" ")).into_owned()
}

fn cost(dollars: f64) -> String {
    if dollars > 0.0 { format!("${dollars:.2}") } else { String::new() }
}

/// Returns how long ago that was: 5s, 12m, 3h, 4d, 6w, 2y. Nothing for a time that cannot be read.
fn age(created_at: &str, now: Timestamp) -> String {
    let Ok(created) = created_at.parse::<Timestamp>() else {
        return String::new();
    };
    let seconds = now.as_second().saturating_sub(created.as_second()).max(0);
    const UNITS: [(i64, char); 6] =
        [(365 * 86_400, 'y'), (14 * 86_400, 'w'), (86_400, 'd'), (3_600, 'h'), (60, 'm'), (0, 's')];
    UNITS.iter().find(|(from, _)| seconds >= *from).map_or_else(String::new, |(from, letter)| match letter {
        // Two weeks are counted in weeks, one is counted in days.
        'w' => format!("{}w", seconds / (7 * 86_400)),
        _ => format!("{}{letter}", seconds / (*from).max(1)),
    })
}

#[cfg(test)]
mod tests {
    use azureal_core::{SessionId, Tokens};

    use super::*;

    fn record(number: u32, name: &str) -> SessionRecord {
        SessionRecord {
            name: name.to_owned(),
            worktree: ".".into(),
            created_at: "2026-01-31T09:30:00Z".into(),
            ..SessionRecord::new(SessionId::new(number).unwrap())
        }
    }

    fn now() -> Timestamp {
        "2026-01-31T12:30:00Z".parse().unwrap()
    }

    #[test]
    fn the_table_fits_its_terminal() {
        let mut first = record(12, "fix-login\u{1b}[31m");
        first.completed = Some(true);
        first.cost_usd = 0.126;
        first.tokens = Tokens::new(1200, 34);
        first.counts.messages = 4;
        first.counts.rendered_chars = 50_000;
        first.counts.agent = Some("claude".into());
        first.counts.preview = Some("修复登录页面的错误\nand then some more of it".into());
        let mut second = record(3, "S3");
        second.completed = Some(false);
        second.counts.preview = Some("hello".into());
        let records = [first, second];
        let table =
            |width| Table::of(&records, &[], Threshold::default(), false, now(), width).render(Paint::PLAIN);
        insta::assert_snapshot!(table(None), @r"
                NAME            AGENT   AGE  MSGS  TOKENS        CONTEXT   COST  PREVIEW
        S12  ✓  fix-login␛[31m  claude   3h     4    1.2k  50k ~12k 12 %  $0.13  修复登录页面的错误 and then some more of it
        S3   ✗                           3h     0                                hello
        ");
        insta::assert_snapshot!(table(Some(80)), @r"
                NAME            AGENT   AGE  MSGS  TOKENS        CONTEXT   COST  PREVIEW
        S12  ✓  fix-login␛[31m  claude   3h     4    1.2k  50k ~12k 12 %  $0.13  修复登…
        S3   ✗                           3h     0                                hello
        ");
        for width in 0..100 {
            for line in table(Some(width)).lines() {
                assert!(line.width() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn ages_are_short() {
        let age = |text: &str| age(text, now());
        for (created, expected) in [
            ("2026-01-31T12:29:55Z", "5s"),
            ("2026-01-31T09:30:00Z", "3h"),
            ("2026-01-20T09:30:00Z", "11d"),
            ("2026-01-01T09:30:00Z", "4w"),
            ("2020-01-01T09:30:00Z", "6y"),
            // Clocks differ; an age is never negative.
            ("2027-01-01T09:30:00Z", "0s"),
            ("yesterday", ""),
            ("", ""),
        ] {
            assert_eq!(age(created), expected, "{created}");
        }
    }
}
