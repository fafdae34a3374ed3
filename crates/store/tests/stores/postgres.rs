//! The PostgreSQL store keeps the contract, and agrees with the memory store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use azureal_core::{AutoCompactStore, ContextStore, SessionContext, StubTransport};
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use azureal_store::{MemoryStore, ServerAddress};
use azureal_testkit::servers::PostgresServer;
use azureal_testkit::{
    Runs, context_store_contract, random_operations_agree, session_store_contract, thorough,
};

/// Opens a store that nobody else uses: a project of its own, in a database that all tests share.
async fn store() -> Option<PostgresStore> {
    let server = PostgresServer::shared()?;
    static PROJECTS: AtomicU32 = AtomicU32::new(1);
    let mut address: PostgresAddress = server.url().parse().unwrap();
    address.set_project(&format!("project {}", PROJECTS.fetch_add(1, Ordering::Relaxed))).unwrap();
    Some(PostgresStore::open(&address, PostgresOptions::default()).await.unwrap())
}

async fn session() -> Option<SessionContext<PostgresStore>> {
    Some(SessionContext::open(Arc::new(store().await?), "my-session").unwrap())
}

session_store_contract!(postgres, async {
    let folder = tempfile::tempdir().unwrap();
    Some((store().await?.with_originals(folder.path().join("originals"), true, None), folder))
});

context_store_contract!(session_of_postgres, async { Some((session().await?, ())) });

context_store_contract!(fork_in_postgres, async {
    let fork = session().await?.fork().await.unwrap();
    Some((fork, ()))
});

context_store_contract!(auto_over_postgres, async {
    let transport = Arc::new(StubTransport::new([""; 0]));
    Some((AutoCompactStore::new(session().await?, transport).max_tokens(10).keep_recent(4), ()))
});

/// Some four hundred sequences of about twenty-five operations are ten thousand.
#[test]
fn it_agrees_with_the_memory_store() {
    if PostgresServer::shared().is_none() {
        return;
    }
    let memory = || async { (MemoryStore::default(), ()) };
    random_operations_agree(
        memory,
        || async { (store().await.unwrap(), ()) },
        Runs::random(thorough(400, 1_200)),
    );
}
