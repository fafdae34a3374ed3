//! A session's events in their full form.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use azureal_core::agent::Agent;
use azureal_core::{
    Event, EventSource, Original, Page, Seq, SessionId, SessionStore, StoreError, StoredEvent, async_trait,
};
use azureal_process::Line;
use futures_util::lock::Mutex;

use crate::full_events::{FullEvent, FullEvents, each_line};

/// The number of events that are read at a time: full events can be large.
const PAGE: usize = 16;
/// The most bytes of an output that are shown in the place of an event.
const LARGEST_RAW: usize = 1 << 20;

/// The events of one session in their full form, read from a store and its originals.
///
/// A short result that cannot be found in the original of its turn is followed by the output of the turn as the agent printed it.
pub struct FullHistory {
    store: Arc<dyn SessionStore>,
    session: SessionId,
    state: Mutex<State>,
}

struct State {
    events: FullEvents,
    gaps: FullHistoryGaps,
    /// The runs whose output was shown already.
    shown: HashSet<String>,
}

/// The events whose full form was not found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FullHistoryGaps {
    /// The number of short events without an original.
    pub missing: u64,
    /// The number of short events that this version does not find in the original.
    pub unmatched: u64,
    /// Why originals cannot be read.
    pub unreadable: Vec<String>,
}

impl FullHistory {
    /// Looks for the originals of a session. `agents` parse them.
    pub async fn open(
        store: Arc<dyn SessionStore>,
        agents: &'static [&'static dyn Agent],
        session: SessionId,
    ) -> Result<Self, StoreError> {
        let events = FullEvents::open(Arc::clone(&store), agents, session).await?;
        let state = State { events, gaps: FullHistoryGaps::default(), shown: HashSet::new() };
        Ok(Self { store, session, state: Mutex::new(state) })
    }

    /// Returns the gaps of what was read so far.
    pub async fn gaps(&self) -> FullHistoryGaps {
        self.state.lock().await.gaps.clone()
    }

    async fn expand(&self, state: &mut State, stored: StoredEvent) -> Result<StoredEvent, StoreError> {
        let full = match state.events.full(&stored).await? {
            FullEvent::Stored => return Ok(stored),
            FullEvent::Found(event) => *event,
            FullEvent::Missing => {
                state.gaps.missing += 1;
                return Ok(stored);
            }
            FullEvent::Unreadable(why) => {
                if !state.gaps.unreadable.contains(&why) {
                    state.gaps.unreadable.push(why);
                }
                return Ok(stored);
            }
            FullEvent::Unmatched(original) => {
                state.gaps.unmatched += 1;
                let Ok(Event::ToolResult(mut result)) = stored.event() else { return Ok(stored) };
                if !state.shown.insert(original.run.clone()) {
                    return Ok(stored);
                }
                result.content.push_str(&self.raw(&original, stored.seq).await?);
                Event::ToolResult(result)
            }
        };
        Ok(StoredEvent { json: Ok(full.to_json()), ..stored })
    }

    /// Returns the output of a turn, and that it is not matched.
    async fn raw(&self, original: &Original, seq: Seq) -> Result<String, StoreError> {
        let mut text =
            "\n[not found in the output of the turn, which follows as the agent printed it]\n".to_owned();
        let Some(originals) = self.store.originals() else { return Ok(text) };
        let Some(content) = originals.open(self.session, &original.run).await? else { return Ok(text) };
        let session = self.session;
        each_line(content, |line| match line {
            Line::Bytes(bytes) if text.len() + bytes.len() < LARGEST_RAW => {
                text.push_str(&String::from_utf8_lossy(&bytes));
                text.push('\n');
                ControlFlow::Continue(())
            }
            Line::Bytes(_) | Line::Oversized { .. } => {
                text.push_str(&format!("[`azureal original {session} --seq {seq}` prints all of it]\n"));
                ControlFlow::Break(())
            }
        })
        .await?;
        Ok(text)
    }
}

#[async_trait]
impl EventSource for FullHistory {
    async fn read_events(&self, id: SessionId, page: Page) -> Result<Vec<StoredEvent>, StoreError> {
        let page = match page {
            Page::After(seq, count) => Page::After(seq, count.min(PAGE)),
            Page::Before(seq, count) => Page::Before(seq, count.min(PAGE)),
        };
        let mut state = self.state.lock().await;
        let mut events = Vec::new();
        for stored in self.store.read(id, page).await? {
            events.push(if id == self.session { self.expand(&mut state, stored).await? } else { stored });
        }
        Ok(events)
    }
}
