//! Statistics: turns, tokens, cost and time, added up by agent, model, day, worktree and session.
//!
//! The ends of turns say what each took. The totals of a session, which lists show, may be larger: summaries are written outside turns,
//! and turns can be removed. That difference is a group of its own, so that the sum of all groups is the sum of a list.

mod session;

use std::collections::BTreeMap;

use azureal_core::{ListQuery, SessionRecord, SessionStore, StoreError, Tokens, WorktreeFilter};
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use self::session::{OwnTurn, SessionTurns};
use crate::error::Error;
use crate::workspace::Workspace;

/// The number of sessions that are read at a time: on a server each is a round trip.
const AT_ONCE: usize = 16;

/// A selection of turns.
#[derive(Debug, Clone)]
pub struct StatsQuery {
    /// Only sessions of this worktree; all if `None`.
    pub worktree: Option<WorktreeFilter>,
    /// Only turns that began at this time or later; all if `None`.
    pub since: Option<Timestamp>,
    /// The time zone of days.
    pub zone: TimeZone,
}

/// The property by which turns are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grouping {
    /// The agent that ran.
    Agent,
    /// The model that answered.
    Model,
    /// The day on which the turn began.
    Day,
    /// The worktree of the session.
    Worktree,
    /// The session.
    Session,
}

impl Grouping {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Agent, Self::Model, Self::Day, Self::Worktree, Self::Session];

    /// Returns its name, as commands and JSON have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Model => "model",
            Self::Day => "day",
            Self::Worktree => "worktree",
            Self::Session => "session",
        }
    }

    /// Finds a grouping by its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|grouping| grouping.name() == name)
    }
}

/// Numbers that are added up. In JSON the names of the fields are those of `list --json`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Sums {
    /// The number of sessions.
    pub sessions: u64,
    /// The number of turns.
    pub turns: u64,
    /// The number of turns among them that did not reach their end.
    pub failed: u64,
    /// Tokens sent, those read from or written to a cache included.
    pub input_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// The part of the input that was read from the provider's cache.
    pub cache_read_tokens: u64,
    /// The part of the input that was written to the provider's cache.
    pub cache_write_tokens: u64,
    /// The cost, as far as the agents reported it.
    pub cost_usd: f64,
    /// The number of turns among them that took tokens and whose cost is not known.
    pub unpriced_turns: u64,
    /// The duration.
    pub duration_ms: u64,
}

impl Sums {
    /// Returns the tokens.
    pub fn tokens(&self) -> Tokens {
        Tokens {
            input: self.input_tokens,
            output: self.output_tokens,
            cache_read: self.cache_read_tokens,
            cache_write: self.cache_write_tokens,
        }
    }

    fn add(&mut self, taken: &Taken, turns: Turns) {
        self.turns += turns.all;
        self.failed += turns.failed;
        self.unpriced_turns += turns.unpriced;
        let tokens = self.tokens() + taken.tokens;
        self.input_tokens = tokens.input;
        self.output_tokens = tokens.output;
        self.cache_read_tokens = tokens.cache_read;
        self.cache_write_tokens = tokens.cache_write;
        // A sum of costs that no agent reports must not become infinite.
        self.cost_usd = (self.cost_usd + taken.cost_usd).min(f64::MAX);
        self.duration_ms = self.duration_ms.saturating_add(taken.duration_ms);
    }
}

/// The tokens, cost and time of one turn, or of a session outside its turns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Taken {
    tokens: Tokens,
    cost_usd: f64,
    duration_ms: u64,
}

impl Taken {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    fn is_unpriced(&self) -> bool {
        self.cost_usd <= 0.0 && self.tokens != Tokens::default()
    }
}

/// The numbers of turns that are added to a group.
#[derive(Debug, Clone, Copy, Default)]
struct Turns {
    all: u64,
    failed: u64,
    unpriced: u64,
}

/// The name of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupKey {
    /// Its name: an agent, a model, a date such as `2026-01-31`, a worktree, the number of a session.
    Known(String),
    /// Turns whose agent, model or day is not known.
    Unknown,
    /// Summaries that compactions asked for, and turns that are not in the store any more.
    OutsideTurns,
}

