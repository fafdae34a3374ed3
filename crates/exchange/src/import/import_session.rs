//! The last step of an import: adds the missing events to the store.
//!
//! A second import of the same session changes nothing. A source that has grown continues its session, if the session has
//! no other events; a cleared session gets its events back. [`super::lookup`] finds the session.
//!
//! A long session is stored in pieces, each with the mark of the state that it creates. After an interruption, the next import
//! finds a session that is the beginning of its source, and continues it.
//!
//! Other processes may import the same session at the same time. Each write has the result of the lookup as its condition. If
//! that no longer holds, the store writes nothing and the import repeats the lookup.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use azureal_core::{
    Compaction, Event, NewEvent, NewMark, NewSession, NewTurn, Page, Seq, SessionId, SessionStore,
    StoreError, StoredEvent, TIMESTAMP_FORMAT, Tokens, TurnTotals, Uuid, check_name, normal_timestamp,
    to_visible_json,
};
use jiff::{Timestamp, civil, tz};

use super::continued;
use super::event_texts::{TextReader, is_same_json};
use super::lookup::{ImportNote, KnownBeginning, KnownSession, Lookup, NewIdentity, RecognisedBy, Search};
use super::problem::{ImportNotice, ImportProblem};
use super::{Added, Counted, ImportError, ImportOutcome, IncomingSession};
use crate::identity::{fork_note, fork_uuid, home, origin, origin_mark, uuid_key};

/// The number of lookups before an import gives up on a session that other processes keep changing.
const ATTEMPTS: usize = 16;

/// The progress callback of an import. It gets the number of stored events after each piece. `Break` stops the import, and
/// the next import of the same session continues it.
pub type ImportProgress<'a> = &'a (dyn Fn(usize) -> ControlFlow<()> + Sync);

/// Adds a session to the store, or the events and summaries that the store lacks. `worktree` is the worktree of sessions
/// from formats without worktrees.
pub async fn import_session(
    store: &dyn SessionStore,
    worktree: &str,
    incoming: &mut IncomingSession,
    progress: ImportProgress<'_>,
) -> Result<ImportOutcome, ImportError> {
    continued::resolve(store, incoming).await?;
    if let Some(name) = incoming.name.take_if(|name| check_name(name).is_err()) {
        incoming.problems.push(ImportProblem::UnusableName(name));
    }
    let import = SessionImport { store, worktree, incoming, progress };
    for _ in 0..ATTEMPTS {
        let Some(outcome) = import.look_and_add().await? else {
            continue;
        };
        import.remember_origin(outcome.session()).await?;
        if outcome.is_new() {
            report_name(store, outcome.session(), incoming).await?;
        }
        return Ok(outcome);
    }
    Err(ImportError::KeepsChanging { session: incoming.label.clone() })
}

/// Adds a notice if another session of the store had the name.
async fn report_name(
    store: &dyn SessionStore,
    id: SessionId,
    incoming: &mut IncomingSession,
) -> Result<(), ImportError> {
    let Some(wanted) = incoming.name.take() else {
        return Ok(());
    };
    let name = store.get(id).await?.name;
    if name != wanted {
        incoming.notices.push(ImportNotice::NameTaken { wanted, id, name: name.clone() });
    }
    incoming.name = Some(name);
    Ok(())
}

/// The part that two sessions have in common.
#[derive(Default)]
struct Shared {
    /// What its turns took.
    uncounted: Counted,
    /// When the first turn after it began, if that is known; else, when the session was created.
    begun: Option<String>,
}

/// The import of a session into a store.
struct SessionImport<'a> {
    store: &'a dyn SessionStore,
    worktree: &'a str,
    incoming: &'a IncomingSession,
    progress: ImportProgress<'a>,
}

