//! The originals of a store in a file: files of their own, in folders named by the sessions' UUIDs.

use azureal_core::{SessionId, StoreError, Uuid, async_trait};
use rusqlite::OptionalExtension;

use super::{SqliteStore, sessions, values};
use crate::originals::{FileOriginals, FileStore, originals_in_files};

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

originals_in_files!(SqliteStore);
