//! Redis, on the server that `BENCH_REDIS` names.

use anyhow::{Context, Result};
use azureal_store::ServerAddress;
use azureal_store::redis::{RedisAddress, RedisOptions, RedisStore};
use futures_executor::block_on;
use serde_json::Value;

use super::server;
use crate::Options;

pub(crate) fn run(options: &Options) -> Result<Value> {
    let url = std::env::var("BENCH_REDIS").context("BENCH_REDIS is not set")?;
    let mut address: RedisAddress = url.parse()?;
    address.set_project("bench")?;
    let store = block_on(RedisStore::open(&address, RedisOptions::default()))?;
    server::measure(&store, options)
}
