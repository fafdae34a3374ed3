//! The storage of sessions: the trait that every database implements.

use std::borrow::Cow;

use async_trait::async_trait;
use uuid::Uuid;

use crate::event::EventError;
use crate::prompts::scan_prompts;
use crate::usage::scan_usage;
use crate::{
    Compaction, CrashNotes, Event, Holder, LeaseId, Leases, Mark, NewMark, NewSession, Operation, Originals,
    SearchIndex, Seq, SessionId, SessionRecord, StoreError, Tally, Tokens, Tombstone, TurnTotals, Watch,
    compact_event,
};
#[cfg(doc)]
use crate::{PROMPT_KINDS, USAGE_KINDS};

/// Storage of sessions: memory, SQLite, PostgreSQL, Redis and any later database.
///
/// A store returns facts in their order; [`build_context`](crate::build_context) renders them for an agent. Every
/// implementation passes the contract in `azureal-testkit`. [`SessionContext`](crate::SessionContext) turns a session
/// of any store into a [`ContextStore`](crate::ContextStore), so a new database is this one trait to write.
///
/// Three rules hold for every method. It returns [`StoreError::NoSuchSession`] if there is no session of the given
/// number. It returns [`StoreError::Closed`] after [`close`](SessionStore::close). An error means that nothing was
/// changed.
///
/// Creating a session is activity, also by a fork, and so is appending a turn that is not empty. Renaming, clearing,
/// adding tokens and being forked from are not. Of each session, a store has the time of its last activity, and the place of
/// that activity among those of all sessions: [`ListOrder`]. "Active last" means that place.
///
/// A future that is dropped early may or may not have had its effect, but never half of it.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Returns the id of the store itself: the first client that writes to it sets it, and it never changes. `None` if nobody has
    /// written yet, or if the store keeps none.
    ///
    /// It identifies a store whose address or file name changes. A copy of the whole store has the same id.
    async fn store_id(&self) -> Result<Option<Uuid>, StoreError> {
        Ok(None)
    }

    /// Creates a session and returns its number. A number is used once, also after its session is deleted. Several
    /// sessions may have one name.
    ///
    /// A name that [`check_name`] refuses is [`StoreError::UnusableName`], here as everywhere. A session with the UUID of a
    /// deleted one revives it: [`Tombstone::revived_at`].
    async fn create(&self, new: NewSession) -> Result<SessionId, StoreError>;

    /// Creates a session with its first turn and the summaries over it, in one transaction: a history from elsewhere.
    /// If the turn's mark is set already, it returns that as an error and changes nothing. So the same history
    /// arrives once, however many processes bring it. [`NewTurn::operation`] is ignored.
    ///
    /// A summary must end at an event of the turn, or it is [`StoreError::NoSuchEvent`].
    async fn create_with(
        &self,
        new: NewSession,
        turn: NewTurn,
        compactions: Vec<Compaction>,
    ) -> Result<SessionId, StoreError>;

    /// Creates sessions with their histories, as [`create_with`](Self::create_with) does, in one transaction if the store can.
    /// Otherwise one after the other, and an error leaves those before it.
    ///
    /// By default one after the other.
    async fn create_all(&self, histories: Vec<NewHistory>) -> Result<Vec<SessionId>, StoreError> {
        let mut created = Vec::with_capacity(histories.len());
        for NewHistory { session, turn, compactions } in histories {
            created.push(self.create_with(session, turn, compactions).await?);
        }
        Ok(created)
    }

    /// Returns the session of this name that was active last. Creates one if there is none.
    ///
    /// However many callers do this at once for one new name, one session is created. `new` needs a name; `None` is
    /// like an empty one. Finding a session does not change it.
    async fn find_or_create(&self, new: NewSession) -> Result<SessionId, StoreError>;

    /// Returns the sessions of exactly this name, the one that was active last first.
    async fn find(&self, name: &str) -> Result<Vec<SessionId>, StoreError> {
        let query = ListQuery { order: ListOrder::Changes, ..ListQuery::named(name) };
        Ok(self.list(&query).await?.iter().map(|record| record.id).collect())
    }

    /// Returns the session of this identity. Should several have it, the one that was active last.
    ///
    /// By default all sessions are listed for it.
    async fn find_uuid(&self, uuid: Uuid) -> Result<Option<SessionId>, StoreError> {
        let all = self.list(&ListQuery { order: ListOrder::Changes, ..ListQuery::default() }).await?;
        Ok(all.iter().find(|record| record.uuid == Some(uuid)).map(|record| record.id))
    }

    /// Returns the number of sessions.
    ///
    /// By default all sessions are listed for it.
    async fn count(&self) -> Result<u64, StoreError> {
        Ok(self.list(&ListQuery::default()).await?.len() as u64)
    }

    /// Returns all but the events of a session.
    async fn get(&self, id: SessionId) -> Result<SessionRecord, StoreError>;

    /// Returns sessions in the order of the query.
    ///
    /// The cost is that of the sessions looked at, never that of their events. With a [`NameFilter`] these should be the
    /// sessions that are returned: commands look sessions up by name.
    async fn list(&self, query: &ListQuery) -> Result<Vec<SessionRecord>, StoreError>;

    /// Renames a session now: [`SessionRecord::named_at`]. The order of the sessions stays the same.
    async fn rename(&self, id: SessionId, name: &str) -> Result<(), StoreError>;

    /// Deletes a session and all that belongs to it: events, compactions, and the marks that its turns set. Of
    /// [lasting](crate::LASTING_MARKS) marks, only the notes are deleted.
    ///
    /// The same transaction writes a [`Tombstone`], unless another session has the UUID.
    async fn delete(&self, id: SessionId) -> Result<(), StoreError>;

    /// Reads a page of the tombstones, in the order of their UUIDs: those after `after`, at most so many. An empty page is the end.
    ///
    /// By default there are none: then a deleted session comes back when it is imported again.
    async fn tombstones(&self, _after: Option<Uuid>, _limit: usize) -> Result<Vec<Tombstone>, StoreError> {
        Ok(Vec::new())
    }

    /// Appends a turn after all events, in one transaction, and returns its place. Returns [`StoreError::TooLarge`]
    /// if an event is larger than [`LARGEST_EVENT`]. When this returns, the turn is as durable as the store can make
    /// it.
    ///
    /// Events are numbered from 1, without gaps. [`NewTurn::count_into`] defines their effect on the counts,
    /// [`NewTurn::totals`] the one on the totals: `completed` is overwritten, duration and cost are added. A turn
    /// without events changes neither, but adds its tokens and sets its mark.
    ///
    /// With an [`Operation`] the append is idempotent: a repeat changes nothing and returns the place of the first.
    async fn append(&self, id: SessionId, turn: NewTurn) -> Result<Appended, StoreError>;

    /// Reads a page of a session's events, oldest first.
    ///
    /// A page may hold fewer events than were asked for, if they are large; only an empty one is the end. Of
    /// [`Page::Before`] those that are nearest to its point are kept. An event comes back as the text that it
    /// was given as, byte for byte.
    /// No lock is held when this returns.
    async fn read(&self, id: SessionId, page: Page) -> Result<Vec<StoredEvent>, StoreError>;

    /// Reads the events up to and including `until` that can hold a prompt, which are those of the
    /// [`PROMPT_KINDS`], newest first, at most so many; an empty answer is the end.
    ///
    /// Every context that is built on a summary asks for this, so its cost must be that of the events that it
    /// returns, not of those between them. By default it is not: all of them are read.
    async fn read_prompts(
        &self,
        id: SessionId,
        until: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        scan_prompts(self, id, until, limit).await
    }

    /// Reads the events after `after` that say what turns used, which are those of the [`USAGE_KINDS`], oldest first, at most so
    /// many; an empty answer is the end.
    ///
    /// Sums over all sessions ask for this, so a store should select these events by itself. By default all of them are read.
    async fn read_usage(
        &self,
        id: SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        scan_usage(self, id, after, limit).await
    }

    /// Removes the events and compactions of a session, what was counted over them, and how its last turn
    /// ended. The session, its totals and its marks stay. The next event is number 1 again, in the next
    /// [generation](SessionRecord::generation).
    async fn clear(&self, id: SessionId) -> Result<(), StoreError>;

    /// Creates a session of the events up to `at` and of the compactions that end within them.
    ///
    /// [`Seq::END`] means all events and [`Seq::START`] none. Any other place without an event is
    /// [`StoreError::NoSuchEvent`]. The counts of the new session are those of its events. Its totals are zero, and
    /// `completed` and [`Counts::context_tokens`](crate::Counts::context_tokens) are `None`. Marks and operations are not
    /// copied. It gets a new identity, and `forked_from` is the identity of the original.
    async fn fork(&self, id: SessionId, at: Seq, new: NewSession) -> Result<SessionId, StoreError>;

    /// Overwrites the token totals of a session, those of the cache included.
    async fn set_tokens(&self, id: SessionId, tokens: Tokens) -> Result<(), StoreError>;

    /// Adds to the token totals of a session. Concurrent calls all count.
    async fn add_tokens(&self, id: SessionId, tokens: Tokens) -> Result<(), StoreError>;

    /// Returns the compactions of a session, ordered by `after_seq`. The last one counts.
    async fn compactions(&self, id: SessionId) -> Result<Vec<Compaction>, StoreError>;

    /// Lays a summary over the events up to its `after_seq`, instead of one that ends there already. One without a time gets
    /// that of this moment. A place that
    /// has no event is [`StoreError::NoSuchEvent`].
    async fn add_compaction(&self, id: SessionId, compaction: &Compaction) -> Result<(), StoreError>;

    /// Takes the summary that ends at `after_seq` off again; returns whether there was one.
    async fn remove_compaction(&self, id: SessionId, after_seq: Seq) -> Result<bool, StoreError>;

    /// Returns the session of the last turn with this [`NewTurn::used_in`].
    async fn last_used(&self, used_in: &str) -> Result<Option<SessionId>, StoreError>;

    /// Returns the [crash notes](CrashNotes) of the store, if it has them.
    fn crash_notes(&self) -> Option<&dyn CrashNotes> {
        None
    }

    /// Returns the [leases](Leases) of the store, if it gives out any. A store that only one machine uses needs none.
    fn leases(&self) -> Option<&dyn Leases> {
        None
    }

    /// Returns the [originals](Originals) of the store, if it keeps any.
    fn originals(&self) -> Option<&dyn Originals> {
        None
    }

    /// Returns the [search index](SearchIndex) of the store, if it keeps one itself and this user may write it. Others get one in a file.
    async fn search_index(&self) -> Result<Option<&dyn SearchIndex>, StoreError> {
        Ok(None)
    }

    /// Subscribes to changes of a session by others. Earlier changes are not reported.
    ///
    /// By default there is no watch, and callers poll.
    async fn watch(&self, id: SessionId) -> Result<Option<Box<dyn Watch>>, StoreError> {
        self.get(id).await.map(|_| None)
    }

    /// Subscribes to changes of any session by others: one is created, changed or deleted.
    ///
    /// `None` if the store cannot report changes, or not yet. Then the caller polls, and may call this again later.
    async fn watch_all(&self) -> Result<Option<Box<dyn Watch>>, StoreError> {
        self.list(&ListQuery { limit: Some(0), ..ListQuery::default() }).await.map(|_| None)
    }

    /// Lets go of the store. Handles that are used afterwards answer [`StoreError::Closed`], to this call too.
    async fn close(&self) -> Result<(), StoreError>;
}

