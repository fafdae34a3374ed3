//! The turns of one session.

use azureal_core::event::Outcome;
use azureal_core::{Seq, SessionRecord, SessionStore, StoreError, Tokens, TurnUsage, TurnUsages};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::Taken;

/// The number of events that are read at a time.
const PAGE: usize = 1_000;
/// A difference of costs that is not one: they are added in another order.
const SAME_COST: f64 = 1e-6;

/// The turns that a session has run itself.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SessionTurns {
    pub(super) own: Vec<OwnTurn>,
    /// What the totals of the session have beyond its turns.
    pub(super) outside: Taken,
    pub(super) damaged: u64,
    pub(super) undated: u64,
}

/// A turn, or a part of one that continued after a compaction.
#[derive(Debug, PartialEq)]
pub(super) struct OwnTurn {
    pub(super) agent: Option<String>,
    pub(super) model: Option<String>,
    /// Whether the turn ends with it.
    pub(super) is_whole: bool,
    pub(super) failed: bool,
    pub(super) taken: Taken,
    /// The turn began between these times, which are equal if its time is known.
    earliest: Option<Timestamp>,
    latest: Option<Timestamp>,
}

impl OwnTurn {
    /// Returns the day on which it began, if that is known.
    pub(super) fn day(&self, zone: &TimeZone) -> Option<Date> {
        let day = |time: Timestamp| time.to_zoned(zone.clone()).date();
        let earliest = day(self.earliest?);
        (earliest == day(self.latest?)).then_some(earliest)
    }
}

impl SessionTurns {
    pub(super) async fn read(
        store: &dyn SessionStore,
        record: &SessionRecord,
        since: Option<Timestamp>,
    ) -> Result<Self, StoreError> {
        let (mut usages, mut turns, mut damaged) = (TurnUsages::default(), Vec::new(), 0_u64);
        let mut after = Seq::START;
        loop {
            let page = store.read_usage(record.id, after, PAGE).await?;
            // A page that does not advance would be read for ever.
            let Some(last) = page.last().map(|stored| stored.seq).filter(|last| *last > after) else { break };
            after = last;
            for stored in page {
                match stored.event() {
                    Ok(event) => turns.extend(usages.push(event)),
                    Err(_) => damaged += 1,
                }
            }
        }
        Ok(Self { damaged, ..Self::of(record, turns, since) })
    }

    fn of(record: &SessionRecord, turns: Vec<TurnUsage>, since: Option<Timestamp>) -> Self {
        let mut own: Vec<OwnTurn> = own_turns(record, turns).into_iter().map(own_turn).collect();
        add_bounds(record, &mut own);
        let Some(since) = since else {
            let outside = outside(record, &own);
            return Self { own, outside, ..Self::default() };
        };
        // What was taken outside turns has no time.
        let mut selected = Self::default();
        for turn in own {
            if turn.earliest.is_some_and(|earliest| earliest >= since) {
                selected.own.push(turn);
            } else if turn.latest.is_none_or(|latest| latest >= since) {
                selected.undated += u64::from(turn.is_whole);
            }
        }
        selected
    }
}

/// Returns the turns that the session has run itself. A fork begins with those of another session, and its totals with 0: so its own turns are
/// the last ones, as far as its totals go and none of them began before the fork.
fn own_turns(record: &SessionRecord, mut turns: Vec<TurnUsage>) -> Vec<TurnUsage> {
    if record.forked_from.is_none() {
        return turns;
    }
    let forked = record.created_at.parse::<Timestamp>().ok();
    let mut left =
        Taken { tokens: record.tokens, cost_usd: record.cost_usd, duration_ms: record.duration_ms };
    let own = turns.iter().rev().take_while(|turn| {
        let taken = taken(turn);
        let is_after = began(turn).zip(forked).map(|(began, forked)| began >= forked);
        // A turn that took nothing fits anywhere.
        let is_certain = is_after == Some(true) || !taken.is_nothing() || left.duration_ms > 0;
        let is_own = is_after != Some(false) && is_certain && left.covers(&taken);
        if is_own {
            left.tokens = left.tokens.saturating_sub(taken.tokens);
            left.cost_usd -= taken.cost_usd;
            left.duration_ms -= taken.duration_ms;
        }
        is_own
    });
    let copied = turns.len() - own.count();
    turns.split_off(copied)
}

