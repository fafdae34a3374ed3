//! Reading a session page by page, without holding on to the store.
//!
//! A reader that pauses within a read may block every writer, so no read is open while a page is used: a page is read, then used,
//! then the next one is read.

use async_trait::async_trait;

use crate::{Page, Seq, SessionId, SessionStore, StoreError, StoredEvent};

/// A source of a session's events: a store, or one that returns them in another form.
#[async_trait]
pub trait EventSource: Send + Sync {
    /// Reads a page of events, as [`SessionStore::read`] does.
    async fn read_events(&self, id: SessionId, page: Page) -> Result<Vec<StoredEvent>, StoreError>;
}

#[async_trait]
impl<S: SessionStore + ?Sized> EventSource for S {
    async fn read_events(&self, id: SessionId, page: Page) -> Result<Vec<StoredEvent>, StoreError> {
        self.read(id, page).await
    }
}

/// The number of events that are read at a time.
pub const PAGE_EVENTS: usize = 512;

/// The events of a session that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventRange {
    /// All of them.
    All,
    /// So many from the beginning.
    First(usize),
    /// Those after this one.
    After(Seq),
}

/// Reads events page by page and hands each page on, in order.
pub async fn each_page<S: EventSource + ?Sized, E: From<StoreError>>(
    source: &S,
    id: SessionId,
    range: EventRange,
    mut take: impl FnMut(Vec<StoredEvent>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut after, mut left) = match range {
        EventRange::All => (Seq::START, usize::MAX),
        EventRange::First(count) => (Seq::START, count),
        EventRange::After(seq) => (seq, usize::MAX),
    };
    while left > 0 {
        let page = source.read_events(id, Page::After(after, left.min(PAGE_EVENTS))).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        left = left.saturating_sub(page.len());
        take(page)?;
    }
    Ok(())
}
