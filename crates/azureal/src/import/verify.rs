//! The proof of a copy: both sides read again, and compared.

use azureal_core::{SessionId, SessionStore};

use super::Arrival;
use super::arrive::{stored_beginning, summaries};
use crate::failure::Failure;
use crate::output::counted;

/// Says whether a session holds what arrived: as many events with the same hash over their texts, and the
/// summaries. What the session has gained since by itself is its own.
pub(crate) async fn verify(
    store: &dyn SessionStore,
    arrival: &Arrival,
    id: SessionId,
) -> Result<(), Failure> {
    let differs = |what: &str| {
        Err(Failure::new("differs", format!("{id} is not what {} is: {what}", arrival.source))
            .with_hint(format!("delete {id} where it was copied to, and copy it again")))
    };
    let mut reader = arrival.texts.reader();
    reader.skip_to(arrival.texts.count).await?;
    let Some(stored) = stored_beginning(store, id, arrival.texts.count).await? else {
        return differs("it has an event that cannot be read");
    };
    if [reader.read(), stored.count] != [arrival.texts.count; 2] {
        return differs(&format!("it has {} of {}", stored.count, counted(reader.read() as u64, "event")));
    }
    if stored.hash != reader.hash() {
        return differs("its events have other texts");
    }
    let known = store.compactions(id).await?;
    let is_known = |after_seq, text: &str| {
        known.iter().any(|known| known.after_seq == after_seq && known.summary == text)
    };
    let wanted = summaries(arrival);
    match wanted.iter().find(|summary| !is_known(summary.after_seq, &summary.summary)) {
        Some(summary) => {
            let events = counted(summary.after_seq.0, "event");
            differs(&format!("its summary of the first {events} is another one, or none"))
        }
        None => Ok(()),
    }
}
