//! The tables, and whether the targets are met.

use std::fmt::Write;

use azureal_testkit::model_server::Usage;

use crate::conversation::{Measured, Shape, Way, agent_of};

/// The number of turns from which on a conversation counts as long: targets are for these.
pub(crate) const LONG: usize = 16;
/// The turns whose written tokens are listed.
const LISTED: [usize; 10] = [1, 2, 3, 4, 8, 12, 16, 20, 25, 30];
/// How much more the second half of a conversation may write per turn than the first.
const GROWTH: f64 = 1.25;
const MOST_BREAKPOINTS: usize = 4;

/// The conversations with one version of Claude Code in one shape, in the order of [`Way::ALL`].
pub(crate) struct Comparison {
    pub(crate) version: String,
    pub(crate) shape: Shape,
    pub(crate) ways: Vec<(Way, Measured)>,
}

/// A target, and how near we came.
#[derive(Debug, PartialEq)]
pub(crate) struct Target {
    what: String,
    wanted: String,
    measured: String,
    pub(crate) is_met: bool,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::ClaudeContinue => "`claude -c`",
            Self::AzurealOff => "azureal, `cache = \"off\"`",
            Self::Azureal => "azureal",
        }
    }
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Self::Talk => "one request per turn",
            Self::Work => "three requests per turn",
        }
    }
}

impl Comparison {
    fn of(&self, wanted: Way) -> Option<&Measured> {
        self.ways.iter().find(|(way, _)| *way == wanted).map(|(_, measured)| measured)
    }

    fn turns(&self) -> usize {
        self.ways.iter().map(|(_, measured)| measured.turns.len()).min().unwrap_or(0)
    }

    /// Returns the numbers of turns that are reported: the long ones, or else all there are.
    fn marks(&self) -> Vec<usize> {
        let turns = self.turns();
        if turns > LONG { vec![LONG, turns] } else { vec![turns] }
    }

    /// Returns the weighted input of the first turns in relation to `claude -c`.
    fn ratio(&self, way: Way, turns: usize) -> Option<f64> {
        let weighted = |way| Some(sum(self.of(way)?, turns).weighted_input());
        weighted(way).zip(weighted(Way::ClaudeContinue)).map(|(ours, theirs)| ours / theirs)
    }

    /// Returns the highest ratio that we want.
    fn wanted_ratio(&self) -> f64 {
        // This version changes its system prompt whenever a file changes, so `claude -c` misses its own cache.
        if self.version == "2.1.197" { 0.6 } else { 1.35 }
    }

    /// Returns the tables of this comparison.
    pub(crate) fn tables(&self) -> String {
        let mut out = format!("### Claude Code {}, {}\n\n", self.version, self.shape.name());
        out += "| turns | | weighted input | to `claude -c` | read | written | plain | written in the last turn |\n";
        out += "|--:|---|--:|--:|--:|--:|--:|--:|\n";
        for turns in self.marks() {
            for (way, measured) in &self.ways {
                let all = sum(measured, turns);
                let last = turns.checked_sub(1).and_then(|index| measured.turns.get(index)).copied();
                let ratio = self.ratio(*way, turns).map_or_else(String::new, |ratio| format!("{ratio:.2}x"));
                let _ = writeln!(
                    out,
                    "| {turns} | {} | {} | {ratio} | {} | {} | {} | {} |",
                    way.name(),
                    grouped(all.weighted_input().round() as u64),
                    grouped(all.cache_read),
                    grouped(all.cache_write),
                    grouped(all.input),
                    grouped(last.map_or(0, |usage| usage.cache_write)),
                );
            }
        }
        let listed: Vec<usize> = LISTED.into_iter().filter(|turn| *turn <= self.turns()).collect();
        out += "\nTokens written in single turns:\n\n| turn |";
        for turn in &listed {
            let _ = write!(out, " {turn} |");
        }
        let _ = writeln!(out, "\n|---|{}", "--:|".repeat(listed.len()));
        for (way, measured) in &self.ways {
            let _ = write!(out, "| {} |", way.name());
            for turn in &listed {
                let usage = measured.turns.get(turn - 1);
                let _ = write!(out, " {} |", grouped(usage.map_or(0, |usage| usage.cache_write)));
            }
            out.push('\n');
        }
        out
    }

    /// Returns the targets of this comparison. A short conversation has only those that do not depend on length.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        let place = format!("{}, {}", self.version, self.shape.name());
        for turns in self.marks().into_iter().filter(|turns| *turns >= LONG) {
            let Some(ratio) = self.ratio(Way::Azureal, turns) else { continue };
            targets.push(Target {
                what: format!("{place}: weighted input of {turns} turns to `claude -c`"),
                wanted: format!("≤ {:.2}x", self.wanted_ratio()),
                measured: format!("{ratio:.2}x"),
                is_met: ratio <= self.wanted_ratio(),
            });
        }
        let Some(ours) = self.of(Way::Azureal) else { return targets };
        if let Some(growth) = growth(&ours.turns).filter(|_| self.turns() >= LONG) {
            targets.push(Target {
                what: format!("{place}: written per turn, second half to first half"),
                wanted: format!("≤ {GROWTH:.2}x"),
                measured: format!("{growth:.2}x"),
                is_met: growth <= GROWTH,
            });
        }
        targets.push(breakpoints(&place, ours));
        targets
    }
}

/// Returns the target for what the model server refuses.
fn breakpoints(place: &str, measured: &Measured) -> Target {
    Target {
        what: format!("{place}: cache breakpoints in a request, and refused requests"),
        wanted: format!("≤ {MOST_BREAKPOINTS}, 0 refused"),
        measured: format!("{}, {} refused", measured.most_breakpoints, measured.refused),
        is_met: measured.most_breakpoints <= MOST_BREAKPOINTS && measured.refused == 0,
    }
}

