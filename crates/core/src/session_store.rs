//! Where sessions live: the seam that every database implements.

use std::borrow::Cow;

use async_trait::async_trait;
use uuid::Uuid;

#[cfg(doc)]
use crate::PROMPT_KINDS;
use crate::event::EventError;
use crate::prompts::scan_prompts;
use crate::{
    Compaction, CrashNotes, Event, Holder, LeaseId, Leases, Mark, NewMark, NewSession, Seq, SessionId,
    SessionRecord, StoreError, Tally, Tokens, TurnTotals, Watch, compact_event, told_chars,
};

/// Where sessions live: memory, SQLite, PostgreSQL, Redis and whatever comes next.
///
/// A store keeps facts and gives them back in order; what an agent is told of them is
/// [`build_context`](crate::build_context)'s business. Every implementation passes the contract in
/// `azureal-testkit`. [`SessionContext`](crate::SessionContext) makes a session of any store a
/// [`ContextStore`](crate::ContextStore), so that a new database is this one trait to write.
///
/// Three rules hold for every method. One that is given the number of a session which is not there answers
/// [`StoreError::NoSuchSession`]. One that is called after [`close`](SessionStore::close) answers
/// [`StoreError::Closed`]. And one that answers an error has changed nothing.
///
/// Sessions are ordered by when they were active: a session is active when it is made, be it by a fork, and
/// when a turn is appended to it, unless it is an empty one. Nothing else is activity: not a rename, not a clear, not
/// tokens, not being forked from.
///
/// A future that is dropped before it is done may or may not have had its effect, but never half of it.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Makes a session and returns its number, which no session of this store has had before, also none that
    /// has been deleted. Several sessions may have one name.
    ///
    /// A name that [`check_name`] refuses is [`StoreError::UnusableName`], here as everywhere.
    async fn create(&self, new: NewSession) -> Result<SessionId, StoreError>;

    /// Makes a session with its first turn and the summaries over it, whole or not at all: a history from
    /// elsewhere. Unless the turn's mark is set already: then that is the error, and nothing changes. So
    /// however many bring the same history at once, it arrives once.
    ///
    /// A summary must end at an event of the turn, or it is [`StoreError::NoSuchEvent`].
    async fn create_with(
        &self,
        new: NewSession,
        turn: NewTurn,
        compactions: Vec<Compaction>,
    ) -> Result<SessionId, StoreError>;

    /// Returns the session of this name that was active last, and makes it if there is none.
    ///
    /// However many do this at once for one new name, one session is made. A name is needed in `new`;
    /// none is like an empty one. Finding a session changes nothing about it.
    async fn find_or_create(&self, new: NewSession) -> Result<SessionId, StoreError>;

    /// Returns the sessions of exactly this name, the one that was active last first.
    async fn find(&self, name: &str) -> Result<Vec<SessionId>, StoreError> {
        Ok(self.list(&ListQuery::named(name)).await?.iter().map(|record| record.id).collect())
    }

    /// Returns the session of this identity. Should several have it, the one that was active last.
    ///
    /// By default all sessions are listed for it.
    async fn find_uuid(&self, uuid: Uuid) -> Result<Option<SessionId>, StoreError> {
        let all = self.list(&ListQuery::default()).await?;
        Ok(all.iter().find(|record| record.uuid == Some(uuid)).map(|record| record.id))
    }

    /// Returns all but the events of a session.
    async fn get(&self, id: SessionId) -> Result<SessionRecord, StoreError>;

    /// Returns sessions, the one that was active last first.
    ///
    /// The cost is that of the sessions looked at, never that of their events. With a [`NameFilter`] these should be the
    /// sessions that are returned: commands look sessions up by name.
    async fn list(&self, query: &ListQuery) -> Result<Vec<SessionRecord>, StoreError>;

    /// Gives a session another name; to the order of the sessions that is nothing.
    async fn rename(&self, id: SessionId, name: &str) -> Result<(), StoreError>;

    /// Deletes a session and all that belongs to it: events, compactions, and the marks that its turns set.
    async fn delete(&self, id: SessionId) -> Result<(), StoreError>;

    /// Appends a turn, whole or not at all, after everything that is there, and says where it stands. One that
    /// holds an event larger than [`LARGEST_EVENT`] is [`StoreError::TooLarge`].
    /// When this returns, it is as durable as the store can make it.
    ///
    /// Events are numbered from 1, without gaps. [`NewTurn::count_into`] says what they do to the counts and
    /// [`NewTurn::totals`] what they do to the totals: `completed` is overwritten, duration and cost are added. A
    /// turn without events changes neither, yet adds its tokens and sets its mark.
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

    /// Removes the events and compactions of a session, what was counted over them, and how its last turn
    /// ended. The session, its totals and its marks stay. The next event is number 1 again.
    async fn clear(&self, id: SessionId) -> Result<(), StoreError>;

    /// Makes a new session of the events up to `at` and of the compactions that lie within them.
    ///
    /// [`Seq::END`] is all of them and [`Seq::START`] none; any other place that has no event is
    /// [`StoreError::NoSuchEvent`]. The counts of the new session are those of the events that it has. Its
    /// totals begin at zero, and its `completed` at nothing: it has not cost anything yet; and no model has had it
    /// before it, so [`Counts::context_tokens`](crate::Counts::context_tokens) is nothing. Marks stay behind.
    /// Its identity is a new one, and `forked_from` is the identity of the session it comes from.
    async fn fork(&self, id: SessionId, at: Seq, new: NewSession) -> Result<SessionId, StoreError>;

    /// Overwrites the token totals of a session, those of the cache included.
    async fn set_tokens(&self, id: SessionId, tokens: Tokens) -> Result<(), StoreError>;

    /// Adds to the token totals of a session; nothing is lost when several do so at once.
    async fn add_tokens(&self, id: SessionId, tokens: Tokens) -> Result<(), StoreError>;

    /// Returns the compactions of a session, the one that reaches furthest last: that one counts.
    async fn compactions(&self, id: SessionId) -> Result<Vec<Compaction>, StoreError>;

    /// Lays a summary over the events up to its `after_seq`, instead of one that ends there already. One without a time gets
    /// that of this moment. A place that
    /// has no event is [`StoreError::NoSuchEvent`].
    async fn add_compaction(&self, id: SessionId, compaction: &Compaction) -> Result<(), StoreError>;

    /// Takes the summary that ends at `after_seq` off again; says whether there was one.
    async fn remove_compaction(&self, id: SessionId, after_seq: Seq) -> Result<bool, StoreError>;

    /// Returns the session of the last turn with this [`NewTurn::used_in`].
    async fn last_used(&self, used_in: &str) -> Result<Option<SessionId>, StoreError>;

    /// Returns the [crash notes](CrashNotes) of the store, if it keeps any.
    fn crash_notes(&self) -> Option<&dyn CrashNotes> {
        None
    }

    /// Returns the [leases](Leases) of the store, if it gives out any. A store that only one machine uses needs none.
    fn leases(&self) -> Option<&dyn Leases> {
        None
    }

    /// Begins to hear of what others do to a session. What was done before that is not heard of.
    ///
    /// By default there is nothing to hear, and whoever wants to know looks again and again.
    async fn watch(&self, id: SessionId) -> Result<Option<Box<dyn Watch>>, StoreError> {
        self.get(id).await.map(|_| None)
    }

    /// Begins to hear of what others do to any session: one is created, changed or deleted.
    ///
    /// `None` if the store cannot tell, or not yet: then the caller polls, and may ask again later.
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