fn began(turn: &TurnUsage) -> Option<Timestamp> {
    turn.complete.started_at.as_deref()?.parse().ok()
}

impl Taken {
    fn covers(&self, other: &Self) -> bool {
        self.duration_ms >= other.duration_ms
            && self.tokens.input >= other.tokens.input
            && self.tokens.output >= other.tokens.output
            && self.cost_usd + SAME_COST > other.cost_usd
    }
}

fn taken(turn: &TurnUsage) -> Taken {
    let complete = &turn.complete;
    Taken {
        tokens: complete.usage.map(Tokens::from).unwrap_or_default(),
        cost_usd: if complete.cost_usd.is_finite() { complete.cost_usd.max(0.0) } else { 0.0 },
        duration_ms: complete.duration_ms,
    }
}

fn own_turn(turn: TurnUsage) -> OwnTurn {
    let (is_whole, started) = (!turn.complete.continues, began(&turn));
    OwnTurn {
        is_whole,
        failed: is_whole && turn.complete.ending() != Outcome::Done,
        taken: taken(&turn),
        earliest: started,
        latest: started,
        agent: turn.agent,
        model: turn.model,
    }
}

/// Bounds the times of turns that an earlier version stored without one: each is after the turn before it and before the one after it.
fn add_bounds(record: &SessionRecord, turns: &mut [OwnTurn]) {
    let time = |text: &str| text.parse::<Timestamp>().ok();
    let mut earliest = time(&record.created_at);
    for turn in turns.iter_mut() {
        match turn.earliest {
            Some(known) => earliest = Some(known),
            None => turn.earliest = earliest,
        }
    }
    let mut latest = time(&record.last_active);
    for turn in turns.iter_mut().rev() {
        match turn.latest {
            Some(known) => latest = Some(known),
            None => turn.latest = latest,
        }
    }
}