impl SessionImport<'_> {
    /// Calls the progress callback.
    fn report_progress(&self, events: usize) -> Result<(), ImportError> {
        match (self.progress)(events) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ImportError::ImportStopped),
        }
    }

    /// Finds the session and adds the missing events; `None` if another process changed it in between.
    async fn look_and_add(&self) -> Result<Option<ImportOutcome>, ImportError> {
        let search = Search { store: self.store, incoming: self.incoming };
        match search.look_up().await? {
            Lookup::Same { session, by } => {
                let id = session.id();
                let mark = match &by {
                    RecognisedBy::Mark(mark) | RecognisedBy::Origin(mark) => Some(mark.as_str()),
                    RecognisedBy::Uuid | RecognisedBy::Home(_) => None,
                };
                let outcome = self.add_missing(session, mark).await?;
                if outcome.is_some() {
                    self.remember_uuid(id, &by).await?;
                }
                Ok(outcome)
            }
            Lookup::Diverged { from, new } => {
                let created = self.create(new, true).await?;
                Ok(created.map(|id| ImportOutcome::Forked { id, events: self.incoming.texts.count, from }))
            }
            Lookup::New(new) => {
                let created = self.create(new, false).await?;
                Ok(created.map(|id| ImportOutcome::New { id, events: self.incoming.texts.count }))
            }
        }
    }

    async fn add_missing(
        &self,
        session: KnownSession<'_>,
        mark: Option<&str>,
    ) -> Result<Option<ImportOutcome>, ImportError> {
        match session {
            KnownSession::All(id) => {
                let Some(summaries) = self.add_summaries(id).await? else {
                    return Ok(None);
                };
                let Some(tokens) = self.add_tokens(id).await? else {
                    return Ok(None);
                };
                let added = Added { events: 0, summaries, tokens };
                Ok(Some(if added == Added::default() {
                    ImportOutcome::Unchanged { id }
                } else {
                    ImportOutcome::Continued { id, added }
                }))
            }
            KnownSession::Beginning(beginning) => self.append_rest(beginning, mark).await,
        }
    }

    /// Creates the session; `None` if another process did. A new fork gets a new UUID.
    async fn create(&self, new: NewIdentity, is_fork: bool) -> Result<Option<SessionId>, ImportError> {
        let incoming = self.incoming;
        let identity = &incoming.identity;
        let (uuid, forked_from) = match identity.lasting_uuid().filter(|_| is_fork) {
            Some(former) => (self.free_fork_uuid(former).await?, Some(former)),
            None => (identity.uuid, identity.forked_from),
        };
        let NewIdentity { mark, relatives } = new;
        let mut shared = Shared { uncounted: identity.uncounted, begun: incoming.created_at.clone() };
        if is_fork || identity.former.is_some() {
            for relative in relatives {
                let with_relative = self.shared_with(relative).await?;
                if !with_relative.uncounted.minus(shared.uncounted).is_empty() {
                    shared = with_relative;
                }
            }
        }
        let Shared { uncounted, begun } = shared;
        let name = match &incoming.name {
            Some(name) => Some(free_name(self.store, name).await?),
            None => None,
        };
        let time = |time: &Option<String>| time.as_deref().and_then(to_the_second);
        let new = NewSession {
            created_at: time(&begun),
            // Another name is given now.
            named_at: time(&incoming.named_at).filter(|_| name == incoming.name),
            name,
            worktree: incoming.worktree.clone().unwrap_or_else(|| self.worktree.to_owned()),
            uuid,
            forked_from,
            last_active: time(&incoming.last_active),
        };
        let mut rest = incoming.texts.reader();
        let turn = self.next_turn(&mut rest, Counted::default(), uncounted, Some(&mark)).await?;
        let last = Seq(rest.read() as u64);
        let mut within = summaries(incoming);
        within.retain(|summary| summary.after_seq <= last);
        let created = self.store.create_with(new, turn, within).await;
        let Some(id) = unless_changed(created)? else {
            return Ok(None);
        };
        self.report_progress(rest.read())?;
        let is_whole = rest.read() == incoming.texts.count;
        let beginning = KnownBeginning { id, last, counted: Counted::default(), uncounted, rest };
        if !is_whole && self.append_rest(beginning, Some(&mark)).await?.is_none() {
            return Ok(None);
        }
        Ok(Some(id))
    }

    /// Returns the UUID of a fork; `None` if a session has it, which had the log before it was cleared.
    async fn free_fork_uuid(&self, former: Uuid) -> Result<Option<Uuid>, StoreError> {
        let uuid = fork_uuid(former, &self.incoming.texts.hash);
        Ok(self.store.find_uuid(uuid).await?.is_none().then_some(uuid))
    }

    /// Appends the missing events, piece by piece; `None` if another process changed the session meanwhile.
    async fn append_rest(
        &self,
        beginning: KnownBeginning<'_>,
        mark: Option<&str>,
    ) -> Result<Option<ImportOutcome>, ImportError> {
        let KnownBeginning { id, mut last, counted, uncounted, mut rest } = beginning;
        let begun = rest.read();
        while rest.read() < self.incoming.texts.count {
            let turn = self.next_turn(&mut rest, counted, uncounted, mark).await?;
            let appended = self.store.append(id, NewTurn { after: Some(last), ..turn }).await;
            let Some(appended) = unless_changed(appended)? else {
                return Ok(None);
            };
            last = appended.last;
            self.report_progress(rest.read())?;
        }
        // If this is interrupted, the next import adds the rest.
        let summaries = self.add_summaries(id).await?.unwrap_or(0);
        let added = Added { events: rest.read() - begun, summaries, tokens: 0 };
        Ok(Some(ImportOutcome::Continued { id, added }))
    }

    /// Returns what the source counts and a session of the store does not. Both may leave out what another session of theirs counts.
    fn missing(&self, counted: Counted, uncounted: Counted) -> Counted {
        let theirs = self.incoming.identity.uncounted;
        let whole = self.incoming.counted().plus(theirs.minus(uncounted));
        whole.minus(counted.plus(uncounted.minus(theirs)))
    }

    /// Looks for the part that the incoming session has in common with a session of the store.
    async fn shared_with(&self, id: SessionId) -> Result<Shared, ImportError> {
        let (mut incoming, mut place, mut shared) =
            (self.incoming.texts.reader(), Seq::START, Shared::default());
        loop {
            let piece = incoming.piece().await?;
            let stored = self.store.read(id, Page::After(place, piece.len())).await?;
            let is_same = |(new, stored): &(&NewEvent, &StoredEvent)| {
                stored.json.as_ref().is_ok_and(|stored| is_same_json(stored, &new.json()))
            };
            let same = piece.iter().zip(&stored).take_while(is_same).count();
            let (both, rest) = piece.split_at(same);
            let ends = |new: &NewEvent| match new.event() {
                Event::Complete(complete) => Some(complete.clone()),
                _ => None,
            };
            shared.uncounted = both
                .iter()
                .filter_map(ends)
                .map(|end| Counted::of(&end))
                .fold(shared.uncounted, Counted::plus);
            if !rest.is_empty() || piece.is_empty() {
                let begun = rest.iter().find_map(ends).and_then(|end| end.started_at);
                shared.begun = begun.or_else(|| self.incoming.created_at.clone());
                return Ok(shared);
            }
            place = Seq(place.0 + same as u64);
        }
    }

    /// Returns the next piece as a turn, with the mark of the resulting state. The last piece also adds tokens and
    /// totals: those that the session does not have yet.
    async fn next_turn(
        &self,
        rest: &mut TextReader<'_>,
        counted: Counted,
        uncounted: Counted,
        mark: Option<&str>,
    ) -> Result<NewTurn, ImportError> {
        let incoming = self.incoming;
        let events = rest.piece().await?;
        let note = to_visible_json(&ImportNote { events: rest.read(), hash: rest.hash(), uncounted })?;
        let mut turn = NewTurn {
            events,
            mark: mark.map(|mark| NewMark { name: mark.to_owned(), note }),
            totals: Some(TurnTotals::default()),
            happened_at: incoming.last_active.as_deref().and_then(to_the_second),
            ..NewTurn::default()
        };
        if rest.read() == incoming.texts.count {
            let missing = self.missing(counted, uncounted);
            turn.tokens = missing.tokens();
            turn.totals = Some(missing.totals(incoming.totals.completed));
        }
        Ok(turn)
    }

    /// Sets the marks by which the next import recognises the session by its UUID.
    async fn remember_uuid(&self, id: SessionId, by: &RecognisedBy) -> Result<(), ImportError> {
        let (Some(uuid), RecognisedBy::Origin(mark) | RecognisedBy::Home(Some(mark))) =
            (self.incoming.identity.uuid, by)
        else {
            return Ok(());
        };
        let texts = &self.incoming.texts;
        self.set_mark(
            id,
            mark.clone(),
            to_visible_json(&ImportNote {
                events: texts.count,
                hash: texts.hash.clone(),
                uncounted: Counted::default(),
            })?,
        )
        .await?;
        // A session that comes from this store keeps its UUID.
        if matches!(by, RecognisedBy::Origin(_)) {
            self.set_mark(id, origin_mark(id), uuid_key(uuid)).await?;
        }
        Ok(())
    }

    /// Stores the origin of a session without a UUID, unless its number and creation time are the same.
    async fn remember_origin(&self, id: SessionId) -> Result<(), ImportError> {
        let identity = &self.incoming.identity;
        let name = origin_mark(id);
        if identity.uuid.is_some()
            || home(&identity.origin).is_none()
            || origin(&id.to_string(), &self.store.get(id).await?.created_at) == identity.origin
            || self.store.mark(&name).await?.is_some()
        {
            return Ok(());
        }
        self.set_mark(id, name, identity.origin.clone()).await
    }

    async fn set_mark(&self, id: SessionId, name: String, note: String) -> Result<(), ImportError> {
        let mark = Some(NewMark { name, note });
        // A mark is no activity.
        let happened_at = Some(self.store.get(id).await?.last_active).filter(|time| !time.is_empty());
        self.store.append(id, NewTurn { mark, happened_at, ..NewTurn::default() }).await?;
        Ok(())
    }

    /// Adds the tokens that the source has counted since, and returns how many; `None` if the session has changed. A session with events of its own has
    /// tokens of its own.
    async fn add_tokens(&self, id: SessionId) -> Result<Option<u64>, ImportError> {
        let Some(record) = unless_changed(self.store.get(id).await)? else {
            return Ok(None);
        };
        let uncounted = fork_note(self.store, &record).await?.unwrap_or_default().uncounted;
        let tokens = self.missing(Counted::of_record(&record), uncounted).tokens();
        let has_others = record.counts.events != self.incoming.texts.count as u64;
        if has_others || tokens == Tokens::default() {
            return Ok(Some(0));
        }
        let turn = NewTurn { tokens, ..NewTurn::default() };
        let added = unless_changed(self.store.append(id, turn).await)?;
        Ok(added.map(|_| tokens.input.saturating_add(tokens.output)))
    }

    /// Adds the summaries that the session lacks, and returns how many; `None` if the session is gone.
    async fn add_summaries(&self, id: SessionId) -> Result<Option<usize>, ImportError> {
        let wanted = summaries(self.incoming);
        if wanted.is_empty() {
            return Ok(Some(0));
        }
        let Some(known) = unless_changed(self.store.compactions(id).await)? else {
            return Ok(None);
        };
        let mut added = 0;
        for summary in wanted {
            if known.iter().all(|known| known.after_seq != summary.after_seq) {
                let done = self.store.add_compaction(id, &summary).await;
                if unless_changed(done)?.is_none() {
                    return Ok(None);
                }
                added += 1;
            }
        }
        Ok(Some(added))
    }
}