/// What one turn adds to a session.
#[derive(Debug, Clone, Default)]
pub struct NewTurn {
    /// The events, in order.
    pub events: Vec<NewEvent>,
    /// Tokens to be added to the session's totals.
    pub tokens: Tokens,
    /// A mark to be set with it, so that a thing that is done once is never done twice. Ignored by a store without
    /// [crash notes](CrashNotes).
    pub mark: Option<NewMark>,
    /// The last event that the session must have, or the turn is not appended: [`StoreError::Moved`].
    pub after: Option<Seq>,
    /// The lease under which it was made. If another has been given out since, the turn is not appended:
    /// [`StoreError::Fenced`]. Ignored by a store that gives out none.
    pub lease: Option<LeaseId>,
    /// What it does to the session's totals, where its events do not say it.
    pub totals: Option<TurnTotals>,
    /// Where the turn was taken: the worktree, and on a server also the user. The store remembers the session as the
    /// [last one used](SessionStore::last_used) there, unless no agent has ever answered in it.
    pub used_in: Option<String>,
    /// Removes the session's note of a run ([`CrashNotes::note_run`]) in the same transaction: the run's events are in
    /// the store now. Ignored by a store without crash notes.
    pub ends_run: bool,
}

/// The most that the text of one event may hold, in bytes: 64 MiB. Larger ones are refused.
pub const LARGEST_EVENT: usize = 64 << 20;

