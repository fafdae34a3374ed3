//! A pager for long output: the program that the user reads with, page by page.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag::register_conditional_default;

use crate::output::warn;

/// A running pager. Dropping it waits until the user leaves it.
pub(crate) struct Pager {
    child: Child,
    /// `None` once it has everything.
    input: Option<ChildStdin>,
    /// Whether Ctrl-C is for us again.
    ended: Arc<AtomicBool>,
}

impl Pager {
    /// Starts the user's pager with our standard output. `None` if the user wants none, or if it cannot be started: then the
    /// caller prints by itself.
    pub(crate) fn start() -> Option<Self> {
        let variable = |name: &str| std::env::var_os(name);
        if variable("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
            return None;
        }
        let wanted = variable("AZUREAL_PAGER").or_else(|| variable("PAGER"));
        let mut command = match &wanted {
            None => command_line(OsStr::new("less -R"))?,
            Some(wanted) => command_line(wanted)?,
        };
        // Colours pass, what fits on the screen is printed at once, and it stays there afterwards.
        if variable("LESS").is_none() {
            command.env("LESS", "FRX");
        }
        if variable("LV").is_none() {
            command.env("LV", "-c");
        }
        // Ctrl-C is for the pager, which shares the terminal with us. We end when it does. A handler, unlike an ignored
        // signal, is not inherited.
        let ended = Arc::new(AtomicBool::new(false));
        register_conditional_default(SIGINT, Arc::clone(&ended)).ok()?;
        match command.stdin(Stdio::piped()).spawn() {
            Ok(mut child) => Some(Self { input: child.stdin.take(), child, ended }),
            Err(_) => {
                ended.store(true, Ordering::SeqCst);
                None
            }
        }
    }
}

impl io::Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.input {
            Some(input) => input.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        // That was all, so that it can end by itself.
        drop(self.input.take());
        let status = self.child.wait();
        self.ended.store(true, Ordering::SeqCst);
        if status.is_ok_and(is_not_run) {
            warn("the pager cannot be run; `--no-pager` prints without it");
        }
    }
}

/// Returns whether a shell did not find the program, or may not run it.
fn is_not_run(status: ExitStatus) -> bool {
    matches!(status.code(), Some(126 | 127))
}

/// Returns the command of a pager; `None` if it stands for no pager, or if its program is missing.
///
/// A shell runs it if it has more than words, as in `less -R | tee log`.
fn command_line(pager: &OsStr) -> Option<Command> {
    let words: Vec<&OsStr> = pager
        .as_bytes()
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .map(OsStr::from_bytes)
        .collect();
    let (program, arguments) = words.split_first()?;
    if *program == "cat" && arguments.is_empty() {
        return None;
    }
    if !program.as_bytes().iter().all(|byte| is_plain(*byte)) {
        return Some(shell(pager));
    }
    if !is_there(program) {
        return None;
    }
    if !words.iter().all(|word| word.as_bytes().iter().all(|byte| is_plain(*byte))) {
        return Some(shell(pager));
    }
    let mut command = Command::new(program);
    command.args(arguments);
    Some(command)
}

fn shell(pager: &OsStr) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(pager);
    command
}

/// Returns whether a byte has no meaning to a shell.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_./+,:@%^".contains(&byte) || byte >= 0x80
}

/// Returns whether a program is found.
fn is_there(program: &OsStr) -> bool {
    if program.as_bytes().contains(&b'/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pager_is_a_program_with_arguments_or_a_line_for_the_shell() {
        let line = |pager: &str| {
            command_line(OsStr::new(pager)).map(|command| {
                let words = std::iter::once(command.get_program()).chain(command.get_args());
                words.map(|word| word.to_str().unwrap().to_owned()).collect::<Vec<_>>()
            })
        };
        for none in
            ["", "  ", "cat", "no-such-pager-anywhere", "no-such-pager-anywhere | cat", "/nowhere/less"]
        {
            assert_eq!(line(none), None, "{none}");
        }
        assert_eq!(line("/bin/sh -x  -y").unwrap(), ["/bin/sh", "-x", "-y"]);
        for shell in ["sh -c 'cat'", "LESS=R sh", "sh | tee x", "\"my pager\"", "$HOME/pager"] {
            assert_eq!(line(shell).unwrap(), ["/bin/sh", "-c", shell]);
        }
    }
}
