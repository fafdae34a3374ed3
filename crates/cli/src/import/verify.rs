//! The proof of a copy: both sides read again, and compared.

use azureal_core::{Compaction, SessionId, SessionRecord, SessionStore};

use super::arrive::{Outcome, summaries};
use super::lookup::stored_beginning;
use super::{Arrival, Identity};
use crate::failure::Failure;
use crate::output::counted;

/// Compares a session that a copy has just created with its origin, in everything but its number and events. A session without
/// a name is named by its number, and the memory store keeps no times.
pub(crate) async fn verify_record(
    store: &dyn SessionStore,
    arrival: &Arrival,
    from: &SessionRecord,
    outcome: Outcome,
) -> Result<(), Failure> {
    let id = outcome.session();
    let to = store.get(id).await?;
    let known = store.compactions(id).await?;
    let times = |time: &str, other: &str| time.is_empty() || other.is_empty() || time == other;
    let wanted = summaries(arrival);
    let same_facts = wanted.iter().all(|summary| {
        known.iter().find(|known| known.after_seq == summary.after_seq).is_some_and(|known| {
            let Compaction { created_at, writer, opening_chars, .. } = known;
            times(&summary.created_at, created_at)
                && (&summary.writer, &summary.opening_chars) == (writer, opening_chars)
        })
    });
    let Identity { uuid, forked_from, .. } = arrival.identity;
    let same_identity = match outcome {
        Outcome::Forked(..) => to.forked_from == uuid,
        _ => (uuid.is_none() || to.uuid == uuid) && to.forked_from == forked_from,
    };
    let differences = [
        ("identity", same_identity),
        ("name", arrival.name == to.has_own_name().then(|| to.name.clone())),
        ("worktree", from.worktree == to.worktree),
        ("time", times(&from.created_at, &to.created_at)),
        ("last outcome", from.completed == to.completed),
        ("duration", from.duration_ms == to.duration_ms),
        ("cost", (from.cost_usd - to.cost_usd).abs() <= f64::EPSILON * from.cost_usd.abs()),
        ("tokens", from.tokens == to.tokens),
        ("author, size or time of a summary", same_facts),
    ];
    match differences.iter().find(|(_, is_same)| !is_same) {
        Some((what, _)) => Err(Failure::new(
            "differs",
            format!("{id} differs from {}: it has another {what}", arrival.source),
        )
        .with_hint(format!("delete {id} where it was copied to, and copy it again"))),
        None => Ok(()),
    }
}

/// Says whether a session holds what arrived: as many events with the same hash over their texts, and the
/// summaries. What the session has gained since by itself is its own.
pub(crate) async fn verify(
    store: &dyn SessionStore,
    arrival: &Arrival,
    id: SessionId,
) -> Result<(), Failure> {
    let differs = |what: &str| {
        Err(Failure::new("differs", format!("{id} differs from {}: {what}", arrival.source))
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