impl NewTurn {
    /// Makes a turn of these events, exactly as they are.
    pub fn verbatim(events: impl IntoIterator<Item = Event>) -> Self {
        Self { events: events.into_iter().map(NewEvent::from).collect(), ..Self::default() }
    }

    /// Makes a turn of these events as they are kept: each cut down by [`compact_event`].
    pub fn compacted(events: impl IntoIterator<Item = Event>) -> Self {
        Self::verbatim(events.into_iter().map(compact_event))
    }

    /// Returns what the turn does to the totals of its session.
    pub fn totals(&self) -> TurnTotals {
        self.totals.unwrap_or_else(|| TurnTotals::of(self.events.iter().map(|new| &new.event)))
    }

    /// Returns how much there is to tell of the turn up to a place, in characters, where it is the first of its session.
    pub fn told_through(&self, seq: Seq) -> u64 {
        let covered = usize::try_from(seq.0).unwrap_or(usize::MAX);
        self.events.iter().take(covered).map(|new| told_chars(&new.event)).fold(0, u64::saturating_add)
    }

    /// Returns the texts of its events, each written once, unless one is larger than [`LARGEST_EVENT`] and could not be stored, or not be read again.
    pub fn texts(&self) -> Result<Vec<Cow<'_, str>>, StoreError> {
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
}

impl NewEvent {
    /// Takes an event as the text that it was stored as elsewhere, so that a copy is the same to the byte.
    pub fn verbatim(json: String) -> Result<Self, EventError> {
        let event = Event::from_json(&json)?;
        Ok(Self { event, json: Some(json) })
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
        Self { event, json: None }
    }
}

/// Where an appended turn stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its first event; for an empty turn, where its first event would have been.
    pub first: Seq,
    /// Its last event; for an empty turn, the last of the session.
    pub last: Seq,
}

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only those of this worktree; all if `None`.
    pub worktree: Option<WorktreeFilter>,
    /// Only those of this name; all if `None`.
    pub name: Option<NameFilter>,
    /// At most so many; all if `None`.
    pub limit: Option<usize>,
}

impl ListQuery {
    /// Asks for the sessions of exactly this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(NameFilter::Exact(name.into())), ..Self::default() }
    }

    /// Returns whether the query asks for this session, whatever its limit.
    pub fn matches(&self, record: &SessionRecord) -> bool {
        self.worktree.as_ref().is_none_or(|worktree| worktree.matches(&record.worktree))
            && self.name.as_ref().is_none_or(|name| name.matches(record))
    }
}

/// Selects sessions by name. Names are compared byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameFilter {
    /// This name. A session without a name of its own has its number for one.
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
            // Between the two parts of Unicode's range lie the surrogates, which are no characters.
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
    /// Says whether a session that holds `stored` belongs to this worktree.
    pub fn matches(&self, stored: &str) -> bool {
        self.names.iter().any(|name| name == stored)
            || (stored.starts_with('/')
                && stored.trim_end_matches('/').rsplit('/').next() == Some(&self.last_part))
    }
}

/// Which part of a session to read.
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
}

impl StoredEvent {
    /// Reads the event; what cannot be read is reported, never dropped.
    pub fn event(&self) -> Result<Event, Damage> {
        let json = self.json.as_ref().map_err(Clone::clone)?;
        Event::from_json(json).map_err(|error| Damage(error.to_string()))
    }
}

/// Why a stored event cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damage(pub String);

/// Says whether a session may have this name: not empty, and not what could be a session's number.
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
