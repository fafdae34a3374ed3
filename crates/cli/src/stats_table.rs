//! Groups of turns as rows with bars, as wide as the terminal.

use std::time::Duration;

use azureal::stats::{Group, GroupKey, Grouping, Measure};
use azureal::transcript::{cost_text, short_count};
use azureal_core::{elapsed_text, visible_line};
use unicode_width::UnicodeWidthStr;

use crate::output::{Paint, fit};

/// The widths of a bar.
const SHORTEST_BAR: usize = 8;
const LONGEST_BAR: usize = 40;
/// The longest name of a group on a terminal.
const LONGEST_NAME: usize = 32;
/// The parts of a character of a bar.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Groups of one kind, and how they are shown.
pub(crate) struct StatsTable<'a> {
    pub(crate) grouping: Grouping,
    pub(crate) groups: &'a [Group],
    /// The length of bars.
    pub(crate) measure: Measure,
    /// The width of the terminal; `None` if any width will do. Then there are no bars.
    pub(crate) width: Option<usize>,
    pub(crate) is_ascii: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sessions,
    Turns,
    Input,
    Cached,
    Output,
    Cost,
    Time,
}

/// The order in which columns give way to the bar. Of the two that are left, the one that the bar shows stays.
const ORDER: [Kind; 5] = [Kind::Sessions, Kind::Cached, Kind::Time, Kind::Output, Kind::Turns];

struct Column {
    kind: Kind,
    title: &'static str,
    cells: Vec<String>,
}

impl Column {
    fn width(&self) -> usize {
        self.cells.iter().map(|cell| cell.width()).max().unwrap_or(0).max(self.title.width())
    }
}

