//! Sessions on their way out, one file per format.

mod axio;
mod cllm;
pub(crate) mod json;
mod markdown;

use std::io::Write;

use azureal_core::{Event, SessionId, SessionRecord, SessionStore};
use clap::ValueEnum;

use crate::damage::Damaged;
use crate::failure::Failure;
use azureal_core::{EventRange, each_page};

/// What a session is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// All of it, exactly; `azureal import` reads it back
    Json,
    /// For people
    Markdown,
    /// A conversation of cllm; tool calls become text
    Cllm,
    /// A list of messages as axio writes them
    Axio,
}

impl Format {
    /// Writes a session.
    pub(crate) async fn write(
        self,
        store: &dyn SessionStore,
        record: &SessionRecord,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        match self {
            Self::Json => json::write(store, record, out).await,
            Self::Markdown => markdown::write(store, record, out).await,
            Self::Cllm => cllm::write(store, record, out).await,
            Self::Axio => axio::write(store, record, out).await,
        }
    }
}

/// Reads events one by one. In the place of one that cannot be read stands an error, so that a history with
/// a hole in it does not pass for a whole one; it is told on standard error too.
async fn each_event(
    store: &dyn SessionStore,
    id: SessionId,
    mut take: impl FnMut(Event) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut damaged = Damaged::default();
    each_page(store, id, EventRange::All, |page| {
        for stored in &page {
            take(stored.event().unwrap_or_else(|damage| {
                damaged.note(stored, &damage.to_string());
                Event::error("damaged", format!("event {} cannot be read: {damage}", stored.seq))
            }))?;
        }
        Ok::<(), Failure>(())
    })
    .await?;
    damaged.report(id);
    Ok(())
}
