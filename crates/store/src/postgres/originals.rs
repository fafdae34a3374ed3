//! The originals of a store in PostgreSQL: files of this machine until they are uploaded.
//!
//! [`put`](Originals::put) moves the files of a turn into a folder, as a store in a file does. [`finish`](Originals::finish)
//! compresses them, masks them and uploads them, and removes the files once the server has committed. An original that is too large stays
//! a file, and only this machine has it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use azureal_core::{
    NewOriginal, OpenOriginal, Original, Originals, Seq, SessionId, SessionStore, StoreError, Uuid,
    async_trait,
};
use futures_executor::block_on;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tracing::{info, warn};

use super::error::Fault;
use super::pieces::{Pieces, Uploaded};
use super::{PostgresStore, rows};
use crate::originals::{FileOriginals, FileStore, LARGEST_UPLOAD, Mask, on_thread};

/// The originals of this machine that are not on the server.
pub(super) struct LocalOriginals {
    files: FileOriginals,
    mask: Option<Mask>,
}

impl PostgresStore {
    /// Keeps originals. New ones are files in this folder until they are uploaded, and `mask` changes what is uploaded. If
    /// `takes_new` is false, originals can be read and deleted, and no other is added.
    #[must_use]
    pub fn with_originals(mut self, folder: PathBuf, takes_new: bool, mask: Option<Mask>) -> Self {
        self.originals = Some(LocalOriginals { files: FileOriginals::new(folder, takes_new), mask });
        self
    }

    fn pieces(&self) -> Pieces {
        let connections = Arc::clone(&self.connections);
        Pieces { connections, schema: self.schema.clone(), project: self.project.clone() }
    }

    /// Copies the originals of a session to its fork, on the server and here. A fork without them is still a fork.
    pub(super) async fn fork_all_originals(&self, id: SessionId, at: Seq, fork: SessionId) {
        if self.originals.is_none() {
            return;
        }
        let call = self
            .function("fork_originals")
            .long()
            .named("in_session", Type::INT4, rows::number(id))
            .named("in_fork", Type::INT4, rows::number(fork))
            .named("in_at", Type::INT8, rows::integer(at));
        if self.rows(call).await.is_err() {
            warn!(session = %id, %fork, "the originals on the server were not copied to the fork");
        }
        self.fork_files(id, at, fork).await;
    }

    /// Returns the originals of a session on the server, and the UUID of the session.
    async fn uploaded(&self, id: SessionId) -> Result<(Option<Uuid>, Vec<Original>), StoreError> {
        let call = self
            .call(
                "SELECT uuid, run, first_seq, originals.last_seq, bytes FROM @schema@.sessions
                 LEFT JOIN @schema@.originals USING (project, session)
                 WHERE project = $1 AND session = $2",
            )
            .with(Type::INT4, rows::number(id));
        let found = self.rows(call).await?;
        let first = found.first().ok_or(StoreError::NoSuchSession(id))?;
        let uuid = self.placed(first.try_get(0).map_err(Fault::from))?;
        let originals: Result<Vec<_>, _> = found.iter().filter_map(|row| original(row).transpose()).collect();
        Ok((uuid, self.placed(originals)?))
    }
}

/// Reads an original; `None` for a session without one.
fn original(row: &Row) -> Result<Option<Original>, Fault> {
    let Some(run) = row.try_get::<_, Option<String>>(1)? else { return Ok(None) };
    let (first, last): (i64, i64) = (row.try_get(2)?, row.try_get(3)?);
    let bytes: i64 = row.try_get(4)?;
    let bytes = u64::try_from(bytes).map_err(|_| Fault::Answer("an original has no size".to_owned()))?;
    Ok(Some(Original { run, first: rows::seq(first), last: rows::seq(last), bytes }))
}

#[async_trait]
impl FileStore for PostgresStore {
    fn files(&self) -> Option<&FileOriginals> {
        self.originals.as_ref().map(|local| &local.files)
    }

    async fn is_shared(&self, uuid: Uuid) -> Result<bool, StoreError> {
        let call = self
            .call("SELECT count(*) > 1 FROM @schema@.sessions WHERE project = $1 AND uuid = $2")
            .with(Type::UUID, uuid);
        self.is_there(call).await
    }

    async fn delete_session(&self, id: SessionId) -> Result<(), StoreError> {
        let call = self.operation("delete_session").long().named("in_session", Type::INT4, rows::number(id));
        if self.is_there(call).await? { Ok(()) } else { Err(StoreError::NoSuchSession(id)) }
    }
}

#[async_trait]
impl Originals for PostgresStore {
    async fn put(&self, session: SessionId, new: NewOriginal) -> Result<(), StoreError> {
        self.put_file(session, new).await
    }

    async fn copy(
        &self,
        session: SessionId,
        original: &Original,
        content: OpenOriginal,
    ) -> Result<(), StoreError> {
        if Originals::list(self, session).await?.iter().any(|known| known.run == original.run) {
            return Ok(());
        }
        let original = original.clone();
        self.with_files(session, move |files, uuid| files.put_new_copy(uuid, &original, content)).await
    }

    async fn finish(&self) -> Result<(), StoreError> {
        let Some(LocalOriginals { files, mask }) = &self.originals else { return Ok(()) };
        let (files, mask, pieces) = (files.clone(), mask.clone(), self.pieces());
        self.finish_deletions().await?;
        // A look at one folder, which is mostly empty, is not worth a thread.
        let mut sessions = Vec::new();
        for uuid in files.new_sessions()? {
            if let Some(session) = self.find_uuid(uuid).await? {
                sessions.push((uuid, session));
            }
        }
        if sessions.is_empty() {
            return Ok(());
        }
        let upload = move || {
            files.upload(mask.as_ref(), |uuid, original, packed| {
                let session = sessions.iter().find(|(known, _)| *known == uuid).map(|(_, session)| *session);
                // One that came meanwhile is for the next call, and one of another server's session stays.
                let Some(session) = session else { return Ok(false) };
                match block_on(pieces.upload(session, original, packed))? {
                    Uploaded::Done => {
                        info!(%session, run = original.run, bytes = original.bytes, "uploaded an original");
                        Ok(true)
                    }
                    Uploaded::Known => Ok(true),
                    // Deleted by another machine.
                    Uploaded::Absent => Ok(false),
                }
            })
        };
        on_thread(upload).await?
    }

