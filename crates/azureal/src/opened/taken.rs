//! Taking back what was added in the program.

use std::path::PathBuf;

use azureal_agents::native::{self, NativeWriter};
use azureal_core::{EventRange, Seq, SessionId, StoreError, counted, each_page};
use azureal_engine::{FoundNote, OpenedNote, OpenedSession};
use azureal_exchange::{NativeImported, NativeOutcome, native_mark};
use azureal_files::as_argument;
use tracing::warn;

use super::{source_of, written};
use crate::error::{Error, shown};
use crate::native::{NativeSessions, OriginalWriter, StoredRuns};
use crate::workspace::{Notice, Workspace};

/// What was taken back from the program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TakenBack {
    /// The session that was opened.
    pub session: SessionId,
    /// The number of turns that were added.
    pub turns: u64,
    /// The number of their events.
    pub events: u64,
    /// The session that has them, if it is another one: the user went back in the program, or the session was continued meanwhile.
    pub other: Option<SessionId>,
    /// The written session, if it stays in the home of the program.
    pub kept: Option<KeptSession>,
    /// What could not be taken back or deleted, for people.
    pub problems: Vec<String>,
}

/// A written session that stays in the home of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptSession {
    /// In this file.
    File(PathBuf),
    /// In a database, under this id.
    Id(String),
}

impl KeptSession {
    fn of(opened: &OpenedSession) -> Self {
        opened.file.clone().map_or_else(|| Self::Id(opened.id.clone()), Self::File)
    }

    /// Returns its place as a text: the file or the id.
    pub fn place(&self) -> String {
        match self {
            Self::File(file) => shown(file),
            Self::Id(id) => id.clone(),
        }
    }
}

impl Workspace {
    /// Imports what was added, and deletes the written session. `None` if a turn still runs.
    pub(super) async fn take_back(&self, opened: &OpenedSession) -> Result<Option<TakenBack>, Error> {
        let Some(session) = opened.session_id() else {
            return Err(Error::new("unreadable", "the note of an open session names no session"));
        };
        let Some(writer) = native::writer(&opened.holder.agent) else {
            let agent = crate::error::quoted(&opened.holder.agent);
            return Err(Error::new("unknown_agent", format!("the agent {agent} is unknown")));
        };
        let source = source_of(writer)?;
        let mut taken =
            TakenBack { session, turns: 0, events: 0, other: None, kept: None, problems: Vec::new() };
        let written = self.written(opened, source)?;
        let mut keeps = opened.keep;
        match written.found() {
            [] => {
                let left = written.left_out().iter().find(|left| left.path.exists());
                if let Some(left) = left {
                    return Err(Error::new("not_taken_back", left.reason.to_string()));
                }
                // The user deleted it in the program. Something may be left beside its file.
                if opened.file.is_some() {
                    taken.problems.extend(written::delete(opened, writer, self).err());
                }
                NativeSessions::forget(source, &opened.id, self).await?;
                return Ok(Some(taken));
            }
            [..] if !self.has_target(session, opened, writer).await? => {
                let (kept, program) = (KeptSession::of(opened), source.program());
                let what = match &kept {
                    KeptSession::File(file) => {
                        format!("`azureal import {}` imports what is in {program}", as_argument(file))
                    }
                    KeptSession::Id(id) => format!("{program} keeps what was added as {id}"),
                };
                taken.problems.push(format!("{session} is not in this store any more; {what}"));
                taken.kept = Some(kept);
                return Ok(Some(taken));
            }
            [found, ..] => {
                let runs = StoredRuns::default();
                let mut originals = OriginalWriter::new();
                let is_over = !writer.may_outlive_interface(&self.home_of(source)?);
                let mut target = self.target(opened, &runs, &mut originals, is_over);
                let imported = written.import_now(found, &mut target).await?;
                let not_kept = originals.finish().await;
                if imported.is_running {
                    return Ok(None);
                }
                self.add_imported(&mut taken, &imported, opened).await?;
                // Without an original, the written session is all that has the whole output of the turns.
                keeps |= !not_kept.is_empty();
                taken.problems.extend(not_kept.into_iter().map(|problem| problem.reason.to_string()));
            }
        }
        if !keeps {
            match written::delete(opened, writer, self) {
                Ok(()) => NativeSessions::forget(source, &opened.id, self).await?,
                // The ledger stays with it: an import must not add its turns again.
                Err(problem) => {
                    keeps = true;
                    taken.problems.push(problem);
                }
            }
        }
        taken.kept = keeps.then(|| KeptSession::of(opened));
        Ok(Some(taken))
    }

