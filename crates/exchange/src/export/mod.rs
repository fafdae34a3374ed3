//! Export: one module for each format.

mod axio;
mod cllm;
mod error;
mod file;
mod json;
mod markdown;

use std::io::Write;

use azureal_core::{Event, EventRange, SessionId, SessionRecord, SessionStore, each_page};

pub use error::ExportError;
pub use file::{ExistingFile, export_to_file};

use crate::DamagedEvents;

/// A format that sessions are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExportFormat {
    /// All that is stored, exactly. An import reads it back.
    Json,
    /// A document for people.
    Markdown,
    /// A conversation of cllm. Tool calls become text.
    Cllm,
    /// A list of messages, as axio writes it.
    Axio,
}

/// Writes a session to `out`.
///
/// An export contains an error event in the place of each event that cannot be read. Those events are returned.
pub async fn export(
    store: &dyn SessionStore,
    record: &SessionRecord,
    format: ExportFormat,
    out: &mut impl Write,
) -> Result<DamagedEvents, ExportError> {
    match format {
        ExportFormat::Json => json::write(store, record, out).await,
        ExportFormat::Markdown => markdown::write(store, record, out).await,
        ExportFormat::Cllm => cllm::write(store, record, out).await,
        ExportFormat::Axio => axio::write(store, record, out).await,
    }
}

/// Reads events one by one. An error event replaces each event that cannot be read, so that a reader notices the gap.
async fn each_event(
    store: &dyn SessionStore,
    id: SessionId,
    mut take: impl FnMut(Event) -> Result<(), ExportError>,
) -> Result<DamagedEvents, ExportError> {
    let mut damaged = DamagedEvents::default();
    each_page(store, id, EventRange::All, |page| {
        for stored in &page {
            take(stored.event().unwrap_or_else(|damage| {
                damaged.add(stored, &damage.to_string());
                Event::error("damaged", format!("event {} cannot be read: {damage}", stored.seq))
            }))?;
        }
        Ok::<(), ExportError>(())
    })
    .await?;
    Ok(damaged)
}
