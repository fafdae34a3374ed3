//! The state of a session when a turn begins, read in few calls: on a server each is a round trip.

use crate::session_context::{BEGINNING, decode, each_event_from, is_message, is_system, read_context_with};
use crate::{
    Beginning, Compaction, Context, ContextBuilder, Event, LedgerCache, PAGE_EVENTS, Page, Seq, SessionId,
    SessionRecord, SessionStore, StoreError, StoredEvent, Tally, Threshold, rendered_chars,
};

/// A session as a turn finds it.
#[derive(Debug, Clone)]
pub struct SessionSnapshot {
    /// The record.
    pub record: SessionRecord,
    /// Whether it has a system message, and context in that.
    pub beginning: Beginning,
    /// The size of the system message, if the events since the last compaction begin with one.
    system_chars: u64,
    compaction: Option<Compaction>,
    first_page: Vec<StoredEvent>,
}

impl SessionSnapshot {
    /// Reads a session: two calls if it has no summary, three if it has one, one if it has no events.
    pub async fn read(store: &dyn SessionStore, id: SessionId) -> Result<Self, StoreError> {
        Self::of(store, store.get(id).await?).await
    }

    /// Does the same when the record has been read.
    pub async fn of(store: &dyn SessionStore, record: SessionRecord) -> Result<Self, StoreError> {
        let id = record.id;
        let mut snapshot = Self {
            beginning: Beginning::Nothing,
            system_chars: 0,
            compaction: None,
            first_page: Vec::new(),
            record,
        };
        if snapshot.record.counts.events == 0 {
            return Ok(snapshot);
        }
        // A summary has a size, or covers something, or is as good as none. So most sessions need not be asked for theirs.
        if snapshot.record.opening > 0 || snapshot.record.covered > 0 {
            snapshot.compaction = store.compactions(id).await?.pop();
        }
        let count = if snapshot.compaction.is_some() { BEGINNING } else { PAGE_EVENTS };
        let page = store.read(id, Page::After(Seq::START, count)).await?;
        let events: Vec<Event> = page.iter().take(BEGINNING).map(|stored| decode(id, stored)).collect();
        snapshot.beginning = Beginning::of(&events);
        let first = page.iter().take(BEGINNING).filter_map(|stored| stored.event().ok()).find(is_message);
        snapshot.system_chars = first.filter(is_system).map_or(0, |system| rendered_chars(&system));
        if snapshot.compaction.is_none() {
            snapshot.first_page = page;
        }
        Ok(snapshot)
    }

    /// Returns all events, if they have been read, so that a search does not read them again.
    pub fn events(&self) -> Option<&[StoredEvent]> {
        let last = self.first_page.last().map_or(0, |stored| stored.seq.0);
        (last == self.record.counts.events).then_some(&self.first_page)
    }

    /// Returns the last event that the newest summary covers; `None` without a summary.
    pub fn covered(&self) -> Option<Seq> {
        self.compaction.as_ref().map(|compaction| compaction.after_seq)
    }

    /// Returns the size of the record since the last compaction, in characters: what is compared with the
    /// [`Threshold`](crate::Threshold). The system message is sent whole at every turn, cannot be summarised, and does not
    /// count.
    pub fn record_chars(&self) -> u64 {
        let told = self.record.chars_since_compaction();
        // A summary covers the system message too.
        if self.record.covered > 0 { told } else { told.saturating_sub(self.system_chars) }
    }

    /// Reads the rest of what the next agent receives, without the tags around it, and returns all of it: see
    /// [`read_context_for`](crate::read_context_for).
    pub async fn context(
        &mut self,
        store: &dyn SessionStore,
        threshold: Threshold,
        cache: Option<&dyn LedgerCache>,
    ) -> Result<Context, StoreError> {
        let id = self.record.id;
        if self.compaction.is_some() {
            let cache = cache.map(|cache| (cache, &self.record));
            return read_context_with(store, id, self.compaction.as_ref(), threshold, cache).await;
        }
        let mut context = ContextBuilder::new(None, None);
        let mut first = std::mem::take(&mut self.first_page);
        if first.is_empty() {
            first = store.read(id, Page::After(Seq::START, PAGE_EVENTS)).await?;
        }
        let until = Seq(self.record.counts.events);
        each_event_from(store, id, Seq::START, first, until, |_, event| context.push(&event)).await?;
        Ok(context.finish())
    }

    /// Stores the size of the opening of a context, if another one is stored: the summary is from elsewhere, or the threshold was
    /// changed since it was written.
    pub async fn store_opening(
        &mut self,
        store: &dyn SessionStore,
        context: &Context,
    ) -> Result<(), StoreError> {
        let Some(compaction) = &mut self.compaction else { return Ok(()) };
        let chars = context.opening_chars();
        if compaction.opening_chars == Some(chars) {
            return Ok(());
        }
        compaction.opening_chars = Some(chars);
        self.record.opening = chars;
        store.add_compaction(self.record.id, compaction).await
    }

    /// Takes the first event of an empty session, which was appended just now, and returns the context.
    pub fn begin_with(&mut self, event: &Event) -> Context {
        let mut tally = Tally { counts: self.record.counts.clone(), ..Tally::default() };
        tally.add(Seq::START.next(), Some(event));
        self.record.counts = tally.counts;
        self.beginning = Beginning::of(std::slice::from_ref(event));
        self.system_chars = if is_system(event) { rendered_chars(event) } else { 0 };
        let mut context = ContextBuilder::new(None, None);
        context.push(event);
        context.finish()
    }
}
