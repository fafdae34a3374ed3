//! The stores of azureal's sessions.
//!
//! Each store implements [`SessionStore`](azureal_core::SessionStore) and passes the contract in `azureal-testkit`.
//! The types of their signatures are re-exported, so that a user of this crate needs no other.

pub use azureal_core as core;

mod hints;
mod memory;
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
mod originals;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod server;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
mod timestamp;

pub use hints::hint;
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
#[cfg(feature = "redis")]
pub use redis::RedisStore;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub use server::{AddressError, ReadFile, ServerAddress, ServerStore};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
