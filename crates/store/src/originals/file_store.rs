//! The part that stores with originals in files share: finding them by the UUID of a session, and deleting and forking them
//! with it.

#[cfg(any(feature = "redis", feature = "sqlite"))]
use std::time::SystemTime;

use azureal_core::{NewOriginal, Originals, Seq, SessionId, SessionStore, StoreError, Uuid, async_trait};
#[cfg(any(feature = "redis", feature = "sqlite"))]
use azureal_core::{OpenOriginal, Original};
use tracing::warn;

use super::FileOriginals;
#[cfg(any(feature = "redis", feature = "sqlite"))]
use super::reader::Unpacked;
use super::reader::on_thread;

/// A store whose originals are files of this machine, or are until they are uploaded.
#[async_trait]
pub(crate) trait FileStore: SessionStore + Originals + Sized {
    /// Returns the files, if the store has a folder for them.
    fn files(&self) -> Option<&FileOriginals>;

    /// Returns the UUID of a session; `None` for a session of an older file that was never written since.
    async fn uuid_of(&self, id: SessionId) -> Result<Option<Uuid>, StoreError> {
        Ok(self.get(id).await?.uuid)
    }

    /// Returns the UUIDs of sessions, each as [`uuid_of`](Self::uuid_of) does; `None` also for a session that does not exist.
    #[cfg(any(feature = "redis", feature = "sqlite"))]
    async fn uuids_of(&self, sessions: &[SessionId]) -> Result<Vec<Option<Uuid>>, StoreError> {
        let mut uuids = Vec::with_capacity(sessions.len());
        for session in sessions {
            uuids.push(match self.uuid_of(*session).await {
                Err(StoreError::NoSuchSession(_)) => None,
                uuid => uuid?,
            });
        }
        Ok(uuids)
    }

    /// Returns whether several sessions have a UUID: two copies of a session that were continued apart.
    async fn is_shared(&self, uuid: Uuid) -> Result<bool, StoreError>;

    /// Deletes a session, without its files.
    async fn delete_session(&self, id: SessionId) -> Result<(), StoreError>;

    /// Runs a job on the files of a session, or returns the default if there cannot be any.
    async fn with_files<R: Default + Send + 'static>(
        &self,
        id: SessionId,
        job: impl for<'f> FnOnce(&'f FileOriginals, Uuid) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let uuid = self.uuid_of(id).await?;
        let (Some(files), Some(uuid)) = (self.files().cloned(), uuid) else { return Ok(R::default()) };
        on_thread(move || job(&files, uuid)).await?
    }

    /// Deletes a session and its files. If the session cannot be deleted, its files stay.
    async fn delete_with_files(&self, id: SessionId) -> Result<(), StoreError> {
        let Some(files) = self.files().cloned() else { return self.delete_session(id).await };
        let Some(uuid) = self.uuid_of(id).await? else { return self.delete_session(id).await };
        if self.is_shared(uuid).await? {
            // The folder stays for the other session.
            return self.delete_session(id).await;
        }
        let aside = files.clone();
        let held = on_thread(move || aside.set_aside(uuid)).await??;
        let deleted = self.delete_session(id).await;
        if matches!(deleted, Err(StoreError::OutcomeUnknown { .. })) {
            // They stay aside: `finish_deletions` sees whether the session still exists.
            return deleted;
        }
        let is_deleted = deleted.is_ok();
        let settled = on_thread(move || {
            let settled = files.finish_deleted(uuid, !is_deleted);
            drop(held);
            settled
        });
        match (deleted, settled.await?) {
            (Ok(()), settled) => settled,
            (Err(error), settled) => {
                if settled.is_err() {
                    warn!(session = %id, "the originals of a session that was not deleted are put back later");
                }
                Err(error)
            }
        }
    }

    /// Copies files to a fork. A fork without them is still a fork.
    async fn fork_files(&self, id: SessionId, at: Seq, fork: SessionId) {
        if self.files().is_none() {
            return;
        }
        let copied = async {
            let made = self.get(fork).await?;
            let Some(to) = made.uuid else { return Ok(()) };
            // The origin may have gone on since.
            let at = at.min(Seq(made.counts.events));
            self.with_files(id, move |files, from| files.fork(from, at, to)).await
        };
        if copied.await.is_err() {
            warn!(session = %id, %fork, "the originals were not copied to the fork");
        }
    }

    /// Deletes the files of a session whose events were removed: the numbers of these will be those of others.
    async fn clear_files(&self, id: SessionId) -> Result<(), StoreError> {
        if self.files().is_none() {
            return Ok(());
        }
        self.with_files(id, FileOriginals::delete).await.map(drop)
    }

    /// [`Originals::sizes`]. One thread reads all files.
    #[cfg(any(feature = "redis", feature = "sqlite"))]
    async fn sizes_of_files(&self, sessions: &[SessionId]) -> Result<Vec<u64>, StoreError> {
        let uuids = self.uuids_of(sessions).await?;
        let Some(files) = self.files().cloned() else { return Ok(vec![0; uuids.len()]) };
        let size = move |uuid: Option<Uuid>| uuid.map_or(Ok(0), |uuid| files.size(uuid));
        on_thread(move || uuids.into_iter().map(size).collect()).await?
    }

    /// [`Originals::put`].
    async fn put_file(&self, id: SessionId, new: NewOriginal) -> Result<(), StoreError> {
        self.with_files(id, move |files, uuid| files.put(uuid, &new)).await
    }

    /// [`Originals::copy`].
    #[cfg(any(feature = "redis", feature = "sqlite"))]
    async fn copy_file(
        &self,
        id: SessionId,
        original: &Original,
        content: OpenOriginal,
    ) -> Result<(), StoreError> {
        if Originals::list(self, id).await?.iter().any(|known| known.run == original.run) {
            return Ok(());
        }
        let original = original.clone();
        self.with_files(id, move |files, uuid| files.put_copy(uuid, &original, &mut Unpacked::new(content)))
            .await
    }

    /// Completes deletions that were interrupted.
    async fn finish_deletions(&self) -> Result<(), StoreError> {
        let Some(files) = self.files() else { return Ok(()) };
        let Some(_held) = files.hold_deletions()? else { return Ok(()) };
        for session in files.deleted_sessions()? {
            let exists = self.find_uuid(session).await?.is_some();
            files.finish_deleted(session, exists)?;
        }
        Ok(())
    }

    /// [`Originals::expire`].
    #[cfg(any(feature = "redis", feature = "sqlite"))]
    async fn expire_files(&self, days: u32) -> Result<(), StoreError> {
        let Some(files) = self.files().cloned() else { return Ok(()) };
        on_thread(move || files.expire(days, SystemTime::now())).await?.map(drop)
    }

    /// [`Originals::finish`].
    #[cfg(any(feature = "redis", feature = "sqlite"))]
    async fn finish_files(&self) -> Result<(), StoreError> {
        self.finish_deletions().await?;
        let Some(files) = self.files().cloned() else { return Ok(()) };
        // A look at one folder, which is mostly empty, is not worth a thread.
        if files.new_sessions()?.is_empty() {
            return Ok(());
        }
        on_thread(move || files.finish()).await?
    }
}

