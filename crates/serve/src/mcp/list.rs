//! The list of sessions.

use std::borrow::Cow;

use azureal::Error;
use azureal::core::{ListQuery, NameFilter, PREVIEW_CHARS, SessionRecord, visible_line};
use azureal::sessions::{called, resolve_to_read};

use super::arguments::Arguments;
use super::{RECORD, Server};

/// The most sessions of one list.
pub(super) const MOST: usize = 100;
/// The number of sessions without a limit.
const USUAL: usize = 20;
/// The longest part of a line, in characters.
const LONGEST_PART: usize = 120;
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
        let mut text = format!("{RECORD}\n");
        for record in records.iter().take(limit) {
            text.push_str(&self.listed(record));
            text.push('\n');
        }
        if records.len() > limit {
            text.push_str("There are more; `limit` lists them.\n");
        }
        Ok(text)
    }

    /// Returns the line of a session in the list.
    fn listed(&self, record: &SessionRecord) -> String {
        let current = (self.current == Some(record.id)).then(|| "the current session".to_owned());
        let prompt = record.counts.last_prompt.as_ref();
        let rest = [
            Some(format!("{} events", record.counts.events)),
            prompt.map(|prompt| format!("last prompt: {}", without_cut_word(prompt))),
        ];
        self.session_line(record, current, rest.into_iter().flatten())
    }

    /// Returns a line that names a session, with parts of the caller in it.
    pub(super) fn session_line(
        &self,
        record: &SessionRecord,
        note: Option<String>,
        rest: impl IntoIterator<Item = String>,
    ) -> String {
        let model = record.counts.model.as_ref();
        let agent = record.counts.agent.as_ref().map(|agent| match model {
            Some(model) => format!("{agent} {model}"),
            None => agent.clone(),
        });
        let parts = [Some(called(record)), note, agent, Some(record.active_at().to_owned())];
        self.line_of(parts.into_iter().flatten().chain(rest))
    }

    /// Returns a line of these parts. The values in a store can be of anybody, of any length, and empty.
    pub(super) fn line_of(&self, parts: impl IntoIterator<Item = String>) -> String {
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        // Before it is cut: a part of a secret does not look like one.
        let masked = |part: String| visible_line(&self.redactor.redact(&part)).into_owned();
        let parts: Vec<String> = parts.map(|part| shortened(masked(part))).collect();
        parts.join(" · ")
    }
}

/// Returns the beginning of a part of a line.
fn shortened(mut part: String) -> String {
    if let Some((at, _)) = part.char_indices().nth(LONGEST_PART) {
        part.truncate(at);
        part.push('…');
    }
    part
}

/// Returns a preview without its last word, if that may be cut: the beginning of a secret does not look like one.
fn without_cut_word(preview: &str) -> Cow<'_, str> {
    if preview.chars().count() < PREVIEW_CHARS {
        return Cow::Borrowed(preview);
    }
    let whole = preview.rsplit_once(char::is_whitespace).map_or("", |(whole, _)| whole);
    Cow::Owned(format!("{whole} …"))
}
