//! The prompt: from the command line, from standard input, or from both.
//!
//! Without an argument, and with the argument `-`, standard input is read to its end; only `-` reads from a terminal. With
//! any other argument, standard input is read if it is a file, or if it has data or ends within [`PATIENCE`]. A pipe that
//! stays open and silent for longer was only inherited.

use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};

use crate::failure::Failure;
use crate::output::{tell, warn};

/// How long a program in front of the pipe may take to say its first word when there is an argument.
const PATIENCE: Duration = Duration::from_millis(300);

/// What a prompt may have, in bytes: as much as any agent takes. However it is escaped, a store takes it too.
const LARGEST: usize = 10 << 20;

/// The argument that means standard input.
const STDIN: &str = "-";

/// Joins the argument and standard input, which becomes a block of its own after it.
pub(crate) fn gather(argument: Option<&str>) -> Result<String, Failure> {
    let wanted = argument == Some(STDIN);
    let argument = argument.filter(|argument| !wanted && !argument.trim().is_empty());
    let piped = match (wanted, argument) {
        (false, Some(_)) => read_stdin_if_ready()?,
        (false, None) if io::stdin().is_terminal() => String::new(),
        (true, _) | (false, None) => read_stdin()?,
    };
    let prompt = join(argument, &piped).ok_or_else(|| {
        Failure::usage("no prompt")
            .with_hint("write it as in `azureal run \"What does this do?\"`, or send it on standard input")
    })?;
    if prompt.len() > LARGEST {
        return Err(Failure::new("too_long", format!("the prompt is longer than {} MiB", LARGEST >> 20))
            .with_hint("name the file in the prompt instead, so that the agent reads what it needs"));
    }
    Ok(prompt)
}

/// The end of the last line belongs to the pipe, not to what was said.
fn join(argument: Option<&str>, piped: &str) -> Option<String> {
    let piped = piped.trim_end_matches(['\n', '\r']);
    let piped = (!piped.trim().is_empty()).then_some(piped);
    match (argument, piped) {
        (Some(argument), Some(piped)) => Some(format!("{argument}\n\n{piped}")),
        (Some(text), None) | (None, Some(text)) => Some(text.to_owned()),
        (None, None) => None,
    }
}

/// Reads standard input unless it is a terminal, or a pipe that nobody writes to.
fn read_stdin_if_ready() -> Result<String, Failure> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Ok(String::new());
    }
    if !is_file(&stdin) && !speaks_within(&stdin, PATIENCE) {
        tell("standard input is open and silent, so it is not read");
        return Ok(String::new());
    }
    read_stdin()
}

fn read_stdin() -> Result<String, Failure> {
    let stdin = io::stdin();
    let mut bytes = Vec::new();
    stdin
        .lock()
        // One more than there may be, so that it is seen to be too long.
        .take(LARGEST as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::new("input", format!("standard input cannot be read: {error}")))?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| {
        warn("standard input is not all UTF-8; what is not was replaced by \u{fffd}");
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    }))
}

fn is_file(input: &impl AsFd) -> bool {
    fstat(input).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file())
}

/// Says whether there is something to read, be it the end.
fn speaks_within(input: &impl AsFd, patience: Duration) -> bool {
    let Ok(timeout) = Timespec::try_from(patience) else { return false };
    let mut watched = [PollFd::new(input, PollFlags::IN)];
    // What cannot be asked can only be read.
    poll(&mut watched, Some(&timeout)).map_or(true, |ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn argument_and_input_are_blocks() {
        for (argument, piped, prompt) in [
            (Some("a"), "", Some("a")),
            (Some("a"), "\n", Some("a")),
            (Some("a"), "b\nc\n", Some("a\n\nb\nc")),
            (None, "  b\r\n", Some("  b")),
            (None, " \n", None),
            (None, "", None),
        ] {
            assert_eq!(join(argument, piped).as_deref(), prompt);
        }
    }

    #[test]
    fn only_what_speaks_is_read() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert!(!speaks_within(&reader, Duration::from_millis(10)));
        writer.write_all(b"x").unwrap();
        assert!(speaks_within(&reader, Duration::from_millis(10)));
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        assert!(speaks_within(&reader, Duration::from_millis(10)), "it has ended");
    }
}
