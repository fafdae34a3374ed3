//! The SQLite store keeps the contract, with either journal and wherever it works, and agrees with the memory store.

use std::sync::Arc;

use azureal_core::{ContextStore, SessionContext};
use azureal_store::MemoryStore;
use azureal_store::sqlite::{Journal, SqliteOptions, SqliteStore, Work};
use azureal_testkit::{
    Runs, context_store_contract, random_operations_agree, session_store_contract, thorough,
};
use tempfile::TempDir;

fn store(journal: Journal, work: Work) -> (SqliteStore, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".azureal/sessions.azs");
    let originals = Some(folder.path().join(".azureal/originals"));
    (
        SqliteStore::open(path, SqliteOptions { journal, work, originals, ..SqliteOptions::default() })
            .unwrap(),
        folder,
    )
}

fn session() -> (SessionContext<SqliteStore>, TempDir) {
    let (store, folder) = store(Journal::Delete, Work::OnOwnThread);
    (SessionContext::open(Arc::new(store), "my-session").unwrap(), folder)
}

session_store_contract!(sqlite, async { store(Journal::Delete, Work::OnOwnThread) });

session_store_contract!(sqlite_wal_where_called, async { store(Journal::Wal, Work::WhereCalled) });

context_store_contract!(session_of_sqlite, async { session() });

context_store_contract!(fork_in_sqlite, async {
    let (session, folder) = session();
    (session.fork().await.unwrap(), folder)
});

#[test]
fn it_agrees_with_the_memory_store() {
    let memory = || async { (MemoryStore::default(), ()) };
    random_operations_agree(
        memory,
        || async { store(Journal::Delete, Work::WhereCalled) },
        Runs::random(thorough(48, 480)),
    );
}
