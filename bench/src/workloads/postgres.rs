//! PostgreSQL, on the server that `BENCH_PG` names.

use anyhow::{Context, Result};
use azureal_store::ServerAddress;
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use futures_executor::block_on;
use serde_json::Value;

use super::server;
use crate::Options;

pub(crate) fn run(options: &Options) -> Result<Value> {
    server::measure(&open(PostgresOptions::default())?, options)
}

/// Opens a store on that server.
pub(super) fn open(how: PostgresOptions) -> Result<PostgresStore> {
    let url = std::env::var("BENCH_PG").context("BENCH_PG is not set")?;
    let mut address: PostgresAddress = url.parse()?;
    address.set_project("bench")?;
    Ok(block_on(PostgresStore::open(&address, how))?)
}
