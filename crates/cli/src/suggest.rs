//! A command that does not exist, and the one that was probably meant.

use clap::CommandFactory;
use strsim::osa_distance;

use crate::cli::{Cli, command_names};
use crate::failure::{Failure, quoted};

/// Words of other programs, each with the command that does the same here.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (&["continue", "r", "resume", "reopen"], "azureal run -c"),
    (&["p", "ask", "chat", "exec", "new", "print", "prompt", "say", "send", "start", "init"], "azureal run"),
    (&["conversations", "history", "sessions", "session", "threads", "dir"], "azureal list"),
    (&["cat", "log", "logs", "read", "transcript", "view"], "azureal show"),
    (&["delete", "del", "erase", "remove"], "azureal rm"),
    (&["mv", "name"], "azureal rename"),
    (&["branch", "clone", "cp", "duplicate"], "azureal fork"),
    (&["abort", "kill", "stop", "interrupt"], "azureal cancel"),
    (&["jobs", "running", "status", "top"], "azureal ps"),
    (&["condense", "summarise", "summarize"], "azureal compact"),
    (&["cost", "usage"], "azureal stats"),
    (&["find", "grep"], "azureal search"),
    (&["backends", "login", "models", "providers"], "azureal agents"),
    (&["settings", "set", "get", "env"], "azureal config"),
    (&["allow", "approve"], "azureal trust"),
    (&["migrate", "sync"], "azureal copy"),
    (&["check", "fsck", "repair"], "azureal doctor"),
    (&["dump", "save"], "azureal export"),
    (&["load"], "azureal import"),
    (&["tour", "example"], "azureal demo"),
    (&["man", "commands"], "azureal help"),
    (&["version"], "azureal --version"),
];

/// Returns the error for a command that does not exist. The hint names the command that was probably meant.
pub(crate) fn no_such_command(word: &str) -> Failure {
    let failure = Failure::usage(format!("no command {}", quoted(word)));
    if word.trim().contains(char::is_whitespace) {
        return failure.with_hint("a prompt follows `run`, as in `azureal run \"Why does the test fail?\"`");
    }
    match meant(word) {
        Some(command) => failure.with_hint(format!("did you mean `{command}`?")),
        None => failure.with_hint("`azureal help` lists the commands"),
    }
}

/// Returns the error for an option that was given without a command, if it is one of `run` or of another program.
pub(crate) fn no_such_option(option: &str) -> Option<Failure> {
    let cli = Cli::command();
    let mut of_run = cli.find_subcommand("run")?.get_arguments().filter(|arg| !arg.is_hide_set());
    let is_of_run = of_run.any(|arg| {
        arg.get_short().is_some_and(|short| option == format!("-{short}"))
            || arg.get_long().is_some_and(|long| option == format!("--{long}"))
    });
    if is_of_run {
        let message = format!("{} is an option of `azureal run`", quoted(option));
        return Some(Failure::usage(message).with_hint(format!("`azureal run {option}`")));
    }
    let command = elsewhere(option.trim_start_matches('-'))?;
    Some(
        Failure::usage(format!("no option {}", quoted(option)))
            .with_hint(format!("did you mean `{command}`?")),
    )
}

/// Finds the command that does what a word does in other programs.
fn elsewhere(word: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(words, _)| words.contains(&word)).map(|(_, command)| *command)
}

/// Finds the command that a word was meant for: another program's word for it, the beginning of its name, or its name
/// with a slip of the finger.
fn meant(word: &str) -> Option<String> {
    let word = word.to_lowercase();
    if let Some(command) = elsewhere(&word) {
        return Some(command.to_owned());
    }
    let names = command_names();
    let begun = names.iter().find(|name| word.chars().nth(1).is_some() && name.starts_with(&word));
    let nearest = || {
        let slips = if word.chars().count() > 4 { 2 } else { 1 };
        let distances = names.iter().map(|name| (osa_distance(&word, name), name));
        let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
        (distance <= slips).then_some(name)
    };
    begun.or_else(nearest).map(|name| format!("azureal {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood() {
        for (word, command) in [
            ("rnu", Some("azureal run")),
            ("RUN", Some("azureal run")),
            ("shw", Some("azureal show")),
            ("lits", Some("azureal list")),
            ("agnet", Some("azureal agents")),
            ("comp", Some("azureal compact")),
            ("completion", Some("azureal completions")),
            ("hlep", Some("azureal help")),
            ("test", None),
            ("x", None),
            ("", None),
            ("frobnicate", None),
            ("__offlin", None),
        ] {
            assert_eq!(meant(word).as_deref(), command, "{word}");
        }
    }

    #[test]
    fn words_of_other_programs_are_understood() {
        for (word, command) in [
            ("resume", "azureal run -c"),
            ("continue", "azureal run -c"),
            ("chat", "azureal run"),
            ("sessions", "azureal list"),
            ("history", "azureal list"),
            ("delete", "azureal rm"),
        ] {
            assert_eq!(meant(word).as_deref(), Some(command), "{word}");
        }
    }

    #[test]
    fn every_suggestion_is_a_command_that_exists() {
        let names = command_names();
        for (words, command) in ELSEWHERE {
            let name = command.split(' ').nth(1).unwrap();
            assert!(name == "--version" || names.iter().any(|known| known == name), "{command}");
            for word in *words {
                assert!(!names.iter().any(|known| known == word), "{word} is a command");
            }
        }
    }
}
