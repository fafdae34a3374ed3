//! The list of sessions.

use std::borrow::Cow;

use azureal::Error;
use azureal::core::{ListQuery, NameFilter, PREVIEW_CHARS, SessionRecord, visible_line};
use azureal::sessions::called;

use super::Server;
use super::arguments::Arguments;

/// The most sessions of one list.
pub(super) const MOST: usize = 100;
/// The number of sessions without a limit.
const USUAL: usize = 20;

impl Server<'_> {
    pub(super) async fn list_sessions(&self, arguments: &Arguments<'_>) -> Result<String, Error> {
        let limit = arguments.number("limit")?.map_or(USUAL, |limit| usize::try_from(limit).unwrap_or(MOST));
        let limit = limit.clamp(1, MOST);
        let name = arguments.text("name")?.map(NameFilter::Prefix);
        let none =
            if name.is_some() { "There is no session of such a name." } else { "There is no session yet." };
        // One more, to know whether there are more.
        let query = ListQuery { name, limit: Some(limit + 1), ..ListQuery::default() };
        let records = self.workspace.store.list(&query).await?;
        if records.is_empty() {
            return Ok(none.to_owned());
        }
        let mut text = String::new();
        for record in records.iter().take(limit) {
            text.push_str(&line(record, self.current == Some(record.id)));
            text.push('\n');
        }
        if records.len() > limit {
            text.push_str("There are more; `limit` lists them.\n");
        }
        Ok(text)
    }
}

/// Returns the line of a session.
fn line(record: &SessionRecord, is_current: bool) -> String {
    let mut parts = vec![called(record)];
    if is_current {
        parts.push("the current session".to_owned());
    }
    parts.extend(agent_text(record));
    parts.push(record.last_active.clone());
    parts.push(format!("{} events", record.counts.events));
    if let Some(prompt) = &record.counts.last_prompt {
        parts.push(format!("last prompt: {}", visible_line(&without_cut_word(prompt))));
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// Returns a preview without its last word, if that may be cut: the beginning of a secret does not look like one.
fn without_cut_word(preview: &str) -> Cow<'_, str> {
    if preview.chars().count() < PREVIEW_CHARS {
        return Cow::Borrowed(preview);
    }
    let whole = preview.rsplit_once(char::is_whitespace).map_or("", |(whole, _)| whole);
    Cow::Owned(format!("{whole} …"))
}

/// Returns the agent of a session and its model, as far as they are known.
pub(super) fn agent_text(record: &SessionRecord) -> Option<String> {
    let agent = record.counts.agent.as_deref()?;
    Some(match &record.counts.model {
        Some(model) => format!("{agent} {}", visible_line(model)),
        None => agent.to_owned(),
    })
}
