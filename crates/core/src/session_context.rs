//! A session of any store, as a conversation.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future;

use crate::compact_context::summary_messages;
use crate::context::{LEDGER_HEADING, PROMPTS_HEADING, system_text};
use crate::fold::{MessagePosition, Open};
use crate::ledger::{LedgerCache, LedgerKey, read_ledger};
use crate::prompts::{decides, read_carried, shortened};
use crate::{
    Beginning, Compaction, Context, ContextBuilder, ContextStore, Event, Fold, Laid, Message, NewSession,
    NewTurn, OpeningLimits, PAGE_EVENTS, Page, Role, Seq, SessionId, SessionInfo, SessionKey, SessionRecord,
    SessionStore, StoreError, StoredEvent, Tally, Threshold, Tokens, Uuid, check_name, events_of_message,
    fold, rendered_chars,
};

/// The number of events that are searched for a session's system message, which is its first message.
pub(crate) const BEGINNING: usize = 16;

/// A session of any [`SessionStore`], as a [`ContextStore`].
///
/// It is opened by its number (`S3`), its UUID, or an id of the caller's own, which becomes its name; a session that does not
/// exist is created by the first append. If several sessions have the name, it is the one that was active last. Messages are
/// stored as they are.
pub struct SessionContext<S: SessionStore + ?Sized> {
    store: Arc<S>,
    address: Address,
    worktree: String,
    key: SessionKey,
}

/// The way in which a session was opened.
enum Address {
    Number(SessionId),
    Name(String),
}

impl<S: SessionStore + ?Sized> SessionContext<S> {
    /// Opens the session of this number, UUID or name. Does not read or write yet.
    pub fn open(store: Arc<S>, id: &str) -> Result<Self, StoreError> {
        let address = match id.parse::<SessionId>() {
            Ok(number) => Address::Number(number),
            Err(_) => {
                check_name(id)?;
                Address::Name(id.to_owned())
            }
        };
        Ok(Self { store, address, worktree: ".".to_owned(), key: SessionKey::of(id) })
    }

    /// Sets the worktree of the session, for the case that it is created.
    #[must_use]
    pub fn in_worktree(mut self, worktree: impl Into<String>) -> Self {
        self.worktree = worktree.into();
        self
    }

    /// Returns the session's number; `None` if it is not created yet.
    pub async fn number(&self) -> Result<Option<SessionId>, StoreError> {
        match &self.address {
            Address::Number(id) => Ok(Some(*id)),
            Address::Name(name) => {
                if let Ok(uuid) = name.parse::<Uuid>()
                    && let Some(id) = self.store.find_uuid(uuid).await?
                {
                    return Ok(Some(id));
                }
                Ok(self.store.find(name).await?.first().copied())
            }
        }
    }

    /// Creates the session of this name with these messages, in one transaction. If it has messages already, this is
    /// [`StoreError::Moved`], and nothing changes.
    ///
    /// ```
    /// # futures_executor::block_on(async {
    /// use std::sync::Arc;
    /// use azureal_core::{ContextStore, Message, SessionContext, SessionStore};
    /// # async fn example(store: Arc<dyn SessionStore>) -> Result<(), azureal_core::StoreError> {
    ///
    /// let messages = [Message::user("hello")];
    /// let first = SessionContext::from_history(Arc::clone(&store), "first", messages).await?;
    /// let second = SessionContext::from_context(store, "second", &first).await?;
    /// assert_eq!(second.get_history().await?, first.get_history().await?);
    /// # Ok(())
    /// # }
    /// # });
    /// ```
    pub async fn from_history(
        store: Arc<S>,
        id: &str,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<Self, StoreError> {
        let context = Self::open(store, id)?;
        let events: Vec<Event> = messages.into_iter().flat_map(events_of_message).collect();
        let turn = NewTurn { after: Some(Seq::START), ..NewTurn::verbatim(events) };
        let session = context.number_or_create().await?;
        context.store.append(session, turn).await?;
        Ok(context)
    }

    /// Creates the session of this name with the messages of another conversation.
    pub async fn from_context(store: Arc<S>, id: &str, other: &dyn ContextStore) -> Result<Self, StoreError> {
        Self::from_history(store, id, other.get_history().await?).await
    }

    async fn number_or_create(&self) -> Result<SessionId, StoreError> {
        match &self.address {
            Address::Number(id) => Ok(*id),
            Address::Name(name) => {
                if let Some(id) = self.number().await? {
                    return Ok(id);
                }
                let new = NewSession {
                    name: Some(name.clone()),
                    worktree: self.worktree.clone(),
                    ..NewSession::default()
                };
                self.store.find_or_create(new).await
            }
        }
    }
}

#[async_trait]
impl<S: SessionStore + ?Sized + 'static> ContextStore for SessionContext<S> {
    fn session_key(&self) -> Option<&SessionKey> {
        Some(&self.key)
    }

