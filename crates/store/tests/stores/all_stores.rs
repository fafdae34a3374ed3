//! All four stores are in the same state after the same things were done with them.

use std::path::Path;
use std::sync::Arc;

use azureal_store::MemoryStore;
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use azureal_store::redis::{RedisAddress, RedisOptions, RedisStore};
use azureal_store::sqlite::{SqliteOptions, SqliteStore};
use azureal_testkit::servers::{PostgresServer, RedisServer};
use azureal_testkit::{Sequence, long_sequence_agrees};
use futures_executor::block_on;
use tempfile::TempDir;

#[test]
fn ten_thousand_operations_leave_one_state_everywhere() {
    let Some(postgres_server) = PostgresServer::shared() else { return };
    let Some(redis_server) = RedisServer::shared() else { return };
    let folder = folder_in_memory();
    let sqlite = SqliteStore::open(folder.path().join("sessions.azs"), SqliteOptions::default()).unwrap();
    let address: PostgresAddress = format!("{}?project=all", postgres_server.url()).parse().unwrap();
    let postgres = block_on(PostgresStore::open(&address, PostgresOptions::default())).unwrap();
    let address: RedisAddress = format!("{}?project=all", redis_server.url()).parse().unwrap();
    let redis = block_on(RedisStore::open(&address, RedisOptions::default())).unwrap();
    long_sequence_agrees(
        &[
            ("memory", Arc::new(MemoryStore::default())),
            ("SQLite", Arc::new(sqlite)),
            ("PostgreSQL", Arc::new(postgres)),
            ("Redis", Arc::new(redis)),
        ],
        Sequence { operations: 10_000, seed: 20_261_115, lists_every: 100, all_every: 2_500 },
    );
}

/// Where there is one: this is about what is said, and a disk would make the test wait for its syncs.
fn folder_in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap()
}
