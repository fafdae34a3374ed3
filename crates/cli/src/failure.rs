//! What is said when something cannot be done.
//!
//! Every error of the program becomes a [`Failure`] here: a kind for programs, what is so, what to do about
//! it, and the exit code. Nothing else prints errors.

use std::error::Error as _;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use azureal::Error;
use azureal::error::Category;
use azureal::exchange::{ExportError, ImportError};
use azureal_core::{StoreError, io_error_text, visible, visible_json, visible_line};
use serde_json::json;

use crate::output;

pub(crate) use azureal::error::quoted;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: &'static str,
    message: String,
    hint: Option<String>,
    exit: Exit,
    /// Whether the user asked for it, by the answer to a question or with Ctrl-C: then it is no error.
    is_wanted: bool,
}

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
    /// Nobody reads the output any more, which is no error of ours.
    Quiet,
    Failed,
    Usage,
    Refused,
    Cancelled,
}

impl Exit {
    fn code(self) -> u8 {
        match self {
            Self::Quiet => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Cancelled => 130,
        }
    }
}

impl Failure {
    /// Something could not be done.
    pub(crate) fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, exit: Exit::Failed, is_wanted: false }
    }

    /// The command line does not make sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::new("usage", message) }
    }

    /// Doing it would not be safe.
    pub(crate) fn refused(kind: &'static str, message: impl Into<String>) -> Self {
        Self { exit: Exit::Refused, ..Self::new(kind, message) }
    }

    /// The user has thought better of it.
    pub(crate) fn cancelled(message: impl Into<String>) -> Self {
        Self { exit: Exit::Cancelled, is_wanted: true, ..Self::new("cancelled", message) }
    }

    /// The user answered no to the question whether it is safe.
    #[must_use]
    pub(crate) fn declined(self) -> Self {
        Self { is_wanted: true, ..self }
    }

    /// A file or folder of the user's could not be read or written.
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        Error::file(path, error).into()
    }

    /// Returns whether the user answered no.
    pub(crate) fn is_declined(&self) -> bool {
        self.is_wanted && self.exit == Exit::Refused
    }

    /// Adds what can be done about it.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns what is so, without what to do about it.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns what sort of failure it is.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    #[cfg(test)]
    fn is_quiet(&self) -> bool {
        self.exit == Exit::Quiet
    }

    /// Tells the user, and returns the exit code.
    pub(crate) fn report(&self, as_json: bool) -> ExitCode {
        // Not the message: it may hold what was typed.
        tracing::info!(kind = self.kind, exit = self.exit.code(), "the command failed");
        let text = if as_json {
            let error = json!({"kind": self.kind, "message": self.message, "hint": self.hint});
            visible_json(&json!({ "error": error }).to_string()).into_owned()
        } else {
            let mut text = match self.is_wanted {
                true => self.text(),
                false => format!("{} {}", output::alarm("error:"), self.text()),
            };
            if let Some(hint) = &self.hint {
                text.push_str(&format!("\n{} {}", output::emphasis("hint:"), set_in(hint)));
            }
            text
        };
        if self.exit != Exit::Quiet {
            output::tell(&text);
        }
        ExitCode::from(self.exit.code())
    }

    /// Returns the message for people. It is one line, so that the name of a file cannot pass for a message of
    /// ours; only what is said of a command line has more, each of them set in.
    fn text(&self) -> String {
        if self.exit == Exit::Usage {
            return set_in(&self.message);
        }
        visible_line(&self.message).into_owned()
    }
}

/// Returns a text of several lines as it is shown, all but the first set in.
fn set_in(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    visible(&lines.join("\n  ")).into_owned()
}

/// Returns the error of a store behind an error of the library.
fn stored(error: &Error) -> Option<&StoreError> {
    error.source()?.downcast_ref()
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            kind: error.kind(),
            message: error.message().to_owned(),
            hint: error.hint().or_else(|| hint_of_command(stored(&error)?)).map(str::to_owned),
            is_wanted: error.category() == Category::Cancelled,
            exit: match error.category() {
                Category::Usage => Exit::Usage,
                Category::Refused => Exit::Refused,
                Category::Cancelled => Exit::Cancelled,
                Category::OutputClosed => Exit::Quiet,
                _ => Exit::Failed,
            },
        }
    }
}

/// Returns what a user of this program can do about the error of a store, whichever store it is.
fn hint_of_command(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::NoSuchSession(_) => Some("`azureal list --all` shows what is there"),
        StoreError::NoSuchEvent { .. } => Some("`azureal show --json` shows the events with their numbers"),
        StoreError::Moved { .. } | StoreError::Marked(_) | StoreError::Fenced(_) => {
            Some("look at it again; nothing was changed")
        }
        StoreError::TooLarge { .. } => Some("split the text; nothing was stored"),
        StoreError::UnusableName(_) => {
            Some("a name must not be empty nor look like a session's number, such as S3")
        }
        StoreError::NotAStore { .. } => {
            Some("name another file with `--store`, or move this one away; nothing was changed")
        }
        StoreError::Corrupt { .. } => {
            Some("`azureal doctor --fix` saves every row that can be read; name another file with `--store`")
        }
        StoreError::NumbersUsedUp => {
            Some("`azureal copy --to NEW.azs` copies the sessions to a store that has")
        }
        _ => None,
    }
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Self {
        Error::from(error).into()
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        Error::from(error).into()
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Error::from(error).into()
    }
}

/// The only errors that come without a path are those of writing to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { exit: Exit::Quiet, ..Self::new("closed", "the output was closed") };
        }
        Self::new("output", format!("the output cannot be written: {}", io_error_text(&error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_words_are_made_ours() {
        let error = io::Error::from_raw_os_error(2);
        let failure = Failure::file(Path::new("a/b"), &error);
        assert_eq!((failure.kind, failure.message()), ("not_found", "a/b: no such file or directory"));
    }

    #[test]
    fn a_message_cannot_begin_another() {
        let forged = Path::new("a\nerror: all is lost");
        let failure = Failure::file(forged, &io::Error::from_raw_os_error(2));
        assert_eq!(failure.text(), "a\u{240a}error: all is lost: no such file or directory");
        assert_eq!(Failure::usage("a\nb\n  c").text(), "a\n  b\n  c");
    }

    #[test]
    fn exit_codes_are_those_of_the_manual() {
        assert_eq!(Failure::new("x", "").exit.code(), 1);
        assert_eq!(Failure::usage("").exit.code(), 2);
        assert_eq!(Failure::refused("x", "").exit.code(), 3);
        assert_eq!(Failure::cancelled("").exit.code(), 130);
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        assert!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).is_quiet());
        assert!(!Failure::from(io::Error::from(io::ErrorKind::StorageFull)).is_quiet());
    }
}
