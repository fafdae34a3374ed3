//! The proof of a copy: both sides read again, and compared.

use azureal_core::{SessionId, SessionRecord, SessionStore};

use super::Arrival;
use super::arrive::{stored_beginning, summaries};
use crate::failure::Failure;
use crate::output::counted;
use crate::resolve::has_name;

/// Says whether a session that was just made by a copy is what its origin is in all but its number: what stands beside its
/// events. A session without a name has its number for one, and the memory store knows no times.
pub(crate) async fn verify_record(
    store: &dyn SessionStore,
    arrival: &Arrival,
    from: &SessionRecord,
    id: SessionId,
) -> Result<(), Failure> {
    let to = store.get(id).await?;
    let known = store.compactions(id).await?;
    let times = |time: &str, other: &str| time.is_empty() || other.is_empty() || time == other;
    let wanted = summaries(arrival);
    let same_times = wanted.iter().all(|summary| {
        let known = known.iter().find(|known| known.after_seq == summary.after_seq);
        known.is_some_and(|known| times(&summary.created_at, &known.created_at))
    });
    let name = |record: &SessionRecord| has_name(record).then(|| record.name.clone());
    let differences = [
        ("name", name(from) == name(&to)),
        ("worktree", from.worktree == to.worktree),
        ("time", times(&from.created_at, &to.created_at)),
        ("last outcome", from.completed == to.completed),
        ("duration", from.duration_ms == to.duration_ms),
        ("cost", (from.cost_usd - to.cost_usd).abs() <= f64::EPSILON * from.cost_usd.abs()),
        ("tokens", from.tokens == to.tokens),
        ("summaries' times", same_times),
    ];
    match differences.iter().find(|(_, is_same)| !is_same) {
        Some((what, _)) => Err(Failure::new(
            "differs",
            format!("{id} is not what {} is: it has another {what}", arrival.source),
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
