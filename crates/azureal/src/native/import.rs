//! Imports native sessions into the store of a workspace.

use std::sync::Arc;
use std::time::SystemTime;

use azureal_core::SessionId;
use azureal_exchange::{
    NativeCandidate, NativeImport, NativeImported, NativeReady, NativeStep, StoredRuns, forget_native,
};

use super::originals::{NewSource, OriginalWriter, not_kept};
use super::{FoundSession, NativeSessions, NativeSource, OpenHome};
use crate::error::Error;
use crate::workspace::Workspace;

impl NativeSessions {
    /// Notes that a native session was written from a session of the store: [`NativeImport::adopt`].
    pub(crate) async fn adopt(
        &self,
        found: &FoundSession,
        id: SessionId,
        target: &NativeTarget<'_>,
    ) -> Result<(), Error> {
        Ok(target.import(false).adopt(self.candidate(found)?, id).await?)
    }

    /// Forgets a session that was adopted, and is not there any more.
    pub(crate) async fn forget(source: &dyn NativeSource, id: &str, from: &Workspace) -> Result<(), Error> {
        Ok(forget_native(&*from.store, source.agent(), id).await?)
    }

    /// Returns whether an import would add nothing of a session, as far as that can be told without reading it.
    pub async fn adds_nothing(&self, found: &FoundSession, target: &NativeTarget<'_>) -> Result<bool, Error> {
        let import = NativeImport { again: target.again || found.is_named, ..target.import(false) };
        Ok(import.adds_nothing(self.candidate(found)?).await?)
    }

    /// Imports a session, or what is new of it, at once.
    pub async fn import_now(
        &self,
        found: &FoundSession,
        target: &mut NativeTarget<'_>,
    ) -> Result<NativeImported, Error> {
        let imported = match self.step(found, target, false).await? {
            NativeStep::Done(imported) => imported,
            NativeStep::Ready(_) | NativeStep::Alone => {
                return Err(Error::new("import", "the session was not stored"));
            }
        };
        self.keep(found, &imported, target).await?;
        Ok(imported)
    }

    /// Imports a session, or what is new of it. A new session may be returned to be stored with others:
    /// [`store_all`](Self::store_all).
    pub async fn import(
        &self,
        found: &FoundSession,
        target: &mut NativeTarget<'_>,
    ) -> Result<NativeStep, Error> {
        let step = self.step(found, target, true).await?;
        if let NativeStep::Done(imported) = &step {
            self.keep(found, imported, target).await?;
        }
        Ok(step)
    }

    /// Stores new sessions that were read, in one transaction if the store can.
    pub async fn store_all(
        &self,
        ready: Vec<(&FoundSession, NativeReady)>,
        target: &mut NativeTarget<'_>,
    ) -> Result<Vec<NativeImported>, Error> {
        let (found, ready): (Vec<&FoundSession>, Vec<NativeReady>) = ready.into_iter().unzip();
        let all = match target.import(true).create_all(ready).await? {
            Some(all) => all,
            // Another process imports the same sessions.
            None => {
                let mut all = Vec::new();
                for found in &found {
                    if let NativeStep::Done(imported) = self.step(found, target, false).await? {
                        all.push(imported);
                    }
                }
                all
            }
        };
        for (found, imported) in found.iter().zip(&all) {
            self.keep(found, imported, target).await?;
        }
        Ok(all)
    }

    async fn step(
        &self,
        found: &FoundSession,
        target: &NativeTarget<'_>,
        in_batches: bool,
    ) -> Result<NativeStep, Error> {
        let worktree = found.worktree_in(&target.into.project);
        let mut import = target.import(in_batches);
        import.again |= found.is_named;
        Ok(import.import(self.candidate(found)?, &worktree).await?)
    }

    fn candidate<'a>(&'a self, found: &'a FoundSession) -> Result<NativeCandidate<'a>, Error> {
        let Some(OpenHome { source, home }) = self.homes.get(found.home) else {
            return Err(Error::new("import", "the home of the session is not open"));
        };
        let (agent, home) = (source.agent(), &**home);
        let family = found.head.first.as_ref().and_then(|first| self.families.get(first));
        let family = family.map_or(&[][..], Vec::as_slice);
        Ok(NativeCandidate { agent, home, session: &found.session, head: &found.head, family })
    }

    /// Keeps the source of an imported session as its original. The one of an unchanged session is missing if its import was killed.
    async fn keep(
        &self,
        found: &FoundSession,
        imported: &NativeImported,
        target: &mut NativeTarget<'_>,
    ) -> Result<(), Error> {
        let Some(session) = imported.outcome.session() else { return Ok(()) };
        let Some(source) = self.source_of(found).filter(|_| target.keeps_sources()) else { return Ok(()) };
        let range = match &imported.kept_by {
            Some((run, last)) => {
                match target.originals.missing(&target.into.store, session, run, *last).await {
                    Ok(range) => range,
                    // The session is in the store all the same.
                    Err(error) => {
                        not_kept(&target.originals.problems, &found.session.path, &error);
                        None
                    }
                }
            }
            None => imported.range,
        };
        if let Some(range) = range {
            target.originals.write(NewSource {
                store: Arc::clone(&target.into.store),
                session,
                range,
                source,
                id: found.head.id.clone(),
                path: found.session.path.clone(),
                size: found.session.size,
                // What is missing can be more than what was added last.
                read_before: if imported.kept_by.is_some() { 0 } else { imported.read_before },
            });
        }
        Ok(())
    }
}

/// The store that sessions are imported into.
pub struct NativeTarget<'a> {
    /// The workspace of the store.
    pub into: &'a Workspace,
    /// The runs that the store has.
    pub runs: &'a StoredRuns,
    /// Keeps the sources.
    pub originals: &'a mut OriginalWriter,
    /// Whether nothing is stored.
    pub is_dry: bool,
    /// Whether sessions come back that were deleted from the store. One whose file the user named always does.
    pub again: bool,
    /// Whether no program can be running the last turn of a session, though it has no end.
    pub is_over: bool,
    /// The place in which the store records a session that gets turns as the last one used.
    pub used_in: Option<&'a str>,
}

impl NativeTarget<'_> {
    fn import(&self, in_batches: bool) -> NativeImport<'_> {
        let (store, runs, is_dry, used_in) = (&*self.into.store, self.runs, self.is_dry, self.used_in);
        let now = (!self.is_over).then(SystemTime::now);
        let run = if self.keeps_sources() { self.originals.run.as_str() } else { "" };
        NativeImport { store, runs, is_dry, again: self.again, in_batches, now, used_in, run }
    }

    fn keeps_sources(&self) -> bool {
        self.into.keeps_originals() && !self.is_dry
    }
}
