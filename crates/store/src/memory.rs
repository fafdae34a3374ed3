//! Sessions in memory.
//!
//! The plainest store there is: maps behind one lock, no clock and no dependency. It is what tests and short
//! runs use, and what the others are compared with, so it is written to be read rather than to be fast.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use azureal_core::{
    Appended, Compaction, CrashNotes, Event, LASTING_MARKS, ListOrder, ListQuery, Mark, NewMark, NewSession,
    NewTurn, Operation, PROMPT_KINDS, Page, Seq, SessionId, SessionRecord, SessionStore, StoreError,
    StoredEvent, Tally, Tokens, Tombstone, Uuid, async_trait, check_name,
};

/// Stores sessions in memory, until the process ends.
///
/// ```
/// # futures_executor::block_on(async {
/// use azureal_store::MemoryStore;
/// use azureal_store::core::{Event, NewSession, Page, SessionStore, NewTurn};
///
/// let store = MemoryStore::default();
/// let id = store.create(NewSession::default()).await?;
/// store.append(id, NewTurn::verbatim([Event::user("Hello"), Event::assistant("Hi!")])).await?;
///
/// let last = store.read(id, Page::last(1)).await?;
/// assert_eq!(last[0].event(), Ok(Event::assistant("Hi!")));
/// let record = store.get(id).await?;
/// assert_eq!((record.name.as_str(), record.counts.messages), ("S1", 2));
/// # Ok::<(), azureal_store::core::StoreError>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    id: Uuid,
    state: Mutex<State>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { id: Uuid::new_v4(), state: Mutex::default() }
    }
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// The number that was given last; it stays when its session goes.
    last_number: u32,
    /// Moves on at each activity. Seconds would be too coarse to order sessions by, and need a clock.
    activity: u64,
    sessions: BTreeMap<SessionId, Session>,
    tombstones: BTreeMap<Uuid, Tombstone>,
    marks: BTreeMap<String, Mark>,
    /// The last session by [`NewTurn::used_in`].
    last_used: BTreeMap<String, SessionId>,
}

#[derive(Debug, Default)]
struct Session {
    uuid: Uuid,
    forked_from: Option<Uuid>,
    name: Option<String>,
    named_at: String,
    worktree: String,
    created_at: String,
    /// The value of [`State::activity`] when it was active last.
    active: u64,
    /// When that was, if it was given.
    last_active: Option<String>,
    completed: Option<bool>,
    duration_ms: u64,
    cost_usd: f64,
    tokens: Tokens,
    tally: Tally,
    noted_run: Option<String>,
    /// Counts what changed beside the events: [`SessionRecord::revision`].
    changes: u64,
    generation: u64,
    /// The event at index 0 is number 1.
    events: Vec<Text>,
    /// The places of turns with an operation.
    operations: BTreeMap<Uuid, Appended>,
    compactions: BTreeMap<Seq, Laid>,
}

/// A summary over the events up to a place.
#[derive(Debug, Clone)]
struct Laid {
    compaction: Compaction,
    /// The rendered length of the events that it covers.
    covers: u64,
}

/// An event as it is kept: the text that was given.
#[derive(Debug, Clone)]
struct Text {
    kind: String,
    json: String,
    entry: Option<String>,
    removed_at: Option<String>,
}

impl MemoryStore {
    /// Locks the state. No code panics while it holds the lock, so the state of a poisoned lock is whole.
    fn open(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Err(StoreError::Closed);
        }
        Ok(state)
    }
}

impl State {
    fn session(&self, id: SessionId) -> Result<&Session, StoreError> {
        self.sessions.get(&id).ok_or(StoreError::NoSuchSession(id))
    }

    fn session_mut(&mut self, id: SessionId) -> Result<&mut Session, StoreError> {
        self.sessions.get_mut(&id).ok_or(StoreError::NoSuchSession(id))
    }

    fn next_activity(&mut self) -> u64 {
        self.activity += 1;
        self.activity
    }

