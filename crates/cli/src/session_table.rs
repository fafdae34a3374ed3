//! The table of sessions: one row each, as wide as the terminal.

use azureal::meter::Meter;
use azureal::transcript::cost_text;
use azureal::turns::ActiveTurn;
use azureal_core::{SessionRecord, Threshold, visible_line};
use unicode_width::UnicodeWidthStr;

use crate::active::describe_briefly;
use crate::output::{Paint, fit};
use crate::times::Clock;

/// The columns that the last prompt has at least.
const PROMPT_WIDTH: usize = 30;
/// The width from which on it has them. A narrower terminal leaves two fifths of its width.
const WIDE: usize = 70;
/// The longest name, and the longest agent with its model, on a terminal.
const LONGEST_NAME: usize = 24;
const LONGEST_AGENT: usize = 34;

/// The sessions of a table, and how they are shown.
pub(crate) struct SessionTable<'a> {
    pub(crate) records: &'a [SessionRecord],
    pub(crate) active: &'a [ActiveTurn],
    pub(crate) threshold: Threshold,
    /// Whether the table names the worktree of each session.
    pub(crate) all_worktrees: bool,
    pub(crate) clock: Clock,
    /// The width of the terminal; `None` if any width will do.
    pub(crate) width: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Badge,
    Name,
    Worktree,
    Agent,
    Active,
    Messages,
    Cost,
    Context,
    Prompt,
}

/// What is given up for the prompt.
#[derive(Clone, Copy)]
enum GiveWay {
    Model,
    NamesLongerThan(usize),
    Column(Kind),
}

/// The order in which columns give way, until the prompt has its width. `azureal list --help` documents it.
const ORDER: [GiveWay; 10] = [
    GiveWay::Model,
    GiveWay::Column(Kind::Messages),
    GiveWay::Column(Kind::Cost),
    GiveWay::NamesLongerThan(16),
    GiveWay::Column(Kind::Agent),
    GiveWay::Column(Kind::Worktree),
    GiveWay::Column(Kind::Context),
    GiveWay::NamesLongerThan(8),
    GiveWay::Column(Kind::Active),
    GiveWay::Column(Kind::Name),
];

struct Column {
    kind: Kind,
    title: &'static str,
    is_right: bool,
    cells: Vec<String>,
}

