//! The originals of a store in a file: files of their own, in folders named by the sessions' UUIDs.

use std::time::SystemTime;

use azureal_core::{
    NewOriginal, OpenOriginal, Original, Originals, SessionId, StoreError, Uuid, async_trait,
};
use rusqlite::OptionalExtension;

use super::{SqliteStore, sessions, values};
use crate::originals::{FileOriginals, FileStore, on_thread};

#[async_trait]
impl FileStore for SqliteStore {
    fn files(&self) -> Option<&FileOriginals> {
        self.originals.as_ref()
    }

    async fn uuid_of(&self, id: SessionId) -> Result<Option<Uuid>, StoreError> {
        self.look_at(id, move |open, _| {
            if !open.columns.keep_counts() {
                return Ok(None);
            }
            let uuid: Option<Option<String>> = open
                .connection
                .prepare_cached("SELECT uuid FROM sessions WHERE id = ?1")?
                .query_row([id.number()], |row| Ok(values::text(row.get_ref(0)?)))
                .optional()?;
            match uuid {
                Some(uuid) => Ok(uuid.and_then(|uuid| uuid.parse().ok())),
                None => Err(StoreError::NoSuchSession(id).into()),
            }
        })
        .await
    }

    async fn is_shared(&self, uuid: Uuid) -> Result<bool, StoreError> {
        self.run(
            move |open, _| {
                let count: i64 = open
                    .connection
                    .prepare_cached("SELECT count(*) FROM sessions WHERE uuid = ?1")?
                    .query_row([uuid.to_string()], |row| row.get(0))?;
                Ok(count > 1)
            },
            || Ok(false),
        )
        .await
    }

    async fn delete_session(&self, id: SessionId) -> Result<(), StoreError> {
        self.change(id, move |open, _| sessions::delete(&mut open.connection, id)).await
    }
}

#[async_trait]
impl Originals for SqliteStore {
    async fn put(&self, session: SessionId, new: NewOriginal) -> Result<(), StoreError> {
        self.put_file(session, new).await
    }

    async fn copy(
        &self,
        session: SessionId,
        original: &Original,
        content: OpenOriginal,
    ) -> Result<(), StoreError> {
        self.copy_file(session, original, content).await
    }

    async fn finish(&self) -> Result<(), StoreError> {
        self.finish_files().await
    }

    async fn list(&self, session: SessionId) -> Result<Vec<Original>, StoreError> {
        self.with_files(session, FileOriginals::list).await
    }

    async fn open(&self, session: SessionId, run: &str) -> Result<Option<OpenOriginal>, StoreError> {
        let run = run.to_owned();
        self.with_files(session, move |files, uuid| files.open_run(uuid, &run)).await
    }

    async fn delete(&self, session: SessionId) -> Result<u64, StoreError> {
        self.with_files(session, FileOriginals::delete).await
    }

    async fn expire(&self, days: u32) -> Result<(), StoreError> {
        let Some(files) = self.originals.clone() else { return Ok(()) };
        on_thread(move || files.expire(days, SystemTime::now())).await?.map(drop)
    }

    async fn sizes(&self, sessions: &[SessionId]) -> Result<Vec<u64>, StoreError> {
        let mut uuids = Vec::with_capacity(sessions.len());
        for session in sessions {
            uuids.push(match self.uuid_of(*session).await {
                Err(StoreError::NoSuchSession(_)) => None,
                uuid => uuid?,
            });
        }
        self.sizes_of_files(uuids).await
    }
}
