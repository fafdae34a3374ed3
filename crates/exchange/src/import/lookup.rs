//! Finds the session of a store that is the same as an incoming session.
//!
//! Two sessions are the same if they have the same [identity](crate::identity) and one log is the beginning of the other.
//! The search uses the UUID, then the marks of earlier imports, then the origin, if that is this store.
//!
//! Two sessions with one UUID and different logs come from a project that was copied and continued in both places. They
//! stay two: the incoming session becomes a fork. In a third store, the log of that fork may be under the former UUID, or in a fork
//! of that store's own: so a fork that an import made is searched under both UUIDs.

use azureal_core::{EventRange, ListQuery, Mark, Seq, SessionId, SessionStore, StoreError, Uuid, each_page};
use serde::{Deserialize, Serialize};

use super::event_texts::{LogHash, TextReader};
use super::{Counted, ImportError, IncomingSession};
use crate::identity::{SessionIdentity, fork_note, home, import_mark, origin_mark, uuid_key};

/// The note of the mark of an import.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ImportNote {
    /// The number of imported events, and their hash.
    pub(crate) events: usize,
    pub(crate) hash: String,
    /// What the turns of a fork took that another session counts, because both logs begin with them.
    #[serde(default, skip_serializing_if = "Counted::is_empty")]
    pub(crate) uncounted: Counted,
}

impl ImportNote {
    /// Reads the note of a mark; empty if it cannot be read.
    pub(crate) fn of(mark: &Mark) -> Self {
        serde_json::from_str(&mark.note).unwrap_or_default()
    }
}

/// The result of a search.
pub(super) enum Lookup<'a> {
    /// The store has the session.
    Same { session: KnownSession<'a>, by: RecognisedBy },
    /// A session of the store has the same UUID and another log.
    Diverged { from: SessionId, new: NewIdentity },
    /// The store does not have the session.
    New(NewIdentity),
}

/// The place of a session that the store does not have.
pub(super) struct NewIdentity {
    /// The mark that its import sets.
    pub(super) mark: String,
    /// The sessions of the store that had the same UUID before imports made them forks.
    pub(super) relatives: Vec<SessionId>,
}

/// A session of the store that is the same as the incoming one.
pub(super) enum KnownSession<'a> {
    /// It has all events of the incoming session.
    All(SessionId),
    /// It has the first events of the incoming session and no others.
    Beginning(KnownBeginning<'a>),
}

impl KnownSession<'_> {
    pub(super) fn id(&self) -> SessionId {
        match self {
            Self::All(id) => *id,
            Self::Beginning(beginning) => beginning.id,
        }
    }
}

/// The property by which a session was recognised.
pub(super) enum RecognisedBy {
    Uuid,
    /// The mark of an earlier import, which a further one replaces.
    Mark(String),
    /// The mark of an import from before the incoming session had a UUID. The name is that of its mark under the UUID.
    Origin(String),
    /// Number and creation time: the incoming session comes from this store. The name is that of its mark under the UUID, if
    /// it has one.
    Home(Option<String>),
}

/// A session that the incoming one continues.
pub(super) struct KnownBeginning<'a> {
    pub(super) id: SessionId,
    /// Its last event.
    pub(super) last: Seq,
    /// Its totals, which clearing a session keeps, and what they leave out because another session counts it.
    pub(super) counted: Counted,
    pub(super) uncounted: Counted,
    /// The events that it lacks: all of them if it was cleared.
    pub(super) rest: TextReader<'a>,
}

/// The result of the comparison of a session of the store with the incoming one.
enum Comparison<'a> {
    Same(KnownSession<'a>),
    /// The logs differ.
    Another {
        id: SessionId,
        forked_from: Option<Uuid>,
    },
    /// There is no such session.
    Missing,
}

/// The sessions that were imported under one key.
struct Marked<'a> {
    found: Option<(KnownSession<'a>, String)>,
    /// The first of them with another log that an import did not make a fork.
    another: Option<SessionId>,
    /// The others, and the first unused name of a mark.
    free: NewIdentity,
}

/// An incoming session, and the store to search.
pub(super) struct Search<'a> {
    pub(super) store: &'a dyn SessionStore,
    pub(super) incoming: &'a IncomingSession,
}

