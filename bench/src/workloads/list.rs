//! W3: listing many sessions, newest first, with preview and counts.

use anyhow::{Result, ensure};
use azureal_core::{ListQuery, SessionRecord, SessionStore};
use azureal_store::sqlite::Journal;
use futures_executor::block_on;
use serde_json::{Value, json};

use crate::measure::repeated;
use crate::{data, scratch};

const REPETITIONS: usize = 9;

pub(crate) fn run() -> Result<Value> {
    let many = scratch::prepared("w3.azs", || {
        let sessions = data::sessions()?;
        Ok(sessions.into_iter().map(|messages| vec![messages]).collect())
    })?;
    let list = |limit: Option<usize>| -> Result<Vec<SessionRecord>> {
        let query = ListQuery { limit, ..ListQuery::default() };
        Ok(block_on(scratch::open(&many.path, Journal::Delete)?.list(&query))?)
    };

    let (all, sessions) = repeated(REPETITIONS, || Ok(list(None)?.len()))?;
    let (first, shown) = repeated(REPETITIONS, || Ok(list(Some(50))?.len()))?;

    ensure!(shown == 50, "{shown} of the first 50 sessions were listed");
    let complete =
        |record: &SessionRecord| record.counts.messages == 4 && !record.counts.preview_text().is_empty();
    ensure!(list(None)?.iter().all(complete), "a session is listed without its counts or preview");
    Ok(json!({"sessions": sessions, "ms": all, "first50_ms": first}))
}
