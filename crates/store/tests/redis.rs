//! The Redis store keeps the contract, and agrees with the memory store.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use azureal_core::{ContextStore, SessionContext};
use azureal_store::MemoryStore;
use azureal_store::redis::{RedisAddress, RedisOptions, RedisStore};
use azureal_testkit::servers::RedisServer;
use azureal_testkit::{Runs, context_store_contract, random_operations_agree, session_store_contract};

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

session_store_contract!(redis, async { Some((store().await?, ())) });

context_store_contract!(session_of_redis, async { Some((session().await?, ())) });

context_store_contract!(fork_in_redis, async {
    let fork = session().await?.fork().await.unwrap();
    Some((fork, ()))
});

/// Some four hundred sequences of about twenty-five operations are ten thousand.
#[test]
fn it_agrees_with_the_memory_store() {
    if RedisServer::shared().is_none() {
        return;
    }
    let memory = || async { (MemoryStore::default(), ()) };
    random_operations_agree(memory, || async { (store().await.unwrap(), ()) }, Runs::random(400));
}
