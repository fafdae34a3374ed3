//! The stores: the contract on each of them, and what each promises beyond it. One binary, so that real servers start once.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "tests read the environment of their process, and start it again"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot continue has failed"
)]

mod memory;
mod minimal;
mod scratch;

#[cfg(feature = "sqlite")]
mod auto_compact;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod sqlite_details;
#[cfg(feature = "sqlite")]
mod sqlite_faults;
#[cfg(feature = "sqlite")]
mod sqlite_file;
#[cfg(feature = "sqlite")]
mod sqlite_health;
mod sqlite_hostile;
#[cfg(feature = "sqlite")]
mod sqlite_restore;
#[cfg(feature = "sqlite")]
mod sqlite_second_name;
#[cfg(feature = "sqlite")]
mod sqlite_together;
#[cfg(feature = "sqlite")]
mod sqlite_versions;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod sqlite_watch;

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_faults;
#[cfg(feature = "postgres")]
mod postgres_hostile;
#[cfg(feature = "postgres")]
mod postgres_hosts;
#[cfg(feature = "postgres")]
mod postgres_originals;
#[cfg(feature = "postgres")]
mod postgres_pooler;
#[cfg(feature = "postgres")]
mod postgres_server;
#[cfg(feature = "postgres")]
mod postgres_upgrade;

#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_faults;
#[cfg(feature = "redis")]
mod redis_hostile;
#[cfg(feature = "redis")]
mod redis_server;
#[cfg(feature = "redis")]
mod redis_upgrade;

#[cfg(all(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod all_stores;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod certificates;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod cuts;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod hostile;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod storm;
