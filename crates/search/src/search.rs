//! A search: by an index as far as there is one, by reading the events else.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use azureal_core::{
    Event, EventSource, IndexCondition, IndexHit, IndexQuery, ListQuery, PAGE_EVENTS, Page, Redactor,
    SearchIndex, Seq, SessionId, SessionRecord, SessionStore, StoreError, StoredEvent, WorktreeFilter,
    async_trait,
};

use futures_util::future::join_all;

use crate::agents::Agents;
use crate::catch_up::{Progress, catch_up};
use crate::query::Query;
use crate::rank::{Counts, Statistics, rank};
use crate::snippet::Snippet;
use crate::text::{SearchRole, SearchedText, searched_text};
use crate::time::seconds_of;

/// The most events that are ranked: the newest ones of those that match.
const MOST_RANKED: usize = 5_000;
/// The most events that are compared with the query because an index cannot say whether they match. To read more one by one takes longer than to read
/// all in their order.
const MOST_COMPARED: usize = 40_000;

/// The number of events that are read at once.
const AT_ONCE: usize = 16;

/// Conditions beside the query. All must hold.
#[derive(Debug, Clone, Default)]
pub struct Filters {
    /// One of these roles; all if empty.
    pub roles: Vec<SearchRole>,
    /// One of these tools, whatever their case; all if empty.
    pub tools: Vec<String>,
    /// None of these tools, whatever their case.
    pub without_tools: Vec<String>,
    /// One of these agents, whatever their case; all if empty.
    pub agents: Vec<String>,
    /// One of these sessions; all if `None`.
    pub sessions: Option<Vec<SessionId>>,
    /// Not this session.
    pub without: Option<SessionId>,
    /// Sessions of this worktree.
    pub worktree: Option<WorktreeFilter>,
    /// Sessions that were active at this time or later, in seconds since 1970.
    pub since: Option<i64>,
}

impl Filters {
    fn takes_session(&self, record: &SessionRecord) -> bool {
        self.sessions.as_ref().is_none_or(|sessions| sessions.contains(&record.id))
            && self.without != Some(record.id)
            && self.worktree.as_ref().is_none_or(|worktree| worktree.matches(&record.worktree))
            && self.since.is_none_or(|since| seconds_of(record.active_at()) >= since)
    }

    fn takes_text(&self, searched: &SearchedText) -> bool {
        let is_of = |tools: &[String]| {
            searched.tool.as_ref().is_some_and(|tool| tools.iter().any(|name| same(name, tool)))
        };
        (self.roles.is_empty() || self.roles.contains(&searched.role))
            && (self.tools.is_empty() || is_of(&self.tools))
            && !is_of(&self.without_tools)
    }

    fn takes_agent(&self, agent: Option<&String>) -> bool {
        self.agents.is_empty()
            || agent.is_some_and(|agent| self.agents.iter().any(|wanted| same(wanted, agent)))
    }
}

