//! Export: one module for each format.

mod axio;
mod cllm;
mod error;
mod file;
mod json;
mod markdown;
mod masking;

use std::io::Write;

use azureal_core::{Event, EventRange, Redactor, SessionId, SessionRecord, SessionStore, each_page};

pub use error::ExportError;
pub use file::{ExistingFile, export_to_file};

use self::masking::Masking;
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

/// The result of an export.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Exported {
    /// The events that cannot be read. The export has an error event in the place of each.
    pub damaged: DamagedEvents,
    /// The number of events and summaries in which a secret was masked.
    pub masked: u64,
}

/// Writes a session to `out`. Masks secrets if there is a redactor.
pub async fn export(
    store: &dyn SessionStore,
    record: &SessionRecord,
    format: ExportFormat,
    redactor: Option<&Redactor>,
    out: &mut impl Write,
) -> Result<Exported, ExportError> {
    let mut masking = Masking::new(redactor);
    let record = &masking.record(record);
    let damaged = match format {
        ExportFormat::Json => json::write(store, record, &mut masking, out).await,
        ExportFormat::Markdown => markdown::write(store, record, &mut masking, out).await,
        ExportFormat::Cllm => cllm::write(store, record, &mut masking, out).await,
        ExportFormat::Axio => axio::write(store, record, &mut masking, out).await,
    }?;
    Ok(Exported { damaged, masked: masking.count() })
}

/// Reads events one by one. An error event replaces each event that cannot be read, so that a reader notices the gap.
async fn each_event(
    store: &dyn SessionStore,
    id: SessionId,
    masking: &mut Masking<'_>,
    mut take: impl FnMut(Event) -> Result<(), ExportError>,
) -> Result<DamagedEvents, ExportError> {
    let mut damaged = DamagedEvents::default();
    each_page(store, id, EventRange::All, |page| {
        for stored in &page {
            let stored = &*masking.event(stored);
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
