//! PostgreSQL, on the server that `BENCH_PG` names.

use anyhow::{Context, Result};
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use futures_executor::block_on;
use serde_json::Value;

use super::server;
use crate::Options;

pub(crate) fn run(options: &Options) -> Result<Value> {
    let url = std::env::var("BENCH_PG").context("BENCH_PG is not set")?;
    let mut address: PostgresAddress = url.parse()?;
    address.set_project("bench")?;
    let store = block_on(PostgresStore::open(&address, PostgresOptions::default()))?;
    server::measure(&store, options)
}