/// The sums of one group. In JSON, `key` is `null` for turns whose property is not known and for the group outside turns.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// Its name.
    #[serde(serialize_with = "known_key")]
    pub key: GroupKey,
    /// The name of a session that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether it is the group outside turns.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outside_turns: bool,
    /// The sums.
    #[serde(flatten)]
    pub sums: Sums,
}

fn known_key<S: serde::Serializer>(key: &GroupKey, serializer: S) -> Result<S::Ok, S::Error> {
    match key {
        GroupKey::Known(key) => serializer.serialize_some(key),
        GroupKey::Unknown | GroupKey::OutsideTurns => serializer.serialize_none(),
    }
}

/// The number by which groups are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// The cost.
    Cost,
    /// The tokens, sent and received.
    Tokens,
}

impl Measure {
    /// Returns the number.
    pub fn of(self, sums: &Sums) -> f64 {
        match self {
            Self::Cost => sums.cost_usd,
            Self::Tokens => sums.input_tokens.saturating_add(sums.output_tokens) as f64,
        }
    }
}

/// What was added up.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// The sums of everything.
    pub total: Sums,
    /// The number of events that cannot be read. What their turns took may be missing.
    pub damaged: u64,
    /// The number of turns that were left out because it is not known whether they began before [`StatsQuery::since`].
    pub undated: u64,
    /// The sessions with stored values that cannot be read.
    pub damaged_sessions: Vec<SessionRecord>,
    /// The tokens sent in turns without a cost.
    unpriced_tokens: u64,
    groups: BTreeMap<Grouping, BTreeMap<GroupKey, Collected>>,
    names: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default)]
struct Collected {
    sums: Sums,
    /// The session that was counted last, so that each counts once.
    last: Option<u32>,
}

impl Stats {
    /// Returns the groups by a property: days in their order, others by their [measure](Self::measure), the largest first. Groups without a name
    /// are the last.
    pub fn by(&self, grouping: Grouping) -> Vec<Group> {
        let collected = self.groups.get(&grouping).into_iter().flatten();
        let mut groups: Vec<Group> = collected
            .map(|(key, collected)| Group {
                name: match key {
                    GroupKey::Known(key) if grouping == Grouping::Session => self.names.get(key).cloned(),
                    _ => None,
                },
                outside_turns: *key == GroupKey::OutsideTurns,
                key: key.clone(),
                sums: collected.sums,
            })
            .collect();
        if grouping != Grouping::Day {
            let rank = |group: &Group| match group.key {
                GroupKey::Known(_) => 0,
                GroupKey::Unknown => 1,
                GroupKey::OutsideTurns => 2,
            };
            let measure = self.measure();
            let by = |measure: Measure, one: &Group, other: &Group| {
                measure.of(&other.sums).total_cmp(&measure.of(&one.sums))
            };
            // S2 is before S10.
            let digits = |group: &Group| match &group.key {
                GroupKey::Known(key) if grouping == Grouping::Session => key.len(),
                _ => 0,
            };
            groups.sort_by(|one, other| {
                let by_rank = rank(one).cmp(&rank(other));
                let by_measure = by_rank.then_with(|| by(measure, one, other));
                by_measure
                    .then_with(|| by(Measure::Tokens, one, other))
                    .then_with(|| digits(one).cmp(&digits(other)))
            });
        }
        groups
    }

    /// Returns the number by which groups are compared: the cost, or the tokens if the cost of a tenth of them is not known. Imported turns
    /// and some agents have no cost.
    pub fn measure(&self) -> Measure {
        let is_known = self.unpriced_tokens.saturating_mul(10) <= self.total.input_tokens;
        if is_known && self.total.cost_usd > 0.0 { Measure::Cost } else { Measure::Tokens }
    }

