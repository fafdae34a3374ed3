//! The git status, rendered after the history.
//!
//! Some agents' programs put it before the history, where every changed file prevents a hit in the provider's prompt
//! cache. With a long history azureal switches that off, and puts this one into the context of the turn.

use std::time::Duration;

use azureal_core::{ContextCommand, OnFailure, context_block};

use crate::context_commands::CommandRun;

/// The length of a history from which this pays, in characters: the program's instructions about commits are switched
/// off too.
pub(crate) const LONG_HISTORY: u64 = 20_000;

/// Reads the last commits, the branch and what has changed. It takes no lock. Filters that the repository's configuration names may run, as
/// they do when the agent's program itself asks for the status.
const COMMAND: &str = "\
git -c log.showSignature=false log -n 5 --format='%h %s' 2>/dev/null; \
git --no-optional-locks -c color.status=false status --short --branch";
/// The time limit.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The number of lines that are rendered.
const LINES: usize = 60;
/// The longest line, in characters.
const LINE_CHARS: usize = 160;

/// Returns the command.
pub(crate) fn command() -> ContextCommand {
    ContextCommand {
        timeout: TIMEOUT,
        on_failure: OnFailure::Ignore,
        dynamic: true,
        ..ContextCommand::new("git status", COMMAND)
    }
}

/// Returns whether a command is this one.
pub(crate) fn is(command: &ContextCommand) -> bool {
    command.command == COMMAND
}

/// Renders it.
///
/// A failed one is rendered too: the program's own stays switched off, or the text before the history would change
/// from turn to turn.
pub(crate) fn block(run: &CommandRun) -> String {
    let name = &run.command.name;
    if let Some(why) = run.failure() {
        return context_block(name, &format!("not known: {why}"));
    }
    let mut lines = run.output.lines();
    let mut shown: Vec<String> = lines
        .by_ref()
        .take(LINES)
        .map(|line| match line.char_indices().nth(LINE_CHARS) {
            Some((end, _)) => format!("{}…", line.get(..end).unwrap_or(line)),
            None => line.to_owned(),
        })
        .collect();
    if lines.next().is_some() {
        shown.push("… and more; `git status` shows all".to_owned());
    }
    context_block(name, &shown.join("\n"))
}

#[cfg(test)]
mod tests {
    use crate::context_commands::CommandEnd;

    use super::*;

    fn run(end: CommandEnd, output: &str) -> CommandRun {
        let (errors, duration) = (String::new(), Duration::ZERO);
        CommandRun { command: command(), end, output: output.to_owned(), errors, duration }
    }

    #[test]
    fn a_status_is_told_within_bounds() {
        let output = format!("1a2b Begin\n## main\n M {}\n{}", "x".repeat(500), "?? y\n".repeat(100));
        let shown = block(&run(CommandEnd::Code(0), &output));
        assert!(shown.contains("1a2b Begin\n## main\n M xxx"), "{shown}");
        assert!(shown.contains("x…\n?? y\n") && shown.contains("… and more"), "{shown}");
        assert!(shown.chars().count() < LINES * (LINE_CHARS + 2));
    }

    #[test]
    fn a_status_that_failed_is_told_as_such() {
        let shown = block(&run(CommandEnd::TimedOut, "1a2b Begin"));
        assert!(
            shown.contains("not known: Command timed out after 5 seconds") && !shown.contains("1a2b"),
            "{shown}"
        );
    }
}
