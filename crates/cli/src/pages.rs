//! Reading a session without holding on to the store.
//!
//! In its usual mode a reader that pauses blocks every writer, so no read may be open while something is
//! printed: whoever reads our output may take all day. A page is read, then shown, then the next is read.

use azureal_core::{Page, Seq, SessionId, SessionRecord, SessionStore, StoreError, StoredEvent};

use crate::output;

/// How many events are read at a time.
pub(crate) const PAGE: usize = 512;

/// Which events are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Range {
    All,
    First(usize),
    Last(usize),
}

/// Reads events page by page and hands each page on.
pub(crate) async fn each_page<E: From<StoreError>>(
    store: &dyn SessionStore,
    id: SessionId,
    range: Range,
    mut take: impl FnMut(Vec<StoredEvent>) -> Result<(), E>,
) -> Result<(), E> {
    let mut left = match range {
        Range::All => usize::MAX,
        Range::First(count) => count,
        Range::Last(count) => {
            for page in last_pages(store, id, count).await? {
                take(page)?;
            }
            return Ok(());
        }
    };
    let mut after = Seq::START;
    while left > 0 {
        let page = store.read(id, Page::After(after, left.min(PAGE))).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        left = left.saturating_sub(page.len());
        take(page)?;
    }
    Ok(())
}

/// Reads the last events and nothing before them, as pages in their order.
async fn last_pages(
    store: &dyn SessionStore,
    id: SessionId,
    count: usize,
) -> Result<Vec<Vec<StoredEvent>>, StoreError> {
    let (mut pages, mut before, mut left) = (Vec::new(), Seq::END, count);
    while left > 0 {
        let page = store.read(id, Page::Before(before, left.min(PAGE))).await?;
        let Some(first) = page.first() else { break };
        before = first.seq;
        left = left.saturating_sub(page.len());
        pages.push(page);
    }
    pages.reverse();
    Ok(pages)
}

/// Keeps count of events that cannot be read, to tell of them at the end.
#[derive(Debug, Default)]
pub(crate) struct Damaged {
    count: u64,
    first: Option<String>,
}

impl Damaged {
    pub(crate) fn note(&mut self, stored: &StoredEvent, why: &str) {
        self.count += 1;
        self.first.get_or_insert_with(|| format!("event {} ({}): {why}", stored.seq, stored.kind));
    }

    /// Tells of them on standard error.
    pub(crate) fn report(&self, id: SessionId) {
        let Some(first) = &self.first else { return };
        output::warn(&match self.count {
            1 => format!("one event of {id} cannot be read: {first}"),
            count => format!("{count} events of {id} cannot be read, the first is {first}"),
        });
    }
}

/// How many damaged sessions are reported one by one.
const REPORTED: usize = 10;

/// Reports stored values of sessions that cannot be read, on standard error.
pub(crate) fn warn_of_damage(records: &[SessionRecord]) {
    let damaged: Vec<&SessionRecord> = records.iter().filter(|record| !record.damaged.is_empty()).collect();
    for record in damaged.iter().take(REPORTED) {
        let values = record.damaged.join(", ");
        output::warn(&format!("{} has values in the store that cannot be read: {values}", record.id));
    }
    if let Some(more) = damaged.len().checked_sub(REPORTED).filter(|more| *more > 0) {
        output::warn(&format!("{more} more sessions have values in the store that cannot be read"));
    }
}
