//! Brings an index up to date with its store.
//!
//! Sessions are listed in the order of their changes. So the ones that changed since the index was last brought up to date come first in the
//! list, and the list is read to the first [`UNCHANGED`] that did not change. Changed sessions are indexed from the least to the most recently active: whenever it is
//! interrupted, the ones that are left still come first. All sessions are compared if the index has more or fewer of them than the store, and once an hour.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

use azureal_core::{
    Event, IndexKind, IndexPart, IndexState, IndexedEvent, ListOrder, ListQuery, PAGE_EVENTS, Page,
    SearchIndex, Seq, SessionId, SessionRecord, SessionStore, StoreError, StoredEvent,
};

use crate::agents::Agents;
use crate::text::searched_text;
use crate::time::seconds_of;
use crate::tokens::tokens;
use crate::trigrams::trigram_tokens;

/// The number of sessions that are listed first.
const FIRST_LIST: usize = 32;
/// So many sessions behind each other that did not change end the list. One does not: PostgreSQL may commit a turn after a turn that it placed later,
/// which is indexed by then.
const UNCHANGED: usize = 16;
/// All sessions are compared after so many seconds.
const CHECK_EVERY: u64 = 3600;
/// Tokens are written when there are so many bytes of them.
const BATCH_BYTES: usize = 8 << 20;

/// How far the work has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// The events that are done.
    pub done: u64,
    /// All events that there are to do.
    pub of: u64,
}

/// The sessions that an index does not have whole, or not as they are now.
#[derive(Debug, Default)]
pub struct Behind {
    /// The sessions.
    pub sessions: Vec<SessionRecord>,
    /// The number of events that were indexed.
    pub indexed: u64,
    /// The number of those that cannot be read, and have no tokens.
    pub damaged: u64,
}

/// Brings an index up to date, until it is or the function says that the time is over.
pub async fn catch_up(
    store: &dyn SessionStore,
    index: &dyn SearchIndex,
    is_over: &(dyn Fn() -> bool + Sync),
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Behind, StoreError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let checked = index.checked().await?;
    let is_old = checked.is_none_or(|checked| checked > now || now - checked >= CHECK_EVERY);
    let mut changed = newest_changed(store, index).await?;
    let new = changed.iter().filter(|(_, state)| state.is_none()).count() as u64;
    // Others have deleted sessions, or the store is a copy of an earlier time.
    let is_check = is_old || index.sessions().await? + new != store.count().await?;
    if is_check {
        changed = all_changed(store, index).await?;
    }
    // The least recently active first.
    changed.reverse();
    let of = changed.iter().map(|(record, state)| missing(record, state.as_ref())).sum();
    let mut work = Work {
        store,
        index,
        is_over,
        progress,
        left: Progress { done: 0, of },
        batch: Vec::new(),
        bytes: 0,
        behind: Behind::default(),
    };
    for (record, state) in changed {
        if (work.is_over)() {
            work.behind.sessions.push(record);
        } else {
            work.session(record, state).await?;
        }
    }
    work.flush().await?;
    if is_check && work.behind.sessions.is_empty() {
        index.check().await?;
        index.set_checked(now).await?;
    }
    Ok(work.behind)
}

type Changed = Vec<(SessionRecord, Option<IndexState>)>;

fn by_changes(limit: Option<usize>) -> ListQuery {
    ListQuery { order: ListOrder::Changes, limit, ..ListQuery::default() }
}

async fn all_changed(store: &dyn SessionStore, index: &dyn SearchIndex) -> Result<Changed, StoreError> {
    let records = store.list(&by_changes(None)).await?;
    let mut states: HashMap<SessionId, IndexState> = index.states(None).await?.into_iter().collect();
    let mut changed = Vec::new();
    for record in records {
        let state = states.remove(&record.id);
        if state.as_ref().is_none_or(|state| state.stamp != stamp(&record)) {
            changed.push((record, state));
        }
    }
    if !states.is_empty() {
        let gone: Vec<SessionId> = states.into_keys().collect();
        index.remove(&gone).await?;
    }
    Ok(changed)
}

async fn newest_changed(store: &dyn SessionStore, index: &dyn SearchIndex) -> Result<Changed, StoreError> {
    let mut limit = FIRST_LIST;
    loop {
        let records = store.list(&by_changes(Some(limit))).await?;
        let is_all = records.len() < limit;
        let ids: Vec<SessionId> = records.iter().map(|record| record.id).collect();
        let mut states: HashMap<SessionId, IndexState> =
            index.states(Some(&ids)).await?.into_iter().collect();
        let (mut changed, mut unchanged) = (Vec::new(), 0);
        for record in records {
            let state = states.remove(&record.id);
            if state.as_ref().is_some_and(|state| state.stamp == stamp(&record)) {
                unchanged += 1;
                if unchanged == UNCHANGED {
                    return Ok(changed);
                }
            } else {
                unchanged = 0;
                changed.push((record, state));
            }
        }
        if is_all {
            return Ok(changed);
        }
        limit = limit.saturating_mul(8);
    }
}

fn missing(record: &SessionRecord, state: Option<&IndexState>) -> u64 {
    record.counts.events.saturating_sub(state.map_or(0, |state| state.through.0))
}

/// Returns a hash of what the record says of the events. Never 0.
pub(crate) fn stamp(record: &SessionRecord) -> u64 {
    let mut hasher = Fnv::default();
    record.id.number().hash(&mut hasher);
    record.uuid.hash(&mut hasher);
    record.created_at.hash(&mut hasher);
    record.last_active.hash(&mut hasher);
    record.revision.hash(&mut hasher);
    record.duration_ms.hash(&mut hasher);
    let counts = &record.counts;
    (counts.events, counts.messages, counts.rendered_chars, &counts.last_prompt).hash(&mut hasher);
    hasher.finish().max(1)
}

