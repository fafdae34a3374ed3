//! Searches by an index and by reading all events give the same answers, on every store.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot continue has failed"
)]

mod contract;
mod file_index;
mod world;

use std::sync::atomic::{AtomicU32, Ordering};

use azureal_search::FileIndex;
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use azureal_store::redis::{RedisAddress, RedisOptions, RedisStore};
use azureal_store::sqlite::{SqliteOptions, SqliteStore};
use azureal_store::{MemoryStore, ServerAddress};
use azureal_testkit::servers::{PostgresServer, RedisServer};
use futures_executor::block_on;

use crate::contract::search_contract;

static PROJECTS: AtomicU32 = AtomicU32::new(1);

fn project() -> String {
    format!("search {}", PROJECTS.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn a_search_of_sqlite_is_a_scan() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("x.azs"), SqliteOptions::default()).unwrap();
    let index = FileIndex::open(&folder.path().join("search"), "x").unwrap();
    search_contract(&store, &index);
}

#[test]
fn a_search_of_memory_is_a_scan() {
    let folder = tempfile::tempdir().unwrap();
    let index = FileIndex::open(&folder.path().join("search"), "x").unwrap();
    search_contract(&MemoryStore::default(), &index);
}

#[test]
fn a_search_of_redis_is_a_scan() {
    let Some(server) = RedisServer::shared() else { return };
    let mut address: RedisAddress = server.url().parse().unwrap();
    address.set_project(&project()).unwrap();
    let store = block_on(RedisStore::open(&address, RedisOptions::default())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let index = FileIndex::open(&folder.path().join("search"), "x").unwrap();
    search_contract(&store, &index);
}

#[test]
fn a_search_of_postgres_is_a_scan() {
    let Some(server) = PostgresServer::shared() else { return };
    let mut address: PostgresAddress = server.url().parse().unwrap();
    address.set_project(&project()).unwrap();
    let store = block_on(PostgresStore::open(&address, PostgresOptions::default())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let index = FileIndex::open(&folder.path().join("search"), "x").unwrap();
    search_contract(&store, &index);
}
