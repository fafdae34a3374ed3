//! What is left of the facts after a compaction, and what of the ledger is true.

use std::collections::BTreeSet;

use crate::session::Truth;

/// Facts that were found, of those that were planted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) found: usize,
    pub(crate) of: usize,
}

impl Share {
    pub(crate) fn of(found: impl IntoIterator<Item = bool>) -> Self {
        let mut share = Self::default();
        for found in found {
            share.of += 1;
            share.found += usize::from(found);
        }
        share
    }

    pub(crate) fn add(self, other: Self) -> Self {
        Self { found: self.found + other.found, of: self.of + other.of }
    }

    /// Returns whether it is at least so many percent. A share of nothing is not.
    pub(crate) fn is_at_least(self, percent: usize) -> bool {
        self.of > 0 && self.found * 100 >= self.of * percent
    }

    pub(crate) fn text(self) -> String {
        format!("{} % ({} of {})", self.found * 100 / self.of.max(1), self.found, self.of)
    }
}

/// The figures of one session.
#[derive(Debug)]
pub(crate) struct Score {
    pub(crate) requirements: Share,
    pub(crate) files: Share,
    pub(crate) commands: Share,
    pub(crate) failures: Share,
    pub(crate) decisions: Share,
    /// The lines of the ledger and of the decisions that are true.
    pub(crate) precision: Share,
    /// Lines that are not.
    pub(crate) wrong: Vec<String>,
    /// Facts that are lost.
    pub(crate) lost: Vec<String>,
}

/// The lines of a context that claim something.
#[derive(Debug, Default)]
struct Claims {
    files: BTreeSet<(String, String)>,
    commands: Vec<String>,
    failures: Vec<String>,
    decisions: Vec<String>,
}

impl Claims {
    fn read(context: &str) -> Self {
        let mut claims = Self::default();
        let mut list = "";
        for line in context.lines() {
            match line.strip_prefix("- ") {
                Some(item) if item.starts_with('…') => {}
                Some(item) => match list {
                    "Files touched:" => claims.files.extend(files(item)),
                    "Commands, and how the last run of each ended:" => claims.commands.push(item.to_owned()),
                    "Failures that nothing fixed:" => claims.failures.push(item.to_owned()),
                    "Decisions:" => claims.decisions.push(item.to_owned()),
                    _ => {}
                },
                None => list = line,
            }
        }
        claims
    }
}

/// Takes a line of files apart: `src: created a.rs; edited b.rs, c.rs`.
fn files(line: &str) -> Vec<(String, String)> {
    let (directory, groups) = line.split_once(": ").unwrap_or(("", line));
    let mut found = Vec::new();
    for group in groups.split("; ") {
        // The last name of how is the word before the first file: names have no spaces here.
        let items: Vec<&str> = group.split(", ").collect();
        let mut how: Vec<&str> = Vec::new();
        for item in items {
            let name = match item.rsplit_once(' ') {
                Some((words, name)) => {
                    how.push(words);
                    name
                }
                None if how.iter().all(|words| !words.contains(' ')) && is_way(item) => {
                    how.push(item);
                    continue;
                }
                None => item,
            };
            let path = if directory == "." { name.to_owned() } else { format!("{directory}/{name}") };
            found.push((path, how.join(", ")));
        }
    }
    found
}

fn is_way(word: &str) -> bool {
    ["read", "edited", "written", "created", "deleted"].contains(&word) || word.starts_with("undone")
}

/// Compares a context with what is true.
pub(crate) fn score(context: &str, truth: &Truth) -> Score {
    let claims = Claims::read(context);
    let (mut wrong, mut lost) = (Vec::new(), Vec::new());
    let note = |list: &mut Vec<String>, is_right: bool, what: &str| {
        if !is_right {
            list.push(what.to_owned());
        }
        is_right
    };
    let is_true = |path: &str, how: &str| {
        let claimed: BTreeSet<String> = how.split(", ").map(str::to_owned).collect();
        truth.files.get(path).is_some_and(|known| *known == claimed || without_read(known) == claimed)
    };
    let requirements = Share::of(
        truth.requirements.iter().map(|fact| note(&mut lost, context.contains(fact.as_str()), fact)),
    );
    let files = Share::of(truth.files.keys().map(|path| {
        let found = claims.files.iter().any(|(claimed, how)| claimed == path && is_true(path, how));
        note(&mut lost, found, path)
    }));
    let outcome = |line: &str, command: &str| {
        line.strip_prefix('`')?.strip_prefix(command)?.strip_prefix("`: ").map(str::to_owned)
    };
    let commands = Share::of(truth.commands.iter().map(|command| {
        let newer = format!("{command} 2>&1 | tail -20");
        let found = claims.commands.iter().any(|line| {
            outcome(line, command).or_else(|| outcome(line, &newer)).is_some_and(|outcome| outcome == "ok")
        });
        note(&mut lost, found, command)
    }));
    let names_failure = |line: &str, subject: &str, output: &[String]| {
        let rest = outcome(line, subject)
            .or_else(|| line.strip_prefix(subject)?.strip_prefix(": ").map(str::to_owned));
        // A ledger line has single spaces.
        let plain = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        rest.is_some_and(|why| output.is_empty() || output.iter().any(|line| why.ends_with(&plain(line))))
    };
    let failures = Share::of(truth.failures.iter().map(|(subject, output)| {
        let found = claims.failures.iter().any(|line| names_failure(line, subject, output));
        note(&mut lost, found, subject)
    }));
    let decisions = Share::of(truth.decisions.iter().map(|sentence| {
        let found = claims.decisions.iter().any(|line| line == sentence);
        note(&mut lost, found, sentence)
    }));
    let true_files = Share::of(
        claims.files.iter().map(|(path, how)| note(&mut wrong, is_true(path, how), &format!("{how} {path}"))),
    );
    let true_commands = Share::of(claims.commands.iter().map(|line| {
        let known = truth
            .commands
            .iter()
            .any(|command| outcome(line, command).is_some_and(|outcome| outcome == "ok"));
        note(&mut wrong, known, line)
    }));
    let true_failures = Share::of(claims.failures.iter().map(|line| {
        let known = truth.failures.iter().any(|(subject, output)| names_failure(line, subject, output));
        note(&mut wrong, known, line)
    }));
    let true_decisions =
        Share::of(claims.decisions.iter().map(|line| note(&mut wrong, truth.decisions.contains(line), line)));
    let precision = true_files.add(true_commands).add(true_failures).add(true_decisions);
    Score { requirements, files, commands, failures, decisions, precision, wrong, lost }
}

/// Whoever changes a file has read it, so that is not said.
fn without_read(known: &BTreeSet<String>) -> BTreeSet<String> {
    let changed: BTreeSet<String> = known.iter().filter(|how| *how != "read").cloned().collect();
    if changed.is_empty() { known.clone() } else { changed }
}
