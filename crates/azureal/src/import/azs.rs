//! Another store of azureal, or of the program whose format it shares.

use azureal_core::{Compaction, ListQuery, SessionRecord, SessionStore, StoreError, TurnTotals};
use azureal_store::SqliteStore;
use azureal_store::sqlite::SqliteOptions;

use super::azureal::{KeptEvents, origin};
use super::database::Database;
use super::{Arrival, Summary};
use crate::failure::Failure;
use crate::pages::{Range, each_page};
use crate::resolve::has_name;

/// The sessions of a store, in the order in which they were made.
pub(crate) struct Source {
    store: SqliteStore,
    records: std::vec::IntoIter<SessionRecord>,
    /// Kept until the store has been closed: what the store reads is this copy.
    database: Database,
}

impl Source {
    /// Opens the private copy of a store, which may be brought up to date by that.
    pub(super) async fn open(database: Database) -> Result<Self, Failure> {
        let store = SqliteStore::open(database.path(), SqliteOptions::default())
            .map_err(|error| database.failure(error))?;
        let mut records = store.list(&ListQuery::default()).await.map_err(|error| database.failure(error))?;
        records.sort_by_key(|record| record.id);
        Ok(Self { store, records: records.into_iter(), database })
    }

    pub(super) async fn next(&mut self) -> Option<Result<Arrival, Failure>> {
        let record = self.records.next()?;
        Some(self.read(&record).await)
    }

    /// Reads the events of a session, and returns the summaries over them.
    async fn read_events(
        &self,
        record: &SessionRecord,
        kept: &mut KeptEvents,
    ) -> Result<Vec<Compaction>, StoreError> {
        each_page(&self.store, record.id, Range::All, |page| {
            for stored in page {
                let text = stored.json.map_err(|damage| damage.to_string());
                kept.add(stored.seq.0, &stored.kind, text);
            }
            Ok::<(), StoreError>(())
        })
        .await?;
        self.store.compactions(record.id).await
    }

    async fn read(&self, record: &SessionRecord) -> Result<Arrival, Failure> {
        let mut kept = KeptEvents::default();
        let compactions =
            self.read_events(record, &mut kept).await.map_err(|error| self.database.failure(error))?;
        Ok(Arrival {
            source: format!("{} {}", self.database.source().display(), record.id),
            origin: origin(&record.id.to_string(), &record.created_at),
            name: has_name(record).then(|| record.name.clone()),
            created_at: Some(record.created_at.clone()),
            worktree: Some(record.worktree.clone()).filter(|worktree| !worktree.is_empty()),
            compactions: compactions
                .into_iter()
                .map(|compaction| Summary {
                    covers: kept.up_to(compaction.after_seq.0),
                    text: compaction.summary,
                    created_at: compaction.created_at,
                })
                .collect(),
            events: kept.texts,
            tokens: record.tokens,
            totals: Some(TurnTotals {
                completed: record.completed,
                duration_ms: record.duration_ms,
                cost_usd: record.cost_usd,
            }),
            home: Some((record.id, record.created_at.clone())),
            problems: kept.problems,
        })
    }
}