/// Implements [`Originals`] for a [`FileStore`] whose originals stay files of this machine. A blanket implementation is not possible:
/// the trait is of another crate.
#[cfg(any(feature = "redis", feature = "sqlite"))]
macro_rules! originals_in_files {
    ($store:ty) => {
        #[azureal_core::async_trait]
        impl azureal_core::Originals for $store {
            async fn put(
                &self,
                session: azureal_core::SessionId,
                new: azureal_core::NewOriginal,
            ) -> Result<(), azureal_core::StoreError> {
                self.put_file(session, new).await
            }

            async fn copy(
                &self,
                session: azureal_core::SessionId,
                original: &azureal_core::Original,
                content: azureal_core::OpenOriginal,
            ) -> Result<(), azureal_core::StoreError> {
                self.copy_file(session, original, content).await
            }

            async fn finish(&self) -> Result<(), azureal_core::StoreError> {
                self.finish_files().await
            }

            async fn list(
                &self,
                session: azureal_core::SessionId,
            ) -> Result<Vec<azureal_core::Original>, azureal_core::StoreError> {
                self.with_files(session, $crate::originals::FileOriginals::list).await
            }

            async fn open(
                &self,
                session: azureal_core::SessionId,
                run: &str,
            ) -> Result<Option<azureal_core::OpenOriginal>, azureal_core::StoreError> {
                let run = run.to_owned();
                self.with_files(session, move |files, uuid| files.open_run(uuid, &run)).await
            }

            async fn delete(
                &self,
                session: azureal_core::SessionId,
            ) -> Result<u64, azureal_core::StoreError> {
                self.with_files(session, $crate::originals::FileOriginals::delete).await
            }

            async fn expire(&self, days: u32) -> Result<(), azureal_core::StoreError> {
                self.expire_files(days).await
            }

            async fn sizes(
                &self,
                sessions: &[azureal_core::SessionId],
            ) -> Result<Vec<u64>, azureal_core::StoreError> {
                self.sizes_of_files(sessions).await
            }
        }
    };
}

#[cfg(any(feature = "redis", feature = "sqlite"))]
pub(crate) use originals_in_files;
