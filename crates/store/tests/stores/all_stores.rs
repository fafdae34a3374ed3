//! All four stores are in the same state after the same things were done with them.

use std::path::Path;
use std::sync::Arc;

use azureal_store::MemoryStore;
use azureal_store::core::{NewSession, SessionStore};
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use azureal_store::redis::{RedisAddress, RedisOptions, RedisStore};
use azureal_store::sqlite::{SqliteOptions, SqliteStore};
use azureal_testkit::servers::{PostgresServer, RedisServer};
use azureal_testkit::{Sequence, long_sequence_agrees, thorough};
use futures_executor::block_on;
use tempfile::TempDir;

/// The four stores, each with its name and whether several machines share it.
type Stores = [(&'static str, bool, Arc<dyn SessionStore>); 4];

/// Opens an empty store of each kind; `None` if a server is missing.
fn open_all(folder: &Path, project: &str) -> Option<Stores> {
    let (postgres_server, redis_server) = (PostgresServer::shared()?, RedisServer::shared()?);
    let sqlite = SqliteStore::open(folder.join("sessions.azs"), SqliteOptions::default()).unwrap();
    let address: PostgresAddress = format!("{}?project={project}", postgres_server.url()).parse().unwrap();
    let postgres = block_on(PostgresStore::open(&address, PostgresOptions::default())).unwrap();
    let address: RedisAddress = format!("{}?project={project}", redis_server.url()).parse().unwrap();
    let redis = block_on(RedisStore::open(&address, RedisOptions::default())).unwrap();
    Some([
        ("memory", false, Arc::new(MemoryStore::default())),
        ("SQLite", false, Arc::new(sqlite)),
        ("PostgreSQL", true, Arc::new(postgres)),
        ("Redis", true, Arc::new(redis)),
    ])
}

#[test]
fn ten_thousand_operations_leave_one_state_everywhere() {
    let folder = folder_in_memory();
    let Some(stores) = open_all(folder.path(), "all") else { return };
    long_sequence_agrees(
        &stores.map(|(name, _, store)| (name, store)),
        Sequence {
            operations: thorough(10_000, 50_000),
            seed: 20_261_115,
            lists_every: 100,
            all_every: 2_500,
        },
    );
}

#[test]
fn every_store_offers_what_it_can() {
    let folder = folder_in_memory();
    let Some(stores) = open_all(folder.path(), "capabilities") else { return };
    for (name, is_shared, store) in stores {
        assert!(store.crash_notes().is_some(), "{name}");
        assert_eq!(store.leases().is_some(), is_shared, "{name}");
        // A store in a file has something to watch once it has its file, and memory is one process's own.
        block_on(store.create(NewSession::default())).unwrap();
        let can_tell = is_shared || (name == "SQLite" && cfg!(target_os = "linux"));
        assert_eq!(block_on(store.watch_all()).unwrap().is_some(), can_tell, "{name}");
    }
}

/// Where there is one: this is about what is said, and a disk would make the test wait for its syncs.
fn folder_in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap()
}
