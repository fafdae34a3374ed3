//! Sessions on their way in and out: import, export and copy.
//!
//! The crate reads and writes formats. It never prints, asks or exits, and takes folders as arguments. Progress is reported to
//! a callback, which can stop the work. Errors are typed, and each has its cause as its source. Calls of a store do not block
//! the thread, but reading and writing of files does: an executor should poll these futures on a thread that may block.
//!
//! # Export
//!
//! [`export()`] writes a session to any writer, [`export_to_file`] to a private file that appears when it is complete.
//! An [`ExportFormat`] is for people or for another program; [`ExportFormat::Json`] has all that is stored. The JSON shapes
//! are in [`json`]. A [`Redactor`](azureal_core::Redactor) masks secrets on the way out; the store is not changed.
//!
//! # Import
//!
//! [`ImportPaths`] imports files and folders step by step. Its parts can be used alone:
//!
//! 1. [`ImportSource`] opens a file, recognises its [`ImportFormat`] and reads its sessions, one after the other.
//! 2. [`import_session()`] adds an [`IncomingSession`] to a store. It first finds out whether the store has the session, by its UUID
//!    or its origin, and then adds only what is missing. The [`ImportOutcome`] is the result. So an import can be
//!    repeated, and interrupted at any time.
//!
//! An [`IncomingSession`] has [`ImportProblem`]s: parts that cannot be imported as they are.
//!
//! A session that is exported from one store and imported into another has the same events:
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use azureal_exchange::{ExistingFile, ExportFormat, ExportOptions, ImportFormat, ImportOutcome, ImportSource};
//! use azureal_exchange::{export_to_file, import_session};
//! use azureal_store::MemoryStore;
//! use azureal_store::core::{Event, NewSession, Page, Seq, SessionStore, append_events};
//!
//! # futures_executor::block_on(async {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let store = MemoryStore::default();
//! let id = store.create(NewSession { name: Some("fix-login".into()), ..NewSession::default() }).await?;
//! append_events(&store, id, [Event::user("Hello"), Event::assistant("Hi.")]).await?;
//!
//! let file = folder.join("fix-login.json");
//! let record = store.get(id).await?;
//! export_to_file(&store, &record, ExportOptions::new(ExportFormat::Json), &file, ExistingFile::Keep).await?;
//!
//! let other = MemoryStore::default();
//! let mut source = ImportSource::open(&file, ImportFormat::Auto, &folder.join("originals"), folder).await?;
//! while let Some(session) = source.next().await {
//!     let mut session = session?;
//!     let progress = |_stored_events| ControlFlow::Continue(());
//!     let outcome = import_session(&other, "", &mut session, &progress).await?;
//!     let id = outcome.session();
//!     assert_eq!(outcome, ImportOutcome::New { id, events: 2 });
//!     assert!(session.problems().is_empty());
//!     assert_eq!(other.get(id).await?.name, "fix-login");
//!     let events = other.read(id, Page::After(Seq::START, 10)).await?;
//!     assert_eq!(events[0].event()?, Event::user("Hello"));
//!
//!     // A second import changes nothing.
//!     assert_eq!(import_session(&other, "", &mut session, &progress).await?, ImportOutcome::Unchanged { id });
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Copy
//!
//! [`copy_session`] imports a session of a [`SourceStore`] directly from store to store, then reads both sides again and compares
//! them.

mod copy;
mod damaged;
mod export;
mod identity;
mod import;
pub mod json;
mod temporary;
mod verify;

pub use copy::{CopiedSession, CopyReport, copy_session, originals_problem};
pub use damaged::DamagedEvents;
pub use export::{
    ExistingFile, ExportError, ExportFormat, ExportOptions, Exported, NativeHistory, export, export_to_file,
    native_history, native_id,
};
pub use import::{
    Added, Difference, ImportError, ImportFormat, ImportNotice, ImportOptions, ImportOutcome, ImportPaths,
    ImportProblem, ImportProgress, ImportReport, ImportSource, ImportStep, IncomingSession, LeftOut,
    NativeCandidate, NativeImport, NativeImported, NativeOutcome, NativeReady, NativeStep, SourceStore,
    StoredRuns, finish_native_run, forget_native, has_finished_native_run, import_session, native_mark,
    native_sources, recognise_native, was_deleted,
};
pub use temporary::TemporaryFolder;
