//! Sessions on a Redis server, for several people and machines.
//!
//! `docs/redis.md` describes the keys, and the durability under each setting. Every change is one call of a script on
//! the server, which the events of a turn follow in the same transaction: one round trip, atomic. The scripts are in
//! `scripts/` (`docs/decisions/0006-redis-scripts.md` has the reason). This module calls them.

mod address;
mod connection;
mod durability;
mod error;
mod frames;
mod keys;
mod leases;
mod originals;
mod project;
mod replies;
mod scripts;
mod turns;
mod upgrade;
mod watch;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use azureal_core::{
    Appended, Compaction, CrashNotes, LARGEST_EVENT, LeaseId, Leases, ListOrder, ListQuery, Mark, NameFilter,
    NewSession, NewTurn, Originals, Page, Seq, SessionId, SessionRecord, SessionStore, StoreError,
    StoredEvent, Tally, Tokens, Tombstone, Watch, async_trait, check_name,
};
use redis::{Cmd, Pipeline, Script, Value};
use uuid::Uuid;

pub use address::RedisAddress;
use connection::{Connections, Request};
pub use durability::Durability;
use error::Fault;
pub(crate) use error::hint;
use keys::Keys;
use replies::Answer;
use scripts::Call;
use turns::{with_events, with_tokens, with_turn};

use crate::originals::{FileOriginals, FileStore};
use crate::server::{OPEN_TIMEOUT, check_compactions, check_new, check_turn_size, number_of, tally_through};
use crate::timestamp::{given_or_now, last_active_or_now, now, seconds};

/// The format that this build writes.
const FORMAT: u32 = 4;
/// The largest page, so that a page of large events does not fill the memory.
const LARGEST_PAGE: usize = LARGEST_EVENT;
/// The number of prompts that are read in one round trip.
const PROMPTS_AT_ONCE: usize = 1000;
/// The number of sessions that are read in one round trip.
const LISTED_AT_ONCE: usize = 1000;
/// The number of sessions that are read first to list those of one worktree.
const LISTED_AT_FIRST: usize = 50;

/// The options of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedisOptions {
    /// The time for which a call is retried while the server does not answer. Then it is an error.
    pub retry_budget: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self { retry_budget: Duration::from_secs(30) }
    }
}

/// Stores the sessions of one project on a Redis server.
///
/// It has its own runtime, so the caller needs none.
///
/// ```no_run
/// # futures_executor::block_on(async {
/// use azureal_store::core::{Event, NewSession, SessionStore, NewTurn};
/// use azureal_store::redis::{RedisAddress, RedisOptions, RedisStore};
///
/// let address: RedisAddress = "rediss://ada@cache.example?project=engine".parse()?;
/// let store = RedisStore::open(&address, RedisOptions::default()).await?;
/// if let Some(warning) = store.durability().warning() {
///     eprintln!("{address} {warning}");
/// }
/// let id = store.create(NewSession::default()).await?;
/// store.append(id, NewTurn::verbatim([Event::user("Hello")])).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct RedisStore {
    connections: Connections,
    keys: Keys,
    /// The name under which the sessions are kept.
    project: String,
    /// The former name of the project, while it is not settled whose the sessions under it are.
    former: Option<String>,
    /// The id of the store; `None` if this user may not write one.
    id: Option<Uuid>,
    durability: Durability,
    /// The number that was given last, for all that is known here.
    last_number: AtomicU32,
    /// Whether the project must be upgraded before the first write.
    is_older: AtomicBool,
    originals: Option<FileOriginals>,
}

impl RedisStore {
    /// Opens the store. Writes nothing but the id of a store that has none.
    ///
    /// Returns [`StoreError::Forgetful`] if the server evicts keys when its memory is full, unless the address
    /// accepts loss.
    pub async fn open(address: &RedisAddress, options: RedisOptions) -> Result<Self, StoreError> {
        let connections = Connections::start(address, options)?;
        let project = address.project.name_or_default().to_owned();
        let mut store = Self {
            connections,
            keys: Keys::of(&project),
            project,
            former: None,
            id: None,
            durability: Durability::Unknown,
            last_number: AtomicU32::new(0),
            is_older: AtomicBool::new(false),
            originals: None,
        };
        store.look_at_rights().await?;
        store.look_for_project(address.project.former.as_deref()).await?;
        store.look_at_settings(address.accepts_loss).await?;
        if store.former.is_none() {
            store.give_id().await?;
        }
        Ok(store)
    }

