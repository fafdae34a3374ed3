//! Sessions in one SQLite file, `.azureal/sessions.azs`.
//!
//! The file is a plain SQLite database that any client can open; `docs/format.md` describes it. It is created with
//! its first session, and has no companion files while no process uses it. A turn is one transaction, and when
//! appending it returns, it survives a power loss. Any number of processes may use the file at once, including the
//! original program.

mod codec;
mod connection;
mod counts;
mod database;
mod definitions;
mod error;
mod events;
mod file;
mod folders;
pub mod health;
mod marks;
mod notice;
mod original_prompts;
mod originals;
mod schema;
mod second_name;
mod sessions;
mod tokens;
mod tombstones;
mod values;
#[cfg(target_os = "linux")]
mod watch;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use azureal_core::{
    Appended, Compaction, CrashNotes, ListQuery, Mark, NewHistory, NewSession, NewTurn, Originals, Page, Seq,
    SessionId, SessionRecord, SessionStore, StoreError, StoredEvent, Tokens, Tombstone, Uuid, Watch,
    async_trait,
};
pub use rusqlite;

use crate::originals::{FileOriginals, FileStore};
use codec::Codec;
pub use connection::{check_foreign, open_cache, open_foreign, open_foreign_unused, open_foreign_used};
use database::{Database, Open, removed, unreadable};
use error::Fault;
pub(crate) use error::hint;
pub use file::make_folder_of;
pub use folders::{COMPANIONS, PROJECT_STORE, StoreFolders, with_suffix};
pub use notice::{FileNotice, FileNotices};
use worker::Worker;

/// The options of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SqliteOptions {
    /// The journal mode.
    pub journal: Journal,
    /// The thread that does the work.
    pub work: Work,
    /// Azureal's folder in the git directory of the project, if the store is the project's own: see [`StoreFolders`]. Without it, the
    /// file gets no second name and is not put back; one that it has in `.git` is accepted.
    pub in_git: Option<PathBuf>,
    /// The folder of the turns that run, whose changes [`SessionStore::watch`] reports too. `None` is [`StoreFolders::spools`].
    pub spools: Option<PathBuf>,
    /// The folder of the [originals](SessionStore::originals): [`StoreFolders::originals`]. `None` keeps none.
    pub originals: Option<PathBuf>,
    /// The folder that kept them before: [`StoreFolders::former_originals`].
    pub former_originals: Option<PathBuf>,
    /// Whether originals can only be read and deleted.
    pub adds_no_originals: bool,
}

/// The thread that does the work of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Work {
    /// The store's own thread: no call blocks, with any runtime.
    #[default]
    OnOwnThread,
    /// The calling thread, which blocks: for sequential programs. Saves two context switches with every call.
    WhereCalled,
}

/// The journal mode of the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Journal {
    /// A journal that is removed with each commit: one file, on every file system.
    ///
    /// A file that others use with a write-ahead log is used so too, and set back by the last to close it.
    #[default]
    Delete,
    /// A write-ahead log, for programs that hold the store open: fewer syncs per turn, and readers never wait. It is
    /// beside the file until the last program closes it, and needs a local disk.
    Wal,
}

/// Keeps sessions in one SQLite file.
///
/// ```
/// # futures_executor::block_on(async {
/// use std::sync::Arc;
/// use azureal_core::{ContextStore, Message, SessionContext};
/// use azureal_store::sqlite::{SqliteOptions, SqliteStore};
///
/// let folder = tempfile::tempdir()?;
/// let store = Arc::new(SqliteStore::open(folder.path().join("ctx.azs"), SqliteOptions::default())?);
/// let session = SessionContext::open(Arc::clone(&store), "my-session")?;
/// session.append(Message::user("Hello")).await?;
/// assert_eq!(session.get_history().await?.len(), 1);
///
/// let forked = session.fork().await?; // copies the messages into a new session
/// assert_eq!(forked.get_history().await?.len(), 1);
/// assert_ne!(forked.session_id(), session.session_id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct SqliteStore {
    worker: Worker<Database>,
    originals: Option<FileOriginals>,
    is_closed: Arc<AtomicBool>,
    notices: FileNotices,
}

impl SqliteStore {
    /// Opens the store in this file. A missing file is created with its first session, not before.
    ///
    /// This reads the file's schema and blocks for that, even if other calls use the store's thread. The first change
    /// upgrades an older file, in one transaction.
    pub fn open(path: impl Into<PathBuf>, options: SqliteOptions) -> Result<Self, StoreError> {
        let path = path.into();
        let adds_originals = !options.adds_no_originals;
        let (work, originals) = (
            options.work,
            options.originals.clone().map(|folder| {
                FileOriginals::new(folder, adds_originals).with_former(options.former_originals.clone())
            }),
        );
        let mut database = Database::new(path.clone(), options)?;
        database.opened()?;
        let notices = database.notices();
        let worker = Worker::start(database, work).map_err(|error| error::from_io(&path, error))?;
        Ok(Self { worker, originals, is_closed: Arc::default(), notices })
    }