    async fn append(&self, message: Message) -> Result<(), StoreError> {
        let id = self.number_or_create().await?;
        self.store.append(id, NewTurn::verbatim(events_of_message(message))).await?;
        Ok(())
    }

    async fn get_history(&self) -> Result<Vec<Message>, StoreError> {
        match self.number().await? {
            Some(id) => read_history(self.store.as_ref(), id).await,
            None => Ok(Vec::new()),
        }
    }

    async fn clear(&self) -> Result<(), StoreError> {
        match self.number().await? {
            Some(id) => {
                self.store.clear(id).await?;
                self.store.set_tokens(id, Tokens::default()).await
            }
            None => Ok(()),
        }
    }

    async fn fork(&self) -> Result<Box<dyn ContextStore>, StoreError> {
        // A session that does not exist yet is created now, so that the fork is in the same store.
        let id = self.number_or_create().await?;
        let new = NewSession { name: None, worktree: self.worktree.clone(), ..NewSession::default() };
        let tokens = self.store.get(id).await?.tokens;
        let fork = self.store.fork(id, Seq::END, new).await?;
        self.store.set_tokens(fork, tokens).await?;
        let fork = Self::open(Arc::clone(&self.store), &fork.to_string())?;
        Ok(Box::new(fork.in_worktree(self.worktree.clone())))
    }

    async fn set_context_tokens(&self, input: u64, output: u64) -> Result<(), StoreError> {
        let id = self.number_or_create().await?;
        self.store.set_tokens(id, Tokens::new(input, output)).await
    }

    async fn get_context_tokens(&self) -> Result<(u64, u64), StoreError> {
        match self.number().await? {
            Some(id) => {
                let tokens = self.store.get(id).await?.tokens;
                Ok((tokens.input, tokens.output))
            }
            None => Ok((0, 0)),
        }
    }

    async fn add_context_tokens(&self, input: u64, output: u64) -> Result<(), StoreError> {
        let id = self.number_or_create().await?;
        self.store.add_tokens(id, Tokens::new(input, output)).await
    }

    async fn list_sessions(&self) -> Result<Vec<SessionInfo>, StoreError> {
        let records = self.store.list(&crate::ListQuery::default()).await?;
        let mut sessions_of: HashMap<String, usize> = HashMap::new();
        for record in &records {
            *sessions_of.entry(record.name.clone()).or_default() += 1;
        }
        // An id that opens this session and no other.
        let id = |record: &SessionRecord| match (sessions_of.get(&record.name), record.uuid) {
            (Some(1), _) => record.name.clone(),
            (_, Some(uuid)) => uuid.to_string(),
            (_, None) => record.id.to_string(),
        };
        Ok(records
            .iter()
            .map(|record| (id(record), record.clone()))
            .map(|(session_id, record)| SessionInfo {
                preview: record.counts.preview_text().to_owned(),
                message_count: record.counts.messages,
                session_id,
                created_at: record.created_at,
                input_tokens: record.tokens.input,
                output_tokens: record.tokens.output,
            })
            .collect())
    }