    fn create(&mut self, new: NewSession) -> Result<SessionId, StoreError> {
        if let Some(name) = &new.name {
            check_name(name)?;
        }
        let id =
            self.last_number.checked_add(1).and_then(SessionId::new).ok_or_else(|| StoreError::Other {
                place: "memory".to_owned(),
                source: "every session number has been used".into(),
            })?;
        self.last_number = id.number();
        let uuid = new.uuid.unwrap_or_else(Uuid::new_v4);
        if let Some(tombstone) = self.tombstones.get_mut(&uuid) {
            tombstone.revived_at = Some(String::new());
        }
        let session = Session {
            uuid,
            forked_from: new.forked_from,
            named_at: new.named_at.filter(|_| new.name.is_some()).unwrap_or_default(),
            name: new.name,
            worktree: new.worktree,
            created_at: new.created_at.unwrap_or_default(),
            active: self.next_activity(),
            last_active: new.last_active,
            ..Session::default()
        };
        self.sessions.insert(id, session);
        Ok(id)
    }

    /// Remembers a session as the last one used somewhere.
    fn note_used(&mut self, id: SessionId, used_in: Option<String>) {
        if let Some(used_in) = used_in {
            self.last_used.insert(used_in, id);
        }
    }

    /// Returns the sessions that `filter` takes, the one that was active last first.
    fn by_activity(&self, filter: impl Fn(SessionId, &Session) -> bool) -> Vec<(SessionId, &Session)> {
        let mut found: Vec<_> = self
            .sessions
            .iter()
            .map(|(id, session)| (*id, session))
            .filter(|(id, session)| filter(*id, session))
            .collect();
        found.sort_by_key(|(_, session)| std::cmp::Reverse(session.active));
        found
    }

    fn find(&self, name: &str) -> Vec<SessionId> {
        self.by_activity(|id, session| session.called(id) == name).into_iter().map(|(id, _)| id).collect()
    }
}

impl Session {
    fn called(&self, id: SessionId) -> String {
        self.name.clone().unwrap_or_else(|| id.to_string())
    }

    fn last(&self) -> Seq {
        Seq(self.events.len() as u64)
    }

    /// Returns the time of the last activity, to be compared. Without a clock, what was done here is later than every time that was given.
    fn time(&self) -> (bool, Option<&str>) {
        (self.last_active.is_none(), self.last_active.as_deref())
    }

    fn record(&self, id: SessionId) -> SessionRecord {
        SessionRecord {
            id,
            damaged: Vec::new(),
            name: self.called(id),
            named_at: self.named_at.clone(),
            worktree: self.worktree.clone(),
            created_at: self.created_at.clone(),
            completed: self.completed,
            duration_ms: self.duration_ms,
            cost_usd: self.cost_usd,
            counts: self.tally.counts.clone(),
            tokens: self.tokens,
            covered: self.compactions.last_key_value().map_or(0, |(_, newest)| newest.covers),
            opening: self.compactions.last_key_value().map_or(0, |(_, newest)| newest.compaction.opening()),
            uuid: Some(self.uuid),
            forked_from: self.forked_from,
            last_active: self.last_active.clone().unwrap_or_default(),
            original_run: None,
            revision: self.changes + self.last().0,
            generation: self.generation,
        }
    }

    /// Lays a summary over the events up to a place that has one.
    fn lay(&mut self, compaction: Compaction) {
        let after_seq = compaction.after_seq;
        let mut covered = Tally::default();
        for (text, number) in self.events.iter().take(index(after_seq)).zip(1..) {
            covered.add(Seq(number), Event::from_json(&text.json).ok().as_ref());
        }
        self.compactions.insert(after_seq, Laid { compaction, covers: covered.counts.rendered_chars });
        self.tally.counts.context_tokens = None;
    }