    /// Returns what happens to the file that a user should know of.
    pub fn notices(&self) -> FileNotices {
        self.notices.clone()
    }

    /// Runs a job on the open file, or `absent` where there is none.
    async fn run<R: Send + 'static>(
        &self,
        job: impl FnMut(&mut Open, &mut Codec) -> Result<R, Fault> + Send + 'static,
        absent: impl FnOnce() -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.worker.run(move |database| database.run(job, absent).map_err(unreadable)).await?
    }

    /// Creates a session: with the file if there is none, else by `job` in the existing file.
    async fn make(
        &self,
        new: NewSession,
        mut job: impl FnMut(&mut Open, &mut Codec, &NewSession) -> Result<SessionId, Fault> + Send + 'static,
    ) -> Result<SessionId, StoreError> {
        self.worker
            .run(move |database| {
                if let Some(created) = database.create_with(&new)? {
                    return Ok(created);
                }
                let place = database.path().display().to_string();
                let add = |open: &mut Open, codec: &mut Codec| job(open, codec, &new);
                database.change(add, || Err(removed(place)))
            })
            .await?
    }

    /// Looks at a session, which is not there if the file is not.
    async fn look_at<R: Send + 'static>(
        &self,
        id: SessionId,
        job: impl FnMut(&mut Open, &mut Codec) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.run(job, move || Err(StoreError::NoSuchSession(id))).await
    }

    /// Changes a session, which is not there if the file is not.
    async fn change<R: Send + 'static>(
        &self,
        id: SessionId,
        job: impl FnMut(&mut Open, &mut Codec) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, StoreError> {
        let absent = move || Err(StoreError::NoSuchSession(id));
        self.worker.run(move |database| database.change(job, absent)).await?
    }
}

#[async_trait]
impl SessionStore for SqliteStore {
    async fn store_id(&self) -> Result<Option<Uuid>, StoreError> {
        self.run(|open, _| Ok(schema::store_id(&open.connection)?), || Ok(None)).await
    }

    async fn create(&self, new: NewSession) -> Result<SessionId, StoreError> {
        self.make(new, |open, codec, new| sessions::create(&mut open.connection, codec, new)).await
    }

    async fn create_with(
        &self,
        new: NewSession,
        turn: NewTurn,
        compactions: Vec<Compaction>,
    ) -> Result<SessionId, StoreError> {
        let created = self.create_all(vec![NewHistory { session: new, turn, compactions }]).await?;
        created.first().copied().ok_or_else(|| StoreError::other("no session was created"))
    }

    async fn create_all(&self, histories: Vec<NewHistory>) -> Result<Vec<SessionId>, StoreError> {
        if histories.is_empty() {
            return Ok(Vec::new());
        }
        self.worker.run(move |database| database.create_histories(&histories)).await?
    }

    async fn find_or_create(&self, new: NewSession) -> Result<SessionId, StoreError> {
        let name = new.name.clone().unwrap_or_default();
        azureal_core::check_name(&name)?;
        let sought = name.clone();
        let find =
            move |open: &mut Open, _: &mut Codec| sessions::find(&open.connection, &open.columns, &sought);
        if let Some(found) = self.run(find, || Ok(Vec::new())).await?.first() {
            return Ok(*found);
        }
        self.make(new, move |open, codec, new| {
            sessions::find_or_create(&mut open.connection, &open.columns, codec, &name, new)
        })
        .await
    }

    async fn find_uuid(&self, uuid: Uuid) -> Result<Option<SessionId>, StoreError> {
        let look = move |open: &mut Open, _: &mut Codec| match open.columns.keep_counts() {
            true => sessions::find_uuid(&open.connection, uuid),
            false => Ok(None),
        };
        self.run(look, || Ok(None)).await
    }

    async fn count(&self) -> Result<u64, StoreError> {
        let count = |open: &mut Open, _: &mut Codec| {
            let count = open.connection.query_row("SELECT count(*) FROM sessions", [], |row| row.get(0));
            Ok(count.map(i64::cast_unsigned)?)
        };
        self.run(count, || Ok(0)).await
    }

    async fn get(&self, id: SessionId) -> Result<SessionRecord, StoreError> {
        self.look_at(id, move |open, codec| sessions::get(&open.connection, &open.columns, codec, id)).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<SessionRecord>, StoreError> {
        let query = query.clone();
        self.run(
            move |open, codec| sessions::list(&mut open.connection, &open.columns, codec, &query),
            || Ok(Vec::new()),
        )
        .await
    }

    async fn rename(&self, id: SessionId, name: &str) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.change(id, move |open, _| sessions::rename(&mut open.connection, id, &name)).await
    }

    async fn delete(&self, id: SessionId) -> Result<(), StoreError> {
        self.delete_with_files(id).await
    }

    async fn tombstones(&self, after: Option<Uuid>, limit: usize) -> Result<Vec<Tombstone>, StoreError> {
        self.run(move |open, _| Ok(tombstones::list(&open.connection, after, limit)?), || Ok(Vec::new()))
            .await
    }

