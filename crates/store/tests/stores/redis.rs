//! The Redis store keeps the contract, and agrees with the memory store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use azureal_core::{AutoCompactStore, ContextStore, Message, SessionContext, StubTransport};
use azureal_store::redis::{RedisAddress, RedisOptions, RedisStore};
use azureal_store::{MemoryStore, ServerAddress};
use azureal_testkit::servers::RedisServer;
use azureal_testkit::{
    Runs, context_store_contract, random_operations_agree, session_store_contract, thorough,
};
use futures_executor::block_on;

/// Opens a store that nobody else uses: a project of its own, on a server that all tests share.
async fn store() -> Option<RedisStore> {
    let server = RedisServer::shared()?;
    static PROJECTS: AtomicU32 = AtomicU32::new(1);
    let mut address: RedisAddress = server.url().parse().unwrap();
    address.set_project(&format!("project {}", PROJECTS.fetch_add(1, Ordering::Relaxed))).unwrap();
    Some(RedisStore::open(&address, RedisOptions::default()).await.unwrap())
}

async fn session() -> Option<SessionContext<RedisStore>> {
    Some(SessionContext::open(Arc::new(store().await?), "my-session").unwrap())
}

session_store_contract!(redis, async {
    let folder = tempfile::tempdir().unwrap();
    Some((store().await?.with_originals(folder.path().join("originals"), true), folder))
});

context_store_contract!(session_of_redis, async { Some((session().await?, ())) });

context_store_contract!(fork_in_redis, async {
    let fork = session().await?.fork().await.unwrap();
    Some((fork, ()))
});

context_store_contract!(auto_over_redis, async {
    let transport = Arc::new(StubTransport::new([""; 0]));
    Some((AutoCompactStore::new(session().await?, transport).max_tokens(10).keep_recent(4), ()))
});

#[test]
fn a_conversation_on_redis_is_compacted_and_nothing_is_lost() {
    block_on(async {
        let Some(inner) = session().await else { return };
        let transport = Arc::new(StubTransport::new(["summary 1", "summary 2"]));
        let store = AutoCompactStore::new(inner, transport).max_tokens(10).keep_recent(2);
        store.append(Message::system("be kind")).await.unwrap();
        for round in 1..=2 {
            for number in 0..6 {
                store.append(Message::user(format!("{round}.{number}"))).await.unwrap();
            }
            store.add_context_tokens(11, 1).await.unwrap();
            let history = store.get_history().await.unwrap();
            assert_eq!(history[0], Message::system("be kind"));
            assert!(history[1].first_text().unwrap().ends_with(&format!("summary {round}")), "{history:?}");
            assert_eq!(history.last().unwrap(), &Message::user(format!("{round}.5")));
        }
        assert_eq!(store.list_sessions().await.unwrap()[0].message_count, 13, "of the log");
        assert_eq!(store.get_context_tokens().await.unwrap(), (22, 2));
    });
}

/// Some four hundred sequences of about twenty-five operations are ten thousand.
#[test]
fn it_agrees_with_the_memory_store() {
    if RedisServer::shared().is_none() {
        return;
    }
    let memory = || async { (MemoryStore::default(), ()) };
    random_operations_agree(
        memory,
        || async { (store().await.unwrap(), ()) },
        Runs::random(thorough(400, 1_200)),
    );
}