/// The capabilities of any store. What a store does not keep, it has none of.
impl dyn SessionStore + '_ {
    /// Returns the mark of this name, if a turn has set it.
    pub async fn mark(&self, name: &str) -> Result<Option<Mark>, StoreError> {
        match self.crash_notes() {
            Some(notes) => notes.mark(name).await,
            None => Ok(None),
        }
    }

    /// Removes a mark; returns whether there was one.
    pub async fn remove_mark(&self, name: &str) -> Result<bool, StoreError> {
        match self.crash_notes() {
            Some(notes) => notes.remove_mark(name).await,
            None => Ok(false),
        }
    }

    /// Notes a run of a session, or removes the note: [`CrashNotes::note_run`].
    pub async fn note_run(&self, id: SessionId, run: Option<&str>) -> Result<(), StoreError> {
        match self.crash_notes() {
            Some(notes) => notes.note_run(id, run).await,
            None => Ok(()),
        }
    }

    /// Returns the sessions that have a note of a run, with it, by their number.
    pub async fn noted_runs(&self) -> Result<Vec<(SessionId, String)>, StoreError> {
        match self.crash_notes() {
            Some(notes) => notes.noted_runs().await,
            None => Ok(Vec::new()),
        }
    }

    /// Removes the note of the original AZUREAL program's run: [`CrashNotes::clear_original_run`].
    pub async fn clear_original_run(&self, id: SessionId, run: &str) -> Result<bool, StoreError> {
        match self.crash_notes() {
            Some(notes) => notes.clear_original_run(id, run).await,
            None => Ok(false),
        }
    }

    /// Returns the sessions that are leased, with the holders, by their number.
    pub async fn held_leases(&self) -> Result<Vec<(SessionId, Holder)>, StoreError> {
        match self.leases() {
            Some(leases) => leases.held().await,
            None => Ok(Vec::new()),
        }
    }
}

