//! Finds the session of a store that an arrival is.
//!
//! Sessions are one if they have one [identity](super::identity) and one log is the beginning of the other. The order of
//! the search: the UUID, the marks of earlier imports, and the place that the arrival comes from, if that is this store.
//!
//! Two sessions with one UUID and different logs come from a project that was copied and continued in both places. They
//! stay two: the arrival becomes a fork.

use azureal_core::{ListQuery, Mark, Seq, SessionId, SessionStore, StoreError, Tokens, TurnTotals, Uuid};
use serde::{Deserialize, Serialize};

use super::Arrival;
use super::Identity;
use super::identity::{home, import_mark, origin_mark, uuid_key};
use super::texts::{Hash, Reader};
use crate::failure::Failure;
use azureal_core::{EventRange, each_page};

/// What a mark remembers of an import.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) events: usize,
    pub(super) hash: String,
}

/// The result of a search.
pub(super) enum Lookup<'a> {
    /// The arrival is a session of this store.
    Same { session: Same<'a>, by: By },
    /// A session of this store has its UUID and another log.
    Diverged { from: SessionId, mark: String },
    /// The arrival is new. An import sets this mark.
    New { mark: String },
}

/// A session of this store that is the arrival.
pub(super) enum Same<'a> {
    /// It holds all of it.
    All(SessionId),
    /// It holds the beginning of it and nothing else.
    Beginning(Beginning<'a>),
}

impl Same<'_> {
    pub(super) fn id(&self) -> SessionId {
        match self {
            Self::All(id) => *id,
            Self::Beginning(beginning) => beginning.id,
        }
    }
}

/// How a session was recognised.
pub(super) enum By {
    Uuid,
    /// The mark of an earlier import, which a further one replaces.
    Mark(String),
    /// The mark of an import from before the arrival had a UUID. The name is that of its mark under the UUID.
    Origin(String),
    /// Number and creation time: the arrival comes from this store. The name is that of its mark under the UUID, if it has one.
    Home(Option<String>),
}

/// A session that an arrival continues.
pub(super) struct Beginning<'a> {
    pub(super) id: SessionId,
    /// Its last event.
    pub(super) last: Seq,
    /// Its totals. Clearing a session keeps them.
    pub(super) tokens: Tokens,
    pub(super) totals: TurnTotals,
    /// The events that it lacks: all of them if it was cleared.
    pub(super) rest: Reader<'a>,
}

/// The relation of a session of the store to an arrival.
enum Found<'a> {
    Same(Same<'a>),
    Another {
        id: SessionId,
        forked_from: Option<Uuid>,
    },
    /// There is no such session.
    Missing,
}

/// The sessions that were imported under one key.
struct Marked<'a> {
    found: Option<(Same<'a>, String)>,
    /// The first of them with another log that is not a fork of the arrival.
    another: Option<SessionId>,
    /// The first name that is free.
    free: String,
}

/// An arrival and the store that it is looked for in.
pub(super) struct Search<'a> {
    pub(super) store: &'a dyn SessionStore,
    pub(super) arrival: &'a Arrival,
}

