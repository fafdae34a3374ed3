//! Sessions of another store of azureal, which is only read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use azureal_core::{
    Compaction, EventRange, ListOrder, ListQuery, Seq, SessionRecord, SessionStore, StoreError, TurnTotals,
    each_page,
};
use azureal_store::SqliteStore;
use azureal_store::sqlite::SqliteOptions;

use super::database_copy::DatabaseCopy;
use super::event_texts::{EventTexts, LogHash};
use super::problem::{ImportProblem, Reason};
use super::session_json::readable;
use super::{ImportError, IncomingSession};
use crate::identity::SessionIdentity;

/// A store that sessions are copied from. It is only read.
pub struct SourceStore {
    store: Arc<dyn SessionStore>,
    origin: StoreOrigin,
}

enum StoreOrigin {
    /// A file. The store is a copy of it, which must stay until the store is closed.
    File(DatabaseCopy),
    /// A store that is read in place, and its name for people.
    InPlace(String),
}

impl SourceStore {
    /// Opens a store in a file. The file is copied to a private folder in `temporary`; its originals are read where they
    /// are, in the folder `originals`.
    pub fn in_file(path: &Path, originals: PathBuf, temporary: &Path) -> Result<Self, ImportError> {
        let database = DatabaseCopy::of(path, temporary)?;
        if !database.is_azs() {
            return Err(super::recognise::unknown(path));
        }
        Self::open(database, originals)
    }

    fn open(database: DatabaseCopy, originals: PathBuf) -> Result<Self, ImportError> {
        let options = SqliteOptions { originals: Some(originals), ..SqliteOptions::default() };
        let store = SqliteStore::open(database.path(), options).map_err(|error| database.error(error))?;
        Ok(Self { store: Arc::new(store), origin: StoreOrigin::File(database) })
    }

    /// Wraps an open store that is no file. `name` names it for people, such as its address.
    pub fn in_place(store: Arc<dyn SessionStore>, name: String) -> Self {
        Self { store, origin: StoreOrigin::InPlace(name) }
    }

    /// Returns the store.
    pub fn store(&self) -> &dyn SessionStore {
        &*self.store
    }

    /// Converts an error of the store to one that names its origin.
    pub(super) fn error(&self, error: StoreError) -> ImportError {
        match &self.origin {
            StoreOrigin::File(database) => database.error(error),
            StoreOrigin::InPlace(_) => error.into(),
        }
    }

    fn name(&self) -> String {
        match &self.origin {
            StoreOrigin::File(database) => database.source().display().to_string(),
            StoreOrigin::InPlace(name) => name.clone(),
        }
    }

    /// Returns all sessions. The one that changed last is the last one, so that it is that in the target too.
    pub async fn sessions(&self) -> Result<Vec<SessionRecord>, ImportError> {
        let query = ListQuery { order: ListOrder::Changes, ..ListQuery::default() };
        let listed = self.store.list(&query).await;
        let mut records = listed.map_err(|error| self.error(error))?;
        records.reverse();
        Ok(records)
    }

    /// Reads a session once, to count and hash its events. [`import_session`](super::import_session()) reads them again.
    pub async fn session(self: &Arc<Self>, record: &SessionRecord) -> Result<IncomingSession, ImportError> {
        let survey = Survey::of(&*self.store, record).await.map_err(|error| self.error(error))?;
        let identity = SessionIdentity::of(&*self.store, record).await.map_err(|error| self.error(error))?;
        Ok(IncomingSession {
            label: format!("{} {}", self.name(), record.id),
            identity,
            name: record.has_own_name().then(|| record.name.clone()),
            named_at: Some(record.named_at.clone()),
            created_at: Some(record.created_at.clone()),
            last_active: Some(record.last_active.clone()),
            worktree: Some(record.worktree.clone()).filter(|worktree| !worktree.is_empty()),
            compactions: survey.compactions,
            texts: EventTexts::in_store(Arc::clone(self), record.id, survey.count, &survey.hash),
            tokens: record.tokens,
            totals: TurnTotals {
                completed: record.completed,
                duration_ms: record.duration_ms,
                cost_usd: record.cost_usd,
            },
            notices: Vec::new(),
            problems: survey.problems,
        })
    }
}

/// The result of reading the events of a session once.
struct Survey {
    count: usize,
    hash: LogHash,
    compactions: Vec<Compaction>,
    problems: Vec<ImportProblem>,
}

impl Survey {
    async fn of(store: &dyn SessionStore, record: &SessionRecord) -> Result<Self, StoreError> {
        let mut compactions = store.compactions(record.id).await?;
        let (mut count, mut hash, mut problems) = (0, LogHash::default(), Vec::new());
        // A damaged event is left out, so the events after it get other numbers.
        let mut covers = vec![0; compactions.len()];
        each_page(store, record.id, EventRange::All, |page| {
            for stored in page {
                let text = stored.json.map_err(Reason::from);
                match readable(stored.seq.0, &stored.kind, text) {
                    Ok(text) => {
                        count += 1;
                        hash.add(&text);
                        for (covers, compaction) in covers.iter_mut().zip(&compactions) {
                            *covers += u64::from(stored.seq <= compaction.after_seq);
                        }
                    }
                    Err(problem) => problems.push(problem),
                }
            }
            Ok::<(), StoreError>(())
        })
        .await?;
        for (compaction, covers) in compactions.iter_mut().zip(covers) {
            compaction.after_seq = Seq(covers);
        }
        Ok(Self { count, hash, compactions, problems })
    }
}

/// The sessions of a store, read one after the other.
pub(super) struct StoredSessions {
    store: Arc<SourceStore>,
    records: std::vec::IntoIter<SessionRecord>,
}

impl StoredSessions {
    pub(super) async fn open(database: DatabaseCopy, originals: &Path) -> Result<Self, ImportError> {
        let store = SourceStore::open(database, originals.to_owned())?;
        let records = store.sessions().await?.into_iter();
        Ok(Self { store: Arc::new(store), records })
    }

    pub(super) async fn next(&mut self) -> Option<Result<IncomingSession, ImportError>> {
        let record = self.records.next()?;
        Some(self.store.session(&record).await)
    }
}