    /// Writes a compaction. The events below it stay as they are.
    async fn lay_summary(&self, beginning: &[Message], summary: &str) -> Result<Laid, StoreError> {
        let Some(id) = self.number().await? else { return Ok(Laid::Changed) };
        match last_event_of(self.store.as_ref(), id, beginning).await? {
            Some(last) => {
                self.store.add_compaction(id, &Compaction::new(last, summary)).await?;
                Ok(Laid::Kept)
            }
            None => Ok(Laid::Changed),
        }
    }
}

/// Reads a session as messages: a leading system message, the newest summary, and everything after it.
pub async fn read_history<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
) -> Result<Vec<Message>, StoreError> {
    let opening = read_opening(store, id, newest(store, id).await?.as_ref()).await?;
    let mut messages = opening.messages();
    let mut fold = Fold::default();
    each_event(store, id, opening.after, |_, event| fold.push(event)).await?;
    messages.append(&mut fold.finish());
    Ok(messages)
}

/// Reads the context for the next agent under the default threshold: see [`read_context_for`].
pub async fn read_context<S: SessionStore + ?Sized>(store: &S, id: SessionId) -> Result<Context, StoreError> {
    read_context_for(store, id, Threshold::default()).await
}

/// Reads the context for the next agent, without the tags: the system message, the newest summary with the ledger and the
/// user's prompts of the part that it covers, and all later events. The threshold of compaction limits the parts beside the
/// summary ([`OpeningLimits`]).
pub async fn read_context_for<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    threshold: Threshold,
) -> Result<Context, StoreError> {
    read_context_under(store, id, newest(store, id).await?.as_ref(), threshold).await
}

/// Reads the context for the next agent, as if this were the newest summary, or as if there were none.
pub async fn read_context_under<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    compaction: Option<&Compaction>,
    threshold: Threshold,
) -> Result<Context, StoreError> {
    read_context_with(store, id, compaction, threshold, None).await
}

/// Does the same with a cache for the ledger. The record is that of the session.
pub(crate) async fn read_context_with<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    compaction: Option<&Compaction>,
    threshold: Threshold,
    cache: Option<(&dyn LedgerCache, &SessionRecord)>,
) -> Result<Context, StoreError> {
    let (mut context, after, first) = begin_context(store, id, compaction, threshold, cache).await?;
    each_event_from(store, id, after, first, Seq::END, |_, event| context.push(&event)).await?;
    Ok(context.finish())
}

/// Reads the opening of a context alone: the system message, the newest summary, and the ledger and the user's prompts of the part
/// that it covers, with the last event of that part. `None` without a summary.
pub async fn read_opening_text<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    threshold: Threshold,
) -> Result<Option<(String, Seq)>, StoreError> {
    let Some(compaction) = newest(store, id).await? else { return Ok(None) };
    let (context, after, _) = begin_context(store, id, Some(&compaction), threshold, None).await?;
    Ok(Some((context.finish().into_string(), after)))
}

/// Begins a context with its opening. Returns the last event that its summary covers too, and the first page of the events after it.
async fn begin_context<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    compaction: Option<&Compaction>,
    threshold: Threshold,
    cache: Option<(&dyn LedgerCache, &SessionRecord)>,
) -> Result<(ContextBuilder, Seq, Vec<StoredEvent>), StoreError> {
    let opening = read_opening(store, id, compaction).await?;
    // Without a summary the log itself begins with the system message.
    let system = opening.system.as_ref().and_then(system_text);
    let limits = OpeningLimits::of(threshold);
    let summary = opening.summary.as_deref().map(|summary| shortened(summary, limits.longest_summary()));
    let mut context = ContextBuilder::new(system.as_deref(), summary.as_deref());
    let first = store.read(id, Page::After(opening.after, PAGE_EVENTS)).await?;
    if let (Some(compaction), Some(summary)) = (compaction, &summary) {
        let limits = limits.beside(summary.chars().count());
        let room = limits.ledger.saturating_sub(LEDGER_HEADING.len() + "\n\n".len());
        let key = cache.and_then(|(cache, record)| Some((cache, LedgerKey::of(record, compaction, room)?)));
        context.ledger(&read_rendered_ledger(store, id, opening.after, room, key).await?);
        let continues_turn = read_continues_turn(store, id, &first).await?;
        let room = limits.prompts.saturating_sub(PROMPTS_HEADING.len() + "\n\n".len());
        context.carry(&read_carried(store, id, opening.after, continues_turn, room).await?);
        context.end_opening();
    }
    Ok((context, opening.after, first))
}

