//! The text of a ledger within a bound.

use std::collections::BTreeMap;

use super::files::FileLine;
use super::line::listed_name;
use super::{CommandLine, Ledger};

/// The shares of the sections, in twentieths, if there is not room for all: failures, files, commands.
const SHARES: [usize; 3] = [5, 8, 7];
const FAILURES: &str = "Failures that nothing fixed:";
const FILES: &str = "Files touched:";
const COMMANDS: &str = "Commands, and how the last run of each ended:";
/// Stands for a ledger that has no room at all.
const LEFT_OUT: &str = "[files, commands and failures are left out]";
/// The most directories with further files that are named.
const DIRECTORIES: usize = 20;
const CUT: &str = "[older events are not in these lists]";

impl Ledger {
    /// Renders the ledger, at most so many characters. Shortened lists have a mark. Empty if there is no fact.
    ///
    /// A section that needs less than its share leaves the rest to the others.
    pub fn render(&self, most: usize) -> String {
        let sections = [self.failure_lines(), self.file_lines(), self.command_lines()];
        let needs: Vec<usize> = sections.iter().map(|section| section.chars(usize::MAX)).collect();
        if needs.iter().all(|need| *need == 0) {
            return String::new();
        }
        let room = most.saturating_sub(if self.is_cut { CUT.len() + 2 } else { 0 });
        let mut parts: Vec<String> = sections
            .iter()
            .zip(shares(&needs, room))
            .map(|(section, share)| section.render(share))
            .filter(|text| !text.is_empty())
            .collect();
        if self.is_cut {
            parts.push(CUT.to_owned());
        }
        let text = parts.join("\n\n");
        if text.chars().count() <= most { text } else { LEFT_OUT.to_owned() }
    }

    fn failure_lines(&self) -> Section {
        let open = self.commands.iter().filter(|command| command.is_open).map(CommandLine::render);
        Section::List { heading: FAILURES, lines: open.chain(self.failures.iter().cloned()).collect() }
    }

    /// Returns the commands that are not among the failures.
    fn command_lines(&self) -> Section {
        let lines = self.commands.iter().filter(|command| !command.is_open).map(CommandLine::render);
        Section::List { heading: COMMANDS, lines: lines.collect() }
    }

    fn file_lines(&self) -> Section {
        if self.files.is_empty() {
            return Section::List { heading: FILES, lines: Vec::new() };
        }
        let mut files = self.files.lines();
        // Stable, so those that changed are in the order of time too.
        files.sort_by_key(|file| !file.is_changed);
        let further = self.files.further().take(DIRECTORIES).map(|(directory, files, how)| {
            format!("\n- {}: {files} further files {how}", listed_name(directory))
        });
        Section::Files { files, further: further.collect() }
    }
}

/// Divides the room among the sections: each gets what it needs, or its share of what the others leave.
fn shares(needs: &[usize], room: usize) -> Vec<usize> {
    let mut given = vec![0; needs.len()];
    let mut open: Vec<usize> = (0..needs.len()).collect();
    let mut left = room;
    loop {
        let weight: usize = open.iter().filter_map(|index| SHARES.get(*index)).sum();
        let share = |index: usize| left * SHARES.get(index).copied().unwrap_or(0) / weight.max(1);
        let need = |index: usize| needs.get(index).copied().unwrap_or(0);
        let (fitting, rest): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|index| need(**index) <= share(**index));
        let settled = if fitting.is_empty() { &rest } else { &fitting };
        let mut taken = 0;
        for index in settled {
            let chars = if fitting.is_empty() { share(*index) } else { need(*index) };
            taken += chars;
            if let Some(given) = given.get_mut(*index) {
                *given = chars;
            }
        }
        if fitting.is_empty() || rest.is_empty() {
            return given;
        }
        left = left.saturating_sub(taken);
        open = rest;
    }
}

/// The lines under one heading.
enum Section {
    /// Newest first.
    List {
        heading: &'static str,
        lines: Vec<String>,
    },
    Files {
        files: Vec<FileLine>,
        further: String,
    },
}

impl Section {
    fn chars(&self, most: usize) -> usize {
        let text = self.render(most);
        // With the empty line that separates it from another section.
        if text.is_empty() { 0 } else { text.chars().count() + 2 }
    }

    fn render(&self, most: usize) -> String {
        match self {
            Self::List { lines, .. } if lines.is_empty() => String::new(),
            Self::List { heading, lines } => list(heading, lines, most),
            Self::Files { files, further } => {
                let all = files.len();
                let whole = grouped(files, all) + further;
                if whole.chars().count() + 2 <= most {
                    return whole;
                }
                grouped(files, fitting(all, |count| grouped(files, count).chars().count() + 2 <= most))
            }
        }
    }
}

/// Returns the largest number up to `all` that fits.
fn fitting(all: usize, fits: impl Fn(usize) -> bool) -> usize {
    if fits(all) {
        return all;
    }
    let (mut low, mut high) = (0, all);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

fn list(heading: &str, lines: &[String], most: usize) -> String {
    let render = |count: usize| {
        let mut text = heading.to_owned();
        for line in lines.iter().take(count) {
            text.push_str("\n- ");
            text.push_str(line);
        }
        if count < lines.len() {
            text.push_str(&format!("\n- … and {} older", lines.len() - count));
        }
        text
    };
    render(fitting(lines.len(), |count| render(count).chars().count() + 2 <= most))
}

/// Renders the first files of a list, grouped by directory and by how they were touched.
fn grouped(files: &[FileLine], count: usize) -> String {
    let mut directories: BTreeMap<&str, BTreeMap<&str, Vec<String>>> = BTreeMap::new();
    for file in files.iter().take(count) {
        let names = directories.entry(&file.directory).or_default().entry(&file.how).or_default();
        names.push(listed_name(&file.name));
    }
    let mut text = FILES.to_owned();
    for (directory, groups) in directories {
        let groups: Vec<String> = groups
            .into_iter()
            .map(|(how, mut names)| {
                names.sort();
                format!("{how} {}", names.join(", "))
            })
            .collect();
        text.push_str(&format!("\n- {}: {}", listed_name(directory), groups.join("; ")));
    }
    if count < files.len() {
        let changed = files.iter().skip(count).filter(|file| file.is_changed).count();
        let more = files.len() - count;
        text.push_str(&match changed {
            0 => format!("\n- … and {more} more that were read"),
            _ => format!("\n- … and {more} more, {changed} of them changed"),
        });
    }
    text
}