/// Returns the name, with a number behind it if another session has it: `login-2`, `login-3`.
pub(super) async fn free_name(store: &dyn SessionStore, name: &str) -> Result<String, ImportError> {
    let numbered = |number: u64| if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
    let is_taken = async |number| Ok::<_, StoreError>(!store.find(&numbered(number)).await?.is_empty());
    // Thousands of sessions may have the name: a binary search needs few lookups.
    let (mut taken, mut free) = (0, 1);
    while is_taken(free).await? {
        (taken, free) = (free, free * 2);
    }
    while free - taken > 1 {
        let middle = taken.midpoint(free);
        if is_taken(middle).await? {
            taken = middle;
        } else {
            free = middle;
        }
    }
    Ok(numbered(free))
}

/// Returns `None` if the store refused because another process has changed the session.
pub(super) fn unless_changed<T>(answer: Result<T, StoreError>) -> Result<Option<T>, ImportError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(
            StoreError::Moved { .. }
            | StoreError::Marked(_)
            | StoreError::NoSuchSession(_)
            | StoreError::NoSuchEvent { .. },
        ) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Converts a time of another program to the stored form; `None` if it is no time. A time without a zone is UTC, as
/// SQLite and cllm write it.
fn to_the_second(time: &str) -> Option<String> {
    let time = normal_timestamp(time);
    let time: Timestamp = match time.parse() {
        Ok(time) => time,
        Err(_) => tz::TimeZone::UTC.to_timestamp(time.parse::<civil::DateTime>().ok()?).ok()?,
    };
    Some(time.strftime(TIMESTAMP_FORMAT).to_string())
}

/// Returns the summaries in their stored form, one for each place.
pub(crate) fn summaries(incoming: &IncomingSession) -> Vec<Compaction> {
    let mut by_place = BTreeMap::new();
    for summary in &incoming.compactions {
        // A summary whose events were all left out is left out too.
        if summary.after_seq > Seq::START {
            let created_at = to_the_second(&summary.created_at).unwrap_or_default();
            by_place.insert(summary.after_seq, Compaction { created_at, ..summary.clone() });
        }
    }
    by_place.into_values().collect()
}

#[cfg(test)]
mod tests;