fn changes(record: &SessionRecord) -> u64 {
    record.revision.saturating_sub(record.counts.events)
}

fn hash_of(stored: &StoredEvent) -> u64 {
    let mut hasher = Fnv::default();
    hasher.write(stored.kind.as_bytes());
    hasher.write(stored.json.as_ref().map_or("", String::as_str).as_bytes());
    hasher.finish()
}

/// FNV-1a. The hashes are in files, so they must not change with the version of the compiler.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

struct Work<'a> {
    store: &'a dyn SessionStore,
    index: &'a dyn SearchIndex,
    is_over: &'a (dyn Fn() -> bool + Sync),
    progress: &'a mut (dyn FnMut(Progress) + Send),
    left: Progress,
    /// Parts that are not written yet, each with the record of its session.
    batch: Vec<(IndexPart, SessionRecord)>,
    bytes: usize,
    behind: Behind,
}

impl Work<'_> {
    async fn session(&mut self, record: SessionRecord, state: Option<IndexState>) -> Result<(), StoreError> {
        let mut state = match state {
            Some(state) if may_continue(&record, &state) => self.same_log(&record, state).await?,
            _ => None,
        };
        let mut after = state.clone().unwrap_or_default();
        after.active = seconds_of(record.active_at());
        after.worktree.clone_from(&record.worktree);
        after.changes = changes(&record);
        after.stamp = 0;
        let mut agents = Agents::new(after.agent.take());
        let mut events = Vec::new();
        loop {
            let page = match self.store.read(record.id, Page::After(after.through, PAGE_EVENTS)).await {
                // Deleted meanwhile.
                Err(StoreError::NoSuchSession(_)) => return Ok(()),
                page => page?,
            };
            let is_end = page.is_empty();
            for stored in &page {
                after.through = stored.seq;
                let Ok(event) = stored.event() else {
                    self.behind.damaged += 1;
                    continue;
                };
                agents.note(&event, &mut events, |event: &mut IndexedEvent, agent| event.agent = agent);
                if let Some(indexed) = indexed(self.index.kind(), stored.seq, &event, agents.current()) {
                    self.bytes += indexed.tokens.len();
                    agents.pushed(&event);
                    events.push(indexed);
                }
            }
            if let Some(last) = page.last() {
                after.last = hash_of(last);
            }
            self.left.done += page.len() as u64;
            // A prompt goes with the agent that answers it.
            let is_whole = is_end || !agents.is_waiting();
            let is_cut = !is_end && is_whole && (self.is_over)();
            if is_end {
                after.stamp = stamp(&record);
            }
            after.agent = agents.current().cloned();
            if is_end || is_cut || (is_whole && self.bytes > BATCH_BYTES) {
                let part = IndexPart {
                    session: record.id,
                    before: state.take(),
                    after: after.clone(),
                    events: std::mem::take(&mut events),
                };
                state = Some(after.clone());
                self.batch.push((part, record.clone()));
            }
            if events.is_empty() && self.bytes > BATCH_BYTES {
                self.flush().await?;
            }
            if is_cut {
                self.behind.sessions.push(record);
                return Ok(());
            }
            if is_end {
                return Ok(());
            }
        }
    }

    /// Returns the state if the session still has the event that was indexed last, and what follows cannot change an event before it.
    async fn same_log(
        &self,
        record: &SessionRecord,
        state: IndexState,
    ) -> Result<Option<IndexState>, StoreError> {
        if state.through == Seq::START {
            return Ok(Some(state));
        }
        let page = Page::After(Seq(state.through.0 - 1), 1);
        let last = match self.store.read(record.id, page).await {
            Err(StoreError::NoSuchSession(_)) => return Ok(None),
            page => page?.pop(),
        };
        let continues = last.is_some_and(|last| {
            let is_same = last.seq == state.through && hash_of(&last) == state.last;
            is_same && !last.event().is_ok_and(|event| Agents::may_be_named_after(&event))
        });
        Ok(continues.then_some(state))
    }

    async fn flush(&mut self) -> Result<(), StoreError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        (self.progress)(self.left);
        self.bytes = 0;
        let (parts, records): (Vec<IndexPart>, Vec<SessionRecord>) = self.batch.drain(..).unzip();
        let added = self.index.put(parts).await?;
        for (is_added, record) in added.into_iter().zip(records) {
            let is_known = self.behind.sessions.iter().any(|behind| behind.id == record.id);
            if !is_added && !is_known {
                self.behind.sessions.push(record);
            }
        }
        self.behind.indexed = self.left.done;
        Ok(())
    }
}

/// Returns whether events can have been appended only. A clear adds to the changes one, and the number of events that it removes.
fn may_continue(record: &SessionRecord, state: &IndexState) -> bool {
    let grown = changes(record).checked_sub(state.changes);
    record.counts.events >= state.through.0 && grown.is_some_and(|grown| grown <= state.through.0)
}

/// Returns the tokens of an event.
fn indexed(kind: IndexKind, seq: Seq, event: &Event, agent: Option<&String>) -> Option<IndexedEvent> {
    let searched = searched_text(event)?;
    let tokens = match kind {
        IndexKind::Words => tokens(&searched.text),
        IndexKind::Substrings => trigram_tokens(&searched.text),
    };
    Some(IndexedEvent {
        seq,
        role: searched.role.as_str(),
        tool: searched.tool.map(|tool| tool.to_lowercase()),
        agent: agent.cloned(),
        tokens,
    })
}
