//! Commands: which of them are the same, and how each ended.

use std::collections::HashSet;

use super::line::plain_line;

/// The characters of a command that are compared. A command can hold a whole file.
const COMPARED: usize = 2_000;
/// The lines of an output that are searched for the reason of a failure, at each end.
const SEARCHED: usize = 100;
/// The longest reason, in characters.
const REASON: usize = 200;

/// Programs whose exit status 1 is an answer: there is no match, or there is a difference.
const ASKING: [&str; 10] = ["grep", "egrep", "rg", "diff", "cmp", "test", "[", "which", "command", "pgrep"];
/// Programs at the end of a pipe that hide the exit status of the command before it.
const FILTERS: [&str; 6] = ["tail", "head", "grep", "rg", "tee", "cat"];

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Failed {
        /// The exit status, if the output has it.
        exit: Option<i64>,
        /// The line of the output that says why; may be empty.
        why: String,
    },
}

impl Outcome {
    /// Reads the outcome of a call from its result.
    pub(super) fn of(is_error: bool, output: &str) -> Self {
        if !is_error {
            return Self::Done;
        }
        let exit = output.lines().take(SEARCHED).find_map(exit_status);
        Self::Failed { exit, why: reason(output).unwrap_or_default() }
    }

    /// Reads the outcome of a command. If a filter or another command hides its exit status, the output decides.
    pub(super) fn of_command(command: &str, is_error: bool, output: &str) -> Self {
        if !is_error && hides_status(command) && searched(output).any(is_summary_of_failure) {
            return Self::Failed { exit: None, why: reason(output).unwrap_or_default() };
        }
        Self::of(is_error, output)
    }

    /// Describes it in a few words.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Done => "ok".to_owned(),
            Self::Failed { exit: Some(exit), why } if why.is_empty() => format!("exit {exit}"),
            Self::Failed { exit: Some(exit), why } => format!("exit {exit}, {why}"),
            Self::Failed { exit: None, why } if why.is_empty() => "failed".to_owned(),
            Self::Failed { exit: None, why } => format!("failed, {why}"),
        }
    }

    /// Returns whether a program that only asks gave the answer no.
    pub(super) fn is_answer_no(&self, command: &str) -> bool {
        let Self::Failed { exit, why } = self else { return false };
        let first = command.split_whitespace().next().unwrap_or_default();
        why.is_empty() && exit.is_none_or(|exit| exit == 1) && ASKING.contains(&first)
    }
}

/// A command as far as two runs of it are compared: its parts, each in words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CommandKey {
    parts: Vec<Vec<String>>,
}

impl CommandKey {
    /// Returns the key of a command. Spaces, filters of the output and messages of commits do not count.
    pub(super) fn of(command: &str) -> Self {
        let end = command.char_indices().nth(COMPARED).map_or(command.len(), |(end, _)| end);
        let command = command.get(..end).unwrap_or(command);
        Self { parts: command.split("&&").map(words).filter(|words| !words.is_empty()).collect() }
    }
}

/// The parts of the commands that succeeded.
#[derive(Debug, Default)]
pub(super) struct Succeeded(HashSet<Vec<String>>);

impl Succeeded {
    pub(super) fn add(&mut self, key: CommandKey) {
        self.0.extend(key.parts);
    }

    /// Returns whether all of a command succeeded: each part by itself, or a run of it with fewer arguments, which does more.
    pub(super) fn covers(&self, key: &CommandKey) -> bool {
        !key.parts.is_empty() && key.parts.iter().all(|part| self.has_run(part))
    }

    fn has_run(&self, part: &[String]) -> bool {
        let least = part.len().min(2);
        (least..=part.len()).any(|length| part.get(..length).is_some_and(|part| self.0.contains(part)))
    }
}

/// Returns the words of a part of a command that say what it does.
fn words(part: &str) -> Vec<String> {
    let part = without_filters(part);
    let mut words = Vec::new();
    let mut quoted_message = None;
    for word in part.split_whitespace() {
        // The message of a commit says nothing about its success.
        if let Some(quote) = quoted_message {
            if word.ends_with(quote) {
                quoted_message = None;
            }
            continue;
        }
        if words.last().is_some_and(|last: &String| last == "-m")
            && words.first().is_some_and(|it| it == "git")
        {
            quoted_message = word.chars().next().filter(|first| matches!(first, '"' | '\''));
            if quoted_message.is_some_and(|quote| word.len() > 1 && word.ends_with(quote)) {
                quoted_message = None;
            }
            continue;
        }
        if word != "2>&1" {
            words.push(word.to_owned());
        }
    }
    words
}

/// Returns a command without the filters of its output.
fn without_filters(part: &str) -> &str {
    let mut part = part.trim();
    while let Some((before, filter)) = part.rsplit_once('|') {
        let program = filter.split_whitespace().next().unwrap_or_default();
        if before.ends_with('|') || !matches!(program, "tail" | "head" | "tee" | "cat") {
            break;
        }
        part = before.trim_end();
    }
    part
}

/// Returns whether the exit status of a command is that of something else.
fn hides_status(command: &str) -> bool {
    let last = command.rsplit('|').next().unwrap_or_default();
    let program = last.split_whitespace().next().unwrap_or_default();
    (command.contains('|') && FILTERS.contains(&program)) || command.contains("; echo") || program == "true"
}

/// Reads the exit status in a line such as `Exit code 101`.
fn exit_status(line: &str) -> Option<i64> {
    let line = line.trim().to_ascii_lowercase();
    let number = line.strip_prefix("exit code ").or_else(|| line.strip_prefix("exit status "))?;
    number.trim().parse().ok()
}

