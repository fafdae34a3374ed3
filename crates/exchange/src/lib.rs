//! Import and export of sessions.

mod damaged;
pub mod export;
pub mod identity;
pub mod json;

pub use damaged::DamagedEvents;
pub use export::{ExistingFile, ExportError, ExportFormat, export, export_to_file};
