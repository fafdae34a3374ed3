//! W2: loading a long session, whole and its end only.

use anyhow::{Result, ensure};
use azureal_core::{Message, Page, SessionStore, StoredEvent, read_history};
use azureal_store::sqlite::Journal;
use futures_executor::block_on;
use serde_json::{Value, json};

use super::{MESSAGES, long_session};
use crate::measure::repeated;
use crate::{data, scratch};

const REPETITIONS: usize = 7;

pub(crate) fn run() -> Result<Value> {
    let long = long_session()?;
    let open = || scratch::open(&long.path, Journal::Delete);
    let load = || -> Result<Vec<Message>> { Ok(block_on(read_history(&open()?, long.id))?) };

    let (whole, messages) = repeated(REPETITIONS, || Ok(load()?.len()))?;
    let (end, last) = repeated(REPETITIONS, || {
        let page = block_on(open()?.read(long.id, Page::last(50)))?;
        let events: Result<Vec<_>, _> = page.iter().map(StoredEvent::event).collect();
        Ok(events?.len())
    })?;

    let expected: Vec<Message> = data::turns_of_messages(MESSAGES)?.concat();
    ensure!(load()? == expected, "what was loaded is not what was stored");
    ensure!(last == 50, "{last} of the last 50 events were read");
    Ok(json!({"messages": messages, "ms": whole, "last50_ms": end}))
}
