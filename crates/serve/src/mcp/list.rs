//! The list of sessions.

use std::borrow::Cow;

use azureal::Error;
use azureal::core::{ListQuery, NameFilter, PREVIEW_CHARS, SessionRecord, visible_line};
use azureal::sessions::{called, resolve_to_read};

use super::Server;
use super::arguments::Arguments;

/// The most sessions of one list.
pub(super) const MOST: usize = 100;
/// The number of sessions without a limit.
const USUAL: usize = 20;
/// The hint where a session is missing: a model has tools, and no command line.
pub(super) const SESSIONS: &str = "list_sessions lists them";

impl Server<'_> {
    /// Finds the session that a model names: by its number, also without the letter, or its name.
    pub(super) async fn session(&self, named: &str) -> Result<SessionRecord, Error> {
        let named = named.parse::<u32>().map_or_else(|_| named.to_owned(), |number| format!("S{number}"));
        resolve_to_read(self.workspace, &[], Some(&named)).await.map_err(|error| match error.hint() {
            Some(hint) if !hint.contains("azureal") => error,
            _ if error.kind() == "not_found" => error.with_hint(SESSIONS),
            _ => error,
        })
    }

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

/// Returns the line of a session in the list.
fn line(record: &SessionRecord, is_current: bool) -> String {
    let current = is_current.then(|| "the current session".to_owned());
    let prompt = record.counts.last_prompt.as_ref();
    let rest = [
        Some(format!("{} events", record.counts.events)),
        prompt.map(|prompt| format!("last prompt: {}", without_cut_word(prompt))),
    ];
    session_line(record, current, rest.into_iter().flatten())
}

/// Returns a preview without its last word, if that may be cut: the beginning of a secret does not look like one.
fn without_cut_word(preview: &str) -> Cow<'_, str> {
    if preview.chars().count() < PREVIEW_CHARS {
        return Cow::Borrowed(preview);
    }
    let whole = preview.rsplit_once(char::is_whitespace).map_or("", |(whole, _)| whole);
    Cow::Owned(format!("{whole} …"))
}

/// Returns a line that names a session, with parts of the caller in it. The values in a file of a store can be of anybody.
pub(super) fn session_line(
    record: &SessionRecord,
    note: Option<String>,
    rest: impl IntoIterator<Item = String>,
) -> String {
    let model = record.counts.model.as_ref();
    let agent = record.counts.agent.as_ref().map(|agent| match model {
        Some(model) => format!("{agent} {model}"),
        None => agent.clone(),
    });
    let parts = [Some(called(record)), note, agent, Some(record.last_active.clone())];
    let parts: Vec<String> =
        parts.into_iter().flatten().chain(rest).filter(|part| !part.is_empty()).collect();
    visible_line(&parts.join(" · ")).into_owned()
}