/// The additions of one turn to a session.
#[derive(Debug, Clone, Default)]
pub struct NewTurn {
    /// The events, in order.
    pub events: Vec<NewEvent>,
    /// Tokens to be added to the session's totals.
    pub tokens: Tokens,
    /// Makes the append idempotent: [`Operation`]. `None` for a turn that may be appended twice if its outcome is not known.
    pub operation: Option<Operation>,
    /// A mark to be set with it. Ignored by a store without [crash notes](CrashNotes).
    pub mark: Option<NewMark>,
    /// The last event that the session must have, or the turn is not appended: [`StoreError::Moved`].
    pub after: Option<Seq>,
    /// When the session must have been created ([`SessionRecord::created_at`]), or the turn is not appended:
    /// [`StoreError::NoSuchSession`]. Only a store in a file checks it. Its file may be replaced while a turn runs, and then the
    /// number belongs to another session.
    pub session_created: Option<String>,
    /// The lease under which the turn ran. If another lease was granted since, the turn is not appended:
    /// [`StoreError::Fenced`]. A store without leases ignores it.
    pub lease: Option<LeaseId>,
    /// The turn's effect on the session's totals, if its events do not have it.
    pub totals: Option<TurnTotals>,
    /// The place that the turn ran in: the worktree, and on a server also the user. The store records the session as
    /// the [last one used](SessionStore::last_used) there, whether an agent has answered in it or not.
    pub used_in: Option<String>,
    /// Removes the session's note of a run ([`CrashNotes::note_run`]) in the same transaction: the run's events are in
    /// the store now. Ignored by a store without crash notes.
    pub ends_run: bool,
    /// The time of the turn, as `2026-01-31T09:30:00Z`, of a turn from elsewhere: [`SessionRecord::last_active`]. Defaults to
    /// now. A store with a clock takes a time in the future as now: the clock of another machine may be wrong.
    pub happened_at: Option<String>,
}