impl SessionTable<'_> {
    pub(crate) fn render(&self, paint: Paint) -> String {
        let columns: Vec<(Column, usize)> = self.columns().into_iter().map(Column::with_width).collect();
        let mut out = paint.quiet(&self.row(&columns, columns.iter().map(|(column, _)| column.title)));
        out.push('\n');
        for (index, record) in self.records.iter().enumerate() {
            let cells = columns.iter().map(|(column, _)| column.cells.get(index).map_or("", String::as_str));
            let row = self.row(&columns, cells);
            out.push_str(&match self.badge(record) {
                DONE => row.replacen(DONE, &paint.success(DONE), 1),
                FAILED => row.replacen(FAILED, &paint.danger(FAILED), 1),
                _ => row,
            });
            out.push('\n');
            if let Some(turn) = turn_of(record, self.active) {
                // Under the name, so that the numbers of sessions stand out.
                let indent = columns.iter().take(2).map(|(_, width)| width + 2).sum::<usize>();
                let left = self.width.map(|width| width.saturating_sub(indent));
                let note = format!("{}{}", " ".repeat(indent), describe_briefly(turn, &self.clock, left));
                out.push_str(&paint.quiet(&fit(&note, self.width.unwrap_or(usize::MAX))));
                out.push('\n');
            }
        }
        out
    }

    /// Returns the columns that fit beside the prompt.
    fn columns(&self) -> Vec<Column> {
        let mut columns = self.all_columns();
        let Some(width) = self.width else { return columns };
        let least = if width < WIDE { width * 2 / 5 } else { PROMPT_WIDTH };
        for give_way in ORDER {
            let (prompt, others): (Vec<&Column>, Vec<&Column>) =
                columns.iter().partition(|column| column.kind == Kind::Prompt);
            let taken = others.iter().map(|column| column.width() + 2).sum::<usize>();
            let wanted = prompt.first().map_or(0, |prompt| prompt.width().min(least));
            if taken + wanted <= width {
                break;
            }
            match give_way {
                GiveWay::Model => self.leave_out_models(&mut columns),
                GiveWay::NamesLongerThan(longest) => columns
                    .iter_mut()
                    .filter(|column| matches!(column.kind, Kind::Name | Kind::Worktree))
                    .flat_map(|column| &mut column.cells)
                    .for_each(|cell| *cell = fit(cell, longest)),
                GiveWay::Column(kind) => columns.retain(|column| column.kind != kind),
            }
        }
        columns
    }

    fn leave_out_models(&self, columns: &mut [Column]) {
        for column in columns.iter_mut().filter(|column| column.kind == Kind::Agent) {
            column.cells = self.records.iter().map(|record| self.agent(record, false)).collect();
        }
    }

    fn all_columns(&self) -> Vec<Column> {
        let column = |kind, title, is_right, cell: &dyn Fn(&SessionRecord) -> String| Column {
            kind,
            title,
            is_right,
            cells: self.records.iter().map(cell).collect(),
        };
        let mut columns = vec![
            column(Kind::Number, "", false, &|record| record.id.to_string()),
            column(Kind::Badge, "", false, &|record| self.badge(record).to_owned()),
            column(Kind::Name, "NAME", false, &|record| {
                self.text(if record.has_own_name() { &record.name } else { "" }, LONGEST_NAME)
            }),
        ];
        if self.all_worktrees {
            columns.push(column(Kind::Worktree, "WORKTREE", false, &|record| {
                self.text(&record.worktree, LONGEST_NAME)
            }));
        }
        columns.extend([
            column(Kind::Agent, "AGENT", false, &|record| self.agent(record, true)),
            column(Kind::Active, "ACTIVE", true, &|record| self.clock.ago(record.active_at())),
            column(Kind::Messages, "MSGS", true, &|record| record.counts.messages.to_string()),
            column(Kind::Cost, "COST", true, &|record| cost_text(record.cost_usd)),
            column(Kind::Context, "CONTEXT", true, &|record| match Meter::of(record, self.threshold) {
                Meter { chars: 0, .. } => String::new(),
                Meter { percent, .. } => format!("{percent} %"),
            }),
            column(Kind::Prompt, "LAST PROMPT", false, &|record| one_line(last_prompt(record))),
        ]);
        // A column that has nothing in it is not worth its space. Of an empty list, the header is all that is shown.
        if !self.records.is_empty() {
            columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
        }
        columns
    }

    /// Returns a text on one line, truncated if it is for a terminal.
    fn text(&self, text: &str, longest: usize) -> String {
        fit(&one_line(text), self.width.map_or(usize::MAX, |_| longest))
    }

    /// Returns the agent and its model as `run -a` takes them: `claude/haiku`.
    fn agent(&self, record: &SessionRecord, with_model: bool) -> String {
        let agent = record.counts.agent.as_deref().unwrap_or("");
        match record.counts.model.as_deref().filter(|model| with_model && !model.is_empty()) {
            Some(model) => self.text(&format!("{agent}/{model}"), LONGEST_AGENT),
            None => self.text(agent, LONGEST_NAME),
        }
    }

    fn badge(&self, record: &SessionRecord) -> &'static str {
        match record.completed {
            _ if turn_of(record, self.active).is_some() => RUNNING,
            Some(true) => DONE,
            Some(false) => FAILED,
            None => "",
        }
    }

    fn row<'c>(&self, columns: &[(Column, usize)], cells: impl Iterator<Item = &'c str>) -> String {
        let mut row = String::new();
        for ((column, width), cell) in columns.iter().zip(cells) {
            let pad = " ".repeat(width.saturating_sub(cell.width()));
            match column.is_right {
                false => row.extend([cell, &pad, "  "]),
                true => row.extend([&pad, cell, "  "]),
            }
        }
        fit(row.trim_end(), self.width.unwrap_or(usize::MAX))
    }
}

impl Column {
    /// Adds the width, which takes a look at all cells.
    fn with_width(self) -> (Self, usize) {
        let width = self.width();
        (self, width)
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.width());
        cells.max().unwrap_or(0).max(self.title.width())
    }
}

const DONE: &str = "✓";
const FAILED: &str = "✗";
const RUNNING: &str = "●";

/// Returns the turn that runs in a session.
pub(crate) fn turn_of<'a>(record: &SessionRecord, active: &'a [ActiveTurn]) -> Option<&'a ActiveTurn> {
    active.iter().find(|turn| turn.session() == record.id)
}

/// Returns the last prompt; a file of an earlier version has only the first.
fn last_prompt(record: &SessionRecord) -> &str {
    record.counts.last_prompt.as_deref().unwrap_or(record.counts.preview_text())
}

/// Returns a text on one line, safe to show.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    visible_line(&words.join(" ")).into_owned()
}

#[cfg(test)]
mod tests {
    use azureal_core::SessionId;

    use super::*;