/// Returns the table of a session that two agents share: with a cache per key of Codex, and with a shared one.
pub(crate) fn table_of_turns(version: &str, separate: &Measured, shared: &Measured) -> String {
    let mut out = format!("### Claude Code {version} and Codex in turns, one azureal session\n\n");
    out += "| turn | agent | input | read | written | read if all Codex sessions share a cache |\n";
    out += "|--:|---|--:|--:|--:|--:|\n";
    for (index, (usage, shared)) in separate.turns.iter().zip(&shared.turns).enumerate() {
        let turn = index + 1;
        let share = |usage: &Usage| {
            let percent = 100.0 * usage.cache_read as f64 / usage.whole_input().max(1) as f64;
            format!("{} ({percent:.0} %)", grouped(usage.cache_read))
        };
        let agent = agent_of(turn);
        let _ = writeln!(
            out,
            "| {turn} | {agent} | {} | {} | {} | {} |",
            grouped(usage.whole_input()),
            share(usage),
            grouped(usage.cache_write),
            if agent == "codex" { share(shared) } else { String::new() },
        );
    }
    out
}

/// Returns the table of targets.
pub(crate) fn table_of_targets(targets: &[Target]) -> String {
    let mut out = "### Targets\n\n| | wanted | measured | |\n|---|--:|--:|---|\n".to_owned();
    for target in targets {
        let verdict = if target.is_met { "met" } else { "**missed**" };
        let _ = writeln!(out, "| {} | {} | {} | {verdict} |", target.what, target.wanted, target.measured);
    }
    out
}

fn sum(measured: &Measured, turns: usize) -> Usage {
    measured.turns.iter().take(turns).copied().sum()
}

/// Returns the tokens written per turn in the second half of a conversation in relation to the first half. The first
/// two turns are left out: they write what every conversation begins with.
fn growth(turns: &[Usage]) -> Option<f64> {
    let turns = turns.get(2..)?;
    let (first, second) = turns.split_at(turns.len() / 2);
    let mean = |turns: &[Usage]| {
        let written: u64 = turns.iter().map(|usage| usage.cache_write).sum();
        (!turns.is_empty()).then(|| written as f64 / turns.len() as f64)
    };
    Some(mean(second)? / mean(first)?.max(1.0))
}

/// Returns a number with a comma between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(written: impl IntoIterator<Item = u64>) -> Measured {
        let usage = |cache_write| Usage { cache_write, ..Usage::ZERO };
        Measured { turns: written.into_iter().map(usage).collect(), most_breakpoints: 4, refused: 0 }
    }

    fn comparison(version: &str, theirs: Measured, ours: Measured) -> Comparison {
        let ways = vec![(Way::ClaudeContinue, theirs), (Way::Azureal, ours)];
        Comparison { version: version.into(), shape: Shape::Talk, ways }
    }

    fn verdicts(comparison: &Comparison) -> Vec<bool> {
        comparison.targets().iter().map(|target| target.is_met).collect()
    }

    #[test]
    fn a_conversation_that_writes_its_history_again_misses_its_targets() {
        let flat = || measured([5_000; 30]);
        let growing = measured((1..=30).map(|turn| 5_000 * turn));
        assert_eq!(verdicts(&comparison("2.1.325", flat(), flat())), [true; 4]);
        assert_eq!(verdicts(&comparison("2.1.325", flat(), growing)), [false, false, false, true]);
    }

    #[test]
    fn the_ratio_that_is_wanted_depends_on_the_version() {
        let theirs = || measured([1_000; 16]);
        let ours = || measured([1_000; 16]);
        assert_eq!(verdicts(&comparison("2.1.325", theirs(), ours())), [true; 3]);
        assert_eq!(verdicts(&comparison("2.1.197", theirs(), ours())), [false, true, true]);
    }

    #[test]
    fn a_short_conversation_is_only_checked_for_refusals() {
        let many = Measured { most_breakpoints: 5, ..measured([1; 4]) };
        let refused = Measured { refused: 1, ..measured([1; 4]) };
        assert_eq!(verdicts(&comparison("2.1.325", measured([1; 4]), measured([9; 4]))), [true]);
        assert_eq!(verdicts(&comparison("2.1.325", measured([1; 4]), many)), [false]);
        assert_eq!(verdicts(&comparison("2.1.325", measured([1; 4]), refused)), [false]);
    }

    #[test]
    fn growth_compares_the_halves_after_the_first_two_turns() {
        let growth = |written: &[u64]| growth(&measured(written.iter().copied()).turns);
        assert_eq!(growth(&[9, 9]), None);
        assert_eq!(growth(&[900, 900, 100, 100, 200, 200]), Some(2.0));
        assert_eq!(growth(&[0; 30]), Some(0.0));
    }

    #[test]
    fn the_tables_name_each_way_and_group_digits() {
        let tables = comparison("2.1.325", measured([1_234_567; 20]), measured([5_000; 20])).tables();
        assert!(tables.starts_with("### Claude Code 2.1.325, one request per turn\n"), "{tables}");
        let line = "| 16 | `claude -c` | 24,691,340 | 1.00x | 0 | 19,753,072 | 0 | 1,234,567 |";
        assert!(tables.contains(line), "{tables}");
        assert!(tables.contains("| 20 | azureal | 125,000 | 0.00x | 0 | 100,000 | 0 | 5,000 |"), "{tables}");
        assert_eq!(["0", "999", "1,000", "1,000,000"], [0, 999, 1_000, 1_000_000].map(grouped).as_slice());
    }
}
