//! The check of a copy: reads both sides again and compares them.

use azureal_core::{Compaction, SessionId, SessionRecord, SessionStore};

use crate::identity::{SessionIdentity, fork_note};
use crate::import::{Difference, ImportError, ImportOutcome, IncomingSession, stored_beginning, summaries};

/// Compares a session that a copy has just created with its source, in everything but its number and events. A session without
/// a name is named by its number, and the memory store keeps no times.
pub(crate) async fn verify_record(
    store: &dyn SessionStore,
    incoming: &IncomingSession,
    from: &SessionRecord,
    outcome: ImportOutcome,
) -> Result<(), ImportError> {
    let id = outcome.session();
    let to = store.get(id).await?;
    let known = store.compactions(id).await?;
    let times = |time: &str, other: &str| time.is_empty() || other.is_empty() || time == other;
    let wanted = summaries(incoming);
    let same_facts = wanted.iter().all(|summary| {
        known.iter().find(|known| known.after_seq == summary.after_seq).is_some_and(|known| {
            let Compaction { created_at, writer, opening_chars, .. } = known;
            times(&summary.created_at, created_at)
                && (&summary.writer, &summary.opening_chars) == (writer, opening_chars)
        })
    });
    let SessionIdentity { uuid, forked_from, .. } = incoming.identity;
    let same_identity = match outcome {
        ImportOutcome::Forked { .. } => to.forked_from == incoming.identity.lasting_uuid(),
        _ => (uuid.is_none() || to.uuid == uuid) && to.forked_from == forked_from,
    };
    // A fork counts the turns that no other session of its store counts, and is as old as the first of them.
    let uncounted = fork_note(store, &to).await?.unwrap_or_default().uncounted;
    let others = uncounted != incoming.identity.uncounted;
    let differences = [
        ("identity", same_identity),
        ("name", incoming.name == to.has_own_name().then(|| to.name.clone())),
        ("worktree", from.worktree == to.worktree),
        ("time", others || times(&from.created_at, &to.created_at)),
        ("last outcome", from.completed == to.completed),
        ("duration", others || from.duration_ms == to.duration_ms),
        ("cost", others || (from.cost_usd - to.cost_usd).abs() <= f64::EPSILON * from.cost_usd.abs()),
        ("tokens", others || from.tokens == to.tokens),
        ("author, size or time of a summary", same_facts),
    ];
    match differences.iter().find(|(_, is_same)| !is_same) {
        Some((value, _)) => Err(differs(id, incoming, Difference::Record(value))),
        None => Ok(()),
    }
}

fn differs(id: SessionId, incoming: &IncomingSession, difference: Difference) -> ImportError {
    ImportError::Differs { id, session: incoming.label().to_owned(), difference }
}

/// Returns an error unless a session begins with the incoming events, by number and hash, and has its summaries. It may
/// have more events.
pub(crate) async fn verify(
    store: &dyn SessionStore,
    incoming: &IncomingSession,
    id: SessionId,
) -> Result<(), ImportError> {
    let differs = |difference| Err(differs(id, incoming, difference));
    let mut reader = incoming.texts.reader();
    reader.skip_to(incoming.texts.count).await?;
    let Some(stored) = stored_beginning(store, id, incoming.texts.count).await? else {
        return differs(Difference::UnreadableEvent);
    };
    if [reader.read(), stored.count] != [incoming.texts.count; 2] {
        return differs(Difference::EventCount { copied: stored.count, source: reader.read() });
    }
    if stored.hash != reader.hash() {
        return differs(Difference::EventTexts);
    }
    let known = store.compactions(id).await?;
    let is_known = |after_seq, text: &str| {
        known.iter().any(|known| known.after_seq == after_seq && known.summary == text)
    };
    let wanted = summaries(incoming);
    match wanted.iter().find(|summary| !is_known(summary.after_seq, &summary.summary)) {
        Some(summary) => differs(Difference::Summary { events: summary.after_seq.0 }),
        None => Ok(()),
    }
}
