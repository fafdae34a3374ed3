//! Errors of SQLite and the file system, as errors of a store.

use std::path::Path;

use azureal_core::StoreError;
use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_WRITE;

use super::connection::LOCK_TIMEOUT;

/// An error inside the store, before the path of the file is added.
#[derive(Debug)]
pub(super) enum Fault {
    Sqlite(rusqlite::Error),
    Io(std::io::Error),
    Store(StoreError),
}

impl Fault {
    /// Names the file.
    pub(super) fn at(self, path: &Path) -> StoreError {
        match self {
            Self::Sqlite(error) => from_sqlite(path, error),
            Self::Io(error) => from_io(path, error),
            Self::Store(error) => error,
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Turns an error of SQLite into one that a person can act on.
pub(super) fn from_sqlite(path: &Path, error: rusqlite::Error) -> StoreError {
    let place = path.display().to_string();
    let Some(failure) = error.sqlite_error() else {
        return match error {
            // A definition or a value that must be a text or a number is none.
            rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::FromSqlConversionFailure(..) => {
                StoreError::Corrupt { place, why: error.to_string() }
            }
            _ => StoreError::Other { place, source: error.into() },
        };
    };
    match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            StoreError::Busy { place, seconds: LOCK_TIMEOUT.as_secs() }
        }
        ErrorCode::DiskFull => StoreError::Full { place },
        // The journal cannot be created: the folder is not writable for us.
        ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied => {
            StoreError::ReadOnly { place }
        }
        ErrorCode::DatabaseCorrupt => StoreError::Corrupt { place, why: error.to_string() },
        // SQLite does not say why, and a limit that is set is the likeliest reason.
        ErrorCode::SystemIoFailure
            if failure.extended_code == SQLITE_IOERR_WRITE && has_file_size_limit() =>
        {
            StoreError::Other {
                place,
                source: "it would grow beyond the limit that `ulimit -f` shows".into(),
            }
        }
        ErrorCode::NotADatabase => StoreError::NotAStore { place, why: "it is no SQLite file".to_owned() },
        _ => StoreError::Other { place, source: error.into() },
    }
}

fn has_file_size_limit() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}

/// Turns an error of the file system into one that a person can act on.
pub(super) fn from_io(path: &Path, error: std::io::Error) -> StoreError {
    let place = path.display().to_string();
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreError::Full { place },
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            StoreError::ReadOnly { place }
        }
        _ => StoreError::Other { place, source: error.into() },
    }
}

/// Returns what a user can do about an error of a file.
pub(crate) fn hint(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::Unreadable { .. } => Some("check the permissions of the file and its folder"),
        StoreError::ReadOnly { .. } => {
            Some("reading still works; check the permissions of the file and its folder")
        }
        StoreError::Unsafe { .. } => Some("make it a plain file or folder of your own; nothing was changed"),
        StoreError::UnknownDefinition { .. } => {
            Some("`sqlite3 FILE .schema` shows it; drop it there if the file is yours. Nothing was changed")
        }
        StoreError::Busy { .. } => Some("try again, or find out who holds it with `fuser`"),
        _ => None,
    }
}
