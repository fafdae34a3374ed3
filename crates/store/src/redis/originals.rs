//! The originals of a store on Redis: files of this machine. A server that keeps everything in memory is no place for them.

use std::path::PathBuf;
use std::time::SystemTime;

use azureal_core::{
    NewOriginal, OpenOriginal, Original, Originals, SessionId, StoreError, Uuid, async_trait,
};

use super::{LISTED_AT_ONCE, RedisStore, scripts};
use crate::originals::{FileOriginals, FileStore, on_thread};

impl RedisStore {
    /// Keeps originals as files in this folder of this machine. If `takes_new` is false, those that are there can be read and
    /// deleted, and no other is added.
    #[must_use]
    pub fn with_originals(mut self, folder: PathBuf, takes_new: bool) -> Self {
        self.originals = Some(FileOriginals::new(folder, takes_new));
        self
    }
}

#[async_trait]
impl FileStore for RedisStore {
    fn files(&self) -> Option<&FileOriginals> {
        self.originals.as_ref()
    }

    async fn is_shared(&self, uuid: Uuid) -> Result<bool, StoreError> {
        let answer = self.run(self.look(&scripts::FIND_UUID, None).with(uuid.to_string())).await?;
        Ok(answer.rest().count() > 1)
    }

    async fn delete_session(&self, id: SessionId) -> Result<(), StoreError> {
        self.change(id, self.operation(&scripts::DELETE, Some(id)).with(id.number())).await
    }
}

#[async_trait]
impl Originals for RedisStore {
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
        let mut uuids: Vec<Option<Uuid>> = Vec::with_capacity(sessions.len());
        for ids in sessions.chunks(LISTED_AT_ONCE) {
            let records = self.records(ids).await?.into_iter();
            uuids.extend(records.map(|record| record.and_then(|record| record.uuid)));
        }
        self.sizes_of_files(uuids).await
    }
}