    fn append(&mut self, turn: NewTurn) -> Appended {
        let before = self.last();
        self.tokens = self.tokens + turn.tokens;
        if !turn.events.is_empty() {
            let totals = turn.totals();
            self.last_active.clone_from(&turn.happened_at);
            self.completed = totals.completed;
            self.duration_ms = self.duration_ms.saturating_add(totals.duration_ms);
            self.cost_usd += totals.cost_usd;
        }
        if turn.events.is_empty() {
            self.changes += 1;
        }
        if turn.ends_run {
            self.noted_run = None;
        }
        turn.count_into(&mut self.tally, before);
        self.events.extend(turn.events.into_iter().map(|new| Text {
            kind: new.event().kind().to_owned(),
            json: new.json().into_owned(),
            entry: new.entry().map(str::to_owned),
            removed_at: new.removed_at().map(str::to_owned),
        }));
        let appended = Appended { first: before.next(), last: self.last() };
        if let Some(operation) = turn.operation {
            self.operations.insert(operation.id, appended);
        }
        appended
    }

    /// Returns the place of a turn that was appended by this operation.
    fn repeated(&self, id: SessionId, operation: Operation) -> Result<Option<Appended>, StoreError> {
        if operation.generation != self.generation {
            return Err(StoreError::Cleared(id));
        }
        Ok(self.operations.get(&operation.id).filter(|place| place.first > operation.after).copied())
    }

    /// Returns the events that stand at these indices, as far as there are such.
    fn slice(&self, from: usize, to: usize) -> Vec<StoredEvent> {
        let to = to.min(self.events.len());
        let texts = self.events.get(from..to).unwrap_or(&[]);
        texts
            .iter()
            .zip(from as u64..)
            .map(|(text, index)| StoredEvent {
                entry: text.entry.clone(),
                removed_at: text.removed_at.clone(),
                ..StoredEvent::new(Seq(index).next(), text.kind.as_str(), Ok(text.json.clone()))
            })
            .collect()
    }

    fn read(&self, page: Page) -> Vec<StoredEvent> {
        match page {
            Page::After(seq, limit) => {
                let from = index(seq);
                self.slice(from, from.saturating_add(limit))
            }
            Page::Before(seq, limit) => {
                let to = index(seq).saturating_sub(1).min(self.events.len());
                self.slice(to.saturating_sub(limit), to)
            }
        }
    }

    /// Returns a session of what is there up to `at`, as yet without a name.
    fn fork(&self, id: SessionId, at: Seq) -> Result<Self, StoreError> {
        if at > self.last() && at != Seq::END {
            return Err(no_such_event(id, at, self.last()));
        }
        let events: Vec<Text> = self.events.iter().take(index(at)).cloned().collect();
        let mut tally = Tally::default();
        for (text, number) in events.iter().zip(1..) {
            tally.add(Seq(number), Event::from_json(&text.json).ok().as_ref());
        }
        // No model has had this before it yet.
        tally.counts.context_tokens = None;
        let compactions = self.compactions.range(..=at);
        Ok(Self {
            forked_from: Some(self.uuid),
            tally,
            events,
            compactions: compactions.map(|(seq, laid)| (*seq, laid.clone())).collect(),
            ..Self::default()
        })
    }
}

/// Returns the index of the event after `seq`; where it is more than can be addressed, the greatest there is.
fn index(seq: Seq) -> usize {
    usize::try_from(seq.0).unwrap_or(usize::MAX)
}

fn no_such_event(session: SessionId, seq: Seq, last: Seq) -> StoreError {
    StoreError::NoSuchEvent { session, seq, last }
}

#[async_trait]
impl SessionStore for MemoryStore {
    async fn store_id(&self) -> Result<Option<Uuid>, StoreError> {
        self.open().map(|_| Some(self.id))
    }

    async fn create(&self, new: NewSession) -> Result<SessionId, StoreError> {
        self.open()?.create(new)
    }

    async fn create_with(
        &self,
        new: NewSession,
        mut turn: NewTurn,
        compactions: Vec<Compaction>,
    ) -> Result<SessionId, StoreError> {
        turn.texts()?;
        let mut state = self.open()?;
        if let Some(mark) = turn.mark.as_ref().and_then(|mark| state.marks.get(&mark.name)) {
            return Err(StoreError::Marked(mark.clone()));
        }
        // Checked before the session is created. If it is refused, the error has the next number.
        let (last, next) = (Seq(turn.events.len() as u64), state.last_number.saturating_add(1));
        for Compaction { after_seq, .. } in &compactions {
            if *after_seq == Seq::START || *after_seq > last {
                let session = SessionId::new(next).ok_or(StoreError::Closed)?;
                return Err(no_such_event(session, *after_seq, last));
            }
        }
        let (mark, used_in) = (turn.mark.take(), turn.used_in.take());
        turn.operation = None;
        let id = state.create(new)?;
        let session = state.session_mut(id)?;
        session.append(turn);
        for compaction in compactions {
            session.lay(compaction);
        }
        state.note_used(id, used_in);
        if let Some(NewMark { name, note }) = mark {
            state.marks.insert(name, Mark { session: id, note });
        }
        Ok(id)
    }

