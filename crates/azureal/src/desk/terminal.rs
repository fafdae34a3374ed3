//! Programs that use the terminal: the user's editor and pager, and the own interface of an agent.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus};

use azureal_core::{Seq, SessionId};
use tempfile::NamedTempFile;

use super::ReadWith;
use super::shared::Shared;
use crate::error::{Error, shown};

/// The longest text that is taken back from an editor, in bytes: the longest prompt.
const LONGEST_TEXT: u64 = 10 << 20;
/// Starts a program. What it prints when it fails is gone with the screen, so the user says when it is read.
const START_AND_WAIT: &str = r#""$@" || { printf '\n%s' 'Press Enter to return to azureal. ' > /dev/tty; read -r answer < /dev/tty; }"#;
/// The exit status of a shell that finds no such command.
const NOT_FOUND: i32 = 127;

impl Shared {
    /// Opens a text in the pager.
    pub(super) fn look_at_text(&self, text: &str) -> Result<(), Error> {
        self.look_at(".md", |out| out.write_all(text.as_bytes()))
    }

    /// Opens a text in the user's editor. Returns the new text, if it was changed. If something is wrong with it or with the editor, the
    /// error names the file, which is kept, and the text is what can be read of it.
    pub(super) fn edit(&self, text: &str) -> (Option<String>, Option<Error>) {
        let file = self.temporary(".md", |file| file.write_all(text.as_bytes()).map_err(Error::from_io));
        let file = match file {
            Ok(file) => file,
            Err(error) => return (None, Some(error)),
        };
        let program = self.editor();
        let status = self.run(&program, file.path());
        let left = read_back(file.path());
        if left.as_ref().is_ok_and(|left| left == text.as_bytes()) {
            return (None, status.err());
        }
        let mut edited = left.as_ref().ok().map(|left| String::from_utf8_lossy(left).into_owned());
        // Editors end the last line.
        if let Some(edited) = edited.as_mut().filter(|edited| edited.ends_with('\n') && !text.ends_with('\n'))
        {
            edited.pop();
        }
        let edited = edited.filter(|edited| edited != text);
        let problem = match (status, &left) {
            (Err(error), _) => error.message().to_owned(),
            (Ok(status), _) if !status.success() => {
                format!("`{}` ended with {status}", program.to_string_lossy())
            }
            (_, Err(error)) => error.message().to_owned(),
            (_, Ok(left)) if std::str::from_utf8(left).is_err() => "the edited text is not UTF-8".to_owned(),
            _ => return (edited, None),
        };
        let message = match file.into_temp_path().keep() {
            Ok(path) => format!("your text is kept as {}: {problem}", shown(&path)),
            Err(error) => format!("{problem}; its file cannot be kept: {}", error.error),
        };
        (edited, Some(Error::new("editor", message)))
    }

    /// Shows a whole session as text. A pager that can begins at an event, or at the end.
    pub(super) fn read(&self, session: SessionId, at: Option<Seq>, with: ReadWith) -> Result<(), Error> {
        let mut line = None;
        let file = self.temporary(".md", |file| {
            let mut out = BufWriter::new(file);
            line = self.write_text(session, at, &mut out)?;
            out.flush().map_err(Error::from_io)
        })?;
        let program = match with {
            ReadWith::Editor => self.editor(),
            ReadWith::Pager => at_line(self.pager(), line),
        };
        self.run(&program, file.path()).map(drop)
    }

    /// Opens a session in the own interface of its agent. `azureal open` does it, as it shares the terminal with the program until it ends.
    pub(super) fn open_in_agent(&self, session: SessionId) -> Result<(), Error> {
        let environment = self.workspace.environment();
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(START_AND_WAIT).arg("sh");
        command.arg(environment.own_program()?).arg("open").arg(session.to_string());
        command.env_clear().envs(environment.variables());
        // Arguments are visible to every user of the machine, and an address may have a password.
        command.envs(self.workspace.store_for_child().map(|store| ("AZUREAL_STORE", store)));
        command.current_dir(self.workspace.project.directory());
        let failed = |error| Error::new("not_started", format!("azureal could not be started: {error}"));
        command.status().map(drop).map_err(failed)
    }