impl StatsTable<'_> {
    pub(crate) fn render(&self, paint: Paint) -> String {
        let names: Vec<String> = self.groups.iter().map(|group| self.name(group)).collect();
        let title = self.grouping.name().to_uppercase();
        let name_width = names.iter().map(|name| name.width()).max().unwrap_or(0).max(title.width());
        let (columns, bar) = self.layout(name_width);
        let taken: usize = columns.iter().map(|column| column.width() + 2).sum::<usize>() + bar_room(bar);
        let name_width = self.width.map_or(name_width, |width| name_width.min(width.saturating_sub(taken)));
        let header = columns.iter().map(|column| column.title);
        let mut out = paint.quiet(&self.row(&title, name_width, &" ".repeat(bar), &columns, header));
        out.push('\n');
        let most = self.groups.iter().map(|group| self.measure.of(&group.sums)).fold(0.0, f64::max);
        for (index, (group, name)) in self.groups.iter().zip(&names).enumerate() {
            let filled = self.bar(self.measure.of(&group.sums), most, bar);
            let room = " ".repeat(bar.saturating_sub(filled.width()));
            let cells = columns.iter().map(|column| column.cells.get(index).map_or("", String::as_str));
            let painted = format!("{}{room}", paint.bar(&filled));
            out.push_str(&self.row(name, name_width, &painted, &columns, cells));
            out.push('\n');
        }
        out
    }

    /// Chooses the columns that fit beside the name and a bar, and the width of the bar.
    fn layout(&self, name_width: usize) -> (Vec<Column>, usize) {
        let mut columns = self.columns();
        let Some(width) = self.width else { return (columns, 0) };
        // A name has a third of the terminal, or what it needs.
        let name = name_width.min((width / 3).max(10));
        let last = if self.measure == Measure::Cost { Kind::Input } else { Kind::Cost };
        let mut order = ORDER.into_iter().chain([last]);
        loop {
            let taken: usize = columns.iter().map(|column| column.width() + 2).sum();
            let left = width.saturating_sub(name + taken).saturating_sub(2);
            if left >= SHORTEST_BAR {
                let unused = width.saturating_sub(name_width + taken).saturating_sub(2);
                return (columns, unused.clamp(SHORTEST_BAR, LONGEST_BAR));
            }
            match order.next().filter(|_| columns.len() > 1) {
                Some(kind) => columns.retain(|column| column.kind != kind),
                // No room for a bar at all.
                None => return (columns, 0),
            }
        }
    }

    fn columns(&self) -> Vec<Column> {
        let column = |kind, title, cell: &dyn Fn(&Group) -> String| Column {
            kind,
            title,
            cells: self.groups.iter().map(cell).collect(),
        };
        let count = |number: u64| if number > 0 { number.to_string() } else { String::new() };
        let tokens = |number: u64| if number > 0 { short_count(number) } else { String::new() };
        let mut columns = vec![
            column(Kind::Turns, "TURNS", &|group| count(group.sums.turns)),
            column(Kind::Input, "IN", &|group| tokens(group.sums.input_tokens)),
            column(Kind::Cached, "CACHED", &|group| {
                let (read, input) = (u128::from(group.sums.cache_read_tokens), group.sums.input_tokens);
                match (read * 100).checked_div(u128::from(input)) {
                    Some(percent) if read > 0 => format!("{} %", percent.min(100)),
                    _ => String::new(),
                }
            }),
            column(Kind::Output, "OUT", &|group| tokens(group.sums.output_tokens)),
            column(Kind::Cost, "COST", &|group| cost_text(group.sums.cost_usd)),
            column(Kind::Time, "TIME", &|group| match group.sums.duration_ms {
                0 => String::new(),
                duration => elapsed_text(Duration::from_millis(duration)),
            }),
        ];
        if self.grouping != Grouping::Session {
            columns.insert(0, column(Kind::Sessions, "SESSIONS", &|group| count(group.sums.sessions)));
        }
        // A column that has nothing in it is not worth its space.
        columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
        columns
    }

    fn name(&self, group: &Group) -> String {
        let name = match (&group.key, &group.name) {
            (GroupKey::Known(key), Some(name)) => format!("{key} {name}"),
            (GroupKey::Known(key), None) => key.clone(),
            (GroupKey::Unknown, _) => "unknown".to_owned(),
            (GroupKey::OutsideTurns, _) => "outside turns".to_owned(),
        };
        fit(&visible_line(&name), self.width.map_or(usize::MAX, |_| LONGEST_NAME))
    }

    /// Returns a bar for a value, at most so wide. A value that is not 0 is never without one.
    fn bar(&self, value: f64, most: f64, width: usize) -> String {
        if value <= 0.0 || most <= 0.0 || width == 0 {
            return String::new();
        }
        let eighths = ((value / most * (width * 8) as f64).round() as usize).clamp(1, width * 8);
        if self.is_ascii {
            return "#".repeat(eighths.div_ceil(8));
        }
        let mut bar = "█".repeat(eighths / 8);
        bar.extend((eighths % 8).checked_sub(1).and_then(|part| EIGHTHS.get(part)));
        bar
    }

    fn row<'c>(
        &self,
        name: &str,
        name_width: usize,
        bar: &str,
        columns: &[Column],
        cells: impl Iterator<Item = &'c str>,
    ) -> String {
        let name = fit(name, name_width);
        let mut row = format!("{name}{}", " ".repeat(name_width.saturating_sub(name.width())));
        if !bar.is_empty() {
            row.extend(["  ", bar]);
        }
        for (column, cell) in columns.iter().zip(cells) {
            let pad = " ".repeat(column.width().saturating_sub(cell.width()));
            row.extend(["  ", &pad, cell]);
        }
        row.trim_end().to_owned()
    }
}

fn bar_room(bar: usize) -> usize {
    if bar > 0 { bar + 2 } else { 0 }
}

#[cfg(test)]
mod tests {
    use azureal::stats::Sums;

    use super::*;

    fn groups() -> Vec<Group> {
        let group = |key: GroupKey, name: Option<&str>, turns, input_tokens, cost_usd| Group {
            outside_turns: key == GroupKey::OutsideTurns,
            key,
            name: name.map(str::to_owned),
            sums: Sums {
                sessions: 1,
                turns,
                input_tokens,
                output_tokens: input_tokens / 10,
                cache_read_tokens: input_tokens / 2,
                cost_usd,
                duration_ms: turns * 61_000,
                ..Sums::default()
            },
        };
        let known = |key: &str| GroupKey::Known(key.to_owned());
        vec![
            group(known("S12"), Some("fix-login\u{1b}[31m of the second page"), 12, 1_250_000, 12.5),
            group(known("S3"), Some("修复登录"), 3, 40_000, 0.4),
            group(known("S4"), None, 1, 900, 0.001),
            group(GroupKey::Unknown, None, 1, 0, 0.0),
            group(GroupKey::OutsideTurns, None, 0, 5_000, 0.0),
        ]
    }

