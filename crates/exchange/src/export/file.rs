//! Exporting to a file, which only its owner can read and which appears whole or not at all.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use azureal_core::{SessionRecord, SessionStore};
use tempfile::NamedTempFile;

use super::{ExportError, ExportOptions, Exported, export};

/// The treatment of a file that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingFile {
    /// It stays, and the export is an error.
    Keep,
    /// It is replaced, once the new file is complete.
    Replace,
}

/// Writes a session to a file that only its owner can read. Never follows a link at `path`: it may lead anywhere.
///
/// The file appears under its name when it is complete and durable. An error leaves the folder as it was.
pub async fn export_to_file(
    store: &dyn SessionStore,
    record: &SessionRecord,
    options: ExportOptions<'_>,
    path: &Path,
    existing: ExistingFile,
) -> Result<Exported, ExportError> {
    check(path, existing)?;
    let stem = path.file_stem().and_then(OsStr::to_str);
    let options = ExportOptions { conversation: options.conversation.or(stem), ..options };
    let mut file = BufWriter::new(draft_beside(path)?);
    let exported = export(store, record, options, &mut file).await.map_err(|error| match error {
        error @ (ExportError::Output(_) | ExportError::Json(_)) => {
            ExportError::Content { path: path.to_owned(), source: Box::new(error) }
        }
        error => error,
    })?;
    finish(file, path, existing)?;
    Ok(exported)
}

fn failed(path: &Path) -> impl Fn(io::Error) -> ExportError {
    |source| ExportError::File { path: path.to_owned(), source }
}

/// Returns an error if the file must not be created.
fn check(path: &Path, existing: ExistingFile) -> Result<(), ExportError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(path)(error)),
        Ok(metadata) if !metadata.is_file() => Err(ExportError::NotAPlainFile { path: path.to_owned() }),
        Ok(_) if existing == ExistingFile::Keep => Err(ExportError::Exists { path: path.to_owned() }),
        Ok(_) => Ok(()),
    }
}

/// Creates a private file in the folder of `path`.
fn draft_beside(path: &Path) -> Result<NamedTempFile, ExportError> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    NamedTempFile::with_prefix_in(".azureal-", folder.unwrap_or(Path::new("."))).map_err(failed(path))
}

/// Syncs the complete file and gives it its name.
fn finish(
    mut file: BufWriter<NamedTempFile>,
    path: &Path,
    existing: ExistingFile,
) -> Result<(), ExportError> {
    let synced = file.flush().and_then(|()| file.get_ref().as_file().sync_all());
    synced.map_err(failed(path))?;
    let draft = file.into_inner().map_err(|error| failed(path)(error.into_error()))?;
    let named = match existing {
        ExistingFile::Keep => draft.persist_noclobber(path),
        ExistingFile::Replace => draft.persist(path),
    };
    match named {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            Err(ExportError::Exists { path: path.to_owned() })
        }
        Err(error) => Err(failed(path)(error.error)),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use azureal_core::{Event, NewSession, append_events};
    use azureal_store::MemoryStore;
    use futures_executor::block_on;

    use super::super::ExportFormat;
    use super::*;

    fn session() -> (MemoryStore, SessionRecord) {
        let store = MemoryStore::default();
        let id = block_on(store.create(NewSession::default())).unwrap();
        block_on(append_events(&store, id, [Event::user("Hello")])).unwrap();
        let record = block_on(store.get(id)).unwrap();
        (store, record)
    }

    #[test]
    fn a_file_is_private_and_replaced_only_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let (store, record) = session();
        let write = |existing| {
            block_on(export_to_file(&store, &record, ExportOptions::new(ExportFormat::Json), &path, existing))
        };
        write(ExistingFile::Keep).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "mine").unwrap();
        assert!(matches!(write(ExistingFile::Keep), Err(ExportError::Exists { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        write(ExistingFile::Replace).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("Hello"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "mine").unwrap();
        symlink(&target, &link).unwrap();
        let (store, record) = session();
        let format = ExportFormat::Markdown;
        let written = block_on(export_to_file(
            &store,
            &record,
            ExportOptions::new(format),
            &link,
            ExistingFile::Replace,
        ));
        assert!(matches!(written, Err(ExportError::NotAPlainFile { .. })));
        assert_eq!(fs::read_to_string(&target).unwrap(), "mine");
    }

    #[test]
    fn an_export_can_move_to_another_thread() {
        fn check(_: impl Send) {}
        let (store, record) = session();
        check(export(&store, &record, ExportOptions::new(ExportFormat::Json), &mut Vec::new()));
    }

    #[test]
    fn an_error_of_the_system_is_the_source() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing/a.json");
        let (store, record) = session();
        let existing = ExistingFile::Keep;
        let error = block_on(export_to_file(
            &store,
            &record,
            ExportOptions::new(ExportFormat::Json),
            &path,
            existing,
        ))
        .unwrap_err();
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::NotFound));
    }
}
