//! The originals of a store in a file: files of their own, in folders named by the sessions' UUIDs.

use std::time::SystemTime;

use azureal_core::{
    NewOriginal, OpenOriginal, Original, Originals, Seq, SessionId, StoreError, Uuid, async_trait,
};
use rusqlite::OptionalExtension;
use tracing::warn;

use super::codec::Codec;
use super::{Open, SqliteStore, sessions};
use crate::originals::{FileOriginals, Unpacked, on_thread};

impl SqliteStore {
    /// Returns the UUID of a session; `None` for a session of an older file that was never written since.
    async fn uuid_of(&self, id: SessionId) -> Result<Option<Uuid>, StoreError> {
        self.look_at(id, move |open, _| {
            if !open.columns.keep_counts() {
                return Ok(None);
            }
            let uuid: Option<Option<String>> = open
                .connection
                .prepare_cached("SELECT uuid FROM sessions WHERE id = ?1")?
                .query_row([id.number()], |row| row.get(0))
                .optional()?;
            match uuid {
                Some(uuid) => Ok(uuid.and_then(|uuid| uuid.parse().ok())),
                None => Err(StoreError::NoSuchSession(id).into()),
            }
        })
        .await
    }

    /// Runs a job on the originals of a session, or returns the default if there cannot be any.
    async fn with_originals<R: Default + Send + 'static>(
        &self,
        id: SessionId,
        job: impl FnOnce(&FileOriginals, Uuid) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let uuid = self.uuid_of(id).await?;
        let (Some(files), Some(uuid)) = (self.originals.clone(), uuid) else { return Ok(R::default()) };
        on_thread(move || job(&files, uuid)).await?
    }

    /// Deletes a session and its originals. If the session cannot be deleted, its originals stay.
    pub(super) async fn delete_with_originals(&self, id: SessionId) -> Result<(), StoreError> {
        let delete = || self.change(id, move |open, _| sessions::delete(&mut open.connection, id));
        let Some(files) = self.originals.clone() else { return delete().await };
        let Some(uuid) = self.uuid_of(id).await? else { return delete().await };
        let is_shared = move |open: &mut Open, _: &mut Codec| {
            let count: i64 = open
                .connection
                .prepare_cached("SELECT count(*) FROM sessions WHERE uuid = ?1")?
                .query_row([uuid.to_string()], |row| row.get(0))?;
            Ok(count > 1)
        };
        if self.look_at(id, is_shared).await? {
            // Two copies of a session that were continued apart. The folder stays for the other one.
            return delete().await;
        }
        let aside = files.clone();
        on_thread(move || aside.set_aside(uuid)).await??;
        let deleted = delete().await;
        let is_deleted = deleted.is_ok();
        let settled =
            on_thread(move || if is_deleted { files.remove_deleted(uuid) } else { files.put_back(uuid) });
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

    /// Copies originals to a fork. A fork without them is still a fork.
    pub(super) async fn fork_originals(&self, id: SessionId, at: Seq, fork: SessionId) {
        if self.originals.is_none() {
            return;
        }
        let copied = async {
            let Some(to) = self.uuid_of(fork).await? else { return Ok(()) };
            self.with_originals(id, move |files, from| files.fork(from, at, to)).await
        };
        if copied.await.is_err() {
            warn!(session = %id, %fork, "the originals were not copied to the fork");
        }
    }
}

#[async_trait]
impl Originals for SqliteStore {
    async fn put(&self, session: SessionId, new: NewOriginal) -> Result<(), StoreError> {
        self.with_originals(session, move |files, uuid| files.put(uuid, &new)).await
    }

    async fn copy(
        &self,
        session: SessionId,
        original: &Original,
        content: OpenOriginal,
    ) -> Result<(), StoreError> {
        if self.list(session).await?.iter().any(|known| known.run == original.run) {
            return Ok(());
        }
        let original = original.clone();
        self.with_originals(session, move |files, uuid| {
            files.put_copy(uuid, &original, &mut Unpacked::new(content))
        })
        .await
    }

    async fn finish(&self) -> Result<(), StoreError> {
        let Some(files) = self.originals.clone() else { return Ok(()) };
        let pending = {
            let files = files.clone();
            on_thread(move || files.pending()).await??
        };
        let mut gone = Vec::new();
        for session in pending {
            if azureal_core::SessionStore::find_uuid(self, session).await?.is_none() {
                gone.push(session);
            }
        }
        on_thread(move || files.finish(|session| !gone.contains(&session))).await?
    }

    async fn list(&self, session: SessionId) -> Result<Vec<Original>, StoreError> {
        self.with_originals(session, FileOriginals::list).await
    }

    async fn open(&self, session: SessionId, run: &str) -> Result<Option<OpenOriginal>, StoreError> {
        let run = run.to_owned();
        self.with_originals(session, move |files, uuid| files.open_run(uuid, &run)).await
    }

    async fn delete(&self, session: SessionId) -> Result<u64, StoreError> {
        self.with_originals(session, FileOriginals::delete).await
    }

    async fn expire(&self, days: u32) -> Result<(), StoreError> {
        let Some(files) = self.originals.clone() else { return Ok(()) };
        on_thread(move || files.expire(days, SystemTime::now())).await?
    }
}