    /// Shows a text in the pager. The suffix of its file says what it is.
    pub(super) fn look_at(
        &self,
        suffix: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Error> {
        let file = self.temporary(suffix, |file| {
            let mut out = BufWriter::new(file);
            write(&mut out).and_then(|()| out.flush()).map_err(Error::from_io)
        })?;
        self.run(&self.pager(), file.path()).map(drop)
    }

    /// Writes a file that only the user can read. Dropped, it is deleted.
    fn temporary(
        &self,
        suffix: &str,
        write: impl FnOnce(&mut File) -> Result<(), Error>,
    ) -> Result<NamedTempFile, Error> {
        let folder = self.workspace.environment().temporary();
        let file = tempfile::Builder::new().prefix("azureal-").suffix(suffix).tempfile_in(&folder);
        let mut file = file.map_err(|error| Error::file(&folder, &error))?;
        write(file.as_file_mut())?;
        Ok(file)
    }

    fn editor(&self) -> OsString {
        self.variable(&["VISUAL", "EDITOR"], "vi")
    }

    fn pager(&self) -> OsString {
        self.variable(&["PAGER"], "less")
    }

    fn variable(&self, names: &[&str], otherwise: &str) -> OsString {
        let environment = self.workspace.environment();
        let named = names.iter().find_map(|name| environment.value(name));
        named.unwrap_or(OsStr::new(otherwise)).to_owned()
    }

    /// Runs a command of the user with a file, in the terminal. A shell reads the command: it may have arguments.
    fn run(&self, program: &OsStr, file: &Path) -> Result<ExitStatus, Error> {
        let mut script = program.to_owned();
        script.push(" \"$1\"");
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(script).arg("sh").arg(file);
        command.env_clear().envs(self.workspace.environment().variables());
        command.current_dir(self.workspace.project.directory());
        let program = program.to_string_lossy();
        let failed = |why: String| {
            Error::new("not_started", format!("`{program}` could not be started{why}"))
                .with_hint("`EDITOR` and `PAGER` name the programs to use")
        };
        let status = command.status().map_err(|error| failed(format!(": {error}")))?;
        if status.code() == Some(NOT_FOUND) {
            return Err(failed(String::new()));
        }
        Ok(status)
    }
}

/// Adds to the command of a pager that it begins at a line, or at the end of the text, if it is known how.
fn at_line(mut pager: OsString, line: Option<u64>) -> OsString {
    let is_less = pager
        .to_str()
        .and_then(|command| command.split_whitespace().next())
        .is_some_and(|program| Path::new(program).file_name() == Some(OsStr::new("less")));
    if is_less {
        pager.push(line.map_or_else(|| " +G".to_owned(), |line| format!(" +{line}")));
    }
    pager
}

/// Reads what the editor has left. It may have put another file in the place of ours.
fn read_back(path: &Path) -> Result<Vec<u8>, Error> {
    let read = || -> io::Result<Vec<u8>> {
        if !std::fs::symlink_metadata(path)?.is_file() {
            return Err(io::Error::other("it is no file any more"));
        }
        let mut text = Vec::new();
        File::open(path)?.take(LONGEST_TEXT + 1).read_to_end(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|error| Error::file(path, &error))?;
    if text.len() as u64 > LONGEST_TEXT {
        return Err(Error::new("too_large", "the edited text is longer than 10 MiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_begins_at_a_line_or_at_the_end() {
        for (pager, expected) in [
            ("less", "less +G"),
            (" /usr/bin/less -R", " /usr/bin/less -R +G"),
            ("more", "more"),
            ("lesspipe", "lesspipe"),
            ("bat --pager less", "bat --pager less"),
            ("", ""),
        ] {
            assert_eq!(at_line(pager.into(), None), expected);
            assert_eq!(at_line(pager.into(), Some(12)), *expected.replace("+G", "+12"));
        }
    }
}
