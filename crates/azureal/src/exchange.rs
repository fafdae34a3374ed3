//! Import, export and copy of sessions. Their errors become an [`Error`] here, so that every front end has the same kinds,
//! messages and hints.

use std::io;

pub use azureal_exchange::*;

use crate::error::{Error, shown};
use crate::project;

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
            ExportError::File { ref path, ref source } => {
                let described = Self::file(path, source);
                match path.parent().filter(|_| source.kind() == io::ErrorKind::NotFound) {
                    Some(folder) => described.with_hint(format!("create the folder {} first", shown(folder))),
                    None => described,
                }
            }
            ExportError::Exists { .. } => Self::refused("exists", error.to_string())
                .with_hint("`--force` replaces it; nothing was written"),
            ExportError::NotAPlainFile { .. } => {
                Self::refused("exists", error.to_string()).with_hint("name another file with `-o`")
            }
            ExportError::NoMessages { .. } => {
                Self::new("empty", error.to_string()).with_hint("`azureal run` adds a turn to it")
            }
            _ => Self::new("output", error.to_string()),
        };
        described.with_source(error)
    }
}

impl From<ImportError> for Error {
    fn from(error: ImportError) -> Self {
        let error = match error {
            ImportError::Store(error) => return error.into(),
            error => error,
        };
        let message = error.to_string();
        let described = match &error {
            ImportError::File { path, source } => Self::file(path, source),
            ImportError::NotAPlainFile { .. }
            | ImportError::Empty { .. }
            | ImportError::NoMessages { .. } => Self::new("not_recognised", message),
            ImportError::UnknownFormat { .. } => {
                Self::new("not_recognised", message).with_hint("`azureal import --help` lists them")
            }
            ImportError::NotJson { .. } => Self::new("not_recognised", message)
                .with_hint("`azureal import --help` lists the formats that it knows"),
            ImportError::NothingInFolder { path } => {
                let store = path.join(project::STORE);
                Self::new("not_recognised", message).with_hint(match store.is_file() {
                    true => format!("`azureal import {}` imports its store", shown(&store)),
                    false => "`azureal import --help` lists what can be".to_owned(),
                })
            }
            ImportError::Truncated { .. } => Self::new("broken", message)
                .with_hint("nothing of it was imported; get a whole copy of the file"),
            ImportError::Event(_) => Self::new("broken", message),
            ImportError::TooLarge { .. } => Self::new("too_large", message)
                .with_hint("`azureal copy` has no such limit, between two stores"),
            ImportError::NewerVersion { .. } => {
                Self::new("newer", message).with_hint("use a newer azureal; nothing was imported")
            }
            ImportError::UnsafeCompanion { .. } => {
                Self::refused("unsafe", message).with_hint("remove it; nothing was read")
            }
            ImportError::NoRoom { .. } => {
                Self::new("full", message).with_hint("name a folder with more room: `TMPDIR=DIR azureal …`")
            }
            ImportError::OwnStore { .. } => {
                Self::new("same_store", message).with_hint("`--store` names another one to import into")
            }
            ImportError::EventsRemoved => {
                Self::new("conflict", message).with_hint("do it again; nothing is there twice")
            }
            ImportError::KeepsChanging { .. } => {
                Self::new("conflict", message).with_hint("import it again; nothing of it is there twice")
            }
            ImportError::Json(_) => Self::new("output", message),
            ImportError::Differs { id, .. } => Self::new("differs", message)
                .with_hint(format!("delete {id} where it was copied to, and copy it again")),
            ImportError::ImportStopped | ImportError::CopyStopped => {
                Self::cancelled(message).with_hint("run the command again to continue where it stopped")
            }
            _ => Self::new("import", message),
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

    #[test]
    fn an_import_error_has_a_kind_a_hint_and_its_cause() {
        let not_json = serde_json::from_str::<()>("x").unwrap_err();
        let error = Error::from(ImportError::NotJson { path: "a".into(), source: not_json });
        assert_eq!(error.kind(), "not_recognised");
        assert_eq!(error.hint(), Some("`azureal import --help` lists the formats that it knows"));
        assert!(root(&error).downcast_ref::<serde_json::Error>().is_some());
        let missing = io::Error::from_raw_os_error(2);
        let error = Error::from(ImportError::File { path: "a".into(), source: missing });
        assert_eq!((error.kind(), error.message()), ("not_found", "a: no such file or directory"));
        assert!(root(&error).downcast_ref::<io::Error>().is_some());
        assert_eq!(Error::from(ImportError::CopyStopped).category(), Category::Cancelled);
        let error = Error::from(ImportError::UnsafeCompanion { path: "a-wal".into() });
        assert_eq!((error.category(), error.message()), (Category::Refused, "`a-wal` is not a plain file"));
    }
}