    async fn append(&self, id: SessionId, turn: NewTurn) -> Result<Appended, StoreError> {
        self.change(id, move |open, codec| events::append(&mut open.connection, codec, id, &turn)).await
    }

    async fn read(&self, id: SessionId, page: Page) -> Result<Vec<StoredEvent>, StoreError> {
        self.look_at(id, move |open, codec| events::read(&open.connection, &open.columns, codec, id, page))
            .await
    }

    async fn read_prompts(
        &self,
        id: SessionId,
        until: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        self.look_at(id, move |open, codec| {
            events::read_prompts(&open.connection, &open.columns, codec, id, until, limit)
        })
        .await
    }

    async fn read_usage(
        &self,
        id: SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        self.look_at(id, move |open, codec| {
            events::read_usage(&open.connection, &open.columns, codec, id, after, limit)
        })
        .await
    }

    async fn clear(&self, id: SessionId) -> Result<(), StoreError> {
        self.change(id, move |open, codec| events::clear(&mut open.connection, codec, id)).await?;
        self.clear_files(id).await
    }

    async fn fork(&self, id: SessionId, at: Seq, new: NewSession) -> Result<SessionId, StoreError> {
        let fork = self
            .change(id, move |open, codec| events::fork(&mut open.connection, codec, id, at, &new))
            .await?;
        self.fork_files(id, at, fork).await;
        Ok(fork)
    }

    async fn set_tokens(&self, id: SessionId, tokens: Tokens) -> Result<(), StoreError> {
        self.change(id, move |open, _| tokens::set(&mut open.connection, id, tokens)).await
    }

    async fn add_tokens(&self, id: SessionId, tokens: Tokens) -> Result<(), StoreError> {
        self.change(id, move |open, _| tokens::add_to_session(&mut open.connection, id, tokens)).await
    }

    async fn compactions(&self, id: SessionId) -> Result<Vec<Compaction>, StoreError> {
        self.look_at(id, move |open, _| sessions::compactions(&open.connection, &open.columns, id)).await
    }

    async fn add_compaction(&self, id: SessionId, compaction: &Compaction) -> Result<(), StoreError> {
        let compaction = compaction.clone();
        self.change(id, move |open, codec| {
            sessions::add_compaction(&mut open.connection, codec, id, &compaction)
        })
        .await
    }

    async fn remove_compaction(&self, id: SessionId, after_seq: Seq) -> Result<bool, StoreError> {
        self.change(id, move |open, _| sessions::remove_compaction(&mut open.connection, id, after_seq)).await
    }

    async fn last_used(&self, used_in: &str) -> Result<Option<SessionId>, StoreError> {
        let used_in = used_in.to_owned();
        self.run(move |open, _| Ok(marks::last_used(&open.connection, &used_in)?), || Ok(None)).await
    }

    fn crash_notes(&self) -> Option<&dyn CrashNotes> {
        Some(self)
    }

    fn originals(&self) -> Option<&dyn Originals> {
        self.originals.is_some().then_some(self as &dyn Originals)
    }

    /// Also reports running turns, in the [spool folder](StoreFolders::spools): one begins, gets another driver or ends.
    ///
    /// `None` if there is no file yet, and on every system but Linux, the only one that tests cover. The caller polls
    /// there.
    async fn watch_all(&self) -> Result<Option<Box<dyn Watch>>, StoreError> {
        let is_closed = Arc::clone(&self.is_closed);
        self.worker.run(move |database| database.watch(is_closed)).await?
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.is_closed.store(true, Ordering::Release);
        self.worker.run(Database::close).await?
    }
}

#[async_trait]
impl CrashNotes for SqliteStore {
    async fn mark(&self, name: &str) -> Result<Option<Mark>, StoreError> {
        let name = name.to_owned();
        self.run(move |open, _| Ok(marks::get(&open.connection, &name)?), || Ok(None)).await
    }

    async fn remove_mark(&self, name: &str) -> Result<bool, StoreError> {
        let name = name.to_owned();
        self.worker
            .run(move |database| {
                database.change(move |open, _| marks::remove(&mut open.connection, &name), || Ok(false))
            })
            .await?
    }

    async fn note_run(&self, id: SessionId, run: Option<&str>) -> Result<(), StoreError> {
        let run = run.unwrap_or("").to_owned();
        self.change(id, move |open, _| sessions::note_run(&mut open.connection, id, &run)).await
    }

    async fn noted_runs(&self) -> Result<Vec<(SessionId, String)>, StoreError> {
        self.run(
            |open, _| {
                if open.columns.keep_counts() {
                    sessions::noted_runs(&open.connection)
                } else {
                    Ok(Vec::new())
                }
            },
            || Ok(Vec::new()),
        )
        .await
    }

    async fn clear_original_run(&self, id: SessionId, run: &str) -> Result<bool, StoreError> {
        let run = run.to_owned();
        self.change(id, move |open, _| sessions::clear_original_run(&mut open.connection, id, &run)).await
    }
}