    async fn list(&self, session: SessionId) -> Result<Vec<Original>, StoreError> {
        let (uuid, mut found) = self.uploaded(session).await?;
        if let (Some(files), Some(uuid)) = (self.files().cloned(), uuid) {
            let local = on_thread(move || files.list(uuid)).await??;
            let is_new = |local: &Original| !found.iter().any(|known| known.run == local.run);
            let local: Vec<Original> = local.into_iter().filter(is_new).collect();
            found.extend(local);
        }
        found.sort_by(|one, other| (one.first, &one.run).cmp(&(other.first, &other.run)));
        Ok(found)
    }

    async fn open(&self, session: SessionId, run: &str) -> Result<Option<OpenOriginal>, StoreError> {
        let pieces = self.pieces();
        let Some(bytes) = pieces.size(session, run).await? else {
            let run = run.to_owned();
            return self.with_files(session, move |files, uuid| files.open_run(uuid, &run)).await;
        };
        let bytes = u64::try_from(bytes).ok().filter(|bytes| (1..=LARGEST_UPLOAD).contains(bytes));
        let fault = || Fault::Answer(format!("the original {run} has an impossible size"));
        let bytes = self.placed(bytes.ok_or_else(fault))?;
        let (place, run) = (self.connections.place().to_owned(), run.to_owned());
        on_thread(move || FileOriginals::open_packed(place, pieces.reader(session, run, bytes)))
            .await?
            .map(Some)
    }

    async fn delete(&self, session: SessionId) -> Result<u64, StoreError> {
        // First the files: none of them is uploaded afterwards.
        let local = self.with_files(session, FileOriginals::delete).await?;
        let call =
            self.operation("delete_originals").long().named("in_session", Type::INT4, rows::number(session));
        let deleted: Option<i64> = self.one(call, |row| Ok(row.try_get(0)?)).await?;
        let deleted = deleted.ok_or(StoreError::NoSuchSession(session))?;
        Ok(local.saturating_add(u64::try_from(deleted).unwrap_or(0)))
    }

    async fn expire(&self, days: u32) -> Result<(), StoreError> {
        let Some(files) = self.files().cloned() else { return Ok(()) };
        if !on_thread(move || files.expire(days, SystemTime::now())).await?? {
            return Ok(());
        }
        let call = self
            .call(
                "WITH gone AS (
                   DELETE FROM @schema@.originals
                   WHERE project = $1 AND stored_by = session_user::text
                     AND stored_at < now() - make_interval(days => $2)
                   RETURNING session, run)
                 DELETE FROM @schema@.original_pieces USING gone
                 WHERE project = $1 AND original_pieces.session = gone.session AND original_pieces.run = gone.run",
            )
            .long()
            .with(Type::INT4, i32::try_from(days).unwrap_or(i32::MAX).min(LONGEST_DAYS));
        self.rows(call).await.map(drop)
    }

    async fn sizes(&self, sessions: &[SessionId]) -> Result<Vec<u64>, StoreError> {
        let numbers: Vec<i32> = sessions.iter().map(|id| rows::number(*id)).collect();
        let call = self
            .call(
                "SELECT session, uuid, run, bytes FROM @schema@.sessions
                 LEFT JOIN @schema@.originals USING (project, session)
                 WHERE project = $1 AND session = ANY ($2)",
            )
            .with(Type::INT4_ARRAY, numbers);
        let mut found: BTreeMap<i32, SessionOriginals> = BTreeMap::new();
        for row in &self.rows(call).await? {
            self.placed(add_size(row, &mut found))?;
        }
        let Some(files) = self.files().cloned() else { return Ok(Vec::new()) };
        let numbers: Vec<i32> = sessions.iter().map(|id| rows::number(*id)).collect();
        on_thread(move || {
            let mut sizes = Vec::with_capacity(numbers.len());
            for number in numbers {
                let Some(SessionOriginals { uuid, bytes, runs }) = found.get(&number) else {
                    sizes.push(0);
                    continue;
                };
                let local = uuid.map_or(Ok(Vec::new()), |uuid| files.list(uuid))?;
                let local = local.iter().filter(|local| !runs.contains(&local.run));
                sizes.push(local.fold(*bytes, |sum, local| sum.saturating_add(local.bytes)));
            }
            Ok(sizes)
        })
        .await?
    }
}

/// The longest time that expiry looks back, in days: further than any server has existed.
const LONGEST_DAYS: i32 = 100_000;

/// The originals of a session on the server.
#[derive(Default)]
struct SessionOriginals {
    uuid: Option<Uuid>,
    bytes: u64,
    runs: Vec<String>,
}

fn add_size(row: &Row, found: &mut BTreeMap<i32, SessionOriginals>) -> Result<(), Fault> {
    let session = found.entry(row.try_get(0)?).or_default();
    session.uuid = row.try_get(1)?;
    if let Some(run) = row.try_get::<_, Option<String>>(2)? {
        let bytes: Option<i64> = row.try_get(3)?;
        session.bytes = session.bytes.saturating_add(u64::try_from(bytes.unwrap_or(0)).unwrap_or(0));
        session.runs.push(run);
    }
    Ok(())
}
