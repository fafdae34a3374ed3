//! Export: one module for each format.

mod anthropic;
mod axio;
mod cllm;
mod error;
mod file;
mod html;
mod inert;
mod json;
mod markdown;
mod masking;
mod native;
mod openai;
mod paired;
mod provider;
mod sequences;
mod shown;
mod tree;

use std::io::Write;
use std::path::Path;

use azureal_core::{
    Event, EventRange, EventSource, Message, Page, Redactor, Role, Seq, SessionId, SessionRecord,
    SessionStore, StoreError, StoredEvent, async_trait, each_page,
};

pub use error::ExportError;
pub use file::{ExistingFile, export_to_file};
pub use native::{NativeHistory, native_history, native_id};

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
    /// The messages of OpenAI's chat completions, as a part of the body of a request.
    OpenAi,
    /// The messages of Anthropic's API, as a part of the body of a request.
    Anthropic,
    /// One page for a browser, which needs no network and no other file.
    Html,
    /// A session of this agent's own program, such as `claude`, which resumes it: see [`azureal_agents::native::writers`].
    Native(&'static str),
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

/// How a session is exported.
#[derive(Clone, Copy)]
pub struct ExportOptions<'a> {
    /// The format.
    pub format: ExportFormat,
    /// Masks secrets; `None` exports them as they are.
    pub redactor: Option<&'a Redactor>,
    /// Where the events come from, if not from the store: in their full form.
    pub events: Option<&'a dyn EventSource>,
    /// The id of a conversation of cllm; by default the name or number of the session. cllm loads a conversation by the name of its file and
    /// saves it by its id, so both should be the same.
    pub conversation: Option<&'a str>,
    /// The directory in which an agent's own program resumes the session; by default the root.
    pub directory: Option<&'a Path>,
    /// The settings of the agent's own program, if they were read.
    pub settings: Option<&'a str>,
    /// Is called before an event is written to a Markdown document, so that the caller knows its place. A result is written with its call.
    pub on_event: Option<&'a (dyn Fn(Seq) + Sync)>,
}

impl ExportOptions<'_> {
    /// Exports what is stored, with all secrets in it.
    pub fn new(format: ExportFormat) -> Self {
        Self {
            format,
            redactor: None,
            events: None,
            conversation: None,
            directory: None,
            settings: None,
            on_event: None,
        }
    }
}

/// A store, and where the events of its sessions come from.
struct Source<'a> {
    store: &'a dyn SessionStore,
    events: Option<&'a dyn EventSource>,
}

#[async_trait]
impl EventSource for Source<'_> {
    async fn read_events(&self, id: SessionId, page: Page) -> Result<Vec<StoredEvent>, StoreError> {
        match self.events {
            Some(events) => events.read_events(id, page).await,
            None => self.store.read(id, page).await,
        }
    }
}

/// Writes a session to `out`.
pub async fn export(
    store: &dyn SessionStore,
    record: &SessionRecord,
    options: ExportOptions<'_>,
    out: &mut impl Write,
) -> Result<Exported, ExportError> {
    let mut masking = Masking::new(options.redactor);
    let record = &masking.record(record);
    let source = &Source { store, events: options.events };
    let damaged = match options.format {
        ExportFormat::Json => json::write(source, record, &mut masking, out).await,
        ExportFormat::Markdown => markdown::write(source, record, options.on_event, &mut masking, out).await,
        ExportFormat::Cllm => cllm::write(source, record, options.conversation, &mut masking, out).await,
        ExportFormat::Axio => axio::write(source, record, &mut masking, out).await,
        ExportFormat::OpenAi => openai::write(source, record, &mut masking, out).await,
        ExportFormat::Anthropic => anthropic::write(source, record, &mut masking, out).await,
        ExportFormat::Html => html::write(source, record, &mut masking, out).await,
        ExportFormat::Native(agent) => {
            let place = (options.directory, options.settings);
            native::write(source, record, agent, place, &mut masking, out).await
        }
    }?;
    Ok(Exported { damaged, masked: masking.count() })
}

/// Returns whether a message is an empty system message: all context commands of its session failed and are to be ignored. Providers refuse
/// a message without text.
fn is_empty_frame(message: &Message) -> bool {
    message.role == Role::System
        && message.content.iter().all(|block| block.as_text().is_some_and(str::is_empty))
}

/// Reads events one by one. An error event replaces each event that cannot be read, so that a reader notices the gap.
async fn each_event(
    source: &Source<'_>,
    id: SessionId,
    masking: &mut Masking<'_>,
    take: impl FnMut(Seq, Event) -> Result<(), ExportError>,
) -> Result<DamagedEvents, ExportError> {
    each_event_in(source, id, EventRange::All, masking, take).await
}

/// Does the same with a part of the events.
async fn each_event_in(
    source: &Source<'_>,
    id: SessionId,
    range: EventRange,
    masking: &mut Masking<'_>,
    mut take: impl FnMut(Seq, Event) -> Result<(), ExportError>,
) -> Result<DamagedEvents, ExportError> {
    let mut damaged = DamagedEvents::default();
    each_page(source, id, range, |page| {
        for stored in &page {
            let stored = &*masking.event(stored);
            let event = stored.event().unwrap_or_else(|damage| {
                damaged.add(stored, &damage.to_string());
                Event::error("damaged", format!("event {} cannot be read: {damage}", stored.seq))
            });
            take(stored.seq, event)?;
        }
        Ok::<(), ExportError>(())
    })
    .await?;
    Ok(damaged)
}
