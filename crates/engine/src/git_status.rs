//! The git status, told after the history.
//!
//! An agent's program that tells it itself does so before the history, where every changed file hides the history from the
//! provider's prompt cache. With a long history its own is switched off, and this one stands in the context of the turn.

use std::time::Duration;

use azureal_core::{ContextCommand, OnFailure, context_block};

use crate::context_commands::CommandRun;

/// How long a history is for which this pays, in characters: the program's instructions about commits go too.
pub(crate) const LONG_HISTORY: u64 = 20_000;

/// Reads the last commits, the branch and what has changed. It takes no lock and runs nothing that the repository's configuration names:
/// nobody has asked for it.
const COMMAND: &str = "\
git -c log.showSignature=false log -n 5 --format='%h %s' 2>/dev/null; \
git --no-optional-locks -c core.fsmonitor=false -c color.status=false status --short --branch";
/// How long it may take. In a repository where that is not enough, the program tells its own.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How many lines are told.
const LINES: usize = 60;
/// How long a line may be, in characters.
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

/// Says whether a command is this one.
pub(crate) fn is(command: &ContextCommand) -> bool {
    command.command == COMMAND
}

/// Returns what is told of it; `None` if there is no git status.
pub(crate) fn block(run: &CommandRun) -> Option<String> {
    if run.failure().is_some() {
        return None;
    }
    let mut lines = run.output.lines();
    let mut told: Vec<String> = lines
        .by_ref()
        .take(LINES)
        .map(|line| match line.char_indices().nth(LINE_CHARS) {
            Some((end, _)) => format!("{}…", line.get(..end).unwrap_or(line)),
            None => line.to_owned(),
        })
        .collect();
    match lines.count() {
        0 => {}
        more => told.push(format!("… and {more} more lines")),
    }
    Some(context_block(&run.command.name, &told.join("\n")))
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
        let told = block(&run(CommandEnd::Code(0), &output)).unwrap();
        assert!(told.contains("1a2b Begin\n## main\n M xxx"), "{told}");
        assert!(told.contains("x…\n?? y\n") && told.contains("… and 43 more lines"), "{told}");
        assert!(told.chars().count() < LINES * (LINE_CHARS + 2));
    }

    #[test]
    fn a_status_that_failed_is_not_told() {
        assert_eq!(block(&run(CommandEnd::Code(128), "")), None);
        assert_eq!(block(&run(CommandEnd::TimedOut, "1a2b Begin")), None);
    }
}