/// A session from elsewhere, with its history.
#[derive(Debug, Clone, Default)]
pub struct NewHistory {
    /// The session.
    pub session: NewSession,
    /// Its first turn, which may have the events of several.
    pub turn: NewTurn,
    /// The summaries over it.
    pub compactions: Vec<Compaction>,
}

/// The most that the text of one event may hold, in bytes: 64 MiB. Larger ones are refused.
pub const LARGEST_EVENT: usize = 64 << 20;
/// The most that [`StoredEvent::entry`] may hold, in bytes. Longer ones are refused.
pub const LONGEST_ENTRY: usize = 1000;

impl NewTurn {
    /// Creates a turn of these events, unchanged.
    pub fn verbatim(events: impl IntoIterator<Item = Event>) -> Self {
        Self { events: events.into_iter().map(NewEvent::from).collect(), ..Self::default() }
    }

    /// Creates a turn of these events as they are stored: each cut down by [`compact_event`].
    pub fn compacted(events: impl IntoIterator<Item = Event>) -> Self {
        Self::verbatim(events.into_iter().map(compact_event))
    }

    /// Returns what the turn does to the totals of its session.
    pub fn totals(&self) -> TurnTotals {
        self.totals.unwrap_or_else(|| TurnTotals::of(self.events.iter().map(|new| &new.event)))
    }

    /// Counts the events of the turn up to a place, if it is the first turn of its session.
    pub fn count_through(&self, seq: Seq) -> Tally {
        let mut tally = Tally::default();
        for (new, number) in self.events.iter().zip(1..=seq.0) {
            tally.add(Seq(number), Some(&new.event));
        }
        tally
    }