    fn add_session(&mut self, record: &SessionRecord, turns: &SessionTurns, zone: &TimeZone) {
        self.damaged = self.damaged.saturating_add(turns.damaged);
        self.undated = self.undated.saturating_add(turns.undated);
        if record.has_own_name() {
            self.names.insert(record.id.to_string(), record.name.clone());
        }
        let known = |text: Option<&str>| match text {
            Some(text) if !text.is_empty() => GroupKey::Known(text.to_owned()),
            _ => GroupKey::Unknown,
        };
        let (worktree, session) = (known(Some(&record.worktree)), known(Some(&record.id.to_string())));
        let number = record.id.number();
        for turn in &turns.own {
            let OwnTurn { agent, model, is_whole, failed, taken, .. } = turn;
            let day = turn.day(zone).map(|day| day.to_string());
            let keys = [
                known(agent.as_deref()),
                known(model.as_deref()),
                known(day.as_deref()),
                worktree.clone(),
                session.clone(),
            ];
            if taken.is_unpriced() {
                self.unpriced_tokens = self.unpriced_tokens.saturating_add(taken.tokens.input);
            }
            let turns = Turns {
                all: u64::from(*is_whole),
                failed: u64::from(*failed),
                unpriced: u64::from(*is_whole && taken.is_unpriced()),
            };
            self.add(number, keys, taken, turns);
        }
        if !turns.outside.is_nothing() {
            let outside = || GroupKey::OutsideTurns;
            let keys = [outside(), outside(), outside(), worktree, session];
            self.add(number, keys, &turns.outside, Turns::default());
        }
    }

    fn add(&mut self, session: u32, keys: [GroupKey; 5], taken: &Taken, turns: Turns) {
        for (grouping, key) in Grouping::ALL.into_iter().zip(keys) {
            let Collected { sums, last } = self.groups.entry(grouping).or_default().entry(key).or_default();
            sums.add(taken, turns);
            if last.replace(session) != Some(session) {
                sums.sessions += 1;
                if grouping == Grouping::Session {
                    self.total.sessions += 1;
                }
            }
        }
        self.total.add(taken, turns);
    }
}

impl Workspace {
    /// Adds up what turns took. `progress` gets the number of sessions that were read, and of all.
    ///
    /// Of each session, the store returns the ends of its turns and not the events between them, if it can select them. Sessions that were not
    /// active since [`StatsQuery::since`] are not read.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn stats(
        &self,
        query: &StatsQuery,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Stats, Error> {
        let list = ListQuery { worktree: query.worktree.clone(), ..ListQuery::default() };
        let records = self.store.list(&list).await?;
        let mut stats = Stats {
            damaged_sessions: records.iter().filter(|record| !record.damaged.is_empty()).cloned().collect(),
            ..Stats::default()
        };
        let wanted: Vec<&SessionRecord> =
            records.iter().filter(|record| may_have_turns(record, query.since)).collect();
        let store = &*self.store;
        let mut sessions = stream::iter(&wanted)
            .map(|record| async { (*record, read(store, record, query).await) })
            .buffered(AT_ONCE);
        let mut done = 0;
        while let Some((record, turns)) = sessions.next().await {
            match turns {
                Ok(turns) => stats.add_session(record, &turns, &query.zone),
                // It was deleted meanwhile.
                Err(StoreError::NoSuchSession(_)) => {}
                Err(error) => return Err(error.into()),
            }
            done += 1;
            progress(done, wanted.len());
        }
        Ok(stats)
    }
}

async fn read(
    store: &dyn SessionStore,
    record: &SessionRecord,
    query: &StatsQuery,
) -> Result<SessionTurns, StoreError> {
    SessionTurns::read(store, record, query.since).await
}

/// Returns whether a session can have turns since a time, or anything else to count.
fn may_have_turns(record: &SessionRecord, since: Option<Timestamp>) -> bool {
    let is_active = match (since, record.last_active.parse::<Timestamp>()) {
        (Some(since), Ok(last_active)) => last_active >= since,
        (None, _) | (_, Err(_)) => true,
    };
    let has_totals = record.tokens != Tokens::default() || record.duration_ms > 0 || record.cost_usd > 0.0;
    is_active && (record.counts.events > 0 || has_totals)
}