impl<'a> Search<'a> {
    pub(super) async fn look_up(&self) -> Result<Lookup<'a>, ImportError> {
        let identity = &self.incoming.identity;
        let Some(uuid) = identity.uuid else {
            let Marked { found, free, .. } = self.marked(&identity.origin).await?;
            if let Some((session, mark)) = found {
                return Ok(Lookup::Same { session, by: RecognisedBy::Mark(mark) });
            }
            return Ok(match self.at_home().await? {
                Some(session) => Lookup::Same { session, by: RecognisedBy::Home(None) },
                None => Lookup::New(free),
            });
        };
        let mut found = self.under(uuid).await?;
        if let (Lookup::Diverged { new, .. } | Lookup::New(new), Some(former)) = (&mut found, identity.former)
        {
            match self.under(former).await? {
                Lookup::Diverged { new: free, .. } | Lookup::New(free) => *new = free,
                same => return Ok(same),
            }
        }
        let Lookup::New(free) = found else {
            return Ok(found);
        };
        if let Some((session, _)) = self.marked(&identity.origin).await?.found {
            // A session that has another UUID by now has the same origin by chance.
            let record = self.store.get(session.id()).await?;
            if SessionIdentity::of(self.store, &record).await?.is_copy {
                return Ok(Lookup::Same { session, by: RecognisedBy::Origin(free.mark) });
            }
        }
        Ok(match self.at_home().await? {
            Some(session) => Lookup::Same { session, by: RecognisedBy::Home(Some(free.mark)) },
            None => Lookup::New(free),
        })
    }

    /// Compares with the sessions that have this UUID, or had it until an import made them forks.
    async fn under(&self, uuid: Uuid) -> Result<Lookup<'a>, ImportError> {
        let diverged = match self.with_uuid(uuid).await? {
            Comparison::Same(session) => return Ok(Lookup::Same { session, by: RecognisedBy::Uuid }),
            Comparison::Another { id, .. } => Some(id),
            Comparison::Missing => None,
        };
        let Marked { found, another, mut free } = self.marked(&uuid_key(uuid)).await?;
        if let Some((session, mark)) = found {
            return Ok(Lookup::Same { session, by: RecognisedBy::Mark(mark) });
        }
        free.relatives.extend(diverged);
        let Some(from) = diverged.or(another) else {
            return Ok(Lookup::New(free));
        };
        Ok(match self.among_forks(uuid, from).await? {
            Some(session) => Lookup::Same { session, by: RecognisedBy::Mark(free.mark) },
            None => Lookup::Diverged { from, new: free },
        })
    }

    /// Compares with the session that has this UUID.
    async fn with_uuid(&self, uuid: Uuid) -> Result<Comparison<'a>, ImportError> {
        let Some(id) = self.store.find_uuid(uuid).await? else {
            return Ok(Comparison::Missing);
        };
        loop {
            let before = self.count_events(id).await?;
            let found = self.compare(id, None).await?;
            // A session that another process changes during the comparison can look like another one.
            if !matches!(found, Comparison::Another { .. }) || self.count_events(id).await? == before {
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

    /// Compares with the sessions that have the marks of a key.
    async fn marked(&self, key: &str) -> Result<Marked<'a>, ImportError> {
        let (mut another, mut relatives, mut number) = (None, Vec::new(), 1);
        loop {
            let mark = import_mark(key, number);
            match self.with_mark(&mark).await? {
                Comparison::Missing => {
                    return Ok(Marked { found: None, another, free: NewIdentity { mark, relatives } });
                }
                Comparison::Same(session) => {
                    let found = Some((session, mark.clone()));
                    return Ok(Marked { found, another, free: NewIdentity { mark, relatives } });
                }
                Comparison::Another { id, forked_from } => {
                    let is_fork = forked_from.is_some_and(|from| uuid_key(from) == key);
                    another = another.or((!is_fork).then_some(id));
                    relatives.push(id);
                    number += 1;
                }
            }
        }
    }

    /// Compares with the session that has a mark.
    async fn with_mark(&self, name: &str) -> Result<Comparison<'a>, ImportError> {
        loop {
            let Some(mark) = self.store.mark(name).await? else {
                return Ok(Comparison::Missing);
            };
            let found = self.compare(mark.session, Some(&mark)).await?;
            if matches!(found, Comparison::Same(_)) {
                return Ok(found);
            }
            // Another process may have changed the session after we read the mark.
            if self.store.mark(name).await?.is_some_and(|now| now == mark) {
                if matches!(found, Comparison::Missing) {
                    // A program that does not know marks has deleted the session.
                    self.store.remove_mark(name).await?;
                }
                return Ok(found);
            }
        }
    }

    /// Compares the logs. `mark` is the mark of the import of the stored session.
    async fn compare(&self, id: SessionId, mark: Option<&Mark>) -> Result<Comparison<'a>, ImportError> {
        let texts = &self.incoming.texts;
        let read = async {
            let stored = stored_beginning(self.store, id, texts.count).await?;
            Ok((stored, self.store.get(id).await?))
        };
        let (stored, record) = match read.await {
            Err(StoreError::NoSuchSession(_)) => return Ok(Comparison::Missing),
            read => read?,
        };
        let another = Comparison::Another { id, forked_from: record.forked_from };
        let Some(stored) = stored else {
            return Ok(another);
        };
        if stored.count == texts.count {
            let is_same = stored.hash == texts.hash;
            return Ok(if is_same { Comparison::Same(KnownSession::All(id)) } else { another });
        }
        let mut rest = texts.reader();
        let is_beginning = if stored.count == 0 {
            // An empty log is the beginning of every log. Without a UUID, the mark says what it was before it was cleared.
            let has_uuid = record.uuid.is_some() && record.uuid == self.incoming.identity.uuid;
            has_uuid || self.begins_with(mark).await?
        } else {
            rest.skip_to(stored.count).await?;
            rest.hash() == stored.hash
        };
        if !is_beginning {
            return Ok(another);
        }
        Ok(Comparison::Same(KnownSession::Beginning(KnownBeginning {
            id,
            last: stored.last,
            counted: Counted::of_record(&record),
            uncounted: fork_note(self.store, &record).await?.unwrap_or_default().uncounted,
            rest,
        })))
    }

    /// Says whether the incoming session begins with the events of an earlier import.
    async fn begins_with(&self, mark: Option<&Mark>) -> Result<bool, ImportError> {
        let held = mark.map(ImportNote::of);
        let Some(held) = held.filter(|held| held.events <= self.incoming.texts.count) else {
            return Ok(false);
        };
        let mut reader = self.incoming.texts.reader();
        reader.skip_to(held.events).await?;
        Ok(reader.hash() == held.hash)
    }

    /// Searches the forks of `from` for an incoming session that diverged from it: it may have come by another store, without a mark of
    /// this UUID in earlier versions.
    async fn among_forks(
        &self,
        uuid: Uuid,
        from: SessionId,
    ) -> Result<Option<KnownSession<'a>>, ImportError> {
        for record in self.store.list(&ListQuery::default()).await? {
            if record.forked_from != Some(uuid) {
                continue;
            }
            match self.compare(record.id, None).await? {
                Comparison::Same(KnownSession::Beginning(beginning)) => {
                    // A fork that is a part of `from` was created by the user in this store.
                    let shared = stored_beginning(self.store, from, beginning.rest.read()).await?;
                    if shared.is_none_or(|shared| shared.hash != beginning.rest.hash()) {
                        return Ok(Some(KnownSession::Beginning(beginning)));
                    }
                }
                Comparison::Same(all) => return Ok(Some(all)),
                Comparison::Another { .. } | Comparison::Missing => {}
            }
        }
        Ok(None)
    }

    /// Compares with the session of this store that the incoming one is a copy of, by number and creation time.
    ///
    /// Another project may have a session with the same number, time and first events. So only a copy by azureal
    /// continues the session. Any other incoming session is the same only if the store has all of it.
    async fn at_home(&self) -> Result<Option<KnownSession<'a>>, ImportError> {
        let identity = &self.incoming.identity;
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
        // A session that was imported has this number by chance.
        let mut marks = vec![origin_mark(id)];
        marks.extend(record.uuid.map(|uuid| import_mark(&uuid_key(uuid), 1)));
        for name in marks {
            if self.store.mark(&name).await?.is_some() {
                return Ok(None);
            }
        }
        Ok(match self.compare(id, None).await? {
            Comparison::Same(KnownSession::Beginning(_)) if !identity.is_copy => None,
            Comparison::Same(session) => Some(session),
            Comparison::Another { .. } | Comparison::Missing => None,
        })
    }
}

/// The first events of a session.
pub(crate) struct StoredBeginning {
    pub(crate) count: usize,
    pub(crate) hash: String,
    last: Seq,
}

/// Returns the hash of the first `most` events of a session; `None` if one of them cannot be read.
pub(crate) async fn stored_beginning(
    store: &dyn SessionStore,
    id: SessionId,
    most: usize,
) -> Result<Option<StoredBeginning>, StoreError> {
    let (mut hash, mut count, mut last) = (LogHash::default(), 0, Seq::START);
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
