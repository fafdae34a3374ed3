//! A conversation that was exported from a session and continued in another program.
//!
//! Another program keeps messages, not events, so the messages say nothing of the session that they come from. The export
//! adds a note, which the other program keeps. With it, an import adds only the new messages, to the same session.

use azureal_core::{EventRange, SessionStore, StoreError, TurnTotals, Uuid, each_page};
use serde::{Deserialize, Serialize};

use super::event_texts::{EventTexts, LogHash};
use super::{ImportError, IncomingSession};

/// The key of the note in the metadata of a conversation.
pub(crate) const NOTE: &str = "azureal";

/// The note of an export: the session, and how much of it the conversation has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExportNote {
    pub(crate) uuid: String,
    /// The number of exported events.
    pub(crate) events: usize,
    /// The number of messages that they became.
    pub(crate) messages: usize,
    /// The hash of these messages, as they were exported.
    pub(crate) hash: String,
}

impl ExportNote {
    /// Creates the note of an export, from the role and the text of each message.
    pub(crate) fn new(uuid: Uuid, events: usize, messages: &[(String, String)]) -> Self {
        Self {
            uuid: uuid.to_string(),
            events,
            messages: messages.len(),
            hash: hash(messages.iter().cloned()),
        }
    }

    /// Says whether a conversation begins with the messages of the export. A user may have changed them.
    pub(super) fn is_of(&self, messages: impl Iterator<Item = (String, String)>) -> bool {
        let mut count = 0;
        let hash = hash(messages.take(self.messages).inspect(|_| count += 1));
        count == self.messages && hash == self.hash
    }
}

fn hash(messages: impl Iterator<Item = (String, String)>) -> String {
    let mut hash = LogHash::default();
    for (role, text) in messages {
        hash.add_text(&role);
        hash.add_text(&text);
    }
    hash.text()
}

/// The continuation of a session.
#[derive(Debug, Clone)]
pub(crate) struct Continuation {
    pub(super) note: ExportNote,
    /// The texts of the events that came after the export.
    pub(super) added: Vec<String>,
}

/// Turns the conversation into the log of its session, if the store has that: the exported events, and the new ones after them.
pub(super) async fn resolve(
    store: &dyn SessionStore,
    incoming: &mut IncomingSession,
) -> Result<(), ImportError> {
    let Some(Continuation { note, added }) = incoming.identity.continuation.take() else {
        return Ok(());
    };
    let Ok(uuid) = note.uuid.parse::<Uuid>() else {
        return Ok(());
    };
    let Some(id) = store.find_uuid(uuid).await? else {
        return Ok(());
    };
    let mut texts = Vec::new();
    let read = each_page(store, id, EventRange::First(note.events), |page| {
        texts.extend(page.into_iter().filter_map(|stored| stored.json.ok()));
        Ok::<(), StoreError>(())
    });
    let record = async {
        read.await?;
        store.get(id).await
    };
    let record = match record.await {
        Err(StoreError::NoSuchSession(_)) => return Ok(()),
        record => record?,
    };
    if texts.len() != note.events {
        return Ok(());
    }
    // What was added has no outcome.
    let completed = record.completed.filter(|_| added.is_empty());
    texts.extend(added);
    incoming.texts = EventTexts::in_memory(texts);
    incoming.identity.uuid = record.uuid;
    incoming.identity.forked_from = record.forked_from;
    // The other program counts the tokens of all messages again, and nothing else.
    incoming.tokens = record.tokens;
    incoming.totals = TurnTotals { completed, duration_ms: record.duration_ms, cost_usd: record.cost_usd };
    // The messages that were exported are not imported, so what is said of them is wrong.
    incoming.problems.clear();
    Ok(())
}