/// Returns the lines at both ends of an output, without empty ones and markers of omitted lines.
fn searched(output: &str) -> impl Iterator<Item = &str> {
    let count = output.lines().take(2 * SEARCHED + 1).count();
    let is_long = count > 2 * SEARCHED;
    let head = output.lines().take(if is_long { SEARCHED } else { count });
    let tail: Vec<&str> = output.lines().rev().take(if is_long { SEARCHED } else { 0 }).collect();
    head.chain(tail.into_iter().rev()).map(str::trim).filter(|line| {
        let is_marker = line.starts_with('[') && line.ends_with(" omitted]");
        !is_marker && !line.is_empty() && exit_status(line).is_none()
    })
}

/// Finds the line that says why: the first one about an error, else the first that counts failures, else the last.
fn reason(output: &str) -> Option<String> {
    let found = searched(output)
        .find(|line| is_about_error(line) && !is_summary_of_failure(line))
        .or_else(|| searched(output).find(|line| is_summary_of_failure(line)))
        .or_else(|| searched(output).last())?;
    Some(plain_line(found, REASON)).filter(|line| !line.is_empty())
}

/// Returns whether a line names an error.
fn is_about_error(line: &str) -> bool {
    const SIGNS: [&str; 16] = [
        "error",
        "panicked",
        "assert",
        "exception",
        "fatal",
        "failed",
        "fail:",
        "denied",
        "refused",
        "not found",
        "no such",
        "cannot",
        "could not",
        "undefined",
        "unreachable",
        "expected",
    ];
    let line: String = line.chars().take(REASON * 2).collect::<String>().to_lowercase();
    // `0 errors` names none.
    !line.contains("0 error") && SIGNS.iter().any(|sign| line.contains(sign))
}

/// Returns whether a line says of a whole run that it failed.
fn is_summary_of_failure(line: &str) -> bool {
    const SIGNS: [&str; 9] = [
        "test result: failed",
        "could not compile",
        "tests failed",
        "test failures",
        "build failed",
        "npm err!",
        "make: ***",
        "error: aborting",
        "compilation failed",
    ];
    let line: String = line.chars().take(REASON * 2).collect::<String>().to_lowercase();
    SIGNS.iter().any(|sign| line.contains(sign)) && !line.contains("0 tests failed") || counts_failures(&line)
}

/// Returns whether a line counts failures, such as `1 failed, 8 passed`.
fn counts_failures(line: &str) -> bool {
    let words: Vec<&str> =
        line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.windows(2).any(|pair| match pair {
        [count, what] => {
            count.parse::<u64>().is_ok_and(|count| count > 0)
                && matches!(*what, "failed" | "failure" | "failures" | "failing" | "errors")
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failure_is_the_line_about_the_error() {
        for (output, expected) in [
            (
                "Exit code 101\nrunning 3 tests\nthread 'a' panicked at src/a.rs:3:\nboom\ntest result: FAILED. 1 failed",
                "exit 101, thread 'a' panicked at src/a.rs:3:",
            ),
            (
                "[8 lines omitted]\nfailures:\ntest result: FAILED. 2 passed; 1 failed",
                "failed, test result: FAILED. 2 passed; 1 failed",
            ),
            ("Exit code 2", "exit 2"),
            ("", "failed"),
            (
                "warning: x\n\u{1b}[31merror[E0432]\u{1b}[0m: unresolved\nwarning: 0 errors",
                "failed, error[E0432]: unresolved",
            ),
            ("something\nodd", "failed, odd"),
        ] {
            assert_eq!(Outcome::of(true, output).text(), expected, "{output}");
        }
        assert_eq!(Outcome::of(false, "error: no").text(), "ok");
    }

    #[test]
    fn a_filter_hides_the_status_and_the_output_decides() {
        let outcome = |command: &str, output: &str| Outcome::of_command(command, false, output).text();
        assert_eq!(
            outcome("cargo test 2>&1 | tail -3", "test result: FAILED. 1 failed"),
            "failed, test result: FAILED. 1 failed"
        );
        assert_eq!(outcome("cargo test | tail", "test result: ok. 3 passed; 0 failed"), "ok");
        assert_eq!(outcome("cat log", "1 failed"), "ok", "it was printed, not caused");
        assert_eq!(outcome("make || true", "make: *** [x] Error 1"), "failed, make: *** [x] Error 1");
    }

    #[test]
    fn runs_that_differ_in_filters_are_the_same_command() {
        let same = |a: &str, b: &str| CommandKey::of(a) == CommandKey::of(b);
        assert!(same("cargo  test", "cargo test 2>&1 | tail -20"));
        assert!(same("git commit -m 'one two'", "git commit -m \"three\""));
        assert!(!same("cargo test", "cargo test -p a"));
        assert!(!same("cat a | sort", "cat a"));
        assert!(!same("cat a | tail || true", "cat a"));
    }

    #[test]
    fn a_broader_run_covers_a_narrower_one() {
        let mut succeeded = Succeeded::default();
        succeeded.add(CommandKey::of("cargo fmt && cargo test"));
        for (command, covered) in [
            ("cargo test", true),
            ("cargo test -p parser nested", true),
            ("cargo fmt --check", true),
            ("cargo fmt && cargo test 2>&1 | tail", true),
            ("cargo", false),
            ("cargo bench", false),
            ("cargo test && cargo bench", false),
            ("", false),
        ] {
            assert_eq!(succeeded.covers(&CommandKey::of(command)), covered, "{command}");
        }
    }
}