fn same(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// An event that matches.
#[derive(Debug, Clone)]
pub struct Hit {
    /// Its session.
    pub session: Arc<SessionRecord>,
    /// Its place in the session.
    pub seq: Seq,
    /// The author of the text.
    pub role: SearchRole,
    /// The tool of a call or a result, if it is known.
    pub tool: Option<String>,
    /// The agent that ran, in lower case, if it is known.
    pub agent: Option<String>,
    /// The part of the text around the matches.
    pub snippet: Snippet,
    /// Its rank, larger is better. Only comparable with those of the same search.
    pub score: f64,
    /// Whether it was searched in another form than the stored one: [`Searcher::source`].
    pub is_full: bool,
}

/// The number of events that match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// The number.
    pub events: u64,
    /// Whether there may be more.
    pub is_least: bool,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Found {
    /// The hits, the best one first.
    pub hits: Vec<Hit>,
    /// The number of events that match.
    pub total: Total,
    /// The number of sessions that were read because they are not indexed.
    pub scanned: u64,
    /// The number of sessions that were not searched, as the time was over.
    pub not_searched: u64,
    /// The number of events that cannot be read, among those that this search has read or indexed. A later search does not read them again.
    pub damaged: u64,
    /// The reason why the index was not used, if there is one.
    pub index_error: Option<StoreError>,
    /// Whether the search was not wanted any more, so that hits are missing.
    pub is_stopped: bool,
}

/// Opens the events of a session in another form than the stored one.
#[async_trait]
pub trait OpenSource: Send + Sync {
    /// Opens the events of a session.
    async fn open(&self, session: SessionId) -> Result<Box<dyn EventSource>, StoreError>;
}

/// How a search is done.
pub struct Searcher<'a> {
    /// The store.
    pub store: &'a dyn SessionStore,
    /// The index of the store; without one, all events are read.
    pub index: Option<&'a dyn SearchIndex>,
    /// Searches events in this form, without the index.
    pub source: Option<&'a dyn OpenSource>,
    /// Masks secrets. An event that matches only in a secret is no hit.
    pub mask: Option<&'a Redactor>,
    /// The longest time for bringing the index up to date. What is left is scanned.
    pub catch_up: Duration,
    /// The longest time for reading events that are not indexed.
    pub scan: Duration,
    /// The most hits; all if `None`.
    pub limit: Option<usize>,
    /// Whether the search is still wanted.
    pub is_wanted: &'a (dyn Fn() -> bool + Sync),
}

/// What a search does, for the user who waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It brings the index up to date.
    Indexing(Progress),
    /// It reads events.
    Scanning(Progress),
}

/// An event that matches, before it is ranked.
struct Match {
    session: Arc<SessionRecord>,
    seq: Seq,
    searched: SearchedText,
    agent: Option<String>,
    snippet: Snippet,
    counts: Option<Counts>,
}

