//! A session in the format of an agent's own program, which resumes it.
//!
//! The turns of the session become turns of the program, with their calls and results. What stands in front of them in the context of an
//! agent is in front of the first prompt, in the tags of a context: the system message, and for a compacted session its summary with the
//! ledger and the user's prompts. So the file stays within the window of a model.

use std::io::Write;
use std::path::Path;

use azureal_agents::native::{self, NativeConversation, NativeWriter};
use azureal_core::{
    Block, Event, EventRange, Fold, Message, Role, Seq, SessionRecord, SessionStore, Threshold, Uuid,
    build_context, build_context_prompt, normal_timestamp, read_opening_text, wrap_context,
};
use jiff::Timestamp;

use super::masking::Masking;
use super::provider::{Conversation, of_messages};
use super::{ExportError, Source, each_event_in};
use crate::DamagedEvents;

/// The answer of a turn that ended without one.
const UNANSWERED: &str = "[The turn ended without an answer.]";

/// The history of a session as the turns of an agent's own program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeHistory {
    /// When the session began; 1970 if that is not known.
    pub started: Timestamp,
    /// When it was last active.
    pub updated: Timestamp,
    /// Its name; `None` if it has none but its number.
    pub title: Option<String>,
    /// The messages.
    pub messages: Vec<Message>,
}

impl NativeHistory {
    /// Returns the conversation for a writer: under an id of the program, in a directory, with the settings of the program.
    pub fn conversation<'a>(
        &'a self,
        id: &'a str,
        cwd: &'a Path,
        settings: Option<&'a str>,
    ) -> NativeConversation<'a> {
        let Self { started, updated, title, messages } = self;
        NativeConversation {
            id,
            cwd,
            started: *started,
            updated: *updated,
            title: title.as_deref(),
            settings,
            messages,
        }
    }
}

/// Reads the history of a session, with all secrets in it. The threshold of compaction limits the parts beside a summary.
pub async fn native_history(
    store: &dyn SessionStore,
    record: &SessionRecord,
    threshold: Threshold,
) -> Result<(NativeHistory, DamagedEvents), ExportError> {
    let source = &Source { store, events: None };
    history(source, record, threshold, &mut Masking::new(None)).await
}

pub(super) async fn write(
    source: &Source<'_>,
    record: &SessionRecord,
    agent: &'static str,
    (directory, settings): (Option<&Path>, Option<&str>),
    masking: &mut Masking<'_>,
    out: &mut impl Write,
) -> Result<DamagedEvents, ExportError> {
    let writer = native::writer(agent).ok_or(ExportError::NoWriter { agent })?;
    let (history, damaged) = history(source, record, Threshold::default(), masking).await?;
    if history.messages.is_empty() {
        return Err(ExportError::NoMessages { session: record.id });
    }
    let id = native_id(writer, record);
    writer.write(&history.conversation(&id, directory.unwrap_or(Path::new("/")), settings), out)?;
    Ok(damaged)
}

/// Returns the id that an exported session has in the program of an agent: always the same one.
pub fn native_id(writer: &dyn NativeWriter, record: &SessionRecord) -> String {
    writer.session_id(record.uuid.unwrap_or_else(|| Uuid::from_u128(record.id.number().into())))
}

async fn history(
    source: &Source<'_>,
    record: &SessionRecord,
    threshold: Threshold,
    masking: &mut Masking<'_>,
) -> Result<(NativeHistory, DamagedEvents), ExportError> {
    let (opening, after) =
        read_opening_text(source.store, record.id, threshold).await?.unwrap_or((String::new(), Seq::START));
    let opening = masking.text(&opening).into_owned();
    let mut fold = Fold::default();
    let take = |_, event| {
        // Events in their full form have the whole results.
        fold.push(if source.events.is_some() { event } else { with_detail(event) });
        Ok(())
    };
    let damaged = each_event_in(source, record.id, EventRange::After(after), masking, take).await?;
    let Conversation { system, messages } = of_messages(fold.finish(), Some(UNANSWERED));
    let opening = if opening.is_empty() { build_context(Some(&system), None, &[]) } else { opening };
    let time = |text: &str| normal_timestamp(text).parse().unwrap_or_default();
    let history = NativeHistory {
        started: time(&record.created_at),
        updated: time(&record.last_active),
        title: record.has_own_name().then(|| record.name.clone()),
        messages: closed(opened(&opening, messages)),
    };
    Ok((history, damaged))
}

/// Returns an event with the part of its result that the context has.
fn with_detail(event: Event) -> Event {
    match event {
        Event::ToolResult(mut result) => {
            if let Some(detail) = result.detail.take() {
                result.content = detail;
            }
            Event::ToolResult(result)
        }
        other => other,
    }
}

/// Puts an opening in front of the first prompt.
fn opened(opening: &str, mut messages: Vec<Message>) -> Vec<Message> {
    // The user begins, so the first block is a text or a picture.
    let first = messages.first_mut().map(|message| &mut message.content);
    match first {
        Some(content) => match content.first_mut() {
            Some(Block::Text { text }) => *text = build_context_prompt(opening, text),
            _ if opening.is_empty() => {}
            _ => content.insert(0, Block::text(wrap_context(opening))),
        },
        None if opening.is_empty() => {}
        None => messages.push(Message::user(wrap_context(opening))),
    }
    messages
}

/// Ends the last turn if it has no answer. Claude Code and Gemini CLI would take it for interrupted, and add to it when they resume it.
fn closed(mut messages: Vec<Message>) -> Vec<Message> {
    if messages.last().is_some_and(|message| message.role != Role::Assistant) {
        messages.push(Message::assistant(UNANSWERED));
    }
    messages
}
