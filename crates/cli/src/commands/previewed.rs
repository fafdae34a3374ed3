//! Events with their full form, for previews.

use azureal::Workspace;
use azureal_core::{Page, Seq, SessionId, StoredEvent};
use azureal_engine::{FullEvent, FullEvents};

use crate::failure::Failure;

/// The number of events that are read at a time: full events can be large.
const PAGE: usize = 64;
/// The largest original that is read for previews, in bytes of the store. A larger one takes too long: its events are shown as stored.
const LARGEST_ORIGINAL: u64 = 8 << 20;
/// The field that a shortened event has.
const SHORT: &str = "\"omitted\"";

/// Reads the events after one, a page at a time. Shortened tool calls and results have their full form, where it is found.
pub(super) async fn each_previewed_page(
    place: &Workspace,
    session: SessionId,
    mut after: Seq,
    mut take: impl FnMut(Vec<StoredEvent>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut full_events = place.full_events(session).await?;
    loop {
        let mut page = place.store.read(session, Page::After(after, PAGE)).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq;
        for stored in &mut page {
            expand(&mut full_events, stored).await?;
        }
        take(page)?;
    }
}

/// Gives events their full form, where it is found.
pub(super) async fn expand_all(
    place: &Workspace,
    session: SessionId,
    events: &mut [StoredEvent],
) -> Result<(), Failure> {
    let mut full_events = place.full_events(session).await?;
    for stored in events {
        expand(&mut full_events, stored).await?;
    }
    Ok(())
}

/// Gives an event its full form, if it is short and the original of its turn is at hand.
async fn expand(full_events: &mut FullEvents, stored: &mut StoredEvent) -> Result<(), Failure> {
    if !stored.json.as_ref().is_ok_and(|json| json.contains(SHORT)) {
        return Ok(());
    }
    let seq = stored.seq;
    let original = full_events.originals().iter().find(|original| original.covers(seq));
    if original.is_none_or(|original| original.bytes > LARGEST_ORIGINAL) {
        return Ok(());
    }
    // Otherwise it is shown as stored: `--full` says why.
    if let FullEvent::Found(event) = full_events.full(stored).await? {
        stored.json = Ok(event.to_json());
    }
    Ok(())
}