/// Returns the ledger of the events up to `until`, in at most so many characters.
async fn read_rendered_ledger<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    until: Seq,
    most: usize,
    cache: Option<(&dyn LedgerCache, LedgerKey)>,
) -> Result<String, StoreError> {
    if let Some(ledger) = cache.as_ref().and_then(|(cache, key)| cache.get(key)) {
        return Ok(ledger);
    }
    let ledger = read_ledger(store, id, until, most).await?.render(most);
    if let Some((cache, key)) = &cache {
        cache.put(key, &ledger);
    }
    Ok(ledger)
}

/// Returns whether the events after a summary continue a turn, as far as it takes to know: all of them are read again.
async fn read_continues_turn<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    first: &[StoredEvent],
) -> Result<bool, StoreError> {
    let decided = |page: &[StoredEvent]| {
        page.iter().filter_map(|stored| stored.event().ok()).find_map(|event| decides(&event))
    };
    if let Some(continues_turn) = decided(first) {
        return Ok(continues_turn);
    }
    let mut last = first.last().map(|stored| stored.seq);
    while let Some(after) = last {
        let page = store.read(id, Page::After(after, PAGE_EVENTS)).await?;
        if let Some(continues_turn) = decided(&page) {
            return Ok(continues_turn);
        }
        last = page.last().map(|stored| stored.seq).filter(|reached| *reached > after);
    }
    Ok(false)
}

/// Reads how a session begins: whether it has a system message, and context in that.
pub async fn read_beginning<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
) -> Result<Beginning, StoreError> {
    let page = store.read(id, Page::After(Seq::START, BEGINNING)).await?;
    let events: Vec<Event> = page.iter().map(|stored| decode(id, stored)).collect();
    Ok(Beginning::of(&events))
}

/// Reads the size of the record since the last compaction, in characters: what is compared with the
/// [`Threshold`](crate::Threshold). The session's system message is sent whole at every turn, cannot be summarised, and does not count.
pub async fn read_record_chars<S: SessionStore + ?Sized>(
    store: &S,
    session: &SessionRecord,
) -> Result<u64, StoreError> {
    let told = session.chars_since_compaction();
    if session.covered > 0 || told == 0 {
        // A summary covers the system message too.
        return Ok(told);
    }
    let beginning = store.read(session.id, Page::After(Seq::START, BEGINNING)).await?;
    let first = beginning.iter().filter_map(|stored| stored.event().ok()).find(is_message);
    Ok(told.saturating_sub(first.filter(is_system).map_or(0, |system| rendered_chars(&system))))
}

/// Reads the rendered length of a session up to a place, in characters: all of it, less what comes after. It is the
/// part that a summary which ends there covers.
pub async fn read_rendered_through<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    seq: Seq,
) -> Result<u64, StoreError> {
    let counts = store.get(id).await?.counts;
    let mut after = Tally { through: seq, ..Tally::default() };
    each_event(store, id, seq, |seq, event| {
        // Another process may have appended since.
        if seq.0 <= counts.events {
            after.add(seq, Some(&event));
        }
    })
    .await?;
    Ok(counts.rendered_chars.saturating_sub(after.counts.rendered_chars))
}

/// Returns the compaction that counts.
async fn newest<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
) -> Result<Option<Compaction>, StoreError> {
    Ok(store.compactions(id).await?.pop())
}

/// The beginning of a session with a summary; without one it begins with its log.
struct Opening {
    /// The session's system message, if its first event is one.
    system: Option<Event>,
    /// The summary.
    summary: Option<String>,
    /// The last event that the summary covers.
    after: Seq,
}

