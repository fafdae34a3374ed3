//! Import, export and copy of sessions. Their errors become an [`Error`] here, so that every front end has the same kinds,
//! messages and hints.

use std::io;

pub use azureal_exchange::*;

use crate::error::{Error, plain};

impl From<ExportError> for Error {
    fn from(error: ExportError) -> Self {
        let described = match error {
            ExportError::Store(error) => return error.into(),
            ExportError::Content { path, source } => {
                return Self::from(*source).about(&path.display().to_string());
            }
            ExportError::Output(ref source) if source.kind() == io::ErrorKind::BrokenPipe => {
                Self::output_closed()
            }
            ExportError::Output(ref source) => {
                Self::new("output", format!("the output cannot be written: {}", plain(source)))
            }
            ExportError::File { ref path, ref source } => Self::file(path, source),
            ExportError::Exists { .. } => Self::refused("exists", error.to_string())
                .with_hint("`--force` replaces it; nothing was written"),
            ExportError::NotAPlainFile { .. } => {
                Self::refused("exists", error.to_string()).with_hint("name another file with `-o`")
            }
            // [`ExportError::Json`], and what may come.
            _ => Self::new("output", error.to_string()),
        };
        described.with_source(error)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::path::PathBuf;

    use azureal_core::StoreError;

    use super::*;
    use crate::error::Category;

    /// Returns the innermost error.
    fn root(error: &Error) -> &(dyn std::error::Error + 'static) {
        let mut cause = error.source().unwrap();
        while let Some(next) = cause.source() {
            cause = next;
        }
        cause
    }

    #[test]
    fn an_export_error_has_a_kind_a_message_and_its_cause() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let content = ExportError::Content {
            path: PathBuf::from("a.json"),
            source: Box::new(ExportError::Output(full())),
        };
        for (error, kind, message) in [
            (ExportError::Output(full()), "output", "the output cannot be written: no storage space"),
            (content, "output", "a.json: the output cannot be written: no storage space"),
            (ExportError::File { path: "a".into(), source: full() }, "file", "a: no storage space"),
        ] {
            let error = Error::from(error);
            assert_eq!((error.kind(), error.message()), (kind, message));
            let cause = root(&error).downcast_ref::<io::Error>().unwrap();
            assert_eq!(cause.kind(), io::ErrorKind::StorageFull);
        }
        let error = Error::from(ExportError::from(StoreError::Closed));
        assert!(root(&error).downcast_ref::<StoreError>().is_some());
        let exists = Error::from(ExportError::Exists { path: "a\nb".into() });
        assert_eq!((exists.category(), exists.message()), (Category::Refused, "a\u{240a}b exists already"));
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let closed = Error::from(ExportError::Output(io::ErrorKind::BrokenPipe.into()));
        assert_eq!((closed.category(), closed.kind()), (Category::OutputClosed, "closed"));
    }
}
