//! Prompts that begin with a dash, such as `azureal run "- fix the list"`.
//!
//! The parser of the command line takes such an argument for an option. To accept it as it is typed, it is recognised
//! before parsing and handed over as the value of a hidden option. Only an argument that cannot be an option is taken
//! for a prompt: a mistyped option must stay an error, because a prompt costs money.

use std::ffi::{OsStr, OsString};

use clap::{Command, CommandFactory};

use crate::cli::Cli;

/// The hidden option of `run` that holds the prompt.
pub(crate) const OPTION: &str = "prompt";

/// Rewrites the first prompt of `run` that begins with a dash, and values of options that do.
pub(crate) fn protect(arguments: Vec<OsString>) -> Vec<OsString> {
    let may_be_text = |argument: &OsString| {
        argument.as_encoded_bytes().starts_with(b"-")
            && argument.to_string_lossy().contains(char::is_whitespace)
    };
    let Some(start) = position_of_command(&arguments) else { return arguments };
    if !arguments.iter().any(may_be_text) {
        return arguments;
    }
    let mut cli = Cli::command();
    // Gives commands the options that they share.
    cli.build();
    let command = arguments.get(start).and_then(|name| cli.find_subcommand(name));
    let Some(run) = command.filter(|command| command.get_name() == "run") else { return arguments };
    let mut protected: Vec<OsString> = Vec::with_capacity(arguments.len());
    let mut is_open = true;
    for (index, argument) in arguments.into_iter().enumerate() {
        // What follows `--` is never an option.
        is_open &= argument != "--";
        let text = argument.to_str().filter(|text| index > start && is_open && is_text(text, run));
        match (text, protected.last_mut()) {
            (Some(text), Some(option)) if takes_value(option, run) => {
                option.push("=");
                option.push(text);
            }
            (Some(text), _) => protected.push(format!("--{OPTION}={text}").into()),
            (None, _) => protected.push(argument),
        }
    }
    protected
}

/// Finds the command among the arguments: the first that is neither an option nor the value of one.
pub(crate) fn position_of_command(arguments: &[OsString]) -> Option<usize> {
    let mut arguments = arguments.iter().enumerate().skip(1);
    while let Some((index, argument)) = arguments.next() {
        if argument == "--store" || argument == "-C" {
            arguments.next();
        } else if !argument.as_encoded_bytes().starts_with(b"-") {
            return Some(index);
        }
    }
    None
}

/// Returns whether an argument begins with a dash and cannot be an option: it has white space where an option has its
/// name.
fn is_text(argument: &str, run: &Command) -> bool {
    let Some((word, _)) = argument.split_once(char::is_whitespace) else { return false };
    let Some(name) = word.strip_prefix('-') else { return false };
    match name.strip_prefix('-') {
        // `--system=Be brief.`
        Some(long) => !long.contains('='),
        // `-sreview notes`, but not `-s is broken`.
        None => {
            let short = name.chars().next();
            let is_option = name.chars().nth(1).is_some()
                && short.is_some_and(|short| run.get_arguments().any(|arg| arg.get_short() == Some(short)));
            !is_option
        }
    }
}

/// Returns whether this is a long option whose value is the next argument.
fn takes_value(option: &OsStr, run: &Command) -> bool {
    let Some(long) = option.to_str().and_then(|option| option.strip_prefix("--")) else { return false };
    run.get_arguments().any(|arg| arg.get_long() == Some(long) && arg.get_action().takes_values())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: &[&str], expected: &[&str]) {
        let arguments = ["azureal"].iter().chain(arguments).map(OsString::from).collect();
        let expected: Vec<OsString> = ["azureal"].iter().chain(expected).map(OsString::from).collect();
        assert_eq!(protect(arguments), expected);
    }

    #[test]
    fn a_prompt_is_told_from_an_option_by_its_white_space() {
        for prompt in [
            "- fix the list",
            "-- what does this mean?",
            "-1 is wrong",
            "-c is broken",
            "--help me with this",
            "-\tx",
            "--- a/x\n+++ b/x",
            "-5°C is not = 23°F",
        ] {
            check(&["run", prompt, "-c"], &["run", &format!("--prompt={prompt}"), "-c"]);
        }
        for option in
            ["--jsn", "-x", "-", "--system=Be brief.", "-sreview notes", "-C/a b", "plain - text", "—"]
        {
            check(&["run", option], &["run", option]);
        }
    }

    #[test]
    fn a_value_of_an_option_may_begin_with_a_dash() {
        check(&["run", "--system", "- be brief", "hi"], &["run", "--system=- be brief", "hi"]);
        check(&["run", "--ephemeral", "- fix"], &["run", "--ephemeral", "--prompt=- fix"]);
    }

    #[test]
    fn only_arguments_of_run_are_rewritten() {
        check(&["rename", "run", "- x"], &["rename", "run", "- x"]);
        check(&["run", "--", "- x"], &["run", "--", "- x"]);
        check(&["--store", "run", "list", "- x"], &["--store", "run", "list", "- x"]);
        check(&["--json", "run", "- x"], &["--json", "run", "--prompt=- x"]);
        check(&[], &[]);
    }
}