    /// Returns the texts of its events, each written once. Refuses what no store can keep: an event larger than [`LARGEST_EVENT`],
    /// an entry longer than [`LONGEST_ENTRY`], an operation without an event to stand on.
    pub fn texts(&self) -> Result<Vec<Cow<'_, str>>, StoreError> {
        if self.operation.is_some() && self.events.is_empty() {
            return Err(StoreError::NotSupported("an operation without events"));
        }
        if self.events.iter().filter_map(|new| new.entry.as_ref()).any(|entry| entry.len() > LONGEST_ENTRY) {
            return Err(StoreError::NotSupported("an id of an entry over 1,000 bytes"));
        }
        let texts: Vec<Cow<'_, str>> = self.events.iter().map(NewEvent::json).collect();
        let bytes = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        if bytes > LARGEST_EVENT { Err(StoreError::TooLarge { bytes }) } else { Ok(texts) }
    }

    /// Counts the turn's events, which begin after `after`.
    pub fn count_into(&self, tally: &mut Tally, after: Seq) {
        let mut seq = after;
        for new in &self.events {
            seq = seq.next();
            tally.add(seq, Some(&new.event));
        }
    }
}

/// Appends what an agent reported, as it is kept: each event cut down by [`compact_event`].
pub async fn append_events<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    events: impl IntoIterator<Item = Event>,
) -> Result<Appended, StoreError> {
    let turn = NewTurn::compacted(events);
    store.append(id, turn).await
}

/// An event on its way into a store.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    event: Event,
    /// The text to store, where it is not the one that the event would be written as.
    json: Option<String>,
    entry: Option<String>,
    removed_at: Option<String>,
}

impl NewEvent {
    /// Takes an event as the text that it was stored as elsewhere, so that a copy is the same to the byte.
    pub fn verbatim(json: String) -> Result<Self, EventError> {
        let event = Event::from_json(&json)?;
        Ok(Self { event, json: Some(json), entry: None, removed_at: None })
    }

    /// Sets the id that the agent gave to the event's entry in its own session: [`StoredEvent::entry`].
    #[must_use]
    pub fn with_entry(self, entry: Option<String>) -> Self {
        Self { entry, ..self }
    }

    /// Sets the time at which the content of the event was removed, of an event from elsewhere: [`StoredEvent::removed_at`].
    #[must_use]
    pub fn with_removed_at(self, removed_at: Option<String>) -> Self {
        Self { removed_at, ..self }
    }

    /// Returns the id that the agent gave to the event's entry.
    pub fn entry(&self) -> Option<&str> {
        self.entry.as_deref()
    }

    /// Returns when the content of the event was removed.
    pub fn removed_at(&self) -> Option<&str> {
        self.removed_at.as_deref()
    }

    /// Returns the event.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Returns the text to be stored.
    pub fn json(&self) -> Cow<'_, str> {
        match &self.json {
            Some(json) => Cow::Borrowed(json),
            None => Cow::Owned(self.event.to_json()),
        }
    }
}

impl From<Event> for NewEvent {
    fn from(event: Event) -> Self {
        Self { event, json: None, entry: None, removed_at: None }
    }
}

/// The place of an appended turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its first event; for an empty turn, where its first event would have been.
    pub first: Seq,
    /// Its last event; for an empty turn, the last of the session.
    pub last: Seq,
}

/// A selection of sessions to list, and their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only those of this worktree; all if `None`.
    pub worktree: Option<WorktreeFilter>,
    /// Only those of this name; all if `None`.
    pub name: Option<NameFilter>,
    /// The order of the list.
    pub order: ListOrder,
    /// At most so many, the first of the order; all if `None`.
    pub limit: Option<usize>,
}

/// An order of sessions. Sessions that are equal in both orders are listed by their numbers, the greatest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ListOrder {
    /// By the time of the last activity, the latest first, for people: a session that is imported has the time at which it was used.
    /// Of equal times, those of [`Changes`](Self::Changes).
    #[default]
    Activity,
    /// By the order in which the activities reached this store, the last first, whatever their times. So a caller that remembers
    /// what it has seen reads a list only to where nothing has changed.
    Changes,
}

impl ListQuery {
    /// Asks for the sessions of exactly this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(NameFilter::Exact(name.into())), ..Self::default() }
    }

    /// Returns whether the session matches the query, regardless of the limit.
    pub fn matches(&self, record: &SessionRecord) -> bool {
        self.worktree.as_ref().is_none_or(|worktree| worktree.matches(&record.worktree))
            && self.name.as_ref().is_none_or(|name| name.matches(record))
    }
}

/// Selects sessions by name. Names are compared byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameFilter {
    /// This name. A session without a name has its number as its name.
    Exact(String),
    /// A name that begins with this text. Sessions without a name of their own are left out.
    Prefix(String),
}

impl NameFilter {
    /// Returns whether a session has such a name.
    pub fn matches(&self, record: &SessionRecord) -> bool {
        match self {
            Self::Exact(name) => record.name == *name,
            Self::Prefix(prefix) => record.has_own_name() && record.name.starts_with(prefix.as_str()),
        }
    }