impl Searcher<'_> {
    /// Searches, and reports the steps to a function.
    pub async fn search(
        &self,
        query: &Query,
        filters: &Filters,
        report: &mut (dyn FnMut(Step) + Send),
    ) -> Result<Found, StoreError> {
        let (index, condition) = match (query.required(), self.index, self.source) {
            (Some((kind, condition)), Some(index), None) if index.kind() == kind => (index, condition),
            _ => return self.scan_all(query, filters, None, report).await,
        };
        match self.search_index(query, condition, index, filters, report).await {
            // Whatever is wrong with the index, the events are there. An error of the store comes back from the scan.
            Err(error) => self.scan_all(query, filters, Some(error), report).await,
            found => found,
        }
    }

    async fn search_index(
        &self,
        query: &Query,
        condition: IndexCondition,
        index: &dyn SearchIndex,
        filters: &Filters,
        report: &mut (dyn FnMut(Step) + Send),
    ) -> Result<Found, StoreError> {
        let until = Instant::now() + self.catch_up;
        let is_over = || Instant::now() >= until || !(self.is_wanted)();
        let behind =
            catch_up(self.store, index, &is_over, &mut |progress| report(Step::Indexing(progress))).await?;
        let damaged = behind.damaged;
        let behind: HashMap<SessionId, SessionRecord> =
            behind.sessions.into_iter().map(|record| (record.id, record)).collect();
        let lower = |names: &[String]| names.iter().map(|name| name.to_lowercase()).collect();
        let wanted = IndexQuery {
            condition,
            roles: filters.roles.iter().map(|role| role.as_str()).collect(),
            tools: lower(&filters.tools),
            without_tools: lower(&filters.without_tools),
            agents: lower(&filters.agents),
            sessions: filters.sessions.clone(),
            without: filters.without,
            worktree: filters.worktree.clone(),
            since: filters.since,
            limit: 0,
        };
        let Some(mut found) = self.narrowed(query, filters, index, wanted, &behind).await? else {
            return self.scan_all(query, filters, None, report).await;
        };
        if found.total.events == 0 {
            // So would it be if the index had lost them.
            index.check().await?;
        }
        if !behind.is_empty() {
            let left = self.scan(query, filters, behind.into_values().collect(), report).await?;
            found.merge(left, self.limit);
        }
        found.damaged += damaged;
        Ok(found)
    }

    /// Returns the events that an index finds and that match; `None` if it finds too many that do not, so that it is of no help.
    async fn narrowed(
        &self,
        query: &Query,
        filters: &Filters,
        index: &dyn SearchIndex,
        mut wanted: IndexQuery,
        behind: &HashMap<SessionId, SessionRecord>,
    ) -> Result<Option<Found>, StoreError> {
        let is_exact = index.is_exact(&wanted);
        for at_least in [MOST_RANKED, MOST_COMPARED] {
            let most = self.limit.map_or(usize::MAX - 1, |limit| limit.max(at_least));
            wanted.limit = most + 1;
            let mut candidates = index.find(&wanted).await?;
            let is_more = candidates.len() > most;
            candidates.truncate(most);
            // Of a session that is behind, all events are read.
            candidates.retain(|hit| !behind.contains_key(&hit.session));
            let mut found = self.verify(query, filters, candidates, is_exact).await?;
            let is_full = self.wanted_hits().is_none_or(|wanted| found.total.events >= wanted as u64);
            if is_exact || is_full || !is_more || found.is_stopped {
                found.total.is_least |= is_more;
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns the number of hits to look for: whether there is any is not known before one is read.
    fn wanted_hits(&self) -> Option<usize> {
        self.limit.map(|limit| limit.max(1))
    }

    /// Reads the events that an index found, the best one first, and returns those that match.
    async fn verify(
        &self,
        query: &Query,
        filters: &Filters,
        candidates: Vec<IndexHit>,
        is_exact: bool,
    ) -> Result<Found, StoreError> {
        let (now, all) = (now(), candidates.len());
        let mut found = Found::default();
        let mut ranked: Vec<(f64, IndexHit)> =
            candidates.into_iter().map(|hit| (rank(hit.score, hit.active, now), hit)).collect();
        let key = |(rank, hit): &(f64, IndexHit)| (*rank, hit.active, hit.session, hit.seq);
        ranked.sort_by(|one, other| best_first(key(one), key(other)));
        let mut sessions = Sessions { store: self.store, known: HashMap::new() };
        let (mut ranked, mut read) = (ranked.into_iter(), 0);
        loop {
            let missing =
                self.wanted_hits().map_or(AT_ONCE, |wanted| wanted.saturating_sub(found.hits.len()));
            // If it is not certain that an event matches, several are read for one that is missing.
            let count = if is_exact || missing == 0 { missing.min(AT_ONCE) } else { AT_ONCE };
            let next: Vec<(f64, IndexHit)> = ranked.by_ref().take(count).collect();
            if next.is_empty() {
                break;
            }
            if !(self.is_wanted)() {
                found.is_stopped = true;
                break;
            }
            read += next.len();
            // At once: on a server each is a round trip.
            let events =
                join_all(next.iter().map(|(_, hit)| read_event(self.store, hit.session, hit.seq))).await;
            for ((score, hit), event) in next.into_iter().zip(events) {
                // `None` if the event is gone, or has changed.
                let Some(stored) = event? else { continue };
                let Ok(event) = stored.event() else {
                    found.damaged += 1;
                    continue;
                };
                let is_match =
                    |searched: &SearchedText| filters.takes_text(searched) && query.matches(&searched.text);
                let Some(searched) = self.searched(&event).filter(is_match) else { continue };
                let Some(session) = sessions.get(hit.session).await? else { continue };
                found.hits.push(Hit {
                    session,
                    seq: hit.seq,
                    role: searched.role,
                    tool: searched.tool,
                    agent: hit.agent,
                    snippet: Snippet::of(&searched.text, query),
                    score,
                    is_full: false,
                });
            }
        }
        let left = if is_exact { all - read } else { 0 };
        found.total = Total { events: (found.hits.len() + left) as u64, is_least: !is_exact && all > read };
        found.hits.truncate(self.limit.unwrap_or(usize::MAX));
        Ok(found)
    }

    /// Returns the searched text of an event, without secrets if they are masked.
    fn searched(&self, event: &Event) -> Option<SearchedText> {
        match self.mask {
            Some(mask) => searched_text(&mask.redact_event(event)),
            None => searched_text(event),
        }
    }

    async fn scan_all(
        &self,
        query: &Query,
        filters: &Filters,
        index_error: Option<StoreError>,
        report: &mut (dyn FnMut(Step) + Send),
    ) -> Result<Found, StoreError> {
        let sessions = self.store.list(&ListQuery::default()).await?;
        let mut found = self.scan(query, filters, sessions, report).await?;
        found.index_error = index_error;
        found.truncate(self.limit);
        Ok(found)
    }

    /// Reads the events of sessions, and returns those that match.
    async fn scan(
        &self,
        query: &Query,
        filters: &Filters,
        sessions: Vec<SessionRecord>,
        report: &mut (dyn FnMut(Step) + Send),
    ) -> Result<Found, StoreError> {
        let until = Instant::now() + self.scan;
        let sessions: Vec<SessionRecord> =
            sessions.into_iter().filter(|record| filters.takes_session(record)).collect();
        let of = sessions.iter().map(|record| record.counts.events).sum();
        let mut scan = Scan { progress: Progress { done: 0, of }, ..Scan::default() };
        let mut found = Found::default();
        for record in sessions {
            found.is_stopped |= !(self.is_wanted)();
            if found.is_stopped || Instant::now() >= until {
                found.not_searched += 1;
                continue;
            }
            found.scanned += 1;
            report(Step::Scanning(scan.progress));
            if !self.scan_session(query, filters, Arc::new(record), until, &mut scan).await? {
                found.not_searched += 1;
            }
        }
        found.total = Total { events: scan.matching, is_least: found.not_searched > 0 };
        found.damaged = scan.damaged;
        let (statistics, matches) = (scan.statistics, scan.matches);
        found.hits = matches
            .into_iter()
            .map(|found| Hit {
                score: rank(
                    found.counts.as_ref().map_or(1.0, |counts| statistics.score(counts)),
                    seconds_of(found.session.active_at()),
                    now(),
                ),
                session: found.session,
                seq: found.seq,
                role: found.searched.role,
                tool: found.searched.tool,
                agent: found.agent,
                snippet: found.snippet,
                is_full: self.source.is_some(),
            })
            .collect();
        Ok(found)
    }

    /// Reads the events of a session; returns whether it could read all.
    async fn scan_session(
        &self,
        query: &Query,
        filters: &Filters,
        record: Arc<SessionRecord>,
        until: Instant,
        scan: &mut Scan,
    ) -> Result<bool, StoreError> {
        let opened = match self.source {
            Some(source) => match source.open(record.id).await {
                Err(StoreError::NoSuchSession(_)) => return Ok(true),
                opened => Some(opened?),
            },
            None => None,
        };
        let mut agents = Agents::default();
        // Those since the last time that the agent of all was known.
        let mut matches: Vec<Match> = Vec::new();
        let is_wanted = |found: &Match| filters.takes_agent(found.agent.as_ref());
        // Sessions are read from the newest to the oldest, but the events of each from the first to the last.
        let mut kept = VecDeque::new();
        let room = self.limit.map_or(usize::MAX, |limit| limit.max(MOST_RANKED));
        let room = room.saturating_sub(scan.matches.len());
        let mut after = Seq::START;
        let mut is_whole = true;
        loop {
            let page = Page::After(after, PAGE_EVENTS);
            let page = match &opened {
                Some(source) => source.read_events(record.id, page).await,
                None => self.store.read(record.id, page).await,
            };
            let page = match page {
                // Deleted meanwhile.
                Err(StoreError::NoSuchSession(_)) => break,
                page => page?,
            };
            let Some(last) = page.last() else { break };
            after = last.seq;
            scan.progress.done += page.len() as u64;
            for stored in &page {
                let Ok(event) = stored.event() else {
                    scan.damaged += 1;
                    continue;
                };
                agents.note(&event, &mut matches, |found: &mut Match, agent| found.agent = agent);
                let Some(searched) = self.searched(&event) else { continue };
                let mut counts = query.counts(&searched.text);
                let is_match = match &mut counts {
                    Some(counts) => {
                        // An index has the role and the tool as tokens too.
                        counts.tokens += 1 + u64::from(searched.tool.is_some());
                        scan.statistics.add(counts);
                        counts.has_all()
                    }
                    None => query.matches(&searched.text),
                };
                if !is_match || !filters.takes_text(&searched) {
                    continue;
                }
                agents.pushed(&event);
                matches.push(Match {
                    session: Arc::clone(&record),
                    seq: stored.seq,
                    snippet: Snippet::of(&searched.text, query),
                    counts,
                    // Only its head is needed from here on.
                    searched: SearchedText { text: String::new(), ..searched },
                    agent: agents.current().cloned(),
                });
            }
            if !agents.is_waiting() {
                scan.keep(matches.drain(..).filter(is_wanted), &mut kept, room);
            }
            if Instant::now() >= until || !(self.is_wanted)() {
                is_whole = false;
                break;
            }
        }
        scan.keep(matches.drain(..).filter(is_wanted), &mut kept, room);
        scan.matches.extend(kept);
        Ok(is_whole)
    }
}

#[derive(Default)]
struct Scan {
    matches: Vec<Match>,
    /// The number of events that match.
    matching: u64,
    /// Those of all events, whether they match or not.
    statistics: Statistics,
    progress: Progress,
    damaged: u64,
}

impl Scan {
    /// Counts matches of a session, and keeps the last ones as far as there is room.
    fn keep(&mut self, matches: impl Iterator<Item = Match>, kept: &mut VecDeque<Match>, room: usize) {
        for found in matches {
            self.matching += 1;
            kept.push_back(found);
            if kept.len() > room {
                kept.pop_front();
            }
        }
    }
}

impl Found {
    fn merge(&mut self, other: Self, limit: Option<usize>) {
        self.hits.extend(other.hits);
        self.total.events += other.total.events;
        self.total.is_least |= other.total.is_least;
        self.scanned += other.scanned;
        self.not_searched += other.not_searched;
        self.damaged += other.damaged;
        self.is_stopped |= other.is_stopped;
        self.truncate(limit);
    }

    /// Puts the best hits first, and keeps so many.
    fn truncate(&mut self, limit: Option<usize>) {
        let key = |hit: &Hit| (hit.score, seconds_of(hit.session.active_at()), hit.session.id, hit.seq);
        self.hits.sort_by(|one, other| best_first(key(one), key(other)));
        self.hits.truncate(limit.unwrap_or(usize::MAX));
    }
}

/// The order of a hit: its rank, the time of the session's last activity, and the place of the event.
type Order = (f64, i64, SessionId, Seq);

/// Orders by rank, then the newest first.
fn best_first(one: Order, other: Order) -> Ordering {
    let newest = |order: Order| (order.1, order.2, order.3);
    other.0.total_cmp(&one.0).then_with(|| newest(other).cmp(&newest(one)))
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

/// Reads an event; `None` if it is gone.
async fn read_event(
    store: &dyn SessionStore,
    session: SessionId,
    seq: Seq,
) -> Result<Option<StoredEvent>, StoreError> {
    let page = Page::After(Seq(seq.0.saturating_sub(1)), 1);
    let event = match store.read(session, page).await {
        Err(StoreError::NoSuchSession(_)) => None,
        page => page?.pop(),
    };
    Ok(event.filter(|event| event.seq == seq))
}

/// Reads the record of each session once.
struct Sessions<'a> {
    store: &'a dyn SessionStore,
    known: HashMap<SessionId, Option<Arc<SessionRecord>>>,
}

impl Sessions<'_> {
    /// Returns the record of a session; `None` if it is gone.
    async fn get(&mut self, session: SessionId) -> Result<Option<Arc<SessionRecord>>, StoreError> {
        if let Some(known) = self.known.get(&session) {
            return Ok(known.clone());
        }
        let record = match self.store.get(session).await {
            Err(StoreError::NoSuchSession(_)) => None,
            record => Some(Arc::new(record?)),
        };
        self.known.insert(session, record.clone());
        Ok(record)
    }
}
