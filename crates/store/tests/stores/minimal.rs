//! A store of required methods alone keeps the contract: the defaults do, and every capability is optional.

use azureal_store::MemoryStore;
use azureal_store::core::{
    Appended, Compaction, ListQuery, NewSession, NewTurn, Page, Seq, SessionId, SessionRecord, SessionStore,
    StoreError, StoredEvent, Tokens, async_trait,
};
use azureal_testkit::session_store_contract;

/// Passes the required methods on to the memory store, and turns without their marks.
#[derive(Default)]
struct MinimalStore(MemoryStore);

fn unmarked(turn: NewTurn) -> NewTurn {
    NewTurn { mark: None, ..turn }
}

#[async_trait]
impl SessionStore for MinimalStore {
    async fn create(&self, new: NewSession) -> Result<SessionId, StoreError> {
        self.0.create(new).await
    }

    async fn create_with(
        &self,
        new: NewSession,
        turn: NewTurn,
        compactions: Vec<Compaction>,
    ) -> Result<SessionId, StoreError> {
        self.0.create_with(new, unmarked(turn), compactions).await
    }

    async fn find_or_create(&self, new: NewSession) -> Result<SessionId, StoreError> {
        self.0.find_or_create(new).await
    }

    async fn get(&self, id: SessionId) -> Result<SessionRecord, StoreError> {
        self.0.get(id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<SessionRecord>, StoreError> {
        self.0.list(query).await
    }

    async fn rename(&self, id: SessionId, name: &str) -> Result<(), StoreError> {
        self.0.rename(id, name).await
    }

    async fn delete(&self, id: SessionId) -> Result<(), StoreError> {
        self.0.delete(id).await
    }

    async fn append(&self, id: SessionId, turn: NewTurn) -> Result<Appended, StoreError> {
        self.0.append(id, unmarked(turn)).await
    }

    async fn read(&self, id: SessionId, page: Page) -> Result<Vec<StoredEvent>, StoreError> {
        self.0.read(id, page).await
    }

    async fn clear(&self, id: SessionId) -> Result<(), StoreError> {
        self.0.clear(id).await
    }

    async fn fork(&self, id: SessionId, at: Seq, new: NewSession) -> Result<SessionId, StoreError> {
        self.0.fork(id, at, new).await
    }

    async fn set_tokens(&self, id: SessionId, tokens: Tokens) -> Result<(), StoreError> {
        self.0.set_tokens(id, tokens).await
    }

    async fn add_tokens(&self, id: SessionId, tokens: Tokens) -> Result<(), StoreError> {
        self.0.add_tokens(id, tokens).await
    }

    async fn compactions(&self, id: SessionId) -> Result<Vec<Compaction>, StoreError> {
        self.0.compactions(id).await
    }

    async fn add_compaction(&self, id: SessionId, compaction: &Compaction) -> Result<(), StoreError> {
        self.0.add_compaction(id, compaction).await
    }

    async fn remove_compaction(&self, id: SessionId, after_seq: Seq) -> Result<bool, StoreError> {
        self.0.remove_compaction(id, after_seq).await
    }

    async fn last_used(&self, used_in: &str) -> Result<Option<SessionId>, StoreError> {
        self.0.last_used(used_in).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.0.close().await
    }
}

session_store_contract!(minimal, async { (MinimalStore::default(), ()) });
