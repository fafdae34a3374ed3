//! Sessions of another store of azureal, wherever that is. It is only read.

use std::path::Path;
use std::sync::Arc;

use azureal_core::{Compaction, ListQuery, Seq, SessionRecord, SessionStore, StoreError, TurnTotals};
use azureal_store::SqliteStore;
use azureal_store::sqlite::SqliteOptions;

use super::azureal::readable;
use super::database::Database;
use super::texts::{Hash, Texts};
use super::{Arrival, Identity};
use crate::failure::Failure;
use azureal_core::{EventRange, each_page};

/// A store that sessions are taken from.
pub(crate) struct SourceStore {
    store: Arc<dyn SessionStore>,
    lies: Lies,
}

enum Lies {
    /// In a file. What is read is this copy of it, which stays until the store has been closed.
    InFile(Database),
    /// Elsewhere, under a name for people.
    Elsewhere(String),
}

impl SourceStore {
    /// Opens a private copy of the store in a file.
    pub(crate) fn in_file(path: &Path) -> Result<Self, Failure> {
        let database = Database::copy_of(path)?;
        if database.is_azs() { Self::open(database) } else { Err(super::recognise::unknown(path)) }
    }

    pub(super) fn open(database: Database) -> Result<Self, Failure> {
        let store = SqliteStore::open(database.path(), SqliteOptions::default())
            .map_err(|error| database.failure(error))?;
        Ok(Self { store: Arc::new(store), lies: Lies::InFile(database) })
    }

    /// Takes a store that is no file.
    pub(crate) fn elsewhere(store: Arc<dyn SessionStore>, name: String) -> Self {
        Self { store, lies: Lies::Elsewhere(name) }
    }

    pub(crate) fn store(&self) -> &dyn SessionStore {
        &*self.store
    }

    /// Says of the source what was said of what is read.
    pub(super) fn failure(&self, error: StoreError) -> Failure {
        match &self.lies {
            Lies::InFile(database) => database.failure(error),
            Lies::Elsewhere(_) => error.into(),
        }
    }

    fn name(&self) -> String {
        match &self.lies {
            Lies::InFile(database) => database.source().display().to_string(),
            Lies::Elsewhere(name) => name.clone(),
        }
    }

    /// Returns all its sessions, in the order in which they were made.
    pub(crate) async fn sessions(&self) -> Result<Vec<SessionRecord>, Failure> {
        let listed = self.store.list(&ListQuery::default()).await;
        let mut records = listed.map_err(|error| self.failure(error))?;
        // Those that were active last come last, so that they are it where they come to as well.
        records.reverse();
        Ok(records)
    }

    /// Looks through a session, of which the events stay where they are.
    pub(crate) async fn arrival(self: &Arc<Self>, record: &SessionRecord) -> Result<Arrival, Failure> {
        let survey = Survey::of(&*self.store, record).await.map_err(|error| self.failure(error))?;
        let identity = Identity::of(&*self.store, record).await.map_err(|error| self.failure(error))?;
        Ok(Arrival {
            source: format!("{} {}", self.name(), record.id),
            identity,
            name: record.has_own_name().then(|| record.name.clone()),
            created_at: Some(record.created_at.clone()),
            worktree: Some(record.worktree.clone()).filter(|worktree| !worktree.is_empty()),
            compactions: survey.compactions,
            texts: Texts::in_store(Arc::clone(self), record.id, survey.count, &survey.hash),
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

/// What is known of the events of a session after they have been read once.
struct Survey {
    count: usize,
    hash: Hash,
    compactions: Vec<Compaction>,
    problems: Vec<String>,
}

impl Survey {
    async fn of(store: &dyn SessionStore, record: &SessionRecord) -> Result<Self, StoreError> {
        let mut compactions = store.compactions(record.id).await?;
        let (mut count, mut hash, mut problems) = (0, Hash::default(), Vec::new());
        // Where an event is left out, those after it get other numbers than they have here.
        let mut covers = vec![0; compactions.len()];
        each_page(store, record.id, EventRange::All, |page| {
            for stored in page {
                let text = stored.json.map_err(|damage| damage.to_string());
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

/// The sessions of a store, one after the other.
pub(crate) struct Source {
    store: Arc<SourceStore>,
    records: std::vec::IntoIter<SessionRecord>,
}

impl Source {
    pub(super) async fn open(database: Database) -> Result<Self, Failure> {
        let store = SourceStore::open(database)?;
        let records = store.sessions().await?.into_iter();
        Ok(Self { store: Arc::new(store), records })
    }

    pub(super) async fn next(&mut self) -> Option<Result<Arrival, Failure>> {
        let record = self.records.next()?;
        Some(self.store.arrival(&record).await)
    }
}