/// Returns what the totals of a session have beyond its turns.
fn outside(record: &SessionRecord, turns: &[OwnTurn]) -> Taken {
    let mut sum = Taken::default();
    for OwnTurn { taken, .. } in turns {
        sum.tokens = sum.tokens + taken.tokens;
        sum.cost_usd += taken.cost_usd;
        sum.duration_ms = sum.duration_ms.saturating_add(taken.duration_ms);
    }
    let cost_usd = record.cost_usd - sum.cost_usd;
    Taken {
        tokens: record.tokens.saturating_sub(sum.tokens),
        cost_usd: if cost_usd > SAME_COST { cost_usd } else { 0.0 },
        duration_ms: record.duration_ms.saturating_sub(sum.duration_ms),
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::event::{Complete, Usage};
    use azureal_core::{SessionId, Uuid};

    use super::*;

    fn turn(duration_ms: u64, input_tokens: u64, started_at: &str) -> TurnUsage {
        let complete = Complete {
            success: true,
            duration_ms,
            cost_usd: 0.1,
            usage: Some(Usage { input_tokens, output_tokens: 1, ..Usage::default() }),
            started_at: Some(started_at.to_owned()).filter(|time| !time.is_empty()),
            ..Complete::default()
        };
        TurnUsage { agent: Some("claude".into()), model: None, complete }
    }

    fn record(created_at: &str, last_active: &str) -> SessionRecord {
        SessionRecord {
            created_at: created_at.to_owned(),
            last_active: last_active.to_owned(),
            ..SessionRecord::new(SessionId::new(1).unwrap())
        }
    }

    #[test]
    fn a_fork_counts_the_turns_that_its_totals_have() {
        let turns =
            || vec![turn(10, 100, ""), turn(20, 200, ""), turn(0, 0, ""), turn(30, 300, ""), turn(5, 50, "")];
        let mut fork = SessionRecord { forked_from: Some(Uuid::from_u128(1)), ..record("", "") };
        let durations = |fork: &SessionRecord| {
            let turns = SessionTurns::of(fork, turns(), None);
            turns.own.iter().map(|turn| turn.taken.duration_ms).collect::<Vec<_>>()
        };
        assert_eq!(durations(&fork), [] as [u64; 0], "no turn since the fork");
        (fork.duration_ms, fork.tokens, fork.cost_usd) = (35, Tokens::new(350, 2), 0.2);
        assert_eq!(durations(&fork), [30, 5]);
        assert_eq!(SessionTurns::of(&fork, turns(), None).outside, Taken::default());
        // A summary was written too.
        fork.tokens = Tokens::new(1_350, 12);
        assert_eq!(durations(&fork), [30, 5]);
        assert_eq!(SessionTurns::of(&fork, turns(), None).outside.tokens, Tokens::new(1_000, 10));
        // Short turns have no duration to tell them by, but tokens or a time.
        let quick = |forked_at: &str, last: TurnUsage| {
            let fork = SessionRecord {
                forked_from: Some(Uuid::from_u128(1)),
                tokens: Tokens::new(5_000, 20),
                cost_usd: 0.1,
                ..record(forked_at, "")
            };
            let turns = vec![turn(0, 100, "2026-01-31T09:00:00Z"), last];
            SessionTurns::of(&fork, turns, None).own.len()
        };
        assert_eq!(quick("", turn(0, 200, "")), 1);
        assert_eq!(quick("2026-01-31T09:30:00Z", turn(0, 200, "2026-01-31T09:30:00Z")), 1);
        assert_eq!(quick("2026-01-31T09:30:00Z", turn(0, 200, "2026-01-31T09:29:59Z")), 0);
        fork.forked_from = None;
        assert_eq!(durations(&fork), [10, 20, 0, 30, 5]);
    }

    #[test]
    fn a_turn_without_a_time_has_a_day_if_only_one_is_possible() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let days = |record: &SessionRecord, turns: Vec<TurnUsage>| {
            let turns = SessionTurns::of(record, turns, None).own;
            let day = |turn: &OwnTurn| turn.day(&zone).map_or_else(String::new, |day| day.to_string());
            turns.iter().map(day).collect::<Vec<_>>()
        };
        let one_day = record("2026-01-30T22:30:00Z", "2026-01-31T20:00:00Z");
        assert_eq!(days(&one_day, vec![turn(1, 1, "")]), ["2026-01-31"]);
        let long = record("2026-01-01T12:00:00Z", "2026-01-31T12:00:00Z");
        let known = "2026-01-31T09:00:00Z";
        assert_eq!(
            days(&long, vec![turn(1, 1, ""), turn(1, 1, known), turn(1, 1, ""), turn(1, 1, "nonsense")]),
            ["", "2026-01-31", "2026-01-31", "2026-01-31"]
        );
        assert_eq!(days(&record("", ""), vec![turn(1, 1, "")]), [""]);
    }

    #[test]
    fn turns_that_may_be_older_are_left_out_and_counted() {
        let since = |turns: Vec<TurnUsage>, since: &str| {
            let mut record = record("2026-01-01T12:00:00Z", "2026-01-31T12:00:00Z");
            record.duration_ms = 1_000;
            let selected = SessionTurns::of(&record, turns, Some(since.parse().unwrap()));
            assert_eq!(selected.outside, Taken::default(), "it has no time");
            (selected.own.len(), selected.undated)
        };
        let turns = || vec![turn(1, 1, ""), turn(1, 1, "2026-01-10T00:00:00Z"), turn(1, 1, "")];
        assert_eq!(since(turns(), "2026-01-01T00:00:00Z"), (3, 0));
        assert_eq!(since(turns(), "2026-01-05T00:00:00Z"), (2, 1));
        assert_eq!(since(turns(), "2026-01-20T00:00:00Z"), (0, 1));
        assert_eq!(since(turns(), "2026-02-20T00:00:00Z"), (0, 0));
    }
}
