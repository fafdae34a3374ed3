//! An event and its neighbours.

use azureal::Workspace;
use azureal_core::{Event, EventSource, Page, Seq, SessionRecord, SessionStore, StoreError, StoredEvent};

use super::previewed::expand_all;
use crate::failure::Failure;

/// The number of events before and after the one that is shown.
const NEIGHBOURS: u64 = 5;
/// The most events between a call and its result that are shown.
const CALL_DISTANCE: usize = 64;

/// The events around one.
pub(super) struct Around {
    session: azureal_core::SessionId,
    /// The event.
    pub(super) seq: Seq,
    /// The event before which the mark is: the event itself, or the call of a result.
    pub(super) marked: Seq,
    /// The event after which the neighbours begin.
    pub(super) after: Seq,
}

impl Around {
    pub(super) async fn find(
        store: &dyn SessionStore,
        record: &SessionRecord,
        seq: Seq,
    ) -> Result<Self, Failure> {
        let session = record.id;
        let page = store.read(session, Page::Before(seq.next(), CALL_DISTANCE)).await?;
        let Some(found) = page.last().filter(|found| found.seq == seq) else {
            let last = Seq(record.counts.events);
            return Err(StoreError::NoSuchEvent { session, seq, last }.into());
        };
        let call = match found.event() {
            Ok(Event::ToolResult(result)) => page.iter().rev().find(|stored| {
                matches!(stored.event(), Ok(Event::ToolCall(call)) if call.tool_use_id == result.tool_use_id)
            }),
            _ => None,
        };
        let marked = call.map_or(seq, |call| call.seq);
        let after = Seq(seq.0.saturating_sub(NEIGHBOURS + 1).min(marked.0.saturating_sub(1)));
        Ok(Self { session, seq, marked, after })
    }

    /// Reads the events: as they are stored, in their full form, or with it where it is quickly found.
    pub(super) async fn read(
        &self,
        place: &Workspace,
        is_full: bool,
        is_previewed: bool,
    ) -> Result<Vec<StoredEvent>, Failure> {
        let last = Seq(self.seq.0.saturating_add(NEIGHBOURS));
        let history = if is_full { Some(place.full_history(self.session).await?) } else { None };
        let mut events: Vec<StoredEvent> = Vec::new();
        loop {
            let after = events.last().map_or(self.after, |event| event.seq);
            let count = usize::try_from(last.0.saturating_sub(after.0)).unwrap_or(0);
            let page = Page::After(after, count);
            let page = match &history {
                _ if count == 0 => Vec::new(),
                Some(history) => history.read_events(self.session, page).await?,
                None => place.store.read(self.session, page).await?,
            };
            if page.is_empty() {
                break;
            }
            events.extend(page);
        }
        if is_previewed && !is_full {
            expand_all(place, self.session, &mut events).await?;
        }
        Ok(events)
    }
}
