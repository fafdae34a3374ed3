//! The originals of a store on Redis: files of this machine. A server that keeps everything in memory is no place for them.

use std::path::PathBuf;

use azureal_core::{SessionId, StoreError, Uuid, async_trait};

use super::{LISTED_AT_ONCE, RedisStore, scripts};
use crate::originals::{FileOriginals, FileStore, originals_in_files};
use crate::timestamp::now;

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

    async fn uuids_of(&self, sessions: &[SessionId]) -> Result<Vec<Option<Uuid>>, StoreError> {
        let mut uuids = Vec::with_capacity(sessions.len());
        for ids in sessions.chunks(LISTED_AT_ONCE) {
            let records = self.records(ids).await?.into_iter();
            uuids.extend(records.map(|record| record.and_then(|record| record.uuid)));
        }
        Ok(uuids)
    }

    async fn is_shared(&self, uuid: Uuid) -> Result<bool, StoreError> {
        let answer = self.run(self.look(&scripts::FIND_UUID, None).with(uuid.to_string())).await?;
        Ok(answer.rest().count() > 1)
    }

    async fn delete_session(&self, id: SessionId) -> Result<(), StoreError> {
        self.change(id, self.operation(&scripts::DELETE, Some(id)).with(id.number()).with(now())).await
    }
}

originals_in_files!(RedisStore);