    fn rendered(groups: &[Group], measure: Measure, width: Option<usize>, is_ascii: bool) -> String {
        StatsTable { grouping: Grouping::Session, groups, measure, width, is_ascii }.render(Paint::PLAIN)
    }

    #[test]
    fn columns_give_way_to_the_bar() {
        let table = |measure, width| rendered(&groups(), measure, width, false);
        insta::assert_snapshot!(table(Measure::Cost, None), @r"
        SESSION                                TURNS    IN  CACHED   OUT    COST    TIME
        S12 fix-login␛[31m of the second page     12  1.2M    50 %  125k  $12.50  12 min
        S3 修复登录                                3   40k    50 %  4.0k   $0.40   3 min
        S4                                         1   900    50 %    90  <$0.01   1 min
        unknown                                    1                               1 min
        outside turns                                 5.0k    50 %   500
        ");
        insta::assert_snapshot!(table(Measure::Cost, Some(80)), @r"
        SESSION                                TURNS    IN  CACHED   OUT    COST    TIME
        S12 fix-login␛[31m of the …  ████████     12  1.2M    50 %  125k  $12.50  12 min
        S3 修复登录                  ▎             3   40k    50 %  4.0k   $0.40   3 min
        S4                           ▏             1   900    50 %    90  <$0.01   1 min
        unknown                                    1                               1 min
        outside turns                                 5.0k    50 %   500
        ");
        insta::assert_snapshot!(table(Measure::Tokens, Some(50)), @r"
        SESSION                        TURNS    IN    COST
        S12 fix-login␛[31m…  ████████     12  1.2M  $12.50
        S3 修复登录          ▎             3   40k   $0.40
        S4                   ▏             1   900  <$0.01
        unknown                            1
        outside turns        ▏                5.0k
        ");
        insta::assert_snapshot!(table(Measure::Tokens, Some(24)), @r"
        SESSION               IN
        S12 fix-login␛[31…  1.2M
        S3 修复登录          40k
        S4                   900
        unknown
        outside turns       5.0k
        ");
        insta::assert_snapshot!(rendered(&groups(), Measure::Cost, Some(60), true), @r"
        SESSION                            TURNS    IN   OUT    COST
        S12 fix-login␛[31m of …  ########     12  1.2M  125k  $12.50
        S3 修复登录              #             3   40k  4.0k   $0.40
        S4                       #             1   900    90  <$0.01
        unknown                                1
        outside turns                             5.0k   500
        ");
    }

    #[test]
    fn turns_and_sessions_are_exact() {
        let sums = Sums { sessions: 1_204, turns: 12_345, input_tokens: 1_204, ..Sums::default() };
        let key = GroupKey::Known("claude".to_owned());
        let groups = [Group { key, name: None, outside_turns: false, sums }];
        let (grouping, measure) = (Grouping::Agent, Measure::Tokens);
        let table = StatsTable { grouping, groups: &groups, measure, width: None, is_ascii: false };
        insta::assert_snapshot!(table.render(Paint::PLAIN), @r"
        AGENT   SESSIONS  TURNS    IN
        claude      1204  12345  1.2k
        ");
    }

    #[test]
    fn a_row_fits_its_terminal() {
        for measure in [Measure::Cost, Measure::Tokens] {
            for width in 20..200 {
                let table = rendered(&groups(), measure, Some(width), false);
                for line in table.lines() {
                    assert!(line.width() <= width, "{width}: {line}");
                    assert!(!line.contains('\u{1b}'));
                }
                assert!(width < 30 || table.contains('█'), "no bar in {width} columns");
            }
        }
        assert!(rendered(&[], Measure::Cost, Some(80), false).starts_with("SESSION"));
    }
}
