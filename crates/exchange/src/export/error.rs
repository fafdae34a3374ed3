//! Errors of an export.

use std::io;
use std::path::PathBuf;

use azureal_core::{SessionId, StoreError, io_error_text, visible_line};

/// An error of an export.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output cannot be written.
    #[error("the output cannot be written: {}", io_error_text(.0))]
    Output(#[from] io::Error),
    /// A value cannot be written as JSON.
    #[error("this cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// No session can be written in the format of this agent.
    #[error("sessions cannot be written in the format of `{agent}`")]
    NoWriter {
        /// The agent.
        agent: &'static str,
    },
    /// The session has no conversation that a program could resume.
    #[error("{session} has no messages yet")]
    NoMessages {
        /// The session.
        session: SessionId,
    },
    /// The content of a file cannot be written.
    #[error("{}: {source}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// [`Output`](Self::Output) or [`Json`](Self::Json).
        source: Box<ExportError>,
    },
    /// A file cannot be created.
    #[error("{}: {}", path.display(), io_error_text(source))]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file exists, and must not be replaced.
    #[error("{} exists already", visible_line(&path.to_string_lossy()))]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The path exists and is no plain file.
    #[error("{} exists and is not a plain file", visible_line(&path.to_string_lossy()))]
    NotAPlainFile {
        /// The path.
        path: PathBuf,
    },
}