    /// Returns the durability of the server after a crash, by its settings when the store was opened.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Checks that the server is reachable, and that all our commands are permitted. With a part of the permissions,
    /// changes would be done in part.
    async fn look_at_rights(&self) -> Result<(), StoreError> {
        let call = Request::Script(Call::new(&scripts::RIGHTS, &[self.keys.project()]).prepare());
        let answer = self.connections.ask_within(call, OPEN_TIMEOUT).await?;
        let mut answer = self.read(Answer::of(answer))?;
        match answer.outcome.as_str() {
            "done" => Ok(()),
            "denied" => Err(StoreError::Denied {
                place: self.connections.place().to_owned(),
                why: format!("its user may not run {}", self.read(answer.next_text())?),
            }),
            _ => Err(self.unknown(&answer)),
        }
    }

    /// Looks at what the server keeps. Some do not say: that is a warning, not an error.
    async fn look_at_settings(&mut self, accepts_loss: bool) -> Result<(), StoreError> {
        let mut look = Pipeline::new();
        look.cmd("INFO").arg("memory").cmd("INFO").arg("persistence");
        look.cmd("CONFIG").arg(&["GET", "appendfsync"]).ignore_errors();
        let answer = self.connections.ask(Request::Commands(look)).await?;
        let mut answers = self.read(replies::list(answer))?.into_iter();
        let mut info = || answers.next().and_then(|answer| replies::text(answer).ok());
        let (memory, persistence) = (info(), info());
        let setting = answers.next().and_then(|answer| replies::list(answer).ok());
        let appendfsync = setting.into_iter().flatten().nth(1).and_then(|value| replies::text(value).ok());
        self.durability = Durability::of(persistence.as_deref(), appendfsync.as_deref());
        match memory.as_deref().and_then(durability::eviction) {
            Some(policy) if !accepts_loss => Err(StoreError::Forgetful {
                place: self.connections.place().to_owned(),
                why: format!("its maxmemory-policy is {policy}"),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Begins a call that reads.
    fn look(&self, script: &'static Script, session: Option<SessionId>) -> Call {
        Call::new(script, &self.keys.of_script(None, session))
    }

    /// Begins a call that the server does once, however often it is asked.
    fn operation(&self, script: &'static Script, session: Option<SessionId>) -> Call {
        let operation = Uuid::now_v7();
        self.once(script, &self.keys.of_script(Some(operation), session), operation)
    }

    /// Creates a call with these keys.
    fn once(&self, script: &'static Script, keys: &[String], operation: Uuid) -> Call {
        Call::new(script, keys).writing().with_effect(None).with(FORMAT).with(operation.to_string())
    }

    async fn run(&self, call: Call) -> Result<Answer, StoreError> {
        if call.writes && self.is_older.load(Ordering::Relaxed) {
            self.upgrade().await?;
        }
        self.run_as_it_is(call).await
    }

    /// Runs a call also on a store that is not upgraded yet.
    async fn run_as_it_is(&self, call: Call) -> Result<Answer, StoreError> {
        check_turn_size(call.size, self.connections.place())?;
        let answer = self.connections.ask(Request::Script(call.prepare())).await?;
        let mut answer = self.read(Answer::of(answer))?;
        match answer.outcome.as_str() {
            "newer" => Err(self.newer(self.read(answer.next_text())?)),
            // A client of the older format has created the project since this store was opened.
            "older" => {
                tracing::info!("an older azureal has created the project since this store was opened");
                self.is_older.store(true, Ordering::Relaxed);
                Err(self.other("an older azureal has just created this project; do it again"))
            }
            _ => Ok(answer),
        }
    }

    /// Runs a call about a session that returns no value.
    async fn change(&self, id: SessionId, call: Call) -> Result<(), StoreError> {
        let answer = self.run(call).await?;
        match answer.outcome.as_str() {
            "done" => Ok(()),
            "absent" => Err(StoreError::NoSuchSession(id)),
            _ => Err(self.unknown(&answer)),
        }
    }

    /// Runs a call that creates a session, with the number that the session will have. If another client was faster,
    /// it retries with the next number.
    async fn make(&self, call: impl Fn(SessionId) -> Call + Send + Sync) -> Result<Answer, StoreError> {
        loop {
            let next = self.last_number.load(Ordering::Relaxed).checked_add(1).and_then(SessionId::new);
            let next = next.ok_or_else(|| self.other("every session number has been used"))?;
            let mut answer = self.run(call(next)).await?;
            if answer.outcome != "taken" {
                return Ok(answer);
            }
            // It may also be a lower one: a server that lost its memory begins again.
            let next = self.read(answer.next_session())?;
            self.last_number.store(next.number() - 1, Ordering::Relaxed);
        }
    }

    /// Returns the number that the next session has.
    async fn next_number(&self) -> Result<SessionId, StoreError> {
        self.look_at_project().await?;
        let next = self.last_number.load(Ordering::Relaxed).saturating_add(1);
        self.read(replies::session_id(&next.to_string()))
    }

    /// Reads the number of a session that was created or found.
    fn session_number(&self, answer: &mut Answer) -> Result<SessionId, StoreError> {
        let made = self.read(answer.next_session())?;
        self.last_number.fetch_max(made.number(), Ordering::Relaxed);
        Ok(made)
    }

    /// Names the store where an answer cannot be read.
    fn read<R>(&self, answer: Result<R, Fault>) -> Result<R, StoreError> {
        answer.map_err(|fault| fault.at(self.connections.place(), Duration::ZERO))
    }

    fn newer(&self, found: String) -> StoreError {
        let place = self.connections.place().to_owned();
        StoreError::Newer { place, what: "format", found, known: FORMAT }
    }

    /// An outcome that no version of the scripts has.
    fn unknown(&self, answer: &Answer) -> StoreError {
        self.other(&format!("a script answered {:?}", answer.outcome))
    }

    fn other(&self, why: &str) -> StoreError {
        StoreError::Other { place: self.connections.place().to_owned(), source: why.into() }
    }

    /// Runs commands that read, and returns their answers.
    async fn answers(&self, commands: Pipeline) -> Result<Vec<Value>, StoreError> {
        self.read(replies::list(self.connections.ask(Request::Commands(commands)).await?))
    }

    /// Runs a command that reads a list of texts.
    async fn texts(&self, command: Cmd) -> Result<Vec<Option<String>>, StoreError> {
        let mut commands = Pipeline::new();
        commands.add_command(command);
        let answer = self.answers(commands).await?.into_iter().next().unwrap_or_default();
        self.read(
            replies::list(answer).and_then(|list| list.into_iter().map(replies::optional_text).collect()),
        )
    }

    /// Reads fields of a hash, in their order.
    async fn fields<const N: usize>(
        &self,
        key: &str,
        names: [&str; N],
    ) -> Result<[Option<String>; N], StoreError> {
        let mut command = redis::cmd("HMGET");
        command.arg(key).arg(&names);
        let values = self.texts(command).await?;
        values.try_into().map_err(|_| self.other("a field is missing in an answer"))
    }

    /// Reads sessions; `None` for a session that does not exist.
    async fn records(&self, ids: &[SessionId]) -> Result<Vec<Option<SessionRecord>>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut look = Pipeline::with_capacity(ids.len());
        for id in ids {
            look.cmd("HMGET").arg(self.keys.session(*id)).arg(&replies::SESSION);
        }
        let answers = self.answers(look).await?;
        let records = ids.iter().zip(answers).map(|(id, answer)| replies::session(*id, answer));
        self.read(records.collect())
    }

    /// Returns sessions in an order, at most so many; `None` if the project has to be upgraded before it has that order.
    async fn in_order(&self, order: ListOrder, limit: usize) -> Result<Option<Vec<SessionId>>, StoreError> {
        let last = i64::try_from(limit).map_or(-1, |limit| limit - 1);
        let key = match order {
            ListOrder::Activity => self.keys.by_time(),
            ListOrder::Changes => self.keys.active(),
        };
        // Another client may have created the project in an older format since this store was opened.
        let mut look = Pipeline::new();
        let project = self.keys.project();
        look.cmd("HGET").arg(&project).arg("format").cmd("HGET").arg(&project).arg("upgrading");
        look.cmd("ZREVRANGE").arg(key).arg(0).arg(last);
        let mut answers = self.answers(look).await?.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        let (format, upgrading) = (replies::optional_text(next()), replies::optional_text(next()));
        let (format, upgrading) = (self.read(format)?, self.read(upgrading)?);
        if order == ListOrder::Activity
            && self.read(project::is_older(format.as_deref(), upgrading.as_deref()))?
        {
            return Ok(None);
        }
        let numbers = self.read(replies::texts(next()))?;
        self.read(numbers.iter().map(|number| replies::session_id(number)).collect()).map(Some)
    }

    /// Lists sessions of a project that has no order of times yet. They are in the order of their changes first.
    async fn list_by_sorting(
        &self,
        query: &ListQuery,
        limit: usize,
    ) -> Result<Vec<SessionRecord>, StoreError> {
        let all = ListQuery { order: ListOrder::Changes, limit: None, ..query.clone() };
        let mut listed = SessionStore::list(self, &all).await?;
        listed.sort_by(|one, other| other.last_active.cmp(&one.last_active));
        listed.truncate(limit);
        Ok(listed)
    }

    /// Returns the sessions of a query by name.
    async fn list_named(
        &self,
        name: &NameFilter,
        query: &ListQuery,
        limit: usize,
    ) -> Result<Vec<SessionRecord>, StoreError> {
        let call = match name {
            NameFilter::Exact(name) => self.look(&scripts::FIND, None).with(name.as_str()),
            NameFilter::Prefix(prefix) => self.look(&scripts::FIND_PREFIX, None).with(prefix.as_str()),
        };
        let call = call.with_optional((query.order == ListOrder::Activity).then_some(1));
        let numbers = self.run(call).await?.rest();
        let ids = numbers.map(|number| replies::session_id(&replies::text(number)?));
        let ids: Vec<SessionId> = self.read(ids.collect())?;
        let mut listed = Vec::new();
        for ids in ids.chunks(limit.clamp(1, LISTED_AT_ONCE)) {
            let records = self.records(ids).await?.into_iter().flatten();
            listed.extend(records.filter(|record| query.matches(record)));
            if listed.len() >= limit {
                break;
            }
        }
        listed.truncate(limit);
        Ok(listed)
    }

    /// Counts the events up to `at` from the beginning; returns the generation of the session with it.
    async fn count(&self, id: SessionId, at: Seq) -> Result<(u64, Tally), StoreError> {
        let fields = ["name", "generation", "last_seq"];
        let [found, generation, last] = self.fields(&self.keys.session(id), fields).await?;
        found.ok_or(StoreError::NoSuchSession(id))?;
        let number = |text: Option<String>| self.read(text.map_or(Ok(0), |text| replies::number(&text)));
        let (generation, last) = (number(generation)?, Seq(number(last)?));
        Ok((generation, tally_through(self, id, at, last).await?))
    }

    /// Reads a page, without a script: a script would copy every text twice and block the server meanwhile.
    async fn read_page(&self, id: SessionId, page: Page) -> Result<Vec<StoredEvent>, StoreError> {
        let fitting = self.fitting(id).await?;
        let mut look = Pipeline::new();
        match page {
            Page::After(after, _) => {
                look.cmd("XRANGE").arg(self.keys.events(id)).arg(replies::place(after.next())).arg("+")
            }
            Page::Before(before, _) => look
                .cmd("XREVRANGE")
                .arg(self.keys.events(id))
                .arg(replies::place(Seq(before.0.saturating_sub(1))))
                .arg("-"),
        };
        let (Page::After(_, limit) | Page::Before(_, limit)) = page;
        look.arg("COUNT").arg(limit.min(fitting));
        let mut events = self.events(id, look).await?;
        if matches!(page, Page::Before(..)) {
            events.reverse();
        }
        Ok(events)
    }

    /// Returns the number of events of a session that fit on a page, from the largest size that an event of it can
    /// have.
    async fn fitting(&self, id: SessionId) -> Result<usize, StoreError> {
        let [found, largest] = self.fields(&self.keys.session(id), ["name", "largest"]).await?;
        found.ok_or(StoreError::NoSuchSession(id))?;
        let largest = self.read(largest.map_or(Ok(0), |largest| replies::number(&largest)))?;
        Ok((LARGEST_PAGE / usize::try_from(largest).unwrap_or(usize::MAX).max(1)).max(1))
    }

    /// Runs commands that answer with events of a session.
    async fn events(&self, id: SessionId, mut look: Pipeline) -> Result<Vec<StoredEvent>, StoreError> {
        // Looked at after the events: where the session is still there, they were its own.
        look.cmd("EXISTS").arg(self.keys.session(id));
        let mut answers = self.read(replies::list(self.connections.ask(Request::Page(look)).await?))?;
        if answers.pop() != Some(Value::Int(1)) {
            return Err(StoreError::NoSuchSession(id));
        }
        let entries: Vec<Vec<Value>> = self.read(answers.into_iter().map(replies::list).collect())?;
        self.read(entries.into_iter().flatten().map(replies::event).collect())
    }
}

/// Adds the properties of a new session to a call.
fn with_session(call: Call, new: &NewSession) -> Call {
    let (now, last_active) = (now(), last_active_or_now(new));
    call.with_optional(new.name.as_deref())
        .with_optional(new.named_at.as_deref())
        .with(new.worktree.as_str())
        .with(new.created_at.clone().unwrap_or_else(|| now.clone()))
        .with(new.uuid.unwrap_or_else(Uuid::new_v4).to_string())
        .with_optional(new.forked_from)
        .with(now.as_str())
        .with(last_active.as_str())
        .with(seconds(&last_active))
}

/// Adds a summary to a call. `covered` counts the events up to its end.
fn with_compaction(call: Call, compaction: &Compaction, covered: &Tally) -> Call {
    call.with(compaction.after_seq.0)
        .with_text(&compaction.summary)
        .with(given_or_now(&compaction.created_at))
        .with(countable(covered.plain_chars()))
        .with(covered.detail_chars)
        .with_optional(compaction.writer.as_deref())
        .with_optional(compaction.opening_chars.map(countable))
}

/// Scripts count with floating point numbers, which are exact up to here; totals that large do not occur.
fn countable(number: u64) -> u64 {
    number.min(1 << 53)
}

#[async_trait]
impl SessionStore for RedisStore {
    async fn store_id(&self) -> Result<Option<Uuid>, StoreError> {
        if self.connections.is_closed() { Err(StoreError::Closed) } else { Ok(self.id) }
    }

    async fn create(&self, new: NewSession) -> Result<SessionId, StoreError> {
        check_new(&new)?;
        let call =
            |id: SessionId| with_session(self.operation(&scripts::CREATE, Some(id)).with(id.number()), &new);
        let mut answer = self.make(call).await?;
        self.session_number(&mut answer)
    }

    async fn create_with(
        &self,
        new: NewSession,
        turn: NewTurn,
        compactions: Vec<Compaction>,
    ) -> Result<SessionId, StoreError> {
        check_new(&new)?;
        let texts = turn.texts()?;
        check_compactions(&turn, &compactions, || self.next_number()).await?;
        let call = |id: SessionId| {
            let operation = Uuid::now_v7();
            let keys = self.keys.of_script(Some(operation), Some(id));
            let call = self.once(&scripts::CREATE_WITH, &keys, operation).with(id.number());
            let call = call.with_optional(turn.mark.as_ref().map(|mark| &mark.name));
            let mut call = with_turn(with_session(call, &new), &turn, &texts).with(compactions.len());
            for compaction in &compactions {
                call = with_compaction(call, compaction, &turn.count_through(compaction.after_seq));
            }
            with_events(call, &self.keys, operation, id, &turn, &texts)
        };
        let mut answer = self.make(call).await?;
        match answer.outcome.as_str() {
            "done" => self.session_number(&mut answer),
            "marked" => Err(StoreError::Marked(self.read(mark(&mut answer))?)),
            _ => Err(self.unknown(&answer)),
        }
    }

    async fn find_or_create(&self, new: NewSession) -> Result<SessionId, StoreError> {
        let name = new.name.as_deref().unwrap_or("");
        check_name(name)?;
        let call = |id: SessionId| {
            let call = self.operation(&scripts::FIND_OR_CREATE, Some(id)).with(id.number()).with(name);
            with_session(call, &new)
        };
        let mut answer = self.make(call).await?;
        self.session_number(&mut answer)
    }

    async fn find_uuid(&self, uuid: Uuid) -> Result<Option<SessionId>, StoreError> {
        let answer = self.run(self.look(&scripts::FIND_UUID, None).with(uuid.to_string())).await?;
        let first = answer.rest().next();
        self.read(first.map(|number| replies::session_id(&replies::text(number)?)).transpose())
    }

    async fn count(&self) -> Result<u64, StoreError> {
        let mut commands = Pipeline::new();
        commands.zcard(self.keys.active());
        match self.answers(commands).await?.as_slice() {
            [Value::Int(count)] => Ok(count.cast_unsigned()),
            _ => Err(self.other("the number of sessions is missing in an answer")),
        }
    }

    async fn get(&self, id: SessionId) -> Result<SessionRecord, StoreError> {
        let found = self.records(&[id]).await?.into_iter().next().flatten();
        found.ok_or(StoreError::NoSuchSession(id))
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<SessionRecord>, StoreError> {
        let limit = query.limit.unwrap_or(usize::MAX);
        if limit == 0 {
            // The request is sent all the same: a closed store returns its error.
            return self.in_order(query.order, 1).await.map(|_| Vec::new());
        }
        if let Some(name) = &query.name {
            if query.order == ListOrder::Activity && self.is_older.load(Ordering::Relaxed) {
                return self.list_by_sorting(query, limit).await;
            }
            return self.list_named(name, query, limit).await;
        }
        // The number of sessions to read for one worktree is not known.
        let mut depth = if query.worktree.is_some() { limit.max(LISTED_AT_FIRST) } else { limit };
        let mut known: HashMap<SessionId, Option<SessionRecord>> = HashMap::new();
        loop {
            // From the front each time, so that the order is that of one moment.
            let Some(ids) = self.in_order(query.order, depth).await? else {
                return self.list_by_sorting(query, limit).await;
            };
            let mut listed = Vec::new();
            for ids in ids.chunks(LISTED_AT_ONCE) {
                let unknown: Vec<_> = ids.iter().copied().filter(|id| !known.contains_key(id)).collect();
                let records = self.records(&unknown).await?.into_iter();
                known.extend(
                    unknown
                        .into_iter()
                        .zip(records.map(|record| record.filter(|record| query.matches(record)))),
                );
                for id in ids {
                    listed.extend(known.get_mut(id).and_then(Option::take));
                    if listed.len() == limit {
                        return Ok(listed);
                    }
                }
            }
            if ids.len() < depth {
                return Ok(listed);
            }
            // Further sessions replace those of other worktrees, and deleted or damaged ones.
            known.extend(listed.into_iter().map(|record| (record.id, Some(record))));
            depth = depth.saturating_mul(4);
        }
    }

    async fn rename(&self, id: SessionId, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        let call = self.operation(&scripts::RENAME, Some(id)).with(id.number()).with(name).with(now());
        self.change(id, call).await
    }

    async fn delete(&self, id: SessionId) -> Result<(), StoreError> {
        self.delete_with_files(id).await
    }

    async fn tombstones(&self, after: Option<Uuid>, limit: usize) -> Result<Vec<Tombstone>, StoreError> {
        let from = after.map_or_else(|| "-".to_owned(), |after| format!("({after}!"));
        let mut look = Pipeline::new();
        look.cmd("ZRANGEBYLEX").arg(self.keys.tombstones()).arg(from).arg("+");
        look.arg("LIMIT").arg(0).arg(limit.min(LISTED_AT_ONCE));
        let answer = self.answers(look).await?.into_iter().next().unwrap_or_default();
        let entries = self.read(replies::list(answer))?;
        self.read(entries.into_iter().map(replies::tombstone).collect())
    }

    async fn append(&self, id: SessionId, turn: NewTurn) -> Result<Appended, StoreError> {
        let known = turn.operation;
        let operation = known.map_or_else(Uuid::now_v7, |known| known.id);
        // Each try of the caller has a stream of its own.
        let aside = Uuid::now_v7();
        let call = self.once(&scripts::APPEND, &self.keys.of_script(Some(aside), Some(id)), operation);
        let call = call.with_effect(known.map(|known| known.id)).with(id.number());
        let call = call.with_optional(turn.lease.as_ref().map(LeaseId::as_str));
        let call = call.with_optional(turn.after.map(|after| after.0));
        let call = call.with_optional(turn.ends_run.then_some(1));
        let call = call.with_optional(known.map(|known| known.generation));
        let texts = turn.texts()?;
        let call = with_turn(call, &turn, &texts);
        let mut answer = self.run(with_events(call, &self.keys, aside, id, &turn, &texts)).await?;
        match (answer.outcome.as_str(), turn.after) {
            ("done", _) => {
                let (first, last) = (self.read(answer.next_seq())?, self.read(answer.next_seq())?);
                Ok(Appended { first, last })
            }
            ("absent", _) => Err(StoreError::NoSuchSession(id)),
            ("cleared", _) => Err(StoreError::Cleared(id)),
            ("fenced", _) => Err(StoreError::Fenced(id)),
            ("moved", Some(expected)) => {
                let last = self.read(answer.next_seq())?;
                Err(StoreError::Moved { session: id, expected, last })
            }
            (_, _) => Err(self.unknown(&answer)),
        }
    }

    async fn read(&self, id: SessionId, page: Page) -> Result<Vec<StoredEvent>, StoreError> {
        self.read_page(id, page).await
    }

    async fn read_prompts(
        &self,
        id: SessionId,
        until: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let limit = limit.min(self.fitting(id).await?).min(PROMPTS_AT_ONCE);
        let mut command = redis::cmd("ZREVRANGEBYSCORE");
        command.arg(self.keys.prompts(id)).arg(until.0).arg("-inf").arg("LIMIT").arg(0).arg(limit);
        let mut look = Pipeline::new();
        for number in self.texts(command).await?.into_iter().flatten() {
            let place = replies::place(Seq(self.read(replies::number(&number))?));
            look.cmd("XRANGE").arg(self.keys.events(id)).arg(&place).arg(&place);
        }
        self.events(id, look).await
    }

    async fn clear(&self, id: SessionId) -> Result<(), StoreError> {
        self.change(id, self.operation(&scripts::CLEAR, Some(id))).await?;
        self.clear_files(id).await
    }

    async fn fork(&self, id: SessionId, at: Seq, new: NewSession) -> Result<SessionId, StoreError> {
        check_new(&new)?;
        // A fork is another session; where it comes from the script knows.
        let new = NewSession { uuid: None, forked_from: None, ..new };
        loop {
            // The counts of the whole session are in it. Those of a part have to be counted.
            let counted = if at == Seq::END { None } else { Some(self.count(id, at).await?) };
            let generation = counted.as_ref().map(|(generation, _)| *generation);
            let tally = counted.map(|(_, tally)| tally).unwrap_or_default();
            let call = |made: SessionId| {
                let operation = Uuid::now_v7();
                let mut keys = self.keys.of_script(Some(operation), Some(made));
                keys.extend(self.keys.of_session(id));
                let call = self.once(&scripts::FORK, &keys, operation).with(made.number()).with(at.0);
                let call = call
                    .with_optional(generation)
                    .with(tally.counts.messages)
                    .with(number_of(tally.open))
                    .with_optional(tally.counts.preview.as_deref())
                    .with_optional(tally.counts.agent.as_deref())
                    .with_optional(tally.counts.model.as_deref())
                    .with(countable(tally.plain_chars()))
                    .with(tally.detail_chars)
                    .with_optional(tally.counts.last_prompt.as_deref())
                    .with_optional(tally.counts.answered.then_some(1))
                    .with_optional(tally.counts.requested_model.as_deref());
                with_session(call, &new)
            };
            let mut answer = self.make(call).await?;
            match answer.outcome.as_str() {
                "done" => {
                    let fork = self.session_number(&mut answer)?;
                    self.fork_files(id, at, fork).await;
                    return Ok(fork);
                }
                "absent" => return Err(StoreError::NoSuchSession(id)),
                "no_event" => {
                    let last = self.read(answer.next_seq())?;
                    return Err(StoreError::NoSuchEvent { session: id, seq: at, last });
                }
                "changed" => {}
                _ => return Err(self.unknown(&answer)),
            }
        }
    }

    async fn set_tokens(&self, id: SessionId, tokens: Tokens) -> Result<(), StoreError> {
        let call = self.operation(&scripts::SET_TOKENS, Some(id));
        self.change(id, with_tokens(call, tokens)).await
    }

    async fn add_tokens(&self, id: SessionId, tokens: Tokens) -> Result<(), StoreError> {
        let call = self.operation(&scripts::ADD_TOKENS, Some(id));
        self.change(id, with_tokens(call, tokens)).await
    }

    async fn compactions(&self, id: SessionId) -> Result<Vec<Compaction>, StoreError> {
        let mut answer = self.run(self.look(&scripts::COMPACTIONS, Some(id))).await?;
        match answer.outcome.as_str() {
            "done" => self.read(answer.next().and_then(replies::compactions)),
            "absent" => Err(StoreError::NoSuchSession(id)),
            _ => Err(self.unknown(&answer)),
        }
    }

    async fn add_compaction(&self, id: SessionId, compaction: &Compaction) -> Result<(), StoreError> {
        let after_seq = compaction.after_seq;
        // What stands up to a place stays as it is, so that this can be known before.
        let (_, covered) = self.count(id, after_seq).await?;
        let call = self.operation(&scripts::ADD_COMPACTION, Some(id));
        let mut answer = self.run(with_compaction(call, compaction, &covered)).await?;
        match answer.outcome.as_str() {
            "done" => Ok(()),
            "absent" => Err(StoreError::NoSuchSession(id)),
            "no_event" => {
                let last = self.read(answer.next_seq())?;
                Err(StoreError::NoSuchEvent { session: id, seq: after_seq, last })
            }
            _ => Err(self.unknown(&answer)),
        }
    }

    async fn remove_compaction(&self, id: SessionId, after_seq: Seq) -> Result<bool, StoreError> {
        let answer =
            self.run(self.operation(&scripts::REMOVE_COMPACTION, Some(id)).with(after_seq.0)).await?;
        match answer.outcome.as_str() {
            "done" => Ok(true),
            "none" => Ok(false),
            "absent" => Err(StoreError::NoSuchSession(id)),
            _ => Err(self.unknown(&answer)),
        }
    }

    async fn last_used(&self, used_in: &str) -> Result<Option<SessionId>, StoreError> {
        let mut look = Pipeline::new();
        look.cmd("ZSCORE").arg(self.keys.last_used()).arg(used_in);
        let answer = self.answers(look).await?.into_iter().next().unwrap_or_default();
        let number = self.read(replies::optional_text(answer))?;
        self.read(number.map(|number| replies::session_id(&number)).transpose())
    }

    async fn watch(&self, id: SessionId) -> Result<Option<Box<dyn Watch>>, StoreError> {
        self.watched(id).await
    }

    async fn watch_all(&self) -> Result<Option<Box<dyn Watch>>, StoreError> {
        self.all_watched().await
    }

    fn crash_notes(&self) -> Option<&dyn CrashNotes> {
        Some(self)
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }

    fn originals(&self) -> Option<&dyn Originals> {
        self.originals.is_some().then_some(self as &dyn Originals)
    }

    async fn close(&self) -> Result<(), StoreError> {
        if self.connections.close().await { Ok(()) } else { Err(StoreError::Closed) }
    }
}

#[async_trait]
impl CrashNotes for RedisStore {
    async fn mark(&self, name: &str) -> Result<Option<Mark>, StoreError> {
        let mut answer = self.run(self.look(&scripts::MARK, None).with(name)).await?;
        match answer.outcome.as_str() {
            "done" => self.read(mark(&mut answer).map(Some)),
            "none" => Ok(None),
            _ => Err(self.unknown(&answer)),
        }
    }

    async fn remove_mark(&self, name: &str) -> Result<bool, StoreError> {
        let answer = self.run(self.operation(&scripts::REMOVE_MARK, None).with(name)).await?;
        match answer.outcome.as_str() {
            "done" => Ok(true),
            "none" => Ok(false),
            _ => Err(self.unknown(&answer)),
        }
    }

    async fn note_run(&self, id: SessionId, run: Option<&str>) -> Result<(), StoreError> {
        let call = self.operation(&scripts::NOTE_RUN, Some(id)).with(id.number());
        self.change(id, call.with_optional(run.filter(|run| !run.is_empty()))).await
    }

    async fn noted_runs(&self) -> Result<Vec<(SessionId, String)>, StoreError> {
        let mut command = redis::cmd("HGETALL");
        command.arg(self.keys.runs());
        let mut texts = self.texts(command).await?.into_iter().flatten();
        let mut noted = Vec::new();
        while let (Some(number), Some(run)) = (texts.next(), texts.next()) {
            noted.push((self.read(replies::session_id(&number))?, run));
        }
        noted.sort();
        Ok(noted)
    }
}

/// Reads a mark from its session and its note.
fn mark(answer: &mut Answer) -> Result<Mark, Fault> {
    Ok(Mark { session: answer.next_session()?, note: answer.next_text()? })
}