    /// Returns the least text that is greater than every text that begins with `prefix`, in the order of their bytes; `None`
    /// if there is no such text. So a store can find names by a range of an index.
    pub fn end_of_prefix(prefix: &str) -> Option<String> {
        let mut end: Vec<char> = prefix.chars().collect();
        while let Some(last) = end.pop() {
            // The surrogates, which are no characters, are between the two parts of Unicode's range.
            let next =
                if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) };
            if let Some(next) = next {
                end.push(next);
                return Some(end.into_iter().collect());
            }
        }
        None
    }
}

/// Recognises a worktree in every form in which one has been stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorktreeFilter {
    /// The forms that are taken as they are: the path relative to the project root, the branch's name.
    pub names: Vec<String>,
    /// The last part of its path: older files hold absolute paths, and a project may have moved.
    pub last_part: String,
}

impl WorktreeFilter {
    /// Returns whether a session that holds `stored` belongs to this worktree.
    pub fn matches(&self, stored: &str) -> bool {
        self.names.iter().any(|name| name == stored)
            || (stored.starts_with('/')
                && stored.trim_end_matches('/').rsplit('/').next() == Some(&self.last_part))
    }
}

/// The part of a session to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// The events after this one, the first of them, at most so many.
    After(Seq, usize),
    /// The events before this one, the last of them, at most so many.
    Before(Seq, usize),
}

impl Page {
    /// The last events of a session, at most so many.
    pub fn last(count: usize) -> Self {
        Self::Before(Seq::END, count)
    }
}

/// An event as a store gives it back.
///
/// A store gives back the text that it was given. Reading it as an [`Event`] is the caller's choice, so
/// that copying changes no byte and what a newer version wrote is shown rather than dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its place in the session.
    pub seq: Seq,
    /// Its kind, as the store has it.
    pub kind: String,
    /// Its text, or why that cannot be read.
    pub json: Result<String, Damage>,
    /// The id that the agent gave to the event's entry in its own session. `None` if it gave none.
    pub entry: Option<String>,
    /// When the content of the event was removed, as `2026-01-31T09:30:00Z`. The event keeps its place and its kind.
    pub removed_at: Option<String>,
}

impl StoredEvent {
    /// Creates an event as it is read of a store, with neither an entry nor a mark of its removal.
    pub fn new(seq: Seq, kind: impl Into<String>, json: Result<String, Damage>) -> Self {
        Self { seq, kind: kind.into(), json, entry: None, removed_at: None }
    }

    /// Reads the event; what cannot be read is reported, never dropped.
    pub fn event(&self) -> Result<Event, Damage> {
        let json = self.json.as_ref().map_err(Clone::clone)?;
        Event::from_json(json).map_err(|error| Damage(error.to_string()))
    }
}

/// The reason why a stored event cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damage(pub String);

/// Returns whether a session may have this name: not empty, and not what could be a session's number.
pub fn check_name(name: &str) -> Result<(), StoreError> {
    let numeric = name
        .strip_prefix(['S', 's'])
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    if name.trim().is_empty() || numeric { Err(StoreError::UnusableName(name.to_owned())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_be_taken_for_a_number() {
        for name in ["", " ", "S3", "s12", "S007"] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in ["S", "S3x", "3", "my session", "../etc", "Ünïcode\u{202e}", "a\0b", "--flag"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_prefix_ends_before_the_next_text() {
        for (prefix, end) in [
            ("log", Some("loh")),
            ("é", Some("ê")),
            ("a\u{d7ff}", Some("a\u{e000}")),
            ("a\u{10ffff}\u{10ffff}", Some("b")),
            ("\u{10ffff}", None),
            ("", None),
        ] {
            assert_eq!(NameFilter::end_of_prefix(prefix).as_deref(), end, "{prefix:?}");
        }
    }

    #[test]
    fn a_worktree_is_recognised_in_every_form() {
        let filter =
            WorktreeFilter { names: vec!["../feat".into(), "feat-branch".into()], last_part: "feat".into() };
        for stored in ["../feat", "feat-branch", "/old/place/feat", "/old/place/feat/"] {
            assert!(filter.matches(stored), "{stored}");
        }
        for stored in ["", ".", "feat", "/old/place/other", "/feat/x"] {
            assert!(!filter.matches(stored), "{stored}");
        }
    }
}