    fn record(number: u32, name: &str, prompt: &str) -> SessionRecord {
        let mut record = SessionRecord {
            name: name.to_owned(),
            worktree: ".".into(),
            created_at: "2025-12-01T09:30:00Z".into(),
            last_active: "2026-01-31T09:30:00Z".into(),
            ..SessionRecord::new(SessionId::new(number).unwrap())
        };
        record.counts.preview = Some("the first prompt".into());
        record.counts.last_prompt = Some(prompt.to_owned());
        record
    }

    fn sessions() -> [SessionRecord; 3] {
        let mut first = record(12, "fix-login\u{1b}[31m", "修复登录页面的错误\nand then some more of it");
        first.completed = Some(true);
        first.cost_usd = 0.126;
        first.counts.messages = 4;
        first.counts.rendered_chars = 50_000;
        first.counts.agent = Some("claude".into());
        first.counts.model = Some("claude-sonnet-4-5-20250929".into());
        let mut second = record(3, "S3", "Now do the same for the other forty-one endpoints, please");
        second.completed = Some(false);
        second.last_active = "2026-01-31T12:27:00Z".into();
        let mut third = record(2, "a-rather-long-name-for-a-session", "");
        third.counts.last_prompt = None;
        third.last_active = String::new();
        [first, second, third]
    }

    fn rendered(records: &[SessionRecord], width: Option<usize>, all_worktrees: bool) -> String {
        let clock = Clock::at("2026-01-31T12:30:00Z", 2);
        let threshold = Threshold::default();
        SessionTable { records, active: &[], threshold, all_worktrees, clock, width }.render(Paint::PLAIN)
    }

    #[test]
    fn columns_give_way_to_the_last_prompt() {
        let table = |width| rendered(&sessions(), width, false);
        insta::assert_snapshot!(table(None), @r"
                NAME                              AGENT                                  ACTIVE  MSGS   COST  CONTEXT  LAST PROMPT
        S12  ✓  fix-login␛[31m                    claude/claude-sonnet-4-5-20250929     3 h ago     4  $0.13     12 %  修复登录页面的错误 and then some more of it
        S3   ✗                                                                        3 min ago     0                  Now do the same for the other forty-one endpoints, please
        S2      a-rather-long-name-for-a-session                                     2025-12-01     0                  the first prompt
        ");
        insta::assert_snapshot!(table(Some(120)), @r"
                NAME                      AGENT       ACTIVE  MSGS   COST  CONTEXT  LAST PROMPT
        S12  ✓  fix-login␛[31m            claude     3 h ago     4  $0.13     12 %  修复登录页面的错误 and then some more of it
        S3   ✗                                     3 min ago     0                  Now do the same for the other forty-one end…
        S2      a-rather-long-name-for-…          2025-12-01     0                  the first prompt
        ");
        insta::assert_snapshot!(table(Some(80)), @r"
                NAME                  ACTIVE  CONTEXT  LAST PROMPT
        S12  ✓  fix-login␛[31m       3 h ago     12 %  修复登录页面的错误 and then some…
        S3   ✗                     3 min ago           Now do the same for the other fo…
        S2      a-rather-long-n…  2025-12-01           the first prompt
        ");
        insta::assert_snapshot!(table(Some(50)), @r"
                NAME          ACTIVE  LAST PROMPT
        S12  ✓  fix-log…     3 h ago  修复登录页面的错误 …
        S3   ✗             3 min ago  Now do the same for…
        S2      a-rathe…  2025-12-01  the first prompt
        ");
        insta::assert_snapshot!(table(Some(20)), @r"
                LAST PROMPT
        S12  ✓  修复登录页…
        S3   ✗  Now do the …
        S2      the first p…
        ");
    }

    #[test]
    fn a_row_fits_its_terminal_and_the_prompt_has_its_share() {
        for all_worktrees in [false, true] {
            for width in 0..200 {
                let table = rendered(&sessions(), Some(width), all_worktrees);
                for line in table.lines() {
                    assert!(line.width() <= width, "{width}: {line}");
                }
                let (header, rows) = table.split_once('\n').unwrap();
                let Some(start) = header.find("LAST") else {
                    assert!(width < 20, "no prompt in {width} columns");
                    continue;
                };
                let least = if width < WIDE { (width * 2 / 5).min(PROMPT_WIDTH) } else { PROMPT_WIDTH };
                let second = rows.lines().nth(1).unwrap();
                let shown = second.width().saturating_sub(header[..start].width());
                assert!(width < 14 || shown >= least, "{shown} of {least} in {width}: {second}");
            }
        }
    }

    #[test]
    fn an_empty_table_is_its_header() {
        assert_eq!(rendered(&[], None, false), "    NAME  AGENT  ACTIVE  MSGS  COST  CONTEXT  LAST PROMPT\n");
    }
}
