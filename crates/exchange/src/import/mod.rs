//! Import: one module for each format.
//!
//! The content of a file decides on its format, never its name. A file is only read. A database is read from a private copy,
//! because opening it in place can leave files beside it. An import reports everything that it cannot import as it
//! is, and keeps as text what azureal has no form for.

mod agent_databases;
mod axio;
mod axio_database;
mod blocks;
mod cllm;
mod continued;
mod counted;
mod database_copy;
mod error;
mod event_texts;
mod import_session;
mod incoming;
mod lookup;
mod native;
mod outcome;
mod paths;
mod problem;
mod recognise;
mod report;
mod session_json;
mod source_store;

use std::path::Path;

pub use agent_databases::{native_sources, recognise_native};
pub use error::{Difference, ImportError};
pub use import_session::{ImportProgress, import_session};
pub use incoming::IncomingSession;
pub use native::{
    LeftOut, NativeCandidate, NativeImport, NativeImported, NativeOutcome, NativeReady, NativeStep,
    StoredRuns, finish_native_run, forget_native, has_finished_native_run, native_mark, was_deleted,
};
pub use outcome::{Added, ImportOutcome};
pub use paths::{ImportOptions, ImportPaths, ImportStep};
pub use problem::{ImportNotice, ImportProblem};
pub use report::ImportReport;
pub use source_store::SourceStore;

pub(crate) use continued::{Continuation, ExportNote, NOTE};
pub(crate) use counted::Counted;
pub(crate) use import_session::summaries;
pub(crate) use lookup::{ImportNote, stored_beginning};

use axio_database::AxioSessions;
use database_copy::DatabaseCopy;
use recognise::FileContent;
use source_store::StoredSessions;

/// A format that sessions are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ImportFormat {
    /// The format that the content of the file has.
    #[default]
    Auto,
    /// A store of azureal in a file, or of the program whose format it shares (`.azs`).
    Azs,
    /// The output of [`ExportFormat::Json`](crate::ExportFormat::Json).
    Json,
    /// A conversation of cllm (`~/.cllm/conversations/*.json`).
    Cllm,
    /// A list of messages of axio as JSON, or its SQLite database.
    Axio,
}

/// The sessions of one file, read one after the other.
pub struct ImportSource(Sessions);

enum Sessions {
    One(Option<Box<IncomingSession>>),
    Stored(StoredSessions),
    Axio(Box<AxioSessions>),
}

impl ImportSource {
    /// Opens a file. A database is copied to a private folder in `temporary`; the originals of a store are read where they are, in the
    /// folder `originals`.
    pub async fn open(
        path: &Path,
        format: ImportFormat,
        originals: &Path,
        temporary: &Path,
    ) -> Result<Self, ImportError> {
        let text = match FileContent::read(path)? {
            FileContent::Database => {
                let database = DatabaseCopy::of(path, temporary)?;
                return Self::open_database(database, format, originals).await.map(Self);
            }
            FileContent::Text(text) => text,
        };
        let format = match format {
            ImportFormat::Auto => recognise::format_of(path, &text)?.format,
            format => format,
        };
        let session = match format {
            ImportFormat::Json => session_json::read(path, &text)?,
            ImportFormat::Cllm => cllm::read(path, &text)?,
            ImportFormat::Axio => axio::read(path, &text)?,
            ImportFormat::Auto | ImportFormat::Azs => return Err(recognise::unknown(path)),
        };
        Ok(Self(Sessions::One(Some(Box::new(session)))))
    }

    async fn open_database(
        database: DatabaseCopy,
        format: ImportFormat,
        originals: &Path,
    ) -> Result<Sessions, ImportError> {
        let (is_azs, is_axio) = match format {
            ImportFormat::Auto => (database.is_azs(), database.is_axio()),
            ImportFormat::Azs => (true, false),
            ImportFormat::Axio => (false, true),
            ImportFormat::Json | ImportFormat::Cllm => (false, false),
        };
        if is_azs {
            StoredSessions::open(database, originals).await.map(Sessions::Stored)
        } else if is_axio {
            AxioSessions::open(database).map(|sessions| Sessions::Axio(Box::new(sessions)))
        } else {
            Err(recognise::unknown(database.source()))
        }
    }

    /// Reads the next session; `None` at the end. After an error, the next session may still be readable.
    pub async fn next(&mut self) -> Option<Result<IncomingSession, ImportError>> {
        match &mut self.0 {
            Sessions::One(session) => session.take().map(|session| Ok(*session)),
            Sessions::Stored(sessions) => sessions.next().await,
            Sessions::Axio(sessions) => sessions.next(),
        }
    }
}