impl Opening {
    fn messages(&self) -> Vec<Message> {
        let Some(summary) = &self.summary else { return Vec::new() };
        let mut messages = fold(self.system.clone());
        messages.extend(summary_messages(summary));
        messages
    }
}

async fn read_opening<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    compaction: Option<&Compaction>,
) -> Result<Opening, StoreError> {
    let Some(Compaction { after_seq, summary, .. }) = compaction else {
        return Ok(Opening { system: None, summary: None, after: Seq::START });
    };
    // The session's own system message is its first message, though an agent's start may stand before it.
    let beginning = store.read(id, Page::After(Seq::START, BEGINNING)).await?;
    let first = beginning.iter().filter_map(|stored| stored.event().ok()).find(is_message);
    let system = first.filter(is_system);
    Ok(Opening { system, summary: Some(summary.clone()), after: *after_seq })
}

/// Returns the last event of the first messages of a session, if these are still what it begins with.
async fn last_event_of<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    beginning: &[Message],
) -> Result<Option<Seq>, StoreError> {
    let opening = read_opening(store, id, newest(store, id).await?.as_ref()).await?;
    let Some(expected) = beginning.strip_prefix(opening.messages().as_slice()) else { return Ok(None) };
    let (mut fold, mut open) = (Fold::default(), Open::default());
    let (mut begun, mut last) = (0, opening.after);
    each_event(store, id, opening.after, |seq, event| {
        if open.place(&event) == MessagePosition::Starts {
            begun += 1;
        }
        if begun <= expected.len() {
            last = seq;
            fold.push(event);
        }
    })
    .await?;
    Ok((last > opening.after && fold.finish() == expected).then_some(last))
}

/// Returns whether an event is part of a message.
pub(crate) fn is_message(event: &Event) -> bool {
    Open::default().place(event) != MessagePosition::Nowhere
}

/// Returns whether an event is a system message, in either of the forms in which one is stored.
pub(crate) fn is_system(event: &Event) -> bool {
    match event {
        Event::SystemMessage(_) => true,
        Event::Message(message) => message.role == Role::System,
        _ => false,
    }
}

/// Reads events page by page and hands each on. The next page is on its way while one is being looked at.
async fn each_event<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    after: Seq,
    take: impl FnMut(Seq, Event) + Send,
) -> Result<(), StoreError> {
    let first = store.read(id, Page::After(after, PAGE_EVENTS)).await?;
    each_event_from(store, id, after, first, Seq::END, take).await
}

/// Does the same when the first page has been read, and reads no page after the event `until`.
pub(crate) async fn each_event_from<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    after: Seq,
    first: Vec<StoredEvent>,
    until: Seq,
    mut take: impl FnMut(Seq, Event) + Send,
) -> Result<(), StoreError> {
    let (mut reached, mut page) = (after, first);
    while let Some(last) = page.last().map(|event| event.seq) {
        if last <= reached {
            let why = format!("its pages of {id} do not advance beyond event {reached}");
            return Err(StoreError::Corrupt { place: "the store".to_owned(), why });
        }
        reached = last;
        let current = std::mem::take(&mut page);
        let decode_all = async {
            for stored in current {
                take(stored.seq, decode(id, &stored));
            }
        };
        if last >= until {
            decode_all.await;
            return Ok(());
        }
        // Polled in this order, so that the database is asked before the decoding begins.
        let (next, ()) = future::join(store.read(id, Page::After(last, PAGE_EVENTS)), decode_all).await;
        page = next?;
    }
    Ok(())
}

/// Decodes an event. A damaged one becomes an error in its place: the rest stays usable, and a history with a gap
/// does not look complete.
pub(crate) fn decode(session: SessionId, stored: &StoredEvent) -> Event {
    stored.event().unwrap_or_else(|damage| {
        Event::error("damaged", format!("event {} of session {session} is damaged: {damage}", stored.seq))
    })
}
