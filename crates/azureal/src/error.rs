//! Errors of the library.

use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;

use azureal_core::{StoreError, io_error_text, visible_line};

pub use azureal_core::quoted;

use crate::workspace::Notice;

/// An error: its kind for programs, a message and a hint for people, and its cause.
#[derive(Debug)]
pub struct Error {
    kind: &'static str,
    category: Category,
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    notices: Vec<Notice>,
}

/// What an error says about the request. Front ends decide by it how to end: with which exit code, or with which status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Category {
    /// Something could not be done.
    Failed,
    /// The request makes no sense.
    Usage,
    /// Doing it would not be safe.
    Refused,
    /// The user cancelled it.
    Cancelled,
    /// The reader of the output has closed it.
    OutputClosed,
}

impl Error {
    /// Creates an error: something could not be done.
    pub fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            category: Category::Failed,
            message: message.into(),
            hint: None,
            source: None,
            notices: Vec::new(),
        }
    }

    /// Creates an error: the request makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { category: Category::Usage, ..Self::new("usage", message) }
    }

    /// Creates an error: doing it would not be safe.
    pub fn refused(kind: &'static str, message: impl Into<String>) -> Self {
        Self { category: Category::Refused, ..Self::new(kind, message) }
    }

    /// Creates an error: the user cancelled it.
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self { category: Category::Cancelled, ..Self::new("cancelled", message) }
    }

    /// Creates an error: the reader of the output has closed it.
    pub fn output_closed() -> Self {
        Self { category: Category::OutputClosed, ..Self::new("closed", "the output was closed") }
    }

    /// Creates an error: a file or folder could not be read or written.
    pub fn file(path: &Path, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => "not_found",
            io::ErrorKind::PermissionDenied => "permission",
            _ => "file",
        };
        let source = match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        Self::new(kind, format!("{}: {}", path.display(), io_error_text(error))).with_source(source)
    }

    /// Adds what can be done about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds what was noticed before it happened.
    #[must_use]
    pub fn with_notices(mut self, notices: Vec<Notice>) -> Self {
        self.notices = notices;
        self
    }

    /// Returns what was noticed before it happened.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// An error of a file that the user does not know.
    pub(crate) fn from_io(error: io::Error) -> Self {
        Self::new("output", error.to_string()).with_source(error)
    }

    /// Puts its subject in front of the message.
    #[must_use]
    pub fn about(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Returns the kind: a word that stays the same between versions.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns the category.
    pub fn category(&self) -> Category {
        self.category
    }

    /// Returns the message, without the hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns what can be done about it.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let category = match error {
            StoreError::Unsafe { .. }
            | StoreError::UnknownDefinition { .. }
            | StoreError::Forgetful { .. } => Category::Refused,
            _ => Category::Failed,
        };
        Self {
            kind: error.kind(),
            category,
            message: error.to_string(),
            hint: azureal_store::hint(&error).map(str::to_owned),
            source: Some(Box::new(error)),
            notices: Vec::new(),
        }
    }
}

/// Returns a path for people: on one line, whatever its name holds.
pub fn shown(path: &Path) -> String {
    visible_line(&path.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_words_are_made_ours() {
        let error = io::Error::from_raw_os_error(2);
        let error = Error::file(Path::new("a/b"), &error);
        assert_eq!((error.kind(), error.message()), ("not_found", "a/b: no such file or directory"));
    }

    #[test]
    fn an_error_has_its_cause() {
        let error = Error::file(Path::new("a"), &io::Error::from_raw_os_error(13));
        let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::PermissionDenied));
        let error = Error::from(StoreError::other("disk"));
        assert!(error.source().is_some_and(|source| source.downcast_ref::<StoreError>().is_some()));
        assert!(Error::new("x", "y").source().is_none());
    }
}
