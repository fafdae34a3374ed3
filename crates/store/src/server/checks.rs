//! Checks and conversions before a request, for every server.

use azureal_core::{
    Compaction, NewSession, NewTurn, Page, Seq, SessionId, SessionStore, StoreError, Tally, check_name,
};

/// The largest turn, in bytes. No server accepts a request of a gigabyte.
const LARGEST_TURN: usize = 512 << 20;
/// The number of events that are read at once to count the beginning of a session.
const COUNTED_AT_ONCE: usize = 1000;
/// The largest cost of a turn, so that sums of costs stay finite.
const LARGEST_COST: f64 = 1e300;

/// Refuses a name that no session may have.
pub(crate) fn check_new(new: &NewSession) -> Result<(), StoreError> {
    new.name.as_deref().map_or(Ok(()), check_name)
}

/// Refuses summaries that do not end at an event of the turn. `session` returns the number that the session would have.
pub(crate) async fn check_compactions<S>(
    turn: &NewTurn,
    compactions: &[Compaction],
    session: impl FnOnce() -> S + Send,
) -> Result<(), StoreError>
where
    S: Future<Output = Result<SessionId, StoreError>> + Send,
{
    let last = Seq(turn.events.len() as u64);
    let mut places = compactions.iter().map(|compaction| compaction.after_seq);
    match places.find(|place| *place == Seq::START || *place > last) {
        Some(seq) => Err(StoreError::NoSuchEvent { session: session().await?, seq, last }),
        None => Ok(()),
    }
}

/// Refuses a turn that no server accepts.
pub(crate) fn check_turn_size(bytes: usize, place: &str) -> Result<(), StoreError> {
    if bytes <= LARGEST_TURN {
        return Ok(());
    }
    let most = LARGEST_TURN >> 20;
    let why = format!("a turn of {bytes} bytes is larger than the {most} MiB that one may have");
    Err(StoreError::Other { place: place.to_owned(), source: why.into() })
}

/// Returns a cost as it is stored.
pub(crate) fn stored_cost(usd: f64) -> f64 {
    if usd.is_finite() { usd.clamp(-LARGEST_COST, LARGEST_COST) } else { 0.0 }
}

/// Counts the events of a session up to `at`, of which `last` is the last.
///
/// The count is short if the session is cleared meanwhile. The caller compares the session's generation.
pub(crate) async fn tally_through<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    at: Seq,
    last: Seq,
) -> Result<Tally, StoreError> {
    if at > last {
        return Err(StoreError::NoSuchEvent { session: id, seq: at, last });
    }
    let mut tally = Tally::default();
    while tally.through < at {
        let left = usize::try_from(at.0 - tally.through.0).unwrap_or(usize::MAX);
        let page = store.read(id, Page::After(tally.through, left.min(COUNTED_AT_ONCE))).await?;
        if page.is_empty() {
            break;
        }
        for event in page {
            tally.add(event.seq, event.event().ok().as_ref());
        }
    }
    Ok(tally)
}