impl<'a> Search<'a> {
    pub(super) async fn look_up(&self) -> Result<Lookup<'a>, Failure> {
        let identity = &self.arrival.identity;
        let mut diverged = None;
        if let Some(uuid) = identity.uuid {
            match self.with_uuid(uuid).await? {
                Found::Same(session) => return Ok(Lookup::Same { session, by: By::Uuid }),
                Found::Another { id, .. } => diverged = Some(id),
                Found::Missing => {}
            }
        }
        // A session that became a fork where it was brought to comes home.
        if let Some(former) = identity.former
            && let Found::Same(session) = self.with_uuid(former).await?
        {
            return Ok(Lookup::Same { session, by: By::Uuid });
        }
        let Marked { found, another, free } = self.marked(&identity.key()).await?;
        if let Some((session, mark)) = found {
            return Ok(Lookup::Same { session, by: By::Mark(mark) });
        }
        let Some(uuid) = identity.uuid else {
            return Ok(match self.at_home().await? {
                Some(session) => Lookup::Same { session, by: By::Home(None) },
                None => Lookup::New { mark: free },
            });
        };
        if let Some(from) = diverged.or(another) {
            return Ok(match self.among_forks(uuid, from).await? {
                Some(session) => Lookup::Same { session, by: By::Mark(free) },
                None => Lookup::Diverged { from, mark: free },
            });
        }
        if let Some((session, _)) = self.marked(&identity.origin).await?.found {
            // A session that is known by another UUID meanwhile has the same origin by chance.
            let record = self.store.get(session.id()).await?;
            if Identity::of(self.store, &record).await?.is_copy {
                return Ok(Lookup::Same { session, by: By::Origin(free) });
            }
        }
        Ok(match self.at_home().await? {
            Some(session) => Lookup::Same { session, by: By::Home(Some(free)) },
            None => Lookup::New { mark: free },
        })
    }

    /// Compares with the session that has the UUID of the arrival.
    async fn with_uuid(&self, uuid: Uuid) -> Result<Found<'a>, Failure> {
        let Some(id) = self.store.find_uuid(uuid).await? else {
            return Ok(Found::Missing);
        };
        loop {
            let before = self.count_events(id).await?;
            let found = self.compare(id, None).await?;
            // A session that changes while it is read can seem to be another one.
            if !matches!(found, Found::Another { .. }) || self.count_events(id).await? == before {
                return Ok(found);
            }
        }
    }

    /// Returns the number of events of a session; `None` if it is gone.
    async fn count_events(&self, id: SessionId) -> Result<Option<u64>, StoreError> {
        match self.store.get(id).await {
            Err(StoreError::NoSuchSession(_)) => Ok(None),
            record => record.map(|record| Some(record.counts.events)),
        }
    }

    /// Compares with the sessions that bear the marks of a key.
    async fn marked(&self, key: &str) -> Result<Marked<'a>, Failure> {
        let (mut another, mut number) = (None, 1);
        loop {
            let name = import_mark(key, number);
            match self.with_mark(&name).await? {
                Found::Missing => return Ok(Marked { found: None, another, free: name }),
                Found::Same(session) => {
                    return Ok(Marked { found: Some((session, name.clone())), another, free: name });
                }
                Found::Another { id, forked_from } => {
                    let is_fork = forked_from.is_some() && forked_from == self.arrival.identity.uuid;
                    another = another.or((!is_fork).then_some(id));
                    number += 1;
                }
            }
        }
    }

    /// Compares with the session that bears a mark.
    async fn with_mark(&self, name: &str) -> Result<Found<'a>, Failure> {
        loop {
            let Some(mark) = self.store.mark(name).await? else {
                return Ok(Found::Missing);
            };
            let found = self.compare(mark.session, Some(&mark)).await?;
            if matches!(found, Found::Same(_)) {
                return Ok(found);
            }
            // Another process may have changed the session after we read the mark.
            if self.store.mark(name).await?.is_some_and(|now| now == mark) {
                if matches!(found, Found::Missing) {
                    // A program that does not know marks has deleted the session.
                    self.store.remove_mark(name).await?;
                }
                return Ok(found);
            }
        }
    }

    /// Compares the logs. `mark` is that of the session's import.
    async fn compare(&self, id: SessionId, mark: Option<&Mark>) -> Result<Found<'a>, Failure> {
        let texts = &self.arrival.texts;
        let read = async {
            let stored = stored_beginning(self.store, id, texts.count).await?;
            Ok((stored, self.store.get(id).await?))
        };
        let (stored, record) = match read.await {
            Err(StoreError::NoSuchSession(_)) => return Ok(Found::Missing),
            read => read?,
        };
        let another = Found::Another { id, forked_from: record.forked_from };
        let Some(stored) = stored else {
            return Ok(another);
        };
        if stored.count == texts.count {
            let is_same = stored.hash == texts.hash;
            return Ok(if is_same { Found::Same(Same::All(id)) } else { another });
        }
        let mut rest = texts.reader();
        let is_beginning = if stored.count == 0 {
            // Every log begins with an empty one. Without a UUID, the mark says what was in it before it was cleared.
            let has_uuid = record.uuid.is_some() && record.uuid == self.arrival.identity.uuid;
            has_uuid || self.begins_with(mark).await?
        } else {
            rest.skip_to(stored.count).await?;
            rest.hash() == stored.hash
        };
        if !is_beginning {
            return Ok(another);
        }
        Ok(Found::Same(Same::Beginning(Beginning {
            id,
            last: stored.last,
            tokens: record.tokens,
            totals: TurnTotals {
                completed: record.completed,
                duration_ms: record.duration_ms,
                cost_usd: record.cost_usd,
            },
            rest,
        })))
    }

    /// Says whether the arrival begins with what a mark remembers.
    async fn begins_with(&self, mark: Option<&Mark>) -> Result<bool, Failure> {
        let held = mark.and_then(|mark| serde_json::from_str::<Note>(&mark.note).ok());
        let Some(held) = held.filter(|held| held.events <= self.arrival.texts.count) else {
            return Ok(false);
        };
        let mut reader = self.arrival.texts.reader();
        reader.skip_to(held.events).await?;
        Ok(reader.hash() == held.hash)
    }

    /// Looks for an arrival that diverged from `from` among the forks of that: another store may have brought it.
    async fn among_forks(&self, uuid: Uuid, from: SessionId) -> Result<Option<Same<'a>>, Failure> {
        for record in self.store.list(&ListQuery::default()).await? {
            if record.forked_from != Some(uuid) {
                continue;
            }
            match self.compare(record.id, None).await? {
                Found::Same(Same::Beginning(beginning)) => {
                    // A fork that holds nothing but a part of `from` is one that the user made here.
                    let shared = stored_beginning(self.store, from, beginning.rest.read()).await?;
                    if shared.is_none_or(|shared| shared.hash != beginning.rest.hash()) {
                        return Ok(Some(Same::Beginning(beginning)));
                    }
                }
                Found::Same(all) => return Ok(Some(all)),
                Found::Another { .. } | Found::Missing => {}
            }
        }
        Ok(None)
    }

    /// Compares with the session of this store that the arrival is a copy of, by number and creation time.
    ///
    /// Another project may have a session of the same number and second that begins alike. So only a copy that azureal
    /// made continues the session here; any other arrival is the same only if all of it is here.
    async fn at_home(&self) -> Result<Option<Same<'a>>, Failure> {
        let identity = &self.arrival.identity;
        let Some((id, created_at)) = home(&identity.origin) else {
            return Ok(None);
        };
        let record = match self.store.get(id).await {
            Err(StoreError::NoSuchSession(_)) => return Ok(None),
            record => record?,
        };
        if record.created_at != created_at || created_at.is_empty() {
            return Ok(None);
        }
        if record.uuid.is_some() && identity.uuid.is_some() && !identity.is_copy {
            return Ok(None);
        }
        // A session that came from elsewhere has this number by chance.
        let mut marks = vec![origin_mark(id)];
        marks.extend(record.uuid.map(|uuid| import_mark(&uuid_key(uuid), 1)));
        for name in marks {
            if self.store.mark(&name).await?.is_some() {
                return Ok(None);
            }
        }
        Ok(match self.compare(id, None).await? {
            Found::Same(Same::Beginning(_)) if !identity.is_copy => None,
            Found::Same(session) => Some(session),
            Found::Another { .. } | Found::Missing => None,
        })
    }
}

/// The first events of a session.
pub(super) struct StoredBeginning {
    pub(super) count: usize,
    pub(super) hash: String,
    last: Seq,
}

/// Returns the hash of the first events of a session, at most so many; `None` if one of them cannot be read.
pub(super) async fn stored_beginning(
    store: &dyn SessionStore,
    id: SessionId,
    most: usize,
) -> Result<Option<StoredBeginning>, StoreError> {
    let (mut hash, mut count, mut last) = (Hash::default(), 0, Seq::START);
    let mut is_readable = true;
    each_page(store, id, EventRange::First(most), |page| {
        for stored in &page {
            match &stored.json {
                Ok(json) => hash.add(json),
                Err(_) => is_readable = false,
            }
            count += 1;
            last = stored.seq;
        }
        Ok::<(), StoreError>(())
    })
    .await?;
    Ok(is_readable.then(|| StoredBeginning { count, hash: hash.text(), last }))
}
