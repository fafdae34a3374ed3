//! Which session is meant.
//!
//! A session is called by its number (`S3`), by its name, or by the beginning of its name where that is
//! enough to tell it from the others. In this order: a number is never taken for a name.

use azureal_core::{ListQuery, SessionId, SessionRecord, SessionStore, visible_line};

use crate::failure::{Failure, quoted};

/// How many sessions an error names.
const NAMED: usize = 10;

/// Finds the session that the user means.
pub(crate) async fn resolve(store: &dyn SessionStore, text: &str) -> Result<SessionRecord, Failure> {
    if let Ok(number) = text.parse::<SessionId>() {
        return Ok(store.get(number).await?);
    }
    let mut candidates = Vec::new();
    for id in store.find(text).await? {
        candidates.push(store.get(id).await?);
    }
    if candidates.is_empty() && !text.is_empty() {
        candidates = store.list(&ListQuery::default()).await?;
        candidates.retain(|record| has_name(record) && record.name.starts_with(text));
    }
    match candidates.len() {
        0 => Err(not_found(text)),
        1 => candidates.pop().ok_or_else(|| not_found(text)),
        _ => Err(ambiguous(text, &candidates)),
    }
}

/// Says whether somebody gave the session a name.
pub(crate) fn has_name(record: &SessionRecord) -> bool {
    record.name != record.id.to_string()
}

/// Returns what a session is called when it is spoken of: its number, and its name where it has one.
pub(crate) fn called(record: &SessionRecord) -> String {
    if has_name(record) {
        format!("{} {}", record.id, visible_line(&record.name))
    } else {
        record.id.to_string()
    }
}

fn not_found(text: &str) -> Failure {
    let failure = Failure::new("not_found", format!("no session is called {}", quoted(text)));
    if text.parse::<u32>().is_ok() {
        failure.with_hint(format!("session numbers are written as `S{text}`"))
    } else {
        failure.with_hint("`azureal list --all` shows what is there")
    }
}

fn ambiguous(text: &str, candidates: &[SessionRecord]) -> Failure {
    let mut names: Vec<String> = candidates.iter().take(NAMED).map(called).collect();
    if let Some(more) = candidates.len().checked_sub(NAMED).filter(|more| *more > 0) {
        names.push(format!("{more} more"));
    }
    let list = names.join(", ");
    Failure::new("ambiguous", format!("{} may be any of: {list}", quoted(text)))
        .with_hint("name the one you mean by its number")
}