    async fn find_or_create(&self, new: NewSession) -> Result<SessionId, StoreError> {
        let mut state = self.open()?;
        let name = new.name.as_deref().unwrap_or("");
        check_name(name)?;
        match state.find(name).first() {
            Some(id) => Ok(*id),
            None => state.create(new),
        }
    }

    async fn last_used(&self, used_in: &str) -> Result<Option<SessionId>, StoreError> {
        Ok(self.open()?.last_used.get(used_in).copied())
    }

    async fn get(&self, id: SessionId) -> Result<SessionRecord, StoreError> {
        Ok(self.open()?.session(id)?.record(id))
    }

    async fn count(&self) -> Result<u64, StoreError> {
        Ok(self.open()?.sessions.len() as u64)
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<SessionRecord>, StoreError> {
        let state = self.open()?;
        let mut sessions = state.by_activity(|_, _| true);
        if query.order == ListOrder::Activity {
            // Equal times keep their order.
            sessions.sort_by(|(_, one), (_, other)| other.time().cmp(&one.time()));
        }
        let records = sessions.into_iter().map(|(id, session)| session.record(id));
        let limit = query.limit.unwrap_or(usize::MAX);
        Ok(records.filter(|record| query.matches(record)).take(limit).collect())
    }

    async fn rename(&self, id: SessionId, name: &str) -> Result<(), StoreError> {
        let mut state = self.open()?;
        let session = state.session_mut(id)?;
        check_name(name)?;
        session.name = Some(name.to_owned());
        session.named_at = String::new();
        session.changes += 1;
        Ok(())
    }

    async fn delete(&self, id: SessionId) -> Result<(), StoreError> {
        let mut state = self.open()?;
        let session = state.sessions.remove(&id).ok_or(StoreError::NoSuchSession(id))?;
        let (uuid, events) = (session.uuid, session.last().0);
        if !state.sessions.values().any(|other| other.uuid == uuid) {
            let tombstone = Tombstone { uuid, deleted_at: String::new(), events, revived_at: None };
            state.tombstones.insert(uuid, tombstone);
        }
        state.marks.retain(|name, mark| mark.session != id || name.starts_with(LASTING_MARKS));
        for mark in state.marks.values_mut().filter(|mark| mark.session == id) {
            mark.note.clear();
        }
        state.last_used.retain(|_, session| *session != id);
        Ok(())
    }

    async fn tombstones(&self, after: Option<Uuid>, limit: usize) -> Result<Vec<Tombstone>, StoreError> {
        let state = self.open()?;
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = state.tombstones.range((after, Bound::Unbounded)).take(limit);
        Ok(page.map(|(_, tombstone)| tombstone.clone()).collect())
    }

    async fn append(&self, id: SessionId, mut turn: NewTurn) -> Result<Appended, StoreError> {
        turn.texts()?;
        let mut state = self.open()?;
        let session = state.session(id)?;
        if let Some(operation) = turn.operation
            && let Some(place) = session.repeated(id, operation)?
        {
            return Ok(place);
        }
        let last = session.last();
        if let Some(expected) = turn.after.filter(|expected| *expected != last) {
            return Err(StoreError::Moved { session: id, expected, last });
        }
        let (mark, used_in) = (turn.mark.take(), turn.used_in.take());
        let is_empty = turn.events.is_empty();
        let appended = state.session_mut(id)?.append(turn);
        state.note_used(id, used_in);
        if !is_empty {
            let active = state.next_activity();
            state.session_mut(id)?.active = active;
        }
        if let Some(mark) = mark {
            let note = mark.note;
            state.marks.insert(mark.name, Mark { session: id, note });
        }
        Ok(appended)
    }

    async fn read(&self, id: SessionId, page: Page) -> Result<Vec<StoredEvent>, StoreError> {
        Ok(self.open()?.session(id)?.read(page))
    }

    async fn read_prompts(
        &self,
        id: SessionId,
        until: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let state = self.open()?;
        let events = state.session(id)?.slice(0, index(until));
        let prompts = events.into_iter().rev();
        Ok(prompts.filter(|event| PROMPT_KINDS.contains(&event.kind.as_str())).take(limit).collect())
    }

    async fn clear(&self, id: SessionId) -> Result<(), StoreError> {
        let mut state = self.open()?;
        let session = state.session_mut(id)?;
        session.changes += session.last().0 + 1;
        session.generation += 1;
        session.operations.clear();
        session.events.clear();
        session.compactions.clear();
        session.tally = Tally::default();
        session.completed = None;
        Ok(())
    }

    async fn fork(&self, id: SessionId, at: Seq, new: NewSession) -> Result<SessionId, StoreError> {
        let mut state = self.open()?;
        let copy = state.session(id)?.fork(id, at)?;
        let fork = state.create(NewSession { uuid: None, ..new })?;
        let session = state.session_mut(fork)?;
        session.forked_from = copy.forked_from;
        session.tally = copy.tally;
        session.events = copy.events;
        session.compactions = copy.compactions;
        Ok(fork)
    }

    async fn set_tokens(&self, id: SessionId, tokens: Tokens) -> Result<(), StoreError> {
        let mut state = self.open()?;
        let session = state.session_mut(id)?;
        session.tokens = tokens;
        session.changes += 1;
        Ok(())
    }

    async fn add_tokens(&self, id: SessionId, tokens: Tokens) -> Result<(), StoreError> {
        let mut state = self.open()?;
        let session = state.session_mut(id)?;
        session.tokens = session.tokens + tokens;
        session.changes += 1;
        Ok(())
    }

    async fn compactions(&self, id: SessionId) -> Result<Vec<Compaction>, StoreError> {
        let state = self.open()?;
        let compactions = state.session(id)?.compactions.iter();
        Ok(compactions.map(|(_, laid)| laid.compaction.clone()).collect())
    }

    async fn add_compaction(&self, id: SessionId, compaction: &Compaction) -> Result<(), StoreError> {
        let after_seq = compaction.after_seq;
        let mut state = self.open()?;
        let session = state.session_mut(id)?;
        if after_seq == Seq::START || after_seq > session.last() {
            return Err(no_such_event(id, after_seq, session.last()));
        }
        session.lay(compaction.clone());
        session.changes += 1;
        Ok(())
    }

    async fn remove_compaction(&self, id: SessionId, after_seq: Seq) -> Result<bool, StoreError> {
        let mut state = self.open()?;
        let session = state.session_mut(id)?;
        let removed = session.compactions.remove(&after_seq).is_some();
        if removed {
            session.changes += 1;
            session.tally.counts.context_tokens = None;
        }
        Ok(removed)
    }

    fn crash_notes(&self) -> Option<&dyn CrashNotes> {
        Some(self)
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.open()?.closed = true;
        Ok(())
    }
}

#[async_trait]
impl CrashNotes for MemoryStore {
    async fn mark(&self, name: &str) -> Result<Option<Mark>, StoreError> {
        Ok(self.open()?.marks.get(name).cloned())
    }

    async fn remove_mark(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.open()?.marks.remove(name).is_some())
    }

    async fn note_run(&self, id: SessionId, run: Option<&str>) -> Result<(), StoreError> {
        self.open()?.session_mut(id)?.noted_run = run.filter(|run| !run.is_empty()).map(str::to_owned);
        Ok(())
    }

    async fn noted_runs(&self) -> Result<Vec<(SessionId, String)>, StoreError> {
        let state = self.open()?;
        let noted = state.sessions.iter().filter_map(|(id, session)| Some((*id, session.noted_run.clone()?)));
        Ok(noted.collect())
    }
}