    /// Returns whether the store still has the session to which the turns belong.
    async fn has_target(
        &self,
        session: SessionId,
        opened: &OpenedSession,
        writer: &dyn NativeWriter,
    ) -> Result<bool, Error> {
        // The mark is where the turns are: in the session, or in another one if the user went back.
        let mark = self.store.mark(&native_mark(writer.agent(), &opened.id)).await?;
        let found = self.store.get(mark.as_ref().map_or(session, |mark| mark.session)).await;
        match found {
            // Without a mark, azureal was killed before it created the session of a user who went back, or it is another store.
            Ok(record) => Ok(mark.is_some() || record.created_at == opened.session_made),
            Err(StoreError::NoSuchSession(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds the result of the import.
    async fn add_imported(
        &self,
        taken: &mut TakenBack,
        imported: &NativeImported,
        opened: &OpenedSession,
    ) -> Result<(), Error> {
        (taken.turns, taken.events) = imported.outcome.added();
        taken.other = imported.outcome.session().filter(|id| *id != taken.session);
        taken.problems.extend(imported.messages());
        if let NativeOutcome::Unchanged { id } = imported.outcome {
            // They were added before azureal was killed, or by an import.
            let after = if taken.other.is_none() { Seq(opened.events) } else { Seq::START };
            each_page(&*self.store, id, EventRange::After(after), |page| {
                taken.events += page.len() as u64;
                taken.turns += page.iter().filter(|stored| stored.kind == "UserMessage").count() as u64;
                Ok::<(), Error>(())
            })
            .await?;
        }
        Ok(())
    }

    /// Takes back an opening that did not come about.
    pub(super) async fn discard(&self, note: OpenedNote) {
        let opened = note.opened();
        if let Some(writer) = native::writer(&opened.holder.agent) {
            if let Err(problem) = written::delete(opened, writer, self) {
                warn!(problem, "a session that was written for an agent stays");
            }
            let forgotten = match source_of(writer) {
                Ok(source) => NativeSessions::forget(source, &opened.id, self).await,
                Err(error) => Err(error),
            };
            if let Err(error) = forgotten {
                warn!(kind = error.kind(), "the ledger of a session that was not opened stays");
            }
        }
        if let Err(error) = note.remove() {
            warn!(?error, "the note of a session that was not opened stays");
        }
    }

    /// Takes back what was added to sessions whose azureal was killed, if the program has ended, and tells the user.
    pub(crate) async fn recover_opened(&self) -> Result<(), Error> {
        let Some(notes) = self.opened_sessions() else { return Ok(()) };
        for note in notes.find()? {
            let FoundNote::Ended(note) = note else { continue };
            let opened = note.opened().clone();
            let Some(session) = opened.session_id() else { continue };
            // A turn or another recovery comes first.
            let lease = match self.store.get(session).await {
                Ok(_) => match self.lease(session, &opened.holder.agent).await {
                    Ok(lease) => Some(lease),
                    Err(_) => continue,
                },
                Err(_) => None,
            };
            if note.process().is_none() {
                // The program was never started.
                self.discard(*note).await;
                continue;
            }
            let notice = match self.take_back(&opened).await {
                Ok(None) => continue,
                Ok(Some(taken)) => {
                    note.remove()?;
                    taken.recovered(&opened.holder.agent)
                }
                Err(error) => Some(format!(
                    "{session} was open in {}, and what was added there is not taken back yet: {}",
                    opened.holder.agent,
                    error.message()
                )),
            };
            drop(lease);
            notice.into_iter().for_each(|notice| self.add_notice(Notice::Opened(notice)));
        }
        Ok(())
    }
}

impl TakenBack {
    /// Says what was taken back, for people. `name` is that of the session.
    pub fn message(&self, name: &str, program: &str) -> String {
        let turns = counted(self.turns, "turn");
        match self.other {
            _ if self.turns == 0 => format!("{name}: no turn was added in {program}"),
            // The program may have told the user how to resume it there.
            None if self.kept.is_none() => {
                format!("{name}: {turns} added in {program}, whose copy is deleted")
            }
            None => format!("{name}: {turns} added in {program}"),
            Some(other) => format!(
                "{name}: {turns} added in {program} went to {other}: they do not follow the last turn of {name}"
            ),
        }
    }

    /// Says what recovery has taken back; `None` if there is nothing to say.
    fn recovered(&self, program: &str) -> Option<String> {
        let mut parts = Vec::new();
        if self.turns > 0 {
            parts.push(format!("recovered {}", self.message(&self.session.to_string(), program)));
        }
        parts.extend(self.problems.iter().cloned());
        let place = self.kept.as_ref().filter(|_| !self.problems.is_empty()).map(KeptSession::place);
        if let Some(place) =
            place.filter(|place| !self.problems.iter().any(|problem| problem.contains(place)))
        {
            parts.push(format!("{program} keeps the session: {place}"));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}
