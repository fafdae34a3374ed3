//! What is wrong with a command line, and what to type instead.

use std::error::Error;
use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::Cli;
use crate::dashed_prompt::position_of_command;
use crate::failure::{Failure, quoted};
use crate::suggest::{no_such_command, no_such_option};

/// Turns an error of the parser into one of ours.
pub(crate) fn usage_error(error: &clap::Error, arguments: &[OsString]) -> Failure {
    let misread = Misread { error, arguments };
    let (message, hint) = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            return no_such_command(misread.text(ContextKind::InvalidSubcommand).unwrap_or_default());
        }
        ErrorKind::UnknownArgument => {
            let argument = misread.text(ContextKind::InvalidArg).unwrap_or_default();
            if let Some(failure) =
                misread.is_before_command(argument).then(|| no_such_option(argument)).flatten()
            {
                return failure;
            }
            (Some(format!("unexpected argument {}", quoted(argument))), misread.instead_of(argument))
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = misread.texts(ContextKind::InvalidArg);
            (Some(format!("missing {}", in_words(&missing, "and"))), None)
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            (misread.wrong_value(), misread.did_you_mean(ContextKind::SuggestedValue))
        }
        ErrorKind::ArgumentConflict => {
            let others = misread.texts(ContextKind::PriorArg);
            let conflict = misread.text(ContextKind::InvalidArg).filter(|_| !others.is_empty());
            let message = |argument| match others == [argument] {
                true => format!("{} can be given only once", quoted(argument)),
                false => format!("{} cannot be used with {}", quoted(argument), in_words(&others, "and")),
            };
            (conflict.map(message), None)
        }
        _ => (None, None),
    };
    let message = message.unwrap_or_else(|| misread.message_of_parser());
    Failure::usage(message).with_hint(hint.unwrap_or_else(|| misread.usage()))
}

/// An error of the parser, and the arguments that it is about.
struct Misread<'a> {
    error: &'a clap::Error,
    arguments: &'a [OsString],
}

impl<'a> Misread<'a> {
    fn text(&self, kind: ContextKind) -> Option<&'a str> {
        match self.error.get(kind)? {
            ContextValue::String(text) => Some(text),
            _ => None,
        }
    }

    fn texts(&self, kind: ContextKind) -> Vec<&'a str> {
        match self.error.get(kind) {
            Some(ContextValue::String(text)) => vec![text],
            Some(ContextValue::Strings(texts)) => texts.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the command that was typed, if there is such a command.
    fn command(&self) -> Option<String> {
        let name = self.arguments.get(position_of_command(self.arguments)?)?;
        Some(Cli::command().find_subcommand(name)?.get_name().to_owned())
    }

    /// Returns whether an argument comes before the command, or without one.
    fn is_before_command(&self, argument: &str) -> bool {
        let end = position_of_command(self.arguments).unwrap_or(self.arguments.len());
        self.arguments.iter().take(end).any(|before| before == argument)
    }

    /// Returns what was probably meant by an argument that is not known.
    fn instead_of(&self, argument: &str) -> Option<String> {
        if !argument.starts_with('-') && self.command().as_deref() == Some("run") {
            return Some("put the whole prompt in quotes, as in `azureal run \"Fix the test\"`".to_owned());
        }
        self.did_you_mean(ContextKind::SuggestedArg).or_else(|| {
            let is_text = self.command().as_deref() == Some("search");
            is_text.then(|| {
                "put `--` before a text that begins with a dash: `azureal search -F -- '->'`".to_owned()
            })
        })
    }

    fn did_you_mean(&self, kind: ContextKind) -> Option<String> {
        let meant = self.texts(kind).first().copied()?;
        Some(format!("did you mean {}?", quoted(meant)))
    }

    fn wrong_value(&self) -> Option<String> {
        let argument = quoted(self.text(ContextKind::InvalidArg)?);
        let value = self.text(ContextKind::InvalidValue)?;
        if value.is_empty() {
            return Some(format!("{argument} needs a value"));
        }
        let valid = self.texts(ContextKind::ValidValue);
        let why = match self.error.source() {
            Some(why) => format!(": {why}"),
            None if valid.is_empty() => String::new(),
            None => format!(": it takes {}", in_words(&valid, "or")),
        };
        Some(format!("{} is not a value of {argument}{why}", quoted(value)))
    }

    /// Returns the usage that the parser shows, or where to find it.
    fn usage(&self) -> String {
        match self.error.get(ContextKind::Usage) {
            Some(ContextValue::StyledStr(usage)) => {
                usage.to_string().trim().replacen("Usage: ", "usage: ", 1)
            }
            _ => match self.command() {
                Some(command) => format!("`azureal help {command}` shows its options"),
                None => "`azureal help` lists the commands".to_owned(),
            },
        }
    }

    /// Returns the message of the parser, for errors that it finds and that have no words of ours.
    fn message_of_parser(&self) -> String {
        let text = self.error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        text.split("\n\n").next().unwrap_or(text).trim_end().to_owned()
    }
}

/// Joins names as a person would.
pub(crate) fn in_words(names: &[impl AsRef<str>], conjunction: &str) -> String {
    let names: Vec<String> = names.iter().map(|name| quoted(name.as_ref())).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} {conjunction} {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn each_mistake_says_what_to_type() {
        for (typed, message) in [
            ("list foo", "unexpected argument `foo`"),
            ("fork", "missing `<SESSION>`"),
            ("search x --since 1h --since 2h", "`--since <TIME>` can be given only once"),
            ("rename", "missing `<SESSION>` and `<NAME>`"),
            ("run --permision edit x", "unexpected argument `--permision`"),
            ("run fix the bug", "unexpected argument `the`"),
            (
                "run --permission write x",
                "`write` is not a value of `--permission <LEVEL>`: it takes `read`, `edit` or `all`",
            ),
            (
                "run --timeout abc x",
                "`abc` is not a value of `--timeout <SECONDS>`: not a number of seconds above 0",
            ),
            ("run -a", "`--agent <AGENT>` needs a value"),
            ("run -c -s S1 x", "`--continue` cannot be used with `--session <SESSION>`"),
            ("shw", "no command `shw`"),
            ("-c x", "`-c` is an option of `azureal run`"),
            ("-p x", "no option `-p`"),
            ("--jsn list", "unexpected argument `--jsn`"),
        ] {
            let arguments: Vec<OsString> =
                ["azureal"].into_iter().chain(typed.split(' ')).map(OsString::from).collect();
            let error = Cli::try_parse_from(&arguments).err().unwrap();
            assert_eq!(usage_error(&error, &arguments).message(), message, "{typed}");
        }
    }

    #[test]
    fn names_are_joined() {
        assert_eq!(in_words(&[""; 0], "or"), "");
        assert_eq!(in_words(&["a"], "or"), "`a`");
        assert_eq!(in_words(&["a", "b", "c"], "or"), "`a`, `b` or `c`");
    }
}
